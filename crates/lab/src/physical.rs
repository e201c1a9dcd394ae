//! What no controller can exceed, from limits and sizes alone.

use anabranch_control::units::Rate;

/// Bytes of what travels, as UDP payload.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sizes {
    /// A data datagram.
    pub packet: f64,
    /// An ACK.
    pub ack: f64,
    /// What of a data datagram is the user's.
    pub payload: f64,
}

/// The most payload in bytes a second that one sender can bring over relays of these
/// `limits`, `hops` for each packet; there are at least as many relays, and 1 at least.
///
/// A packet and its ACK take `packet + ack` from the limit of each of its relays, so
/// relay i passes at most `c_i = limit_i / (packet + ack)` packets a second. As a
/// packet's relays are distinct, relay i is on at most every packet: at r packets a
/// second, `h r <= Σ min(c_i, r)`. Usually no relay exceeds r, and
/// `r = Σ c_i / h = Σ limit_i / (h (packet + ack))`.
pub fn one_sender(limits: &[Rate], hops: usize, sizes: &Sizes) -> f64 {
    let mut rates: Vec<f64> = limits.iter().map(|limit| limit.bytes_per_sec() / (sizes.packet + sizes.ack)).collect();
    rates.sort_by(|a, b| b.total_cmp(a));
    // The k fastest relays are on every packet; the others share the h - k places left.
    let packets = |k: usize| rates[k..].iter().sum::<f64>() / (hops - k) as f64;
    let fastest = (0..hops - 1).find(|&k| rates[k] <= packets(k)).unwrap_or(hops - 1);
    packets(fastest) * sizes.payload
}

/// The most payload in bytes a second that each peer can receive when all peers relay,
/// send and receive below one `limit`.
///
/// A packet takes `packet` from its `hops` relays and from its destination, and its ACK
/// takes `ack` from the relays: `limit = r ((h + 1) packet + h ack)` for r packets a
/// second and peer.
pub fn all_senders(limit: Rate, hops: usize, sizes: &Sizes) -> f64 {
    let hops = hops as f64;
    limit.bytes_per_sec() / ((hops + 1.0) * sizes.packet + hops * sizes.ack) * sizes.payload
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: Sizes = Sizes { packet: 1400.0, ack: 100.0, payload: 1000.0 };

    fn limits(packets: &[u64]) -> Vec<Rate> {
        packets.iter().map(|packets| Rate::from_bytes_per_sec(packets * 1500)).collect()
    }

    #[test]
    fn equal_relays_share_evenly() {
        assert!((one_sender(&limits(&[30; 20]), 3, &SIZES) - 200.0 * 1000.0).abs() < 1e-6);
    }

    #[test]
    fn a_relay_is_on_a_packet_at_most_once() {
        // Two relays a packet: the fast one is on each, the slow ones share the other place.
        assert!((one_sender(&limits(&[1000, 10, 20]), 2, &SIZES) - 30.0 * 1000.0).abs() < 1e-6);
        assert!((one_sender(&limits(&[10, 20, 30]), 3, &SIZES) - 10.0 * 1000.0).abs() < 1e-6);
    }

    #[test]
    fn the_standard_scenario_has_the_known_limit() {
        // 400 000 / (4 x 1500 + 3 x 40) x 1500, about 98 000 B/s.
        let sizes = Sizes { packet: 1500.0, ack: 40.0, payload: 1500.0 };
        assert!((all_senders(Rate::from_bytes_per_sec(400_000), 3, &sizes) - 98_039.2).abs() < 0.1);
    }
}
