//! One simulated transfer: the peers that ship, on their wire format, with the troubles of a case,
//! and what must hold looked at after every simulated second.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use anabranch_control::path::Slot;
use anabranch_control::path::registry::{self, Setup};
use anabranch_control::rng::Rng;
use anabranch_control::rtt::RttConfig;
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::Bytes;
use anabranch_proto::overlay::courier::Courier;
use anabranch_proto::overlay::message::{FileName, Offer};
use anabranch_proto::overlay::path_sender::{MAX_REMEMBERED, PathSender, SenderConfig};
use anabranch_proto::overlay::peer::{Peer, Sender};
use anabranch_proto::overlay::relay_node::RelayNode;
use anabranch_proto::overlay::wire::{self, MAX_DATAGRAM};
use anabranch_proto::seal::Identity;
use anabranch_proto::transfer::{FileSender, MAX_EVENTS, MOST_KEPT, Receiver, TransferError, block_size};
use anabranch_sim::access::{Access, AccessConfig};
use anabranch_sim::delay::{DelayModel, JitterTail};
use anabranch_sim::fabric::{Fabric, NodeId};
use anabranch_sim::faults::{FaultCounters, Faults, Faulty};
use anabranch_sim::pairs::{Letter, Pairs, PairsConfig};
use serde::Serialize;

use super::case::{Case, Trouble};
use super::disks::Disks;
use super::invariants::{Invariant, Violation, Watch};
use super::liar::{Liar, Lie, Surroundings};
use super::network::{self, AccessLink, FabricKind, Network};
use super::node::Node;
use super::ordered::words_of;
#[cfg(test)]
use super::sabotage;
use super::store::{MemorySource, MemoryStore, Shelf, SourceFault};
use crate::monitor::{EVENTS_BETWEEN_QUESTIONS, Monitor};
use crate::world::{Address, OnTheWire, World};

/// What the file is called.
const NAME: &str = "file";

/// A sender ends no later after its network has become calm: ten times the longest file's
/// shortest time over the slowest upload that cases have.
const ENDS_WITHIN: Duration = Duration::from_millis(20_000_000);

/// One that still brings something new may take longer, for learners' least rate is a packet a second, and half of
/// the packets may be lost: more of the file than ever is at the receiver at least once in this time.
const GROWS_WITHIN: Duration = Duration::from_millis(600_000);

/// Events in a simulated second. In a case each of ten relays forwards at most 300 kB/s, in
/// datagrams of 100 bytes and more: 30 000 messages, of which each is an event or two.
const EVENTS_PER_SECOND: u64 = 500_000;

/// After the end, so long the last datagrams are waited for.
const FAREWELL: Duration = Duration::from_millis(3_000);

/// How a transfer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ending {
    /// The file has arrived whole.
    Whole,
    /// The receiver did not want it.
    Refused,
    /// The receiver could not keep it, or it was not what was announced.
    Failed,
    /// Nothing was heard of the receiver.
    NoAnswer,
    /// The sender could not read it.
    Unreadable,
    /// It was given up on request.
    Cancelled,
}

impl Ending {
    fn of(error: &TransferError) -> Ending {
        match error {
            TransferError::NoAnswer(_)
            | TransferError::BlackHole
            | TransferError::NobodyAnswers(_)
            | TransferError::Connection(_) => Ending::NoAnswer,
            TransferError::Refused(_) => Ending::Refused,
            TransferError::Failed(_)
            | TransferError::Malformed(_)
            | TransferError::Store(_)
            | TransferError::WrongHash
            | TransferError::Changed
            | TransferError::Stalled(_)
            | TransferError::Stranger { .. }
            | TransferError::NobodysKey
            | TransferError::Socket { .. }
            | TransferError::Tls(_) => Ending::Failed,
            TransferError::Unreadable(_) => Ending::Unreadable,
            TransferError::Cancelled => Ending::Cancelled,
        }
    }
}

