// A live test picture as a transport stream: ffmpeg draws 20 s once, then plays them round and round at their pace.
// Players get a burst from a keyframe at least 3 s old, as a peer's playout gives it; HLS gets one segment a keyframe.
import { spawn, spawnSync } from 'node:child_process'
import { existsSync, mkdirSync, renameSync } from 'node:fs'
import { join } from 'node:path'

const PACKET = 188
const BURST_MS = 3000
const KEPT_SEGMENTS = 12

const DRAWN = [
  '-hide_banner', '-loglevel', 'error', '-y',
  '-f', 'lavfi', '-i', 'testsrc2=size=854x480:rate=25:duration=20',
  '-f', 'lavfi', '-i', 'sine=frequency=330:sample_rate=48000:duration=20',
  '-c:v', 'libx264', '-preset', 'veryfast', '-pix_fmt', 'yuv420p', '-g', '25', '-keyint_min', '25', '-sc_threshold', '0', '-bf', '0',
  '-b:v', '1200k', '-c:a', 'aac', '-b:a', '64k', '-f', 'mpegts',
]
// Tables before each keyframe, so that any of them is a place to start.
// Quiet: its end is a broken pipe wherever the mock was killed.
const PLAYED = ['-hide_banner', '-loglevel', 'quiet', '-re', '-stream_loop', '-1', '-i']
const AS_TS = ['-c', 'copy', '-mpegts_flags', '+pat_pmt_at_frames', '-f', 'mpegts', '-flush_packets', '1', 'pipe:1']

export class Clip {
  players = 0
  #folder
  #ffmpeg = null
  #rest = Buffer.alloc(0)
  /** Each begins with the tables before a keyframe: { number, atMs, chunks }. */
  #segments = []
  #next = 0
  #listeners = new Set()

  constructor(folder) {
    this.#folder = folder
  }

  async start() {
    const file = join(this.#folder, 'clip.ts')
    if (!existsSync(file)) {
      mkdirSync(this.#folder, { recursive: true })
      const drawn = `${file}.${process.pid}`
      const done = spawnSync('ffmpeg', [...DRAWN, drawn], { stdio: ['ignore', 'inherit', 'inherit'] })
      if (done.status !== 0) throw new Error('ffmpeg could not draw the test picture: is it installed?')
      renameSync(drawn, file)
    }
    this.#ffmpeg = spawn('ffmpeg', [...PLAYED, file, ...AS_TS], { stdio: ['ignore', 'pipe', 'inherit'] })
    // Dies with its reader: its next write to a closed pipe ends it.
    this.#ffmpeg.stdout.on('data', (bytes) => this.#take(bytes))
  }

  stop() {
    this.#ffmpeg?.kill()
  }

  stream(answer) {
    answer.writeHead(200, { 'Content-Type': 'video/mp2t' })
    const old = this.#segments.findLastIndex((segment) => segment.atMs <= performance.now() - BURST_MS)
    answer.write(Buffer.concat(this.#segments.slice(Math.max(0, old)).flatMap((segment) => segment.chunks)))
    const listener = (chunk) => answer.write(chunk)
    this.#listeners.add(listener)
    this.players += 1
    answer.on('close', () => {
      this.#listeners.delete(listener)
      this.players -= 1
    })
  }

  playlist() {
    const whole = this.#segments.slice(-7, -1)
    const first = whole[0]?.number ?? 0
    const lines = whole.flatMap(({ number }) => ['#EXTINF:1.000,', `/segments/${number}.ts`])
    return ['#EXTM3U', '#EXT-X-VERSION:3', '#EXT-X-TARGETDURATION:1', `#EXT-X-MEDIA-SEQUENCE:${first}`, ...lines, ''].join('\n')
  }

  segment(number) {
    const found = this.#segments.find((segment) => segment.number === number)
    return found === undefined ? null : Buffer.concat(found.chunks)
  }

  #take(bytes) {
    const all = Buffer.concat([this.#rest, bytes])
    const whole = all.length - (all.length % PACKET)
    this.#rest = all.subarray(whole)
    const chunks = []
    for (let at = 0; at < whole; at += PACKET) chunks.push(...this.#packet(all.subarray(at, at + PACKET)))
    if (chunks.length > 0) for (const listener of this.#listeners) listener(Buffer.concat(chunks))
  }

  /** What goes to players with this packet: nothing while it is a table, which goes with what follows. */
  #packet(packet) {
    // The table of programmes (PID 0) stands before each keyframe, and, by the flags above, before other frames too.
    const pid = packet.readUInt16BE(1) & 0x1fff
    const isTable = pid === 0 || pid === 0x11 || pid === 0x1000
    if (isTable) {
      this.#tables = pid === 0x11 || (pid === 0 && this.#tables.length === 0) ? [packet] : [...this.#tables, packet]
      return []
    }
    const isKeyframe = (packet[3] & 0x20) !== 0 && packet[4] > 0 && (packet[5] & 0x40) !== 0 && pid === 0x100
    if (isKeyframe) {
      this.#segments.push({ number: this.#next++, atMs: performance.now(), chunks: [] })
      if (this.#segments.length > KEPT_SEGMENTS) this.#segments.shift()
    }
    const chunk = this.#tables.length > 0 ? Buffer.concat([...this.#tables, packet]) : Buffer.from(packet)
    this.#tables = []
    this.#segments.at(-1)?.chunks.push(chunk)
    return [chunk]
  }

  #tables = []
}
