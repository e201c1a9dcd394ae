// Plays this peer's stream in a video element, and goes on trying: by transport stream over Media Source (least
// delay), else by HLS. Says in words what it does; what it shows is the component's.
import { chase, retryDelayS } from './latency'
import { Progress, STILL_S } from './progress'

export type Way = 'ts' | 'hls' | 'native-hls'

export type PlayerStatus =
  | { kind: 'starting' }
  | { kind: 'playing' }
  /** The picture stands still, since nothing comes. */
  | { kind: 'still' }
  | { kind: 'paused' }
  | { kind: 'blocked' }
  | { kind: 'retrying'; why: string; inS: number }
  | { kind: 'unsupported'; why: string }

export interface PlayerEvents {
  status(status: PlayerStatus): void
  /** From the first request to the first picture, seconds. */
  started(startS: number, way: Way): void
}

interface Engine {
  destroy(): void
}

/** `isMedia`: the bytes came, but the browser cannot play them, so another way may. */
type OnBroken = (why: string, isMedia: boolean) => void

/** Without progress for this long, the stream counts as broken; at a start, players are given longer. */
const STALL_S = 6
const START_S = 15
/** A player that nobody looks at or hears gives its connection back after so long. */
const UNSEEN_S = 10
const TICK_MS = 500
/** Media errors in a row before the next way is tried. */
const MEDIA_ERRORS = 2
/** A picture that lasted this long makes the next failure the first one again. */
const STEADY_S = 10

const STREAM = '/stream.ts'
const PLAYLIST = '/index.m3u8'

export class LivePlayer {
  private engine: Engine | null = null
  private ways: Way[]
  private way: Way
  private failures = 0
  private mediaErrors = 0
  private attempt = 0
  private startedAt = 0
  private readonly progress = new Progress()
  private isStill = false
  private unseenSince: number | null = null
  private isUnseen = false
  private playingSince: number | null = null
  private hasPicture = false
  private isPausedByUser = false
  private retryTimer: ReturnType<typeof setTimeout> | undefined
  private readonly ticker: ReturnType<typeof setInterval>
  /** What the player should hold ahead of the picture. */
  targetS = 3
  /** Whether video comes to where it is played from: while it does not, another connection brings what was shown. */
  isComing = true

  constructor(
    private readonly video: HTMLVideoElement,
    private readonly events: PlayerEvents,
  ) {
    this.ways = waysOf(video)
    this.way = this.ways[0] ?? 'ts'
    video.addEventListener('playing', this.onPlaying)
    video.addEventListener('pause', this.onPause)
    document.addEventListener('visibilitychange', this.onSeen)
    this.ticker = setInterval(() => this.tick(), TICK_MS)
  }

  /** Seconds of video that the browser holds ahead of the picture; null without a picture. */
  get aheadS(): number | null {
    const end = this.endS
    return end === null || !this.hasPicture ? null : Math.max(0, end - this.video.currentTime)
  }

  start(): void {
    this.stop()
    if (this.isPausedByUser) {
      this.events.status({ kind: 'paused' })
      return
    }
    const way = this.ways[0]
    if (way === undefined) {
      const why = 'This browser plays live streams neither by Media Source nor by HLS.'
      this.events.status({ kind: 'unsupported', why })
      return
    }
    this.way = way
    this.attempt += 1
    this.startedAt = performance.now()
    this.progress.begin(this.startedAt)
    this.hasPicture = false
    this.events.status({ kind: 'starting' })
    void this.open(way, this.attempt)
  }

  /** Plays from the live end, also after a pause. Needs a user's gesture where the browser blocked autoplay. */
  play(): void {
    this.isPausedByUser = false
    if (this.engine === null) this.start()
    else {
      this.toLive()
      this.tryToPlay()
    }
  }

  pause(): void {
    this.isPausedByUser = true
    this.video.pause()
    // One that waits for another try has nothing to pause.
    if (this.engine === null) this.start()
  }

  /** Jumps to the live end. */
  toLive(): void {
    const end = this.endS
    if (end !== null) this.video.currentTime = Math.max(this.video.currentTime, end - this.targetS)
  }

  destroy(): void {
    this.stop()
    clearInterval(this.ticker)
    this.video.removeEventListener('playing', this.onPlaying)
    this.video.removeEventListener('pause', this.onPause)
    document.removeEventListener('visibilitychange', this.onSeen)
  }

