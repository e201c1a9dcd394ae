// A scripted coordinator of hosts, for the development and the tests of its page only: no figure here is measured.
const POLICY = 'cross.safetensors'
/** How long its link's monitor takes to come, and when it is silent for a while. */
const MONITOR_COMES_S = 2
const SILENT_S = [30, 36]
const BEYOND = `${POLICY}: at 4.1 s flows is 0.375, and was from 0 to 0.125 in its training: it is cut there, and what the policy says of it was never tried`

export class CoordinatorScript {
  constructor({ hasPolicy = true, hosts = 3, isEmpty = false, hasGone = false }) {
    this.hasGone = hasGone
    this.hasPolicy = hasPolicy
    this.isEmpty = isEmpty
    this.names = ['alpha', 'beta', 'gamma', ...Array.from({ length: Math.max(0, hosts - 3) }, (_, index) => `host-${index + 4}`)].slice(0, hosts)
  }

  overviewAt(now) {
    const { names } = this
    const isSilent = now >= SILENT_S[0] && now < SILENT_S[1]
    const isWatched = !this.isEmpty && now >= MONITOR_COMES_S && !isSilent
    const awaits = this.isEmpty || now < MONITOR_COMES_S
    const byPolicy = this.hasPolicy && isWatched
    // Cross traffic of 8 Mbit/s, on for 3 s and off for 3 s.
    const others = now % 6 < 3 ? 8 : 0
    const other = isWatched ? others : null
    const given = awaits ? 0 : byPolicy ? 19.4 - 0.9 * others : 19 - (other ?? 0)
    const each = given / names.length
    const because = `no monitor of link "uplink" reports, and ${POLICY} sees "queue"`
    const events = this.isEmpty ? [] : [
      ...names.map((name, index) => ({ at_s: 0.2 + index / 10, kind: 'came', name, text: `${name} is here` })),
      ...(this.hasPolicy ? [{ at_s: 0.6, kind: 'decides', name: 'uplink', text: `the rule decides for link "uplink": ${because}` }] : []),
      { at_s: MONITOR_COMES_S, kind: 'came', name: 'gateway', text: 'gateway is here' },
      ...(this.hasPolicy
        ? [
            { at_s: MONITOR_COMES_S + 0.1, kind: 'decides', name: 'uplink', text: `${POLICY} decides for link "uplink"` },
            { at_s: 4.1, kind: 'beyond', name: 'uplink', text: BEYOND },
            { at_s: SILENT_S[0], kind: 'decides', name: 'uplink', text: `the rule decides for link "uplink": ${because}` },
            { at_s: SILENT_S[1], kind: 'decides', name: 'uplink', text: `${POLICY} decides for link "uplink"` },
          ]
        : []),
    ]
    const isGone = (index) => this.hasGone && index === 0
    return {
      version: '0.1.0',
      uptime_s: now,
      link: `anabranch://${'9d615fba2cf01fd0'.repeat(4)}@192.0.2.1:7444`,
      page: 'http://127.0.0.1:8080/',
      every_s: 0.1,
      utilisation: 0.95,
      share: 'per-host',
      policy: this.hasPolicy ? POLICY : null,
      links: [
        {
          name: 'uplink',
          capacity_mbit_s: 20,
          decided_by: byPolicy ? 'policy' : 'rule',
          rule_because: this.hasPolicy && !byPolicy && !this.isEmpty ? because : null,
          beyond: this.hasPolicy && now > 4.1 && !this.isEmpty ? BEYOND : null,
          awaits_monitor: awaits,
          other_mbit_s: other,
          expected_mbit_s: other,
          given_mbit_s: given,
          passes_mbit_s: isWatched ? given * 0.99 + others : null,
          queued_bytes: isWatched ? Math.round(others > 0 ? 40_000 + 9_000 * Math.sin(now) : 1514) : null,
          dropped_packets: isWatched ? 3 : null,
        },
      ],
      hosts: names.map((name, index) => ({
        name,
        link: 'uplink',
        is_here: !this.isEmpty && !isGone(index),
        flows: this.isEmpty ? null : index === 1 ? 3 : 1,
        sends_mbit_s: this.isEmpty || isGone(index) ? null : awaits ? 6 : each * (0.97 - 0.02 * (index % 6)),
        budget_mbit_s: awaits ? null : each,
        lease_s: awaits ? null : 0.21,
        report_age_s: this.isEmpty ? null : 0.05,
        round_trip_s: this.isEmpty ? null : 0.031 + 0.004 * (index % 6),
        least_round_trip_s: this.isEmpty ? null : 0.024 + 0.004 * (index % 6),
        sent_bytes: this.isEmpty ? null : Math.round(now * 800_000),
      })),
      monitors: [{ name: 'gateway', link: 'uplink', is_here: !this.isEmpty && now >= MONITOR_COMES_S, passes_mbit_s: isWatched ? given * 0.99 + others : null, report_age_s: isWatched ? 0.01 : null }],
      events: events.filter((event) => event.at_s <= now),
    }
  }
}
