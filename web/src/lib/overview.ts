// What a peer tells its page: `GET /api/overview` once, and `GET /events` once a second (event `overview`).
// The other end is `src/overview.rs` of crate `gateway`; who changes one changes both.
// What is unknown is null, never 0. Reading is strict: a value of another kind is an error that names its place.

import { Malformed, readJson, type Reader } from './reader'

export { Malformed }
export type Role = 'server' | 'viewer'
export type InputState = 'receiving' | 'waiting' | 'failed'
export type HereState = 'connecting' | 'live' | 'silent' | 'overloaded' | 'unreachable'
export type FeedState = 'live' | 'asked' | 'silent' | 'none'
export type ClientState = 'live' | 'late' | 'silent' | 'suspect' | 'excluded'
export type EventKind = 'joined' | 'left' | 'died' | 'refused' | 'excluded'

export const CLIENT_STATES: readonly ClientState[] = ['live', 'late', 'silent', 'suspect', 'excluded']
const EVENT_KINDS: readonly EventKind[] = ['joined', 'left', 'died', 'refused', 'excluded']

export interface Stream {
  /** The stream's public key, 64 hexadecimal digits. */
  key: string
  link: string
  mode: 'hybrid' | 'trees' | 'mesh'
  slices: number
  /** Of the video, over the last seconds. */
  bitrateBitsPerS: number | null
  bufferS: number
  hasVideo: boolean | null
  isPrivate: boolean
}

export interface Input {
  source: string
  state: InputState
  detail: string | null
  receivedBytes: number
  skippedBytes: number
  restarts: number
}

export interface Feed {
  slice: number
  /** The client that sends this slice to us; null is the server where `isServer`, else nobody. */
  parent: number | null
  isServer: boolean
  state: FeedState
}

export interface Here {
  /** Where others reach this peer. */
  address: string | null
  /** Our number among the clients; null on the server and before we joined. */
  client: number | null
  /** Whether we deal with the server alone, and are named to nobody. */
  isPrivate: boolean
  state: HereState
  detail: string | null
  playedPackets: number
  skippedPackets: number
  forgedPackets: number
  /** Age of what goes to players. */
  delayS: number | null
  /** What players hold or can be given at once. */
  bufferedS: number | null
  upload: { sentBitsPerS: number | null; capacityBitsPerS: number | null; limitBitsPerS: number | null }
  downloadBitsPerS: number | null
  /** Share of the received video that came from the server itself. */
  serverShare: number | null
  sessions: number
  children: number
  players: number
  feeds: Feed[]
  /** For each slice, the clients to which we pass it on. */
  childrenBySlice: number[][]
}

export interface Client {
  client: number
  state: ClientState
  /** Whether the server alone feeds it, and it is named to nobody. */
  isPrivate: boolean
  uploadBitsPerS: number | null
  capacityBitsPerS: number | null
  places: number
  children: number
  playedPackets: number
  skippedPackets: number
  delayS: number | null
  roundTripS: number | null
  bufferedS: number | null
}

/** [child, parent]; parent null is the server. */
export type Edge = readonly [number, number | null]

export interface Tree {
  slice: number
  edges: Edge[]
}

export interface Happening {
  atS: number
  kind: EventKind
  client: number | null
  text: string
}

export interface Overlay {
  /** How old this is: a viewer is told now and then. */
  ageS: number
  /** How many watch; `clients` are those around us where they are many. */
  watching: number
  server: {
    sentBitsPerS: number | null
    sentBytes: number
    sourceBytes: number
    children: number
  }
  deliveredBytes: number
  /** 1 - bytes sent by the server / bytes delivered to viewers. */
  savings: number | null
  clients: Client[]
  trees: Tree[]
  /** Viewers by delay; the last bound is null: no upper bound. */
  delays: { upperBoundsS: (number | null)[]; counts: number[] }
  events: Happening[]
}

export interface Overview {
  role: Role
  version: string
  uptimeS: number
  stream: Stream
  input: Input | null
  here: Here
  overlay: Overlay | null
}

export function parseOverview(text: string): Overview {
  return overview(readJson(text, 'overview'))
}

function overview(at: Reader): Overview {
  return {
    role: at.field('role').oneOf(['server', 'viewer']),
    version: at.field('version').text(),
    uptimeS: at.field('uptime_s').amount(),
    stream: stream(at.field('stream')),
    input: at.field('input').orNull(input),
    here: here(at.field('here')),
    overlay: at.field('overlay').orNull(overlay),
  }
}

