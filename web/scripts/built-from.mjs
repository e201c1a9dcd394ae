// Says, and checks, from which sources the built page was made: crates/gateway/page/built-from.txt.
//
// The file has two lines, each a name, a space, and 64 hexadecimal digits:
//
//     sources H(S)
//     page H(P)
//
// H(F), for a set of files F with a base folder, is the SHA-256 of the concatenation, over the files sorted by
// path (compared as bytes of UTF-8), of
//
//     path "\0" length "\0" bytes
//
// where path is relative to the base folder with "/" between its parts, and length is the number of bytes in
// decimal digits. Files and folders whose name begins with "." are no members, except where named here.
//
//     S  base web/: every file below src/, public/ and scripts/; index.html, coordinator.html, onion.html, package.json, package-lock.json,
//        svelte.config.js, tsconfig.json, vite.config.ts
//     P  base crates/gateway/page/: every file below it, except built-from.txt
//
// `--write` writes the file (after a build); `--check` ends with 1 and says what differs.
import { createHash } from 'node:crypto'
import { readFileSync, readdirSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'

const web = join(dirname(fileURLToPath(import.meta.url)), '..')
const page = join(web, '../crates/gateway/page')
const folders = ['src', 'public', 'scripts']
const files = ['index.html', 'coordinator.html', 'onion.html', 'package.json', 'package-lock.json', 'svelte.config.js', 'tsconfig.json', 'vite.config.ts']

function below(base, folder) {
  return readdirSync(join(base, folder), { withFileTypes: true })
    .filter((entry) => !entry.name.startsWith('.'))
    .flatMap((entry) => {
      const path = folder === '' ? entry.name : `${folder}/${entry.name}`
      return entry.isDirectory() ? below(base, path) : [path]
    })
}

function hash(base, paths) {
  const sum = createHash('sha256')
  for (const path of paths.sort((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b)))) {
    const bytes = readFileSync(join(base, path))
    sum.update(`${path}\0${bytes.length}\0`).update(bytes)
  }
  return sum.digest('hex')
}

export function builtFrom() {
  const sources = [...files, ...folders.flatMap((folder) => below(web, folder))]
  const built = below(page, '').filter((path) => path !== 'built-from.txt')
  return `sources ${hash(web, sources)}\npage ${hash(page, built)}\n`
}

const target = join(page, 'built-from.txt')
if (process.argv.includes('--write')) writeFileSync(target, builtFrom())
if (process.argv.includes('--check')) {
  const [now, then] = [builtFrom().split('\n'), readFileSync(target, 'utf8').split('\n')]
  if (now[0] !== then[0]) console.error('The page in crates/gateway/page was built from other sources: run `npm run build`.')
  else if (now[1] !== then[1]) console.error('Files in crates/gateway/page are not those of the last build: run `npm run build`.')
  if (now.join('\n') !== then.join('\n')) process.exit(1)
}
