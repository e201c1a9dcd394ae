import { afterEach, beforeEach, expect, it, vi } from 'vitest'
import { SharedEvents, type Said } from '../src/lib/shared'

/** Locks as browsers have them, for one name. */
class Locks {
  private holder: { reject: (error: Error) => void } | null = null
  private waiting: (() => void)[] = []

  request(_name: string, options: { steal?: boolean; signal?: AbortSignal }, held: () => Promise<void> | undefined): Promise<void> {
    return new Promise((resolve, reject) => {
      options.signal?.addEventListener('abort', () => reject(new Error('aborted')))
      const take = () => {
        if (options.signal?.aborted) return this.next()
        const holder = { reject }
        this.holder = holder
        void Promise.resolve(held()).then(() => {
          resolve()
          if (this.holder === holder) this.next()
        })
      }
      if (options.steal === true) {
        this.holder?.reject(new Error('stolen'))
        take()
      } else if (this.holder === null) take()
      else this.waiting.push(take)
    })
  }

  private next(): void {
    this.holder = null
    this.waiting.shift()?.()
  }
}

class Source {
  static all: Source[] = []
  static CLOSED = 2
  static OPEN = 1
  readyState = 1
  onerror: (() => void) | null = null
  listener: ((event: { data: string }) => void) | null = null
  constructor() {
    Source.all.push(this)
  }
  addEventListener(_name: string, listener: (event: { data: string }) => void) {
    this.listener = listener
  }
  close() {
    this.readyState = 2
  }
}

const open = () => Source.all.filter((source) => source.readyState !== 2)
const tabs: SharedEvents[] = []
function tab() {
  const heard: Said[] = []
  const events = new SharedEvents((said) => heard.push(said))
  tabs.push(events)
  return { events, heard }
}

beforeEach(() => {
  Source.all = []
  vi.stubGlobal('EventSource', Source)
  vi.stubGlobal('navigator', { locks: new Locks() })
})
afterEach(() => {
  for (const one of tabs.splice(0)) one.destroy()
  vi.unstubAllGlobals()
})

it('listens once for all tabs, which hear the same', async () => {
  const [first, second] = [tab(), tab()]
  await vi.waitFor(() => expect(open().length).toBe(1))
  expect([first.events.isListening, second.events.isListening]).toEqual([true, false])
  open()[0]!.listener!({ data: 'x' })
  const said = { kind: 'overview', text: 'x', isAsked: false }
  await vi.waitFor(() => expect([first.heard, second.heard]).toEqual([[said], [said]]))
})

it('goes on in another tab when the one that listens is closed', async () => {
  const [first, second] = [tab(), tab()]
  await vi.waitFor(() => expect(open().length).toBe(1))
  first.events.destroy()
  await vi.waitFor(() => expect(second.events.isListening).toBe(true))
  expect(open().length).toBe(1)
})

it('is taken over from a tab that sleeps, once, and waits again there', async () => {
  const [first, second] = [tab(), tab()]
  await vi.waitFor(() => expect(open().length).toBe(1))
  second.events.takeOver()
  await vi.waitFor(() => expect([first.events.isListening, second.events.isListening]).toEqual([false, true]))
  expect(open().length).toBe(1)
  second.events.destroy()
  await vi.waitFor(() => expect(first.events.isListening).toBe(true))
})

it('listens for itself where there are no locks', () => {
  vi.stubGlobal('navigator', {})
  const [first, second] = [tab(), tab()]
  expect([first.events.isListening, second.events.isListening, open().length]).toEqual([true, true, 2])
})

it('says why it was refused, and gives figures all the same', async () => {
  vi.stubGlobal('fetch', (url: string) =>
    Promise.resolve(url === '/events' ? new Response('too many pages are open already\n', { status: 503 }) : new Response('figures')),
  )
  const { heard } = tab()
  await vi.waitFor(() => expect(open().length).toBe(1))
  const source = open()[0]!
  source.readyState = 2
  source.onerror!()
  await vi.waitFor(() => expect(heard).toEqual([{ kind: 'refused', why: 'too many pages are open already' }, { kind: 'overview', text: 'figures', isAsked: true }]))
})
