// The page of a coordinator of hosts, driven as a person would.
import assert from 'node:assert/strict'

/** Names and bodies of tests, which share with the others how a mock is started and a page opened. */
export function coordinatorTests({ mocked, opened, until, fitsEveryWidth }) {
  const text = (page, selector) => page.$eval(selector, (element) => element.textContent.replaceAll(/[\u00a0\u202f]/g, ' ').replaceAll(/\s+/g, ' ').trim())
  const own = (args) => ['--page', 'coordinator', ...args]
  const start = (...args) => mocked(own(args))
  const isThere = (page) => until(page, () => document.querySelector('[data-figure=belief]') !== null)

  async function saysWhoDecides() {
    const { page, seen } = await opened(await start('--start-at', '10'))
    await isThere(page)
    assert.equal(await text(page, '[data-figure=decided-by]'), 'Decided by cross.safetensors.')
    assert.match(await text(page, '[data-figure=beyond]'), /^The policy has seen what no training had shown it: at 4\.1 s flows is 0\.375, and was from 0 to 0\.125 in its training/)
    assert.match(await text(page, '[data-figure=belief]'), /by the policy those with flows may send/)
    assert.match(await text(page, 'header'), /3 hosts here/)
    const events = await text(page, '[aria-labelledby=events-title]')
    assert.match(events, /The rule decides for link "uplink": no monitor of link "uplink" reports/)
    // Names stand as somebody gave them.
    assert.match(events, /cross\.safetensors decides for link "uplink"/)
    assert.match(events, /alpha is here/)
    const hosts = await page.$$eval('[aria-labelledby=members-title] tbody tr', (rows) => rows.map((row) => row.firstElementChild.textContent.trim()))
    assert.deepEqual(hosts, ['alpha', 'beta', 'gamma', 'gateway monitor'])
    await until(page, () => document.querySelector('.uplot canvas')?.width > 0)
    assert.deepEqual(seen, { foreign: [], errors: [] })
  }

  async function saysWhyTheRuleDoes() {
    const { page } = await opened(await start('--start-at', '31'))
    await isThere(page)
    assert.match(await text(page, '[data-figure=decided-by]'), /^Decided by the rule: no monitor of link "uplink" reports, and cross\.safetensors sees "queue"\./)
    assert.match(await text(page, '[data-figure=belief]'), /no monitor reports, so nobody else is taken to send/)
    const { page: other } = await opened(await start('--without-policy', '--start-at', '10'))
    await isThere(other)
    assert.equal(await other.$('[data-figure=decided-by]'), null, 'without a policy nobody asks who decides')
    assert.match(await text(other, '[data-figure=belief]'), /of which 95 % may be given away/)
  }

  async function saysThatItWaitsForAMonitor() {
    const { page } = await opened(await start())
    await isThere(page)
    assert.match(await text(page, '[data-figure=belief]'), /Its monitor is still to say what others send: until then, for a few seconds at most, hosts are on their own/)
    assert.match(await text(page, '[aria-labelledby=members-title]'), /what it wants.*no lease/)
    await until(page, () => /may send/.test(document.querySelector('[data-figure=belief]')?.textContent ?? ''))
    assert.doesNotMatch(await text(page, '[data-figure=belief]'), /still to say/)
  }

  async function saysWhatIsOld() {
    const { page } = await opened(await start('--start-at', '10', '--gone'))
    await isThere(page)
    const cells = await page.$$eval('[aria-labelledby=members-title] tbody tr:first-child > *', (row) => row.map((cell) => cell.textContent))
    assert.deepEqual([cells[0], cells[2], cells[4]], ['alpha', 'away', 'unknown'])
    assert.match(await text(page, 'figcaption'), /alpha unknown/)
  }

  function staysWithinEveryWidth() {
    return fitsEveryWidth([['--start-at', '10'], ['--start-at', '31'], ['--empty'], ['--hosts', '200', '--start-at', '10']].map(own), isThere)
  }

  async function saysThatItIsGone() {
    const mock = await start('--start-at', '10')
    const { page } = await opened(mock)
    await isThere(page)
    await mock.stop('SIGKILL')
    await page.waitForSelector('[data-notice=lost]', { timeout: 10_000 })
    assert.match(await text(page, '[data-notice=lost]'), /coordinator.*Hosts are on their own once their leases end/)
  }

  return [
    ['a coordinator\u2019s page says who decides for a link, and what no training had shown', saysWhoDecides],
    ['it says why the rule decides in the policy\u2019s place, and nothing of it where there is none', saysWhyTheRuleDoes],
    ['it says that hosts are on their own until a monitor has said what others send', saysThatItWaitsForAMonitor],
    ['what a host sends is unknown once nothing is heard of it', saysWhatIsOld],
    ['it does not scroll sideways, whatever there is to show of hosts', staysWithinEveryWidth],
    ['it says that the coordinator is gone', saysThatItIsGone],
  ]
}
