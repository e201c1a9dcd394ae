//! What leaves the source goes to the server's children, and where a mesh alone carries the stream to some viewers
//! in turn.

use std::sync::Arc;

use anabranch_control::time::Time;

use super::super::content::{Content, Manifest};
use super::super::manifest_holes::manifest_slice;
use super::super::message::Datagram;
use super::super::on_wire;
use super::super::packet::{MAX_PACKET, PacketId};
use super::super::source::Leaving;
use super::Server;
use crate::network::Address;

/// Where a mesh alone carries the stream, packets of a generation that a viewer is given first. It is given the
/// manifest as well, which takes as much as a third of a packet: were each packet given to viewers of its own, a
/// fifth of what the server sends would be manifests.
const PACKETS_OF_A_SEED: usize = 8;

impl<A: Address, C: Content> Server<A, C> {
    /// Sends what leaves the source now.
    pub(super) fn distribute(&mut self, now: Time) {
        while let Some(leaving) = self.source.poll(now) {
            match leaving {
                Leaving::Manifest(manifest) => self.announce(now, manifest),
                Leaving::Packet(id, stamp, packet) => {
                    self.push(now, id);
                    self.kept.insert(id, stamp, packet);
                }
            }
        }
    }

    fn announce(&mut self, now: Time, manifest: Arc<Manifest<C>>) {
        if self.config.mode.has_trees() {
            let slice = manifest_slice(manifest.generation, self.config.tracker.slices);
            for child in self.pushing.children(slice) {
                self.uplink.push_ahead(child, Datagram::Manifest(Arc::clone(&manifest)));
            }
        } else {
            self.choose_seeds(&manifest);
        }
        while self.manifests.front().is_some_and(|oldest| oldest.end() <= self.kept.oldest()) {
            self.manifests.pop_front();
        }
        self.manifests.push_back(manifest);
        let bitrate = self.source.bitrate(now);
        self.tracker.set_bitrate(bitrate);
    }

    fn push(&mut self, now: Time, id: PacketId) {
        for seed in self.seeds.pop_front().into_iter().flatten() {
            if let Some(session) = self.peers.session_of(seed) {
                self.uplink.push(now, session, id);
            }
        }
        for (child, _) in self.pushing.receivers(id) {
            self.uplink.push(now, child, id);
        }
    }

    /// Where a mesh alone carries the stream: to whom each packet of a generation goes first, as many as
    /// the server can serve, in turn. They get its manifest, too.
    fn choose_seeds(&mut self, manifest: &Arc<Manifest<C>>) {
        let viewers: Vec<_> = self.tracker.viewers().map(|viewer| (viewer.session, viewer.contact.client)).collect();
        let packets = usize::from(manifest.packets);
        // What is left for packets beside the manifests that go with them; of those a copy of the stream has one in
        // each generation already.
        let datagram = Datagram::Manifest(Arc::clone(manifest));
        let packet = MAX_PACKET as f64 * on_wire::STREAM;
        let share = packet / (packet + on_wire::of(&datagram) as f64 / PACKETS_OF_A_SEED as f64);
        let of_packets = |packets: usize| (self.tracker.copies_of(packets) as f64 * share) as usize;
        // Some packets one copy more than others, where copies do not come out even.
        let before = |packet: usize| of_packets(packet).max(packet).min(packet * viewers.len());
        let copies = before(packets);
        // No packet twice to the same viewer.
        let group = (copies / PACKETS_OF_A_SEED).max(copies.div_ceil(packets.max(1))).clamp(1, viewers.len().max(1));
        let seed = |number: usize| viewers[(self.next_seed + number % group) % viewers.len()];
        for packet in 0..packets {
            self.seeds.push_back((before(packet)..before(packet + 1)).map(|number| seed(number).1).collect());
        }
        for number in 0..group.min(copies) {
            self.uplink.push_ahead(seed(number).0, Datagram::Manifest(Arc::clone(manifest)));
        }
        self.next_seed = (self.next_seed + group) % viewers.len().max(1);
    }
}
