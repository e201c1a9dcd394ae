//! What a sender learns of one packet: its outcome, its times, and what relays stamped on its ACK.

use super::{Hop, Slot};
use crate::rtt::PairRtts;
use crate::time::{Duration, Time};
use crate::units::Rate;

/// What became of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Its ACK came in time.
    Acked,
    /// Its ACK did not come in time; it may still come.
    TimedOut,
}

/// What a relay stamped on an ACK that passed it: the rate that it grants to each sender. One
/// word, the bits of an IEEE 754 binary32 in bytes a second; zero is "no stamp".
///
/// A stamp is a claim: the relay may lie, and relays nearer to the sender may change it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp(u32);

impl Stamp {
    /// No stamp.
    pub const NONE: Stamp = Stamp(0);

    /// The stamp that grants `rate` in bytes a second.
    #[inline]
    pub fn granting(rate: f32) -> Stamp {
        Stamp(rate.to_bits())
    }

    /// The word as it travels.
    pub fn bits(self) -> u32 {
        self.0
    }

    /// The word that has arrived; whatever it is.
    pub fn from_bits(bits: u32) -> Stamp {
        Stamp(bits)
    }

    /// The rate that it grants; none without a stamp, or if it is not a rate.
    #[inline]
    pub fn rate(self) -> Option<Rate> {
        let rate = f32::from_bits(self.0);
        (rate.is_finite() && rate > 0.0).then(|| Rate::from_bytes_per_sec_f64(f64::from(rate)))
    }
}

/// All that is known of one packet once its outcome is.
#[derive(Clone, Copy, Debug)]
pub struct Report<'a> {
    /// When the outcome became known.
    pub now: Time,
    /// When the packet left.
    pub sent_at: Time,
    /// Where it went.
    pub destination: Slot,
    /// The relays that `select` gave it, in their order.
    pub path: &'a [Hop],
    /// What became of it.
    pub outcome: Outcome,
    /// The receiver's clock at its arrival less ours at its departure, in nanoseconds: the delay
    /// one way plus an offset between the clocks that is the same for all packets to this
    /// destination, apart from drift (RFC 6817 2.1). None if the receiver did not tell.
    pub one_way_nanos: Option<i64>,
    /// What each relay of `path` stamped on the ACK; empty if there was no ACK.
    pub stamps: &'a [Stamp],
    /// What is known of round-trip times, this packet's included.
    pub rtts: &'a PairRtts,
}

impl<'a> Report<'a> {
    /// That a packet over `path` had this outcome; its times are zero, and nothing was stamped.
    pub fn of(outcome: Outcome, path: &'a [Hop], rtts: &'a PairRtts) -> Report<'a> {
        Report {
            now: Time::ZERO,
            sent_at: Time::ZERO,
            destination: Slot::default(),
            path,
            outcome,
            one_way_nanos: None,
            stamps: &[],
            rtts,
        }
    }

    /// The round-trip time of a packet whose ACK has come, in time or late.
    #[inline]
    pub fn round_trip(&self) -> Duration {
        self.now.since(self.sent_at)
    }

    /// What the relay at `place` of the path stamped.
    #[inline]
    pub fn stamp(&self, place: usize) -> Option<Rate> {
        self.stamps.get(place).and_then(|stamp| stamp.rate())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_is_a_rate_or_nothing() {
        assert_eq!(Stamp::NONE.rate(), None);
        assert_eq!(Stamp::granting(98_039.0).rate(), Some(Rate::from_bytes_per_sec(98_039)));
        for claim in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -1.0, -0.0] {
            assert_eq!(Stamp::granting(claim).rate(), None, "{claim}");
        }
        let bits = Stamp::granting(1e9).bits();
        assert_eq!(Stamp::from_bits(bits), Stamp::granting(1e9));
    }
}
