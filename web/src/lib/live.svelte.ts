// A page's link to whoever serves it: server-sent events, taken up again whenever they break. The last figures stay.
import { Malformed } from './reader'

export type LinkState =
  | { kind: 'connecting' }
  | { kind: 'live' }
  | { kind: 'lost'; sinceMs: number }
  | { kind: 'malformed'; why: string }

/** Who serves speaks once a second; silence of this long means that it is gone, though the connection may stand. */
const SILENCE_MS = 4500
/** EventSource gives up for good on an answer that is not a stream of events; then we ask again. */
const RETRY_MS = 2000

export abstract class Live<T> {
  overview = $state.raw<T | null>(null)
  state = $state.raw<LinkState>({ kind: 'connecting' })
  /** For sentences like "since 12 s": renewed once a second. */
  nowMs = $state(performance.now())

  private source: EventSource | null = null
  private heardAtMs = performance.now()
  private retry: ReturnType<typeof setTimeout> | undefined
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
    this.listen()
  }

  destroy(): void {
    clearInterval(this.ticker)
    clearTimeout(this.retry)
    this.source?.close()
  }

  private listen(): void {
    clearTimeout(this.retry)
    this.source?.close()
    const source = new EventSource('/events')
    source.addEventListener('overview', (event: MessageEvent<string>) => this.read(event.data))
    source.onerror = () => {
      this.lost()
      if (source.readyState === EventSource.CLOSED) this.retry = setTimeout(() => this.listen(), RETRY_MS)
    }
    this.source = source
  }

  private read(text: string): void {
    this.heardAtMs = performance.now()
    try {
      const overview = this.parse(text)
      this.overview = overview
      this.heard(this.heardAtMs / 1000, overview)
      this.state = { kind: 'live' }
    } catch (error) {
      if (!(error instanceof Malformed)) throw error
      this.state = { kind: 'malformed', why: error.message }
    }
  }

  private lost(): void {
    if (this.state.kind === 'lost') return
    this.state = { kind: 'lost', sinceMs: this.heardAtMs }
    this.missed(performance.now() / 1000)
  }

  private tick(): void {
    this.nowMs = performance.now()
    const isSilent = this.nowMs - this.heardAtMs > SILENCE_MS
    if (!isSilent || document.visibilityState === 'hidden') return
    const wasOpen = this.source?.readyState === EventSource.OPEN
    this.lost()
    // A connection that stands and says nothing is not taken up again by itself.
    if (wasOpen) {
      this.heardAtMs = this.nowMs
      this.listen()
    }
  }
}
