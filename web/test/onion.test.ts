import { describe, expect, it } from 'vitest'
import page from '../../docs/onion.md?raw'
import { append } from '../src/lib/history'
import { chance, columns, exposed, gapAt, guardColumns, linked, lossOf, parseOverview, rowOf, SHARES, WAYS, type Row } from '../src/onion/figures'

function guard(name: string, sent: number, received: number) {
  return { name, age_s: 10 as number | null, left_s: 5, is_listed: true, is_in_use: true, answers: true, sent, delivered: sent - 2, lost: 1, received }
}

function sample(uptimeS = 10, packets = 100) {
  return {
    version: '0.1.0',
    uptime_s: uptimeS,
    socks: '127.0.0.1:1080',
    network: { epoch: 7, relays: 24, exits: 4, may_guard: 20, authorities: 3, threshold: 2 },
    settings: { guards: 2, hops: 3, placement: 'timeouts', packets_per_key: 64, packet_bytes: 1400 },
    traffic: { sent: packets, received: 3 * packets, delivered: packets - 20, lost: packets / 50, unknown: 0, blocks: 9 },
    round_trip: { median_s: 0.1, p95_s: 0.3, packets: 80 } as object | null,
    streams: { open: 1, opened: 4, refused: 0, sessions: 1 },
    guards: [guard('aa', packets / 2, packets), guard('bb', packets / 2, packets)],
    places: [{ kind: 'middle', bits: 4.2, degree: null, of: 22, packets: 100 }],
    relays: [{ name: 'cc', is_guard: false, is_exit: true, by_list: 0.1, given: 0.2, carried: 7 }],
    events: [{ at_s: 1, kind: 'list', text: 'epoch 7' }],
  }
}

const parsed = (value: object = sample()) => parseOverview(JSON.stringify(value))

describe('what a user\u2019s edge tells', () => {
  it('is read whole, and what is unknown as null', () => {
    const read = parsed()
    expect(read.network).toEqual({ epoch: 7, relays: 24, exits: 4, mayGuard: 20, authorities: 3, threshold: 2 })
    expect(read.guards[0]).toMatchObject({ name: 'aa', ageS: 10, isInUse: true })
    expect(read.places[0]).toEqual({ kind: 'middle', bits: 4.2, degree: null, of: 22, packets: 100 })
    expect(parsed({ ...sample(), network: null, round_trip: null })).toMatchObject({ network: null, roundTrip: null })
  })

  it('is refused by place', () => {
    const value = sample()
    Object.assign(value.guards[1]!, { answers: 'yes' })
    expect(() => parsed(value)).toThrow('overview.guards[1].answers is "yes"; expected true or false')
    expect(() => parsed({ ...sample(), events: [{ at_s: 1, kind: 'target', text: '' }] })).toThrow('expected one of list, guards, refused, directory')
  })
})

describe('the charts', () => {
  it('show what changed from one second to the next, in bits a second and by guard', () => {
    const row = rowOf(3, parsed(sample(10, 100)), parsed(sample(12, 300)))
    expect(row).toMatchObject({ up: (200 * 11_200) / 2, down: (600 * 11_200) / 2, medianS: 0.1 })
    expect(row.loss).toBeCloseTo(4 / 204)
    expect(row.byGuard).toEqual({ aa: (300 * 11_200) / 2, bb: (300 * 11_200) / 2 })
  })

  it('have a gap before the second figures, after a new beginning, and no times without packets', () => {
    expect(rowOf(3, null, parsed())).toEqual(gapAt(3))
    expect(rowOf(3, parsed(sample(10)), parsed(sample(1)))).toEqual(gapAt(3))
    expect(rowOf(3, parsed(sample(10)), parsed(sample(11)))).toMatchObject({ up: 0, loss: null, medianS: null })
    let rows: Row[] = append([], rowOf(1, parsed(sample(1)), parsed(sample(2, 200))))
    rows = append(rows, gapAt(2))
    expect(columns(rows, ['up', 'loss'])).toEqual([[-1, 0], [100 * 11_200, null], [rows[0]!.loss, null]])
    expect(guardColumns(rows, ['aa', 'zz'])).toEqual([[-1, 0], [150 * 11_200, null], [null, null]])
  })

  it('of a guard without outcomes say nothing of losses', () => {
    const [one] = parsed().guards
    expect(lossOf({ ...one!, delivered: 0, lost: 0 })).toBeNull()
    expect(lossOf({ ...one!, delivered: 3, lost: 1 })).toBe(0.25)
  })
})

describe('what an adversary gains', () => {
  it('grows with each guard, and takes both ends for a session', () => {
    expect(exposed(0.1, 2)).toBeCloseTo(0.19)
    expect(linked(0.1, 2)).toBeCloseTo(0.019)
    expect(linked(0.1, 0)).toBe(0.1)
  })

  it('is told so that small chances can be compared, and only what is certain is all', () => {
    expect([0.0199 * 0.01, 0.019, 0.1597, 0.999_99, 1, 0].map((p) => chance(p).replace('\u00a0', ' '))).toEqual(['0.02 %', '1.9 %', '16 %', '99.9 %', '100 %', '0 %'])
  })

  it('is what docs/onion.md has measured', () => {
    const rows = page.split('\n').filter((line) => line.startsWith('|')).map((line) => line.split('|').slice(1, -1).map((cell) => cell.trim()))
    const head = rows.find((cells) => cells[1] === 'goodput, MB/s')
    expect(head?.slice(2).map((cell) => Number.parseInt(cell, 10) / 100)).toEqual([...SHARES])
    for (const way of WAYS) {
      const row = rows.find((cells) => cells[0]?.replace(', another last relay for each packet', '') === way.name && cells[1] === way.goodput)
      expect(row?.slice(2), way.name).toEqual([...way.linked])
    }
  })
})
