//! Events in the order of their times; events of one time in the order of insertion.
//!
//! A calendar queue (Brown, "Calendar queues", CACM 1988): time is cut into buckets
//! of equal width, a ring of them covers the near future, a heap holds what lies
//! beyond. Insertion appends to a bucket; a bucket is sorted when its turn comes.
//! Width and number of the buckets adapt so that each holds a handful of events,
//! which is decided by counts alone: equal insertions give equal order.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use anabranch_control::time::Time;

/// Buckets in the ring at first; a power of two.
const FIRST_BUCKETS: usize = 1024;
/// Buckets in the ring at most.
const MAX_BUCKETS: usize = 1 << 18;

/// Buckets become narrower above this mean number of events in those that are used...
const CROWDED: u64 = 24;
/// ...until about this many are left in each.
const COMFORTABLE: u64 = 8;
/// The ring covers too little when more than one in this many insertions lies beyond it.
const FAR_SHARE: u64 = 8;

/// The shape of the ring is reconsidered after this many events at the earliest.
const REVIEW: u64 = 4096;

/// The narrowest bucket: 2^10 ns, about a microsecond.
const MIN_SHIFT: u32 = 10;
/// The widest bucket: 2^31 ns, about two seconds.
const MAX_SHIFT: u32 = 31;

/// Buckets of at most this many events are sorted by rank.
const RANKED: usize = 1 << RANKED_BITS;
const RANKED_BITS: u32 = 5;
/// Up to this bucket width, a time within a bucket and a rank fit into 31 bits.
const RANKED_SHIFT: u32 = 31 - RANKED_BITS;

/// An event in a bucket. Small, for what an event costs is the cache that it takes.
#[derive(Clone, Copy, Debug)]
struct Entry<E> {
    /// ns since the bucket's beginning.
    within: u32,
    event: E,
}

/// An entry beyond the ring; `sequence` keeps the order of insertion.
#[derive(Clone, Copy, Debug)]
struct Far<E> {
    at: u64,
    sequence: u64,
    event: E,
}

impl<E> PartialEq for Far<E> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<E> Eq for Far<E> {}

impl<E> PartialOrd for Far<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Far<E> {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.sequence).cmp(&(other.at, other.sequence))
    }
}

/// A queue of events of type `E`, which should be small: it is moved about.
#[derive(Clone, Debug)]
pub struct EventQueue<E> {
    /// The bucket whose turn it is, sorted; `next` is the first event not yet taken.
    current: Vec<Entry<E>>,
    next: usize,
    /// When the event that was taken last happened, in ns.
    now: u64,
    /// Number of the current bucket, counted in widths since the beginning.
    number: u64,
    /// log2 of the bucket width in ns.
    shift: u32,
    ring: Box<[Vec<Entry<E>>]>,
    /// Emptied buckets' storage, last used first: it is still in the processor's cache.
    spare: Vec<Vec<Entry<E>>>,
    /// Which buckets of the ring are not empty.
    occupied: Box<[u64]>,
    in_ring: usize,
    far: BinaryHeap<Reverse<Far<E>>>,
    sequence: u64,
    far_insertions: u64,
    buckets_used: u64,
    /// Events taken from buckets before the current one.
    taken: u64,
    reviewed_at: u64,
    review_after: u64,
}

impl<E: Copy> Default for EventQueue<E> {
    fn default() -> Self {
        EventQueue::new()
    }
}

impl<E: Copy> EventQueue<E> {
    /// What each event that waits takes of memory.
    pub const EVENT_BYTES: usize = size_of::<Entry<E>>();

    /// An empty queue.
    pub fn new() -> EventQueue<E> {
        EventQueue {
            current: Vec::new(),
            next: 0,
            now: 0,
            number: 0,
            shift: 20,
            ring: empty_ring(FIRST_BUCKETS),
            spare: Vec::new(),
            occupied: vec![0; FIRST_BUCKETS / 64].into(),
            in_ring: 0,
            far: BinaryHeap::new(),
            sequence: 0,
            far_insertions: 0,
            buckets_used: 0,
            taken: 0,
            reviewed_at: 0,
            review_after: REVIEW,
        }
    }

    /// Back to the beginning without events; memory is kept.
    pub fn clear(&mut self) {
        self.current.clear();
        self.next = 0;
        self.now = 0;
        self.number = 0;
        for bucket in self.ring.iter_mut().filter(|bucket| bucket.capacity() > 0) {
            let mut bucket = std::mem::take(bucket);
            bucket.clear();
            self.spare.push(bucket);
        }
        self.occupied.fill(0);
        self.in_ring = 0;
        self.far.clear();
        self.sequence = 0;
        self.far_insertions = 0;
        self.buckets_used = 0;
        self.taken = 0;
        self.reviewed_at = 0;
        self.review_after = REVIEW;
    }

