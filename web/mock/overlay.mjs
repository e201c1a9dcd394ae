// A scripted overlay: `clients` viewers join within 3 s, `kill` of them die at `killAtS` and are noticed and replaced a
// little later. The same numbers at the same second in every run; made up, for the development of the page only.

const SLICES = 20
const BITRATE = 2_000_000
const SLICE_RATE = BITRATE / SLICES
const NOTICED_S = 0.6
const EXCLUDED_S = 6
const BOUNDS = [0.25, 0.5, 1, 2, 3, 4, 5, null]

/** mulberry32: small, and the same everywhere. */
function random(seed) {
  let state = seed
  return () => {
    state = (state + 0x6d2b79f5) | 0
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state)
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296
  }
}

export class Script {
  constructor({ clients, role, kill, killAtS, isPrivate, hasOverlay, told, haltAtS }) {
    Object.assign(this, { role, killAtS, isPrivate, hasOverlay, told, haltAtS })
    const draw = random(7)
    this.clients = Array.from({ length: clients }, (_, index) => ({
      client: index + 1,
      joinsAtS: 0.2 + (2.6 * index) / clients,
      places: 14 + Math.floor(draw() * 20),
      capacity: BITRATE * (0.9 + 0.9 * draw()),
      delay: 0.3 + 1.1 * draw() ** 2,
      roundTrip: 0.008 + 0.09 * draw(),
      isLate: index % 17 === 13,
      isSuspect: index % 23 === 15,
    }))
    // Never the viewer whose page this is (number 7), and spread over all.
    const spread = Math.max(1, Math.floor(clients / Math.max(1, kill)))
    this.dead = new Set(Array.from({ length: kill }, (_, index) => 1 + index * spread + (index * spread === 6 ? 1 : 0)))
    this.me = role === 'viewer' ? Math.min(7, clients) : null
    this.trees = new Map()
  }

  /** Trees change as viewers join, and as the dead are noticed. */
  treesAt(now) {
    const stage = now < 3 ? `joined ${Math.floor(now * 5)}` : now < this.killAtS + NOTICED_S ? 'all' : 'reordered'
    let trees = this.trees.get(stage)
    if (trees === undefined) {
      const there = this.clients.filter((one) => one.joinsAtS <= now && !(stage === 'reordered' && this.dead.has(one.client)))
      trees = buildTrees(there)
      this.trees.set(stage, trees)
    }
    return trees
  }

  stateAt(one, now) {
    if (this.dead.has(one.client) && now >= this.killAtS) {
      if (now >= this.killAtS + EXCLUDED_S) return one.client % 8 === 1 ? 'excluded' : 'silent'
      return 'silent'
    }
    if (one.isSuspect) return 'suspect'
    return one.isLate && now > 5 ? 'late' : 'live'
  }

  overviewAt(now, players) {
    const there = this.clients.filter((one) => one.joinsAtS <= now)
    const trees = this.treesAt(now)
    const children = new Map()
    for (const { edges } of trees) for (const [, parent] of edges) children.set(parent, (children.get(parent) ?? 0) + 1)
    const wave = 1 + 0.08 * Math.sin(now / 3) + 0.04 * Math.sin(now * 1.7)
    const clients = there.map((one) => this.clientAt(one, now, children.get(one.client) ?? 0, wave))
    const isHalted = now >= this.haltAtS + 2
    const alive = clients.filter((one) => one.state === 'live' || one.state === 'late' || one.state === 'suspect').length
    const sourceBytes = (BITRATE / 8) * now
    const serverSends = (children.get(null) ?? 0) * SLICE_RATE * 1.05
    const delivered = sourceBytes * Math.max(1, alive) * 0.97
    const server = {
      sent_bits_per_s: serverSends * wave,
      sent_bytes: Math.round((serverSends / 8) * now * 1.04),
      source_bytes: Math.round(sourceBytes),
      children: new Set(trees.flatMap(({ edges }) => edges.filter(([, parent]) => parent === null).map(([child]) => child))).size,
    }
    return {
      role: this.role,
      version: '0.1.0',
      uptime_s: now,
      stream: {
        key: '4f8a02c6d1e97b3355aa90f2c4e8107b6d2f31c0a59e84d7f06b1c2e3d4a5f60',
        link: 'anabranch://192.0.2.1:7443/4f8a02c6d1e97b3355aa90f2c4e8107b6d2f31c0a59e84d7f06b1c2e3d4a5f60',
        mode: 'hybrid',
        slices: SLICES,
        bitrate_bits_per_s: BITRATE,
        buffer_s: 3,
        has_video: true,
        is_private: this.isPrivate,
      },
      input:
        this.role === 'server'
          ? { source: 'http://192.0.2.40:8080/camera.ts', state: isHalted ? 'waiting' : 'receiving', detail: isHalted ? 'nothing has come for 2 s' : null, received_bytes: Math.round(sourceBytes), skipped_bytes: 0, restarts: 1 }
          : null,
      here: this.hereAt(now, trees, players, wave, server, children),
      overlay: this.hasOverlay
        ? {
            age_s: this.role === 'server' ? 0 : now % 2,
            watching: clients.length,
            server,
            delivered_bytes: Math.round(delivered),
            savings: delivered > 0 ? 1 - server.sent_bytes / delivered : null,
            clients: clients.filter((one) => this.isTold(one.client)),
            trees: trees.map(({ slice, edges }) => ({ slice, edges: edges.filter(([child, parent]) => this.isTold(child) && (parent === null || this.isTold(parent))) })),
            delays_s: { upper_bounds: BOUNDS, counts: histogram(clients) },
            events: this.eventsAt(now),
          }
        : null,
    }
  }

