//! An onion overlay in the simulated world: relays with limits, exits, and users who download through them, with
//! the machines that run on sockets.

mod account;
pub mod hidden;
mod limit;
pub mod memory;
mod node;
mod observation;
mod run;
mod run_files;
mod totals;

use std::collections::BTreeMap;
use std::sync::Arc;

use anabranch_control::rng::Rng;
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::Rate;
use anabranch_onion::RelayIndex;
use anabranch_onion::crypto::Cryptography;
use anabranch_onion::directory::{
    Descriptor, Document, DocumentHash, EpochKey, ExitPolicy, Family, Member, PublicKey, SecretKey, Terms, UnixTime,
};
use anabranch_onion::guards::GuardState;
use anabranch_onion::node::{
    Cover, Destination, EXIT, Members, RelayNode, RelayNodeCounts, SessionService, User, UserCounts, UserSettings,
};
use anabranch_onion::relay::{EpochKeys, Limits, Relay};
use anabranch_onion::routes::PlacementError;
use anabranch_onion::session::{Entropy, ServiceSecret};
use anabranch_proto::limiter::LimitModel;
use anabranch_scenario::overlay::LimitKind;
use anabranch_sim::fabric::NodeId;
use anabranch_sim::pairs::{Letter, Pairs, PairsConfig};

pub use account::Account;
pub use limit::Cells;
pub use node::{Downloaded, OnionNode, Wish};
use node::{Downloader, ExitRelay, address};
use observation::Observed;
pub use observation::{OBSERVATION, OBSERVATION_LENGTH};
pub use run::{OnionMeasured, OnionMetrics, OnionRunError, OnionSecond, UserRates, run};
pub use totals::{Draws, OnionTotals};

use crate::monitor::Monitor;
use crate::world::{Observer, OnTheWire, World};

/// The epoch that a run begins in.
const EPOCH: u64 = 1;

/// For how long relays take packets of an epoch after the next has begun.
const GRACE: Duration = Duration::from_millis(600_000);

/// When the first user begins.
const BEGINS: Duration = Duration::SECOND;

/// A run.
#[derive(Clone, Debug)]
pub struct OnionRun {
    /// Relays, each an exit as well; more than guards.
    pub relays: u16,
    /// What each relay takes, and how it holds to that; none for no limit.
    pub limit: Option<(LimitKind, Rate)>,
    /// Relays of each family, of which a path has one; with 1 there are no families.
    pub per_family: u16,
    /// Users, each of whom downloads from an exit by turns.
    pub users: u32,
    /// How they choose.
    pub settings: UserSettings,
    /// What hides when they send.
    pub cover: Cover,
    /// How fast they send and are answered.
    pub rates: UserRates,
    /// What each of them wants.
    pub wish: Wish,
    /// The share of them that only receive; the others upload without end as well.
    pub receive_only: f64,
    /// They begin one after the other, all in this time.
    pub begin_within: Duration,
    /// What is between nodes.
    pub pairs: PairsConfig,
    /// Relays that drop all that they should forward.
    pub droppers: u16,
    /// Relays that take whatever comes, without a limit.
    pub greedy: u16,
    /// Relays that [`OnionWorld::kill_dying`] kills. Services are at none of these three kinds.
    pub dying: u16,
    /// Stalls before then do not count.
    pub counts_from: Time,
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
    /// How long the download took, once it was whole.
    pub took: Option<Duration>,
}

impl UserOutcome {
    /// How long the download took, if it is whole.
    pub fn took(&self) -> Option<Duration> {
        self.took
    }
}

/// What a relay does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Honest,
    Dropper,
    Greedy,
    Dying,
}

type Network<C, O> = World<OnionNode<C>, Pairs<Letter<Vec<u8>>>, OnTheWire, O>;

/// A run that goes on: the world, and who is in it.
pub struct OnionWorld<C: Cryptography, O = ()> {
    world: Network<C, O>,
    run: OnionRun,
    relays: u32,
    users: u32,
    document: Arc<Document>,
    /// What each relay does, by its place in the document.
    parts: Vec<Part>,
    /// The nodes of those that are to die, and what was killed.
    dying: Vec<u32>,
    dead: BTreeMap<u32, OnionNode<C>>,
    /// Each user when it was observed last.
    observed: Vec<Observed>,
}

