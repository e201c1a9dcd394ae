//! Packets that leave together over one path. What goes the same way at once passes each host's network stack as one
//! (segmentation and receive offload), and a relay is woken once for all of it.

use super::{Hop, MAX_RELAYS, Slot};
use crate::time::{Duration, Time};
use crate::units::Packets;

/// A relay that may not save up as much is given one packet at a time: that its schedule is moved is no leave to give it
/// two.
pub const LEAST: Packets = Packets(2.0);

/// What leaves together is no more than a millisecond carries, as in Linux's TCP (`tcp_tso_autosize`)...
const LONGEST: Duration = Duration::from_millis(1);

/// ...and no more than this: half of what one reading of a socket takes.
const MOST: u8 = 16;

/// As many outcomes in a row without a loss, and packets leave together: while it is not known what loses them, each tells
/// most over a path of its own. Where half of eight relays died, some files did not arrive else.
const CALM: u8 = 32;

/// The path of the last packet, for those that leave soon after it to the same destination.
#[derive(Clone, Copy, Debug, Default)]
pub struct Train {
    began: Time,
    /// Packets that may still follow.
    left: u8,
    /// Outcomes since the last loss, up to [`CALM`].
    calm: u8,
    destination: Slot,
    hops: u8,
    path: [Slot; MAX_RELAYS],
}

impl Train {
    /// A packet leaves to `destination` over `path`, which others may follow.
    #[inline]
    pub fn begin(&mut self, now: Time, destination: Slot, path: &[Hop]) {
        (self.began, self.left) = (now, MOST - 1);
        (self.destination, self.hops) = (destination, path.len() as u8);
        for (slot, hop) in self.path.iter_mut().zip(path) {
            *slot = hop.slot;
        }
    }

    /// What became of a packet.
    #[inline]
    pub fn learn(&mut self, is_lost: bool) {
        self.calm = if is_lost { 0 } else { CALM.min(self.calm + 1) };
    }

    /// The relays that a packet to `destination` takes which leaves now, if it follows the last one over as many as those
    /// and each of them `may` take it: that packet counts.
    #[inline]
    pub fn follow(&mut self, now: Time, destination: Slot, hops: usize, may: impl Fn(Slot) -> bool) -> Option<&[Slot]> {
        let is_its = self.destination == destination && usize::from(self.hops) == hops;
        if self.calm < CALM || self.left == 0 || !is_its || now.since(self.began) > LONGEST {
            return None;
        }
        if !self.path[..hops].iter().all(|&slot| may(slot)) {
            self.left = 0;
            return None;
        }
        self.left -= 1;
        Some(&self.path[..hops])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DESTINATION: Slot = Slot(9);

    fn hops(slots: &[u16]) -> Vec<Hop> {
        slots.iter().map(|&slot| Hop { slot: Slot(slot), ..Hop::default() }).collect()
    }

    fn began() -> Train {
        let mut train = Train::default();
        (0..CALM).for_each(|_| train.learn(false));
        train.begin(Time::ZERO, DESTINATION, &hops(&[3, 1, 2]));
        train
    }

    #[test]
    fn what_follows_takes_the_same_relays_in_the_same_order() {
        let mut train = began();
        assert_eq!(train.follow(Time::ZERO, DESTINATION, 3, |_| true), Some(&[Slot(3), Slot(1), Slot(2)][..]));
    }

    #[test]
    fn sixteen_leave_together_at_most_and_within_a_millisecond() {
        let mut train = began();
        let at = |us: u64| Time::ZERO + Duration::from_nanos(us * 1000);
        assert_eq!((0..100).filter(|&us| train.follow(at(us), DESTINATION, 3, |_| true).is_some()).count(), 15);
        assert!(began().follow(at(1000), DESTINATION, 3, |_| true).is_some());
        assert!(began().follow(at(1001), DESTINATION, 3, |_| true).is_none());
    }

    #[test]
    fn what_goes_elsewhere_or_over_a_relay_that_may_not_takes_a_path_of_its_own_and_so_do_those_after_it() {
        let mut train = began();
        assert!(train.follow(Time::ZERO, Slot(8), 3, |_| true).is_none());
        assert!(train.follow(Time::ZERO, DESTINATION, 2, |_| true).is_none());
        assert!(train.follow(Time::ZERO, DESTINATION, 3, |slot| slot != Slot(1)).is_none());
        assert!(train.follow(Time::ZERO, DESTINATION, 3, |_| true).is_none());
        assert!(Train::default().follow(Time::ZERO, Slot(0), 0, |_| true).is_none());
    }

    #[test]
    fn after_a_loss_each_packet_takes_a_path_of_its_own_until_enough_have_arrived() {
        let mut train = began();
        train.learn(true);
        for _ in 0..CALM {
            assert!(train.follow(Time::ZERO, DESTINATION, 3, |_| true).is_none());
            train.learn(false);
        }
        assert!(train.follow(Time::ZERO, DESTINATION, 3, |_| true).is_some());
    }
}
