// Paints the overlay on a canvas: edges in a few strokes, then marks by state, so that 1000 viewers stay fluid.
// A state is told by shape as well as by colour.
import type { Point } from './layout'
import type { ClientState, Edge } from './overview'

export interface Palette {
  states: Record<ClientState, string>
  server: string
  edge: string
  from: string
  to: string
  text: string
  back: string
  ring: string
}

export interface Scene {
  width: number
  height: number
  /** Half of the picture's side, pixels. */
  radius: number
  at: ReadonlyMap<number, Point>
  states: ReadonlyMap<number, ClientState>
  edges: readonly Edge[]
  /** How many of `edges` are drawn where they are nobody's that is chosen. */
  drawn: number
  rings: number
  /** Radius of a viewer's mark, pixels. */
  mark: number
  me: number | null
  /** The viewer whose parents and children are shown in colour. */
  chosen: number | null
}

const SERVER: Point = { x: 0, y: 0 }

export function draw(context: CanvasRenderingContext2D, scene: Scene, palette: Palette): void {
  context.clearRect(0, 0, scene.width, scene.height)
  context.save()
  context.translate(scene.width / 2, scene.height / 2)
  drawRings(context, scene, palette)
  drawEdges(context, scene, palette)
  drawMarks(context, scene, palette)
  drawServer(context, scene, palette)
  context.restore()
}

function drawRings(context: CanvasRenderingContext2D, { radius, rings }: Scene, palette: Palette): void {
  context.strokeStyle = palette.ring
  context.lineWidth = 1
  for (let ring = 1; ring <= rings; ring += 1) {
    context.beginPath()
    context.arc(0, 0, (0.88 * radius * ring) / rings, 0, 2 * Math.PI)
    context.stroke()
  }
}

function drawEdges(context: CanvasRenderingContext2D, scene: Scene, palette: Palette): void {
  const plain: Edge[] = []
  const from: Edge[] = []
  const to: Edge[] = []
  for (const [index, edge] of scene.edges.entries()) {
    if (scene.chosen !== null && edge[0] === scene.chosen) from.push(edge)
    else if (scene.chosen !== null && edge[1] === scene.chosen) to.push(edge)
    else if (index < scene.drawn) plain.push(edge)
  }
  const crowd = scene.drawn
  context.globalAlpha = crowd > 1200 ? 0.22 : crowd > 600 ? 0.4 : crowd > 150 ? 0.5 : 0.8
  stroke(context, scene, plain, palette.edge, crowd > 150 ? 1 : 1.5)
  context.globalAlpha = 1
  stroke(context, scene, to, palette.to, 2)
  stroke(context, scene, from, palette.from, 2)
}

function stroke(context: CanvasRenderingContext2D, scene: Scene, edges: Edge[], colour: string, width: number): void {
  context.strokeStyle = colour
  context.lineWidth = width
  const isTree = scene.rings > 0
  context.beginPath()
  for (const [child, parent] of edges) {
    const a = parent === null ? SERVER : scene.at.get(parent)
    const b = scene.at.get(child)
    if (a === undefined || b === undefined) continue
    context.moveTo(a.x * scene.radius, a.y * scene.radius)
    if (isTree) bend(context, a, b, scene.radius)
    else context.lineTo(b.x * scene.radius, b.y * scene.radius)
  }
  context.stroke()
}

/** From ring to ring: leaves and arrives along the radius. */
function bend(context: CanvasRenderingContext2D, a: Point, b: Point, radius: number): void {
  const [inner, outer] = [Math.hypot(a.x, a.y), Math.hypot(b.x, b.y)]
  const middle = (inner + outer) / 2
  const near = inner === 0 ? { x: (b.x / outer) * middle, y: (b.y / outer) * middle } : { x: (a.x / inner) * middle, y: (a.y / inner) * middle }
  const far = outer === 0 ? near : { x: (b.x / outer) * middle, y: (b.y / outer) * middle }
  context.bezierCurveTo(near.x * radius, near.y * radius, far.x * radius, far.y * radius, b.x * radius, b.y * radius)
}

function drawMarks(context: CanvasRenderingContext2D, scene: Scene, palette: Palette): void {
  const groups = new Map<ClientState, Point[]>()
  for (const [client, point] of scene.at) {
    const state = scene.states.get(client)
    if (state === undefined) continue
    const group = groups.get(state)
    const pixel = { x: point.x * scene.radius, y: point.y * scene.radius }
    if (group === undefined) groups.set(state, [pixel])
    else group.push(pixel)
  }
  for (const [state, points] of groups) drawState(context, points, state, scene.mark, palette)
  for (const client of new Set([scene.me, scene.chosen])) drawHalo(context, scene, client, palette)
  if (scene.mark >= 9) drawNumbers(context, scene, palette)
}

