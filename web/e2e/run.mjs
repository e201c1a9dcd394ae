// Drives the built page in real Chromium against the mock peer, under the Content-Security-Policy that the server
// sends: the picture moves, the overlay is on the canvas, a peer that goes away is told and found again.
// Skipped, with a word, where there is no Chromium; what plays video also where there is no ffmpeg. `npm run build` first.
import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { findChromium, launch, startMock } from './browser.mjs'
import { coordinatorTests } from './coordinator.mjs'
import { onionTests } from './onion.mjs'

const chromium = findChromium()
if (chromium === null) {
  console.log('skipped: Chromium is not installed')
  process.exit(0)
}
const hasVideo = spawnSync('ffmpeg', ['-version']).status === 0

const browser = await launch(chromium)
const mocks = new Set()
const results = { passed: 0, failed: 0 }
try {
  if (hasVideo) {
    await test('the picture moves, muted and by itself, within the policy', pictureMoves)
    await test('a browser that gets no transport stream plays by HLS', playsByHls)
    await test('the overlay has a mark for everyone, in every slice', marksForEveryone)
    await test('a thousand viewers are drawn, and the page goes on answering', aThousand)
    await test('of a crowd, a viewer\'s page shows the part around it and says so', partOfACrowd)
    await test('keys go from viewer to viewer', keysChoose)
    await test('a source that is over is said: a veil over the picture, whose delay is unknown', sourceIsOver)
    await test('a paused player stays paused while its server restarts, and gives its connection back', pausedStays)
    await test('eight tabs of one browser share a stream of events, and all have figures', manyTabs)
    await test('a page for which there is no place says so, and has figures', noPlace)
    await test('a peer that goes away is said to be gone, its figures stay, and it is found again', goneAndBack)
    await test('what is unknown is said, and a narrow page does not scroll sideways', unknownAndNarrow)
    await test('answers that are no overview are said', malformed)
  } else console.log('skipped: the tests of a stream, since ffmpeg is not installed')
  const shared = { mocked, opened, until, fitsEveryWidth }
  for (const [name, body] of onionTests(shared)) await test(name, body)
  for (const [name, body] of coordinatorTests(shared)) await test(name, body)
} finally {
  await browser.close()
}
console.log(`${results.passed} passed, ${results.failed} failed`)
process.exit(results.failed === 0 ? 0 : 1)

async function test(name, body) {
  try {
    await body()
    results.passed += 1
    console.log(`ok   ${name}`)
  } catch (error) {
    results.failed += 1
    console.log(`FAIL ${name}\n${error.stack ?? error}`)
  }
  for (const page of await browser.pages()) if (page.url() !== 'about:blank') await page.close()
  for (const mock of mocks) await mock.stop('SIGKILL')
  mocks.clear()
}

async function mocked(args, port) {
  const mock = await startMock(args, port)
  mocks.add(mock)
  return mock
}

/** Opens the page, and collects what it asked of others and what the browser complained of. */
async function opened(mock, viewport = { width: 1280, height: 900 }) {
  const page = await browser.newPage()
  const seen = { foreign: [], errors: [] }
  await page.setViewport(viewport)
  page.on('request', (request) => {
    if (!request.url().startsWith(mock.url) && !request.url().startsWith('blob:')) seen.foreign.push(request.url())
  })
  page.on('pageerror', (error) => seen.errors.push(String(error)))
  page.on('console', (message) => {
    if (/Content.Security.Policy/i.test(message.text())) seen.errors.push(message.text())
  })
  await page.goto(mock.url)
  return { page, seen }
}

function figure(page, name) {
  return page.$eval(`[data-figure=${name}]`, (element) => element.textContent.replaceAll('\u00a0', ' '))
}

/** Whether the pages of these mocks, once there, scroll sideways at no width, from a phone's to a wide screen's. */
async function fitsEveryWidth(mocksArgs, isThere) {
  for (const args of mocksArgs) {
    const { page } = await opened(await mocked(args), { width: 390, height: 844 })
    await isThere(page)
    for (const width of [320, 390, 768, 1280, 1920]) {
      await page.setViewport({ width, height: 844 })
      const over = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth)
      assert.equal(over, 0, `${over} px too wide at ${width} with ${args.join(' ')}`)
    }
    await page.close()
  }
}

function until(page, condition, ...args) {
  return page.waitForFunction(condition, { timeout: 30_000, polling: 200 }, ...args)
}

