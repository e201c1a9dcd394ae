// A mock of a peer's HTTP server, for the development and the tests of this page only: no figure here is measured, and
// no packet is sent. It plays a scripted overlay (mock/overlay.mjs) and a test picture that ffmpeg draws; with
// `--page onion`, a scripted user of an onion overlay (mock/onion.mjs), and with `--page coordinator`, a scripted
// coordinator of hosts (mock/coordinator.mjs), which need no ffmpeg.
//
//   node mock/server.mjs [--port 4310] [--clients 20] [--role viewer|server] [--kill 5] [--kill-at 10]
//                        [--start-at 0] [--private] [--without-overlay] [--told 100] [--without-ts] [--dist DIR]
//                        [--page index|onion|coordinator] [--guards 2] [--relays 24] [--empty]
//                        [--hosts 3] [--without-policy] [--halt-at S] [--full] [--twins] [--gone]
//
// `--start-at` begins that many seconds into the script; `--without-ts` refuses /stream.ts, so that only HLS plays.
// From `--halt-at` seconds on, no video comes to the server; `--full` has no place for another listener; of an onion's
// relays `--twins` names two alike; a coordinator hears nothing any more of the first host with `--gone`.
import { createReadStream, existsSync, statSync } from 'node:fs'
import { createServer } from 'node:http'
import { dirname, extname, join, normalize } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { Clip } from './clip.mjs'
import { CoordinatorScript } from './coordinator.mjs'
import { OnionScript } from './onion.mjs'
import { Script } from './overlay.mjs'

const here = dirname(fileURLToPath(import.meta.url))
const { values } = parseArgs({
  options: {
    port: { type: 'string', default: '4310' },
    clients: { type: 'string', default: '20' },
    role: { type: 'string', default: 'viewer' },
    kill: { type: 'string', default: '5' },
    'kill-at': { type: 'string', default: '10' },
    'start-at': { type: 'string', default: '0' },
    private: { type: 'boolean', default: false },
    'without-overlay': { type: 'boolean', default: false },
    told: { type: 'string' },
    'without-ts': { type: 'boolean', default: false },
    page: { type: 'string', default: 'index' },
    guards: { type: 'string', default: '2' },
    relays: { type: 'string', default: '24' },
    hosts: { type: 'string', default: '3' },
    'without-policy': { type: 'boolean', default: false },
    'halt-at': { type: 'string' },
    full: { type: 'boolean', default: false },
    twins: { type: 'boolean', default: false },
    gone: { type: 'boolean', default: false },
    empty: { type: 'boolean', default: false },
    dist: { type: 'string', default: join(here, '../../crates/gateway/page') },
  },
})

// What the real server should send, word for word, so that the tests run under it.
export const CSP =
  "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; media-src 'self' blob:; connect-src 'self'; " +
  "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

const TYPES = { '.html': 'text/html; charset=utf-8', '.js': 'text/javascript', '.css': 'text/css', '.svg': 'image/svg+xml', '.txt': 'text/plain; charset=utf-8' }

const haltAtS = values['halt-at'] === undefined ? Infinity : Number(values['halt-at'])
const clip = new Clip(join(here, '.cache'))
const isOnion = values.page === 'onion'
const stream = new Script({
  clients: Number(values.clients),
  role: values.role,
  kill: Number(values.kill),
  killAtS: Number(values['kill-at']),
  isPrivate: values.private,
  hasOverlay: !values['without-overlay'],
  told: values.told === undefined ? undefined : Number(values.told),
  haltAtS,
})
const onion = new OnionScript({ guards: Number(values.guards), relays: Number(values.relays), isEmpty: values.empty, hasTwins: values.twins })
const coordinator = new CoordinatorScript({ hosts: Number(values.hosts), hasPolicy: !values['without-policy'], isEmpty: values.empty, hasGone: values.gone })
const startedAt = performance.now() - Number(values['start-at']) * 1000
const overview = () => {
  const now = (performance.now() - startedAt) / 1000
  if (values.page === 'coordinator') return JSON.stringify(coordinator.overviewAt(now))
  return JSON.stringify(isOnion ? onion.overviewAt(now) : stream.overviewAt(now, clip.players))
}

const server = createServer((request, answer) => {
  const { pathname } = new URL(request.url ?? '/', 'http://mock')
  answer.setHeader('Content-Security-Policy', CSP)
  answer.setHeader('X-Content-Type-Options', 'nosniff')
  answer.setHeader('Cache-Control', 'no-store')
  if (pathname === '/api/overview') {
    answer.writeHead(200, { 'Content-Type': 'application/json' }).end(overview())
  } else if (pathname === '/events' && values.full) {
    answer.writeHead(503, { 'Content-Type': 'text/plain; charset=utf-8' }).end('too many pages are open already\n')
  } else if (pathname === '/events') {
    answer.writeHead(200, { 'Content-Type': 'text/event-stream' })
    const tell = () => answer.write(`event: overview\ndata: ${overview()}\n\n`)
    tell()
    const timer = setInterval(tell, 1000)
    answer.on('close', () => clearInterval(timer))
  } else if (isOnion && pathname === '/figures/onion-tradeoff.svg') {
    answer.writeHead(200, { 'Content-Type': 'image/svg+xml' })
    createReadStream(join(here, '../../docs/figures/onion-tradeoff.svg')).pipe(answer)
  } else if (pathname === '/stream.ts') {
    if (values['without-ts']) answer.writeHead(404).end('no transport stream here\n')
    else clip.stream(answer)
  } else if (pathname === '/index.m3u8') {
    answer.writeHead(200, { 'Content-Type': 'application/vnd.apple.mpegurl' }).end(clip.playlist())
  } else if (pathname.startsWith('/segments/')) {
    const segment = clip.segment(Number.parseInt(pathname.slice('/segments/'.length), 10))
    if (segment === null) answer.writeHead(404).end('no such segment\n')
    else answer.writeHead(200, { 'Content-Type': 'video/mp2t' }).end(segment)
  } else sendFile(pathname, answer)
})

function sendFile(pathname, answer) {
  const path = normalize(join(values.dist, pathname === '/' ? `${values.page}.html` : pathname))
  if (!path.startsWith(values.dist) || !existsSync(path) || !statSync(path).isFile()) {
    answer.writeHead(404).end('not here\n')
    return
  }
  answer.writeHead(200, { 'Content-Type': TYPES[extname(path)] ?? 'application/octet-stream' })
  createReadStream(path).pipe(answer)
}

if (values.page === 'index') await clip.start()
if (haltAtS < Infinity) setTimeout(() => clip.stop(), startedAt + haltAtS * 1000 - performance.now())
server.listen(Number(values.port), '127.0.0.1', () => {
  const { port } = server.address()
  console.log(`mock peer (development only) at http://127.0.0.1:${port}/`)
})
for (const signal of ['SIGINT', 'SIGTERM']) {
  process.on(signal, () => {
    clip.stop()
    process.exit(0)
  })
}