  private get endS(): number | null {
    const { buffered } = this.video
    return buffered.length === 0 ? null : buffered.end(buffered.length - 1)
  }

  private stop(): void {
    clearTimeout(this.retryTimer)
    this.engine?.destroy()
    this.engine = null
    this.playingSince = null
    this.isStill = false
    this.unseenSince = null
    this.isUnseen = false
  }

  private async open(way: Way, attempt: number): Promise<void> {
    const onBroken: OnBroken = (why, isMedia) => {
      if (attempt === this.attempt) this.broken(why, isMedia)
    }
    try {
      const open = { ts: openTs, hls: openHls, 'native-hls': openNative }[way]
      const engine = await open(this.video, onBroken)
      // Another start may have begun while the code was loaded.
      if (attempt !== this.attempt) engine.destroy()
      else {
        this.engine = engine
        // A stream without pictures has no frame to wait for: there, `playing` counts.
        if ('requestVideoFrameCallback' in this.video) this.video.requestVideoFrameCallback(() => this.onFirst(attempt))
        this.tryToPlay()
      }
    } catch (error) {
      onBroken(`The player could not be loaded: ${String(error)}`, false)
    }
  }

  private tryToPlay(): void {
    if (this.isPausedByUser) return
    this.video.play().catch((error: unknown) => {
      // AbortError: the element was given another source; whoever gave it plays.
      if (error instanceof DOMException && error.name === 'NotAllowedError') this.events.status({ kind: 'blocked' })
    })
  }

  private broken(why: string, isMedia: boolean): void {
    const wasSteady = this.playingSince !== null && performance.now() - this.playingSince > STEADY_S * 1000
    this.failures = wasSteady ? 1 : this.failures + 1
    this.mediaErrors = isMedia ? this.mediaErrors + 1 : 0
    this.attempt += 1
    this.stop()
    if (this.mediaErrors >= MEDIA_ERRORS) {
      this.ways = this.ways.filter((way) => way !== this.way)
      this.mediaErrors = 0
      if (this.ways.length === 0) {
        this.events.status({ kind: 'unsupported', why })
        return
      }
    }
    if (this.isPausedByUser) {
      this.start()
      return
    }
    const inS = retryDelayS(this.failures)
    this.events.status({ kind: 'retrying', why, inS })
    this.retryTimer = setTimeout(() => this.start(), inS * 1000)
  }

  private tick(): void {
    const now = performance.now()
    if (this.engine === null) return
    if (this.rests(now)) return
    if (this.video.paused) this.progress.begin(now)
    this.progress.note(now, this.video.currentTime)
    const stoodS = this.progress.stoodS(now)
    const isStill = this.hasPicture && !this.video.paused && stoodS > STILL_S
    if (isStill !== this.isStill) {
      this.isStill = isStill
      if (!this.video.paused) this.events.status({ kind: isStill ? 'still' : 'playing' })
    }
    const allowedS = this.hasPicture ? STALL_S : START_S
    if (!this.isComing) {
      // What is missing then is no fault of this connection, which brings what comes next.
      if (stoodS > allowedS) this.progress.begin(now - STILL_S * 1000 - TICK_MS)
    } else if (stoodS > allowedS) {
      this.broken(`Nothing has come for ${allowedS} seconds.`, false)
      return
    }
    // Players of HLS keep their own distance from the end.
    if (this.way === 'ts' && this.hasPicture && !this.video.paused) this.chase()
  }

  /** Gives the connection back while nobody looks or hears; whether it is given back. */
  private rests(now: number): boolean {
    const isHidden = document.visibilityState === 'hidden' && document.pictureInPictureElement !== this.video
    const isUnseen = this.video.paused ? this.isPausedByUser : isHidden && this.video.muted
    if (!isUnseen) this.unseenSince = null
    else this.unseenSince ??= now
    if (this.unseenSince === null || now - this.unseenSince < UNSEEN_S * 1000) return false
    this.attempt += 1
    this.stop()
    this.isUnseen = !this.isPausedByUser
    return true
  }

  private readonly onSeen = (): void => {
    if (document.visibilityState === 'visible' && this.isUnseen) this.start()
  }

  private chase(): void {
    const end = this.endS
    if (end === null) return
    const step = chase(end - this.video.currentTime, this.targetS, this.video.playbackRate, end)
    this.video.playbackRate = step.playbackRate
    if (step.seekToS !== null) this.video.currentTime = step.seekToS
  }