/** How many frames the browser presented in some seconds. */
function frames(page, seconds) {
  return page.$eval(
    'video',
    (video, ms) =>
      new Promise((done) => {
        let count = 0
        const onFrame = () => {
          count += 1
          video.requestVideoFrameCallback(onFrame)
        }
        video.requestVideoFrameCallback(onFrame)
        setTimeout(() => done(count), ms)
      }),
    seconds * 1000,
  )
}

async function pictureMoves() {
  const { page, seen } = await opened(await mocked(['--start-at', '20']))
  await until(page, () => document.querySelector('[data-figure=start]')?.textContent !== 'unknown')
  // 25 a second are sent; a busy machine may drop many.
  const presented = await frames(page, 4)
  assert.ok(presented >= 20, `${presented} frames in 4 s`)
  const before = await page.$eval('video', (video) => ({ time: video.currentTime, muted: video.muted, paused: video.paused }))
  assert.deepEqual({ muted: before.muted, paused: before.paused }, { muted: true, paused: false })
  await until(page, (time) => document.querySelector('video').currentTime > time + 1, before.time)
  assert.match(await figure(page, 'start'), /^[\d.]+ m?s$/)
  assert.match(await figure(page, 'picture-delay'), /^[\d.]+ m?s$/)
  assert.match(await page.$eval('.player', (player) => player.textContent), /transport stream/)
  console.log(`     ${presented} frames in 4 s, first picture after ${await figure(page, 'start')}`)
  assert.deepEqual(seen, { foreign: [], errors: [] })
}

async function playsByHls() {
  const mock = await mocked(['--start-at', '20'])
  const page = await browser.newPage()
  await page.evaluateOnNewDocument(() => {
    const answer = window.fetch.bind(window)
    // Bytes that are no transport stream.
    const noise = () => Promise.resolve(new Response(new Uint8Array(4096).fill(7)))
    window.fetch = (url, options) => (String(url).endsWith('/stream.ts') ? noise() : answer(url, options))
  })
  await page.goto(mock.url)
  await until(page, () => document.querySelector('.player')?.textContent.includes('HLS'))
  const presented = await frames(page, 4)
  assert.ok(presented >= 20, `${presented} frames in 4 s`)
}

/**
 * Marks of one colour on the canvas, as patches of connected pixels. Numbers inside the marks and lines between them
 * have other colours.
 */
function patches(page, property) {
  return page.evaluate((name) => {
    const canvas = document.querySelector('.graph canvas')
    const probe = document.createElement('canvas').getContext('2d')
    probe.fillStyle = getComputedStyle(canvas).getPropertyValue(name).trim()
    probe.fillRect(0, 0, 1, 1)
    const [red, green, blue] = probe.getImageData(0, 0, 1, 1).data
    const { width, height } = canvas
    const { data } = canvas.getContext('2d').getImageData(0, 0, width, height)
    const isOurs = new Uint8Array(width * height)
    for (let at = 0; at < isOurs.length; at += 1) {
      const off = Math.abs(data[4 * at] - red) + Math.abs(data[4 * at + 1] - green) + Math.abs(data[4 * at + 2] - blue)
      isOurs[at] = data[4 * at + 3] === 255 && off < 12 ? 1 : 0
    }
    let found = 0
    for (let start = 0; start < isOurs.length; start += 1) {
      if (isOurs[start] === 0) continue
      const open = [start]
      isOurs[start] = 0
      let size = 0
      while (open.length > 0) {
        const at = open.pop()
        size += 1
        for (const next of [at - 1, at + 1, at - width, at + width, at - width - 1, at - width + 1, at + width - 1, at + width + 1]) {
          if (isOurs[next] === 1) {
            isOurs[next] = 0
            open.push(next)
          }
        }
      }
      // The closed parts of digits cut small islands out of a mark.
      if (size >= 12) found += 1
    }
    return found
  }, property)
}

