//! Manifests that did not come although later ones did: who is asked for them, before their packets are here.
//!
//! A packet without its manifest cannot be passed on, so that one lost manifest holds up what a tenth of a second
//! brought, of all slices, to all who are below. Each manifest goes down the tree of another slice: whoever pushes
//! that slice has it, or misses it as well, asks for it, and passes it on once it comes. If it does not come so, the
//! parents of other slices are asked in turn.

use std::collections::BTreeMap;

use anabranch_control::time::{Duration, Time};

use super::packet::PacketId;
use crate::session::SessionId;

/// What was asked for has not come in this time, a long round trip: another is asked.
const ASK_AGAIN: Duration = Duration::from_millis(150);

/// The slice down whose tree the manifest of `generation` goes: another each time, so that no parent that is
/// gone keeps back more than one. Who misses one asks for it.
pub fn manifest_slice(generation: u32, slices: u8) -> u8 {
    (generation % u32::from(slices)) as u8
}

/// Manifests that lack between two that are here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hole {
    /// The first generation.
    pub generation: u32,
    /// The packets of all of them, the last included.
    pub packets: (PacketId, PacketId),
}

/// Who was asked for what.
#[derive(Clone, Debug, Default)]
pub struct ManifestHoles {
    /// By the first generation: when somebody is asked again, and how many were asked.
    asked: BTreeMap<u32, (Time, u32)>,
}

impl ManifestHoles {
    /// Whom to ask for which packets' manifests now, where `holes` are all that there are and `feed` gives the
    /// session of whoever pushes a slice.
    pub fn ask(
        &mut self,
        now: Time,
        holes: &[Hole],
        slices: u8,
        feed: impl Fn(u8) -> Option<SessionId>,
        mut ask: impl FnMut(SessionId, (PacketId, PacketId)),
    ) {
        if holes.is_empty() {
            self.asked.clear();
            return;
        }
        self.asked.retain(|generation, _| holes.iter().any(|hole| hole.generation == *generation));
        for hole in holes {
            let (at, count) = self.asked.entry(hole.generation).or_insert((now, 0));
            if now < *at {
                continue;
            }
            let who = manifest_slice(hole.generation.wrapping_add(*count), slices);
            (*at, *count) = (now + ASK_AGAIN, count.saturating_add(1));
            if let Some(session) = feed(who) {
                ask(session, hole.packets);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Time {
        Time::ZERO + Duration::from_millis(millis)
    }

    /// Who is asked in each 50 ms from `from` on, where slice n comes over session n but none comes over 6.
    fn asked(holes: &mut ManifestHoles, from: u64, missing: &[Hole]) -> Vec<(u64, u32)> {
        let mut asked = Vec::new();
        for millis in (from..from + 500).step_by(50) {
            let feed = |slice: u8| (slice != 6).then_some(SessionId(slice.into()));
            holes.ask(at(millis), missing, 10, feed, |session, packets| {
                assert_eq!(packets, (PacketId(100), PacketId(118)));
                asked.push((millis, session.0));
            });
        }
        asked
    }

    #[test]
    fn the_parent_of_its_slice_is_asked_and_then_those_of_others() {
        let mut holes = ManifestHoles::default();
        let hole = Hole { generation: 25, packets: (PacketId(100), PacketId(118)) };
        // Nobody pushes slice 6.
        assert_eq!(asked(&mut holes, 0, &[hole]), [(0, 5), (300, 7), (450, 8)]);
        assert_eq!(asked(&mut holes, 500, &[]), []);
        assert_eq!(asked(&mut holes, 1000, &[hole])[0], (1000, 5), "nothing is left of what has come");
    }
}
