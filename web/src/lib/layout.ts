// Where viewers stand in the picture of the overlay; lengths are shares of the picture's radius, the server is at 0, 0.
//
// One slice is a tree: the server in the middle, everyone on the ring of their depth (d3-hierarchy's tidy tree, bent
// round). All slices at once are no tree: viewers are drawn to the ring of their mean depth and to those with whom they
// exchange most (d3-force).
import {
  forceCollide,
  forceLink,
  forceManyBody,
  forceRadial,
  forceSimulation,
  type Simulation,
  type SimulationLinkDatum,
  type SimulationNodeDatum,
} from 'd3-force'
import { hierarchy, tree as tidyTree } from 'd3-hierarchy'
import type { Client, Edge, Overlay, Tree } from './overview'

export interface Point {
  x: number
  y: number
}

export interface Layout {
  at: Map<number, Point>
  edges: Edge[]
  /** How many of `edges`, from the first on, are worth drawing: of a crowd's connections a sample, evenly taken. */
  drawn: number
  /** Levels of the tree that is shown; 0 where nobody is connected. */
  depth: number
  /** Viewers that are in no way connected to the server in what is shown. */
  apart: number
}

/** All slices: from where to where those reach who hang on the server. */
const [NEAREST_RING, FARTHEST_RING] = [0.3, 0.86]
/** Those who hang on nothing stand outside of all rings. */
const APART_RADIUS = 1
const OUTER_RING = 0.88

/** Depth of each client below the server; clients that the server does not reach (or that form a ring) are not in it. */
export function depths(edges: readonly Edge[]): Map<number, number> {
  const children = childrenOf(edges)
  const found = new Map<number, number>()
  let level = children.get(null) ?? []
  for (let depth = 1; level.length > 0; depth += 1) {
    const next: number[] = []
    for (const client of level) {
      if (found.has(client)) continue
      found.set(client, depth)
      next.push(...(children.get(client) ?? []))
    }
    level = next
  }
  return found
}

export function childrenOf(edges: readonly Edge[]): Map<number | null, number[]> {
  const children = new Map<number | null, number[]>()
  for (const [child, parent] of edges) {
    const siblings = children.get(parent)
    if (siblings === undefined) children.set(parent, [child])
    else siblings.push(child)
  }
  for (const siblings of children.values()) siblings.sort((a, b) => a - b)
  return children
}

/** A child's edges but the first are dropped, and so are edges of clients that are not listed. */
function soundEdges(tree: Tree | undefined, clients: readonly Client[]): Edge[] {
  const known = new Set(clients.map((client) => client.client))
  const seen = new Set<number>()
  return (tree?.edges ?? []).filter(([child, parent]) => {
    if (seen.has(child) || !known.has(child) || (parent !== null && !known.has(parent))) return false
    seen.add(child)
    return true
  })
}

interface Branch {
  client: number | null
  children: Branch[]
}

export function layoutSlice(overlay: Overlay, slice: number): Layout {
  const edges = soundEdges(
    overlay.trees.find((tree) => tree.slice === slice),
    overlay.clients,
  )
  const reached = depths(edges)
  const children = childrenOf(edges)
  const depth = Math.max(0, ...reached.values())
  const branch = (client: number | null): Branch => ({
    client,
    children: (children.get(client) ?? [])
      .filter((child) => reached.get(child) === (client === null ? 1 : (reached.get(client) ?? 0) + 1))
      .map(branch),
  })
  const root = tidyTree<Branch>()
    .size([2 * Math.PI, 1])
    .separation((a, b) => (a.parent === b.parent ? 1 : 1.6) / a.depth)(hierarchy(branch(null)))
  const at = new Map<number, Point>()
  for (const node of root.descendants()) {
    if (node.data.client === null) continue
    at.set(node.data.client, onRing(node.x, (OUTER_RING * node.depth) / depth))
  }
  const apart = placeApart(overlay.clients, at)
  return { at, edges, drawn: edges.length, depth, apart }
}

