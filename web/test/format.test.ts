import { expect, it } from 'vitest'
import { axisSeconds, before, bytes, clientName, count, counted, duration, rate, seconds, share, shortened } from '../src/lib/format'

const plain = (text: string) => text.replaceAll('\u00a0', ' ').replaceAll('\u202f', ' ')

it('says null as unknown, and 0 as 0', () => {
  for (const form of [rate, bytes, seconds, duration, share, count]) expect(form(null)).toBe('unknown')
  expect([rate(0), bytes(0), seconds(0), duration(0), share(0), count(0)].map(plain)).toEqual(['0 kbit/s', '0 B', '0 ms', '0 s', '0 %', '0'])
})

it('chooses the unit in which a figure has three digits', () => {
  expect([940, 12_340, 999_499, 999_600, 2_000_000, 1.5e9].map((value) => plain(rate(value)))).toEqual([
    '0.94 kbit/s',
    '12.3 kbit/s',
    '999 kbit/s',
    '1 Mbit/s',
    '2 Mbit/s',
    '1.5 Gbit/s',
  ])
  expect([999, 1000, 1_234_567, 5e15].map((value) => plain(bytes(value)))).toEqual(['999 B', '1 kB', '1.23 MB', '5000 TB'])
})

it('says 100 % only of all, and 0 % only of nothing', () => {
  expect([1, 0.9999, 0.995, 0.97, 0.5, 0.004, 0.0004, 0, -0.2].map((value) => plain(share(value)))).toEqual([
    '100 %',
    '99.9 %',
    '99.5 %',
    '97 %',
    '50 %',
    '0.4 %',
    '< 0.1 %',
    '0 %',
    '-20 %',
  ])
})

it('says times in the two largest units', () => {
  expect([0.042, 0.0999, 0.25, 59.9, 59.97, 61].map((value) => plain(seconds(value)))).toEqual(['42 ms', '0.1 s', '0.3 s', '59.9 s', '1 min', '1 min 1 s'])
  expect([59, 60, 185, 7380, 90_000].map((value) => plain(duration(value)))).toEqual(['59 s', '1 min', '3 min 5 s', '2 h 3 min', '1 d 1 h'])
})

it('parts thousands, and counts in words', () => {
  expect(plain(count(1234567))).toBe('1 234 567')
  expect([0, 1, 2].map((value) => plain(counted(value, 'viewer')))).toEqual(['0 viewers', '1 viewer', '2 viewers'])
})

it('shortens what is long, and names peers', () => {
  expect(shortened('abcdefghij', 3)).toBe('abc…hij')
  expect(shortened('abcdefg', 3)).toBe('abcdefg')
  expect([clientName(null), plain(clientName(7))]).toEqual(['the server', 'viewer 7'])
})

it('says times before now to the second, and rounds before it divides', () => {
  expect([0, 30, 37.5].map((at) => before(at, 60))).toEqual(['now', '−30 s', '−37.5 s'])
  expect([479.5, 120, 59.6].map((at) => before(at, 600))).toEqual(['−8:00', '−2:00', '−1:00'])
})

it('tells ticks apart on an axis of times', () => {
  expect([0, 0.05, 0.25, 0.5, 0.75, 1.5].map(axisSeconds)).toEqual(['0', '50\u00a0ms', '0.25\u00a0s', '0.5\u00a0s', '0.75\u00a0s', '1.5\u00a0s'])
})
