import { describe, expect, it } from 'vitest'
import { depths, ForceLayout, layoutSlice, nodeRadius, step } from '../src/lib/layout'
import { parseOverview, type Edge, type Overlay } from '../src/lib/overview'
import { asText, sample } from './sample'

const base = parseOverview(asText(sample())).overlay as Overlay

function overlayWith(clients: number, ...trees: Edge[][]): Overlay {
  const [first] = base.clients
  if (first === undefined) throw new Error('the sample has clients')
  return {
    ...base,
    clients: Array.from({ length: clients }, (_, index) => ({ ...first, client: index + 1 })),
    trees: trees.map((edges, slice) => ({ slice, edges })),
  }
}

/** Below the server two, below each viewer two more: `count` in all. */
const binary = (count: number): Edge[] => Array.from({ length: count }, (_, index) => [index + 1, index < 2 ? null : (index >> 1)])
const radiusOf = ({ x, y }: { x: number; y: number }) => Math.hypot(x, y)

describe('depths', () => {
  it('count the steps from the server', () => {
    expect([...depths([[1, null], [2, 1], [3, 2], [4, null]])].sort()).toEqual([[1, 1], [2, 2], [3, 3], [4, 1]])
  })
  it('leave out rings and those below them', () => {
    expect([...depths([[1, null], [2, 3], [3, 2], [4, 3]]).keys()]).toEqual([1])
  })
})

describe('the tree of a slice', () => {
  it('gives everyone a place of their own, on the ring of their depth', () => {
    const layout = layoutSlice(overlayWith(62, binary(62)), 0)
    expect(layout.depth).toBe(5)
    expect(layout.at.size).toBe(62)
    expect(new Set([...layout.at.values()].map(({ x, y }) => `${x.toFixed(4)} ${y.toFixed(4)}`)).size).toBe(62)
    expect(radiusOf(layout.at.get(1)!)).toBeCloseTo(0.88 / 5)
    expect(radiusOf(layout.at.get(62)!)).toBeCloseTo(0.88)
  })
  it('puts those who hang on nothing outside', () => {
    const layout = layoutSlice(overlayWith(4, [[1, null], [2, 1], [3, 4], [4, 3]]), 0)
    expect(layout.apart).toBe(2)
    expect([3, 4].map((client) => radiusOf(layout.at.get(client)!))).toEqual([1, 1].map((one) => expect.closeTo(one)))
  })
  it('is whole although edges name strangers, or a child twice', () => {
    const layout = layoutSlice(overlayWith(2, [[1, null], [1, 2], [9, 1], [2, 9]]), 0)
    expect(layout.edges).toEqual([[1, null]])
    expect([...layout.at.keys()].sort()).toEqual([1, 2])
  })
  it('of a slice that nobody named has everyone apart', () => {
    expect(layoutSlice(overlayWith(3), 7)).toMatchObject({ depth: 0, apart: 3, edges: [] })
    expect(layoutSlice(overlayWith(0), 0).at.size).toBe(0)
  })
  it('bears a chain of a thousand', () => {
    const chain = Array.from({ length: 1000 }, (_, index): Edge => [index + 1, index === 0 ? null : index])
    expect(layoutSlice(overlayWith(1000, chain), 0)).toMatchObject({ depth: 1000, apart: 0 })
  })
})

describe('all slices at once', () => {
  function settled(overlay: Overlay) {
    const force = new ForceLayout()
    expect(force.update(overlay)).toBe(true)
    for (let ticks = 0; force.tick(); ticks += 1) expect(ticks).toBeLessThan(1000)
    return force
  }

  it('keep everyone inside the picture, apart from each other, and come to rest', () => {
    const force = settled(overlayWith(30, binary(30), binary(30)))
    const places = [...force.layout().at.values()]
    expect(places).toHaveLength(30)
    for (const place of places) expect(radiusOf(place)).toBeLessThanOrEqual(1 + 1e-9)
    for (const [index, a] of places.entries()) {
      for (const b of places.slice(index + 1)) expect(Math.hypot(a.x - b.x, a.y - b.y)).toBeGreaterThan(nodeRadius(30))
    }
  })
  it('show each pair once, and the depth of the deepest tree', () => {
    const layout = settled(overlayWith(6, binary(6), binary(6))).layout()
    expect(layout.edges).toHaveLength(6)
    expect(layout.depth).toBe(2)
  })
  it('stay where they are while nothing changes, and set out from there where one joins', () => {
    const force = settled(overlayWith(12, binary(12)))
    const before = force.layout().at
    expect(force.update(overlayWith(12, binary(12)))).toBe(false)
    expect(force.update(overlayWith(13, binary(13)))).toBe(true)
    const after = force.layout().at
    for (const [client, place] of before) expect(after.get(client)).toEqual(place)
  })
  it('draw a sample of a crowd, and lose no connection', () => {
    const trees = Array.from({ length: 10 }, (_, slice) => Array.from({ length: 900 }, (_, index): Edge => [index + 1, index === 0 ? null : Math.floor(index / (slice + 1.5)) + 1]))
    const force = new ForceLayout()
    force.update(overlayWith(900, ...trees))
    const { edges, drawn } = force.layout()
    const pairs = new Set(trees.flat().map(([child, parent]) => `${child} ${parent}`))
    expect(edges).toHaveLength(pairs.size)
    expect(new Set(edges.map(([child, parent]) => `${child} ${parent}`))).toEqual(pairs)
    expect(drawn).toBeLessThan(edges.length)
  })
})

describe('keys', () => {
  const layout = layoutSlice(overlayWith(6, binary(6)), 0)
  it('lead up, down and round', () => {
    expect(step(layout, null, 'down')).toBe(1)
    expect(step(layout, 1, 'down')).toBe(3)
    expect(step(layout, 3, 'up')).toBe(1)
    expect(step(layout, 1, 'up')).toBe(1)
    const round = [1, 2].map((client) => step(layout, client, 'right'))
    expect(round.sort()).toEqual([1, 2])
  })
  it('reach every viewer of a level, and come back', () => {
    const seen = new Set<number>()
    let at: number | null = 3
    for (let press = 0; press < 4; press += 1) {
      at = step(layout, at, 'right')
      if (at !== null) seen.add(at)
    }
    expect([...seen].sort()).toEqual([3, 4, 5, 6])
    expect(at).toBe(3)
  })
  it('find nobody where there is nobody', () => {
    expect(step(layoutSlice(overlayWith(0), 0), null, 'down')).toBeNull()
  })
})
