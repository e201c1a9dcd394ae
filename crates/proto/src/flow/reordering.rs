//! How long a packet may be late, on a path that reorders.
//!
//! A packet that is acknowledged after it was declared lost was only late: its loss was
//! *spurious*. RFC 9002 (6.1) begins with two fixed thresholds and leaves it to the sender to
//! raise them then. Ours are raised as RACK's are, for which a DSACK is what an ACK of a lost
//! packet's own number is here (RFC 8985, 6.2, step 4):
//!
//! ```text
//! packet threshold   3 packets; none once a loss was spurious, since the path reorders
//! time threshold     max(smoothed, latest) + window
//! window             max(smoothed, latest) / 8                        RFC 9002, 6.1.2
//!                    min(multiple * late, smoothed), if longer        RFC 8985
//! late               least / 4                                        RFC 8985
//!                    max(smoothed, latest) / 8, if longer
//! multiple           0; from the first spurious loss on 1, and 1 more for each round trip
//!                    with one; 1 again after 16 recoveries without one
//! ```
//!
//! RFC 8985 knows the first `late` alone. Where delays vary by half of their mean, the least round trip is next to
//! nothing: of 40 packets in flight over 25 ms with a deviation of 12 ms each way, each was declared lost eight times.
//! RFC 9002 (6.1.2) allows adaptive time thresholds: the eighth that it begins with is multiplied as well here.
//!
//! What a controller did because of a spurious loss is not undone, and it is not told: RFC 9002
//! says nothing of it, and RFC 9438 (4.9) leaves it open.

use std::collections::VecDeque;

use anabranch_control::time::Time;

use super::AckRanges;

/// Packets acknowledged behind one that is still missing before it is lost, where no
/// reordering was seen (RFC 9002's kPacketThreshold, RFC 8985's DupThresh).
const PACKET_THRESHOLD: u64 = 3;

/// Recoveries without a spurious loss after which the window shrinks again.
const PERSISTENCE: u32 = 16;

/// Lost packets that are remembered at most; of more, those that left last.
const MOST_REMEMBERED: usize = 4096;

/// A packet that was declared lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LostPacket {
    pub number: u64,
    /// When it left.
    pub at: Time,
    /// Where its data lies.
    pub offset: u64,
}

/// What was seen of a path's reordering.
#[derive(Clone, Debug)]
pub struct Reordering {
    /// Lost packets that may still be acknowledged, by number.
    lost: VecDeque<LostPacket>,
    multiple: u64,
    /// Recoveries until the window shrinks.
    persistence: u32,
    /// The round trip in which the multiple was raised ends when this number is acknowledged.
    round_end: u64,
    /// The loss of a packet from here on begins another recovery.
    recovery_end: u64,
}

impl Default for Reordering {
    fn default() -> Reordering {
        Reordering { lost: VecDeque::new(), multiple: 0, persistence: PERSISTENCE, round_end: 0, recovery_end: 0 }
    }
}

impl Reordering {
    /// How many packets behind one must be acknowledged before it is lost.
    #[inline]
    pub fn packet_threshold(&self) -> u64 {
        if self.multiple == 0 { PACKET_THRESHOLD } else { u64::MAX }
    }

    /// How many times `late` a packet may be late; 0 on a path that was not seen to reorder.
    #[inline]
    pub fn multiple(&self) -> u64 {
        self.multiple
    }

    /// Whether any lost packet may still be acknowledged.
    #[inline]
    pub fn awaits(&self) -> bool {
        !self.lost.is_empty()
    }

    /// `packet` is declared lost; the next to leave has number `next`. Packets are declared
    /// lost in the order of their numbers. Those that left before `awaited_from` need not be
    /// remembered.
    pub fn on_lost(&mut self, packet: LostPacket, next: u64, awaited_from: Time) {
        if packet.number >= self.recovery_end {
            self.recovery_end = next;
            self.persistence = self.persistence.saturating_sub(1);
            if self.persistence == 0 {
                self.multiple = self.multiple.min(1);
            }
        }
        // Before more memory is needed.
        if self.lost.len() == self.lost.capacity() {
            self.forget_before(awaited_from);
        }
        if self.lost.len() == MOST_REMEMBERED {
            self.lost.pop_front();
        }
        self.lost.push_back(packet);
    }

    /// Forgets packets that left before `time`.
    pub fn forget_before(&mut self, time: Time) {
        while self.lost.front().is_some_and(|lost| lost.at < time) {
            self.lost.pop_front();
        }
    }

    /// Whether an ACK of `ranges` may show that a loss was spurious, where `previous` are the ranges
    /// of an ACK that was searched before: what that one acknowledged was not lost later.
    #[inline]
    pub fn may_be_spurious(&self, ranges: &AckRanges, previous: &AckRanges) -> bool {
        let newest = self.lost.back().map_or(0, |lost| lost.number);
        // Mostly another packet is missing since, and that is all.
        if let Some(ends) = ranges.ends_over(previous) {
            return ends.iter().any(|&(low, high)| low <= newest.min(high));
        }
        let mut known = previous.iter().peekable();
        ranges.iter().any(|(low, high)| {
            while known.next_if(|known| known.0 > low).is_some() {}
            let new = match known.peek() {
                Some(&(_, known_high)) if known_high >= low => known_high + 1,
                _ => low,
            };
            new <= newest.min(high)
        })
    }

