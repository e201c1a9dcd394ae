// Sentences for states. Every state of a peer has one here, so that the page never shows a bare word of the protocol.
import { clientName, count, duration } from './format'
import type { ClientState, EventKind, Feed, FeedState, Here, Input, Overlay, Overview, Role } from './overview'

export type Tone = 'good' | 'wait' | 'bad' | 'neutral'

export interface Said {
  word: string
  sentence: string
  tone: Tone
}

export function hereSaid(here: Here, role: Role): Said {
  const detail = here.detail === null ? '' : ` ${sentence(here.detail)}`
  switch (here.state) {
    case 'connecting':
      return { word: 'Connecting', sentence: `Looking for the stream's server and for viewers to receive from.${detail}`, tone: 'wait' }
    case 'live':
      return role === 'server'
        ? { word: 'Live', sentence: `This server sends the stream to its viewers.${detail}`, tone: 'good' }
        : here.isPrivate
          ? { word: 'Live', sentence: `This viewer receives the stream from the server alone.${detail}`, tone: 'good' }
          : { word: 'Live', sentence: `This viewer receives the stream, and passes it on.${detail}`, tone: 'good' }
    case 'silent':
      return { word: 'Nothing comes', sentence: `The server has let this viewer in, and no video comes; waiting for it.${detail}`, tone: 'bad' }
    case 'overloaded':
      return { word: 'No room', sentence: `The viewers together have too little upload to feed one more; trying again.${detail}`, tone: 'bad' }
    case 'unreachable':
      return { word: 'Server unreachable', sentence: `The stream's server does not answer; trying again.${detail}`, tone: 'bad' }
  }
}

/** How the stream goes where it is looked at: a server that gets no video sends none. */
export function streamSaid(overview: Overview): Said {
  const { here, input, role } = overview
  const isServed = role === 'server' && here.state === 'live'
  return isServed && input !== null && input.state !== 'receiving' ? inputSaid(input) : hereSaid(here, role)
}

/** Whether video comes to where players get it from; a server that says nothing of its input gets some. */
export function isComing(overview: Overview): boolean {
  return overview.role === 'server' ? (overview.input?.state ?? 'receiving') === 'receiving' : overview.here.state === 'live'
}

export function inputSaid(input: Input): Said {
  const detail = input.detail === null ? '' : ` ${sentence(input.detail)}`
  switch (input.state) {
    case 'receiving':
      return { word: 'Receiving', sentence: `Video is coming in.${detail}`, tone: 'good' }
    case 'waiting':
      return { word: 'Waiting', sentence: `No video is coming in ${input.receivedBytes > 0 ? 'now' : 'yet'}.${detail}`, tone: 'wait' }
    case 'failed':
      return { word: 'Failed', sentence: `The input cannot be read; trying again.${detail}`, tone: 'bad' }
  }
}

/** Words from elsewhere as a sentence of ours: a capital at the start, a full stop at the end. */
export function sentence(words: string): string {
  return sentenceBy([], words)
}

/** The same, but one of `names` at its start stands as it is. */
export function sentenceBy(names: readonly string[], words: string): string {
  const trimmed = words.trim()
  if (trimmed === '') return ''
  const isName = names.some((name) => trimmed.startsWith(name) && [' ', ':', undefined].includes(trimmed[name.length]))
  const start = isName ? trimmed.charAt(0) : trimmed.charAt(0).toUpperCase()
  return start + trimmed.slice(1) + (/[.!?…]$/.test(trimmed) ? '' : '.')
}

export const CLIENT_WORDS: Record<ClientState, { word: string; sentence: string }> = {
  live: { word: 'live', sentence: 'receives in time' },
  late: { word: 'late', sentence: 'lately missed more than one packet in a hundred' },
  silent: { word: 'silent', sentence: 'has not been heard for a while' },
  suspect: { word: 'suspect', sentence: 'others report that it does not do what it says' },
  excluded: { word: 'excluded', sentence: 'gets nothing more' },
}

export const FEED_WORDS: Record<FeedState, string> = {
  live: 'receiving',
  asked: 'asked',
  silent: 'silent',
  none: 'nobody',
}

export const EVENT_WORDS: Record<EventKind, { word: string; tone: Tone }> = {
  joined: { word: 'joined', tone: 'good' },
  left: { word: 'left', tone: 'neutral' },
  died: { word: 'died', tone: 'bad' },
  refused: { word: 'refused', tone: 'wait' },
  excluded: { word: 'excluded', tone: 'bad' },
}

export function parentName(feed: Feed): string {
  if (feed.isServer) return 'the server'
  return feed.parent === null ? 'nobody' : clientName(feed.parent)
}

export function privacySentence(overview: Overview): string {
  if (overview.stream.isPrivate) {
    return "This stream is private: the server feeds every viewer itself, and viewers do not see each other's addresses."
  }
  return overview.here.isPrivate
    ? 'Viewers of this stream see the network addresses of those with whom they exchange video. This viewer is private: it deals with the server alone, and no other viewer learns its address.'
    : "Viewers of this stream send video to each other, and so see each other's network addresses."
}

/** What the picture leaves out, and how old it is; nothing where it is all, and new. */
export function overlaySentence(overlay: Overlay): string | null {
  const part = overlay.clients.length < overlay.watching ? `Shown are ${count(overlay.clients.length)} of ${count(overlay.watching)} viewers: those around this one.` : null
  const age = overlay.ageS > OLD_S ? `The server said so ${duration(overlay.ageS)} ago.` : null
  return part === null ? age : age === null ? part : `${part} ${age}`
}

/** A viewer's page is told anew each two seconds, as far as the server has room. */
const OLD_S = 6

/** The command that watches a stream, quoted for a shell where it needs to be. */
export function watchCommand(link: string): string {
  const isPlain = /^[\w@%+=:,./-]+$/.test(link)
  return `anabranch stream watch ${isPlain ? link : `'${link.replaceAll("'", "'\\''")}'`}`
}

export function modeSentence(stream: Overview['stream']): string {
  switch (stream.mode) {
    case 'hybrid':
      return `${stream.slices} trees, repaired by a mesh`
    case 'trees':
      return `${stream.slices} trees alone`
    case 'mesh':
      return 'mesh alone'
  }
}