/// What became of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ran {
    /// The case's seed.
    pub seed: u64,
    /// What lay between the nodes.
    pub fabric: FabricKind,
    /// How its last transfer ended; none if a rule was broken before.
    pub ending: Option<Ending>,
    /// The rule that was broken first.
    pub violation: Option<Violation>,
    /// Simulated time.
    pub simulated: Duration,
    /// Of that, with a transfer under way.
    pub under_way: Duration,
    /// From the calm, or the last start after it, to the end.
    pub after_calm: Duration,
    /// Transfers that were begun: one, and one for each restart of the sender.
    pub transfers: u64,
    /// Transfers that went on with what was there of another.
    pub resumed: u64,
    /// Files that were published, strangers' too.
    pub published: u64,
    /// Messages, timers and jobs.
    pub events: u64,
    /// Jobs that disks have done.
    pub jobs: u64,
    /// Disks that were slow, the receiver's and the sender's.
    pub slow_disks: u64,
    /// What went wrong with messages.
    pub faults: FaultCounters,
    /// Messages that could not be read where they arrived.
    pub unreadable: u64,
    /// Crashes.
    pub crashes: u64,
    /// Restarts.
    pub restarts: u64,
    /// Partitions.
    pub partitions: u64,
    /// The lies that relays told.
    pub lies: Vec<Lie>,
}

type Simulated<F> = World<Node, Faulty<F>, OnTheWire, Watch, Disks>;

/// Runs `case`; none if `monitor` has interrupted it.
pub fn run(case: &Case, monitor: &dyn Monitor) -> Option<Ran> {
    match &case.network {
        Network::Pairs => run_over(Transfer::new(case, pairs(case), |_, _| {}), monitor),
        Network::Access(links) => {
            let join = |access: &mut Access<_>, node: NodeId| access.set_next(network::own_links(&links[node.index()]));
            run_over(Transfer::new(case, access(case, links), join), monitor)
        }
    }
}

fn delay(case: &Case) -> DelayModel {
    DelayModel::Plane { span: case.span, access: Duration::from_millis(1), stretch: 1.0 }
}

/// The delays of `case`, without a node.
fn pairs(case: &Case) -> Pairs<Letter<Vec<u8>>> {
    let config = PairsConfig { delay: delay(case), jitter: case.jitter, jitter_tail: JitterTail::Normal, loss: 0.0 };
    Pairs::new(config, case.nodes() as usize, case.seed)
}

/// The access links of `case`, which every node is given when it joins, without a node.
fn access(case: &Case, links: &[[AccessLink; 2]]) -> Access<Letter<Vec<u8>>> {
    let config = AccessConfig { delay: delay(case), jitter: case.jitter, links: network::own_links(&links[0]) };
    Access::new(config, case.nodes() as usize, case.seed)
}

fn run_over<F>(mut transfer: Transfer<'_, F>, monitor: &dyn Monitor) -> Option<Ran>
where
    F: Fabric<Payload = Letter<Vec<u8>>>,
{
    // What a panic leaves behind is only counted, not used.
    let ended = catch_unwind(AssertUnwindSafe(|| transfer.run(monitor)));
    let violation = match ended {
        Ok(Ok(true)) => None,
        Ok(Ok(false)) => return None,
        Ok(Err(violation)) => Some(violation),
        Err(panic) => Some(Violation::new(Invariant::Panic, words_of(&*panic))),
    };
    Some(transfer.ran(violation))
}

struct Transfer<'a, F: Fabric> {
    case: &'a Case,
    world: Simulated<F>,
    identity: Identity,
    surroundings: Surroundings,
    file: Arc<[u8]>,
    offer: Offer,
    packet: usize,
    shelf: Shelf,
    /// Names under which the file was published whole.
    whole: BTreeSet<String>,
    ending: Option<Ending>,
    under_way: Duration,
    /// Blocks that the receiver has taken, and when there were more of them last.
    last_block: (u64, Time),
    /// The most bytes of the file that the receiver has ever had, and since when.
    most_bytes: (u64, Time),
    ended: Option<Time>,
    started: Time,
    counted: Counted,
}

#[derive(Default)]
struct Counted {
    transfers: u64,
    resumed: u64,
    published: u64,
    crashes: u64,
    restarts: u64,
    partitions: u64,
}

