// Reads JSON strictly: a value of another kind is an error that names its place.

/** What was read is not what a peer says; `message` names the place and both kinds. */
export class Malformed extends Error {}

/** The value that `text` is, named `name` in errors. */
export function readJson(text: string, name: string): Reader {
  let json: unknown
  try {
    json = JSON.parse(text)
  } catch {
    throw new Malformed('the answer is not JSON')
  }
  return new Reader(json, name)
}

/**
 * A value and where it stands, so that an error can say which one is wrong. The place is put into words only then: a
 * crowd's overview has tens of thousands of values.
 */
export class Reader {
  constructor(
    private readonly value: unknown,
    private readonly name: string | number,
    private readonly within: Reader | null = null,
  ) {}

  private get place(): string {
    if (this.within === null) return String(this.name)
    return this.within.place + (typeof this.name === 'number' ? `[${this.name}]` : `.${this.name}`)
  }

  field(name: string): Reader {
    if (typeof this.value !== 'object' || this.value === null || Array.isArray(this.value)) throw this.wrong('an object')
    if (!Object.hasOwn(this.value, name)) throw new Malformed(`${this.place}.${name} is missing`)
    return new Reader((this.value as Record<string, unknown>)[name], name, this)
  }

  list<T>(item: (at: Reader) => T): T[] {
    if (!Array.isArray(this.value)) throw this.wrong('a list')
    return this.value.map((value, index) => item(new Reader(value, index, this)))
  }

  orNull<T>(read: (at: Reader) => T): T | null {
    return this.value === null ? null : read(this)
  }

  text(): string {
    if (typeof this.value !== 'string') throw this.wrong('text')
    return this.value
  }

  flag(): boolean {
    if (typeof this.value !== 'boolean') throw this.wrong('true or false')
    return this.value
  }

  number(): number {
    if (typeof this.value !== 'number' || !Number.isFinite(this.value)) throw this.wrong('a number')
    return this.value
  }

  amount(): number {
    const value = this.number()
    if (value < 0) throw this.wrong('a number that is not negative')
    return value
  }

  whole(): number {
    const value = this.amount()
    if (!Number.isSafeInteger(value)) throw this.wrong('a whole number')
    return value
  }

  oneOf<T extends string>(words: readonly T[]): T {
    if (!words.includes(this.value as T)) throw this.wrong(`one of ${words.join(', ')}`)
    return this.value as T
  }

  wrong(expected: string): Malformed {
    const shown = JSON.stringify(this.value)
    const found = shown !== undefined && shown.length > 40 ? `${shown.slice(0, 40)}…` : shown
    return new Malformed(`${this.place} is ${found}; expected ${expected}`)
  }
}