    /// Events that wait.
    pub fn len(&self) -> usize {
        self.current.len() - self.next + self.in_ring + self.far.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds `event` at `at`.
    ///
    /// # Panics
    ///
    /// If `at` is before the event that was taken last: what belongs into the past would
    /// otherwise be lost, or happen out of order.
    #[inline(always)]
    pub fn push(&mut self, at: Time, event: E) {
        let at = at.as_nanos();
        let number = at >> self.shift;
        // The current bucket and all before it wrap around to more than any ring.
        if number.wrapping_sub(self.number + 1) < self.ring.len() as u64 - 1 {
            let place = self.place(number);
            let within = self.within(at);
            let bucket = &mut self.ring[place];
            if bucket.len() < bucket.capacity() {
                bucket.push(Entry { within, event });
                self.in_ring += 1;
                return;
            }
        }
        self.push_seldom(at, event);
    }

    /// ns since the beginning of the bucket that holds `at`.
    #[inline]
    fn within(&self, at: u64) -> u32 {
        (at & ((1 << self.shift) - 1)) as u32
    }

    /// When the current bucket began, in ns.
    #[inline]
    fn begin(&self) -> u64 {
        self.number << self.shift
    }

    /// Adds an event to a bucket without storage, the current bucket, or beyond the ring.
    #[inline(never)]
    fn push_seldom(&mut self, at: u64, event: E) {
        let number = at >> self.shift;
        if number <= self.number {
            assert!(at >= self.now, "an event at {at} ns is before now, {} ns", self.now);
            self.push_current(at.saturating_sub(self.begin()) as u32, event);
        } else if number - self.number < self.ring.len() as u64 {
            let (place, within) = (self.place(number), self.within(at));
            let bucket = &mut self.ring[place];
            if bucket.capacity() == 0 {
                *bucket = self.spare.pop().unwrap_or_default();
                self.occupied[place / 64] |= 1 << (place % 64);
            }
            bucket.push(Entry { within, event });
            self.in_ring += 1;
        } else {
            self.far.push(Reverse(Far { at, sequence: self.sequence, event }));
            self.sequence += 1;
            self.far_insertions += 1;
        }
    }

    /// Inserts behind all events of the same time or before.
    fn push_current(&mut self, within: u32, event: E) {
        let mut place = self.current.len();
        while place > self.next && self.current[place - 1].within > within {
            place -= 1;
        }
        self.current.insert(place, Entry { within, event });
    }

    /// Takes the next event.
    #[inline]
    pub fn pop(&mut self) -> Option<(Time, E)> {
        self.pop_before(Time::MAX)
    }

    /// Takes the next event if it is before `end`.
    #[inline]
    pub fn pop_before(&mut self, end: Time) -> Option<(Time, E)> {
        if self.next == self.current.len() && !self.turn(end) {
            return None;
        }
        let Entry { within, event } = self.current[self.next];
        let at = self.begin() + u64::from(within);
        if at >= end.as_nanos() {
            return None;
        }
        self.next += 1;
        self.now = at;
        Some((Time::from_nanos(at), event))
    }

    /// The event after the last one taken, if it is near: a hint of what will be needed.
    #[inline]
    pub fn upcoming(&self) -> Option<E> {
        self.current.get(self.next).map(|entry| entry.event)
    }

    /// Whether the next event is at the same instant as the one that was taken last.
    #[inline]
    pub fn is_tied(&self) -> bool {
        let last = self.now.wrapping_sub(self.begin());
        self.current.get(self.next).is_some_and(|entry| u64::from(entry.within) == last)
    }
    /// Makes the next bucket that is not empty the current one; false if all are, or if it begins
    /// at `end` or later: what is yet to be inserted may come before it. Not inlined: sorting
    /// would take the registers of whoever takes events.
    #[inline(never)]
    fn turn(&mut self, end: Time) -> bool {
        self.taken += self.current.len() as u64;
        self.current.clear();
        self.next = 0;
        if self.taken - self.reviewed_at >= self.review_after {
            self.review();
            // Under a wider bucket, the next events may belong to the current one.
            if !self.current.is_empty() {
                return true;
            }
        }
        let in_ring = self.next_occupied();
        let far = self.far.peek().map(|Reverse(far)| far.at >> self.shift);
        let Some(number) = in_ring.into_iter().chain(far).min() else {
            return false;
        };
        if number << self.shift >= end.as_nanos() {
            return false;
        }
        self.number = number;
        self.buckets_used += 1;
        if far == Some(number) {
            self.fetch_far(number);
        }
        if in_ring == Some(number) {
            let place = self.place(number);
            let mut bucket = std::mem::take(&mut self.ring[place]);
            self.occupied[place / 64] &= !(1 << (place % 64));
            self.in_ring -= bucket.len();
            let by_rank = self.current.is_empty() && self.shift <= RANKED_SHIFT;
            if by_rank && bucket.len() <= RANKED / 4 {
                sort_by_rank::<E, { RANKED / 4 }>(&bucket, &mut self.current);
            } else if by_rank && bucket.len() <= RANKED / 2 {
                sort_by_rank::<E, { RANKED / 2 }>(&bucket, &mut self.current);
            } else if by_rank && bucket.len() <= RANKED {
                sort_by_rank::<E, RANKED>(&bucket, &mut self.current);
            } else {
                self.current.extend_from_slice(&bucket);
                self.current.sort_by_key(|entry| entry.within);
            }
            bucket.clear();
            self.spare.push(bucket);
        }
        true
    }

    /// Moves what lay beyond the ring, sorted, into the current bucket, before what was
    /// put there later.
    #[cold]
    fn fetch_far(&mut self, number: u64) {
        while let Some(Reverse(far)) = self.far.peek() {
            if far.at >> self.shift != number {
                break;
            }
            let Some(Reverse(Far { at, event, .. })) = self.far.pop() else { break };
            self.current.push(Entry { within: self.within(at), event });
        }
    }

    /// The number of the first bucket in the ring that is not empty.
    fn next_occupied(&self) -> Option<u64> {
        if self.in_ring == 0 {
            return None;
        }
        let words = self.occupied.len();
        let start = self.place(self.number + 1);
        let first = self.occupied[start / 64] & (u64::MAX << (start % 64));
        let place = if first != 0 {
            start / 64 * 64 + first.trailing_zeros() as usize
        } else {
            let word = (1..=words).map(|step| (start / 64 + step) % words).find(|&word| self.occupied[word] != 0)?;
            word * 64 + self.occupied[word].trailing_zeros() as usize
        };
        let ahead = (place + self.ring.len() - start) & (self.ring.len() - 1);
        Some(self.number + 1 + ahead as u64)
    }

    /// Where the ring keeps bucket `number`.
    #[inline]
    fn place(&self, number: u64) -> usize {
        number as usize & (self.ring.len() - 1)
    }

    /// Reshapes the ring when buckets are crowded or it covers too little.
    #[cold]
    fn review(&mut self) {
        let taken = self.taken - self.reviewed_at;
        let mean = taken / self.buckets_used.max(1);
        let short = self.far_insertions * FAR_SHARE > taken;
        self.reviewed_at = self.taken;
        self.buckets_used = 0;
        self.far_insertions = 0;
        // Filing all anew costs as much as this many events: not before they have passed.
        self.review_after = REVIEW.max(self.len() as u64);
        let (shift, buckets) = if mean > CROWDED {
            // As narrow as it takes, and as many more of them to cover the same span.
            let halvings = (mean / COMFORTABLE).ilog2().min(self.shift - MIN_SHIFT);
            (self.shift - halvings, self.ring.len() << halvings)
        } else {
            (self.shift, self.ring.len())
        };
        let (shift, buckets) = match short {
            false => (shift, buckets),
            true if mean > COMFORTABLE => (shift, buckets * 2),
            true => (shift + 1, buckets),
        };
        let (shift, buckets) = (shift.min(MAX_SHIFT), buckets.min(MAX_BUCKETS));
        if (shift, buckets) != (self.shift, self.ring.len()) {
            self.rebuild(shift, buckets);
        }
    }

    /// Files all events anew in a ring of another shape, in their order.
    fn rebuild(&mut self, shift: u32, buckets: usize) {
        let far = std::mem::take(&mut self.far).into_sorted_vec();
        // An event beyond the ring was put there before any event of its time inside.
        let mut all: Vec<(u64, E)> = far.into_iter().rev().map(|Reverse(far)| (far.at, far.event)).collect();
        for number in self.number + 1..=self.number + self.ring.len() as u64 {
            let place = self.place(number);
            let begin = number << self.shift;
            let bucket = std::mem::take(&mut self.ring[place]);
            all.extend(bucket.iter().map(|entry| (begin + u64::from(entry.within), entry.event)));
        }
        all.sort_by_key(|(at, _)| *at);
        if buckets != self.ring.len() {
            self.ring = empty_ring(buckets);
        }
        self.occupied = vec![0; buckets / 64].into();
        self.in_ring = 0;
        self.number = self.begin() >> shift;
        self.shift = shift;
        for (at, event) in all {
            self.push(Time::from_nanos(at), event);
        }
        self.far_insertions = 0;
    }
}

/// Appends `bucket` to `sorted` in order. Each entry's place is the number of entries
/// before it, counted without a branch: for a handful of entries the processor's
/// mispredictions are what sorting costs. `N` is at least the number of entries.
fn sort_by_rank<E: Copy, const N: usize>(bucket: &[Entry<E>], sorted: &mut Vec<Entry<E>>) {
    // A time within the bucket, then the order of insertion: no two keys are equal.
    let mut keys = [i32::MAX; N];
    for (index, (key, entry)) in keys.iter_mut().zip(bucket).enumerate() {
        *key = ((entry.within << RANKED_BITS) | index as u32) as i32;
    }
    sorted.extend_from_slice(bucket);
    for (&key, &entry) in keys.iter().zip(bucket) {
        let before: i32 = keys.iter().map(|&other| i32::from(other < key)).sum();
        sorted[before as usize] = entry;
    }
}

fn empty_ring<E>(buckets: usize) -> Box<[Vec<Entry<E>>]> {
    (0..buckets).map(|_| Vec::new()).collect()
}

#[cfg(test)]
mod tests {
    use anabranch_control::rng::Rng;
    use anabranch_control::time::Duration;
    use proptest::collection::vec;
    use proptest::{prop_assert_eq, proptest};

