// The page of a user of an onion overlay, driven as a person would.
import assert from 'node:assert/strict'

/** Names and bodies of tests, which share with the others how a mock is started and a page opened. */
export function onionTests({ mocked, opened, until, fitsEveryWidth }) {
  const text = (page, selector) => page.$eval(selector, (element) => element.textContent.replaceAll(/[\u00a0\u202f]/g, ' ').replaceAll(/\s+/g, ' '))
  const isThere = (page) => until(page, () => document.querySelector('[data-figure=warning]') !== null)

  async function opensWithWhatItDoesNotDo() {
    const { page, seen } = await opened(await mocked(['--page', 'onion', '--start-at', '40']))
    await isThere(page)
    // The first paragraph of the page is the one that says so, with c and n.
    const first = await page.$eval('main p', (paragraph) => paragraph.textContent.replaceAll(/[\u00a0\s]+/g, ' ').trim())
    assert.match(first, /^It does not hide you from whoever runs relays that you use at both ends/)
    assert.match(first, /24 relays/)
    assert.match(first, /somebody runs 2 of the 24, you, with 2 guards, enter by one of theirs with probability 1 − \(1 − 2\/24\)2 = 16 %/)
    assert.match(first, /1\.3 % of all by theory/)
    // Another adversary, by keys: eight relays.
    await page.focus('main input[type=range]')
    for (let press = 0; press < 6; press += 1) await page.keyboard.press('ArrowRight')
    assert.equal(await text(page, 'main output'), '8 of 24, 33 %')
    assert.equal(await text(page, '[data-figure=exposed]'), '56 %')
    assert.equal(await text(page, '[data-figure=linked]'), '19 %')
    // Nothing is called anonymous.
    assert.doesNotMatch(await page.evaluate(() => document.body.innerText), /anonym/i)
    assert.deepEqual(seen, { foreign: [], errors: [] })
  }

  async function showsTrafficGuardsAndRelays() {
    const { page, seen } = await opened(await mocked(['--page', 'onion', '--start-at', '40']))
    await until(page, () => /bit\/s/.test(document.querySelector('[data-figure=down]')?.textContent ?? ''))
    assert.match(await text(page, '[data-figure=round-trip]'), /^\d+ ms$|^0\.\d s$/)
    assert.equal(await text(page, '[data-figure=streams]'), '2')
    const guards = await page.$$eval('[aria-labelledby=guards-title] tbody tr', (rows) => rows.map((row) => [...row.children].map((cell) => cell.textContent)))
    assert.equal(guards.length, 2)
    assert.deepEqual(guards.map(([, state]) => state), ['in use', 'in use'])
    assert.equal(guards[0][2].replaceAll('\u00a0', ' '), '39 d 8 h')
    assert.equal(guards[1][2], 'unknown')
    assert.equal((await page.$$('[aria-labelledby=relays-title] li')).length, 24)
    const bars = await page.$$eval('[aria-labelledby=relays-title] .track .bar', (all) => all.map((bar) => bar.getBoundingClientRect().width))
    assert.ok(bars.length === 22 && Math.max(...bars) > 3 * Math.min(...bars) && Math.min(...bars) > 0, bars.join())
    assert.match(await text(page, '[data-place=middle]'), /4\.21 bits degree 0\.94 as one of 18\.5 alike/)
    assert.match(await text(page, '[aria-labelledby=entropy-title]'), /Serjantov and Danezis 2002.*Díaz et al\. 2002/)
    // Four charts, each drawn on.
    await until(page, () => document.querySelectorAll('.uplot canvas').length === 4)
    assert.deepEqual(seen, { foreign: [], errors: [] })
  }

  async function showsTheFigureAndExplainsThePoint() {
    for (const [guards, way, session] of [
      ['2', '2 guards', ['0.02 %', '0.49 %', '1.9 %', '7.2 %']],
      ['0', 'as written, no guards', ['1 %', '5 %', '10 %', '20 %']],
    ]) {
      const { page } = await opened(await mocked(['--page', 'onion', '--guards', guards]))
      await isThere(page)
      await until(page, () => document.querySelector('figure img')?.naturalWidth === 430)
      assert.match(await text(page, '[aria-labelledby=tradeoff-title]'), new RegExp(`the line “${way}”`))
      const row = await page.$$eval('[data-row=session] td', (cells) => cells.map((cell) => cell.textContent.replaceAll('\u00a0', ' ')))
      assert.deepEqual(row, session)
      await page.close()
    }
  }

  async function showsTwins() {
    const { page, seen } = await opened(await mocked(['--page', 'onion', '--start-at', '40', '--twins']))
    await isThere(page)
    assert.equal((await page.$$('[aria-labelledby=relays-title] li')).length, 24)
    assert.equal((await page.$$('[aria-labelledby=guards-title] tbody tr')).length, 2)
    assert.equal(await page.$('[data-notice=failed]'), null)
    assert.deepEqual(seen, { foreign: [], errors: [] })
  }

  function staysWithinEveryWidth() {
    return fitsEveryWidth([[], ['--guards', '0'], ['--empty'], ['--relays', '200']].map((args) => ['--page', 'onion', ...args]), isThere)
  }

  async function saysWhatIsUnknownAndWhatIsGone() {
    const args = ['--page', 'onion', '--empty']
    const mock = await mocked(args)
    const { page } = await opened(mock)
    await isThere(page)
    assert.match(await text(page, '[data-figure=warning]'), /1 − \(1 − c\/n\)g.*not known yet/)
    assert.match(await text(page, 'header'), /Looking for relays/)
    await mock.stop('SIGKILL')
    await page.waitForSelector('[data-notice=lost]', { timeout: 10_000 })
    assert.match(await text(page, '[data-notice=lost]'), /The proxy does not answer/)
    await mocked(['--page', 'onion'], mock.port)
    await until(page, () => document.querySelector('main').dataset.link === 'live' && document.querySelector('[data-figure=exposed]') !== null)
  }

  return [
    ['the onion\u2019s page opens with what it does not protect against, for any adversary', opensWithWhatItDoesNotDo],
    ['it shows traffic, guards with their age, entropy, and what each relay is given', showsTrafficGuardsAndRelays],
    ['it shows the figure and explains the point of the user\u2019s settings', showsTheFigureAndExplainsThePoint],
    ['it shows two relays whose keys begin alike', showsTwins],
    ['it does not scroll sideways, whatever there is to show', staysWithinEveryWidth],
    ['it says what is not known yet, and that the proxy is gone', saysWhatIsUnknownAndWhatIsGone],
  ]
}
