//! What an action is, and how a host's rate becomes bounds of its flows.
//!
//! An action is one number per host: the rate of all its flows together, relative to the link's, as in [C3]; or to an even
//! share of it.
//! The host divides it: `rate_flow = rate_abs / flows`, `window = rate_flow * RTT_min`.

use anabranch_control::flow::Bounds;
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::{Bytes, Rate};

/// The highest of what [`Actuator::Initial`] takes: 1024 packets, log2.
pub const MOST_INITIAL: f32 = 10.0;

/// The highest relative rate: a quarter more than the link has, so that a queue can be built on purpose.
pub const MOST: f32 = 1.25;

/// A pace needs room for whole packets: what [`Actuator::Rate`] adds to the window of a round trip, in packets. A
/// window of less stops for an ACK where a rate would not (RFC 9002, 7.7, paces by 1.25 windows for the same cause).
const RESERVE: u64 = 4;

/// How a rate becomes bounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Actuator {
    /// The window is `rate * RTT_min`, whatever the controller says: the letter of [C3].
    #[default]
    Fixed,
    /// The window begins with that and never exceeds it; the controller's answer to loss stays.
    Bounded,
    /// A pacing rate, and a window that does not stop it: twice the round trip's worth and four packets.
    Rate,
    /// A pace as [`Actuator::Rate`]'s. What is told is relative to an even share of the link, that of the hosts that are
    /// active when it is told: dividing is arithmetic, and whoever tells decides how much there is to divide.
    Share,
    /// No rate: the window that the host's connections begin with, in packets, log2. It holds until their first loss,
    /// for those that begin while it is told; those that have begun keep what they began with. The controller's own first
    /// window is the least.
    Initial,
}

impl Actuator {
    /// All, with their names.
    pub const ALL: [(&'static str, Actuator); 5] = [
        ("fixed", Actuator::Fixed),
        ("bounded", Actuator::Bounded),
        ("rate", Actuator::Rate),
        ("share", Actuator::Share),
        ("initial", Actuator::Initial),
    ];

    /// Those that take a rate relative to the link's.
    pub const OF_RATES: [Actuator; 3] = [Actuator::Fixed, Actuator::Bounded, Actuator::Rate];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Actuator::Fixed => "fixed",
            Actuator::Bounded => "bounded",
            Actuator::Rate => "rate",
            Actuator::Share => "share",
            Actuator::Initial => "initial",
        }
    }

    /// That of the name.
    pub fn named(name: &str) -> Option<Actuator> {
        Actuator::ALL.iter().find(|(known, _)| *known == name).map(|&(_, actuator)| actuator)
    }

    /// The highest number that it takes; the least is 0.
    pub fn most(self) -> f32 {
        if self == Actuator::Initial { MOST_INITIAL } else { MOST }
    }

    /// The rate relative to the link's that a host has which was told `told`, while `active` hosts have something to
    /// send; what is told of an initial window is no rate, and stays.
    pub fn relative(self, told: f32, active: usize) -> f32 {
        if self == Actuator::Share { told / active.max(1) as f32 } else { told }
    }

    /// The bounds of a connection that begins with `2^told` packets of `packet`.
    pub fn initial(told: f32, packet: Bytes) -> Bounds {
        let packets = libm::exp2(f64::from(told.clamp(0.0, MOST_INITIAL)));
        let window = Bytes::new((packets * packet.get() as f64) as u64);
        Bounds { initial: Some(window), ..Bounds::default() }
    }

    /// The bounds of a flow that may send `rate` with packets of `packet`, until `expires`.
    pub fn bounds(self, rate: Rate, min_rtt: Duration, packet: Bytes, expires: Time) -> Bounds {
        // Not nothing, which admits a packet at a time: a flow without a share must still learn
        // when that ends.
        let window = (rate * min_rtt).max(Bytes::new(1));
        let expires = Some(expires);
        match self {
            Actuator::Fixed => Bounds { fixed: Some(window), expires, ..Bounds::default() },
            Actuator::Bounded => Bounds { initial: Some(window), maximum: Some(window), expires, ..Bounds::default() },
            Actuator::Rate | Actuator::Share => {
                let window = window * 2 + packet * RESERVE;
                // No rate is a pause of the whole lease; the least one sends a packet in it.
                let rate = rate.max(Rate::from_bits_per_sec(1));
                Bounds { fixed: Some(window), rate: Some(rate), expires, ..Bounds::default() }
            }
            // A rate is none of its numbers.
            Actuator::Initial => Bounds::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: Rate = Rate::from_bits_per_sec(8_000_000);
    const RTT: Duration = Duration::from_millis(50);
    const PACKET: Bytes = Bytes::new(1000);

    #[test]
    fn a_rate_becomes_the_window_of_a_round_trip() {
        let bounds = |actuator: Actuator| actuator.bounds(RATE, RTT, PACKET, Time::from_secs_f64(2.0));
        let fixed = bounds(Actuator::Fixed);
        assert_eq!((fixed.fixed, fixed.rate, fixed.maximum), (Some(Bytes::new(50_000)), None, None));
        let bounded = bounds(Actuator::Bounded);
        assert_eq!((bounded.initial, bounded.maximum), (Some(Bytes::new(50_000)), Some(Bytes::new(50_000))));
        assert_eq!((bounded.fixed, bounded.minimum), (None, None));
        let rate = bounds(Actuator::Rate);
        assert_eq!((rate.fixed, rate.rate), (Some(Bytes::new(104_000)), Some(RATE)));
        assert_eq!(bounds(Actuator::Share), rate, "a share is a pace");
        for bounds in [fixed, bounded, rate] {
            assert_eq!(bounds.expires, Some(Time::from_secs_f64(2.0)));
        }
    }

    #[test]
    fn a_share_is_relative_to_an_even_one_and_all_else_to_the_link() {
        assert_eq!((Actuator::Share.relative(1.0, 4), Actuator::Share.relative(0.5, 1)), (0.25, 0.5));
        assert_eq!(Actuator::Share.relative(1.0, 0), 1.0, "nobody sends");
        assert_eq!((Actuator::Rate.relative(1.0, 4), Actuator::Initial.relative(10.0, 4)), (1.0, 10.0));
    }

    #[test]
    fn a_connection_begins_with_a_power_of_two_of_packets() {
        let window = |told| Actuator::initial(told, PACKET).initial.unwrap();
        assert_eq!((window(0.0), window(3.0), window(10.0)), (PACKET, PACKET * 8, PACKET * 1024));
        assert_eq!((window(-1.0), window(11.0)), (PACKET, PACKET * 1024), "cut at its range");
        let bounds = Actuator::initial(3.0, PACKET);
        assert_eq!((bounds.fixed, bounds.maximum, bounds.rate, bounds.expires), (None, None, None, None));
        assert_eq!((Actuator::Initial.most(), Actuator::Rate.most()), (10.0, 1.25));
    }

    #[test]
    fn no_rate_still_lets_a_byte_leave() {
        for actuator in Actuator::OF_RATES {
            let bounds = actuator.bounds(Rate::ZERO, RTT, PACKET, Time::ZERO);
            assert!(bounds.apply(PACKET) > Bytes::ZERO, "{actuator:?}");
            assert_ne!(bounds.rate, Some(Rate::ZERO), "{actuator:?}");
        }
    }
}
