//! A path controller made of one rate learner for each peer.
//!
//! A relay has room while what was sent over it stays below its learned rate; a
//! packet takes relays with room at random. What a learner is (`RateLearner`) and
//! how a rate becomes room (`Credit`: bursts or pacing) are chosen apart.

use core::fmt::Debug;

use super::candidates::Candidates;
use super::learner::{Evidence, RateLearner};
use super::{Hop, PathController, Report, Slot, Ticket};
use crate::rng::Rng;
use crate::time::Time;
use crate::units::{Bytes, Rate};
use crate::wake::Wake;

/// How rates become room for packets.
pub trait Credit: Debug + Clone + Send + 'static {
    /// No room for any of `peers` until their rates are set; counting begins at `start`.
    fn new(peers: usize, packet: Bytes, start: Time) -> Self;
    /// Time has passed: inserts the peers that have room again.
    fn advance(&mut self, now: Time, candidates: &mut Candidates);
    /// A packet leaves over `slot`: removes it if that was its last room.
    fn charge(&mut self, now: Time, slot: Slot, candidates: &mut Candidates);
    /// The peer's rate is now `rate`.
    fn set_rate(&mut self, now: Time, slot: Slot, rate: Rate, candidates: &mut Candidates);
    /// When a peer gets room again by time alone.
    fn timer(&self) -> Time;
    /// Heap memory in bytes.
    fn heap_bytes(&self) -> usize;
}

/// A learner for each peer, and what each may still send.
#[derive(Clone, Debug)]
pub struct PerPeer<L: RateLearner, C: Credit> {
    config: L::Config,
    packet: Bytes,
    learners: Box<[L]>,
    credit: C,
    candidates: Candidates,
}

impl<L: RateLearner, C: Credit> PerPeer<L, C> {
    /// For a sender that knows `peers` peers, sends packets of `packet` and starts at `start`.
    pub fn new(config: L::Config, peers: usize, packet: Bytes, start: Time) -> PerPeer<L, C> {
        let learner = L::new(&config, packet);
        let rate = learner.rate(&config, packet);
        let mut credit = C::new(peers, packet, start);
        let mut candidates = Candidates::all(peers);
        for slot in 0..peers {
            credit.set_rate(start, Slot(slot as u16), rate, &mut candidates);
        }
        PerPeer { config, packet, learners: vec![learner; peers].into(), credit, candidates }
    }
}

impl<L: RateLearner, C: Credit> PerPeer<L, C> {
    /// Shows `report` to the learners of its path, and takes over the rates that it changes.
    #[inline(always)]
    fn teach(&mut self, report: &Report<'_>, mut learn: impl FnMut(&mut L, &L::Config, Bytes, Evidence<'_, L::Note>)) {
        for (place, hop) in report.path.iter().enumerate() {
            let learner = &mut self.learners[hop.slot.index()];
            let before = learner.rate(&self.config, self.packet);
            learn(learner, &self.config, self.packet, Evidence { report, place, note: hop.ticket.0.into() });
            let after = learner.rate(&self.config, self.packet);
            if after != before {
                self.credit.set_rate(report.now, hop.slot, after, &mut self.candidates);
            }
        }
    }
}

impl<L: RateLearner, C: Credit> PathController for PerPeer<L, C> {
    fn select(&mut self, now: Time, destination: Slot, size: Bytes, path: &mut [Hop], rng: &mut Rng) -> bool {
        debug_assert!(size <= self.packet, "rates are counted in whole packets");
        self.credit.advance(now, &mut self.candidates);
        if !self.candidates.draw(destination, path, rng) {
            return false;
        }
        for hop in path {
            hop.ticket = Ticket(self.learners[hop.slot.index()].on_sent(&self.config).into());
            self.credit.charge(now, hop.slot, &mut self.candidates);
        }
        true
    }

    fn adopt(&mut self, now: Time, _size: Bytes, path: &mut [Hop], _rng: &mut Rng) {
        self.credit.advance(now, &mut self.candidates);
        for hop in path {
            hop.ticket = Ticket(self.learners[hop.slot.index()].on_sent(&self.config).into());
            if self.candidates.contains(hop.slot) {
                self.credit.charge(now, hop.slot, &mut self.candidates);
            }
        }
    }

    #[inline]
    fn on_outcome(&mut self, report: &Report<'_>, rng: &mut Rng) {
        self.teach(report, |learner, config, packet, evidence| learner.on_outcome(config, packet, evidence, rng));
    }

    #[inline]
    fn on_late(&mut self, report: &Report<'_>, rng: &mut Rng) {
        self.teach(report, |learner, config, packet, evidence| learner.on_late(config, packet, evidence, rng));
    }

    fn wake(&self, now: Time) -> Wake {
        Wake::at(self.credit.timer(), now)
    }

    fn rate(&self, peer: Slot) -> Option<Rate> {
        Some(self.learners[peer.index()].rate(&self.config, self.packet))
    }

    fn memory_bytes(&self) -> usize {
        size_of::<Self>()
            + size_of_val(&*self.learners)
            + self.learners.iter().map(L::heap_bytes).sum::<usize>()
            + self.credit.heap_bytes()
            + self.candidates.heap_bytes()
    }

    fn trace(&self, peer: Slot, record: &mut dyn FnMut(&'static str, f64)) {
        self.learners[peer.index()].trace(&self.config, self.packet, record);
    }
}
