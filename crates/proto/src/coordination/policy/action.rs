//! What an action is, and how a host's rate becomes bounds of its flows.
//!
//! An action is one number per host: the rate of all its flows together, relative to the link's, as in [C3]; or to an
//! even share of it.
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
    /// A pace as [`Actuator::Rate`]'s. What is directed is relative to an even share of the link, that of the hosts
    /// that are active at that instant: dividing is arithmetic, and whoever directs decides how much there is to
    /// divide. A sub-domain has such a share for each of its active hosts, as often as its rule divides.
    Share,
    /// A pace as [`Actuator::Rate`]'s. What those who are idle hold is divided among the others in proportion to what
    /// each holds, until they begin: all together hold what was directed, whoever sends.
    Lent,
    /// No rate: the window that the host's connections begin with, in packets, log2. It holds until their first loss,
    /// for those that begin while it is in force; those that have begun keep what they began with. The controller's own
    /// first window is the least.
    Initial,
}

impl Actuator {
    /// All, with their names.
    pub const ALL: [(&'static str, Actuator); 6] = [
        ("fixed", Actuator::Fixed),
        ("bounded", Actuator::Bounded),
        ("rate", Actuator::Rate),
        ("share", Actuator::Share),
        ("lent", Actuator::Lent),
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
            Actuator::Lent => "lent",
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

    /// The rate relative to the link's that a host has which was directed `directed`, while `active` hosts have
    /// something to send; a directed initial window is no rate, and stays. A sub-domain has that for each of its active
    /// hosts.
    pub fn relative(self, directed: f32, active: usize) -> f32 {
        if self == Actuator::Share { directed / active.max(1) as f32 } else { directed }
    }

    /// What agents hold of what they were `directed`, of whom those are active for which `is_active` says so.
    pub fn held(self, directed: &[f32], is_active: impl Fn(usize) -> bool, held: &mut Vec<f32>) {
        held.clear();
        held.extend_from_slice(directed);
        if self != Actuator::Lent {
            return;
        }
        let sum = |is_counted: &dyn Fn(usize) -> bool| {
            directed
                .iter()
                .enumerate()
                .filter(|(agent, _)| is_counted(*agent))
                .map(|(_, &rate)| f64::from(rate))
                .sum::<f64>()
        };
        let (all, active) = (sum(&|_| true), sum(&is_active));
        if active > 0.0 {
            // `active` is no more than `all`: nobody loses.
            let times = all / active;
            held.iter_mut().enumerate().filter(|(agent, _)| is_active(*agent)).for_each(|(_, rate)| {
                *rate = (f64::from(*rate) * times) as f32;
            });
        }
    }

    /// The bounds of a connection that begins with `2^log2_packets` packets of `packet`.
    pub fn initial(log2_packets: f32, packet: Bytes) -> Bounds {
        let packets = libm::exp2(f64::from(log2_packets.clamp(0.0, MOST_INITIAL)));
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
            Actuator::Rate | Actuator::Share | Actuator::Lent => {
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
        assert_eq!(bounds(Actuator::Lent), rate, "what is lent is a pace");
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
    fn what_the_idle_hold_is_lent_in_proportion() {
        let held = |actuator: Actuator, active: &[bool]| {
            let mut held = Vec::new();
            actuator.held(&[0.5, 0.25, 0.125, 0.125], |agent| active[agent], &mut held);
            held
        };
        assert_eq!(held(Actuator::Rate, &[true, false, true, false]), [0.5, 0.25, 0.125, 0.125]);
        assert_eq!(held(Actuator::Lent, &[true; 4]), [0.5, 0.25, 0.125, 0.125]);
        // 1 is divided as 4 : 1; the idle keep what they have for when they begin.
        assert_eq!(held(Actuator::Lent, &[true, false, true, false]), [0.8, 0.25, 0.2, 0.125]);
        assert_eq!(held(Actuator::Lent, &[false; 4]), [0.5, 0.25, 0.125, 0.125]);
        let mut none = Vec::new();
        Actuator::Lent.held(&[0.0, 1.0], |agent| agent == 0, &mut none);
        assert_eq!(none, [0.0, 1.0], "who holds nothing gets no part");
    }

    #[test]
    fn a_connection_begins_with_a_power_of_two_of_packets() {
        let window = |log2_packets| Actuator::initial(log2_packets, PACKET).initial.unwrap();
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
