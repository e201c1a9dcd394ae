//! For how long slices stopped coming: what a viewer would have noticed without what it held and without
//! others who had the packets.

use anabranch_control::time::{Duration, Time};
use anabranch_proto::stream::packet::PacketId;

/// A slice that pushes nothing for less is not interrupted: at some hundred kilobits a second, a slice of twenty
/// has a packet every quarter of a second.
pub const SHORTEST: Duration = Duration::from_millis(500);

/// The most that are kept.
const MOST: usize = 4096;

/// A time without pushes of a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outage {
    /// Which slice.
    pub slice: u8,
    /// When its last packet had come, since the peer began.
    pub began: Duration,
    /// How long it took until the next; or lasts.
    pub length: Duration,
}

/// Watches the slices of a viewer.
#[derive(Clone, Debug, Default)]
pub struct Outages {
    /// Of each slice, the packet after the last that was pushed, and when that was seen.
    last: Vec<(PacketId, Time)>,
    ended: Vec<Outage>,
}

impl Outages {
    /// Looks at each slice, of which `pushed` gives the packet after the last one that was pushed.
    pub fn look(&mut self, now: Time, slices: u8, pushed: impl Fn(u8) -> PacketId) {
        // Before its first packet nothing of a slice can be missed.
        self.last.resize(usize::from(slices), (PacketId(0), Time::MAX));
        for slice in 0..slices {
            let end = pushed(slice);
            let (before, since) = &mut self.last[usize::from(slice)];
            if end == *before {
                continue;
            }
            let length = if *since == Time::MAX { Duration::ZERO } else { now.since(*since) };
            if length >= SHORTEST && self.ended.len() < MOST {
                self.ended.push(Outage { slice, began: since.since(Time::ZERO), length });
            }
            (*before, *since) = (end, now);
        }
    }

    /// All so far, those that last at the end.
    pub fn all(&self, now: Time) -> Vec<Outage> {
        let lasting = self.last.iter().zip(0u8..).filter(|((_, since), _)| *since != Time::MAX);
        let lasting = lasting.map(|((_, since), slice)| Outage {
            slice,
            began: since.since(Time::ZERO),
            length: now.since(*since),
        });
        self.ended.iter().copied().chain(lasting.filter(|outage| outage.length >= SHORTEST)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_lasts_from_the_last_push_to_the_next_and_is_reported_while_it_lasts() {
        let at = |millis: u64| Time::ZERO + Duration::from_millis(millis);
        let mut outages = Outages::default();
        let mut pushed = [PacketId(0), PacketId(0)];
        outages.look(at(0), 2, |slice| pushed[usize::from(slice)]);
        assert!(outages.all(at(5000)).is_empty(), "nothing has come yet");
        for millis in (1000..2000).step_by(100) {
            pushed = [PacketId(millis), PacketId(millis)];
            outages.look(at(millis), 2, |slice| pushed[usize::from(slice)]);
        }
        assert!(outages.all(at(2000)).is_empty());
        // Slice 1 stops for 0.8 s, slice 0 for good.
        pushed[1] = PacketId(3000);
        outages.look(at(2700), 2, |slice| pushed[usize::from(slice)]);
        let outage =
            |slice, length| Outage { slice, began: Duration::from_millis(1900), length: Duration::from_millis(length) };
        assert_eq!(outages.all(at(3000)), [outage(1, 800), outage(0, 1100)]);
    }
}
