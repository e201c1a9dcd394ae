// A small overview as a peer sends it, for tests to bend.
export function sample() {
  return {
    role: 'viewer',
    version: '0.1.0',
    uptime_s: 12.5,
    stream: {
      key: 'ab'.repeat(32),
      link: 'anabranch://192.0.2.1:7443/ab',
      mode: 'hybrid',
      slices: 2,
      bitrate_bits_per_s: 2e6 as number | null,
      buffer_s: 3,
      has_video: true as boolean | null,
      is_private: false,
    },
    input: null as unknown,
    here: {
      address: '198.51.100.7:7443' as string | null,
      client: 2 as number | null,
      state: 'live',
      detail: null,
      received_packets: 100,
      played_packets: 98,
      skipped_packets: 2,
      forged_packets: 0,
      delay_s: 0.5 as number | null,
      buffered_s: 2.9 as number | null,
      upload: { sent_bits_per_s: 1e6 as number | null, capacity_bits_per_s: 4e6 as number | null, limit_bits_per_s: null as number | null },
      download_bits_per_s: 2e6 as number | null,
      server_share: 0.25 as number | null,
      sessions: 3,
      children: 1,
      players: 1,
      feeds: [
        { slice: 0, parent: 1 as number | null, is_server: false, state: 'live' },
        { slice: 1, parent: null, is_server: true, state: 'silent' },
      ],
      children_by_slice: [[], [1, 3]],
    },
    overlay: {
      server: { sent_bits_per_s: 4e6 as number | null, sent_bytes: 300, source_bytes: 200, children: 2, capacity_bits_per_s: null },
      delivered_bytes: 1000,
      savings: 0.7 as number | null,
      clients: [1, 2, 3].map((client) => ({
        client,
        state: 'live',
        upload_bits_per_s: (client === 3 ? null : client * 1e6) as number | null,
        capacity_bits_per_s: 4e6 as number | null,
        places: 5,
        children: 4 - client,
        played_packets: 100,
        skipped_packets: 0,
        delay_s: (client === 1 ? null : 0.3 * client) as number | null,
        round_trip_s: 0.02,
        buffered_s: 2.9,
      })),
      trees: [
        { slice: 0, edges: [[1, null], [2, 1], [3, 1]] as unknown[] },
        { slice: 1, edges: [[2, null], [1, 2], [3, 2]] as unknown[] },
      ],
      delays_s: { upper_bounds: [0.25, 0.5, 1, null] as (number | null)[], counts: [0, 0, 2, 0] },
      events: [{ at_s: 0.1, kind: 'joined', client: 1, text: 'viewer 1 joined' }],
    },
  }
}

export const asText = (value: unknown) => JSON.stringify(value)
