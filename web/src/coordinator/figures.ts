// What a coordinator of hosts tells its page: `GET /api/overview` once, and `GET /events` once a second.
// The other end is `src/coordinator/overview.rs` of crate `gateway`; who changes one changes both.
// What is unknown is null, never 0.
import { readJson, type Reader } from '../lib/reader'

export const KINDS = ['came', 'went', 'untrue', 'decides', 'beyond'] as const
export type Kind = (typeof KINDS)[number]

/** Rates are in bits a second. */
export interface Link {
  name: string
  capacity: number
  /** Whether hosts are told nothing for now, unless by the policy: its monitor is still to say what others send. */
  awaitsMonitor: boolean
  /** What others than the hosts send; null without a monitor. */
  other: number | null
  /** What the rule takes them to send until the next decision; null without a monitor. */
  expected: number | null
  given: number
  /** Who decided last what its hosts may send. */
  decidedBy: 'rule' | 'policy'
  /** Why the rule did where there is a policy. */
  ruleBecause: string | null
  /** What the policy has seen that no training had shown it, the first time. */
  beyond: string | null
  passes: number | null
  queuedBytes: number | null
  droppedPackets: number | null
}

export interface Host {
  name: string
  link: string
  isHere: boolean
  flows: number | null
  /** Null once its last report is old. */
  sends: number | null
  /** Null without a lease. */
  budget: number | null
  leaseS: number | null
  reportAgeS: number | null
  roundTripS: number | null
  leastRoundTripS: number | null
}

export interface Monitor {
  name: string
  link: string
  isHere: boolean
  /** Null once its last report is old. */
  passes: number | null
  reportAgeS: number | null
}

export interface Happening {
  atS: number
  kind: Kind
  name: string
  text: string
}

export interface Overview {
  version: string
  uptimeS: number
  link: string
  everyS: number
  utilisation: number
  share: 'per-flow' | 'per-host'
  /** The policy that decides in the place of equal shares, by its file. */
  policy: string | null
  links: Link[]
  hosts: Host[]
  monitors: Monitor[]
  events: Happening[]
}

export function parseOverview(text: string): Overview {
  const at = readJson(text, 'overview')
  return {
    version: at.field('version').text(),
    uptimeS: at.field('uptime_s').amount(),
    link: at.field('link').text(),
    everyS: at.field('every_s').amount(),
    utilisation: at.field('utilisation').amount(),
    share: at.field('share').oneOf(['per-flow', 'per-host']),
    policy: at.field('policy').orNull(words),
    links: at.field('links').list(link),
    hosts: at.field('hosts').list(host),
    monitors: at.field('monitors').list(monitor),
    events: at.field('events').list((event) => ({
      atS: event.field('at_s').amount(),
      kind: event.field('kind').oneOf(KINDS),
      name: event.field('name').text(),
      text: event.field('text').text(),
    })),
  }
}

function link(at: Reader): Link {
  return {
    name: at.field('name').text(),
    capacity: bits(at.field('capacity_mbit_s')),
    awaitsMonitor: at.field('awaits_monitor').flag(),
    other: at.field('other_mbit_s').orNull(bits),
    expected: at.field('expected_mbit_s').orNull(bits),
    given: bits(at.field('given_mbit_s')),
    decidedBy: at.field('decided_by').oneOf(['rule', 'policy']),
    ruleBecause: at.field('rule_because').orNull(words),
    beyond: at.field('beyond').orNull(words),
    passes: at.field('passes_mbit_s').orNull(bits),
    queuedBytes: at.field('queued_bytes').orNull(amount),
    droppedPackets: at.field('dropped_packets').orNull(amount),
  }
}

function host(at: Reader): Host {
  return {
    name: at.field('name').text(),
    link: at.field('link').text(),
    isHere: at.field('is_here').flag(),
    flows: at.field('flows').orNull(amount),
    sends: at.field('sends_mbit_s').orNull(bits),
    budget: at.field('budget_mbit_s').orNull(bits),
    leaseS: at.field('lease_s').orNull(amount),
    reportAgeS: at.field('report_age_s').orNull(amount),
    roundTripS: at.field('round_trip_s').orNull(amount),
    leastRoundTripS: at.field('least_round_trip_s').orNull(amount),
  }
}

function monitor(at: Reader): Monitor {
  return {
    name: at.field('name').text(),
    link: at.field('link').text(),
    isHere: at.field('is_here').flag(),
    passes: at.field('passes_mbit_s').orNull(bits),
    reportAgeS: at.field('report_age_s').orNull(amount),
  }
}

const bits = (at: Reader) => at.amount() * 1e6
const amount = (at: Reader) => at.amount()
const words = (at: Reader) => at.text()

/** What was so at an instant; null where nothing was heard. */
export interface Row {
  /** Seconds since the page was opened. */
  atS: number
  overview: Overview | null
}

/** Hosts of which a chart has a line each. */
export const MOST_LINES = 6

/** The hosts of a link that have a line of their own: those that send most now, in the order of the file. */
export function drawn(overview: Overview, link: string): string[] {
  const hosts = overview.hosts.filter((host) => host.link === link)
  const first = hosts.toSorted((a, b) => (b.sends ?? -1) - (a.sends ?? -1)).slice(0, MOST_LINES)
  return hosts.filter((host) => first.includes(host)).map((host) => host.name)
}

/** Columns as uPlot wants them: seconds before the newest row, the link's capacity, others, then what each host sends. */
export function columns(rows: readonly Row[], link: string, hosts: readonly string[]): (number | null)[][] {
  const now = rows.at(-1)?.atS ?? 0
  const of = (row: Row) => row.overview?.links.find((one) => one.name === link)
  return [
    rows.map((row) => row.atS - now),
    rows.map((row) => of(row)?.capacity ?? null),
    rows.map((row) => of(row)?.other ?? null),
    ...hosts.map((name) => rows.map((row) => row.overview?.hosts.find((host) => host.name === name)?.sends ?? null)),
  ]
}

/** What events may begin with: names that somebody gave. */
export function named(overview: Overview): string[] {
  const all = [...overview.hosts, ...overview.monitors, ...overview.links].map((one) => one.name)
  return overview.policy === null ? all : [overview.policy, ...all]
}

/** What the policy has seen beyond its training, without its name, which stands beside it. */
export function beyond(link: Link, policy: string): string | null {
  const said = link.beyond
  return said === null ? null : said.startsWith(`${policy}: `) ? said.slice(policy.length + 2) : said
}

/** What the coordinator believes of a link, in a sentence. */
export function belief(link: Link, utilisation: number, rate: (bits: number | null) => string): string {
  const room = Math.max(0, link.capacity * utilisation - (link.expected ?? 0))
  const part = utilisation === 1 ? 'all' : `${Number((utilisation * 100).toFixed(1))}\u00a0%`
  const others =
    link.other === null ? 'no monitor reports, so nobody else is taken to send' : link.other === 0 ? 'others send nothing' : `others send ${rate(link.other)}`
  if (link.decidedBy === 'policy') {
    return `It carries ${rate(link.capacity)}; ${others}, and by the policy those with flows may send ${rate(link.given)}.`
  }
  if (link.awaitsMonitor) {
    return `It carries ${rate(link.capacity)}. Its monitor is still to say what others send: until then, for a few seconds at most, hosts are on their own.`
  }
  const ahead = rate(link.expected) === rate(link.other) ? '' : `, and are expected to send ${rate(link.expected)} until it decides again`
  return `It carries ${rate(link.capacity)}, of which ${part} may be given away; ${others}${ahead}: that leaves hosts ${rate(room)}, and those with flows may send ${rate(link.given)}.`
}
