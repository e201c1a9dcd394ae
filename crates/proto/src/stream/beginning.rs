//! What the server itself gives newcomers: a player needs a group of pictures before it shows anything, and parents,
//! who must be reached first and have little to spare, bring that only after seconds.
//!
//! Newcomers take turns with what pushes leave: what was promised to those before takes its time, and who comes when
//! there is more than [`WITHIN`] of that is promised less, or nothing, and gets the rest from its parents.

use anabranch_control::time::{Duration, Time};
use anabranch_control::units::{Bytes, Rate};

use super::on_wire;
use super::packet::MAX_PACKET;
use super::uplink::MOST_ASKED;

/// What a player begins with, where keyframes are a second apart.
const GROUP_OF_PICTURES: Duration = Duration::from_millis(1000);

/// What is promised leaves within this time.
const WITHIN: Duration = Duration::from_millis(800);

/// What has not left for so long nobody waits for any more.
pub(super) const GIVEN_UP_AFTER: Duration = Duration::from_millis(1000);

/// Promises to newcomers.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Beginnings {
    /// Until when what pushes leave is promised.
    taken_until: Time,
}

impl Beginnings {
    /// Packets of a group of pictures of a stream of `bitrate`.
    pub fn group(bitrate: Rate) -> u64 {
        (bitrate * GROUP_OF_PICTURES).get().div_ceil(MAX_PACKET as u64)
    }

    /// Packets that may be promised now to one newcomer, while pushes leave `left`.
    pub fn room(&self, now: Time, left: Rate) -> u64 {
        let span = (now + WITHIN).since(self.taken_until.max(now));
        (((left * span).get() as f64 / on_wire::PACKET as f64) as u64).min(MOST_ASKED as u64)
    }

    /// Promises `packets`, at most as many as there is room for.
    pub fn promise(&mut self, now: Time, left: Rate, packets: u64) {
        if packets > 0 {
            self.taken_until = self.taken_until.max(now) + Bytes::new(packets * on_wire::PACKET as u64) / left;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Time {
        Time::ZERO + Duration::from_millis(millis)
    }

    #[test]
    fn newcomers_are_promised_no_more_than_pushes_leave_in_time() {
        // 360 packets a second, of which a group of pictures of 2 Mbit/s takes 190.
        let left = Rate::from_bits_per_sec(4_000_000);
        let group = Beginnings::group(Rate::from_bits_per_sec(2_000_000));
        let mut beginnings = Beginnings::default();
        let mut come = |millis: u64| {
            let packets = beginnings.room(at(millis), left).min(group);
            beginnings.promise(at(millis), left, packets);
            packets
        };
        assert_eq!(group, 190);
        let first: Vec<u64> = (0..4).map(|_| come(1000)).collect();
        assert_eq!((first[0], first[2..].to_vec()), (190, vec![0, 0]));
        assert!((97..100).contains(&first[1]), "{first:?}");
        assert!((70..73).contains(&come(1200)), "a fifth of a second has gone");
        assert_eq!(come(3000), 190);
    }

    #[test]
    fn nothing_is_promised_where_pushes_leave_nothing_and_to_nobody_more_than_it_may_ask_for() {
        let beginnings = Beginnings::default();
        assert_eq!(beginnings.room(at(1000), Rate::ZERO), 0);
        assert_eq!(beginnings.room(at(1000), Rate::from_bits_per_sec(1_000_000_000)), MOST_ASKED as u64);
    }
}
