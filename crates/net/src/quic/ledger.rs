//! What was true when packets left, kept until their fate is known. QUIC libraries tell a
//! controller of an ACK only when its packet left and how long it was, and of losses only
//! when the newest left and how many bytes are gone; this finds out which packets those were.
//!
//! Packets that leave at one instant are one entry: nothing but their place among
//! themselves tells them apart. RFC 9002 (6.1) declares a packet lost whenever a newer one
//! is, so all that left before a lost packet and is neither acknowledged nor lost already
//! is among the losses: the sum and the newest name the lost packets exactly, except within
//! an instant.
//!
//! Some packets are never answered: those that only carry ACKs, which quinn counts when they
//! leave, lost probes for the path's MTU, and what was left of the handshake. A controller
//! may wait for the fate of each packet (the PCC family does), so they are handed out too,
//! once the library would have declared them lost if they counted.

use std::collections::VecDeque;

use anabranch_control::flow::{LossCause, Lost, Sent};
use anabranch_control::time::Time;
use anabranch_control::units::Bytes;

/// The most instants that are kept, 88 bytes each. Beyond it packets join the newest
/// entry, and their ACKs are matched less finely.
pub const MOST_ENTRIES: usize = 1 << 14;

/// Packets that left at one instant.
#[derive(Clone, Copy, Debug)]
struct Entry {
    /// The first of them, with the size of all.
    sent: Sent,
    /// When the last one left; later than the first only in a full ledger.
    until: Time,
    /// How much of it was acknowledged or lost.
    resolved: Bytes,
}

impl Entry {
    fn outstanding(&self) -> Bytes {
        self.sent.size - self.resolved
    }

    /// What is left of it, as one packet.
    fn unanswered(mut self) -> Option<Sent> {
        let left = self.outstanding();
        (left > Bytes::ZERO).then(|| self.take(left))
    }

    /// A packet of `size` from this entry, the next in order.
    fn take(&mut self, size: Bytes) -> Sent {
        let before = self.sent.in_flight - self.sent.size;
        self.resolved = (self.resolved + size).min(self.sent.size);
        Sent { size, in_flight: before + self.resolved, ..self.sent }
    }
}

/// The packets whose fate is not known.
#[derive(Debug, Default)]
pub struct Ledger {
    entries: VecDeque<Entry>,
    /// Where the last ACK was found: the next is most often there or just behind it.
    cursor: usize,
}

impl Ledger {
    /// Notes what leaves; `packet` says what is in flight with it.
    #[inline]
    pub fn on_sent(&mut self, packet: &Sent) {
        let full = self.entries.len() >= MOST_ENTRIES;
        match self.entries.back_mut() {
            Some(newest) if full || newest.until == packet.at => {
                newest.sent.size += packet.size;
                newest.sent.in_flight = packet.in_flight;
                newest.until = packet.at;
            }
            _ => self.entries.push_back(Entry { sent: *packet, until: packet.at, resolved: Bytes::ZERO }),
        }
    }

    /// A packet of `size` that left at `at` was acknowledged: what was true when it left.
    /// None if it is not known any more, or never was.
    #[inline]
    pub fn on_acked(&mut self, at: Time, size: Bytes) -> Option<Sent> {
        let place = self.find(at)?;
        self.cursor = place;
        let entry = &mut self.entries[place];
        if at > entry.until {
            // A probe for the path's MTU: nobody said that it left, but what was true for
            // the packets before it was true for it.
            return Some(Sent { at, size, ..entry.sent });
        }
        Some(Sent { at, ..entry.take(size) })
    }