function drawState(context: CanvasRenderingContext2D, points: Point[], state: ClientState, mark: number, palette: Palette): void {
  context.beginPath()
  for (const { x, y } of points) outline(context, state, x, y, mark)
  context.fillStyle = state === 'silent' || state === 'excluded' ? palette.back : palette.states[state]
  context.strokeStyle = palette.states[state]
  context.lineWidth = Math.max(1.2, mark / 5)
  context.fill()
  context.stroke()
  if (state !== 'excluded') return
  context.beginPath()
  for (const { x, y } of points) {
    const arm = mark * 0.55
    context.moveTo(x - arm, y - arm)
    context.lineTo(x + arm, y + arm)
    context.moveTo(x + arm, y - arm)
    context.lineTo(x - arm, y + arm)
  }
  context.stroke()
}

/** Circle: live or (hollow) silent; triangle: late; diamond: suspect; square with a cross: excluded. */
function outline(context: CanvasRenderingContext2D, state: ClientState, x: number, y: number, mark: number): void {
  switch (state) {
    case 'live':
    case 'silent':
      context.moveTo(x + mark, y)
      context.arc(x, y, mark, 0, 2 * Math.PI)
      break
    case 'late':
      context.moveTo(x, y - mark * 1.25)
      context.lineTo(x + mark * 1.15, y + mark * 0.8)
      context.lineTo(x - mark * 1.15, y + mark * 0.8)
      context.closePath()
      break
    case 'suspect':
      context.moveTo(x, y - mark * 1.25)
      context.lineTo(x + mark * 1.25, y)
      context.lineTo(x, y + mark * 1.25)
      context.lineTo(x - mark * 1.25, y)
      context.closePath()
      break
    case 'excluded':
      context.rect(x - mark * 0.9, y - mark * 0.9, mark * 1.8, mark * 1.8)
      break
  }
}

function drawHalo(context: CanvasRenderingContext2D, scene: Scene, client: number | null, palette: Palette): void {
  const point = client === null ? undefined : scene.at.get(client)
  if (point === undefined) return
  context.beginPath()
  context.arc(point.x * scene.radius, point.y * scene.radius, scene.mark + 4, 0, 2 * Math.PI)
  context.strokeStyle = palette.text
  context.lineWidth = 2
  context.setLineDash(client === scene.me ? [] : [3, 3])
  context.stroke()
  context.setLineDash([])
  if (client === scene.me) label(context, 'me', point.x * scene.radius, point.y * scene.radius - scene.mark - 12, palette)
}

function label(context: CanvasRenderingContext2D, words: string, x: number, y: number, palette: Palette): void {
  context.font = '600 12px system-ui, sans-serif'
  context.textAlign = 'center'
  context.textBaseline = 'middle'
  context.lineWidth = 4
  context.lineJoin = 'round'
  context.strokeStyle = palette.back
  context.strokeText(words, x, y)
  context.fillStyle = palette.text
  context.fillText(words, x, y)
}

function drawNumbers(context: CanvasRenderingContext2D, scene: Scene, palette: Palette): void {
  context.font = `600 ${Math.round(scene.mark * 0.95)}px system-ui, sans-serif`
  context.textAlign = 'center'
  context.textBaseline = 'middle'
  for (const [client, point] of scene.at) {
    const state = scene.states.get(client)
    // A cross fills its square.
    if (state === undefined || state === 'excluded') continue
    context.fillStyle = state === 'silent' ? palette.text : palette.back
    const lower = state === 'late' ? scene.mark * 0.2 : 0
    context.fillText(String(client), point.x * scene.radius, point.y * scene.radius + 0.5 + lower)
  }
}

function drawServer(context: CanvasRenderingContext2D, scene: Scene, palette: Palette): void {
  const side = Math.max(7, Math.min(16, scene.mark * 1.6))
  context.beginPath()
  context.roundRect(-side, -side, 2 * side, 2 * side, side * 0.35)
  context.fillStyle = palette.server
  context.fill()
  context.lineWidth = 2
  context.strokeStyle = palette.back
  context.stroke()
  label(context, 'server', 0, side + 10, palette)
}

/** The viewer whose mark is at or near a place, pixels from the picture's middle. */
export function hit(scene: Scene, x: number, y: number): number | null {
  let nearest: number | null = null
  let least = Math.max(scene.mark * 1.3, 10) ** 2
  for (const [client, point] of scene.at) {
    const distance = (point.x * scene.radius - x) ** 2 + (point.y * scene.radius - y) ** 2
    if (distance <= least) {
      nearest = client
      least = distance
    }
  }
  return nearest
}
