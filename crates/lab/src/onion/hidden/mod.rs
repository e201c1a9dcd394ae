//! Hidden receivers in the simulated world: users who send files to a key, the user who has it, relays with mailboxes
//! between them, and strangers who use up what the mailboxes hold.

mod node;

use std::sync::Arc;

use anabranch_control::rng::Rng;
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::Rate;
use anabranch_onion::RelayIndex;
use anabranch_onion::crypto::Cryptography;
use anabranch_onion::directory::{Document, PublicKey, UnixTime};
use anabranch_onion::guards::GuardState;
use anabranch_onion::hidden::{MailboxAt, MailboxCounts, Mailboxes, ReceiverSecret};
use anabranch_onion::node::{
    HiddenReceiver, HiddenSender, Members, ReceiverCounts, RelayNode, User, UserCounts, UserSettings, WithMailboxes,
};
use anabranch_onion::relay::{EpochKeys, Limits, Relay};
use anabranch_onion::routes::PlacementError;
use anabranch_onion::session::Rates;
use anabranch_proto::limiter::LimitModel;
use anabranch_sim::fabric::NodeId;
use anabranch_sim::pairs::{Letter, Pairs, PairsConfig};

pub use node::{Got, HiddenNode};
use node::{SenderNode, Stranger};

use super::{EPOCH, GRACE, Made, network, next_epoch, node::address, node::node as node_of, seed_of};
use crate::world::{Observer, OnTheWire, World};

/// A run.
#[derive(Clone, Debug)]
pub struct HiddenRun {
    /// Relays, each with mailboxes; more than guards.
    pub relays: u16,
    /// What each relay takes, and how it holds to that; none for no limit.
    pub limit: Option<(LimitModel, Rate)>,
    /// Users who send, each a file of its own.
    pub senders: u32,
    /// Bytes of each file.
    pub bytes: u64,
    /// Users who fill up the receiver's doors with what is nothing.
    pub strangers: u32,
    /// Packets a second of each of them; more than 0.
    pub packets_per_s: f64,
    /// How users choose.
    pub settings: UserSettings,
    /// How fast senders send and are answered.
    pub rates: Rates,
    /// Senders begin then: a receiver takes a second or two to be found.
    pub begins: Time,
    /// What is between nodes.
    pub pairs: PairsConfig,
    /// What all draws follow from.
    pub seed: u64,
}

/// A run that goes on.
pub struct HiddenWorld<C: Cryptography, O = ()> {
    world: World<HiddenNode<C>, Pairs<Letter<Vec<u8>>>, OnTheWire, O>,
    relays: u16,
    senders: u32,
    strangers: u32,
    document: Arc<Document>,
    seed: u64,
}

