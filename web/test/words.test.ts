import { expect, it } from 'vitest'
import { parseOverview } from '../src/lib/overview'
import { hereSaid, inputSaid, isComing, overlaySentence, parentName, privacySentence, sentence, streamSaid, watchCommand } from '../src/lib/words'
import { asText, sample } from './sample'

const { here } = parseOverview(asText(sample()))

it('says each state of a peer differently, with what the peer adds', () => {
  const states = ['connecting', 'live', 'silent', 'overloaded', 'unreachable'] as const
  expect(new Set(states.map((state) => hereSaid({ ...here, state }, 'viewer').sentence)).size).toBe(5)
  expect(hereSaid({ ...here, state: 'unreachable', detail: 'no route to host' }, 'viewer').sentence).toMatch(/ No route to host\.$/)
  expect(hereSaid(here, 'server').sentence).not.toBe(hereSaid(here, 'viewer').sentence)
})

it('says the input in words', () => {
  const input = { source: 'x', detail: 'connection refused', receivedBytes: 0, skippedBytes: 0, restarts: 0 }
  expect(inputSaid({ ...input, state: 'failed' })).toMatchObject({ word: 'Failed', tone: 'bad' })
  expect(inputSaid({ ...input, state: 'waiting' }).sentence).toMatch(/Connection refused\.$/)
})

it('tells the server from nobody', () => {
  const feed = { slice: 0, parent: null, isServer: true, state: 'live' as const }
  expect(parentName(feed)).toBe('the server')
  expect(parentName({ ...feed, isServer: false })).toBe('nobody')
})

it('makes a sentence of words', () => {
  expect(['no room ', 'Done.', '', 'why?'].map(sentence)).toEqual(['No room.', 'Done.', '', 'Why?'])
})

it('quotes a link for the shell where the shell would read it otherwise', () => {
  expect(watchCommand('anabranch://192.0.2.1:7443/ab')).toBe('anabranch stream watch anabranch://192.0.2.1:7443/ab')
  expect(watchCommand("anabranch://x/?a=1&b='$(rm)")).toBe("anabranch stream watch 'anabranch://x/?a=1&b='\\''$(rm)'")
})

it('says who sees addresses', () => {
  const told = (stream: boolean, mine: boolean) => {
    const overview = parseOverview(asText(sample()))
    return privacySentence({ ...overview, stream: { ...overview.stream, isPrivate: stream }, here: { ...overview.here, isPrivate: mine } })
  }
  expect(told(false, false)).toMatch(/see each other's network addresses/)
  expect(told(false, true)).toMatch(/no other viewer learns its address/)
  expect(told(true, true)).toMatch(/do not see each other's addresses/)
  expect(hereSaid({ ...here, isPrivate: true }, 'viewer').sentence).toMatch(/from the server alone/)
})

it('says what part of the viewers a page is told of, and how old that is', () => {
  const { overlay } = parseOverview(asText(sample()))
  if (overlay === null) throw new Error('the sample has an overlay')
  expect(overlaySentence(overlay)).toBeNull()
  expect(overlaySentence({ ...overlay, watching: 1000 })).toMatch(/^Shown are 3 of 1.000 viewers/)
  expect(overlaySentence({ ...overlay, ageS: 90 })).toMatch(/^The server said so 1.min/)
})

it('says of a server without video that it waits for it, not that it is live', () => {
  const input = { source: 'ingest', state: 'waiting', detail: 'nothing has come for 2 s', received_bytes: 7, skipped_bytes: 0, restarts: 0 }
  const of = (role: string, state: string) => parseOverview(asText({ ...sample(), role, input: { ...input, state } }))
  expect(streamSaid(of('server', 'waiting'))).toMatchObject({ word: 'Waiting', sentence: 'No video is coming in now. Nothing has come for 2 s.', tone: 'wait' })
  expect([isComing(of('server', 'waiting')), isComing(of('server', 'receiving'))]).toEqual([false, true])
  expect(streamSaid(of('server', 'receiving')).word).toBe('Live')
  expect(isComing({ ...parseOverview(asText(sample())), here: { ...here, state: 'silent' } })).toBe(false)
})
