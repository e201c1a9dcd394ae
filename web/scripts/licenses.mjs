// Writes assets/licenses.txt: name, version and licence text of every package whose code is in the page.
// What is listed is what the bundler really took in, read from its module graph.
import { existsSync, readFileSync, readdirSync } from 'node:fs'
import { join } from 'node:path'

/** `/…/node_modules/@scope/name/dist/x.js` -> `/…/node_modules/@scope/name`; null outside of node_modules. */
function packageFolder(moduleId) {
  const found = /^(.*\/node_modules\/(?:@[^/]+\/)?[^/]+)\//.exec(moduleId.replace(/^\0/, ''))
  return found ? found[1] : null
}

export function licenses() {
  return {
    name: 'licenses',
    apply: 'build',
    generateBundle(_options, bundle) {
      const folders = new Set()
      for (const output of Object.values(bundle)) {
        for (const id of output.type === 'chunk' ? output.moduleIds : []) {
          const folder = packageFolder(id)
          if (folder) folders.add(folder)
        }
      }
      const texts = [...folders].sort((a, b) => (nameOf(a) < nameOf(b) ? -1 : 1)).map(licenceOf)
      this.emitFile({ type: 'asset', fileName: 'assets/licenses.txt', source: texts.join('\n' + '='.repeat(78) + '\n\n') })
    },
  }
}

function manifestOf(folder) {
  return JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'))
}

function nameOf(folder) {
  return manifestOf(folder).name
}

function licenceOf(folder) {
  const { name, version, license } = manifestOf(folder)
  const file = readdirSync(folder).sort().find((entry) => /^(licen[cs]e|copying)/i.test(entry))
  const text = file && existsSync(join(folder, file)) ? readFileSync(join(folder, file), 'utf8').trim() : ''
  return `${name} ${version} (${license})\n\n${text}\n`.replace(/\r\n/g, '\n')
}
