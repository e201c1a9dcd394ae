//! What somebody sees who runs some of an onion overlay's relays.
//!
//! Senders come and go; their packets take the paths that a user's own guards and routes choose
//! (`anabranch-onion`), over links with the simulator's delays. The adversary has the logs of its relays
//! and nothing else: when a packet came, from whom, to whom it went, and the names that the packet had on
//! both links. From these it says who talks to whom; the truth is looked at only to say how often it is
//! right. It is a model of traffic: what packets look like, and how relays queue them, is not in it.
//!
//! All of it is a function of the scenario and its seed, on any number of threads.

mod adversary;
mod found;
pub mod goodput;
mod network;
mod paths;
mod probing;
mod scores;
mod senders;
#[cfg(test)]
mod tests;
pub mod theory;
pub mod tradeoff;

use std::sync::atomic::Ordering;

use anabranch_control::rng::Rng;
use anabranch_control::time::{Duration, Time};
use anabranch_scenario::onion::OnionScenario;
use rayon::prelude::*;

pub use found::{Found, Probed};

use crate::parallel::Progress;
use adversary::{Adversary, Party, Record};
use network::Network;
use paths::Paths;
use senders::Packets;

/// What adversaries of these shares find, each of them alone; none if it was interrupted.
pub fn run(scenario: &OnionScenario, shares: &[f64], progress: &Progress) -> Option<Vec<Found>> {
    let seconds = scenario.duration.as_nanos() / Duration::SECOND.as_nanos();
    progress.total.fetch_add(scenario.repetitions * seconds * scenario.senders.count, Ordering::Relaxed);
    let once = |repetition: u64| {
        let world = World::new(scenario, shares, repetition);
        let one = |sender: u64| {
            if progress.is_interrupted() {
                return None;
            }
            let seen = world.send(sender as u32);
            progress.done.fetch_add(seconds, Ordering::Relaxed);
            Some(seen)
        };
        let seen: Option<Vec<Seen>> = (0..scenario.senders.count).into_par_iter().map(one).collect();
        Some(world.evaluate(seen?))
    };
    // One after the other: the senders of each are on all cores already, and a run's logs are large.
    let all: Option<Vec<Vec<Found>>> = (0..scenario.repetitions).map(once).collect();
    let all = all?;
    let of_share = |place: usize| Found::of(&all.iter().map(|found| found[place].clone()).collect::<Vec<_>>());
    let mut found: Vec<Found> = (0..shares.len()).map(of_share).collect();
    if scenario.adversary.probes > 0 {
        let probed = probing::run(scenario, progress)?;
        found.iter_mut().for_each(|found| found.probed = Some(probed));
    }
    Some(found)
}

/// One repetition.
struct World<'a> {
    scenario: &'a OnionScenario,
    seed: u64,
    network: Network,
    shares: Vec<f64>,
    /// The destination that each sender sends to: what the adversary sees is its number, and nothing
    /// else links it to the sender.
    destinations: Vec<u32>,
    bins: usize,
}

/// What one sender's packets leave in logs, and what is true of it.
struct Seen {
    adversaries: Vec<Adversary>,
    /// For each share: whether the adversary runs one of its guards.
    exposed: Vec<bool>,
    /// Packets in each bin.
    sent: Vec<u32>,
    packets: u64,
}

impl<'a> World<'a> {
    fn new(scenario: &'a OnionScenario, shares: &[f64], repetition: u64) -> World<'a> {
        let seed = Rng::indexed(scenario.seed, "repetition", repetition).bits();
        let count = scenario.senders.count as u32;
        let mut destinations: Vec<u32> = (0..count).collect();
        let mut rng = Rng::stream(seed, "destinations");
        (1..destinations.len()).rev().for_each(|place| destinations.swap(place, rng.below(place + 1)));
        let bins = (scenario.duration.as_nanos() / scenario.adversary.bin.as_nanos()) as usize;
        World { scenario, seed, network: Network::new(scenario, seed), shares: shares.to_vec(), destinations, bins }
    }

    /// Sends all packets of one sender.
    fn send(&self, sender: u32) -> Seen {
        let World { scenario, seed, network, .. } = self;
        let mut adversaries: Vec<Adversary> = self
            .shares
            .iter()
            .map(|share| {
                Adversary::new(network.owned(*share), scenario.adversary.bin, self.bins, network.lag(scenario))
            })
            .collect();
        let mut paths = Paths::new(scenario, network, *seed, u64::from(sender));
        let exposed = adversaries.iter().map(|adversary| paths.guards().any(|guard| adversary.owns(guard))).collect();
        let (mut sent, mut packets) = (vec![0; self.bins], 0);
        let mut delays = Rng::indexed(*seed, "mix", u64::from(sender));
        let mut names = Rng::indexed(*seed, "names", u64::from(sender));
        let honest = self.shares.first().map_or(0.0, |share| *share);
        for packet in Packets::new(scenario, *seed, u64::from(sender)) {
            packets += 1;
            if let Some(bin) = sent.get_mut((packet.at.as_nanos() / scenario.adversary.bin.as_nanos()) as usize) {
                *bin += 1;
            }
            let (path, route) = paths.choose(packet.at);
            let mut at = packet.at;
            let mut previous = Party::Sender(sender);
            let mut from = network.sender(sender);
            let mut name = names.bits();
            let mut is_lost = false;
            for (place, &relay) in path.iter().enumerate() {
                at += network.delays.mean(from, network.relay(relay));
                from = network.relay(relay);
                let loss = scenario.overlay.honest_loss;
                is_lost = loss > 0.0 && !network.is_owned(relay, honest) && delays.chance(loss);
                if is_lost {
                    break;
                }
                let came_at = at;
                if scenario.overlay.mix_delay > Duration::ZERO {
                    at += Duration::from_secs_f64(delays.exponential() * scenario.overlay.mix_delay.as_secs_f64());
                }
                let next = match path.get(place + 1) {
                    Some(next) => Party::Relay(*next),
                    None if packet.is_data => Party::Destination(self.destinations[sender as usize]),
                    None => Party::Nobody,
                };
                let next_name = names.bits();
                let record = Record { came_at, left_at: at, relay, previous, next, names: (name, next_name) };
                adversaries.iter_mut().for_each(|adversary| adversary.observe(&record));
                (previous, name) = (Party::Relay(relay), next_name);
            }
            let arrived = (!is_lost).then(|| at + network.delays.mean(from, network.destination(sender)));
            paths.on_outcome(route, packet.at, arrived);
        }
        Seen { adversaries, exposed, sent, packets }
    }

    /// What each adversary makes of its logs, and how often it is right.
    fn evaluate(&self, seen: Vec<Seen>) -> Vec<Found> {
        let evaluate = |place: usize| {
            let mut whole = Adversary::new(
                self.network.owned(self.shares[place]),
                self.scenario.adversary.bin,
                self.bins,
                self.network.lag(self.scenario),
            );
            seen.iter().for_each(|seen| whole.merge(&seen.adversaries[place]));
            let exposed = seen.iter().filter(|seen| seen.exposed[place]).count();
            let packets = seen.iter().map(|seen| seen.packets).sum();
            let sent: Vec<&[u32]> = seen.iter().map(|seen| &*seen.sent).collect();
            found::evaluate(self.scenario, &whole, &self.destinations, &sent, exposed, packets)
        };
        (0..self.shares.len()).into_par_iter().map(evaluate).collect()
    }
}

/// An instant of the run as seconds.
fn seconds(at: Time) -> f64 {
    at.as_secs_f64()
}