impl<C: Cryptography, O: Observer<OnionNode<C>>> OnionWorld<C, O> {
    /// All nodes are there; nothing has happened yet.
    ///
    /// # Errors
    ///
    /// What is wrong with how users choose.
    pub fn new(run: &OnionRun, observer: O) -> Result<OnionWorld<C, O>, OnionRunError> {
        let nodes = usize::from(run.relays) + run.users as usize;
        let pairs = Pairs::new(run.pairs.clone(), nodes, run.seed);
        let mut world = World::new(pairs, OnTheWire, observer, ());
        let Joined { document, parts, dying } = join_all(&mut world, run)?;
        Ok(OnionWorld {
            world,
            run: run.clone(),
            relays: u32::from(run.relays),
            users: run.users,
            document,
            parts,
            dying,
            dead: BTreeMap::new(),
            observed: vec![Observed::default(); run.users as usize],
        })
    }

    /// Back to the beginning, with what chance is with `seed`: what one that is new has with that seed. The world's
    /// memory stays; relays and users are made anew. Whoever observes is not reset.
    pub fn reset(&mut self, seed: u64) {
        self.run.seed = seed;
        self.world.reset(seed);
        let joined = join_all(&mut self.world, &self.run);
        let joined = joined.expect("what users choose was accepted before, and chance does not change that");
        (self.document, self.parts, self.dying) = (joined.document, joined.parts, joined.dying);
        self.dead.clear();
        self.observed.fill(Observed::default());
    }

    /// Another epoch begins at once for all relays, of which `unlisted` are in its list no more, and for users after
    /// `later`; so relays have other indices.
    ///
    /// # Errors
    ///
    /// None that [`OnionWorld::new`] has not had.
    pub fn begin_epoch(&mut self, unlisted: &[u16], later: Duration) -> Result<(), PlacementError> {
        let (document, keys) = next_epoch::<C>(&self.document, unlisted, self.relays, self.run.seed);
        let addresses: Vec<_> = document.members.iter().map(|member| member.descriptor.address).collect();
        for (node, keys) in (0..).zip(keys) {
            self.world.act(NodeId(node), |machine, now, _| {
                if let OnionNode::Relay(relay) = machine {
                    relay.node.begin_epoch(now, keys, addresses.clone(), GRACE);
                }
            });
        }
        self.step(self.world.now() + later);
        self.document = Arc::new(document);
        for user in 0..self.users {
            let document = Arc::clone(&self.document);
            let node = NodeId(self.relays + user);
            let begun = self.world.act(node, |machine, now, out| match machine {
                OnionNode::User(user) => user.begin_epoch(now, document, out),
                OnionNode::Relay(_) => Ok(()),
            });
            begun.unwrap_or(Ok(()))?;
        }
        Ok(())
    }

    /// Lets everything happen that happens before `until`.
    pub fn step(&mut self, until: Time) {
        self.world.step(until);
        self.world.debug_assert_no_late_timers();
    }

    /// The same, but gives up when `monitor` interrupts it: whether everything has happened.
    pub fn step_monitored(&mut self, until: Time, monitor: &dyn Monitor) -> bool {
        let done = self.world.step_monitored(until, monitor);
        self.world.debug_assert_no_late_timers();
        done
    }

    /// A relay is gone, without a word.
    pub fn kill(&mut self, node: u16) {
        if let Some(dead) = self.world.leave(NodeId(u32::from(node))) {
            self.dead.insert(u32::from(node), dead);
        }
    }

    /// All relays are gone at once that were to die.
    pub fn kill_dying(&mut self) {
        for node in core::mem::take(&mut self.dying) {
            self.kill(node as u16);
        }
    }

    /// The time up to which everything has happened.
    pub fn now(&self) -> Time {
        self.world.now()
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
        (0..self.users).filter_map(|user| match self.world.node(NodeId(self.relays + user))? {
            OnionNode::User(user) => {
                Some(UserOutcome { downloaded: user.has, counts: *user.user.counts(), took: user.took() })
            }
            OnionNode::Relay(_) => None,
        })
    }

