//! What a user sends and gets outside of its sessions: packets to a label at a relay, and blocks that others hold.
//!
//! Nobody acknowledges such packets by themselves: whoever sends them says what became of them, once it knows.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

use anabranch_control::time::Time;
use anabranch_proto::machine::{Departure, Out};

use super::super::entry::Entry;
use super::super::{User, route_rng};
use super::{Traffic, hops};
use crate::RelayIndex;
use crate::crypto::Cryptography;
use crate::hidden::MailboxAt;
use crate::node::Frame;
use crate::packet::{BODY, Datagram, Receipt, body, body_mut};
use crate::reply::{BlockId, MadeBlocks, ReplyBlock};
use crate::routes::{Fate, Half, Request, RouteError, RouteId};

/// Blocks that are out: what eight sessions and four doors have at mailboxes, and as much again on its way.
const MOST_BLOCKS: usize = 16_384;

/// Packets whose fate may still be reported.
const MOST_PACKETS: usize = 4096;

/// Names a packet until its fate is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PacketId(u64);

#[cfg(test)]
impl PacketId {
    /// One that was never sent.
    pub fn for_test(number: u64) -> PacketId {
        PacketId(number)
    }
}

/// What has come by a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrived {
    /// Which.
    pub block: BlockId,
    /// What was written with it.
    pub body: Box<[u8; BODY]>,
}

/// What is out, and what has come.
pub(in crate::node::user) struct Loose<C> {
    next: u64,
    packets: BTreeMap<PacketId, (RouteId, Receipt)>,
    made: MadeBlocks<C>,
    blocks: BTreeMap<BlockId, RouteId>,
    arrived: VecDeque<Arrived>,
}

impl<C: Cryptography> Loose<C> {
    pub fn new() -> Loose<C> {
        Loose {
            next: 0,
            packets: BTreeMap::new(),
            made: MadeBlocks::new(MOST_BLOCKS),
            blocks: BTreeMap::new(),
            arrived: VecDeque::new(),
        }
    }
}

impl<C: Cryptography> Traffic<C> {
    fn send_packet(
        &mut self,
        now: Time,
        to: MailboxAt,
        write: impl FnOnce(&mut [u8; BODY]),
        rng: &mut impl rand_core::Rng,
        send: &mut impl FnMut(SocketAddr, &Frame),
    ) -> Result<PacketId, RouteError> {
        let request = Request { half: Half::FromUser, elsewhere: &[to.relay], far: 0 };
        let route = self.forth.choose(now, request, &mut route_rng(rng))?;
        let relays = route.path.relays();
        let mut all = hops(relays, &self.keys_of, self.settings.mixing, rng);
        all.extend(hops(&[to.relay], &self.keys_of, self.settings.mixing, rng));
        let mut frame = Frame::default();
        write(body_mut(&mut frame.datagram));
        let id = PacketId(self.loose.next);
        self.loose.next += 1;
        // Lost, then, as on any path.
        let Ok(receipt) = self.path_keys.seal(&all, to.label, rng, &mut frame.datagram) else {
            self.forth.forget(route.id);
            return Ok(id);
        };
        if self.loose.packets.len() >= MOST_PACKETS
            && let Some((&oldest, _)) = self.loose.packets.first_key_value()
        {
            self.packet_forgotten(oldest);
        }
        self.loose.packets.insert(id, (route.id, receipt));
        if let Some(first) = relays.first().and_then(|first| self.members.current(*first)) {
            self.counts.sent += 1;
            send(first, &frame);
        }
        Ok(id)
    }

    fn packet_arrived(&mut self, now: Time, packet: PacketId, rng: &mut impl rand_core::Rng) {
        if let Some((route, receipt)) = self.loose.packets.remove(&packet) {
            self.counts.delivered += 1;
            self.path_keys.arrived(&receipt);
            self.forth.on_outcome(route, now, Fate::Arrived { one_way_nanos: None }, &mut route_rng(rng));
        }
    }

    fn packet_lost(&mut self, now: Time, packet: PacketId, rng: &mut impl rand_core::Rng) {
        if let Some((route, receipt)) = self.loose.packets.remove(&packet) {
            self.counts.lost += 1;
            self.path_keys.lost(&receipt);
            self.forth.on_outcome(route, now, Fate::Lost, &mut route_rng(rng));
        }
    }

    fn packet_forgotten(&mut self, packet: PacketId) {
        if let Some((route, receipt)) = self.loose.packets.remove(&packet) {
            self.path_keys.lost(&receipt);
            self.forth.forget(route);
        }
    }

    /// Another epoch has begun: whoever sent what is out asks no more of it.
    pub(in crate::node::user) fn forget_loose(&mut self) {
        let packets: Vec<PacketId> = self.loose.packets.keys().copied().collect();
        packets.into_iter().for_each(|packet| self.packet_forgotten(packet));
        let routes = core::mem::take(&mut self.loose.blocks).into_values();
        routes.for_each(|route| self.back.forget(route));
    }

