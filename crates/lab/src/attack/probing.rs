//! Clogging relays and looking whether a flow slows down ([Murdoch and Danezis 2005]).
//!
//! The adversary clogs one relay in a random half of the seconds, so that it loses half of the packets
//! that pass it, and counts what arrives: the score is the mean of the other seconds less that of the
//! clogged ones. A flow that passes the relay is told from one that does not by the score; how well
//! is the area under the curve. It needs no relay of its own.

use anabranch_control::rng::Rng;
use anabranch_control::time::{Duration, Time};
use anabranch_scenario::onion::OnionScenario;
use rayon::prelude::*;

use super::found::Probed;
use super::network::Network;
use super::paths::Paths;
use super::scores::auc;
use crate::parallel::Progress;

/// What a clogged relay loses.
const LOSS: f64 = 0.5;

/// A flow's scores: while a relay that may be on its path was clogged, while its first one was, and
/// while none was.
type Reaction = [f64; 3];

/// Probes as many flows as the scenario says; none if it was interrupted.
pub fn run(scenario: &OnionScenario, progress: &Progress) -> Option<Probed> {
    let seed = Rng::stream(scenario.seed, "probes").bits();
    let network = Network::new(scenario, seed);
    let one = |flow: u64| (!progress.is_interrupted()).then(|| probe(scenario, &network, seed, flow));
    let flows = scenario.adversary.probes;
    let reactions: Option<Vec<Reaction>> = (0..flows).into_par_iter().map(one).collect();
    let reactions = reactions?;
    let area = |place: usize| {
        let clogged = reactions.iter().map(|reaction| (reaction[place], true));
        auc(clogged.chain(reactions.iter().map(|reaction| (reaction[2], false))))
    };
    Some(Probed { auc: area(0), auc_first: area(1), flows })
}

/// A flow of packets at random instants, at the senders' rate, three times: the relay that is clogged
/// is one that it may use, its first one, or none.
fn probe(scenario: &OnionScenario, network: &Network, seed: u64, flow: u64) -> Reaction {
    let seconds = (scenario.adversary.probe_time.as_nanos() / Duration::SECOND.as_nanos()) as usize;
    let mut rng = Rng::indexed(seed, "clog", flow);
    // Half of the seconds, in any order.
    let mut clogged: Vec<bool> = (0..seconds).map(|second| second < seconds / 2).collect();
    (1..seconds).rev().for_each(|place| clogged.swap(place, rng.below(place + 1)));
    let mut reaction = [0.0; 3];
    for (place, score) in reaction.iter_mut().enumerate() {
        let mut paths = Paths::new(scenario, network, seed, flow);
        let target = match place {
            // Of a path that it takes: any of the relays of a circuit, any of the network otherwise.
            0 => {
                let (path, route) = paths.choose(Time::ZERO);
                let target = path[rng.below(path.len())];
                paths.on_outcome(route, Time::ZERO, Some(Time::ZERO));
                Some(target)
            }
            1 => Some(paths.choose(Time::ZERO).0[0]),
            _ => None,
        };
        let mut counts = vec![0u32; seconds];
        let mut at = 0.0;
        loop {
            at += rng.exponential() / scenario.senders.packets_per_s;
            let second = at as usize;
            if second >= seconds {
                break;
            }
            let sent_at = Time::from_secs_f64(at);
            let (path, route) = paths.choose(sent_at);
            let passes = target.is_some_and(|target| path.contains(&target));
            let is_lost = passes && clogged[second] && rng.chance(LOSS);
            paths.on_outcome(route, sent_at, (!is_lost).then(|| sent_at + Duration::from_millis(200)));
            counts[second] += u32::from(!is_lost);
        }
        let mean = |is_clogged: bool| {
            let of: Vec<f64> =
                counts.iter().zip(&clogged).filter(|(_, c)| **c == is_clogged).map(|(n, _)| f64::from(*n)).collect();
            of.iter().sum::<f64>() / of.len().max(1) as f64
        };
        *score = mean(false) - mean(true);
    }
    reaction
}
