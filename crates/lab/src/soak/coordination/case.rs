//! What happens in a case: a function of its seed.

use std::sync::Arc;

use anabranch_control::policy::{Activation, Layer, Policy};
use anabranch_control::rng::Rng;
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::{Bytes, Rate};
use anabranch_proto::coordination::coordinator::{CoordinatorConfig, Duty, LinkConfig, Member, Share};
use anabranch_proto::coordination::forecast::Expected;
use anabranch_proto::coordination::message::Actuator;
use anabranch_proto::coordination::policy::{Actuator as PolicyActuator, Agents, Feature, Learned, Sight};
use anabranch_proto::session::PeerKey;

use super::TROUBLED;
use crate::soak::draw::{log_uniform, now_and_then, seconds};

/// Something that goes wrong, or changes.
#[derive(Clone, Debug, PartialEq)]
pub enum Trouble {
    /// These nodes are cut off from the others, or are so no more.
    Cut(Vec<u32>, bool),
    /// The coordinator is gone, without a word.
    CoordinatorDies,
    /// It is back, and knows nothing of its earlier life but that there was one.
    CoordinatorReturns,
    /// An agent is gone, without a word; its flows go on alone.
    AgentDies(u32),
    /// It is back.
    AgentReturns(u32),
    /// A host has this many flows from now on.
    Flows(u32, u32),
    /// Others send so much over a link from now on.
    Other(usize, Rate),
}

/// A case.
#[derive(Clone, Debug)]
pub struct Case {
    /// Its seed.
    pub seed: u64,
    /// The configuration of the coordinator.
    pub config: CoordinatorConfig,
    /// The share of messages that is lost, until it is calm.
    pub loss: f64,
    /// Standard deviation of delays, as a share of the mean.
    pub jitter: f64,
    /// Between nodes.
    pub delay: Duration,
    /// By link, what waits for it at most, and its monitor reports; none where a monitor knows no queue, and all passes as
    /// it comes.
    pub queues: Vec<Option<Bytes>>,
    /// What happens, in order.
    pub troubles: Vec<(Time, Trouble)>,
}

pub(super) fn key_of(node: u32) -> PeerKey {
    let mut key = [0; 32];
    key[..4].copy_from_slice(&node.to_be_bytes());
    PeerKey(key)
}

fn rate(rng: &mut Rng, low: f64, high: f64) -> Rate {
    Rate::from_bits_per_sec(log_uniform(rng, low, high) as u64)
}

impl Case {
    /// The case of `seed`.
    pub fn draw(seed: u64) -> Case {
        let rng = &mut Rng::stream(seed, "soaked coordination");
        let links: Vec<LinkConfig> = (0..1 + rng.below(3))
            .map(|link| LinkConfig { name: format!("link {link}"), capacity: rate(rng, 1e6, 1e9), queue: None })
            .collect();
        let hosts = log_uniform(rng, 1.0, 40.0) as usize;
        let mut members = Vec::new();
        for host in 0..hosts {
            let link = rng.below(links.len());
            let capacity = links[link].capacity.bits_per_sec() as f64;
            let least = if rng.chance(0.3) { rate(rng, 1e3, capacity / hosts as f64) } else { Rate::ZERO };
            let most = if rng.chance(0.3) { rate(rng, 0.01 * capacity, 2.0 * capacity) } else { links[link].capacity };
            let duty = Duty::Host { link, least: least.min(most), most, most_flows: 1 + rng.below(100) as u32 };
            members.push(Member { name: format!("host {host}"), key: key_of(members.len() as u32 + 1), duty });
        }
        for link in 0..links.len() {
            if rng.chance(0.7) {
                let key = key_of(members.len() as u32 + 1);
                members.push(Member { name: format!("monitor {link}"), key, duty: Duty::Monitor { link } });
            }
        }
        let mut troubles = Case::draw_troubles(rng, &links, members.len() as u32, hosts as u32);
        troubles.sort_by_key(|(at, _)| *at);
        let mut config = CoordinatorConfig {
            epoch: 1,
            every: seconds(rng, 0.02, 0.5),
            utilisation: 0.8 + 0.2 * rng.uniform(),
            actuator: [Actuator::Maximum, Actuator::Fixed, Actuator::Rate][rng.below(3)],
            share: [Share::PerFlow, Share::PerHost][rng.below(2)],
            expected: Expected::default(),
            links,
            members,
            policy: None,
        };
        let (loss, jitter) = (now_and_then(rng, 0.5), now_and_then(rng, 1.0));
        let delay = seconds(rng, 0.0001, 0.1);
        if rng.chance(0.3) {
            let learned = draw_policy(rng, config.every);
            config.actuator = learned.actuator();
            config.policy = Some(Arc::new(learned));
        }
        config.expected = Expected::ALL[rng.below(Expected::ALL.len())].1;
        let queue = |link: &LinkConfig| rng.chance(0.5).then(|| link.capacity * seconds(rng, 0.005, 0.5));
        let queues = config.links.iter().map(queue).collect();
        Case { seed, config, loss, jitter, delay, queues, troubles }
    }