    /// What relays that are there have done, in the order of their nodes.
    pub fn relays(&self) -> impl Iterator<Item = (RelayNodeCounts, anabranch_onion::relay::Counts)> + '_ {
        (0..self.relays).filter_map(|node| match self.world.node(NodeId(node))? {
            OnionNode::Relay(relay) => Some((*relay.node.counts(), *relay.node.relay().counts())),
            OnionNode::User(_) => None,
        })
    }
}

/// Who is in a world.
struct Joined {
    document: Arc<Document>,
    parts: Vec<Part>,
    dying: Vec<u32>,
}

/// All nodes of `run` join.
fn join_all<C: Cryptography, O: Observer<OnionNode<C>>>(
    world: &mut Network<C, O>,
    run: &OnionRun,
) -> Result<Joined, OnionRunError> {
    let relays = usize::from(run.relays);
    let (document, made) = network::<C>(run.relays, run.per_family, run.seed);
    let document = Arc::new(document);
    let addresses = document.relays().map(|(_, member)| member.descriptor.address).collect();
    let members = Members::new(EPOCH, addresses);
    let mut by_node: Vec<Option<(RelayIndex, Made<C>)>> = (0..relays).map(|_| None).collect();
    for (place, made) in made.into_iter().enumerate() {
        let node = made.node as usize;
        by_node[node] = Some((RelayIndex(place as u16), made));
    }
    let mut services = vec![None; relays];
    let parts_of_nodes = parts(run);
    let mut parts = vec![Part::Honest; relays];
    let mut rng = Rng::stream(run.seed, "onion");
    let mut phases = Rng::stream(run.seed, "onion/phases");
    for (number, slot) in by_node.into_iter().enumerate() {
        let (own, made) = slot.expect("each relay is at a node of its own");
        let part = parts_of_nodes[number];
        parts[usize::from(own.0)] = part;
        if part == Part::Honest {
            services[usize::from(own.0)] = Some(made.service.keys());
        }
        let keys = EpochKeys { epoch: EPOCH, secret: made.secret, members: run.relays, own: Some(own) };
        let packets = run.settings.packets_per_key;
        let relay = Relay::new(packets, Limits::simulated(packets), keys, [rng.bits(), rng.bits()]);
        let entropy = Entropy(seed_of(&mut rng));
        let service = SessionService::new(EXIT, made.service, run.settings.secrecy, entropy);
        let mut node = RelayNode::new(relay, members.clone(), service);
        let phase = Duration::from_secs_f64(phases.uniform());
        if let Some((kind, limit)) = run.limit.filter(|_| part != Part::Greedy) {
            let model = match kind {
                LimitKind::Window => LimitModel::Window { phase },
                LimitKind::Bucket { depth } => LimitModel::Bucket { depth },
                LimitKind::Queue { longest } => LimitModel::Queue { longest },
            };
            node = node.limited(model, limit);
        }
        let mut relay = ExitRelay::new(node);
        relay.drops = part == Part::Dropper;
        world.join(OnionNode::Relay(Box::new(relay)));
    }
    let uploading = uploading(run);
    let at: Vec<RelayIndex> =
        (0..run.relays).map(RelayIndex).filter(|at| services[usize::from(at.0)].is_some()).collect();
    for number in 0..run.users {
        let rng = Rng::indexed(run.seed, "onion/user", u64::from(number));
        let wall = UnixTime(EPOCH * 3600);
        let (settings, document) = (run.settings.clone(), Arc::clone(&document));
        let mut user = User::new(settings, document, GuardState::default(), Time::ZERO, wall, rng)?;
        user.set_cover(Time::ZERO, run.cover)?;
        // A user's guards are no services of it, nor what is of their families.
        let from = number as usize % at.len().max(1);
        let turn = at[from..].iter().chain(&at[..from]).copied();
        let relay = user.choice().ends(user.document(), turn).first().copied();
        let relay = relay.expect("there are more services than a user has guards");
        let keys = services[usize::from(relay.0)].clone().expect("only relays with a service are asked for one");
        let destination = Destination { relay, label: EXIT, keys };
        let begins = Time::ZERO + BEGINS + run.begin_within * u64::from(number) / u64::from(run.users);
        let rates = run.rates.of(run.seed, number);
        let downloader = Downloader::new(user, destination, rates, run.wish, begins);
        let downloader = downloader.numbered(number, uploading[number as usize], run.counts_from);
        world.join(OnionNode::User(Box::new(downloader)));
    }
    let nodes = (0..u32::from(run.relays)).zip(parts_of_nodes);
    let dying = nodes.filter(|(_, part)| *part == Part::Dying).map(|(node, _)| node).collect();
    Ok(Joined { document, parts, dying })
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

/// What each node's relay does. Which do what is a matter of chance.
fn parts(run: &OnionRun) -> Vec<Part> {
    let mut order: Vec<usize> = (0..usize::from(run.relays)).collect();
    shuffle(&mut order, &mut Rng::stream(run.seed, "onion/parts"));
    let all = [(Part::Dropper, run.droppers), (Part::Greedy, run.greedy), (Part::Dying, run.dying)];
    let kinds = all.into_iter().flat_map(|(part, count)| core::iter::repeat_n(part, usize::from(count)));
    let mut parts = vec![Part::Honest; order.len()];
    order.into_iter().zip(kinds).for_each(|(node, part)| parts[node] = part);
    parts
}

/// Which users upload.
fn uploading(run: &OnionRun) -> Vec<bool> {
    let mut order: Vec<usize> = (0..run.users as usize).collect();
    shuffle(&mut order, &mut Rng::stream(run.seed, "onion/uploads"));
    let receive_only = (run.receive_only * f64::from(run.users)).round() as usize;
    let mut uploads = vec![true; order.len()];
    order.into_iter().take(receive_only).for_each(|user| uploads[user] = false);
    uploads
}

fn shuffle(order: &mut [usize], rng: &mut Rng) {
    (1..order.len()).rev().for_each(|place| order.swap(place, rng.below(place + 1)));
}

/// The relays' document, and what each relay of it is, in its order. Nodes that follow each other are of one family.
fn network<C: Cryptography>(relays: u16, per_family: u16, seed: u64) -> (Document, Vec<Made<C>>) {
    let family_of = |node: u32, relay: &PublicKey| {
        let family = (per_family > 1).then(|| u64::from(node) / u64::from(per_family))?;
        let key = SecretKey::from_seed(&seed_of(&mut Rng::indexed(seed, "onion/family", family)));
        Some(Family::admit(&key, relay))
    };
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
                family: family_of(node, &identity),
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
        // Nobody asks: all of a simulated network are of one scenario.
        terms: Terms::default(),
        members,
    };
    (document, made)
}

