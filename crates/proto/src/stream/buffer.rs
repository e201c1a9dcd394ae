//! What a client holds of a stream, and when it goes to the players: in order, at once while nothing
//! is missing [Raiber 2010, figure 6.6].
//!
//! ```text
//! kept for others     next          missing        end
//! |###################|##############..###.########|
//!  released already    goes out now   |             nothing known above
//!                                     awaited until the packet after the hole is D − M old
//! ```
//!
//! D is what a player holds ready, M what is left for it of a second thought; both the thesis leaves
//! open. A hole that is older is skipped and counted.

use anabranch_control::time::{Duration, Time};

use super::message::BufferMap;
use super::packet::{PacketId, SliceSet, Stamp};
use super::source_clock::SourceClock;
use super::wire::MOST_MAP_WORDS;

/// How long packets wait for what is missing, and how many are held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferConfig {
    /// How old the packet behind a hole is when the hole is skipped: D − M.
    pub patience: Duration,
    /// Packets that are held at most, released ones that others may want included.
    pub capacity: usize,
}

/// What became of a packet that was put in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inserted {
    /// It is new.
    New,
    /// It was there.
    Copy,
    /// It is new, but was skipped: others may want it.
    Late,
    /// It is older than anything that is held.
    TooOld,
}

/// What goes out next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Release<P> {
    /// This packet.
    Packet(PacketId, P),
    /// This many packets from this one on did not come in time.
    Skipped(PacketId, u64),
}

#[derive(Clone, Debug)]
struct Entry<P> {
    stamp: Stamp,
    packet: Option<P>,
}

/// Packets of a word of a set.
const WORD: u64 = 64;

/// A client's part of a stream.
#[derive(Clone, Debug)]
pub struct Buffer<P> {
    config: BufferConfig,
    /// By number modulo the length, a power of two.
    entries: Box<[Entry<P>]>,
    /// Which places are taken, a bit for each.
    held: Box<[u64]>,
    /// The next to go out.
    next: PacketId,
    /// Above all that have come.
    end: PacketId,
    /// The first that may be held: nothing from before the beginning is.
    begin: PacketId,
    /// No hole is skipped before.
    wait_until: Time,
}

impl<P: Clone> Buffer<P> {
    /// Empty; what goes out begins with `first`.
    pub fn new(config: BufferConfig, first: PacketId) -> Buffer<P> {
        let room = config.capacity.next_power_of_two().max(WORD as usize);
        let held = vec![0; room / WORD as usize].into();
        let entries = vec![Entry { stamp: Stamp::default(), packet: None }; room].into();
        Buffer { config, entries, held, next: first, end: first, begin: first, wait_until: Time::ZERO }
    }

    /// Skips no hole before `until`, however old: somebody who has only just come begins with what is old.
    pub fn wait_until(&mut self, until: Time) {
        self.wait_until = until;
    }

    fn place(&self, id: PacketId) -> usize {
        id.0 as usize & (self.entries.len() - 1)
    }

    /// The oldest packet that may be held.
    #[inline]
    pub fn oldest(&self) -> PacketId {
        PacketId(self.end.0.saturating_sub(self.entries.len() as u64)).max(self.begin)
    }

    /// The next that goes out.
    #[inline]
    pub fn next(&self) -> PacketId {
        self.next
    }

    /// The one above all that have come.
    #[inline]
    pub fn end(&self) -> PacketId {
        self.end
    }

    /// The highest end at which what goes out next would still be held.
    pub fn most_end(&self) -> PacketId {
        self.next.after(self.entries.len() as u64)
    }

    /// Whether it is held.
    #[inline]
    pub fn contains(&self, id: PacketId) -> bool {
        id >= self.oldest() && id < self.end && self.entries[self.place(id)].packet.is_some()
    }

    /// The packet and when it left the source, if it is held.
    #[inline]
    pub fn get(&self, id: PacketId) -> Option<(Stamp, &P)> {
        if id < self.oldest() || id >= self.end {
            return None;
        }
        let entry = &self.entries[self.place(id)];
        entry.packet.as_ref().map(|packet| (entry.stamp, packet))
    }