    fn make_block(
        &mut self,
        now: Time,
        by: RelayIndex,
        entry: &Entry,
        rng: &mut impl rand_core::Rng,
    ) -> Result<(BlockId, ReplyBlock), RouteError> {
        let request = Request { half: Half::ToUser, elsewhere: &[by], far: 0 };
        let route = self.back.choose(now, request, &mut route_rng(rng))?;
        let relays = route.path.relays();
        let label = relays.last().and_then(|guard| entry.label(*guard)).ok_or(RouteError::NoGuard)?;
        let hops = hops(relays, &self.keys_of, self.settings.mixing, rng);
        let made = self.loose.made.make(&mut self.path_keys, &hops, label, now, rng);
        // Whoever chose this path keeps to what packets allow; a relay with a key of low order is none.
        let (block, reply) = made.map_err(|_| RouteError::TooFewRelays { hops: relays.len() })?;
        self.counts.blocks += 1;
        if self.loose.blocks.len() >= MOST_BLOCKS
            && let Some((_, forgotten)) = self.loose.blocks.pop_first()
        {
            self.back.forget(forgotten);
        }
        self.loose.blocks.insert(block, route.id);
        Ok((block, reply))
    }

    fn block_lost(&mut self, now: Time, block: BlockId, rng: &mut impl rand_core::Rng) {
        if let Some(route) = self.loose.blocks.remove(&block) {
            self.back.on_outcome(route, now, Fate::Lost, &mut route_rng(rng));
        }
    }

    /// Opens what has come by a block of no session; whether it did.
    pub(in crate::node::user) fn on_loose(
        &mut self,
        now: Time,
        datagram: &mut Datagram,
        rng: &mut impl rand_core::Rng,
    ) -> bool {
        let Ok(opened) = self.loose.made.open(&mut self.path_keys, datagram) else { return false };
        self.counts.received += 1;
        if let Some(route) = self.loose.blocks.remove(&opened.block) {
            self.back.on_outcome(route, now, Fate::Arrived { one_way_nanos: None }, &mut route_rng(rng));
        }
        self.loose.arrived.push_back(Arrived { block: opened.block, body: Box::new(*body(datagram)) });
        true
    }
}

impl<C: Cryptography, R: rand_core::Rng> User<C, R> {
    /// Sends a body to a label at a relay; by which name its fate may be reported. Cover counts it for nothing: at a
    /// constant rate it leaves besides.
    ///
    /// # Errors
    ///
    /// When there is no path.
    pub fn send_packet(
        &mut self,
        now: Time,
        to: MailboxAt,
        write: impl FnOnce(&mut [u8; BODY]),
        out: &mut impl Out<User<C, R>>,
    ) -> Result<PacketId, RouteError> {
        let send = &mut |to, frame: &Frame| out.send(Departure::now(to, frame.length()), frame);
        self.traffic.send_packet(now, to, write, &mut self.rng, send)
    }

    /// A packet is known to have arrived.
    pub fn packet_arrived(&mut self, now: Time, packet: PacketId) {
        self.traffic.packet_arrived(now, packet, &mut self.rng);
    }

    /// A packet is given up.
    pub fn packet_lost(&mut self, now: Time, packet: PacketId) {
        self.traffic.packet_lost(now, packet, &mut self.rng);
    }

    /// Nobody will know what became of a packet: its keys are not used again, and no relay is blamed.
    pub fn packet_forgotten(&mut self, packet: PacketId) {
        self.traffic.packet_forgotten(packet);
    }

    /// A relay for an end of a path that anybody can be, as good as is known: no guard of this user, none of
    /// `elsewhere`, and of other networks and families than those.
    pub fn any_relay(&mut self, elsewhere: &[RelayIndex]) -> Option<RelayIndex> {
        self.traffic.forth.any(elsewhere, &mut route_rng(&mut self.rng))
    }

    /// A block by which somebody else, at the relay `by`, sends here.
    ///
    /// # Errors
    ///
    /// When there is no path, or no guard is there.
    pub fn make_block(&mut self, now: Time, by: RelayIndex) -> Result<(BlockId, ReplyBlock), RouteError> {
        self.traffic.make_block(now, by, &self.entry, &mut self.rng)
    }

    /// A block was used, and what came by it is lost.
    pub fn block_lost(&mut self, now: Time, block: BlockId) {
        self.traffic.block_lost(now, block, &mut self.rng);
    }

    /// What has come by such blocks next.
    pub fn poll_arrived(&mut self) -> Option<Arrived> {
        self.traffic.loose.arrived.pop_front()
    }
}
