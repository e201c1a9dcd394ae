//! No control at all: every packet takes relays at random, as many packets as wanted.
//! The worst case that the others are compared with. [Raiber 2010] 6.3.1.

use super::candidates::Candidates;
use super::{Hop, PathController, Report, Slot};
use crate::rng::Rng;
use crate::time::Time;
use crate::units::{Bytes, Rate};
use crate::wake::Wake;

/// Draws relays, learns nothing.
#[derive(Clone, Debug)]
pub struct Random {
    candidates: Candidates,
}

impl Random {
    /// For a sender that knows `peers` peers.
    pub fn new(peers: usize) -> Random {
        Random { candidates: Candidates::all(peers) }
    }
}

impl PathController for Random {
    fn select(&mut self, _now: Time, destination: Slot, _size: Bytes, path: &mut [Hop], rng: &mut Rng) -> bool {
        self.candidates.draw(destination, path, rng)
    }

    fn on_outcome(&mut self, _report: &Report<'_>, _rng: &mut Rng) {}

    fn wake(&self, _now: Time) -> Wake {
        Wake::AwaitOutcome
    }

    fn rate(&self, _peer: Slot) -> Option<Rate> {
        None
    }

    fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.candidates.heap_bytes()
    }

    fn trace(&self, _peer: Slot, _record: &mut dyn FnMut(&'static str, f64)) {}
}
