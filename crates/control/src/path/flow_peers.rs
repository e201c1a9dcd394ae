//! A path controller made of one flow controller for each peer: any rule for one path
//! becomes a rule for one relay of many ([Raiber 2010] 8.2 asks for Cubic and Compound).
//!
//! A relay has room while the data in flight over it stays below its controller's window
//! and its pacing rate lets a packet leave. An ACK is an ACK to the controllers of all
//! relays on the path, a missed deadline a loss to all of them. The round-trip time that a
//! controller sees is that of the whole path, of which its relay is a part: rules that read
//! a queue from it see other relays' delays too.

use core::cmp::Reverse;
use core::fmt::Debug;
use std::collections::BinaryHeap;

use super::candidates::Candidates;
use super::setup::{Factory, Setup, factory};
use super::{Hop, Outcome, PathController, Report, Slot, Ticket};
use crate::delivery_rate::DeliveryRate;
use crate::flow::registry as flow;
use crate::flow::{Feedback, FlowController, Limits, LossCause, Lost, PeerId, Sent};
use crate::pacer::Pacer;
use crate::registry::ParameterError;
use crate::rng::Rng;
use crate::round_trip::RoundTripEstimator;
use crate::time::Time;
use crate::units::{Bytes, Rate};
use crate::wake::Wake;

/// A flow controller for each peer.
#[derive(Clone, Debug)]
pub struct FlowPeers {
    packet: Bytes,
    peers: Box<[Peer]>,
    candidates: Candidates,
    /// What was true when each packet left, once for each of its relays.
    sent: Vec<Sent>,
    free: Vec<u32>,
    /// When a peer is worth another look; an entry that is not its peer's `wake` is stale.
    wakes: BinaryHeap<Reverse<(Time, Slot)>>,
    /// A peer has got room since `select` found too few.
    reopened: bool,
}

#[derive(Clone, Debug)]
struct Peer {
    controller: Box<dyn FlowController>,
    limits: Limits,
    in_flight: Bytes,
    pacer: Pacer,
    delivery: DeliveryRate,
    rtt: RoundTripEstimator,
    wake: Time,
}

impl Peer {
    fn has_room(&self, now: Time, packet: Bytes) -> bool {
        let fits = self.in_flight + packet <= self.limits.window || self.in_flight == Bytes::ZERO;
        fits && (self.limits.rate.is_none() || self.pacer.release() <= now)
    }

    /// When time alone may change what it may send.
    fn next_wake(&self, now: Time) -> Time {
        let timer = self.controller.timer().unwrap_or(Time::MAX);
        let release = self.pacer.release();
        if self.limits.rate.is_some() && release > now { timer.min(release) } else { timer }
    }
}

/// Makes those with `controller` for every peer. The parameters are read once, however many senders there are: each
/// makes one controller of them, of which each of its peers has a clone.
///
/// # Errors
///
/// What the controller says of its parameters.
pub fn build(controller: &flow::Entry, parameters: &toml::Table) -> Result<Factory, ParameterError> {
    let make = (controller.build)(parameters)?;
    Ok(factory(move |setup| of(setup, &make)))
}

fn of(setup: &Setup, make: &flow::Factory) -> FlowPeers {
    let of_peer = flow::Setup { initial_window: setup.packet, ..flow::Setup::new(setup.packet, setup.start) };
    let controller = make(&of_peer);
    let peer = Peer {
        limits: controller.limits(),
        controller,
        in_flight: Bytes::ZERO,
        pacer: Pacer::default(),
        delivery: DeliveryRate::default(),
        rtt: RoundTripEstimator::default(),
        wake: Time::MAX,
    };
    FlowPeers {
        packet: setup.packet,
        peers: vec![peer; setup.peers].into(),
        candidates: Candidates::all(setup.peers),
        sent: Vec::new(),
        free: Vec::new(),
        wakes: BinaryHeap::new(),
        reopened: false,
    }
}

impl FlowPeers {
    /// Brings the candidates and the wake of `slot` in line with what its controller allows.
    fn review(&mut self, now: Time, slot: Slot) {
        let peer = &mut self.peers[slot.index()];
        peer.limits = peer.controller.limits();
        if peer.has_room(now, self.packet) {
            self.reopened |= !self.candidates.contains(slot);
            self.candidates.insert(slot);
        } else {
            self.candidates.remove(slot);
        }
        let wake = peer.next_wake(now);
        if wake != peer.wake {
            peer.wake = wake;
            if wake < Time::MAX {
                self.wakes.push(Reverse((wake, slot)));
            }
        }
        // Stale entries go once they are the greater part.
        if self.wakes.len() > 4 * self.peers.len() {
            let peers = &self.peers;
            self.wakes.retain(|Reverse((at, slot))| peers[slot.index()].wake == *at);
        }
    }

