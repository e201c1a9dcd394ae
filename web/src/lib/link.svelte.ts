// The page's link to its peer, and the last minutes of what that told.
import { append, gapAt, rowOf, type Row } from './history'
import { Live } from './live.svelte'
import { parseOverview, type Overview } from './overview'

export type { LinkState } from './live.svelte'

export class PeerLink extends Live<Overview> {
  rows = $state.raw<Row[]>([])

  protected parse(text: string): Overview {
    return parseOverview(text)
  }

  protected heard(atS: number, overview: Overview): void {
    this.rows = append(this.rows, rowOf(atS, overview.here))
  }

  protected missed(atS: number): void {
    if (this.rows.length > 0) this.rows = append(this.rows, gapAt(atS))
  }
}
