import { expect, it } from 'vitest'
import { Progress } from '../src/lib/progress'

it('counts from when the picture moved last', () => {
  const progress = new Progress()
  progress.begin(1000)
  expect(progress.stoodS(3000)).toBe(2)
  progress.note(3000, 0.5)
  progress.note(4000, 0.5)
  expect(progress.stoodS(5000)).toBe(2)
  progress.note(5000, 0.6)
  expect(progress.stoodS(5000)).toBe(0)
  progress.begin(9000)
  expect(progress.stoodS(9500)).toBe(0.5)
})
