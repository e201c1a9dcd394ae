//! How often the adversary is right.
//!
//! Entropy ([Serjantov and Danezis 2002]) and degree ([Díaz et al. 2002]) are those of who a
//! destination's sender may be, as the adversary believes after Bayes with all senders equally likely
//! before:
//!
//! ```text
//! z = atanh r,   μ = atanh √((1 − 1/Dx)(1 − 1/Dy)),   D = Var / mean of a series of counts
//! P(i | j) ∝ exp((z μ − μ² / 2) / σ²)        σ²: variance of z over all pairs; 1 where i was not seen
//! H = −Σ P log₂ P,   d = H / log₂ N
//! ```
//!
//! μ is what correlation a true pair would have: of a series that is counted in part only, D − 1 is that
//! part of the whole's. All of it is in the logs.

use std::collections::BTreeMap;

use anabranch_control::time::Time;
use anabranch_scenario::onion::{Mode, OnionScenario};
use anabranch_stats::percentile;
use serde::Serialize;

use super::adversary::Adversary;
use super::scores::{Scores, auc};
use super::{seconds, theory};

/// At this many instants of a run the adversary's ranking is looked at.
const LOOKS: usize = 12;

/// Correlations are kept this far from 1, where `atanh` ends.
const NEARLY_ONE: f64 = 0.999_999;

/// No likelihood ratio is taken for more than e to this.
const MOST_CERTAIN: f64 = 500.0;

/// What one adversary finds.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Found {
    /// The share of the relays that it runs, c/n.
    pub share: f64,
    /// How many those are, c.
    pub relays: usize,
    /// Flows, over all repetitions.
    pub flows: usize,
    /// Of the senders, those of whom it runs a guard.
    pub exposed: f64,
    /// The same by 1 − (1 − p)^g.
    pub exposed_expected: f64,
    /// The deviation of that for this many senders.
    pub exposed_sigma: f64,
    /// The mean correlation of true pairs of which it sees both sides; none if there is none.
    pub correlation: Option<f64>,
    /// The same by pF/(1 + pF), where first and last relay are others for every packet.
    pub correlation_expected: Option<f64>,
    /// F, variance over mean of the packets that a sender sends in a bin.
    pub burstiness: f64,
    /// Flows that it links: by counts or by name.
    pub linked: f64,
    /// Those that it links by counts, at the threshold for the false positives that it accepts.
    pub linked_by_counts: f64,
    /// Those of which it could follow a packet all the way.
    pub traced: f64,
    /// Wrong pairs above the threshold.
    pub false_positives: f64,
    /// The probability that a true pair scores above a wrong one.
    pub auc: f64,
    /// The mean rank of the true sender among all, from 1.
    pub rank: f64,
    /// Mean entropy of a flow's sender, in bits.
    pub entropy_bits: f64,
    /// Mean of entropy over that of N equal senders.
    pub degree: f64,
    /// Flows whose sender it knew to the end within the run.
    pub predecessor_found: f64,
    /// The median of the time after which their senders were first in its ranking and stayed there, in
    /// seconds; none if no flow's sender was.
    pub predecessor_s: Option<f64>,
    /// By theory: the mean time until it sees both ends of a packet, in seconds; none if it may never.
    pub both_ends_s: Option<f64>,
    /// The part of all packets' hops that its relays carry.
    pub attracted: f64,
    /// Goodput of one sender's download by theory, in bytes a second.
    pub goodput_bytes_per_s: f64,
    /// What probing tells, if it was tried.
    pub probed: Option<Probed>,
}

/// How well the adversary tells a flow that passes a clogged relay from one that doesn't.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Probed {
    /// The probability that a flow that passes the relay reacts more than one that does not, for a relay
    /// that may be on the flow's paths.
    pub auc: f64,
    /// The same for a first relay of the flow: a guard, or a circuit's.
    pub auc_first: f64,
    /// Flows probed.
    pub flows: u64,
}