/// The document of the epoch after that of `document`, in which `unlisted` nodes are not, and what each node's relay
/// begins it with.
fn next_epoch<C: Cryptography>(
    document: &Document,
    unlisted: &[u16],
    relays: u32,
    seed: u64,
) -> (Document, Vec<EpochKeys<C>>) {
    let node_of = |member: &Member| node::node(member.descriptor.address).expect("it is a node's");
    let mut document = document.clone();
    document.epoch += 1;
    let epoch = document.epoch;
    document.members.retain(|member| !unlisted.iter().any(|node| u32::from(*node) == node_of(member)));
    let secret = |node: u32| {
        let mut rng = Rng::indexed(seed, "onion/relay/epoch", (epoch << 32) + u64::from(node));
        C::secret(&seed_of(&mut rng))
    };
    for member in &mut document.members {
        let key = C::public(&secret(node_of(member))).0;
        member.descriptor.epoch_keys = vec![EpochKey { epoch, key }];
    }
    let members = document.members.len() as u16;
    let keys = |node: u32| {
        let place = document.members.iter().position(|member| node_of(member) == node);
        EpochKeys { epoch, secret: secret(node), members, own: place.map(|at| RelayIndex(at as u16)) }
    };
    let keys = (0..relays).map(keys).collect();
    (document, keys)
}

#[cfg(test)]
mod tests;
