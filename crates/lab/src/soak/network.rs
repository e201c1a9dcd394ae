//! What lies between the nodes of a case: delays alone, or access links with queues that drop.

use anabranch_control::rng::Rng;
use anabranch_control::time::Duration;
use anabranch_control::units::Rate;
use anabranch_sim::access::AccessLinks;
use anabranch_sim::loss::LossModel;
use anabranch_sim::network::{Capacity, Codel, CodelConfig, CodelLaw, Jitter, Limit, LinkConfig};
use anabranch_sim::varying::{Change, Course};
use serde::Serialize;

use super::draw::{log_uniform, now_and_then, seconds};

/// A kind of fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FabricKind {
    /// A delay for every pair of nodes, and no bandwidth.
    Pairs,
    /// An uplink and a downlink for every node, with rates and queues, and a delay between them.
    Access,
}

/// What waits for a link, and when it is dropped.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Queue {
    /// What comes when this many wait.
    Packets(u64),
    /// What would wait for longer.
    Time(Duration),
    /// CoDel (RFC 8289) says, and what comes when this many wait.
    Codel(u64),
}

/// A link of a node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AccessLink {
    /// Its highest rate, and at first.
    pub rate: Rate,
    /// How often the rate is drawn anew, and the lowest; none if it stays.
    pub varies: Option<(Duration, Rate)>,
    /// What waits for it.
    pub queue: Queue,
    /// The share of messages that it loses.
    pub loss: f64,
}

/// Between the nodes.
#[derive(Clone, Debug, PartialEq)]
pub enum Network {
    /// Delays alone.
    Pairs,
    /// Each node's uplink and downlink.
    Access(Vec<[AccessLink; 2]>),
}

impl Network {
    /// Of a case with this many nodes; one in three has access links.
    pub(super) fn draw(rng: &mut Rng, nodes: u32) -> Network {
        if !rng.chance(1.0 / 3.0) {
            return Network::Pairs;
        }
        // Some are the bottleneck, slower than relays' limits and what senders upload at most.
        let all = log_uniform(rng, 5e3, 50e3);
        Network::Access((0..nodes).map(|_| [AccessLink::draw(rng, all), AccessLink::draw(rng, 2.0 * all)]).collect())
    }

    /// Which it is.
    pub fn kind(&self) -> FabricKind {
        match self {
            Network::Pairs => FabricKind::Pairs,
            Network::Access(_) => FabricKind::Access,
        }
    }
}

impl AccessLink {
    fn draw(rng: &mut Rng, all: f64) -> AccessLink {
        let rate = all * libm::exp(2.0 * rng.uniform());
        let queue = match rng.below(3) {
            0 => Queue::Packets(2 + rng.below(30) as u64),
            1 => Queue::Time(seconds(rng, 0.05, 1.0)),
            _ => Queue::Codel(10 + rng.below(100) as u64),
        };
        let lowest = Rate::from_bytes_per_sec_f64(rate * (0.5 + 0.5 * rng.uniform()));
        let varies = rng.chance(0.3).then(|| (seconds(rng, 0.5, 30.0), lowest));
        let loss = now_and_then(rng, 0.05);
        AccessLink { rate: Rate::from_bytes_per_sec_f64(rate), varies, queue, loss }
    }

    fn config(&self, name: &str) -> LinkConfig {
        let change = match self.varies {
            Some((every, low)) => Change::Uniform { every, low, high: self.rate },
            None => Change::Never,
        };
        let codel = |most| CodelConfig { law: CodelLaw::default(), limit: Limit::Packets(most) };
        let (capacity, codel) = match self.queue {
            Queue::Packets(most) => (Capacity::Packets(most), None),
            Queue::Time(longest) => (Capacity::Time(longest), None),
            Queue::Codel(most) => (Capacity::Unlimited, Some(Codel::new(codel(most)))),
        };
        LinkConfig {
            name: name.into(),
            rate: Some(Course { first: self.rate, change }),
            delay: Course::constant(Duration::ZERO),
            capacity,
            discipline: codel.map(|codel| Box::new(codel) as _),
            loss: if self.loss > 0.0 { LossModel::Random(Course::constant(self.loss)) } else { LossModel::None },
            jitter: Jitter::NONE,
        }
    }
}

/// What a node is given.
pub(super) fn own_links([up, down]: &[AccessLink; 2]) -> AccessLinks {
    AccessLinks { up: up.config("up"), down: down.config("down") }
}