impl<C: Cryptography, O: Observer<HiddenNode<C>>> HiddenWorld<C, O> {
    /// All nodes are there: relays first, then the receiver, senders and strangers; nothing has happened yet.
    ///
    /// # Errors
    ///
    /// What is wrong with how users choose.
    pub fn new(run: &HiddenRun, observer: O) -> Result<HiddenWorld<C, O>, PlacementError> {
        let relays = usize::from(run.relays);
        let users = 1 + run.senders as usize + run.strangers as usize;
        let mut world = World::new(Pairs::new(run.pairs.clone(), relays + users, run.seed), OnTheWire, observer, ());
        let (document, made) = network::<C>(run.relays, 1, run.seed);
        let document = Arc::new(document);
        let addresses = document.relays().map(|(_, member)| member.descriptor.address).collect();
        let members = Members::new(EPOCH, addresses);
        let identity = |relay: RelayIndex| -> PublicKey {
            document.member(relay).expect("each relay is listed").descriptor.identity
        };
        let mut by_node: Vec<Option<(RelayIndex, Made<C>)>> = (0..relays).map(|_| None).collect();
        for (place, made) in made.into_iter().enumerate() {
            let node = made.node as usize;
            by_node[node] = Some((RelayIndex(place as u16), made));
        }
        let mut rng = Rng::stream(run.seed, "onion/hidden");
        for slot in by_node {
            let (own, made) = slot.expect("each relay is at a node of its own");
            let keys = EpochKeys { epoch: EPOCH, secret: made.secret, members: run.relays, own: Some(own) };
            let packets = run.settings.packets_per_key;
            let relay = Relay::new(packets, Limits::simulated(packets), keys, [rng.bits(), rng.bits()]);
            let service = WithMailboxes::new(Mailboxes::new(identity(own), EPOCH), ());
            let mut node = RelayNode::new(relay, members.clone(), service);
            if let Some((model, limit)) = run.limit {
                node = node.limited(model, limit);
            }
            world.join(HiddenNode::Relay(Box::new(node)));
        }
        let wall = UnixTime(EPOCH * 3600);
        let mut next = 0;
        let mut user = || {
            let rng = Rng::indexed(run.seed, "onion/hidden/user", next);
            let other = Rng::indexed(run.seed, "onion/hidden/machine", next);
            next += 1;
            let (settings, document) = (run.settings.clone(), Arc::clone(&document));
            User::new(settings, document, GuardState::default(), Time::ZERO, wall, rng).map(|user| (user, other))
        };
        let secret = ReceiverSecret::from_seed(&seed_of(&mut rng));
        let address = secret.address();
        let (inner, own) = user()?;
        let receiver = HiddenReceiver::new(inner, secret, run.settings.secrecy, Time::ZERO, wall, own);
        world.join(HiddenNode::Receiver(Box::new(node::ReceiverNode::new(receiver))));
        for number in 0..run.senders {
            let (inner, own) = user()?;
            let machine = HiddenSender::new(inner, address, run.rates.clone(), own);
            let begins = run.begins + Duration::from_millis(100) * u64::from(number);
            world.join(HiddenNode::Sender(Box::new(SenderNode::new(machine, number, run.bytes, begins))));
        }
        for _ in 0..run.strangers {
            let (inner, _) = user()?;
            world.join(HiddenNode::Stranger(Box::new(Stranger::new(inner, run.packets_per_s))));
        }
        let HiddenRun { relays, senders, strangers, seed, .. } = *run;
        Ok(HiddenWorld { world, relays, senders, strangers, document, seed })
    }

    /// Another epoch begins: at once for all relays, of which `unlisted` are in its list no more, so that relays have
    /// other indices; after `receiver` for the receiver, and after `senders` for everybody else.
    ///
    /// # Errors
    ///
    /// None that [`HiddenWorld::new`] has not had.
    pub fn begin_epoch(
        &mut self,
        unlisted: &[u16],
        receiver: Duration,
        senders: Duration,
    ) -> Result<(), PlacementError> {
        let (document, keys) = next_epoch::<C>(&self.document, unlisted, u32::from(self.relays), self.seed);
        let addresses: Vec<_> = document.relays().map(|(_, member)| member.descriptor.address).collect();
        self.document = Arc::new(document);
        for (node, keys) in (0..).zip(keys) {
            self.world.act(NodeId(node), |machine, now, _| {
                if let HiddenNode::Relay(relay) = machine {
                    relay.begin_epoch(now, keys, addresses.clone(), GRACE);
                }
            });
        }
        let began = self.world.now();
        let first = u32::from(self.relays);
        let of_receiver = (receiver, first..first + 1);
        let others = (senders, first + 1..first + 1 + self.senders + self.strangers);
        let mut users = [of_receiver, others];
        users.sort_by_key(|(after, _)| *after);
        for (after, nodes) in users {
            self.step(began + after);
            for node in nodes {
                let document = Arc::clone(&self.document);
                let begun = self.world.act(NodeId(node), |machine, now, out| machine.begin_epoch(now, document, out));
                begun.unwrap_or(Ok(()))?;
            }
        }
        Ok(())
    }

    /// The time up to which everything has happened.
    pub fn now(&self) -> Time {
        self.world.now()
    }

    /// Lets everything happen that happens before `until`.
    pub fn step(&mut self, until: Time) {
        self.world.step(until);
        self.world.debug_assert_no_late_timers();
    }

    /// Who sees what happens.
    pub fn observer(&self) -> &O {
        self.world.observer()
    }

