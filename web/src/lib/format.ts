// Figures in words of the field. What is null is said as unknown.

export const UNKNOWN = 'unknown'

/** A space that does not break, between a figure and its unit. */
const NB = '\u00a0'

/** Three significant digits below 1000, without needless zeros: 0.042, 1.23, 12.3, 123. */
function figure(value: number): string {
  const size = Math.abs(value)
  const digits = size >= 100 ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : 3
  return String(Number(value.toFixed(digits)))
}

function scaled(value: number, units: readonly string[]): string {
  let unit = 0
  let rest = value
  // 999.5 would be printed as 1000 of the smaller unit.
  while (Math.abs(rest) >= 999.5 && unit < units.length - 1) {
    rest /= 1000
    unit += 1
  }
  return `${figure(rest)}${NB}${units[unit]}`
}

export function rate(bitsPerS: number | null): string {
  if (bitsPerS === null) return UNKNOWN
  return scaled(bitsPerS / 1000, ['kbit/s', 'Mbit/s', 'Gbit/s'])
}

export function bytes(count: number | null): string {
  if (count === null) return UNKNOWN
  return scaled(count, ['B', 'kB', 'MB', 'GB', 'TB'])
}

export function seconds(value: number | null): string {
  if (value === null) return UNKNOWN
  if (value < 0.0995) return `${Math.round(value * 1000)}${NB}ms`
  if (value < 59.95) return `${value.toFixed(1)}${NB}s`
  return duration(Math.round(value))
}

/** Whole seconds and above: `45 s`, `3 min 5 s`, `2 h 3 min`, `4 d 1 h`. */
export function duration(value: number | null): string {
  if (value === null) return UNKNOWN
  const total = Math.floor(value)
  const parts: [number, string][] = [
    [Math.floor(total / 86_400), 'd'],
    [Math.floor(total / 3600) % 24, 'h'],
    [Math.floor(total / 60) % 60, 'min'],
    [total % 60, 's'],
  ]
  const first = parts.findIndex(([count]) => count > 0)
  if (first < 0) return `0${NB}s`
  return parts
    .slice(first, first + 2)
    .filter(([count], index) => index === 0 || count > 0)
    .map(([count, unit]) => `${count}${NB}${unit}`)
    .join(' ')
}

/** So many seconds before now, on an axis that is `span` seconds long. */
export function before(value: number, span: number): string {
  if (value === 0) return 'now'
  if (span <= 120) return `−${figure(value)} s`
  const whole = Math.round(value)
  return `−${Math.floor(whole / 60)}:${String(whole % 60).padStart(2, '0')}`
}

/** A time on an axis, with as many digits as tell ticks apart. */
export function axisSeconds(value: number): string {
  if (value === 0) return '0'
  return value < 0.0995 ? seconds(value) : value < 60 ? `${figure(value)}${NB}s` : seconds(value)
}

/**
 * A share as per cent. Near its ends it gains a digit and is cut, not rounded: 100 % is said only of all, and 0 %
 * only of nothing.
 */
export function share(value: number | null): string {
  if (value === null) return UNKNOWN
  const percent = value * 100
  const isNearEnd = (percent > 99 && percent < 100) || (percent > 0 && percent < 1)
  if (!isNearEnd) return `${Math.round(percent)}${NB}%`
  if (percent < 0.1) return `< 0.1${NB}%`
  return `${Math.floor(percent * 10 + 1e-9) / 10}${NB}%`
}

const WHOLE = new Intl.NumberFormat('en-GB')

/** Thousands parted by a thin space. */
export function count(value: number | null): string {
  return value === null ? UNKNOWN : WHOLE.format(value).replaceAll(',', '\u202f')
}

/** `1 viewer`, `2 viewers`. */
export function counted(value: number, one: string, many = `${one}s`): string {
  return `${count(value)}${NB}${value === 1 ? one : many}`
}

/** A key or link that is too long to show whole: its two ends. */
export function shortened(text: string, ends = 8): string {
  return text.length <= 2 * ends + 1 ? text : `${text.slice(0, ends)}…${text.slice(-ends)}`
}

export function clientName(client: number | null): string {
  return client === null ? 'the server' : `viewer${NB}${client}`
}