    use super::*;

    /// Takes an event, lets `reply` insert some, and so on; returns the order of events.
    fn drain(queue: &mut EventQueue<u32>, mut reply: impl FnMut(&mut EventQueue<u32>, Time)) -> Vec<(Time, u32)> {
        let mut order = Vec::new();
        while let Some((at, event)) = queue.pop() {
            order.push((at, event));
            reply(queue, at);
        }
        order
    }

    proptest! {
        #[test]
        fn events_come_by_time_and_then_by_insertion(times in vec(0u64..5_000_000_000, 0..200)) {
            let mut queue = EventQueue::new();
            for (event, &nanos) in times.iter().enumerate() {
                // Coarse times, so that many are equal.
                queue.push(Time::from_nanos(nanos / 100_000_000 * 100_000_000), event as u32);
            }
            let order = drain(&mut queue, |_, _| {});
            prop_assert_eq!(order.len(), times.len());
            let mut sorted = order.clone();
            sorted.sort();
            prop_assert_eq!(order, sorted);
        }
    }

    /// Against a plain heap, over spans that make the ring widen, narrow and grow.
    #[test]
    fn order_is_that_of_a_heap_while_the_ring_is_reshaped() {
        for (spread_ns, pending) in [(1_000u64, 3_000u32), (50_000_000, 60_000), (20_000_000_000, 500)] {
            let mut queue = EventQueue::new();
            let mut heap = BinaryHeap::new();
            let mut rng = Rng::stream(1, "queue");
            let mut inserted = 0;
            let mut insert = |queue: &mut EventQueue<u32>, heap: &mut BinaryHeap<_>, now: Time| {
                let at = now + Duration::from_nanos((rng.uniform() * spread_ns as f64) as u64 / 64 * 64);
                queue.push(at, inserted);
                heap.push(Reverse((at, inserted)));
                inserted += 1;
            };
            for _ in 0..pending {
                insert(&mut queue, &mut heap, Time::ZERO);
            }
            for round in 0..300_000u32 {
                let Reverse(expected) = heap.pop().unwrap();
                assert_eq!(queue.pop(), Some(expected), "round {round} of {spread_ns} ns");
                insert(&mut queue, &mut heap, expected.0);
            }
            assert_eq!(queue.len(), pending as usize);
        }
    }

