import { describe, expect, it } from 'vitest'
import { Malformed, parseOverview } from '../src/lib/overview'
import { asText, sample } from './sample'

const parsed = (bend: (value: ReturnType<typeof sample>) => void) => {
  const value = sample()
  bend(value)
  return () => parseOverview(asText(value))
}

describe('what a peer tells', () => {
  it('is read whole', () => {
    const read = parseOverview(asText(sample()))
    expect(read.stream.bitrateBitsPerS).toBe(2e6)
    expect(read.here.feeds[1]).toEqual({ slice: 1, parent: null, isServer: true, state: 'silent' })
    expect(read.here.childrenBySlice).toEqual([[], [1, 3]])
    expect(read.overlay?.trees[0]?.edges).toEqual([[1, null], [2, 1], [3, 1]])
    expect(read.overlay?.delays.upperBoundsS.at(-1)).toBeNull()
  })

  it('keeps what is unknown as null', () => {
    const read = parsed((value) => {
      value.here.delay_s = null
      value.here.upload.capacity_bits_per_s = null
      value.stream.has_video = null
      value.stream.bitrate_bits_per_s = null
      value.here.address = null
      value.here.upload.sent_bits_per_s = null
      value.here.download_bits_per_s = null
      Object.assign(value, { overlay: null })
    })()
    expect(read.here.delayS).toBeNull()
    expect(read.here.upload.capacityBitsPerS).toBeNull()
    expect(read.stream.hasVideo).toBeNull()
    expect([read.stream.bitrateBitsPerS, read.here.address, read.here.upload.sentBitsPerS, read.here.downloadBitsPerS]).toEqual([null, null, null, null])
    expect(read.overlay).toBeNull()
    expect(parsed((value) => (value.overlay.server.sent_bits_per_s = null))().overlay?.server.sentBitsPerS).toBeNull()
  })

  it('allows savings below nothing, as repair can cost more than viewers give', () => {
    expect(parsed((value) => (value.overlay.savings = -0.2))().overlay?.savings).toBe(-0.2)
  })

  it.each<[string, (value: ReturnType<typeof sample>) => void]>([
    ['overview.here.sessions is "3"; expected a number', (value) => Object.assign(value.here, { sessions: '3' })],
    ['overview.here.sessions is 1.5; expected a whole number', (value) => Object.assign(value.here, { sessions: 1.5 })],
    ['overview.uptime_s is -1; expected a number that is not negative', (value) => (value.uptime_s = -1)],
    ['overview.here.upload is missing', (value) => Object.assign(value, { here: { ...value.here, upload: undefined } })],
    ['overview.overlay.clients[1].state is "gone"; expected one of live, late, silent, suspect, excluded', (value) => (value.overlay.clients[1]!.state = 'gone')],
    ['overview.overlay.trees[0].edges[1] is [2]; expected a pair [child, parent]', (value) => (value.overlay.trees[0]!.edges[1] = [2])],
    ['overview.overlay.trees[0].edges[1] is [2,1,0]; expected a pair [child, parent]', (value) => (value.overlay.trees[0]!.edges[1] = [2, 1, 0])],
    ['overview.overlay.trees[1].edges is {}; expected a list', (value) => Object.assign(value.overlay.trees[1]!, { edges: {} })],
    ['overview.stream is null; expected an object', (value) => Object.assign(value, { stream: null })],
    ['overview.stream.is_private is 0; expected true or false', (value) => Object.assign(value.stream, { is_private: 0 })],
  ])('is refused by place: %s', (message, bend) => {
    expect(parsed(bend)).toThrow(new Malformed(message))
  })

  it('is refused where it is no JSON, or JSON of another kind', () => {
    expect(() => parseOverview('<html>')).toThrow(Malformed)
    for (const text of ['null', '[]', '3', '"x"', '{}']) expect(() => parseOverview(text)).toThrow(Malformed)
  })

  it('is quoted shortly in errors', () => {
    const long = parsed((value) => Object.assign(value.here, { sessions: 'x'.repeat(10_000) }))
    expect(long).toThrow(/^.{1,120}$/)
  })

  it('does not take inherited names for fields', () => {
    expect(() => parseOverview('{"__proto__": {"role": "viewer"}}')).toThrow('overview.role is missing')
  })
})
