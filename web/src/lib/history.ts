// The last minutes of this peer's figures, for the charts: one row a second, oldest first.
import { idleShare } from './figures'
import type { Here } from './overview'

/** Five minutes at one row a second. */
export const HISTORY_ROWS = 300

export interface Row {
  /** Seconds since the page was opened. */
  atS: number
  sent: number | null
  capacity: number | null
  limit: number | null
  download: number | null
  idle: number | null
  delay: number | null
  buffered: number | null
}

export function rowOf(atS: number, here: Here): Row {
  return {
    atS,
    sent: here.upload.sentBitsPerS,
    capacity: here.upload.capacityBitsPerS,
    limit: here.upload.limitBitsPerS,
    download: here.downloadBitsPerS,
    idle: idleShare(here.upload),
    delay: here.delayS,
    buffered: here.bufferedS,
  }
}

/** A row of which nothing is known: lines break there. */
export function gapAt(atS: number): Row {
  return { atS, sent: null, capacity: null, limit: null, download: null, idle: null, delay: null, buffered: null }
}

/** The rows with one more, at most [`HISTORY_ROWS`]; a row that is not later than the last is left out. */
export function append<T extends { atS: number }>(rows: readonly T[], row: T): T[] {
  const last = rows.at(-1)
  if (last !== undefined && row.atS <= last.atS) return [...rows]
  return [...rows.slice(-(HISTORY_ROWS - 1)), row]
}

/** Columns as uPlot wants them: seconds before the newest row (0 and below), then one column a key. */
export function columns(rows: readonly Row[], keys: readonly Exclude<keyof Row, 'atS'>[]): (number | null)[][] {
  const now = rows.at(-1)?.atS ?? 0
  return [rows.map((row) => row.atS - now), ...keys.map((key) => rows.map((row) => row[key]))]
}