    /// Lets everything happen that waited for `now`.
    fn advance(&mut self, now: Time, rng: &mut Rng) {
        while let Some(&Reverse((at, slot))) = self.wakes.peek() {
            if at > now {
                break;
            }
            self.wakes.pop();
            let peer = &mut self.peers[slot.index()];
            if peer.wake == at {
                peer.wake = Time::MAX;
                if peer.controller.timer().is_some_and(|due| due <= now) {
                    peer.controller.on_timer(now, rng);
                }
                self.review(now, slot);
            }
        }
    }

    /// A packet leaves over `path`: every relay's controller is notified, and what was true then is noted.
    fn leave(&mut self, now: Time, size: Bytes, path: &mut [Hop], rng: &mut Rng) {
        for hop in path {
            let peer = &mut self.peers[hop.slot.index()];
            let mut sent = Sent { at: now, size, ..Sent::default() };
            peer.delivery.on_sent(&mut sent, peer.in_flight);
            peer.in_flight += size;
            sent.in_flight = peer.in_flight;
            peer.controller.on_sent(now, PeerId(0), &sent, rng);
            if let Some(rate) = peer.limits.rate {
                peer.pacer.on_sent(now, size, rate, peer.limits.burst);
            }
            hop.ticket = self.remember(sent);
            self.review(now, hop.slot);
        }
    }

    fn remember(&mut self, sent: Sent) -> Ticket {
        if let Some(place) = self.free.pop() {
            self.sent[place as usize] = sent;
            return Ticket(place);
        }
        self.sent.push(sent);
        Ticket(self.sent.len() as u32 - 1)
    }
}

impl PathController for FlowPeers {
    fn select(&mut self, now: Time, destination: Slot, size: Bytes, path: &mut [Hop], rng: &mut Rng) -> bool {
        self.advance(now, rng);
        self.reopened = false;
        if !self.candidates.draw(destination, path, rng) {
            return false;
        }
        self.leave(now, size, path, rng);
        true
    }

    fn adopt(&mut self, now: Time, size: Bytes, path: &mut [Hop], rng: &mut Rng) {
        self.advance(now, rng);
        self.leave(now, size, path, rng);
    }

    fn on_outcome(&mut self, report: &Report<'_>, rng: &mut Rng) {
        let Report { now, path, outcome, .. } = *report;
        self.advance(now, rng);
        for hop in path {
            let sent = self.sent[hop.ticket.0 as usize];
            self.free.push(hop.ticket.0);
            let peer = &mut self.peers[hop.slot.index()];
            peer.in_flight -= sent.size;
            let (acked, lost) = match outcome {
                Outcome::Acked => (Some(sent), None),
                Outcome::TimedOut => (None, Some(Lost { sent, cause: LossCause::TimeThreshold })),
            };
            let mut rate = None;
            if acked.is_some() {
                peer.rtt.sample(now.since(sent.at), crate::time::Duration::ZERO);
                rate = peer.delivery.on_acked(now, sent.size, &sent, peer.rtt.report(true).min);
            } else {
                peer.delivery.on_lost(sent.size);
            }
            let feedback = Feedback {
                receiver: PeerId(0),
                rtt: peer.rtt.report(acked.is_some()),
                acked: acked.as_slice(),
                lost: lost.as_slice(),
                acked_bytes: if acked.is_some() { sent.size } else { Bytes::ZERO },
                in_flight: peer.in_flight,
                delivered: peer.delivery.delivered(),
                rate,
                ecn_marked_packets: 0,
                persistent_congestion: false,
                tcp: None,
                // A relay that was not full was left out by chance, not by its window.
                app_limited: peer.in_flight + sent.size + self.packet <= peer.limits.window,
            };
            peer.controller.on_feedback(now, &feedback, rng);
            self.review(now, hop.slot);
        }
    }

    fn wake(&self, now: Time) -> Wake {
        if self.reopened {
            return Wake::DepartNow(());
        }
        Wake::at(self.wakes.peek().map_or(Time::MAX, |Reverse((at, _))| *at), now)
    }

    fn rate(&self, peer: Slot) -> Option<Rate> {
        let peer = &self.peers[peer.index()];
        let rate = peer.limits.rate.unwrap_or(peer.limits.window / peer.rtt.report(false).smoothed);
        Some(rate.max(Rate::LOWEST))
    }

    fn memory_bytes(&self) -> usize {
        size_of::<Self>()
            + size_of_val(&*self.peers)
            + self.peers.iter().map(|peer| size_of_val(&*peer.controller)).sum::<usize>()
            + self.candidates.heap_bytes()
            + self.sent.capacity() * size_of::<Sent>()
            + self.free.capacity() * size_of::<u32>()
            + self.wakes.capacity() * size_of::<Reverse<(Time, Slot)>>()
    }