  private readonly onPlaying = (): void => {
    this.playingSince ??= performance.now()
    this.mediaErrors = 0
    this.isStill = false
    this.progress.begin(performance.now())
    this.events.status({ kind: 'playing' })
    if (this.video.videoWidth === 0 || !('requestVideoFrameCallback' in this.video)) this.onFirst(this.attempt)
  }

  private onFirst(attempt: number): void {
    if (attempt !== this.attempt || this.hasPicture) return
    this.hasPicture = true
    this.events.started((performance.now() - this.startedAt) / 1000, this.way)
  }

  private readonly onPause = (): void => {
    if (this.isPausedByUser) this.events.status({ kind: 'paused' })
  }
}

function waysOf(video: HTMLVideoElement): Way[] {
  const hasMediaSource = 'MediaSource' in window || 'ManagedMediaSource' in window
  const playsHls = video.canPlayType('application/vnd.apple.mpegurl') !== ''
  return [...(hasMediaSource ? (['ts', 'hls'] as const) : []), ...(playsHls ? (['native-hls'] as const) : [])]
}

async function openTs(video: HTMLVideoElement, onBroken: OnBroken): Promise<Engine> {
  const { default: mpegts } = await import('mpegts.js')
  mpegts.LoggingControl.enableAll = false
  const player = mpegts.createPlayer(
    { type: 'mpegts', isLive: true, url: STREAM },
    {
      // The stash waits until it has 384 KiB: seconds of a small stream.
      enableStashBuffer: false,
      lazyLoad: false,
      autoCleanupSourceBuffer: true,
      autoCleanupMaxBackwardDuration: 30,
      autoCleanupMinBackwardDuration: 15,
    },
  )
  // Told in the middle of what the player does, which has to be done before it may be destroyed.
  const broken: OnBroken = (why, isMedia) => void setTimeout(() => onBroken(why, isMedia))
  player.on(mpegts.Events.ERROR, (type: string, detail: string, info: { code?: number; msg?: string } | undefined) => {
    broken(wordsOf(detail, info), type === mpegts.ErrorTypes.MEDIA_ERROR)
  })
  player.on(mpegts.Events.LOADING_COMPLETE, () => broken('The stream has ended or was cut off.', false))
  player.attachMediaElement(video)
  player.load()
  return { destroy: () => player.destroy() }
}

function wordsOf(detail: string, info: { code?: number; msg?: string } | undefined): string {
  switch (detail) {
    case 'HttpStatusCodeInvalid':
      return info?.code === 503
        ? 'The stream has no picture to start from yet.'
        : `The stream was refused (HTTP status ${info?.code ?? 'unknown'}).`
    case 'Exception':
    case 'ConnectingTimeout':
    case 'UnrecoverableEarlyEof':
      return 'The connection to the stream broke.'
    case 'CodecUnsupported':
    case 'FormatUnsupported':
    case 'FormatError':
      return `This browser cannot play the stream's format${info?.msg ? ` (${info.msg})` : ''}.`
    default:
      return `The player failed: ${info?.msg ?? detail}.`
  }
}

async function openHls(video: HTMLVideoElement, onBroken: OnBroken): Promise<Engine> {
  const { default: Hls } = await import('hls.js/light')
  // A worker would be a blob of code, which the Content-Security-Policy forbids.
  const hls = new Hls({ enableWorker: false, liveSyncDurationCount: 3, maxLiveSyncPlaybackRate: 1.05, backBufferLength: 30 })
  hls.on(Hls.Events.ERROR, (_event, error) => {
    if (!error.fatal) return
    const isMedia = error.type === Hls.ErrorTypes.MEDIA_ERROR
    onBroken(isMedia ? `This browser cannot play the stream (${error.details}).` : 'The connection to the stream broke.', isMedia)
  })
  hls.attachMedia(video)
  hls.loadSource(PLAYLIST)
  return { destroy: () => hls.destroy() }
}

async function openNative(video: HTMLVideoElement, onBroken: OnBroken): Promise<Engine> {
  const onError = () => {
    const isMedia = video.error !== null && video.error.code !== MediaError.MEDIA_ERR_NETWORK
    onBroken(isMedia ? 'This browser cannot play the stream.' : 'The connection to the stream broke.', isMedia)
  }
  video.addEventListener('error', onError)
  video.src = PLAYLIST
  return {
    destroy() {
      video.removeEventListener('error', onError)
      video.removeAttribute('src')
      video.load()
    },
  }
}