/// What the adversary makes of its logs. `destinations` is the truth: whom each sender sends to.
pub fn evaluate(
    scenario: &OnionScenario,
    adversary: &Adversary,
    destinations: &[u32],
    sent: &[&[u32]],
    exposed: usize,
    packets: u64,
) -> Found {
    let count = destinations.len();
    let bins = sent.first().map_or(0, |bins| bins.len());
    let scores = Scores::correlations(adversary, count, bins);
    let threshold = scores.threshold(destinations, scenario.adversary.false_positives);
    let own = |sender: usize| scores.get(sender, destinations[sender] as usize);
    let is_traced = |sender: usize| adversary.traced.contains_key(&(sender as u32, destinations[sender]));
    let part = |is: &dyn Fn(usize) -> bool| (0..count).filter(|sender| is(*sender)).count() as f64 / count as f64;
    let by_counts = |sender: usize| own(sender) > threshold;
    let wrong = scores.pairs(destinations).filter(|(score, is_true)| !is_true && *score > threshold).count();
    let seen: Vec<f64> = (0..count).map(own).filter(|score| score.is_finite()).collect();
    let relays = adversary.relays();
    let overlay = &scenario.overlay;
    let p = relays as f64 / overlay.relays as f64;
    let burstiness = burstiness(sent);
    let expected = theory::exposure(p, first_relays(scenario));
    let is_letter = overlay.mode == Mode::PerPacket && overlay.guards == 0 && overlay.far_guards == 0;
    let entropies = entropies(&scores, adversary, bins);
    let mut times = predecessor_times(scenario, adversary, destinations, bins);
    times.sort_unstable_by(f64::total_cmp);
    Found {
        share: p,
        relays,
        flows: count,
        exposed: exposed as f64 / count as f64,
        exposed_expected: expected,
        exposed_sigma: libm::sqrt(expected * (1.0 - expected) / count as f64),
        correlation: (!seen.is_empty()).then(|| seen.iter().sum::<f64>() / seen.len() as f64),
        correlation_expected: is_letter.then(|| theory::correlation(p, burstiness)),
        burstiness,
        linked: part(&|sender| by_counts(sender) || is_traced(sender)),
        linked_by_counts: part(&by_counts),
        traced: part(&is_traced),
        false_positives: wrong as f64 / (count * (count - 1)) as f64,
        auc: auc(scores.pairs(destinations)),
        rank: (0..count).map(|sender| scores.rank(sender, destinations[sender] as usize)).sum::<f64>() / count as f64,
        entropy_bits: entropies.iter().sum::<f64>() / count as f64,
        degree: entropies.iter().sum::<f64>() / count as f64 / libm::log2(count as f64),
        predecessor_found: times.len() as f64 / count as f64,
        predecessor_s: percentile(&times, 0.5),
        both_ends_s: theory::both_ends_s(scenario, p),
        attracted: adversary.records as f64 / (packets * overlay.path()) as f64,
        goodput_bytes_per_s: theory::goodput(scenario).bytes_per_sec(),
        probed: None,
    }
}

/// How many relays a sender's packets enter by, for as long as it sends.
fn first_relays(scenario: &OnionScenario) -> u64 {
    match scenario.overlay.mode {
        Mode::PerPacket => scenario.overlay.guards,
        Mode::Circuit => 1,
        Mode::TwoLegs => 2,
    }
}

/// Variance over mean of the packets in a bin, over all senders and bins.
fn burstiness(sent: &[&[u32]]) -> f64 {
    let all = || sent.iter().flat_map(|bins| bins.iter().map(|count| f64::from(*count)));
    let count = all().count() as f64;
    let mean = all().sum::<f64>() / count;
    all().map(|value| (value - mean) * (value - mean)).sum::<f64>() / count / mean
}

