// How long players take from their connecting until they show a picture, against a running viewer or server:
//
//   anabranch stream watch LINK          # prints its page
//   node e2e/starts.mjs http://127.0.0.1:8080/ [10]
//
// mpv and ffmpeg (which probes as ffplay does) end with the first frame that they have decoded; Chromium says when it
// presented one (requestVideoFrameCallback). Each as it is installed, one after another, so many times. Times begin
// with the connection, which a proxy here sees: until then, a player's own start has nothing to do with the stream.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { connect, createServer } from 'node:net'
import { findChromium, launch } from './browser.mjs'

const [page, count = '10'] = process.argv.slice(2)
if (page === undefined) throw new Error('usage: node e2e/starts.mjs PAGE [STARTS]')
const target = new URL(page)
let connectedAt = null
const proxy = createServer((client) => {
  connectedAt ??= performance.now()
  const server = connect(Number(target.port), target.hostname)
  client.pipe(server).pipe(client)
  for (const end of [client, server]) end.on('error', () => (client.destroy(), server.destroy()))
})
proxy.listen(0, '127.0.0.1')
await once(proxy, 'listening')
const base = `http://127.0.0.1:${proxy.address().port}/`

/** Seconds from the connection until the program ends well; null where it is not installed. */
async function program(name, args) {
  connectedAt = null
  const child = spawn(name, args, { stdio: ['ignore', 'ignore', 'inherit'] })
  const [code] = await Promise.race([once(child, 'exit'), once(child, 'error').then(() => [null])])
  if (code === null) return null
  if (code !== 0) throw new Error(`${name} ended with ${code}`)
  return (performance.now() - connectedAt) / 1000
}

async function chromium(browser) {
  connectedAt = null
  const tab = await browser.newPage()
  await tab.goto(base, { waitUntil: 'domcontentloaded' })
  await tab.waitForSelector('video')
  await tab.$eval('video', (video) => new Promise((done) => video.requestVideoFrameCallback(done)))
  const seconds = (performance.now() - connectedAt) / 1000
  await tab.close()
  return seconds
}

function print(name, starts) {
  const sorted = starts.toSorted((a, b) => a - b)
  const at = (share) => sorted[Math.max(0, Math.ceil(share * sorted.length) - 1)].toFixed(2)
  console.log(`${name.padEnd(10)} ${sorted.length} starts: median ${at(0.5)} s, 95 % ${at(0.95)} s, longest ${at(1)} s`)
}

async function measure(name, start) {
  const starts = []
  for (let turn = 0; turn < Number(count); turn += 1) {
    const seconds = await start()
    if (seconds === null) return console.log(`${name.padEnd(10)} is not installed`)
    starts.push(seconds)
  }
  print(name, starts)
}

const stream = `${base}stream.ts`
await measure('mpv', () => program('mpv', ['--no-config', '--really-quiet', '--vo=null', '--ao=null', '--frames=1', stream]))
await measure('ffmpeg', () => program('ffmpeg', ['-nostdin', '-loglevel', 'error', '-i', stream, '-frames:v', '1', '-f', 'null', '-']))
const path = findChromium()
if (path === null) console.log('chromium   is not installed')
else {
  const browser = await launch(path)
  await measure('chromium', () => chromium(browser))
  await browser.close()
}
proxy.close()
process.exit(0)
