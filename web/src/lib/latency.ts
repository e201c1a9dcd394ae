// How a live picture is kept near the stream's end without showing it: a player that holds more than it was given at
// its start plays 5 % faster until it holds that again, which no ear notices much; only one that is far behind (a tab
// that slept, a pause) jumps. Nothing here eats into the buffer that the stream grants a player against losses.

/** Playing faster begins this much above the target, and ends this much above it. */
const FASTER_ABOVE_S = 1
const NORMAL_BELOW_S = 0.3
export const FASTER_RATE = 1.05
/** Above the target by more than this, catching up by playing faster would take over two minutes. */
const JUMP_ABOVE_S = 8

export interface Chase {
  playbackRate: number
  /** Where to go on at once, seconds of the medium; null: play on. */
  seekToS: number | null
}

/** `aheadS` is what the player holds ahead of the picture, `targetS` what it should hold. */
export function chase(aheadS: number, targetS: number, playbackRate: number, endS: number): Chase {
  const excess = aheadS - targetS
  if (excess > JUMP_ABOVE_S) return { playbackRate: 1, seekToS: endS - targetS }
  const isFast = playbackRate > 1
  const goesFast = isFast ? excess > NORMAL_BELOW_S : excess > FASTER_ABOVE_S
  return { playbackRate: goesFast ? FASTER_RATE : 1, seekToS: null }
}

/** Pauses between tries to reach the stream: 1, 2, 4, 8, then 10 seconds. */
export function retryDelayS(failures: number): number {
  return Math.min(10, 2 ** Math.max(0, failures - 1))
}
