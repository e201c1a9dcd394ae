//! What server and clients say to each other, as structs.

use std::sync::Arc;

use anabranch_control::time::Duration;
use anabranch_control::units::Rate;

use super::content::{Broadcast, ClientId, Content, Manifest, Ticket};
use super::gossip::Mass;
use super::overlay::OverlayView;
use super::packet::{PacketId, SliceSet, Stamp};
use super::source::GENERATION;
use crate::session::{PeerKey, WireLength};

/// A client as others reach it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contact<A> {
    /// Its number.
    pub client: ClientId,
    /// Where it is, as the server sees it.
    pub address: A,
    /// Its key.
    pub key: PeerKey,
}

/// How far ahead of their packets manifests leave where trees push and a mesh repairs: the least that makes way
/// for most of them, of 0 to 500 ms.
const MANIFEST_LEAD: Duration = Duration::from_millis(300);

/// How the stream reaches its viewers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Trees alone: nothing is sent twice [Raiber 2010, 3.2, 6.4].
    Trees,
    /// A mesh alone: neighbours tell what they have, and are asked [Efthymiopoulos 2015, 2].
    Mesh,
    /// Trees push, the mesh fills what is missing.
    #[default]
    Hybrid,
}

impl Mode {
    /// Whether packets are pushed down trees.
    pub fn has_trees(self) -> bool {
        self != Mode::Mesh
    }

    /// How long the first packet of a generation waits at the source behind its manifest. Where both go down trees, and
    /// not the same ones, packets that come first cannot be passed on, which costs more time than they wait: see
    /// docs/streams.md. In a mesh alone both come from the same peers, and trees alone are as printed.
    pub fn manifest_lead(self) -> Duration {
        if self == Mode::Hybrid { MANIFEST_LEAD } else { Duration::ZERO }
    }

    /// Over what time the packets of a generation leave the source. In a mesh alone they leave at once: nobody passes
    /// them on before they are asked for.
    pub fn packet_spread(self) -> Duration {
        if self.has_trees() { GENERATION } else { Duration::ZERO }
    }

    /// Within what time behind its manifest a generation has left.
    pub fn leaves_within(self) -> Duration {
        self.manifest_lead() + self.packet_spread()
    }

    /// Whether neighbours are asked for packets.
    pub fn has_mesh(self) -> bool {
        self != Mode::Trees
    }
}

/// What a client must know of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamInfo {
    /// Which broadcast it is.
    pub broadcast: Broadcast,
    /// How it travels.
    pub mode: Mode,
    /// Whether the server feeds every viewer itself, and names none to another.
    pub is_private: bool,
    /// How many slices it has; at most [`MAX_SLICES`](super::packet::MAX_SLICES).
    pub slices: u8,
    /// What it takes, by the last seconds.
    pub bitrate: Rate,
    /// The packet to begin with: of a keyframe where the source has any.
    pub begin: PacketId,
    /// The next packet of the source, and the time of the stream.
    pub edge: (PacketId, Stamp),
}

/// Who gives a client a slice, and who may if that one falls silent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parent<A> {
    /// Of which slice.
    pub slice: u8,
    /// Who pushes it; none for the server itself.
    pub parent: Option<Contact<A>>,
    /// Whom to ask else.
    pub backups: [Option<Contact<A>>; 2],
}

/// To whom a client passes a slice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Children {
    /// Which slice.
    pub slice: u8,
    /// All of them.
    pub children: Vec<ClientId>,
}

/// What has changed for a client in the trees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment<A> {
    /// Parents of these slices.
    pub parents: Vec<Parent<A>>,
    /// Children of these slices.
    pub children: Vec<Children>,
    /// How many children the server counts on, over all slices.
    pub places: u16,
}

impl<A> Assignment<A> {
    /// Those whom parents and backups are of, each once: they are much the same for all slices.
    pub fn contacts(&self) -> Vec<&Contact<A>> {
        let mut contacts: Vec<&Contact<A>> = Vec::new();
        for contact in self.parents.iter().flat_map(|parent| parent.contacts().into_iter().flatten()) {
            if contacts.iter().all(|other| other.client != contact.client) {
                contacts.push(contact);
            }
        }
        contacts
    }
}

impl<A> Parent<A> {
    /// The parent and the backups.
    pub fn contacts(&self) -> [Option<&Contact<A>>; 3] {
        let [first, second] = &self.backups;
        [self.parent.as_ref(), first.as_ref(), second.as_ref()]
    }
}

/// What a client tells the server of a slice in the last period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeedReport {
    /// Which.
    pub slice: u8,
    /// Who should push it; none for the server.
    pub parent: Option<ClientId>,
    /// Packets that it should have pushed; 0 if it has not begun.
    pub expected: u16,
    /// Packets that came from it first or at all in time.
    pub received: u16,
}