    /// Packets with `bytes` are lost, of which the newest left at `newest`. Appends them to
    /// `lost` in the order in which they left, as packets of up to `packet`; what left before
    /// and will not be answered goes to `unanswered`.
    pub fn on_lost(
        &mut self,
        newest: Time,
        bytes: Bytes,
        packet: Bytes,
        cause: LossCause,
        lost: &mut Vec<Lost>,
        unanswered: &mut Vec<Sent>,
    ) {
        let Some(last) = self.find(newest) else {
            let sent = Sent { at: newest, size: bytes, app_limited: true, ..Sent::default() };
            lost.push(Lost { sent, cause });
            return;
        };
        // One packet of the newest instant is lost for sure. Others that left with it may
        // still be on their way, so what left before comes first.
        let certain = bytes.min(packet);
        let mut left = bytes - certain;
        for place in 0..=last {
            let share = self.entries[place].outstanding().min(left);
            left -= share;
            // Nobody knows what else is gone: it is counted with the newest.
            let share = if place == last { share + certain + left } else { share };
            self.split(place, share, packet, cause, lost);
        }
        unanswered.extend(self.entries.drain(..last).filter_map(Entry::unanswered));
        self.cursor = 0;
    }

    fn split(&mut self, place: usize, share: Bytes, packet: Bytes, cause: LossCause, lost: &mut Vec<Lost>) {
        let mut left = share;
        while left > Bytes::ZERO {
            let size = left.min(packet.max(Bytes::new(1)));
            left -= size;
            lost.push(Lost { sent: self.entries[place].take(size), cause });
        }
    }

    /// Forgets what is known to be resolved, and what left before `settled`, which will not
    /// be answered any more and goes to `unanswered`.
    #[inline]
    pub fn forget(&mut self, settled: Time, unanswered: &mut Vec<Sent>) {
        // The newest stays: more may leave at its instant.
        while self.entries.len() > 1
            && let Some(oldest) = self.entries.front()
            && (oldest.outstanding() == Bytes::ZERO || oldest.until < settled)
        {
            unanswered.extend(self.entries.pop_front().and_then(Entry::unanswered));
            self.cursor = self.cursor.saturating_sub(1);
        }
    }

    /// The last entry that began at `at` or before.
    #[inline]
    fn find(&self, at: Time) -> Option<usize> {
        let begins = |place: usize| self.entries.get(place).is_some_and(|entry| entry.sent.at <= at);
        for place in [self.cursor, self.cursor + 1] {
            if begins(place) && !begins(place + 1) {
                return Some(place);
            }
        }
        self.entries.partition_point(|entry| entry.sent.at <= at).checked_sub(1)
    }

    /// How many instants are kept.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.entries.len()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PACKET: Bytes = Bytes::new(1000);

    fn at(ms: u64) -> Time {
        Time::from_nanos(ms * 1_000_000)
    }

    /// Each of `count` packets at each of these milliseconds, nothing in flight before.
    fn ledger(instants: &[(u64, u64)]) -> Ledger {
        let (mut ledger, mut in_flight) = (Ledger::default(), Bytes::ZERO);
        for &(ms, count) in instants {
            for _ in 0..count {
                in_flight += PACKET;
                let delivered = Bytes::new(ms);
                ledger.on_sent(&Sent { at: at(ms), size: PACKET, in_flight, delivered, ..Sent::default() });
            }
        }
        ledger
    }

    fn lost(ledger: &mut Ledger, newest: u64, bytes: u64) -> Vec<(u64, u64)> {
        let (mut lost, mut unanswered) = (Vec::new(), Vec::new());
        let bytes = Bytes::new(bytes);
        ledger.on_lost(at(newest), bytes, PACKET, LossCause::PacketThreshold, &mut lost, &mut unanswered);
        assert!(unanswered.iter().all(|sent| sent.at < at(newest)));
        lost.iter().map(|lost| (lost.sent.at.as_nanos() / 1_000_000, lost.sent.size.get())).collect()
    }

    #[test]
    fn an_ack_finds_what_was_true_when_its_packet_left() {
        let mut ledger = ledger(&[(10, 3), (20, 2)]);
        for (ms, in_flight) in [(10, 1000), (10, 2000), (20, 4000), (10, 3000), (20, 5000)] {
            let sent = ledger.on_acked(at(ms), PACKET).unwrap();
            assert_eq!((sent.at, sent.size, sent.delivered), (at(ms), PACKET, Bytes::new(ms)));
            assert_eq!(sent.in_flight, Bytes::new(in_flight));
        }
        assert!(ledger.on_acked(at(9), PACKET).is_none());
    }