    #[test]
    #[should_panic(expected = "is before now")]
    fn an_event_in_the_past_is_refused() {
        let mut queue = EventQueue::new();
        queue.push(Time::from_secs_f64(10.0), 1);
        assert_eq!(queue.pop(), Some((Time::from_secs_f64(10.0), 1)));
        queue.push(Time::from_secs_f64(5.0), 2);
    }

    #[test]
    fn what_is_inserted_after_a_look_ahead_comes_at_its_own_time() {
        let mut queue = EventQueue::new();
        let (first, between, last) = (Time::from_secs_f64(1.0), Time::from_secs_f64(2.0), Time::from_secs_f64(20.0));
        queue.push(first, 1);
        queue.push(last, 3);
        assert_eq!(queue.pop_before(between), Some((first, 1)));
        assert_eq!(queue.pop_before(between), None);
        queue.push(between, 2);
        assert_eq!(drain(&mut queue, |_, _| {}), [(between, 2), (last, 3)]);
    }

    #[test]
    fn a_cleared_queue_is_as_new() {
        let mut queue = EventQueue::new();
        let mut run = || {
            let mut rng = Rng::stream(1, "queue");
            for event in 0..1000 {
                queue.push(Time::from_nanos(rng.below(3_000_000_000) as u64), event);
            }
            let taken: Vec<_> = std::iter::from_fn(|| queue.pop_before(Time::from_secs_f64(2.0))).collect();
            queue.clear();
            taken
        };
        assert_eq!(run(), run());
        assert!(queue.is_empty());
    }
}
