// Figures that the page derives from what a peer tells. Pure.
import type { Client, ClientState, Overlay, Overview, Here } from './overview'
import { CLIENT_STATES } from './overview'

/** Share of the upload that is free; null while what is sent or the capacity is unknown, or the capacity is zero. */
export function idleShare(upload: Here['upload']): number | null {
  const capacity = uploadBound(upload)
  if (capacity === null || capacity === 0 || upload.sentBitsPerS === null) return null
  return Math.max(0, 1 - upload.sentBitsPerS / capacity)
}

/** What may be sent: the lesser of what the uplink carries and what the user allows. */
export function uploadBound(upload: Here['upload']): number | null {
  const known = [upload.capacityBitsPerS, upload.limitBitsPerS].filter((bound) => bound !== null)
  // A limit alone is no knowledge of the uplink.
  return upload.capacityBitsPerS === null ? null : Math.min(...known)
}

/** Share of the video that came from viewers: of all viewers where we know it, else of what we ourselves received. */
export function savings(overview: Overview): { share: number; of: 'all' | 'here' } | null {
  const all = overview.overlay?.savings ?? null
  if (all !== null) return { share: all, of: 'all' }
  const fromServer = overview.here.serverShare
  return fromServer === null ? null : { share: 1 - fromServer, of: 'here' }
}

/** How many whole copies of the stream the server has sent; null before there is a stream. */
export function copiesSent(overlay: Overlay): number | null {
  const { sentBytes, sourceBytes } = overlay.server
  return sourceBytes === 0 ? null : sentBytes / sourceBytes
}

export function skippedShare(counts: { playedPackets: number; skippedPackets: number }): number | null {
  const all = counts.playedPackets + counts.skippedPackets
  return all === 0 ? null : counts.skippedPackets / all
}

export function stateCounts(clients: readonly Client[]): Record<ClientState, number> {
  const counts = Object.fromEntries(CLIENT_STATES.map((state) => [state, 0])) as Record<ClientState, number>
  for (const client of clients) counts[client.state] += 1
  return counts
}

export interface DelayBar {
  label: string
  words: string
  count: number
}

/** The histogram's bars, and how many viewers are in none of them. */
export function delayBars(overlay: Overlay): { bars: DelayBar[]; unknown: number } {
  const { upperBoundsS, counts } = overlay.delays
  const bars = upperBoundsS.map((upper, index): DelayBar => {
    const lower = index === 0 ? 0 : (upperBoundsS[index - 1] ?? 0)
    const viewers = counts[index] ?? 0
    if (upper === null) return { label: `> ${lower}`, words: `more than ${lower} seconds`, count: viewers }
    if (lower === 0) return { label: `< ${upper}`, words: `less than ${upper} seconds`, count: viewers }
    return { label: `${lower}–${upper}`, words: `${lower} to ${upper} seconds`, count: viewers }
  })
  const inBars = bars.reduce((sum, bar) => sum + bar.count, 0)
  return { bars, unknown: Math.max(0, overlay.watching - inBars) }
}

export type SortKey = 'client' | 'state' | 'upload' | 'capacity' | 'idle' | 'children' | 'delay' | 'buffer' | 'roundTrip' | 'skipped'

function sortValue(client: Client, key: SortKey): number | null {
  switch (key) {
    case 'client':
      return client.client
    case 'state':
      return CLIENT_STATES.indexOf(client.state)
    case 'upload':
      return client.uploadBitsPerS
    case 'capacity':
      return client.capacityBitsPerS
    case 'idle':
      return clientIdleShare(client)
    case 'children':
      return client.children
    case 'delay':
      return client.delayS
    case 'buffer':
      return client.bufferedS
    case 'roundTrip':
      return client.roundTripS
    case 'skipped':
      return skippedShare(client)
  }
}

export function clientIdleShare(client: Client): number | null {
  if (client.uploadBitsPerS === null || client.capacityBitsPerS === null || client.capacityBitsPerS === 0) return null
  return Math.max(0, 1 - client.uploadBitsPerS / client.capacityBitsPerS)
}

/** A sorted copy. Unknown values come last in both directions; equal ones keep the order of their numbers. */
export function sortClients(clients: readonly Client[], key: SortKey, isDescending: boolean): Client[] {
  const direction = isDescending ? -1 : 1
  return clients
    .map((client) => ({ client, value: sortValue(client, key) }))
    .sort((a, b) => {
      if (a.value === null || b.value === null) {
        if (a.value !== b.value) return a.value === null ? 1 : -1
      } else if (a.value !== b.value) return direction * (a.value - b.value)
      return a.client.client - b.client.client
    })
    .map(({ client }) => client)
}
