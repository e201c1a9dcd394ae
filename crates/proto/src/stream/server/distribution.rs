//! What leaves the source goes to the server's children, and where a mesh alone carries the stream to some viewers
//! in turn.

use std::sync::Arc;

use anabranch_control::time::Time;

use super::super::content::{Content, Manifest};
use super::super::manifest_holes::manifest_slice;
use super::super::message::Datagram;
use super::super::on_wire;
use super::super::packet::MAX_PACKET;
use super::super::source::{Leaving, Signed};
use super::Server;
use crate::session::SessionId;

/// Where a mesh alone carries the stream, packets of a generation that a viewer is given first. It is given the
/// manifest as well, which takes as much as a third of a packet: were each packet given to viewers of its own, a
/// fifth of what the server sends would be manifests.
const PACKETS_OF_A_SEED: usize = 8;

impl<A: Copy + Eq + core::fmt::Debug, C: Content> Server<A, C> {
    /// Sends what leaves the source now.
    pub(super) fn distribute(&mut self, now: Time) {
        while let Some(leaving) = self.source.poll(now) {
            match leaving {
                Leaving::Manifest(manifest) => self.announce(manifest),
                Leaving::Packets(signed) => self.push(now, signed),
            }
        }
    }

    fn announce(&mut self, manifest: Arc<Manifest<C>>) {
        if self.config.mode.has_trees() {
            let slice = manifest_slice(manifest.generation, self.config.tracker.slices);
            for child in self.pushing.children(slice) {
                self.uplink.tell(child, Datagram::Manifest(Arc::clone(&manifest)));
            }
        }
        self.manifests.push_back(manifest);
    }

    fn push(&mut self, now: Time, signed: Signed<C>) {
        let Signed { manifest, packets } = signed;
        let slices = self.config.tracker.slices;
        let seeds = if self.config.mode.has_trees() { Vec::new() } else { self.seeds(&manifest) };
        for (number, (stamp, packet)) in (0..).zip(packets) {
            let id = manifest.first.after(number);
            self.kept.insert(id, stamp, packet);
            for &seed in seeds.get(number as usize).into_iter().flatten() {
                self.uplink.push(now, seed, id);
            }
            for child in self.pushing.children(id.slice(slices)) {
                self.uplink.push(now, child, id);
            }
        }
        while self.manifests.front().is_some_and(|oldest| oldest.end() <= self.kept.oldest()) {
            self.manifests.pop_front();
        }
        let bitrate = self.source.bitrate(now);
        self.tracker.set_bitrate(bitrate);
    }

    /// Where a mesh alone carries the stream: to whom each packet of a generation goes first, as many as
    /// the server can serve, in turn. They get its manifest, too.
    fn seeds(&mut self, manifest: &Arc<Manifest<C>>) -> Vec<Vec<SessionId>> {
        let viewers: Vec<SessionId> = self.tracker.viewers().map(|viewer| viewer.session).collect();
        let packets = usize::from(manifest.packets);
        // What is left for packets beside the manifests that go with them; of those a copy of the stream has one in
        // each generation already.
        let told = Datagram::Manifest(Arc::clone(manifest));
        let packet = MAX_PACKET as f64 * on_wire::STREAM;
        let share = packet / (packet + on_wire::of(&told) as f64 / PACKETS_OF_A_SEED as f64);
        let of_packets = |packets: usize| (self.tracker.copies_of(packets) as f64 * share) as usize;
        // Some packets one copy more than others, where copies do not come out even.
        let before = |packet: usize| of_packets(packet).max(packet).min(packet * viewers.len());
        let copies = before(packets);
        // No packet twice to the same viewer.
        let group = (copies / PACKETS_OF_A_SEED).max(copies.div_ceil(packets.max(1))).clamp(1, viewers.len().max(1));
        let seed = |number: usize| viewers[(self.next_seed + number % group) % viewers.len()];
        let seeds: Vec<Vec<SessionId>> =
            (0..packets).map(|packet| (before(packet)..before(packet + 1)).map(seed).collect()).collect();
        for told in 0..group.min(copies) {
            self.uplink.tell(seed(told), Datagram::Manifest(Arc::clone(manifest)));
        }
        self.next_seed = (self.next_seed + group) % viewers.len().max(1);
        seeds
    }
}