async function marksForEveryone() {
  // Five of twenty die at 10 s and three of them are excluded at 16 s; viewer 14 is late, viewer 16 is suspect.
  const { page } = await opened(await mocked(['--start-at', '20']), { width: 1280, height: 900 })
  await until(page, () => document.querySelectorAll('.legend li').length === 5)
  const legend = await page.$$eval('.legend li b', (counts) => counts.map((count) => Number(count.textContent)))
  assert.deepEqual(legend, [13, 1, 2, 1, 3])
  for (const slice of ['0', '7', '19']) {
    await page.$eval(
      '.slider input',
      (input, value) => {
        input.value = value
        input.dispatchEvent(new Event('input', { bubbles: true }))
      },
      slice,
    )
    await new Promise((done) => setTimeout(done, 1500))
    const drawn = {}
    for (const state of ['live', 'late', 'silent', 'suspect', 'excluded', 'server']) drawn[state] = await patches(page, `--${state}`)
    // The blue of the server is also that of the line from one's parent.
    assert.ok(drawn.server >= 1)
    delete drawn.server
    // The orange of late viewers is also that of lines to one's children.
    assert.ok(drawn.late >= 1)
    delete drawn.late
    // An excluded viewer is a frame and a cross in it: two patches.
    assert.deepEqual(drawn, { live: 13, silent: 2, suspect: 1, excluded: 2 * 3 }, `slice ${slice}`)
    assert.match(await page.$eval('.graph', (graph) => graph.ariaLabel), new RegExp(`^Tree of slice ${slice}: the server and 20.viewers`))
  }
}

async function aThousand() {
  const { page } = await opened(await mocked(['--start-at', '20', '--clients', '1000', '--kill', '250', '--role', 'server']))
  await until(page, () => document.querySelector('.graph')?.ariaLabel?.includes('1\u202f000') ?? false)
  await new Promise((done) => setTimeout(done, 4000))
  // Neighbours on the outer rings touch.
  const live = await patches(page, '--live')
  assert.ok(live > 150, `${live} patches`)
  await page.click('.switch label:nth-child(2)')
  await new Promise((done) => setTimeout(done, 4000))
  assert.match(await page.$eval('.sample', (sample) => sample.textContent), /of all connections/)
  const before = await page.$eval('header li:last-child', (item) => item.textContent)
  await until(page, (text) => document.querySelector('header li:last-child').textContent !== text, before)
  assert.equal(await page.$eval('main', (main) => main.dataset.link), 'live')
}

async function partOfACrowd() {
  const { page } = await opened(await mocked(['--start-at', '20', '--clients', '1000', '--kill', '0', '--told', '100']))
  await until(page, () => document.querySelector('[data-told]') !== null)
  assert.match(await page.$eval('[data-told]', (told) => told.textContent), /^Shown are 100 of 1.000 viewers/)
  assert.match(await page.$eval('header', (header) => header.textContent), /1.000.viewers/)
}

async function keysChoose() {
  const { page } = await opened(await mocked(['--start-at', '20']))
  await until(page, () => document.querySelectorAll('.legend li').length === 5)
  await page.focus('.graph')
  const chosen = new Set()
  await page.keyboard.press('ArrowDown')
  for (let press = 0; press < 25; press += 1) {
    chosen.add(await page.$eval('.details h3', (title) => title.firstChild.textContent.trim()))
    await page.keyboard.press(press % 8 === 7 ? 'ArrowDown' : 'ArrowRight')
  }
  assert.ok(chosen.size >= 5, [...chosen].join())
  await page.keyboard.press('Escape')
  assert.equal(await page.$('.details h3'), null)
}

async function goneAndBack() {
  const args = ['--start-at', '20']
  const mock = await mocked(args)
  const { page } = await opened(mock)
  await until(page, () => document.querySelector('[data-figure=start]')?.textContent !== 'unknown')
  const saved = await figure(page, 'savings')
  assert.equal(await page.$('[data-notice]'), null)
  await mock.stop('SIGKILL')
  await page.waitForSelector('[data-notice=lost]', { timeout: 10_000 })
  assert.match(await page.$eval('[data-notice=lost]', (notice) => notice.textContent), /does not answer/)
  assert.equal(await figure(page, 'savings'), saved)
  assert.ok(Number(await page.$eval('.figures', (figures) => getComputedStyle(figures).opacity)) < 1)
  await until(page, () => document.querySelector('.veil')?.textContent.includes('broke'))
  await mocked(args, mock.port)
  await until(page, () => document.querySelector('main').dataset.link === 'live')
  await until(page, () => document.querySelector('.veil') === null && document.querySelector('video').readyState >= 3)
  assert.ok((await frames(page, 3)) >= 10)
}

