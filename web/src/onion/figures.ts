// What a user's edge of the onion overlay tells its page: `GET /api/overview` once, and `GET /events` once a second.
// The other end is `src/onion/overview.rs` of crate `gateway`; who changes one changes both.
// What is unknown is null, never 0.
import { readJson, type Reader } from '../lib/reader'

export interface Network {
  epoch: number
  relays: number
  exits: number
  mayGuard: number
  authorities: number
  threshold: number
}

export interface Settings {
  guards: number
  hops: number
  placement: string
  packetsPerKey: number
  packetBytes: number
}

/** Packets since the edge began. */
export interface Traffic {
  sent: number
  received: number
  delivered: number
  lost: number
  unknown: number
  blocks: number
}

export interface Guard {
  name: string
  ageS: number | null
  leftS: number
  isListed: boolean
  isInUse: boolean
  answers: boolean
  sent: number
  delivered: number
  lost: number
  received: number
}

export const PLACES = ['entry', 'middle', 'middle-back', 'anybody'] as const

export interface Place {
  kind: (typeof PLACES)[number]
  bits: number
  degree: number | null
  of: number
  packets: number | null
}

export interface Relay {
  name: string
  isGuard: boolean
  isExit: boolean
  byList: number | null
  given: number | null
  carried: number
}

export const KINDS = ['list', 'guards', 'refused', 'directory'] as const
export type Kind = (typeof KINDS)[number]

export interface Overview {
  version: string
  uptimeS: number
  socks: string
  network: Network | null
  settings: Settings
  traffic: Traffic
  roundTrip: { medianS: number; p95S: number; packets: number } | null
  streams: { open: number; opened: number; refused: number; sessions: number }
  guards: Guard[]
  places: Place[]
  relays: Relay[]
  events: { atS: number; kind: Kind; text: string }[]
}

export function parseOverview(text: string): Overview {
  const at = readJson(text, 'overview')
  const settings = at.field('settings')
  const traffic = at.field('traffic')
  const streams = at.field('streams')
  return {
    version: at.field('version').text(),
    uptimeS: at.field('uptime_s').amount(),
    socks: at.field('socks').text(),
    network: at.field('network').orNull((one) => ({
      epoch: one.field('epoch').whole(),
      relays: one.field('relays').whole(),
      exits: one.field('exits').whole(),
      mayGuard: one.field('may_guard').whole(),
      authorities: one.field('authorities').whole(),
      threshold: one.field('threshold').whole(),
    })),
    settings: {
      guards: settings.field('guards').whole(),
      hops: settings.field('hops').whole(),
      placement: settings.field('placement').text(),
      packetsPerKey: settings.field('packets_per_key').whole(),
      packetBytes: settings.field('packet_bytes').whole(),
    },
    traffic: {
      sent: traffic.field('sent').whole(),
      received: traffic.field('received').whole(),
      delivered: traffic.field('delivered').whole(),
      lost: traffic.field('lost').whole(),
      unknown: traffic.field('unknown').whole(),
      blocks: traffic.field('blocks').whole(),
    },
    roundTrip: at.field('round_trip').orNull((one) => ({
      medianS: one.field('median_s').amount(),
      p95S: one.field('p95_s').amount(),
      packets: one.field('packets').whole(),
    })),
    streams: {
      open: streams.field('open').whole(),
      opened: streams.field('opened').whole(),
      refused: streams.field('refused').whole(),
      sessions: streams.field('sessions').whole(),
    },
    guards: at.field('guards').list(guard),
    places: at.field('places').list((one) => ({
      kind: one.field('kind').oneOf(PLACES),
      bits: one.field('bits').amount(),
      degree: one.field('degree').orNull(amount),
      of: one.field('of').whole(),
      packets: one.field('packets').orNull((packets) => packets.whole()),
    })),
    relays: at.field('relays').list((one) => ({
      name: one.field('name').text(),
      isGuard: one.field('is_guard').flag(),
      isExit: one.field('is_exit').flag(),
      byList: one.field('by_list').orNull(amount),
      given: one.field('given').orNull(amount),
      carried: one.field('carried').whole(),
    })),
    events: at.field('events').list((one) => ({
      atS: one.field('at_s').amount(),
      kind: one.field('kind').oneOf(KINDS),
      text: one.field('text').text(),
    })),
  }
}

function guard(at: Reader): Guard {
  return {
    name: at.field('name').text(),
    ageS: at.field('age_s').orNull(amount),
    leftS: at.field('left_s').amount(),
    isListed: at.field('is_listed').flag(),
    isInUse: at.field('is_in_use').flag(),
    answers: at.field('answers').flag(),
    sent: at.field('sent').whole(),
    delivered: at.field('delivered').whole(),
    lost: at.field('lost').whole(),
    received: at.field('received').whole(),
  }
}

const amount = (at: Reader) => at.amount()