    /// Puts in a packet that is genuine: anybody could else push out what is held.
    #[inline]
    pub fn insert(&mut self, id: PacketId, stamp: Stamp, packet: P) -> Inserted {
        if id < self.oldest() {
            return Inserted::TooOld;
        }
        if id >= self.end {
            self.make_room(id);
        }
        let place = self.place(id);
        let entry = &mut self.entries[place];
        if entry.packet.is_some() {
            return Inserted::Copy;
        }
        *entry = Entry { stamp, packet: Some(packet) };
        self.held[place / WORD as usize] |= 1 << (place as u64 % WORD);
        if id < self.next { Inserted::Late } else { Inserted::New }
    }

    /// Empties the places up to that of `id`, which is the highest from now on.
    fn make_room(&mut self, id: PacketId) {
        let room = self.entries.len() as u64;
        let first = self.end.max(PacketId((id.0 + 1).saturating_sub(room)));
        for number in first.0..=id.0 {
            let place = self.place(PacketId(number));
            self.entries[place].packet = None;
            self.held[place / WORD as usize] &= !(1 << (place as u64 % WORD));
        }
        self.end = id.after(1);
    }

    /// What goes out at `now`, if anything does.
    #[inline]
    pub fn release(&mut self, now: Time, clock: &SourceClock) -> Option<Release<P>> {
        if self.next >= self.end {
            return None;
        }
        if let Some((_, packet)) = self.get(self.next) {
            let release = Release::Packet(self.next, packet.clone());
            self.next = self.next.after(1);
            return Some(release);
        }
        let (behind, stamp) = self.behind_hole()?;
        let pushed_out = self.next < self.oldest();
        if !pushed_out && (now < self.wait_until || clock.age(now, stamp) < self.config.patience) {
            return None;
        }
        let from = self.next;
        self.next = behind;
        Some(Release::Skipped(from, behind.since(from)))
    }

    /// What goes out next is `id`, if nothing is held that is to go out before it.
    pub fn skip_to(&mut self, id: PacketId) -> Option<Release<P>> {
        if self.next < self.end || id <= self.next {
            return None;
        }
        let from = std::mem::replace(&mut self.next, id);
        Some(Release::Skipped(from, id.since(from)))
    }

    /// When [`Buffer::release`] has something if nothing else comes; `Time::MAX` for never.
    pub fn release_at(&self, now: Time, clock: &SourceClock) -> Time {
        if self.next >= self.end {
            return Time::MAX;
        }
        match self.behind_hole() {
            Some((behind, _)) if behind == self.next || self.next < self.oldest() => now,
            Some((_, stamp)) => {
                let expected = clock.expected(stamp).map_or(now, |expected| expected + self.config.patience);
                expected.max(self.wait_until).max(now)
            }
            None => Time::MAX,
        }
    }

    /// The first packet that is held from the next one on.
    fn behind_hole(&self) -> Option<(PacketId, Stamp)> {
        let first = self.next.max(self.oldest()).0;
        (first / WORD * WORD..self.end.0).step_by(WORD as usize).find_map(|base| {
            let word = self.word(base) & (u64::MAX << first.saturating_sub(base));
            let id = PacketId(base + u64::from(word.trailing_zeros()));
            (word != 0).then(|| (id, self.entries[self.place(id)].stamp))
        })
    }

    /// What is held of `slices`, of `count` slices, from `from` on.
    pub fn of_slices(&self, slices: SliceSet, count: u8, from: PacketId) -> impl Iterator<Item = PacketId> {
        (from.max(self.oldest()).0..self.end.0)
            .map(PacketId)
            .filter(move |&id| slices.contains(id.slice(count)) && self.contains(id))
    }