/// What a client tells the server regularly, also as a sign of life.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// What it could send, as its controller has measured while packets waited to leave; 0 if none has.
    pub capacity: Rate,
    /// What it has sent.
    pub sent: Rate,
    /// Packets that went to its players since the beginning.
    pub played: u64,
    /// Packets that came too late for them.
    pub skipped: u64,
    /// How old the last packet was that went to them, in whole milliseconds: beyond the fastest way from the
    /// source. None before the first.
    pub delay: Option<Duration>,
    /// How many neighbours it has.
    pub neighbours: u8,
    /// What became of each slice that somebody should push to it.
    pub feeds: Vec<FeedReport>,
    /// Who has sent it packets that were not those of the source.
    pub forgers: Vec<ClientId>,
}

/// A slice of which nothing comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SilentFeed {
    /// Which.
    pub slice: u8,
    /// Who should push it; none for the server.
    pub parent: Option<ClientId>,
    /// Who has been asked instead.
    pub asked: Option<ClientId>,
    /// Whether the parent has said that it has no room, or that it misses the slice itself: it is
    /// there.
    pub is_excused: bool,
}

/// A client's part of a chain of exploration: what comes of `chain` goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChainLink<A> {
    /// The chain's number.
    pub chain: u32,
    /// To whom; none if this client is the last, and tells the server.
    pub next: Option<Contact<A>>,
}

/// What goes reliably and in order.
#[derive(Clone, Debug)]
pub enum Message<A, C: Content> {
    /// To the server: somebody wants to watch, and could send so much.
    Join {
        /// What it believes that it can send.
        upload: Rate,
    },
    /// To the server: somebody wants to watch, is to be named to nobody, and passes nothing on.
    JoinPrivately,
    /// To the server: somebody looks at a page, and wants to see how all fare.
    WantOverlay,
    /// From the server: that.
    Overlay(Box<OverlayView>),
    /// From the server: it may.
    Welcome(Box<Welcome<C>>),
    /// From the server: nobody has room for another.
    Overloaded,
    /// From the server: a new ticket.
    Ticket(Box<Ticket<C>>),
    /// From the server: its places in the trees.
    Assign(Box<Assignment<A>>),
    /// From the server: is it there?
    Ping,
    /// To the server: it is.
    Pong,
    /// From the server: whom it may ask for packets.
    Neighbours(Vec<Contact<A>>),
    /// To the server.
    Report(Box<Report>),
    /// To the server: nothing comes of these slices.
    Silent(Vec<SilentFeed>),
    /// Between clients, first: who speaks.
    Greet(Box<Ticket<C>>),
    /// To a parent: push these slices to me, and what is there of them.
    Subscribe {
        /// Which.
        slices: SliceSet,
        /// From this packet on.
        from: PacketId,
    },
    /// To a parent: push them no more.
    Unsubscribe(SliceSet),
    /// From a parent that was asked: there is no room for these.
    Full(SliceSet),
    /// From a parent: nothing comes to me either, and I am mending it.
    Stalled(SliceSet),
    /// From the server: a part of a chain.
    Chain(Box<ChainLink<A>>),
    /// To the server, from the last of a chain: the packet with this number has come.
    Explored(u32),
    /// To the server: a session with this client does not stand, perhaps for a NAT before it.
    Unanswered(ClientId),
    /// From the server: somebody at this address begins a session.
    Caller(A),
}

/// The server's answer to who may watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Welcome<C: Content> {
    /// The stream.
    pub stream: StreamInfo,
    /// This many packets from the beginning on come from the server itself, unasked.
    pub sent: u16,
    /// By which others believe that this is a client; its number is in it.
    pub ticket: Ticket<C>,
}

/// Packets that somebody has: the bits say which from `base` on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BufferMap {
    /// The packet of the first bit.
    pub base: PacketId,
    /// A bit for each packet, the lowest first.
    pub words: Box<[u64]>,
}

impl BufferMap {
    /// How many words there are, from the first on, whose packets are all there, as most of what is old is: their
    /// number is sent in their place.
    #[inline]
    pub fn whole_words(&self) -> usize {
        self.words.iter().take_while(|&&word| word == u64::MAX).count()
    }

    /// Whether it says that `id` is there.
    #[inline]
    pub fn contains(&self, id: PacketId) -> bool {
        let place = id.since(self.base);
        id >= self.base && self.words.get((place / 64) as usize).is_some_and(|word| word >> (place % 64) & 1 == 1)
    }
}

/// The most manifests that are sent for one question.
pub const MOST_MANIFESTS_AT_ONCE: usize = 64;

/// The most packets that somebody asks for at once.
pub const MAX_WANTED: usize = 64;