async function sourceIsOver() {
  const { page, seen } = await opened(await mocked(['--start-at', '20', '--role', 'server', '--halt-at', '28']))
  await until(page, () => document.querySelector('[data-figure=start]')?.textContent !== 'unknown')
  await until(page, () => document.querySelector('.veil')?.textContent.includes('Nothing of the stream comes now'))
  assert.equal(await figure(page, 'picture-delay'), 'unknown')
  assert.equal(await page.$eval('.pill', (pill) => pill.textContent), 'Waiting')
  const time = await page.$eval('video', (video) => video.currentTime)
  // No other connection is tried, which would show the end again.
  await new Promise((done) => setTimeout(done, 8000))
  assert.equal(await page.$eval('video', (video) => video.currentTime), time)
  assert.match(await page.$eval('.veil', (veil) => veil.textContent), /Nothing of the stream comes now/)
  assert.deepEqual(seen, { foreign: [], errors: [] })
}

async function pausedStays() {
  const args = ['--start-at', '20']
  const mock = await mocked(args)
  const { page } = await opened(mock)
  await until(page, () => document.querySelector('[data-figure=start]')?.textContent !== 'unknown')
  await page.click('.controls button')
  await until(page, () => document.querySelector('.veil')?.textContent.includes('Play from now'))
  const players = async () => (await (await fetch(`${mock.url}api/overview`)).json()).here.players
  assert.equal(await players(), 1)
  for (let turn = 0; turn < 30 && (await players()) > 0; turn += 1) await new Promise((done) => setTimeout(done, 500))
  assert.equal(await players(), 0)
  await mock.stop('SIGKILL')
  await page.waitForSelector('[data-notice=lost]', { timeout: 10_000 })
  await mocked(args, mock.port)
  await until(page, () => document.querySelector('main').dataset.link === 'live')
  assert.match(await page.$eval('.veil', (veil) => veil.textContent), /^\s*Play from now/)
  await page.click('.veil button')
  await until(page, () => document.querySelector('.veil') === null && document.querySelector('video').readyState >= 3)
}

async function manyTabs() {
  const mock = await mocked(['--page', 'onion', '--start-at', '40'])
  const pages = []
  let listening = 0
  for (let tab = 0; tab < 8; tab += 1) {
    const page = await browser.newPage()
    page.on('request', (request) => (listening += Number(request.url().endsWith('/events'))))
    await page.goto(mock.url)
    pages.push(page)
  }
  for (const page of pages) await until(page, () => document.querySelector('main')?.dataset.link === 'live')
  assert.equal(listening, 1)
  const up = (page) => page.$eval('header li:last-child', (item) => item.textContent)
  const before = await up(pages[7])
  await until(pages[7], (text) => document.querySelector('header li:last-child').textContent !== text, before)
  // Another listens when the one that did is closed.
  await pages[0].close()
  const later = await up(pages[7])
  await until(pages[7], (text) => document.querySelector('header li:last-child').textContent !== text, later)
}

async function noPlace() {
  const { page } = await opened(await mocked(['--page', 'onion', '--start-at', '40', '--full']))
  await page.waitForSelector('[data-notice=refused]', { timeout: 10_000 })
  assert.match(await page.$eval('[data-notice=refused]', (notice) => notice.textContent), /no place for another page.*Too many pages are open already\./s)
  const up = await page.$eval('header li:last-child', (item) => item.textContent)
  await until(page, (text) => document.querySelector('header li:last-child').textContent !== text, up)
  assert.equal(await page.$('[data-notice=lost]'), null)
}

async function unknownAndNarrow() {
  const { page } = await opened(await mocked(['--start-at', '20', '--private', '--without-overlay']), { width: 390, height: 844 })
  await until(page, () => document.querySelector('footer b') !== null)
  const text = await page.evaluate(() => document.body.innerText)
  assert.match(text, /the server has not told this viewer/)
  assert.match(text, /do not see each other's addresses/)
  for (const width of [320, 390, 768, 1280]) {
    await page.setViewport({ width, height: 844 })
    const over = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth)
    assert.equal(over, 0, `${over} px too wide at ${width}`)
  }
}

async function malformed() {
  const mock = await mocked([])
  const page = await browser.newPage()
  await page.setRequestInterception(true)
  page.on('request', (request) => {
    if (request.url().endsWith('/api/overview')) void request.respond({ body: '{"role": "viewer"}', contentType: 'application/json' })
    else if (request.url().endsWith('/events')) void request.respond({ body: 'event: overview\ndata: {"role": 7}\n\n', contentType: 'text/event-stream' })
    else void request.continue()
  })
  await page.goto(mock.url)
  // Each stream ends at once, and the page says that too.
  await until(page, () => /overview\.(version is missing|role is 7)/.test(document.querySelector('[data-notice=malformed]')?.textContent ?? ''))
}