function stream(at: Reader): Stream {
  return {
    key: at.field('key').text(),
    link: at.field('link').text(),
    mode: at.field('mode').oneOf(['hybrid', 'trees', 'mesh']),
    slices: at.field('slices').whole(),
    bitrateBitsPerS: at.field('bitrate_bits_per_s').orNull(amount),
    bufferS: at.field('buffer_s').amount(),
    hasVideo: at.field('has_video').orNull((value) => value.flag()),
    isPrivate: at.field('is_private').flag(),
  }
}

function input(at: Reader): Input {
  return {
    source: at.field('source').text(),
    state: at.field('state').oneOf(['receiving', 'waiting', 'failed']),
    detail: at.field('detail').orNull(text),
    receivedBytes: at.field('received_bytes').amount(),
    skippedBytes: at.field('skipped_bytes').amount(),
    restarts: at.field('restarts').whole(),
  }
}

function here(at: Reader): Here {
  const upload = at.field('upload')
  return {
    address: at.field('address').orNull(text),
    client: at.field('client').orNull(whole),
    isPrivate: at.field('is_private').flag(),
    state: at.field('state').oneOf(['connecting', 'live', 'silent', 'overloaded', 'unreachable']),
    detail: at.field('detail').orNull(text),
    playedPackets: at.field('played_packets').whole(),
    skippedPackets: at.field('skipped_packets').whole(),
    forgedPackets: at.field('forged_packets').whole(),
    delayS: at.field('delay_s').orNull(amount),
    bufferedS: at.field('buffered_s').orNull(amount),
    upload: {
      sentBitsPerS: upload.field('sent_bits_per_s').orNull(amount),
      capacityBitsPerS: upload.field('capacity_bits_per_s').orNull(amount),
      limitBitsPerS: upload.field('limit_bits_per_s').orNull(amount),
    },
    downloadBitsPerS: at.field('download_bits_per_s').orNull(amount),
    serverShare: at.field('server_share').orNull(amount),
    sessions: at.field('sessions').whole(),
    children: at.field('children').whole(),
    players: at.field('players').whole(),
    feeds: at.field('feeds').list((feed) => ({
      slice: feed.field('slice').whole(),
      parent: feed.field('parent').orNull(whole),
      isServer: feed.field('is_server').flag(),
      state: feed.field('state').oneOf<FeedState>(['live', 'asked', 'silent', 'none']),
    })),
    childrenBySlice: at.field('children_by_slice').list((children) => children.list(whole)),
  }
}

function overlay(at: Reader): Overlay {
  const server = at.field('server')
  const delays = at.field('delays_s')
  return {
    ageS: at.field('age_s').amount(),
    watching: at.field('watching').whole(),
    server: {
      sentBitsPerS: server.field('sent_bits_per_s').orNull(amount),
      sentBytes: server.field('sent_bytes').amount(),
      sourceBytes: server.field('source_bytes').amount(),
      children: server.field('children').whole(),
    },
    deliveredBytes: at.field('delivered_bytes').amount(),
    // Negative where repair costs more than viewers give: no `amount`.
    savings: at.field('savings').orNull((value) => value.number()),
    clients: at.field('clients').list((client) => ({
      client: client.field('client').whole(),
      state: client.field('state').oneOf(CLIENT_STATES),
      isPrivate: client.field('is_private').flag(),
      uploadBitsPerS: client.field('upload_bits_per_s').orNull(amount),
      capacityBitsPerS: client.field('capacity_bits_per_s').orNull(amount),
      places: client.field('places').whole(),
      children: client.field('children').whole(),
      playedPackets: client.field('played_packets').whole(),
      skippedPackets: client.field('skipped_packets').whole(),
      delayS: client.field('delay_s').orNull(amount),
      roundTripS: client.field('round_trip_s').orNull(amount),
      bufferedS: client.field('buffered_s').orNull(amount),
    })),
    trees: at.field('trees').list((tree) => ({
      slice: tree.field('slice').whole(),
      edges: tree.field('edges').list(edge),
    })),
    delays: {
      upperBoundsS: delays.field('upper_bounds').list((bound) => bound.orNull(amount)),
      counts: delays.field('counts').list(whole),
    },
    events: at.field('events').list((event) => ({
      atS: event.field('at_s').amount(),
      kind: event.field('kind').oneOf(EVENT_KINDS),
      client: event.field('client').orNull(whole),
      text: event.field('text').text(),
    })),
  }
}

function edge(at: Reader): Edge {
  const [child, parent, more] = at.list((end) => end)
  if (child === undefined || parent === undefined || more !== undefined) throw at.wrong('a pair [child, parent]')
  return [child.whole(), parent.orNull(whole)]
}

const text = (at: Reader) => at.text()
const whole = (at: Reader) => at.whole()
const amount = (at: Reader) => at.amount()