    /// Which of the 64 packets from `base` on are held, a bit for each; `base` is a multiple of 64.
    #[inline]
    fn word(&self, base: u64) -> u64 {
        let oldest = self.oldest().0;
        if base >= self.end.0 || base + WORD <= oldest {
            return 0;
        }
        let mut word = self.held[self.place(PacketId(base)) / WORD as usize];
        if base < oldest {
            word &= u64::MAX << (oldest - base);
        }
        if base + WORD > self.end.0 {
            word &= u64::MAX >> (base + WORD - self.end.0);
        }
        word
    }

    /// What is held from about `from` on, or the newest that a map has room for.
    pub fn map(&self, from: PacketId) -> BufferMap {
        let told = PacketId(self.end.0.saturating_sub((MOST_MAP_WORDS as u64 - 1) * WORD));
        let base = from.max(self.oldest()).max(told).0 / WORD * WORD;
        let words = (base..self.end.0).step_by(WORD as usize).map(|base| self.word(base)).collect();
        BufferMap { base: PacketId(base), words }
    }

    /// The packets from the next one on to below `end` that are not held.
    pub fn missing(&self, end: PacketId) -> impl Iterator<Item = PacketId> {
        let first = self.next.max(self.oldest()).0;
        (first / WORD * WORD..end.0).step_by(WORD as usize).flat_map(move |base| {
            let mut word = !self.word(base);
            if base < first {
                word &= u64::MAX << (first - base);
            }
            if base + WORD > end.0 {
                word &= u64::MAX >> (base + WORD - end.0);
            }
            std::iter::from_fn(move || {
                (word != 0).then(|| {
                    let bit = word.trailing_zeros();
                    word &= word - 1;
                    PacketId(base + u64::from(bit))
                })
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CONFIG: BufferConfig = BufferConfig { patience: Duration::from_millis(2700), capacity: 64 };

    fn at(millis: u64) -> Time {
        Time::ZERO + Duration::from_millis(millis)
    }

    /// A packet each 10 ms, here 50 ms later.
    fn come(buffer: &mut Buffer<u64>, clock: &mut SourceClock, number: u64) -> Inserted {
        let stamp = Stamp(10 * number as u32);
        clock.on_arrival(at(10 * number + 50), stamp);
        buffer.insert(PacketId(number), stamp, number)
    }

    fn released(buffer: &mut Buffer<u64>, clock: &SourceClock, now: Time) -> Vec<Release<u64>> {
        std::iter::from_fn(|| buffer.release(now, clock)).collect()
    }

    #[test]
    fn packets_go_out_in_order_as_soon_as_nothing_is_missing() {
        let (mut buffer, mut clock) = (Buffer::new(CONFIG, PacketId(0)), SourceClock::default());
        assert_eq!(come(&mut buffer, &mut clock, 1), Inserted::New);
        assert!(released(&mut buffer, &clock, at(60)).is_empty());
        assert_eq!(come(&mut buffer, &mut clock, 0), Inserted::New);
        assert_eq!(come(&mut buffer, &mut clock, 0), Inserted::Copy);
        let both = [0, 1].map(|number| Release::Packet(PacketId(number), number));
        assert_eq!(released(&mut buffer, &clock, at(60)), both);
        assert_eq!(come(&mut buffer, &mut clock, 0), Inserted::Copy, "it is kept for others");
    }

    #[test]
    fn a_hole_is_skipped_once_the_packet_behind_it_is_old() {
        let (mut buffer, mut clock) = (Buffer::new(CONFIG, PacketId(0)), SourceClock::default());
        come(&mut buffer, &mut clock, 3);
        // It came at 80 ms, and none was faster.
        assert_eq!(buffer.release_at(at(80), &clock), at(80 + 2700));
        assert!(released(&mut buffer, &clock, at(80 + 2699)).is_empty());
        let skipped = released(&mut buffer, &clock, at(80 + 2700));
        assert_eq!(skipped, [Release::Skipped(PacketId(0), 3), Release::Packet(PacketId(3), 3)]);
        assert_eq!(come(&mut buffer, &mut clock, 1), Inserted::Late);
        assert!(buffer.contains(PacketId(1)), "others may want it");
        assert_eq!(buffer.release_at(at(3000), &clock), Time::MAX);
    }

    #[test]
    fn what_a_newcomer_begins_with_is_waited_for_however_old_it_is() {
        let (mut buffer, mut clock) = (Buffer::new(CONFIG, PacketId(0)), SourceClock::default());
        buffer.wait_until(at(5000));
        come(&mut buffer, &mut clock, 3);
        assert_eq!(buffer.release_at(at(80), &clock), at(5000));
        assert!(released(&mut buffer, &clock, at(4999)).is_empty());
        assert_eq!(released(&mut buffer, &clock, at(5000))[0], Release::Skipped(PacketId(0), 3));
    }

    #[test]
    fn what_there_is_no_room_to_wait_for_is_skipped_at_once() {
        let (mut buffer, mut clock) = (Buffer::new(CONFIG, PacketId(0)), SourceClock::default());
        for number in [0, 2, 100] {
            come(&mut buffer, &mut clock, number);
        }
        // 64 fit: 37 to 100.
        let out = released(&mut buffer, &clock, at(1050));
        assert_eq!(out, [Release::Skipped(PacketId(0), 100), Release::Packet(PacketId(100), 100)]);
        assert_eq!(come(&mut buffer, &mut clock, 36), Inserted::TooOld);
    }

    #[test]
    fn a_map_that_has_not_room_for_all_tells_the_newest() {
        let mut buffer = Buffer::new(BufferConfig { capacity: 1 << 14, ..CONFIG }, PacketId(0));
        (0..12_345).for_each(|id| assert_eq!(buffer.insert(PacketId(id), Stamp::default(), id), Inserted::New));
        let map = buffer.map(PacketId(0));
        assert_eq!(map.words.len(), MOST_MAP_WORDS);
        let oldest = map.base.0;
        assert!(12_345 - oldest > 64 * (MOST_MAP_WORDS as u64 - 1), "{oldest}");
        assert!((oldest..12_345).all(|id| map.contains(PacketId(id))));
    }

    proptest! {
        /// Maps and holes say what is there, whatever came.
        #[test]
        fn maps_and_holes_say_what_is_there(numbers in proptest::collection::vec(0u64..400, 1..100), end in 0u64..500) {
            let (mut buffer, mut clock) = (Buffer::new(CONFIG, PacketId(0)), SourceClock::default());
            for number in numbers {
                come(&mut buffer, &mut clock, number);
                if number % 3 == 0 {
                    buffer.release(at(10_000), &clock);
                }
            }
            let map = buffer.map(PacketId(70));
            for id in (70..500).map(PacketId) {
                prop_assert_eq!(map.contains(id), buffer.contains(id), "{:?}", id);
            }
            let first = buffer.next().max(buffer.oldest()).0;
            let missing: Vec<PacketId> = (first..end).map(PacketId).filter(|&id| !buffer.contains(id)).collect();
            prop_assert_eq!(buffer.missing(PacketId(end)).collect::<Vec<_>>(), missing);
        }

        /// Whatever the order of arrival, each packet goes out once or is skipped once, in order.
        #[test]
        fn every_packet_goes_out_or_is_skipped(numbers in proptest::collection::vec(0u64..200, 1..300)) {
            let (mut buffer, mut clock) = (Buffer::new(CONFIG, PacketId(0)), SourceClock::default());
            let (mut next, mut now) = (0, at(0));
            let mut out = Vec::new();
            for number in numbers {
                now = now.max(at(10 * number + 50));
                come(&mut buffer, &mut clock, number);
                out.extend(released(&mut buffer, &clock, now));
            }
            out.extend(released(&mut buffer, &clock, now + CONFIG.patience));
            for release in out {
                match release {
                    Release::Packet(id, number) => {
                        prop_assert_eq!((id.0, number), (next, next));
                        next += 1;
                    }
                    Release::Skipped(id, count) => {
                        prop_assert_eq!(id.0, next);
                        next += count;
                    }
                }
            }
            prop_assert_eq!(next, buffer.end().0, "nothing is left after the last has grown old");
        }
    }
}