/** What was so in the second before an instant; null where nothing was heard. Rates are in bits a second. */
export interface Row {
  /** Seconds since the page was opened. */
  atS: number
  up: number | null
  down: number | null
  /** Of the packets whose outcome became known, the part that was given up. */
  loss: number | null
  medianS: number | null
  p95S: number | null
  /** Both ways, by the name of each guard. */
  byGuard: Record<string, number>
}

export function gapAt(atS: number): Row {
  return { atS, up: null, down: null, loss: null, medianS: null, p95S: null, byGuard: {} }
}

/** The difference between two overviews; a gap if there was none before, or the edge has begun again since. */
export function rowOf(atS: number, before: Overview | null, now: Overview): Row {
  const span = before === null ? 0 : now.uptimeS - before.uptimeS
  if (before === null || span <= 0) return gapAt(atS)
  const rate = (packets: number) => (Math.max(0, packets) * now.settings.packetBytes * 8) / span
  const lost = now.traffic.lost - before.traffic.lost
  const known = lost + now.traffic.delivered - before.traffic.delivered
  // Times are of the last packets, however old: without new ones they say nothing of now.
  const isBusy = known > 0
  const carried = (guard: Guard | undefined) => (guard === undefined ? 0 : guard.sent + guard.received)
  const earlier = new Map(before.guards.map((one) => [one.name, one]))
  return {
    atS,
    up: rate(now.traffic.sent - before.traffic.sent),
    down: rate(now.traffic.received - before.traffic.received),
    loss: isBusy ? lost / known : null,
    medianS: isBusy ? (now.roundTrip?.medianS ?? null) : null,
    p95S: isBusy ? (now.roundTrip?.p95S ?? null) : null,
    byGuard: Object.fromEntries(now.guards.map((one) => [one.name, rate(carried(one) - carried(earlier.get(one.name)))])),
  }
}

type Figure = 'up' | 'down' | 'loss' | 'medianS' | 'p95S'

/** Columns as uPlot wants them: seconds before the newest row, then one column a key. */
export function columns(rows: readonly Row[], keys: readonly Figure[]): (number | null)[][] {
  return [times(rows), ...keys.map((key) => rows.map((row) => row[key]))]
}

/** The same, a column a guard. */
export function guardColumns(rows: readonly Row[], names: readonly string[]): (number | null)[][] {
  return [times(rows), ...names.map((name) => rows.map((row) => row.byGuard[name] ?? null))]
}

function times(rows: readonly Row[]): number[] {
  const now = rows.at(-1)?.atS ?? 0
  return rows.map((row) => row.atS - now)
}

/** 1 − (1 − p)^g: a user with g guards enters by a relay of somebody who runs a share p of them. */
export function exposed(p: number, guards: number): number {
  return 1 - (1 - p) ** guards
}

/** (1 − (1 − p)^g) p: the same holds the exit of a session too. Without guards, every packet enters and the session is linked if its exit is theirs. */
export function linked(p: number, guards: number): number {
  return guards === 0 ? p : exposed(p, guards) * p
}

/** A probability as per cent of two digits, so that small ones can be compared: 1.9 %, 0.02 %. Only what is certain is 100 %. */
export function chance(p: number): string {
  const percent = p * 100
  const said = percent >= 99 ? Math.floor(percent * 10 + 1e-9) / 10 : Number(percent.toPrecision(2))
  return `${said}\u00a0%`
}

/** Shares of the relays that the figure's adversaries run. */
export const SHARES = [0.01, 0.05, 0.1, 0.2] as const

/** A way of using the overlay, as it was measured: see the table in docs/onion.md, from which a test takes these. */
export interface Way {
  name: string
  goodput: string
  linked: readonly [string, string, string, string]
}

/** By number of guards. */
export const WAYS: readonly Way[] = [
  { name: 'as written, no guards', goodput: '1.87', linked: ['99.9 %', '100 %', '100 %', '100 %'] },
  { name: '1 guard', goodput: '0.56', linked: ['0.9 %', '4.8 %', '9.6 %', '20 %'] },
  { name: '2 guards', goodput: '0.98', linked: ['1.7 %', '9.3 %', '19 %', '37 %'] },
  { name: '3 guards', goodput: '1.30', linked: ['2.7 %', '14 %', '27 %', '49 %'] },
]

/** The part of a guard's packets that were given up; null before any outcome is known. */
export function lossOf(guard: Guard): number | null {
  const known = guard.delivered + guard.lost
  return known === 0 ? null : guard.lost / known
}

export const PLACE_WORDS: Record<Place['kind'], { name: string; sentence: string }> = {
  entry: { name: 'Where your packets enter', sentence: 'Whoever does not know your guards has to guess one of them; whoever runs one knows your address.' },
  middle: { name: 'Between entry and exit', sentence: 'What an exit does not know of the path by which the next packet comes.' },
  'middle-back': { name: 'Between exit and entry, on the way back', sentence: 'What your guard does not know of the path by which the next packet comes.' },
  anybody: { name: 'Where whoever uses this network may enter', sentence: 'By the weights of the list alone: what an exit knows of the entry of somebody whom it knows nothing else of.' },
}
