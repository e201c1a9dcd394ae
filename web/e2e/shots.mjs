// Screenshots of the built page, to be looked at: `node e2e/shots.mjs FOLDER [NAME…]`.
import { mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { findChromium, launch, startMock } from './browser.mjs'

const SCENES = {
  viewer: ['--role', 'viewer'],
  server: ['--role', 'server'],
  crowd: ['--role', 'server', '--clients', '1000', '--kill', '250'],
  untold: ['--role', 'viewer', '--without-overlay', '--private'],
  onion: ['--page', 'onion'],
  'onion-letter': ['--page', 'onion', '--guards', '0'],
  'onion-empty': ['--page', 'onion', '--empty'],
  coordinator: ['--page', 'coordinator'],
  'coordinator-rule': ['--page', 'coordinator', '--without-policy'],
  'coordinator-empty': ['--page', 'coordinator', '--empty'],
}
const [folder = 'out/shots', ...names] = process.argv.slice(2)
const chromium = findChromium()
if (chromium === null) throw new Error('no Chromium: install it, or set CHROMIUM')
mkdirSync(folder, { recursive: true })
const browser = await launch(chromium)
for (const [name, args] of Object.entries(SCENES)) {
  if (names.length > 0 && !names.includes(name)) continue
  const mock = await startMock([...args, '--start-at', '6'])
  const page = await browser.newPage()
  page.on('console', (message) => console.log(`${name}: ${message.type()}: ${message.text()}`))
  page.on('pageerror', (error) => console.log(`${name}: ${error}`))
  await page.goto(mock.url)
  await new Promise((done) => setTimeout(done, 8000))
  for (const scheme of ['light', 'dark']) {
    await page.emulateMediaFeatures([{ name: 'prefers-color-scheme', value: scheme }])
    for (const width of [390, 1280, 1920]) {
      await page.setViewport({ width, height: width === 390 ? 844 : width === 1280 ? 800 : 1080 })
      await new Promise((done) => setTimeout(done, 1300))
      await page.screenshot({ path: join(folder, `${name}-${width}-${scheme}.png`), fullPage: true })
    }
  }
  if (name === 'viewer' || name === 'crowd') {
    await page.click('input[type=radio][value=true], .switch label:nth-child(2) input')
    await new Promise((done) => setTimeout(done, 3000))
    await page.screenshot({ path: join(folder, `${name}-all-slices.png`), fullPage: true })
  }
  await mock.stop('SIGKILL')
  await new Promise((done) => setTimeout(done, 7000))
  if (name === 'viewer') await page.screenshot({ path: join(folder, `${name}-lost.png`), fullPage: true })
  await page.close()
}
await browser.close()