    /// The receiver.
    ///
    /// # Panics
    ///
    /// Never: it does not leave.
    pub fn receiver(&self) -> &HiddenReceiver<C, Rng> {
        match self.world.node(NodeId(u32::from(self.relays))) {
            Some(HiddenNode::Receiver(receiver)) => receiver.machine(),
            _ => unreachable!("the receiver's node is the first after the relays"),
        }
    }

    /// A sender.
    ///
    /// # Panics
    ///
    /// When there is none of this number.
    pub fn sender(&self, number: u32) -> &HiddenSender<C, Rng> {
        match self.world.node(NodeId(u32::from(self.relays) + 1 + number)) {
            Some(HiddenNode::Sender(sender)) => sender.machine(),
            _ => panic!("there is no sender {number}"),
        }
    }

    /// What the receiver has of each sender's file, and what it has done.
    ///
    /// # Panics
    ///
    /// Never: it does not leave.
    pub fn got(&self) -> (Vec<Got>, ReceiverCounts) {
        match self.world.node(NodeId(u32::from(self.relays))) {
            Some(HiddenNode::Receiver(receiver)) => {
                let of = |number| receiver.got(number);
                ((0..self.senders).map(of).collect(), *receiver.machine().counts())
            }
            _ => unreachable!("the receiver's node is the first after the relays"),
        }
    }

    /// When each sender knew that all of its file had come, and what it has done in packets.
    pub fn senders(&self) -> Vec<(Option<Time>, UserCounts)> {
        let first = u32::from(self.relays) + 1;
        let node = |number| self.world.node(NodeId(first + number));
        let of = |number| match node(number) {
            Some(HiddenNode::Sender(sender)) => Some((sender.done(), *sender.machine().user().counts())),
            _ => None,
        };
        (0..self.senders).filter_map(of).collect()
    }

    /// What relays that are there have done for hidden receivers, in the order of their nodes.
    pub fn mailboxes(&self) -> Vec<MailboxCounts> {
        let of = |node| match self.world.node(NodeId(node)) {
            Some(HiddenNode::Relay(relay)) => Some(*relay.service().mailboxes().counts()),
            _ => None,
        };
        (0..u32::from(self.relays)).filter_map(of).collect()
    }

    /// The strangers send to these mailboxes from now on.
    pub fn annoy(&mut self, doors: &[MailboxAt]) {
        let first = u32::from(self.relays) + 1 + self.senders;
        for number in 0..self.strangers {
            self.world.act(NodeId(first + number), |node, now, _| {
                if let HiddenNode::Stranger(stranger) = node {
                    stranger.begin(now, doors.to_vec());
                }
            });
        }
    }

    /// The relay that the list names so is gone, without a word.
    ///
    /// # Panics
    ///
    /// When there is none.
    pub fn kill(&mut self, relay: RelayIndex) {
        let member = self.receiver().user().document().member(relay).expect("a relay of the list");
        let node = node_of(member.descriptor.address).expect("each relay has a node");
        self.world.leave(NodeId(node));
    }

    /// The nodes of the receiver, of senders, and of relays that are anybody's guards.
    pub fn users_and_guards(&self) -> (NodeId, Vec<NodeId>, Vec<NodeId>) {
        let receiver = NodeId(u32::from(self.relays));
        let senders: Vec<NodeId> = (1..=self.senders).map(|more| NodeId(receiver.0 + more)).collect();
        let mut guards = Vec::new();
        for (_, node) in self.world.nodes() {
            let user = match node {
                HiddenNode::Receiver(receiver) => receiver.machine().user(),
                HiddenNode::Sender(sender) => sender.machine().user(),
                _ => continue,
            };
            let nodes = user.choice().reserved.iter().filter_map(|relay| {
                let member = user.document().member(*relay)?;
                node_of(member.descriptor.address).map(NodeId)
            });
            guards.extend(nodes);
        }
        debug_assert_eq!(node_of(address(receiver.0)), Some(receiver.0));
        (receiver, senders, guards)
    }
}

#[cfg(test)]
mod tests;
