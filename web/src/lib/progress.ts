// Whether a picture moves, by the time that the video element is at: an element goes on saying that it plays while nothing
// comes to be played.

/** A picture that stands for so long stands still: a player's own steps are shorter. */
export const STILL_S = 1.5

export class Progress {
  private atMs = 0
  private time = -1

  /** A start, or whatever else nobody expects a picture during. */
  begin(nowMs: number): void {
    this.atMs = nowMs
  }

  /** The element is at `time` now. */
  note(nowMs: number, time: number): void {
    if (time === this.time) return
    this.time = time
    this.atMs = nowMs
  }

  /** For how long it has not moved, seconds. */
  stoodS(nowMs: number): number {
    return (nowMs - this.atMs) / 1000
  }
}