    fn trace(&self, peer: Slot, record: &mut dyn FnMut(&'static str, f64)) {
        self.peers[peer.index()].controller.trace(record);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::path::registry::Build;
    use crate::path::setup::Pacing;
    use crate::rtt::{PairRtts, RttConfig};
    use crate::time::Duration;

    const SETUP: Setup = Setup { peers: 6, packet: Bytes::new(1500), start: Time::ZERO, pacing: Pacing::Burst };
    const DESTINATION: Slot = Slot(5);

    fn peers(controller: &str, parameters: &str) -> Box<dyn PathController> {
        build(flow::find(controller).unwrap(), &parameters.parse().unwrap()).unwrap()(&SETUP)
    }

    fn rng() -> Rng {
        Rng::stream(1, "test")
    }

    #[test]
    fn parameters_are_read_once_for_all_peers_of_all_senders_and_before_the_first() {
        static READ: AtomicUsize = AtomicUsize::new(0);
        static COUNTED: flow::Entry = flow::Entry {
            name: "counted",
            summary: "",
            source: "",
            build: |parameters| {
                READ.fetch_add(1, Ordering::Relaxed);
                (flow::find("fixed").unwrap().build)(parameters)
            },
        };
        let wrong = Build::Flow(&COUNTED).factory(&"window = 0.5".parse().unwrap()).unwrap();
        assert!(wrong.is_err_and(|error| error.0.contains("window = 0.5")), "and there was no sender");
        let make = Build::Flow(&COUNTED).factory(&"window = 2.0".parse().unwrap()).unwrap().unwrap();
        for (count, packet) in [(1000, 1500), (10, 500)] {
            let packet = Bytes::new(packet);
            let mut peers = make(&Setup { peers: count, packet, ..SETUP });
            // Each of them has its own window of two packets, but the destination.
            let (mut path, mut rng) = ([Hop::default(); 1], rng());
            let sent =
                std::iter::from_fn(|| peers.select(Time::ZERO, DESTINATION, packet, &mut path, &mut rng).then_some(()));
            assert_eq!(sent.count(), 2 * (count - 1));
        }
        assert_eq!(READ.load(Ordering::Relaxed), 2, "once each");
    }

    #[test]
    fn a_relay_is_used_until_its_window_is_full_and_again_after_an_ack() {
        let (mut peers, mut rng) = (peers("fixed", "window = 2.0"), rng());
        let rtts = PairRtts::new(&RttConfig::default(), 6);
        let mut paths = Vec::new();
        let mut path = [Hop::default(); 1];
        while peers.select(Time::ZERO, DESTINATION, SETUP.packet, &mut path, &mut rng) {
            paths.push(path);
        }
        // Five relays with two packets each; the destination relays nothing to itself.
        assert_eq!(paths.len(), 10);
        assert_eq!(peers.wake(Time::ZERO), Wake::AwaitOutcome);
        let now = Time::ZERO + Duration::from_millis(50);
        peers.on_outcome(&Report { now, ..Report::of(Outcome::Acked, &paths[3], &rtts) }, &mut rng);
        assert_eq!(peers.wake(now), Wake::DepartNow(()), "room must be told");
        assert!(peers.select(now, DESTINATION, SETUP.packet, &mut path, &mut rng));
        assert_eq!(path[0].slot, paths[3][0].slot);
        assert!(!peers.select(now, DESTINATION, SETUP.packet, &mut path, &mut rng));
    }

    #[test]
    fn one_outcome_is_evidence_about_every_relay_of_the_path() {
        let (mut peers, mut rng) = (peers("reno", ""), rng());
        let rtts = PairRtts::new(&RttConfig::default(), 6);
        let window = |peers: &dyn PathController, slot| {
            let mut window = 0.0;
            peers.trace(slot, &mut |name, value| {
                if name == "window" {
                    window = value
                }
            });
            window
        };
        let mut path = [Hop::default(); 3];
        let mut now = Time::ZERO;
        for _ in 0..4 {
            // All that there is room for: Reno's window grows only while it is used up.
            let mut paths = Vec::new();
            while peers.select(now, DESTINATION, SETUP.packet, &mut path, &mut rng) {
                paths.push(path);
            }
            now += Duration::from_millis(50);
            for path in &paths {
                peers.on_outcome(&Report { now, ..Report::of(Outcome::Acked, path, &rtts) }, &mut rng);
            }
        }
        let windows = |peers: &dyn PathController| -> Vec<f64> {
            (0..SETUP.peers as u16).map(|slot| window(peers, Slot(slot))).collect()
        };
        let before = windows(&*peers);
        // Each ACK let the windows of all its relays grow, beyond two packets, the least that
        // Reno falls to, so that a fall will show.
        assert!(before[..5].iter().all(|window| *window > 2.0 * SETUP.packet.get() as f64), "{before:?}");
        assert_eq!(before[5], SETUP.packet.get() as f64, "the destination relays nothing to itself");
        assert!(peers.select(now, DESTINATION, SETUP.packet, &mut path, &mut rng));
        let report = Report { now: now + Duration::SECOND, ..Report::of(Outcome::TimedOut, &path, &rtts) };
        peers.on_outcome(&report, &mut rng);
        let after = windows(&*peers);
        for slot in 0..SETUP.peers {
            let on_path = path.iter().any(|hop| hop.slot.index() == slot);
            assert_eq!(after[slot] < before[slot], on_path, "slot {slot}: {} to {}", before[slot], after[slot]);
            assert!(on_path || after[slot] == before[slot], "slot {slot}: {} to {}", before[slot], after[slot]);
        }
    }
}
