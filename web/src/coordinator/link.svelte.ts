// The page's link to its coordinator, and the last minutes of what that told.
import { append } from '../lib/history'
import { Live } from '../lib/live.svelte'
import { parseOverview, type Overview, type Row } from './figures'

export class CoordinatorLink extends Live<Overview> {
  rows = $state.raw<Row[]>([])

  protected parse(text: string): Overview {
    return parseOverview(text)
  }

  protected heard(atS: number, overview: Overview): void {
    this.rows = append(this.rows, { atS, overview })
  }

  protected missed(atS: number): void {
    if (this.rows.length > 0) this.rows = append(this.rows, { atS, overview: null })
  }
}