/// For each destination, how much the adversary does not know of its sender, in bits.
fn entropies(scores: &Scores, adversary: &Adversary, bins: usize) -> Vec<f64> {
    let count = scores.count;
    // The part of a series' variance that is not the noise of counting.
    let signal = |series: &BTreeMap<u32, Vec<u32>>| -> Vec<f64> {
        let of = |party: usize| {
            series.get(&(party as u32)).map_or(0.0, |counts| {
                let fano = burstiness(&[&counts[..bins]]);
                if fano > 1.0 { 1.0 - 1.0 / fano } else { 0.0 }
            })
        };
        (0..count).map(of).collect()
    };
    let (entered, left) = (signal(&adversary.entered), signal(&adversary.left));
    let fisher = |r: f64| libm::atanh(r.clamp(-NEARLY_ONE, NEARLY_ONE));
    let seen: Vec<f64> = scores.of.iter().filter(|score| score.is_finite()).map(|score| fisher(*score)).collect();
    let variance = seen.iter().map(|z| z * z).sum::<f64>() / seen.len().max(1) as f64;
    let mut senders_of: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for (sender, destination) in adversary.traced.keys() {
        senders_of.entry(*destination).or_default().push(*sender);
    }
    let entropy = |destination: usize| {
        // A packet that was followed all the way leaves no doubt.
        if senders_of.contains_key(&(destination as u32)) {
            return 0.0;
        }
        let weight = |sender: usize| {
            let score = scores.get(sender, destination);
            let mean = fisher(libm::sqrt(entered[sender] * left[destination]));
            match score.is_finite() && variance > 0.0 {
                true => ((fisher(score) * mean - mean * mean / 2.0) / variance).clamp(-MOST_CERTAIN, MOST_CERTAIN),
                false => 0.0,
            }
        };
        let logs: Vec<f64> = (0..count).map(weight).collect();
        let most = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let weights: Vec<f64> = logs.iter().map(|log| libm::exp(log - most)).collect();
        let total: f64 = weights.iter().sum();
        let part = |weight: &f64| {
            let p = weight / total;
            if p > 0.0 { -p * libm::log2(p) } else { 0.0 }
        };
        weights.iter().map(part).sum()
    };
    (0..count).map(entropy).collect()
}

/// For each flow whose sender the adversary knows in the end: from when on it was first in the ranking.
fn predecessor_times(scenario: &OnionScenario, adversary: &Adversary, destinations: &[u32], bins: usize) -> Vec<f64> {
    let count = destinations.len();
    let mut since: Vec<Option<f64>> = vec![None; count];
    for look in 1..=LOOKS {
        let so_far = bins * look / LOOKS;
        let at = scenario.adversary.bin.as_secs_f64() * so_far as f64;
        // Of fewer bins nothing follows.
        if so_far < 3 {
            continue;
        }
        let scores = Scores::correlations(adversary, count, so_far);
        for (sender, since) in since.iter_mut().enumerate() {
            let traced = adversary.traced.get(&(sender as u32, destinations[sender]));
            let is_traced = traced.is_some_and(|(_, first)| *first <= Time::from_secs_f64(at));
            let is_seen = scores.get(sender, destinations[sender] as usize).is_finite();
            let is_first = is_traced || (is_seen && scores.rank(sender, destinations[sender] as usize) == 1.0);
            let when = traced.filter(|_| is_traced).map_or(at, |(_, first)| seconds(*first));
            *since = is_first.then(|| since.unwrap_or(when));
        }
    }
    since.into_iter().flatten().collect()
}

impl Found {
    /// The mean of several repetitions, each of as many flows.
    pub fn of(all: &[Found]) -> Found {
        let first = &all[0];
        let mean = |of: fn(&Found) -> f64| all.iter().map(of).sum::<f64>() / all.len() as f64;
        let mean_of_some = |of: fn(&Found) -> Option<f64>| {
            let some: Vec<f64> = all.iter().filter_map(of).collect();
            (!some.is_empty()).then(|| some.iter().sum::<f64>() / some.len() as f64)
        };
        Found {
            flows: all.iter().map(|found| found.flows).sum(),
            exposed: mean(|found| found.exposed),
            exposed_sigma: first.exposed_sigma / libm::sqrt(all.len() as f64),
            correlation: mean_of_some(|found| found.correlation),
            correlation_expected: mean_of_some(|found| found.correlation_expected),
            burstiness: mean(|found| found.burstiness),
            linked: mean(|found| found.linked),
            linked_by_counts: mean(|found| found.linked_by_counts),
            traced: mean(|found| found.traced),
            false_positives: mean(|found| found.false_positives),
            auc: mean(|found| found.auc),
            rank: mean(|found| found.rank),
            entropy_bits: mean(|found| found.entropy_bits),
            degree: mean(|found| found.degree),
            predecessor_found: mean(|found| found.predecessor_found),
            predecessor_s: mean_of_some(|found| found.predecessor_s),
            attracted: mean(|found| found.attracted),
            ..first.clone()
        }
    }
}
