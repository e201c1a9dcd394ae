// A page's link to whoever serves it: server-sent events, taken up again whenever they break. The last figures stay.
import { Malformed } from './reader'
import { SharedEvents, type Said } from './shared'

export type LinkState =
  | { kind: 'connecting' }
  | { kind: 'live' }
  | { kind: 'lost'; sinceMs: number }
  /** There are figures now and then, and no place for another page. */
  | { kind: 'refused'; why: string }
  | { kind: 'malformed'; why: string }

/** Who serves speaks once a second; silence of this long means that it is gone, though the connection may stand. */
const SILENCE_MS = 4500

export abstract class Live<T> {
  overview = $state.raw<T | null>(null)
  state = $state.raw<LinkState>({ kind: 'connecting' })
  /** For sentences like "since 12 s": renewed once a second. */
  nowMs = $state(performance.now())

  private heardAtMs = performance.now()
  /** When anything was heard of the tab that listens. */
  private toldAtMs = performance.now()
  private refusedWhy: string | null = null
  private readonly events: SharedEvents
  private readonly ticker = setInterval(() => this.tick(), 1000)

  protected abstract parse(text: string): T
  /** Figures came, or were missed, so many seconds after the page was opened. */
  protected abstract heard(atS: number, overview: T): void
  protected abstract missed(atS: number): void

  constructor() {
    // The first event may take a second; the page need not.
    fetch('/api/overview')
      .then(async (answer) => {
        if (answer.ok && this.overview === null) this.read(await answer.text())
      })
      .catch(() => this.lost())
    this.events = new SharedEvents((said) => this.hear(said))
  }

  destroy(): void {
    clearInterval(this.ticker)
    this.events.destroy()
  }

  private hear(said: Said): void {
    this.toldAtMs = performance.now()
    switch (said.kind) {
      case 'overview':
        if (!said.isAsked) this.refusedWhy = null
        this.read(said.text)
        break
      case 'refused':
        this.refusedWhy = said.why
        break
      case 'lost':
        this.refusedWhy = null
        this.lost()
    }
  }

  private read(text: string): void {
    this.heardAtMs = performance.now()
    try {
      const overview = this.parse(text)
      this.overview = overview
      this.heard(this.heardAtMs / 1000, overview)
      this.state = this.refusedWhy === null ? { kind: 'live' } : { kind: 'refused', why: this.refusedWhy }
    } catch (error) {
      if (!(error instanceof Malformed)) throw error
      this.state = { kind: 'malformed', why: error.message }
    }
  }

  private lost(): void {
    if (this.state.kind === 'lost') return
    // Who has just answered what cannot be understood is there, though a connection ended with it.
    if (this.state.kind === 'malformed' && performance.now() - this.heardAtMs < SILENCE_MS) return
    this.state = { kind: 'lost', sinceMs: this.heardAtMs }
    this.missed(performance.now() / 1000)
  }

  private tick(): void {
    this.nowMs = performance.now()
    const isSilent = this.nowMs - this.heardAtMs > SILENCE_MS
    if (!isSilent || document.visibilityState === 'hidden') return
    this.lost()
    if (this.events.isListening) {
      if (this.events.listenAgain()) this.heardAtMs = this.nowMs
      // Other tabs hear that this one still listens.
      this.events.say({ kind: 'lost' })
    } else if (this.nowMs - this.toldAtMs > 2 * SILENCE_MS) {
      this.toldAtMs = this.nowMs
      this.events.takeOver()
    }
  }
}