    fn draw_troubles(rng: &mut Rng, links: &[LinkConfig], members: u32, hosts: u32) -> Vec<(Time, Trouble)> {
        let mut troubles = Vec::new();
        let when = |rng: &mut Rng| Time::from_secs_f64(rng.uniform() * TROUBLED.as_secs_f64());
        let end = Time::ZERO + TROUBLED;
        for _ in 0..rng.below(5) {
            let (at, span) = (when(rng), seconds(rng, 0.1, 30.0));
            let nodes: Vec<u32> = (0..=members).filter(|_| rng.chance(0.3)).collect();
            troubles.push((at, Trouble::Cut(nodes.clone(), true)));
            troubles.push(((at + span).min(end), Trouble::Cut(nodes, false)));
        }
        // One life after the other.
        let mut lives = |rng: &mut Rng, most: usize, dies: Trouble, returns: Trouble| {
            let mut at = Time::ZERO;
            for _ in 0..rng.below(most) {
                let dead = at + seconds(rng, 0.1, 30.0);
                let back = dead + seconds(rng, 0.001, 20.0);
                if back >= end {
                    return;
                }
                troubles.push((dead, dies.clone()));
                troubles.push((back, returns.clone()));
                at = back;
            }
        };
        lives(rng, 4, Trouble::CoordinatorDies, Trouble::CoordinatorReturns);
        for node in 1..=members {
            if rng.chance(0.2) {
                lives(rng, 3, Trouble::AgentDies(node), Trouble::AgentReturns(node));
            }
        }
        for host in 1..=hosts {
            for _ in 0..rng.below(6) {
                troubles.push((when(rng), Trouble::Flows(host, rng.below(8) as u32)));
            }
        }
        for (number, link) in links.iter().enumerate() {
            for _ in 0..rng.below(4) {
                let most = link.capacity.bits_per_sec() as f64;
                troubles.push((when(rng), Trouble::Other(number, rate(rng, 0.001 * most, most))));
            }
        }
        troubles
    }
}

/// A policy that sees what hosts report, and says anything.
fn draw_policy(rng: &mut Rng, interval: Duration) -> Learned {
    let features = vec![
        Feature::Throughput,
        Feature::Active,
        Feature::Flows,
        Feature::PreviousRate,
        Feature::Hosts,
        Feature::PromptRate,
    ];
    let (history, delay) = (1 + rng.below(3), rng.below(3));
    let inputs = features.len() * history;
    let weights = (0..inputs).map(|_| (4.0 * rng.uniform() - 2.0) as f32).collect();
    let layers = vec![Layer { weights, biases: vec![rng.uniform() as f32] }];
    let policy = Policy::new(layers, Activation::Tanh, vec![0.0; inputs], vec![1.0; inputs]);
    let policy = policy.expect("a layer of as many weights as inputs");
    let actuators = [PolicyActuator::Fixed, PolicyActuator::Bounded, PolicyActuator::Rate, PolicyActuator::Share];
    let actuator = [&actuators[..], &[PolicyActuator::Lent]].concat()[rng.below(5)];
    let sight = Sight { link: 0, interval, actuator, features, history, delay, agents: Agents::Hosts };
    Learned { name: "drawn".into(), policy, sight }
}
