import { describe, expect, it } from 'vitest'
import { copiesSent, delayBars, idleShare, savings, skippedShare, sortClients, stateCounts, uploadBound } from '../src/lib/figures'
import { append, columns, gapAt, HISTORY_ROWS, rowOf } from '../src/lib/history'
import { chase, FASTER_RATE, retryDelayS } from '../src/lib/latency'
import { parseOverview } from '../src/lib/overview'
import { asText, sample } from './sample'

const overview = () => parseOverview(asText(sample()))
const overlayOf = () => overview().overlay ?? expect.fail('the sample has an overlay')
const upload = (sent: number | null, capacity: number | null, limit: number | null) => ({ sentBitsPerS: sent, capacityBitsPerS: capacity, limitBitsPerS: limit })

describe('the idle share', () => {
  it('is what the lesser of capacity and limit leaves', () => {
    expect(idleShare(upload(1, 4, null))).toBe(0.75)
    expect(idleShare(upload(1, 4, 2))).toBe(0.5)
    expect(idleShare(upload(9, 4, null))).toBe(0)
  })
  it('is unknown without a known capacity, even where there is a limit', () => {
    expect(idleShare(upload(1, null, 2))).toBeNull()
    expect(idleShare(upload(0, 0, null))).toBeNull()
    expect(idleShare(upload(null, 4, null))).toBeNull()
    expect(uploadBound(upload(1, null, 2))).toBeNull()
  })
})

describe('savings', () => {
  it('are those of all viewers where known, else those of what came here', () => {
    expect(savings(overview())).toEqual({ share: 0.7, of: 'all' })
    expect(savings({ ...overview(), overlay: null })).toEqual({ share: 0.75, of: 'here' })
    const { here } = overview()
    expect(savings({ ...overview(), overlay: null, here: { ...here, serverShare: null } })).toBeNull()
  })
  it('count the copies that the server sent', () => {
    expect(copiesSent(overlayOf())).toBe(1.5)
    const overlay = overlayOf()
    expect(copiesSent({ ...overlay, server: { ...overlay.server, sourceBytes: 0 } })).toBeNull()
  })
})

describe('the histogram of delays', () => {
  it('names its bars by their bounds, and counts who is in none', () => {
    const { bars, unknown } = delayBars(overlayOf())
    expect(bars.map((bar) => `${bar.label}: ${bar.count}`)).toEqual(['< 0.25: 0', '0.25–0.5: 0', '0.5–1: 2', '> 1: 0'])
    expect(unknown).toBe(1)
  })
  it('takes a missing count for none', () => {
    const overlay = overlayOf()
    expect(delayBars({ ...overlay, delays: { upperBoundsS: [1, null], counts: [1] } }).bars[1]?.count).toBe(0)
  })
})

describe('the table of viewers', () => {
  const order = (key: Parameters<typeof sortClients>[1], isDescending: boolean) => sortClients(overlayOf().clients, key, isDescending).map(({ client }) => client)
  it('sorts both ways, unknown last', () => {
    expect(order('delay', false)).toEqual([2, 3, 1])
    expect(order('delay', true)).toEqual([3, 2, 1])
    expect(order('upload', true)).toEqual([2, 1, 3])
    expect(order('children', false)).toEqual([3, 2, 1])
  })
  it('keeps the order of numbers among equals', () => {
    expect(order('roundTrip', true)).toEqual([1, 2, 3])
    expect(order('state', false)).toEqual([1, 2, 3])
  })
  it('counts states, also those of nobody', () => {
    expect(stateCounts(overlayOf().clients)).toEqual({ live: 3, late: 0, silent: 0, suspect: 0, excluded: 0 })
  })
  it('knows no share of skipped packets before one was due', () => {
    expect(skippedShare({ playedPackets: 0, skippedPackets: 0 })).toBeNull()
    expect(skippedShare({ playedPackets: 98, skippedPackets: 2 })).toBe(0.02)
  })
})

describe('the history', () => {
  it('keeps the newest rows, and lets none go back in time', () => {
    const { here } = overview()
    let rows = [rowOf(0, here)]
    for (let at = 1; at <= HISTORY_ROWS + 5; at += 1) rows = append(rows, rowOf(at, here))
    expect(rows).toHaveLength(HISTORY_ROWS)
    expect(rows[0]?.atS).toBe(6)
    expect(append(rows, rowOf(3, here))).toEqual(rows)
  })
  it('breaks its lines where nothing was known', () => {
    const { here } = overview()
    const rows = [rowOf(1, here), gapAt(2), rowOf(4, here)]
    expect(columns(rows, ['sent', 'idle'])).toEqual([[-3, -2, 0], [1e6, null, 1e6], [0.75, null, 0.75]])
    expect(columns([], ['sent'])).toEqual([[], []])
  })
})

describe('the distance from the live end', () => {
  it('is left alone near the target', () => {
    expect(chase(3.9, 3, 1, 10)).toEqual({ playbackRate: 1, seekToS: null })
    expect(chase(0.5, 3, 1, 10)).toEqual({ playbackRate: 1, seekToS: null })
  })
  it('is made up by playing faster, until it is nearly the target', () => {
    expect(chase(4.1, 3, 1, 10).playbackRate).toBe(FASTER_RATE)
    expect(chase(3.5, 3, FASTER_RATE, 10).playbackRate).toBe(FASTER_RATE)
    expect(chase(3.2, 3, FASTER_RATE, 10).playbackRate).toBe(1)
  })
  it('is jumped over where it is long', () => {
    expect(chase(30, 3, FASTER_RATE, 100)).toEqual({ playbackRate: 1, seekToS: 97 })
  })
  it('is asked for again ever more slowly, every ten seconds at last', () => {
    expect([1, 2, 3, 4, 5, 50].map(retryDelayS)).toEqual([1, 2, 4, 8, 10, 10])
  })
})
