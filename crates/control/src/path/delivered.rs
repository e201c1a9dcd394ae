//! What lately came over a relay, and what it may be sent for that: a stamp is a claim, and a relay that
//! claims much would else be part of every path before anything has come over it, so that no outcome
//! could tell of it alone.
//!
//! As TCP's window does, a rate at most doubles in a round trip, from a first one on:
//!
//! ```text
//! y    <- (y + [acked] / d) / (1 + Δt / d)      at each outcome: packets a second
//! rate <= 2 y + first
//! ```
//!
//! with the mean round trip d and the time Δt since the outcome before.

use crate::time::{Duration, Seconds, Time};
use crate::units::{PacketRate, Packets, SinglePacketRate, WindowUnit};

/// What may be sent for what was delivered.
const GROWTH: f64 = 2.0;

/// A rate does not grow beyond this many times what was delivered (RFC 9002, 7.8): one that grows by half in each round
/// trip is 2.25 times as high when it is known what was delivered, one round trip to come and one averaged over.
const UNUSED: f64 = 4.0;

/// Packets in a round trip over a relay that has just come to be known: RFC 6928's initial window.
const FIRST: Packets = Packets(10.0);

/// A sender that begins: BBR's startup (draft-ietf-ccwg-bbr, BBRStartupPacingGain, 4 ln 2) doubles what is delivered in
/// each round trip.
const STARTUP: f64 = 2.77;

/// No mean is taken for shorter.
const SHORTEST: Seconds = Seconds(1e-5);

/// The packets that came over one relay.
#[derive(Clone, Copy, Debug)]
pub struct Delivered {
    rate: SinglePacketRate,
    updated: Time,
}

impl Delivered {
    /// Nothing has come.
    pub fn new(start: Time) -> Delivered {
        Delivered { rate: SinglePacketRate::ZERO, updated: start }
    }

    /// A packet was acknowledged or not; `round_trip` is the mean.
    #[inline]
    pub fn learn(&mut self, now: Time, acked: bool, round_trip: Duration) {
        let mean = round_trip.seconds().max(SHORTEST);
        let elapsed = now.since(self.updated).seconds();
        self.updated = now;
        let come = PacketRate::from(self.rate) + if acked { Packets::ONE / mean } else { PacketRate::ZERO };
        self.rate = (come / (1.0 + elapsed / mean)).into();
    }

    /// The most that it may be sent, of which `first` is no matter what came.
    #[inline]
    pub fn allows(&self, first: PacketRate) -> PacketRate {
        PacketRate::from(self.rate) * GROWTH + first
    }

    /// y.
    #[inline]
    pub fn rate(&self) -> PacketRate {
        self.rate.into()
    }

    /// What a destination may be sent for what came: what relays grant says nothing of its access.
    #[inline]
    pub fn begins(&self) -> PacketRate {
        self.rate() * STARTUP
    }

    /// How far a rate may grow that other evidence would let grow for ever, as where all that is lost is lost by
    /// another node, or where less is sent than would be allowed.
    #[inline]
    pub fn supports(&self, first: PacketRate) -> PacketRate {
        PacketRate::from(self.rate) * UNUSED + first
    }
}

/// The first rate over a relay that has just come to be known.
pub fn first_rate(round_trip: Duration) -> PacketRate {
    FIRST / round_trip.seconds().max(SHORTEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUND_TRIP: Duration = Duration::from_millis(100);

    /// What is allowed after each second to who sends all that is allowed, up to `most` packets a second, of which
    /// every one arrives or none.
    fn allowed(most: f64, arrives: bool, seconds: usize) -> Vec<f64> {
        let mut delivered = Delivered::new(Time::ZERO);
        let (mut now, mut allowed) = (0.0, Vec::new());
        for second in 1..=seconds {
            while now < second as f64 {
                now += 1.0 / delivered.allows(first_rate(ROUND_TRIP)).0.min(most);
                delivered.learn(Time::from_secs_f64(now), arrives, ROUND_TRIP);
            }
            allowed.push(delivered.allows(first_rate(ROUND_TRIP)).0);
        }
        allowed
    }

    #[test]
    fn what_comes_may_grow_and_what_does_not_may_not() {
        let honest = allowed(1000.0, true, 3);
        assert!(honest[0] > 1000.0, "{honest:?}: ten round trips from 100 packets a second to 1000");
        assert!((1900.0..2200.0).contains(&honest[2]), "{honest:?}");
        assert_eq!(allowed(1000.0, false, 3), [FIRST.0 / 0.1; 3]);
    }

    #[test]
    fn what_no_longer_comes_is_forgotten_in_some_round_trips() {
        let mut delivered = Delivered::new(Time::ZERO);
        let at = |packet: u64| Time::from_nanos(packet * 1_000_000);
        (0..1000).for_each(|packet| delivered.learn(at(packet), true, ROUND_TRIP));
        assert!(delivered.allows(first_rate(ROUND_TRIP)) > PacketRate(1900.0));
        (1000..1500).for_each(|packet| delivered.learn(at(packet), false, ROUND_TRIP));
        let allowed = delivered.allows(first_rate(ROUND_TRIP));
        assert!(allowed < first_rate(ROUND_TRIP) * 1.3, "{allowed:?}");
    }
}
