//! An onion overlay in the simulated world: relays with limits, exits, and users who download through them, with
//! the machines that run on sockets.

pub mod hidden;
mod node;

use std::sync::Arc;

use anabranch_control::rng::Rng;
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::Rate;
use anabranch_onion::RelayIndex;
use anabranch_onion::crypto::Cryptography;
use anabranch_onion::directory::{
    Descriptor, Document, DocumentHash, EpochKey, ExitPolicy, Member, SecretKey, UnixTime,
};
use anabranch_onion::guards::GuardState;
use anabranch_onion::node::{
    Destination, EXIT, Members, RelayNode, RelayNodeCounts, SessionService, User, UserCounts, UserSettings,
};
use anabranch_onion::relay::{EpochKeys, Limits, Relay};
use anabranch_onion::routes::PlacementError;
use anabranch_onion::session::{Entropy, Rates, ServiceSecret};
use anabranch_proto::limiter::LimitModel;
use anabranch_sim::fabric::NodeId;
use anabranch_sim::pairs::{Letter, Pairs, PairsConfig};

pub use node::{Downloaded, Wish};
use node::{Downloader, ExitRelay, OnionNode, address};

use crate::world::{Observer, OnTheWire, World};

/// The epoch that all of a run is in.
const EPOCH: u64 = 1;

/// A run.
#[derive(Clone, Debug)]
pub struct OnionRun {
    /// Relays, each an exit as well; more than guards.
    pub relays: u16,
    /// What each relay takes, and how it holds to that; none for no limit.
    pub limit: Option<(LimitModel, Rate)>,
    /// Users, each of whom downloads from an exit by turns.
    pub users: u32,
    /// How they choose.
    pub settings: UserSettings,
    /// How fast they send and are answered.
    pub rates: Rates,
    /// What each of them wants.
    pub wish: Wish,
    /// They begin one after the other, all in this time.
    pub begin_within: Duration,
    /// What is between nodes.
    pub pairs: PairsConfig,
    /// The share of relays that drop all that they should forward.
    pub droppers: f64,
    /// What all draws follow from.
    pub seed: u64,
}

/// What a user reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserOutcome {
    /// What it has.
    pub downloaded: Downloaded,
    /// In packets.
    pub counts: UserCounts,
}

/// A run that goes on: the world, and who is in it.
pub struct OnionWorld<C: Cryptography, O = ()> {
    world: World<OnionNode<C>, Pairs<Letter<Vec<u8>>>, OnTheWire, O>,
    relays: u16,
    users: u32,
}

impl<C: Cryptography, O: Observer<OnionNode<C>>> OnionWorld<C, O> {
    /// All nodes are there; nothing has happened yet.
    ///
    /// # Errors
    ///
    /// What is wrong with how users choose.
    pub fn new(run: &OnionRun, observer: O) -> Result<OnionWorld<C, O>, PlacementError> {
        let relays = usize::from(run.relays);
        let pairs = Pairs::new(run.pairs.clone(), relays + run.users as usize, run.seed);
        let mut world = World::new(pairs, OnTheWire, observer, ());
        let (document, made) = network::<C>(run.relays, run.seed);
        let document = Arc::new(document);
        let addresses: Vec<_> = document.relays().map(|(_, member)| member.descriptor.address).collect();
        let mut by_node: Vec<Option<(RelayIndex, Made<C>)>> = (0..relays).map(|_| None).collect();
        for (place, made) in made.into_iter().enumerate() {
            let node = made.node as usize;
            by_node[node] = Some((RelayIndex(place as u16), made));
        }
        let mut services = vec![None; relays];
        let mut rng = Rng::stream(run.seed, "onion");
        for (number, slot) in by_node.into_iter().enumerate() {
            let (own, made) = slot.expect("each relay is at a node of its own");
            services[usize::from(own.0)] = Some(made.service.keys());
            let keys = EpochKeys { epoch: EPOCH, secret: made.secret, members: run.relays, own: Some(own) };
            let packets = run.settings.packets_per_key;
            let relay = Relay::new(packets, Limits::simulated(packets), keys, [rng.bits(), rng.bits()]);
            let entropy = Entropy(seed_of(&mut rng));
            let service = SessionService::new(EXIT, made.service, run.settings.secrecy, entropy);
            let mut node = RelayNode::new(relay, Members::new(EPOCH, addresses.clone()), service);
            if let Some((model, limit)) = run.limit {
                node = node.limited(model, limit);
            }
            let mut relay = ExitRelay::new(node);
            relay.drops = Rng::indexed(run.seed, "onion/droppers", number as u64).uniform() < run.droppers;
            world.join(OnionNode::Relay(Box::new(relay)));
        }
        for number in 0..run.users {
            let rng = Rng::indexed(run.seed, "onion/user", u64::from(number));
            let wall = UnixTime(EPOCH * 3600);
            let (settings, document) = (run.settings.clone(), Arc::clone(&document));
            let user = User::new(settings, document, GuardState::default(), Time::ZERO, wall, rng)?;
            // A user's guards are no exits of it.
            let exits = (0..run.relays).map(|at| RelayIndex(((u32::from(at) + number) % u32::from(run.relays)) as u16));
            let relay = exits.into_iter().find(|relay| !user.choice().reserved.contains(relay));
            let relay = relay.expect("there are more relays than a user has guards");
            let keys = services[usize::from(relay.0)].clone().expect("each relay has a service");
            let destination = Destination { relay, label: EXIT, keys };
            let begins = Time::ZERO + Duration::SECOND + run.begin_within * u64::from(number) / u64::from(run.users);
            let downloader = Downloader::new(user, destination, run.rates.clone(), run.wish, begins);
            world.join(OnionNode::User(Box::new(downloader)));
        }
        Ok(OnionWorld { world, relays: run.relays, users: run.users })
    }