function onRing(angle: number, radius: number): Point {
  return { x: radius * Math.sin(angle), y: -radius * Math.cos(angle) }
}

/** Along the outermost circle from the bottom on, to both sides in turn. Returns how many. */
function placeApart(clients: readonly Client[], at: Map<number, Point>): number {
  const left = clients.map(({ client }) => client).filter((client) => !at.has(client))
  const step = Math.min(0.12, (2 * Math.PI) / Math.max(1, left.length))
  left.forEach((client, index) => {
    const side = index % 2 === 0 ? 1 : -1
    at.set(client, onRing(Math.PI + side * Math.ceil(index / 2) * step, APART_RADIUS))
  })
  return left.length
}

interface Body extends SimulationNodeDatum {
  client: number
  ring: number
}

interface Pull extends SimulationLinkDatum<Body> {
  slices: number
}

/** All trees at once. Bodies keep their places from one overview to the next. */
export class ForceLayout {
  private bodies = new Map<number, Body>()
  private clients: readonly Client[] = []
  private readonly simulation: Simulation<Body, Pull>
  private signature = ''
  private pairs: Edge[] = []
  private depth = 0
  private apart = 0

  constructor() {
    this.simulation = forceSimulation<Body, Pull>().alphaDecay(0.04).velocityDecay(0.45).stop()
  }

  /** Takes an overview in. True where something moved, so that `tick` has work. */
  update(overlay: Overlay): boolean {
    const trees = overlay.trees.map((tree) => soundEdges(tree, overlay.clients))
    const signature = `${overlay.clients.map(({ client }) => client).join()} ${trees.map((edges) => edges.join()).join(' ')}`
    if (signature === this.signature) return false
    const isFirst = this.signature === ''
    this.signature = signature
    this.place(overlay, trees)
    this.simulation.alpha(isFirst ? 1 : 0.25)
    return true
  }

  /** One step; false when all has come to rest. */
  tick(): boolean {
    if (this.simulation.alpha() < this.simulation.alphaMin()) return false
    this.simulation.tick()
    return true
  }

  layout(): Layout {
    const at = new Map<number, Point>()
    for (const [client, { x = 0, y = 0 }] of this.bodies) {
      // Collisions may push a body out of the picture.
      const outside = Math.max(1, Math.hypot(x, y) / UNIT)
      at.set(client, { x: x / UNIT / outside, y: y / UNIT / outside })
    }
    placeApart(this.clients, at)
    return { at, edges: this.pairs, drawn: Math.min(this.pairs.length, DRAWN_EDGES), depth: this.depth, apart: this.apart }
  }

  private place(overlay: Overlay, trees: Edge[][]): void {
    const sums = new Map<number, { sum: number; trees: number }>()
    const pulls = new Map<string, { child: number; parent: number | null; slices: number }>()
    this.depth = 0
    for (const edges of trees) {
      for (const [client, depth] of depths(edges)) {
        const so = sums.get(client) ?? { sum: 0, trees: 0 }
        sums.set(client, { sum: so.sum + depth, trees: so.trees + 1 })
        this.depth = Math.max(this.depth, depth)
      }
      for (const [child, parent] of edges) {
        const key = `${child} ${parent}`
        const pull = pulls.get(key)
        if (pull === undefined) pulls.set(key, { child, parent, slices: 1 })
        else pull.slices += 1
      }
    }
    this.pairs = spreadOut([...pulls.values()].map(({ child, parent }) => [child, parent] as const))
    const rings = ringsOf(new Map([...sums].map(([client, { sum, trees }]) => [client, sum / trees])))
    this.clients = overlay.clients
    this.apart = overlay.clients.length - rings.size
    const before = this.bodies
    this.bodies = new Map(
      [...rings].map(([client, ring], index) => {
        const old = before.get(client)
        // The golden angle spreads any number of newcomers evenly.
        const start = onRing(index * 2.399963, ring)
        return [client, { client, ring, x: old?.x ?? start.x * UNIT, y: old?.y ?? start.y * UNIT }]
      }),
    )
    const isCrowd = overlay.clients.length > CROWD
    const links: Pull[] = []
    for (const { child, parent, slices } of pulls.values()) {
      const [source, target] = [this.bodies.get(child), parent === null ? undefined : this.bodies.get(parent)]
      if (source !== undefined && target !== undefined) links.push({ source, target, slices })
    }
    this.simulation
      .nodes([...this.bodies.values()])
      .force('ring', forceRadial<Body>((body) => body.ring * UNIT).strength(0.9))
      .force('apart', isCrowd ? null : forceManyBody<Body>().strength((-0.7 * UNIT) / Math.sqrt(overlay.clients.length)))
      .force('room', forceCollide<Body>(UNIT * nodeRadius(overlay.clients.length) * 1.5))
      .force(
        'exchange',
        isCrowd
          ? null
          : forceLink<Body, Pull>(links)
              .distance(0.2 * UNIT)
              .strength((pull) => (0.006 * pull.slices) / Math.max(1, trees.length)),
      )
  }
}

