// One stream of events for all tabs of a page: HTTP/1.1 gives a browser six connections to a host, of which each tab that
// plays holds one. The tab that has the lock listens, and passes on what it hears. Where there are no locks (a page that
// is not of a secure origin), each tab listens for itself.

export type Said =
  /** `isAsked`: by one who has no place, and asks now and then. */
  | { kind: 'overview'; text: string; isAsked: boolean }
  | { kind: 'lost' }
  /** Who serves answers, and has no place for another page. */
  | { kind: 'refused'; why: string }

/** EventSource gives up for good on an answer that is not a stream of events; then we ask again. */
export const RETRY_MS = 2000
const NAME = 'anabranch-events'
const EVENTS = '/events'
const OVERVIEW = '/api/overview'

export class SharedEvents {
  private source: EventSource | null = null
  private retry: ReturnType<typeof setTimeout> | undefined
  private readonly channel: BroadcastChannel | null
  private release: (() => void) | null = null
  private waiting: AbortController | null = null
  private isOver = false

  constructor(private readonly hear: (said: Said) => void) {
    const isShared = 'BroadcastChannel' in globalThis && navigator.locks !== undefined
    this.channel = isShared ? new BroadcastChannel(NAME) : null
    if (this.channel === null) this.open()
    else {
      this.channel.onmessage = (event: MessageEvent<Said>) => this.hear(event.data)
      void this.queue(false)
    }
  }

  /** Whether this tab listens itself. */
  get isListening(): boolean {
    return this.channel === null || this.release !== null
  }

  /** A connection that stands and says nothing is not taken up again by itself: whether there was one. */
  listenAgain(): boolean {
    const stands = this.isListening && this.source?.readyState === EventSource.OPEN
    if (stands) this.open()
    return stands
  }

  /** Listens in the place of a tab that does not any more: the browser has put it to sleep. */
  takeOver(): void {
    if (!this.isListening && this.channel !== null) void this.queue(true)
  }

  /** Hears, and lets the other tabs hear. */
  say(said: Said): void {
    if (this.isOver) return
    this.hear(said)
    this.channel?.postMessage(said)
  }

  destroy(): void {
    this.isOver = true
    this.waiting?.abort()
    this.close()
    this.release?.()
    this.channel?.close()
  }

  private async queue(steals: boolean): Promise<void> {
    const held = () => {
      if (this.isOver) return undefined
      this.open()
      return new Promise<void>((release) => (this.release = release))
    }
    this.waiting?.abort()
    const waiting = (this.waiting = new AbortController())
    let options: LockOptions = steals ? { steal: true } : { signal: waiting.signal }
    // One whose lock was taken waits until it is free again.
    while (!waiting.signal.aborted) {
      await navigator.locks.request(NAME, options, held).catch(() => undefined)
      if (waiting.signal.aborted) return
      this.release = null
      this.close()
      options = { signal: waiting.signal }
    }
  }

  private close(): void {
    clearTimeout(this.retry)
    this.source?.close()
    this.source = null
  }

  private open(): void {
    this.close()
    const source = new EventSource(EVENTS)
    source.addEventListener('overview', (event: MessageEvent<string>) => this.say({ kind: 'overview', text: event.data, isAsked: false }))
    source.onerror = () => {
      if (source.readyState !== EventSource.CLOSED) this.say({ kind: 'lost' })
      else void this.refused().finally(() => {
        if (this.source === source) this.retry = setTimeout(() => this.open(), RETRY_MS)
      })
    }
    this.source = source
  }

  /** EventSource does not say why it was refused; and figures can be had without a place. */
  private async refused(): Promise<void> {
    try {
      const asking = new AbortController()
      const answer = await fetch(EVENTS, { signal: asking.signal })
      if (answer.status !== 503) {
        asking.abort()
        this.say({ kind: 'lost' })
        return
      }
      this.say({ kind: 'refused', why: (await answer.text()).trim() })
      const overview = await fetch(OVERVIEW)
      if (overview.ok) this.say({ kind: 'overview', text: await overview.text(), isAsked: true })
    } catch {
      this.say({ kind: 'lost' })
    }
  }
}
