import { describe, expect, it } from 'vitest'
import { belief, beyond, columns, drawn, named, parseOverview, type Row } from '../src/coordinator/figures'
import { rate } from '../src/lib/format'
import { sentenceBy } from '../src/lib/words'
import { append, HISTORY_ROWS } from '../src/lib/history'

function host(name: string, sends: number | null) {
  return {
    name,
    link: 'uplink',
    is_here: true,
    flows: 2 as number | null,
    sends_mbit_s: sends,
    budget_mbit_s: null as number | null,
    lease_s: null,
    report_age_s: 0.1,
    round_trip_s: null,
    least_round_trip_s: null,
    sent_bytes: 5,
  }
}

function sample() {
  return {
    version: '0.1.0',
    uptime_s: 9.5,
    link: 'anabranch://ab@192.0.2.1:7444',
    every_s: 0.1,
    utilisation: 0.95,
    share: 'per-flow',
    policy: 'cross.safetensors' as string | null,
    links: [{ name: 'uplink', capacity_mbit_s: 10, other_mbit_s: 1 as number | null, expected_mbit_s: 1 as number | null, given_mbit_s: 8.5, awaits_monitor: false, passes_mbit_s: 9, queued_bytes: null, dropped_packets: 3, decided_by: 'rule', rule_because: null as string | null, beyond: null as string | null }],
    hosts: [host('alpha', 4), host('beta', 4.5)],
    monitors: [{ name: 'gateway', link: 'uplink', is_here: false, passes_mbit_s: 9, report_age_s: null }],
    events: [{ at_s: 1, kind: 'came', name: 'alpha', text: 'alpha is here' }],
  }
}

const parsed = (value = sample()) => parseOverview(JSON.stringify(value))

describe('what a coordinator tells', () => {
  it('leaves out what a host sends once its report is old: its line has a gap, and others are drawn before it', () => {
    const gone = { ...sample(), hosts: [host('gone', null), ...Array.from({ length: 6 }, (_, index) => host(`host-${index}`, index))] }
    const read = parsed(gone)
    expect(read.hosts[0]?.sends).toBe(null)
    expect(drawn(read, 'uplink')).not.toContain('gone')
    expect(columns([{ atS: 1, overview: read }], 'uplink', ['gone', 'host-1'])[3]).toEqual([null])
  })

  it('is read whole, rates in bits a second and what is unknown as null', () => {
    const read = parsed()
    expect(read.links[0]).toEqual({ name: 'uplink', capacity: 1e7, other: 1e6, expected: 1e6, awaitsMonitor: false, given: 8.5e6, passes: 9e6, queuedBytes: null, droppedPackets: 3, decidedBy: 'rule', ruleBecause: null, beyond: null })
    expect(read.hosts[1]?.sends).toBe(4.5e6)
    expect([read.hosts[0]?.budget, read.monitors[0]?.reportAgeS]).toEqual([null, null])
  })

  it('is refused by place', () => {
    const value = sample()
    Object.assign(value.hosts[1]!, { flows: 'two' })
    expect(() => parsed(value)).toThrow('overview.hosts[1].flows is "two"; expected a number')
    expect(() => parsed({ ...sample(), share: 'fair' })).toThrow('expected one of per-flow, per-host')
  })

  it('is a sentence that says what is left for hosts', () => {
    const said = (value: ReturnType<typeof sample>) => belief(parsed(value).links[0]!, value.utilisation, rate).replaceAll('\u00a0', ' ')
    expect(said(sample())).toBe('It carries 10 Mbit/s, of which 95 % may be given away; others send 1 Mbit/s: that leaves hosts 8.5 Mbit/s, and those with flows may send 8.5 Mbit/s.')
    const alone = sample()
    Object.assign(alone.links[0]!, { other_mbit_s: null, expected_mbit_s: null })
    expect(said(alone)).toContain('no monitor reports')
    const quiet = sample()
    Object.assign(quiet.links[0]!, { other_mbit_s: 0, expected_mbit_s: 0 })
    expect(said(quiet)).toContain('; others send nothing: that leaves hosts 9.5 Mbit/s')
    const soon = sample()
    Object.assign(soon.links[0]!, { other_mbit_s: 0, expected_mbit_s: 4 })
    expect(said(soon)).toContain('; others send nothing, and are expected to send 4 Mbit/s until it decides again: that leaves hosts 5.5 Mbit/s')
    const early = sample()
    early.links[0]!.awaits_monitor = true
    expect(said(early)).toContain('Its monitor is still to say what others send')
    expect(said(early)).not.toContain('may send')
    const learned = sample()
    learned.links[0]!.decided_by = 'policy'
    expect(said(learned)).toBe('It carries 10 Mbit/s; others send 1 Mbit/s, and by the policy those with flows may send 8.5 Mbit/s.')
  })
})

describe('what a policy has seen beyond its training', () => {
  it('does not say its name twice, and is nothing where it has not', () => {
    const value = sample()
    expect(beyond(parsed(value).links[0]!, 'cross.safetensors')).toBeNull()
    value.links[0]!.beyond = 'cross.safetensors: at 4 s flows is 0.5'
    expect(beyond(parsed(value).links[0]!, 'cross.safetensors')).toBe('at 4 s flows is 0.5')
  })

  it('is told among names that nobody writes otherwise', () => {
    const names = named(parsed())
    expect(names).toEqual(['cross.safetensors', 'alpha', 'beta', 'gateway', 'uplink'])
    expect(['alpha is here', 'the rule decides', 'alphabet'].map((words) => sentenceBy(names, words))).toEqual(['alpha is here.', 'The rule decides.', 'Alphabet.'])
  })
})

describe('the chart of a link', () => {
  it('has a line for those that send most, in the order of the file', () => {
    const value = sample()
    value.hosts = Array.from({ length: 8 }, (_, index) => host(`h${index}`, index))
    expect(drawn(parsed(value), 'uplink')).toEqual(['h2', 'h3', 'h4', 'h5', 'h6', 'h7'])
    expect(drawn(parsed(value), 'other')).toEqual([])
  })

  it('breaks where nothing was heard, and forgets what is older than it shows', () => {
    const overview = parsed()
    let rows: Row[] = []
    for (let at = 1; at <= HISTORY_ROWS + 10; at += 1) rows = append(rows, { atS: at, overview: at % 2 === 0 ? overview : null })
    expect(rows.length).toBe(HISTORY_ROWS)
    expect(append(rows, { atS: 3, overview })).toEqual(rows)
    const [times, capacity, other, beta] = columns(rows, 'uplink', ['beta'])
    expect([times?.at(-1), times?.at(-2)]).toEqual([0, -1])
    expect([capacity?.at(-1), capacity?.at(-2), other?.at(-1), beta?.at(-1), beta?.at(-2)]).toEqual([1e7, null, 1e6, 4.5e6, null])
  })
})
