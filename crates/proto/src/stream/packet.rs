//! What a stream is cut into: packets, slices, generations.
//!
//! A *packet* is what one datagram carries: up to seven packets of an MPEG transport stream (188
//! bytes each, ISO/IEC 13818-1), never a part of one. Packets are numbered as they leave the source.
//! A *slice* is every k-th packet; each slice goes down a tree of its own [Raiber 2010, 6.4.4]. A
//! *generation* is what the source signs together.

use anabranch_control::time::{Duration, Time};

/// Bytes of a packet of an MPEG transport stream.
pub const TS_PACKET: usize = 188;

/// Packets of a transport stream that a packet holds at most: with all headers of a session it stays
/// below 1400 bytes, which Ethernet in the usual tunnels carries.
pub const TS_PACKETS: usize = 7;

/// Bytes of a packet at most.
pub const MAX_PACKET: usize = TS_PACKET * TS_PACKETS;

/// The most slices, so that a set of them is a word.
pub const MAX_SLICES: u8 = 64;

/// A packet of the stream, numbered from 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PacketId(pub u64);

impl PacketId {
    /// The slice that it belongs to, of `slices`.
    #[inline]
    pub fn slice(self, slices: u8) -> u8 {
        (self.0 % u64::from(slices)) as u8
    }

    /// The one `count` after it.
    #[inline]
    pub fn after(self, count: u64) -> PacketId {
        PacketId(self.0.saturating_add(count))
    }

    /// How many packets it is after `earlier`; 0 if it is not.
    #[inline]
    pub fn since(self, earlier: PacketId) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// Slices, a bit for each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SliceSet(pub u64);

impl SliceSet {
    /// Whether `slice` is among them.
    #[inline]
    pub fn contains(self, slice: u8) -> bool {
        self.0 >> slice & 1 == 1
    }

    /// Adds `slice`.
    #[inline]
    pub fn insert(&mut self, slice: u8) {
        self.0 |= 1 << slice;
    }

    /// Takes `slice` out.
    #[inline]
    pub fn remove(&mut self, slice: u8) {
        self.0 &= !(1 << slice);
    }

    /// Those that are not among `others`.
    #[inline]
    pub fn without(self, others: SliceSet) -> SliceSet {
        SliceSet(self.0 & !others.0)
    }

    /// Whether there is none.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// How many.
    #[inline]
    pub fn len(self) -> u32 {
        self.0.count_ones()
    }

    /// In ascending order.
    pub fn iter(self) -> impl Iterator<Item = u8> {
        (0..MAX_SLICES).filter(move |&slice| self.contains(slice))
    }
}

/// When a packet left the source, in milliseconds since the stream began, modulo 2³²: a stream that lasts for longer than
/// 49.7 days begins to count again. It tells how old a packet is, to whoever has seen others: the source's clock need not
/// agree with anybody's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp(pub u32);

impl Stamp {
    /// At `now`, of a stream that began at `start`.
    pub fn at(now: Time, start: Time) -> Stamp {
        Stamp((now.since(start).as_nanos() / 1_000_000) as u32)
    }

    /// As a time since the stream began, or began to count again last.
    #[inline]
    pub fn elapsed(self) -> Duration {
        Duration::from_millis(u64::from(self.0))
    }

    /// The one `duration` later.
    pub fn after(self, duration: Duration) -> Stamp {
        Stamp(self.0.wrapping_add((duration.as_nanos() / 1_000_000) as u32))
    }

    /// Whether it is earlier than `other`, of stamps less than 24 days apart (as serial numbers, RFC 1982, 3.2).
    pub fn is_before(self, other: Stamp) -> bool {
        (other.0.wrapping_sub(self.0) as i32) > 0
    }

    /// The milliseconds since the stream began that it stands for: those nearest to `near`.
    #[inline]
    pub fn millis_near(self, near: u64) -> u64 {
        near.saturating_add_signed(i64::from(self.0.wrapping_sub(near as u32) as i32))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_of_months_tells_its_packets_ages() {
        let year = 365 * 24 * 3_600_000;
        let start = Time::from_secs_f64(7.0);
        let stamp = |millis: u64| Stamp::at(start + Duration::from_millis(millis), start);
        for begun in [0, u64::from(u32::MAX) - 500, year] {
            for (before, after) in [(0, 0), (0, 1), (400, 1_000), (0, 86_400_000)] {
                let (before, after) = (begun + before, begun + after);
                assert_eq!(stamp(before).millis_near(after), before);
                assert_eq!(stamp(after).millis_near(before), after);
                assert_eq!(stamp(before).is_before(stamp(after)), before < after);
                assert!(!stamp(after).is_before(stamp(before)));
                assert_eq!(stamp(before).after(Duration::from_millis(after - before)), stamp(after));
            }
        }
        // Nothing is before the beginning.
        assert_eq!(Stamp(u32::MAX).millis_near(5), 0);
    }
}
