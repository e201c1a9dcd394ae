// What the end-to-end test and the screenshots share: a mock peer and Chromium, each ended by its own handle.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import puppeteer from 'puppeteer-core'

const web = join(dirname(fileURLToPath(import.meta.url)), '..')

/** The browser to drive: $CHROMIUM, or where Debian installs it; null where there is none. */
export function findChromium() {
  const places = [process.env.CHROMIUM, '/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome']
  return places.find((place) => place !== undefined && existsSync(place)) ?? null
}

export function launch(executablePath) {
  return puppeteer.launch({
    executablePath,
    headless: true,
    // Containers run as root without user namespaces; the pages opened are our own.
    args: ['--headless=new', '--no-sandbox', '--disable-gpu', '--no-first-run', '--mute-audio', '--disable-background-networking'],
  })
}

/** A mock peer on a port of its own (or on `port`, to come back where it was). */
export async function startMock(args, port = 0) {
  const child = spawn(process.execPath, [join(web, 'mock/server.mjs'), '--port', String(port), ...args], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  const ended = once(child, 'exit')
  const lines = createInterface({ input: child.stdout })
  const url = await Promise.race([
    once(lines, 'line').then(([line]) => /http:\S+/.exec(line)?.[0]),
    ended.then(() => Promise.reject(new Error('the mock ended before it listened'))),
  ])
  return {
    url,
    port: Number(new URL(url).port),
    async stop(signal = 'SIGTERM') {
      child.kill(signal)
      await ended
    },
  }
}