/// What may be lost on the way.
#[derive(Clone, Debug)]
pub enum Datagram<C: Content> {
    /// A packet of the stream.
    Packet {
        /// Which.
        id: PacketId,
        /// When it left the source.
        stamp: Stamp,
        /// Its bytes.
        packet: C::Packet,
    },
    /// What packets are told apart by.
    Manifest(Arc<Manifest<C>>),
    /// What is here.
    Have(Arc<BufferMap>),
    /// What is missing; at most [`MAX_WANTED`] of them.
    Want(Arc<[PacketId]>),
    /// The manifests of the packets from the first of these to the second are missing.
    WantManifests(PacketId, PacketId),
    /// A packet of the stream that explores the clients of a chain.
    Explore {
        /// Which chain.
        chain: u32,
        /// What the last of the chain tells the server.
        nonce: u32,
        /// Which packet.
        id: PacketId,
        /// When it left the source.
        stamp: Stamp,
        /// Its bytes.
        packet: C::Packet,
    },
    /// Half of what a peer knows of all, in an epoch.
    Mass(u32, Mass),
}

/// Bytes of what tells a datagram's kind.
pub(super) const DATAGRAM_TAG: usize = 1;

/// Bytes of a tag, of a packet's number and of its stamp.
pub const PACKET_HEADER: usize = DATAGRAM_TAG + 8 + 4;

/// The same of a packet that explores: also of its chain and its nonce.
pub(super) const EXPLORATION_HEADER: usize = PACKET_HEADER + 4 + 4;

/// Bytes of a contact: number 4, address of IPv6 and port 18, key 32.
const CONTACT: usize = 4 + 18 + 32;

/// Bytes of an address: of IPv6, and the port.
const ADDRESS: usize = 16 + 2;

/// Bytes of what is told of all, of a viewer, and of what has happened to one.
const OVERLAY: usize = 3 * 8 + 4 + 8 + 4 + 8 * 4 + 2 + 1 + 1;
const VIEWER: usize = 4 + 1 + 2 + 2 + 4 + 4 + 8 + 8 + 2 + 2;
const HAPPENING: usize = 2 + 4 + 1;

impl<C: Content> WireLength for Datagram<C> {
    #[inline]
    fn wire_length(&self) -> usize {
        match self {
            Datagram::Packet { packet, .. } => PACKET_HEADER + C::packet_length(packet),
            Datagram::Manifest(manifest) => DATAGRAM_TAG + manifest.wire_length(),
            Datagram::Have(map) => 1 + 8 + 1 + 8 * (map.words.len() - map.whole_words()),
            Datagram::Want(ids) => 1 + 8 + 2 * ids.len(),
            Datagram::WantManifests(..) => 1 + 8 + 8,
            Datagram::Explore { packet, .. } => EXPLORATION_HEADER + C::packet_length(packet),
            Datagram::Mass(..) => 1 + 4 + 4 * 8,
        }
    }
}

impl<A: Clone + core::fmt::Debug, C: Content> WireLength for Message<A, C> {
    fn wire_length(&self) -> usize {
        let body = match self {
            Message::Join { .. } => 8,
            Message::Welcome(_) => 8 + 1 + 1 + 8 + 8 + 8 + 4 + 2 + Ticket::<C>::LENGTH,
            Message::Ticket(_) | Message::Greet(_) => Ticket::<C>::LENGTH,
            Message::Overloaded | Message::Ping | Message::Pong => 0,
            Message::JoinPrivately | Message::WantOverlay => 0,
            Message::Overlay(view) => {
                let edges: usize = view.trees.iter().map(|_| 2 * view.viewers.len()).sum();
                OVERLAY + VIEWER * view.viewers.len() + HAPPENING * view.happenings.len() + edges
            }
            Message::Assign(assignment) => {
                let parent = |parent: &Parent<A>| 2 + parent.contacts().iter().flatten().count();
                let parents: usize = assignment.parents.iter().map(parent).sum();
                let contacts = 1 + CONTACT * assignment.contacts().len();
                let children = |children: &Children| 3 + 4 * children.children.len();
                let children: usize = assignment.children.iter().map(children).sum();
                2 + 2 + contacts + parents + children
            }
            Message::Neighbours(contacts) => 1 + CONTACT * contacts.len(),
            Message::Report(report) => 4 * 8 + 4 + 3 + 10 * report.feeds.len() + 4 * report.forgers.len(),
            Message::Silent(feeds) => 1 + 10 * feeds.len(),
            Message::Subscribe { .. } => 16,
            Message::Chain(link) => 4 + 1 + link.next.as_ref().map_or(0, |_| CONTACT),
            Message::Explored(_) | Message::Unanswered(_) => 4,
            Message::Caller(_) => ADDRESS,
            Message::Unsubscribe(_) | Message::Full(_) | Message::Stalled(_) => 8,
        };
        // A tag; what carries messages adds their lengths.
        1 + body
    }
}
