//! The relays, whose they are, and where all stand.

use anabranch_control::rng::Rng;
use anabranch_control::time::Duration;
use anabranch_onion::RelayIndex;
use anabranch_onion::directory::{
    Descriptor, Document, DocumentHash, EpochKey, ExitPolicy, Member, PublicKey, Terms, UnixTime,
};
use anabranch_scenario::onion::OnionScenario;
use anabranch_sim::delay::{DelayModel, Delays};

/// The epoch of the document, and what is on the wall in it.
const EPOCH: u64 = 1;
pub const WALL: UnixTime = UnixTime(1_000_000_000);

/// Pairs of which the mean delay is taken.
const PAIRS: usize = 2_000;

/// What all senders and adversaries share.
pub struct Network {
    pub document: Document,
    /// The rank of each relay in the order in which an adversary takes them: a larger one runs those of
    /// a smaller one too.
    ranks: Vec<usize>,
    pub delays: Delays,
    senders: u32,
    mean_hop: Duration,
}

impl Network {
    pub fn new(scenario: &OnionScenario, seed: u64) -> Network {
        let relays = scenario.overlay.relays as usize;
        let mut order: Vec<usize> = (0..relays).collect();
        let mut rng = Rng::stream(seed, "adversary");
        (1..relays).rev().for_each(|place| order.swap(place, rng.below(place + 1)));
        let mut ranks = vec![0; relays];
        order.iter().enumerate().for_each(|(rank, relay)| ranks[*relay] = rank);
        let senders = scenario.senders.count as u32;
        let model = DelayModel::Plane { span: scenario.overlay.span, access: scenario.overlay.access, stretch: 1.0 };
        let delays = Delays::new(&model, relays + 2 * senders as usize, seed);
        let total: u64 =
            (0..PAIRS).map(|_| delays.mean(rng.below(relays) as u32, rng.below(relays) as u32).as_nanos()).sum();
        let mean_hop = Duration::from_nanos(total / PAIRS as u64);
        Network { document: document(relays), ranks, delays, senders, mean_hop }
    }

    /// Which relays an adversary of this share runs.
    pub fn owned(&self, share: f64) -> Vec<bool> {
        (0..self.ranks.len()).map(|relay| self.is_owned(RelayIndex(relay as u16), share)).collect()
    }

    pub fn is_owned(&self, relay: RelayIndex, share: f64) -> bool {
        self.ranks[usize::from(relay.0)] < owned_count(share, self.ranks.len())
    }

    /// What passes on average between a packet's arrival at its first relay and its departure from its
    /// last: anybody can find that out by sending packets.
    pub fn lag(&self, scenario: &OnionScenario) -> Duration {
        let hops = scenario.overlay.path();
        Duration::from_nanos((hops - 1) * self.mean_hop.as_nanos() + hops * scenario.overlay.mix_delay.as_nanos())
    }

    pub fn relay(&self, relay: RelayIndex) -> u32 {
        u32::from(relay.0)
    }

    pub fn sender(&self, sender: u32) -> u32 {
        self.ranks.len() as u32 + sender
    }

    pub fn destination(&self, sender: u32) -> u32 {
        self.ranks.len() as u32 + self.senders + sender
    }
}

/// How many of `relays` a share is.
pub fn owned_count(share: f64, relays: usize) -> usize {
    (share * relays as f64).round() as usize
}

/// Relays of equal weight that are old enough for anything, each in a network of its own.
fn document(relays: usize) -> Document {
    let member = |number: usize| {
        let [high, low] = (number as u16).to_be_bytes();
        let mut identity = [0; 32];
        identity[..2].copy_from_slice(&[high, low]);
        let descriptor = Descriptor {
            identity: PublicKey(identity),
            published: UnixTime(0),
            address: ([10, high, low, 1], 4000).into(),
            bytes_per_s: 1_000_000,
            epoch_keys: vec![EpochKey { epoch: EPOCH, key: identity }],
            family: None,
            exit: ExitPolicy::default(),
            service: None,
        };
        Member { descriptor, since: UnixTime(0), weight: 1_000_000, guard: true }
    };
    Document {
        epoch: EPOCH,
        valid_from: UnixTime(0),
        valid_until: UnixTime(3_600),
        previous: DocumentHash::default(),
        terms: Terms::default(),
        members: (0..relays).map(member).collect(),
    }
}
