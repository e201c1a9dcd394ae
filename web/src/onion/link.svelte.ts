// The page's link to the user's edge, and the last minutes of what that told.
import { append } from '../lib/history'
import { Live } from '../lib/live.svelte'
import { gapAt, parseOverview, rowOf, type Overview, type Row } from './figures'

export class EdgeLink extends Live<Overview> {
  rows = $state.raw<Row[]>([])
  private before: Overview | null = null

  protected parse(text: string): Overview {
    return parseOverview(text)
  }

  protected heard(atS: number, overview: Overview): void {
    const row = rowOf(atS, this.before, overview)
    // Of the same instant nothing new is known.
    if (this.before === null || overview.uptimeS !== this.before.uptimeS) this.before = overview
    this.rows = append(this.rows, row)
  }

  protected missed(atS: number): void {
    this.before = null
    if (this.rows.length > 0) this.rows = append(this.rows, gapAt(atS))
  }
}