/** The deeper, the further out; so that all have equal room, by rank, and those of equal depth on one ring. */
function ringsOf(meanDepths: ReadonlyMap<number, number>): Map<number, number> {
  const sorted = [...meanDepths.values()].sort((a, b) => a - b)
  const rank = new Map<number, number>()
  for (const [index, depth] of sorted.entries()) if (!rank.has(depth)) rank.set(depth, (index + sorted.lastIndexOf(depth)) / 2)
  const last = Math.max(1, sorted.length - 1)
  return new Map(
    [...meanDepths].map(([client, depth]) => {
      const share = (rank.get(depth) ?? 0) / last
      return [client, Math.sqrt(NEAREST_RING ** 2 + (FARTHEST_RING ** 2 - NEAREST_RING ** 2) * share)]
    }),
  )
}

/** Above so many viewers nobody sees who is drawn to whom: rings and room alone place them. */
const CROWD = 200
/** More lines than this are a grey disk, and too slow to draw while they move. */
const DRAWN_EDGES = 2000

/** The same edges, so ordered that any first part of them is taken evenly from all. */
function spreadOut(edges: Edge[]): Edge[] {
  const step = Math.max(1, Math.ceil(edges.length / DRAWN_EDGES))
  const spread: Edge[] = []
  for (let start = 0; start < step; start += 1) for (let at = start; at < edges.length; at += step) spread.push(edges[at] as Edge)
  return spread
}

/** d3-force reckons in pixels of about this radius. */
const UNIT = 400

/** Radius of a viewer's mark, as a share of the picture's radius. */
export function nodeRadius(clients: number): number {
  return Math.min(0.05, Math.max(0.009, 0.22 / Math.sqrt(Math.max(1, clients))))
}

/** Whom a reader comes to from `from` by a key: to the parent, the first child, or the neighbours of the same level. */
export function step(layout: Layout, from: number | null, key: 'up' | 'down' | 'left' | 'right'): number | null {
  const children = childrenOf(layout.edges)
  if (from === null) return children.get(null)?.[0] ?? [...layout.at.keys()][0] ?? null
  const parent = layout.edges.find(([child]) => child === from)?.[1]
  if (key === 'up') return parent ?? from
  if (key === 'down') return children.get(from)?.[0] ?? from
  const level = levelOf(layout, from)
  const index = level.indexOf(from) + (key === 'right' ? 1 : -1)
  return level.at(index % level.length) ?? from
}

/** Everyone as deep as `client`, in the order in which they stand round the server. */
function levelOf(layout: Layout, client: number): number[] {
  const known = depths(layout.edges)
  const angle = (one: number) => {
    const { x, y } = layout.at.get(one) ?? { x: 0, y: 0 }
    return (Math.atan2(x, -y) + 2 * Math.PI) % (2 * Math.PI)
  }
  return [...layout.at.keys()].filter((other) => known.get(other) === known.get(client)).sort((a, b) => angle(a) - angle(b))
}
