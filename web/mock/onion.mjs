// A scripted user of an onion overlay, for the development and the tests of its page only: no figure here is measured.
const PACKET_BYTES = 1400

/** A number from 0 to 1 that is always the same for `seed`. */
function noise(seed) {
  const x = Math.sin(seed * 127.1 + 311.7) * 43758.5453
  return x - Math.floor(x)
}

export class OnionScript {
  constructor({ guards = 2, relays = 24, isEmpty = false, hasTwins = false }) {
    this.guards = guards
    this.isEmpty = isEmpty
    this.relays = Array.from({ length: relays }, (_, index) => ({
      name: Math.floor(noise(index + 1) * 0xffffffffff).toString(16).padStart(10, '0'),
      isExit: index % 6 === 5,
      weight: 0.5 + noise(index + 40),
      taste: 0.4 + 1.4 * noise(index + 80),
    }))
    if (hasTwins) for (const of of [1, 4]) this.relays[of].name = this.relays[of - 1].name
  }

  overviewAt(now) {
    const { guards, relays } = this
    // Pages now and then, and a download every minute.
    const sentAt = (at) => 14 * at + 300 * Math.floor(at / 7) + 9 * Math.max(0, ((at % 60) - 30) * 12) + Math.floor(at / 60) * 3240
    const sent = Math.round(sentAt(now))
    const received = Math.round(sent * 3.2)
    const lost = Math.round(sent * 0.004)
    const delivered = Math.max(0, sent - lost - 40)
    const total = relays.slice(guards).reduce((sum, relay) => sum + relay.weight, 0)
    const given = relays.slice(guards).reduce((sum, relay) => sum + relay.weight * relay.taste, 0)
    const listed = {
      epoch: 494_016,
      relays: relays.length,
      exits: relays.filter((relay) => relay.isExit).length,
      may_guard: relays.length - 3,
      authorities: 3,
      threshold: 2,
    }
    return {
      version: '0.1.0',
      uptime_s: now,
      socks: '127.0.0.1:1080',
      network: this.isEmpty ? null : listed,
      settings: { guards, hops: 3, placement: 'timeouts', packets_per_key: 64, packet_bytes: PACKET_BYTES },
      traffic: this.isEmpty
        ? { sent: 0, received: 0, delivered: 0, lost: 0, unknown: 0, blocks: 0 }
        : { sent, received, delivered, lost, unknown: 0, blocks: Math.round(received * 1.1) },
      round_trip: this.isEmpty ? null : { median_s: 0.08 + 0.02 * Math.sin(now / 5), p95_s: 0.19 + 0.06 * Math.sin(now / 7), packets: 256 },
      streams: this.isEmpty ? { open: 0, opened: 0, refused: 0, sessions: 0 } : { open: 2, opened: 3 + Math.floor(now / 7), refused: 1, sessions: 1 },
      guards: this.isEmpty
        ? []
        : relays.slice(0, guards).map((relay, index) => ({
            name: relay.name,
            age_s: index === 0 ? 3_400_000 : null,
            left_s: 6_900_000,
            is_listed: true,
            is_in_use: true,
            answers: true,
            sent: Math.round(sent * (index === 0 ? 0.6 : 0.4 / Math.max(1, guards - 1))),
            delivered: Math.round(delivered * (index === 0 ? 0.6 : 0.4)),
            lost: Math.round(lost * (index === 0 ? 0.3 : 0.7)),
            received: Math.round(received * (index === 0 ? 0.55 : 0.45)),
          })),
      places: this.isEmpty
        ? []
        : [
            { kind: 'entry', bits: guards === 0 ? 4.4 : Math.log2(guards) * 0.97, degree: guards === 0 ? 0.96 : (Math.log2(guards) * 0.97) / 4.39, of: listed.may_guard, packets: sent },
            { kind: 'middle', bits: 4.21, degree: 0.944, of: relays.length - guards, packets: sent },
            { kind: 'middle-back', bits: 4.27, degree: 0.957, of: relays.length - guards, packets: received },
            { kind: 'anybody', bits: 4.31, degree: 0.981, of: listed.may_guard, packets: null },
          ],
      relays: this.isEmpty
        ? []
        : relays.map((relay, index) => ({
            name: relay.name,
            is_guard: index < guards,
            is_exit: relay.isExit,
            by_list: index < guards ? null : relay.weight / total,
            given: index < guards ? null : (relay.weight * relay.taste) / given,
            carried: index < guards ? 0 : Math.round(((relay.weight * relay.taste) / given) * (sent + received)),
          })),
      events: this.isEmpty
        ? [{ at_s: 2, kind: 'directory', text: 'cannot talk to the authority at 127.1.1.1:7555: connection refused' }]
        : [
            { at_s: 0.4, kind: 'list', text: `epoch 494016: ${relays.length} relays, ${listed.exits} exits` },
            { at_s: 0.5, kind: 'guards', text: `guards were drawn or dropped: ${guards} now` },
            { at_s: 5, kind: 'refused', text: 'a program wants to where no exit leads, or too many do' },
          ],
    }
  }
}