  /** As the real server: of many viewers, those around the one who asks. */
  isTold(client) {
    return client <= (this.told ?? Infinity)
  }

  clientAt(one, now, children, wave) {
    const state = this.stateAt(one, now)
    const isHeard = state !== 'silent' && state !== 'excluded'
    const packets = Math.floor(Math.max(0, now - one.joinsAtS) * 190)
    return {
      client: one.client,
      state,
      is_private: false,
      upload_bits_per_s: isHeard ? children * SLICE_RATE * wave : null,
      capacity_bits_per_s: isHeard && now > 2 ? one.capacity + children * SLICE_RATE : null,
      places: one.places,
      children,
      played_packets: packets,
      skipped_packets: state === 'late' ? Math.floor(packets * 0.013) : 0,
      delay_s: isHeard ? one.delay + (state === 'late' ? 2.4 : 0) + 0.05 * (wave - 1) : null,
      round_trip_s: isHeard ? one.roundTrip : null,
      buffered_s: isHeard ? Math.min(3, Math.max(0, now - one.joinsAtS)) - (state === 'late' ? 1.4 : 0.05) * Math.min(1, now / 5) : null,
    }
  }

  hereAt(now, trees, players, wave, server, children) {
    const isServer = this.role === 'server'
    const mine = (edges) => edges.filter(([, parent]) => parent === this.me).map(([child]) => child)
    const own = this.clients.find((one) => one.client === this.me)
    const sends = (children.get(this.me) ?? 0) * SLICE_RATE * wave
    const packets = Math.floor(now * 190)
    return {
      address: isServer ? '192.0.2.1:7443' : '198.51.100.23:41872',
      client: this.me,
      is_private: this.isPrivate,
      state: 'live',
      detail: null,
      played_packets: packets,
      skipped_packets: Math.floor(packets / 4000),
      forged_packets: 0,
      delay_s: isServer ? 0.05 : 0.42 + 0.06 * wave,
      buffered_s: Math.min(3, now) * (1 - 0.03 * (wave - 1)),
      upload: {
        sent_bits_per_s: isServer ? server.sent_bits_per_s : sends,
        capacity_bits_per_s: now > 4 ? (isServer ? 10_000_000 : own.capacity + 1_500_000) : null,
        limit_bits_per_s: isServer ? 8_000_000 : null,
      },
      download_bits_per_s: isServer ? BITRATE : BITRATE * 1.04 * wave,
      server_share: isServer || now < 1 ? null : trees.filter(({ edges }) => edges.some(([child, parent]) => child === this.me && parent === null)).length / SLICES + 0.01,
      sessions: isServer ? server.children + 8 : 13,
      children: isServer ? server.children : new Set(trees.flatMap(({ edges }) => mine(edges))).size,
      players,
      feeds: isServer
        ? []
        : trees.map(({ slice, edges }) => {
            const edge = edges.find(([child]) => child === this.me)
            const isDead = edge !== undefined && edge[1] !== null && this.dead.has(edge[1]) && now >= this.killAtS
            return { slice, parent: edge?.[1] ?? null, is_server: edge !== undefined && edge[1] === null, state: edge === undefined ? 'none' : isDead ? 'silent' : now < 3.4 && slice % 6 === 1 ? 'asked' : 'live' }
          }),
      children_by_slice: trees.map(({ edges }) => mine(edges)),
    }
  }

  eventsAt(now) {
    const all = []
    for (const one of this.clients) {
      all.push({ at_s: one.joinsAtS, kind: 'joined', client: one.client, text: `viewer ${one.client} joined, with room for ${one.places} children` })
    }
    for (const client of this.dead) {
      all.push({ at_s: this.killAtS + NOTICED_S / 2, kind: 'died', client, text: `viewer ${client} has been silent for 0.3 s` })
      if (client % 8 === 1) all.push({ at_s: this.killAtS + EXCLUDED_S, kind: 'excluded', client, text: `viewer ${client} did not answer for 6 s` })
    }
    all.push({ at_s: 8, kind: 'refused', client: null, text: 'a viewer from 203.0.113.9: its ticket is out of date' })
    return all.filter((event) => event.at_s <= now).sort((a, b) => a.at_s - b.at_s).slice(-100)
  }
}

/** Each viewer is interior in a few slices; others hang below the shallowest with room. */
function buildTrees(there) {
  return Array.from({ length: SLICES }, (_, slice) => {
    const draw = random(1000 + slice)
    const shuffled = there.map((one) => ({ one, order: draw() })).sort((a, b) => a.order - b.order).map(({ one }) => one)
    const interior = shuffled.filter((one) => (one.client + slice) % 5 < 2)
    const leaves = shuffled.filter((one) => (one.client + slice) % 5 >= 2)
    const room = [{ client: null, left: 2 }]
    const edges = []
    for (const one of [...interior, ...leaves]) {
      while (room[0].left === 0) room.shift()
      const parent = room[0]
      parent.left -= 1
      edges.push([one.client, parent.client])
      const isInterior = (one.client + slice) % 5 < 2
      if (isInterior || room.length === 1) room.push({ client: one.client, left: isInterior ? 2 + (one.places % 3) : 1 })
    }
    return { slice, edges }
  })
}

function histogram(clients) {
  const counts = BOUNDS.map(() => 0)
  for (const { delay_s } of clients) {
    if (delay_s !== null) counts[BOUNDS.findIndex((bound) => bound === null || delay_s < bound)] += 1
  }
  return counts
}
