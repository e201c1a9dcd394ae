//! What a link has done by two instants, however early it counts.
//!
//! A link whose packets' departures are known when they come counts them then: those that wait, and, where it is
//! computed in advance, those that are still to come to it. What it counts and what is over only after an instant is
//! kept apart for that instant, so that what was transmitted by then does not depend on how a link is computed.

use anabranch_control::time::Time;
use anabranch_control::units::Bytes;

use super::count::LinkCount;

/// Counts of what is over only after an instant.
#[derive(Clone, Copy, Debug)]
struct Beyond {
    at: Time,
    count: LinkCount,
    /// Bytes transmitted after the instant, parts of a packet among them.
    bytes: u64,
}

/// What of a link's counts belongs behind each of two instants.
#[derive(Clone, Copy, Debug)]
pub struct Marks {
    all: [Beyond; 2],
    /// How many of them are over.
    over: usize,
}

impl Default for Marks {
    fn default() -> Marks {
        Marks::new([Time::MAX; 2])
    }
}

impl Marks {
    /// For two instants, the first not after the second.
    pub fn new(at: [Time; 2]) -> Marks {
        debug_assert!(at[0] <= at[1]);
        Marks { all: at.map(|at| Beyond { at, count: LinkCount::default(), bytes: 0 }), over: 0 }
    }

    /// The same instants, and nothing counted.
    pub fn reset(&mut self) {
        *self = Marks::new(self.all.map(|beyond| beyond.at));
    }

    /// The next instant; none if both are over.
    pub fn next(&self) -> Time {
        self.all.get(self.over).map_or(Time::MAX, |beyond| beyond.at)
    }

    /// A packet of `size` is transmitted from `start` to `end`.
    pub fn transmits(&mut self, start: Time, end: Time, size: u32) {
        for beyond in self.all.iter_mut().filter(|beyond| end > beyond.at) {
            beyond.count.packets += 1;
            beyond.count.bytes += u64::from(size);
            let part = if start < beyond.at {
                end.since(beyond.at).as_secs_f64() / end.since(start).as_secs_f64()
            } else {
                1.0
            };
            beyond.bytes += (f64::from(size) * part) as u64;
        }
    }

    /// A packet is lost after its transmission, which ends at `end`.
    pub fn loses(&mut self, end: Time) {
        self.all.iter_mut().filter(|beyond| end > beyond.at).for_each(|beyond| beyond.count.lost += 1);
    }

    /// A packet that comes at `at` is dropped.
    pub fn drops(&mut self, at: Time) {
        self.all.iter_mut().filter(|beyond| at > beyond.at).for_each(|beyond| beyond.count.dropped += 1);
    }

    /// At `now`, the next instant: of all that a link has counted, what is over by now, and the bytes that have been
    /// transmitted, those of a packet that is being transmitted among them. None if no instant is now.
    pub fn pass(&mut self, now: Time, counted: LinkCount) -> Option<(LinkCount, Bytes)> {
        let beyond = self.all.get(self.over).filter(|beyond| beyond.at == now)?;
        self.over += 1;
        let count = LinkCount {
            packets: counted.packets - beyond.count.packets,
            bytes: counted.bytes - beyond.count.bytes,
            dropped: counted.dropped - beyond.count.dropped,
            lost: counted.lost - beyond.count.lost,
            marked: counted.marked,
        };
        Some((count, Bytes::new(counted.bytes - beyond.bytes)))
    }
}