    #[test]
    fn the_sum_and_the_newest_name_the_lost_packets() {
        let mut ledger = ledger(&[(10, 3), (20, 2), (30, 3), (40, 1)]);
        for ms in [10, 30, 40] {
            ledger.on_acked(at(ms), PACKET);
        }
        // The second packet of 30 may still arrive.
        assert_eq!(lost(&mut ledger, 30, 5000), [(10, 1000), (10, 1000), (20, 1000), (20, 1000), (30, 1000)]);
        assert_eq!(ledger.len(), 2);
        assert_eq!(lost(&mut ledger, 30, 1000), [(30, 1000)]);
    }

    #[test]
    fn losses_of_packets_that_nobody_saw_leave_are_still_reported() {
        assert_eq!(lost(&mut Ledger::default(), 5, 1200), [(5, 1200)]);
        assert_eq!(lost(&mut ledger(&[(10, 1)]), 10, 2500), [(10, 1000), (10, 1000), (10, 500)]);
    }

    #[test]
    fn what_is_never_answered_is_handed_out_once() {
        let mut ledger = ledger(&[(10, 3), (20, 1), (30, 1), (40, 1)]);
        ledger.on_acked(at(10), PACKET);
        ledger.on_acked(at(40), PACKET);
        let mut unanswered = Vec::new();
        ledger.forget(at(20), &mut unanswered);
        let only: Vec<_> = unanswered.iter().map(|sent| (sent.at, sent.size)).collect();
        assert_eq!(only, [(at(10), PACKET * 2)]);
        unanswered.clear();
        let mut lost = Vec::new();
        ledger.on_lost(at(30), PACKET, PACKET, LossCause::PacketThreshold, &mut lost, &mut unanswered);
        assert_eq!((lost[0].sent.at, unanswered.len(), unanswered[0].at), (at(30), 1, at(20)));
    }

    #[test]
    fn what_is_kept_is_bounded_and_what_is_settled_is_forgotten() {
        let mut ledger = ledger(&(0..MOST_ENTRIES as u64 + 10).map(|ms| (ms, 1)).collect::<Vec<_>>());
        assert_eq!(ledger.len(), MOST_ENTRIES);
        let last = ledger.on_acked(at(MOST_ENTRIES as u64 + 9), PACKET).unwrap();
        assert_eq!((last.at, last.size), (at(MOST_ENTRIES as u64 + 9), PACKET));
        let mut unanswered = Vec::new();
        ledger.forget(at(MOST_ENTRIES as u64 - 20), &mut unanswered);
        assert_eq!((ledger.len(), unanswered.len()), (20, MOST_ENTRIES - 20));
        ledger.forget(Time::MAX, &mut unanswered);
        assert_eq!(ledger.len(), 1);
    }

    proptest! {
        #[test]
        fn losses_add_up_to_what_was_reported(
            instants in prop::collection::vec((0u64..50, 1u64..5), 0..40),
            events in prop::collection::vec((any::<bool>(), 0u64..60, 1u64..9000), 0..80),
        ) {
            let mut sorted = instants;
            sorted.sort_unstable();
            let mut ledger = ledger(&sorted);
            for (is_loss, ms, bytes) in events {
                if is_loss {
                    let lost = lost(&mut ledger, ms, bytes);
                    prop_assert_eq!(lost.iter().map(|(_, size)| size).sum::<u64>(), bytes);
                    prop_assert!(lost.is_sorted_by_key(|(at, _)| *at));
                } else {
                    if let Some(sent) = ledger.on_acked(at(ms), Bytes::new(bytes)) {
                        prop_assert_eq!((sent.at, sent.size), (at(ms), Bytes::new(bytes)));
                    }
                    ledger.forget(at(ms / 2), &mut Vec::new());
                }
            }
        }
    }
}