    /// An ACK of `ranges` has come, the next packet to leave has number `next`: `found` is told
    /// of each packet whose loss was spurious.
    pub fn on_ack(&mut self, ranges: &AckRanges, next: u64, mut found: impl FnMut(LostPacket)) {
        let mut any = false;
        let newest = self.lost.back().map_or(0, |lost| lost.number);
        for (low, high) in ranges.iter() {
            if low > newest {
                continue;
            }
            let from = self.lost.partition_point(|lost| lost.number < low);
            if self.lost.get(from).is_none_or(|lost| lost.number > high) {
                continue;
            }
            let to = self.lost.partition_point(|lost| lost.number <= high);
            any = true;
            self.lost.drain(from..to).for_each(&mut found);
        }
        if any {
            self.persistence = PERSISTENCE;
            if self.multiple == 0 || ranges.largest().is_some_and(|largest| largest >= self.round_end) {
                // RFC 8985 begins with a multiple of 1 and raises it at once.
                self.multiple = self.multiple.max(1) + 1;
                self.round_end = next;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::super::ranges::ReceivedNumbers;
    use super::*;

    fn packet(number: u64) -> LostPacket {
        LostPacket { number, at: Time::from_nanos(number), offset: number * 1000 }
    }

    fn acknowledge(reordering: &mut Reordering, range: (u64, u64), next: u64) -> Vec<u64> {
        let mut found = Vec::new();
        reordering.on_ack(&AckRanges::new([range]), next, |lost| found.push(lost.number));
        found
    }

    #[test]
    fn a_round_trip_with_spurious_losses_widens_the_window_once() {
        let mut reordering = Reordering::default();
        assert_eq!((reordering.packet_threshold(), reordering.multiple()), (3, 0));
        (1..6).for_each(|number| reordering.on_lost(packet(number), 10, Time::ZERO));
        assert!(acknowledge(&mut reordering, (6, 8), 10).is_empty());
        assert_eq!((reordering.packet_threshold(), reordering.multiple()), (3, 0));
        assert_eq!(acknowledge(&mut reordering, (1, 2), 10), [1, 2]);
        assert_eq!((reordering.packet_threshold(), reordering.multiple()), (u64::MAX, 2));
        // What left before the window was widened says nothing of the wider one.
        assert_eq!(acknowledge(&mut reordering, (3, 4), 20), [3, 4]);
        assert_eq!(reordering.multiple(), 2);
        reordering.on_lost(packet(12), 20, Time::ZERO);
        assert_eq!(acknowledge(&mut reordering, (12, 13), 20), [12]);
        assert_eq!(reordering.multiple(), 3);
        assert_eq!(acknowledge(&mut reordering, (1, 13), 20), [5]);
        assert!(!reordering.awaits());
    }

    proptest! {
        #[test]
        fn what_a_previous_ack_acknowledged_need_not_be_searched(arrivals in prop::collection::vec((0u64..80, 0u64..8), 1..100)) {
            let mut reordering = Reordering::default();
            let (mut received, mut previous) = (ReceivedNumbers::default(), AckRanges::default());
            let mut arrived = BTreeSet::new();
            let mut examined = 0;
            for (number, lag) in arrivals {
                received.insert(number);
                arrived.insert(number);
                let ranges = received.next_ack();
                let mut found = Vec::new();
                let may_be_spurious = reordering.may_be_spurious(&ranges, &previous);
                reordering.on_ack(&ranges, 100, |lost| found.push(lost));
                prop_assert!(may_be_spurious || found.is_empty(), "{:?}", found);
                previous = ranges;
                // What has not arrived so far is lost, up to some number.
                let end = number.saturating_sub(lag).max(examined);
                for lost in (std::mem::replace(&mut examined, end)..end).filter(|lost| !arrived.contains(lost)) {
                    reordering.on_lost(packet(lost), 100, Time::ZERO);
                }
            }
        }
    }

    #[test]
    fn after_sixteen_recoveries_without_a_spurious_loss_the_window_is_narrow_again() {
        let mut reordering = Reordering::default();
        reordering.on_lost(packet(0), 1, Time::ZERO);
        acknowledge(&mut reordering, (0, 0), 1);
        for recovery in 1..=16 {
            assert_eq!(reordering.multiple(), 2, "before recovery {recovery}");
            // Both are of one flight.
            reordering.on_lost(packet(10 * recovery), 10 * recovery + 5, Time::ZERO);
            reordering.on_lost(packet(10 * recovery + 4), 10 * recovery + 8, Time::ZERO);
        }
        assert_eq!((reordering.packet_threshold(), reordering.multiple()), (u64::MAX, 1));
    }

    #[test]
    fn what_is_remembered_is_bounded_in_number_and_time() {
        let mut reordering = Reordering::default();
        let many = 2 * MOST_REMEMBERED as u64;
        (0..many).for_each(|number| reordering.on_lost(packet(number), many, Time::ZERO));
        assert_eq!(reordering.lost.len(), MOST_REMEMBERED);
        reordering.forget_before(Time::from_nanos(many - 3));
        assert_eq!(acknowledge(&mut reordering, (0, many), many), [many - 3, many - 2, many - 1]);
        // Whom nobody acknowledges is forgotten before more memory is needed.
        let mut reordering = Reordering::default();
        for number in 0..many {
            reordering.on_lost(packet(number), many, Time::from_nanos(number.saturating_sub(10)));
        }
        assert!(reordering.lost.capacity() <= 32, "{}", reordering.lost.capacity());
    }
}