    /// Lets everything happen that happens before `until`.
    pub fn step(&mut self, until: Time) {
        self.world.step(until);
    }

    /// A relay is gone, without a word.
    pub fn kill(&mut self, node: u16) {
        self.world.leave(NodeId(u32::from(node)));
    }

    /// Events so far.
    pub fn events(&self) -> u64 {
        self.world.counters().events
    }

    /// Who sees what happens.
    pub fn observer(&self) -> &O {
        self.world.observer()
    }

    /// What users have, in their order.
    pub fn users(&self) -> impl Iterator<Item = UserOutcome> + '_ {
        (0..self.users).filter_map(|user| match self.world.node(NodeId(u32::from(self.relays) + user))? {
            OnionNode::User(user) => Some(UserOutcome { downloaded: user.has, counts: *user.user.counts() }),
            OnionNode::Relay(_) => None,
        })
    }

    /// What relays that are there have done, in the order of their nodes.
    pub fn relays(&self) -> impl Iterator<Item = (RelayNodeCounts, anabranch_onion::relay::Counts)> + '_ {
        (0..self.relays).filter_map(|node| match self.world.node(NodeId(u32::from(node)))? {
            OnionNode::Relay(relay) => Some((*relay.node.counts(), *relay.node.relay().counts())),
            OnionNode::User(_) => None,
        })
    }
}

/// What is known of one relay before it runs.
struct Made<C: Cryptography> {
    node: u32,
    secret: C::Secret,
    service: ServiceSecret,
}

fn seed_of(rng: &mut Rng) -> [u8; 32] {
    let mut seed = [0; 32];
    seed.chunks_exact_mut(8).for_each(|bytes| bytes.copy_from_slice(&rng.bits().to_le_bytes()));
    seed
}

/// The relays' document, and what each relay of it is, in its order.
fn network<C: Cryptography>(relays: u16, seed: u64) -> (Document, Vec<Made<C>>) {
    let mut all: Vec<(Member, Made<C>)> = (0..u32::from(relays))
        .map(|node| {
            let mut rng = Rng::indexed(seed, "onion/relay", u64::from(node));
            let identity = SecretKey::from_seed(&seed_of(&mut rng)).public();
            let secret = C::secret(&seed_of(&mut rng));
            let epoch_keys = vec![EpochKey { epoch: EPOCH, key: C::public(&secret).0 }];
            let service = ServiceSecret::from_seed(&seed_of(&mut rng));
            let descriptor = Descriptor {
                identity,
                published: UnixTime(0),
                address: address(node),
                bytes_per_s: 1_000_000,
                epoch_keys,
                family: None,
                exit: ExitPolicy::default(),
                service: None,
            };
            let member = Member { descriptor, since: UnixTime(0), weight: 1_000_000, guard: true };
            (member, Made { node, secret, service })
        })
        .collect();
    all.sort_by_key(|(member, _)| member.descriptor.identity);
    let (members, made) = all.into_iter().unzip();
    let document = Document {
        epoch: EPOCH,
        valid_from: UnixTime(EPOCH * 3600),
        valid_until: UnixTime((EPOCH + 3) * 3600),
        previous: DocumentHash::default(),
        members,
    };
    (document, made)
}

#[cfg(test)]
mod tests;