impl<'a, F: Fabric<Payload = Letter<Vec<u8>>>> Transfer<'a, F> {
    /// `case` over `fabric`, which `before_join` prepares for each node.
    fn new(case: &'a Case, fabric: F, mut before_join: impl FnMut(&mut F, NodeId)) -> Transfer<'a, F> {
        let nodes: Vec<SocketAddr> = (0..case.nodes()).map(|node| SocketAddr::of(NodeId(node))).collect();
        let longest =
            [&[wire::unknown_source(nodes[0])], &nodes[..case.hops], &nodes[case.relays.len()..][..1]].concat();
        let packet = case.packet.unwrap_or_else(|| {
            let mut sizes = 0..MAX_DATAGRAM;
            sizes.find(|&size| block_size(&longest, size).is_some()).expect("a block fits the longest datagram")
        });
        let block = block_size(&longest, packet).expect("datagrams of cases hold a block");
        let mut rng = Rng::stream(case.seed, "soak/file");
        let file: Arc<[u8]> = (0..case.length).map(|_| rng.bits() as u8).collect();
        let hash = *blake3::hash(&file).as_bytes();
        let offer = Offer { name: FileName::sanitised(NAME), length: case.length, block, hash };
        let watch = Watch::new(&case.relays, |relay| case.lies[relay].is_none(), MAX_DATAGRAM as u64);
        let fabric = Faulty::new(fabric, Faults::default(), case.seed);
        let identity = Identity::generate();
        let shelf = Shelf::default();
        let (fault, room) = (case.source, case.room);
        #[cfg(test)]
        let (fault, room) = sabotage::disks(case.sabotage, fault, room);
        let source = MemorySource::new(Arc::clone(&file), fault);
        let store = MemoryStore::new(shelf.clone(), room);
        #[cfg(test)]
        let store = store.sabotaged(case.sabotage);
        let disks = Disks::new(store, source, case.disks, case.seed);
        let mut transfer = Transfer {
            case,
            world: World::new(fabric, OnTheWire, watch, disks),
            surroundings: Surroundings { nodes, key: identity.public() },
            identity,
            file,
            offer,
            packet,
            shelf,
            whole: BTreeSet::new(),
            ending: None,
            under_way: Duration::ZERO,
            last_block: (0, Time::ZERO),
            most_bytes: (0, Time::ZERO),
            ended: None,
            started: Time::ZERO,
            counted: Counted::default(),
        };
        for node in (0..case.nodes()).map(NodeId) {
            let machine = transfer.machine(node);
            before_join(transfer.world.fabric_mut().inner_mut(), node);
            transfer.world.join(machine);
        }
        transfer
    }

    /// What stands at `node` when it is started now.
    fn machine(&mut self, node: NodeId) -> Node {
        let Transfer { case, world, .. } = self;
        let now = world.now();
        if node == case.sender() {
            return self.sender();
        }
        if node == case.receiver() {
            self.shelf.crash();
            let limits = case.limits;
            #[cfg(test)]
            let limits = sabotage::limits(case.sabotage, limits);
            let receiver = Receiver::new(self.identity.clone(), limits).with_kept(self.shelf.kept());
            return Node::Peer(Box::new(Peer::new(RelayNode::end(), Some(receiver), None)));
        }
        let limit = case.relays[node.index()];
        #[cfg(test)]
        let limit = sabotage::relay(case.sabotage, limit);
        let peer = Peer::new(RelayNode::new(limit.model, limit.rate), None, None);
        match case.lies[node.index()] {
            None => Node::Peer(Box::new(peer)),
            Some(lie) => {
                let rng = Rng::indexed(case.seed, "soak/lie", u64::from(node.0));
                let own = SocketAddr::of(node);
                Node::Liar(Box::new(Liar::new(now, peer, own, lie, self.surroundings.clone(), rng)))
            }
        }
    }

    /// A sender that starts now.
    fn sender(&mut self) -> Node {
        let (case, now) = (self.case, self.world.now());
        let addresses = self.surroundings.nodes[..=case.receiver().index()].to_vec();
        let packet = Bytes::new(self.packet as u64);
        let setup = Setup { peers: addresses.len(), packet, start: now, pacing: case.pacing };
        let made = registry::find(case.controller).expect("cases name known controllers").build;
        let made = made.make(&setup, &toml::Table::new()).expect("cases name controllers of senders");
        let controller = made.expect("these controllers need no parameters");
        let life = self.counted.transfers;
        let rng = Rng::indexed(case.seed, "soak/path sender", life);
        let mut masks = Rng::indexed(case.seed, "soak/mask", life);
        let config = SenderConfig { peers: addresses.len(), relays: case.hops, packet, rtt: RttConfig::default() };
        let machine = PathSender::new(&config, controller, rng);
        let mask = std::array::from_fn(|_| masks.bits() as u8);
        let courier = Courier::new(machine, addresses, packet, case.upload, mask);
        let key = case.has_key.then(|| self.identity.public());
        let to = Slot(case.receiver().0 as u16);
        let sender = FileSender::new(now, courier, to, key, self.offer.clone());
        self.counted.transfers += 1;
        self.started = now;
        let peer = Box::new(Peer::new(RelayNode::end(), None, Some(Sender::File(Box::new(sender)))));
        #[cfg(test)]
        if let Some(bug) = case.sabotage {
            return Node::Sabotaged(peer, bug);
        }
        Node::Peer(peer)
    }

    /// Whether it was run to its end.
    fn run(&mut self, monitor: &dyn Monitor) -> Result<bool, Violation> {
        let mut troubles = self.case.troubles.iter().peekable();
        while self.ended.is_none() {
            while let Some((_, trouble)) = troubles.next_if(|(at, _)| *at <= self.world.now()) {
                self.happen(trouble);
            }
            let next = troubles.peek().map_or(Time::MAX, |(at, _)| *at);
            if !self.step(next.min(self.world.now() + Duration::SECOND), monitor)? {
                return Ok(false);
            }
            self.look_at_sender()?;
            let now = self.world.now();
            if now.since(self.case.calm) > ENDS_WITHIN && now.since(self.most_bytes.1) > GROWS_WITHIN {
                let what = format!(
                    "{:?} after {ENDS_WITHIN} of calm, and nothing new for {GROWS_WITHIN}: {:?}",
                    self.file_sender(),
                    self.case.controller
                );
                return Err(Violation::new(Invariant::Ends, what));
            }
            monitor.on_second();
            if monitor.is_interrupted() {
                return Ok(false);
            }
        }
        self.linger(monitor)
    }

    /// False if `monitor` has interrupted it.
    fn step(&mut self, until: Time, monitor: &dyn Monitor) -> Result<bool, Violation> {
        let before = self.world.now();
        let is_under_way = self.file_sender().is_some_and(|sender| sender.outcome().is_none());
        // Everything may leave at once where nothing holds it back.
        let most = EVENTS_PER_SECOND + if self.case.packet.is_none() { 20 * self.offer.blocks() } else { 0 };
        let mut left = most;
        let mut is_done = false;
        while !is_done && left > 0 {
            let portion = left.min(EVENTS_BETWEEN_QUESTIONS);
            is_done = self.world.step_at_most(until, portion);
            left -= portion;
            if !is_done && monitor.is_interrupted() {
                return Ok(false);
            }
        }
        // A timer in the past keeps time from going on: it is said first.
        self.check()?;
        if !is_done {
            let what = format!("{most} events between {before} and {}, and no end", self.world.now());
            return Err(Violation::new(Invariant::Progress, what));
        }
        if is_under_way {
            self.under_way = self.under_way + until.since(before);
        }
        Ok(true)
    }

    fn file_sender(&self) -> Option<&FileSender> {
        match self.world.node(self.case.sender())?.peer()?.sender()? {
            Sender::File(sender) => Some(sender),
            Sender::Load(_) => None,
        }
    }

    fn receiver(&self) -> Option<&Receiver> {
        self.world.node(self.case.receiver())?.peer()?.receiver()
    }

    fn check(&mut self) -> Result<(), Violation> {
        if let Some(violation) = self.world.observer().violation() {
            return Err(violation.clone());
        }
        let late = self.world.counters().late_timers;
        if late > 0 {
            return Err(Violation::new(Invariant::Timer, format!("{late} timers before {}", self.world.now())));
        }
        for (name, published) in self.shelf.take_published() {
            self.counted.published += 1;
            let is_file = published.offer.name.as_str() == NAME;
            let is_whole = if is_file {
                published.bytes == *self.file
            } else {
                published.offer.length == published.bytes.len() as u64
                    && blake3::hash(&published.bytes) == blake3::Hash::from_bytes(published.offer.hash)
            };
            if !is_whole {
                let what = format!("{name:?} was published with {} bytes that differ", published.bytes.len());
                return Err(Violation::new(Invariant::Whole, what));
            }
            if is_file {
                self.whole.insert(name);
            }
        }
        self.check_memory()?;
        if let Some(blocks) = self.receiver().map(|receiver| receiver.counters().blocks)
            && blocks != self.last_block.0
        {
            self.last_block = (blocks, self.world.now());
        }
        let bytes = self.shelf.most_bytes();
        if bytes > self.most_bytes.0 {
            self.most_bytes = (bytes, self.world.now());
        }
        if self.case.fetches_events {
            self.world.act(self.case.receiver(), |node, _, _| {
                let receiver = node.peer_mut().and_then(Peer::receiver_mut);
                receiver.map(|receiver| while receiver.next_event().is_some() {})
            });
        }
        Ok(())
    }

    fn check_memory(&self) -> Result<(), Violation> {
        let at_most = |what: &str, is: usize, most: usize| {
            #[cfg(test)]
            let most = sabotage::most(self.case.sabotage, what, most);
            match is <= most {
                true => Ok(()),
                false => Err(Violation::new(Invariant::Memory, format!("{is} {what}, and {most} are the most"))),
            }
        };
        if let Some(receiver) = self.receiver() {
            let limits = &self.case.limits;
            let sessions = limits.half_open + limits.greetings + limits.waiting + limits.files.max(limits.complete);
            at_most("sessions", receiver.sessions(), sessions)?;
            at_most("half-open sessions", receiver.half_open(), limits.half_open)?;
            at_most("files that wait", receiver.waiting(), limits.waiting)?;
            at_most("files that are kept", receiver.files(), limits.files)?;
            at_most("files on a disk", self.shelf.arriving(), receiver.files())?;
            at_most("bytes that are not written", receiver.unwritten(), limits.writes)?;
            at_most("events", receiver.waiting_events(), MAX_EVENTS)?;
        }
        if let Some(sender) = self.file_sender() {
            at_most("bytes of a file", sender.kept(), MOST_KEPT)?;
            at_most("packets", sender.courier().sender().most_remembered(), MAX_REMEMBERED)?;
        }
        Ok(())
    }

    /// Whether the sender has ended, and whether what it says is true.
    fn look_at_sender(&mut self) -> Result<(), Violation> {
        let Some(sender) = self.file_sender().filter(|sender| sender.is_over()) else { return Ok(()) };
        let ending = match sender.outcome() {
            Some(Ok(done)) if self.whole.contains(&done.name) && done.length == self.case.length => Ending::Whole,
            Some(Ok(done)) => {
                let what = format!("the sender believes that {:?} has arrived, and it has not", done.name);
                return Err(Violation::new(Invariant::Whole, what));
            }
            Some(Err(error)) => {
                self.check_reason(error)?;
                Ending::of(error)
            }
            None => return Err(Violation::new(Invariant::Ends, "it is over without an outcome")),
        };
        self.counted.resumed += u64::from(self.file_sender().is_some_and(|sender| sender.resumed_bytes() > 0));
        self.ending = Some(ending);
        self.ended = Some(self.world.now());
        Ok(())
    }

    /// A receiver says that it has failed only for what has happened, a sender that its file has changed.
    fn check_reason(&self, error: &TransferError) -> Result<(), Violation> {
        let reason = match error {
            TransferError::Failed(reason) => reason,
            TransferError::Changed if self.case.source != SourceFault::Changed => {
                return Err(Violation::new(
                    Invariant::Reason,
                    "a sender says that its file has changed, and it has not",
                ));
            }
            _ => return Ok(()),
        };
        let is_possible = match reason.as_str() {
            "no space left" => self.case.room < self.case.length,
            // It is told later than it has happened, and looked at every second.
            _ if reason.starts_with("nothing of the file has come for") => {
                let strangers = self.case.lies.iter().flatten().any(|(lie, _)| *lie == Lie::Greets);
                let quiet = self.world.now().since(self.last_block.1) + Duration::SECOND * 2;
                strangers || quiet >= self.case.limits.stalled
            }
            "there is no such transfer" => self.counted.restarts > 0,
            _ if *reason == TransferError::WrongHash.to_string() => self.case.source == SourceFault::Changed,
            _ => false,
        };
        let wrong = || Violation::new(Invariant::Reason, format!("a file failed for no reason: {reason}"));
        if is_possible { Ok(()) } else { Err(wrong()) }
    }

    fn happen(&mut self, trouble: &Trouble) {
        match trouble {
            Trouble::Crash(node) => {
                self.counted.crashes += u64::from(self.world.leave(*node).is_some());
            }
            Trouble::Restart(node) if self.world.node(*node).is_none() => {
                let machine = self.machine(*node);
                self.world.rejoin(*node, machine);
                self.world.observer_mut().restart(*node);
                self.counted.restarts += 1;
            }
            // Another crash's restart was sooner.
            Trouble::Restart(_) => {}
            Trouble::Partition(nodes) => {
                nodes.iter().for_each(|&node| self.world.fabric_mut().set_part(node, 1));
                self.counted.partitions += 1;
            }
            Trouble::Heal => {
                (0..self.case.nodes()).for_each(|node| self.world.fabric_mut().set_part(NodeId(node), 0));
            }
            Trouble::Faults(faults) => self.world.fabric_mut().set(*faults),
            Trouble::Cancel => {
                self.world.act(self.case.sender(), |node, _, _| {
                    node.peer_mut().and_then(Peer::file_sender_mut).map(FileSender::cancel)
                });
            }
        }
    }

    /// What is on its way arrives; in some cases the receiver forgets everything. False if
    /// `monitor` has interrupted it.
    fn linger(&mut self, monitor: &dyn Monitor) -> Result<bool, Violation> {
        if !self.step(self.world.now() + FAREWELL, monitor)? {
            return Ok(false);
        }
        if !self.case.lingers {
            return Ok(true);
        }
        // A disk may stand still in between.
        let until = self.world.now() + self.case.limits.idle + Duration::SECOND * 120;
        while self.world.now() < until {
            if !self.step(self.world.now() + Duration::SECOND, monitor)? {
                return Ok(false);
            }
        }
        let has_strangers = self.case.lies.iter().flatten().any(|(lie, _)| matches!(lie, Lie::Greets | Lie::Replays));
        match self.receiver().map(|receiver| (receiver.sessions(), self.shelf.arriving())) {
            Some(left) if left != (0, 0) && !has_strangers => {
                let what = format!("{} sessions and {} files are still there after the idle time", left.0, left.1);
                Err(Violation::new(Invariant::Memory, what))
            }
            _ => Ok(true),
        }
    }

    fn ran(self, violation: Option<Violation>) -> Ran {
        let (case, counters) = (self.case, self.world.counters());
        let mut world = self.world;
        let jobs = world.worker_mut().done();
        let Counted { transfers, resumed, published, crashes, restarts, partitions } = self.counted;
        Ran {
            seed: case.seed,
            fabric: case.network.kind(),
            ending: self.ending.filter(|_| violation.is_none()),
            violation,
            simulated: world.now().since(Time::ZERO),
            under_way: self.under_way,
            after_calm: self.ended.unwrap_or(Time::ZERO).since(case.calm.max(self.started)),
            transfers,
            resumed,
            published,
            events: counters.events,
            jobs,
            slow_disks: case.disks.iter().flatten().count() as u64,
            faults: world.fabric().counters(),
            unreadable: counters.unreadable,
            crashes,
            restarts,
            partitions,
            lies: case.lies.iter().flatten().map(|(lie, _)| *lie).collect(),
        }
    }
}
