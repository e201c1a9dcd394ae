//! What comes to a client: nothing is kept or passed on before the source's signature covers it.
//! A packet that overtakes its manifest waits for it.

use std::collections::VecDeque;
use std::sync::Arc;

use anabranch_control::time::{Duration, Time};

use super::buffer::{Buffer, BufferConfig, Inserted, Release};
use super::content::{Broadcast, Content, Manifest};
use super::manifest_holes::Hole;
use super::packet::{PacketId, Stamp};
use super::source_clock::SourceClock;
use crate::session::{PeerKey, SessionId};

/// Packets that wait for their manifest at most: what somebody begins with, three seconds of 5 Mbit/s.
const MOST_UNPROVEN: usize = 1536;

/// Of those, from one session: what one peer may send too early or make up.
const MOST_UNPROVEN_OF_ONE: usize = 512;

/// Manifests that are kept at most: half a minute of a hundred milliseconds each.
const MOST_MANIFESTS: usize = 300;

/// What became of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is genuine and new: it may go to others.
    New,
    /// It is genuine and new, and too late for our players.
    Late,
    /// It is here.
    Copy,
    /// It is not what the source has signed.
    Forged,
    /// Nobody can tell yet.
    Unproven,
    /// It is too old to be told, or too much is unproven.
    Ignored,
}

/// A packet as it came.
#[derive(Clone, Debug)]
pub struct Arrived<P> {
    /// From whom.
    pub from: SessionId,
    /// Which.
    pub id: PacketId,
    /// When it left the source.
    pub stamp: Stamp,
    /// Its bytes.
    pub packet: P,
}

/// What a client has of a stream, proven and unproven.
#[derive(Clone, Debug)]
pub struct Receiving<C: Content> {
    source: PeerKey,
    broadcast: Broadcast,
    /// In the order of their generations.
    manifests: VecDeque<Arc<Manifest<C>>>,
    /// Each with the time since which it waits.
    unproven: Vec<(Time, Arrived<C::Packet>)>,
    /// Within what time behind its manifest a generation has left.
    leaves_within: Duration,
    /// Up to which packet manifests announce the stream, and since when, from the last one on whose packets nobody
    /// waits for any more.
    announced: VecDeque<(Time, PacketId)>,
    /// How long players wait for a packet, and since when none has come that was missing.
    patience: Duration,
    came: Time,
    /// Whether what players wait for waits for its manifest also below the oldest that is here.
    asks_below: bool,
    buffer: Buffer<C::Packet>,
    clock: SourceClock,
}

impl<C: Content> Receiving<C> {
    /// Nothing yet of `broadcast` of `source`, whose packets have left it `leaves_within` after their manifest; players
    /// get what comes from `first` on, which is asked for `now` and waited for from now on, however old it is.
    pub fn new(
        now: Time,
        (source, broadcast): (PeerKey, Broadcast),
        config: BufferConfig,
        first: PacketId,
        leaves_within: Duration,
    ) -> Receiving<C> {
        let mut buffer = Buffer::new(config, first);
        buffer.wait_until(now + config.patience);
        Receiving {
            source,
            broadcast,
            manifests: VecDeque::new(),
            unproven: Vec::new(),
            leaves_within,
            announced: VecDeque::new(),
            patience: config.patience,
            came: now,
            asks_below: false,
            buffer,
            clock: SourceClock::default(),
        }
    }

    /// What players wait for waits for its manifest also where only later ones are here: it is asked for. A newcomer's
    /// first generations may be announced just when it is let in, to others.
    pub fn ask_below(&mut self) {
        self.asks_below = true;
    }

    /// What is here.
    pub fn buffer(&self) -> &Buffer<C::Packet> {
        &self.buffer
    }

    /// How old the last packet was that went to players, in whole milliseconds: beyond the fastest way from the
    /// source. None before the first.
    pub fn delay(&self, now: Time) -> Option<Duration> {
        let last = PacketId(self.buffer().next().0.checked_sub(1)?);
        let (stamp, _) = self.buffer().get(last)?;
        Some(Duration::from_millis(self.clock().age(now, stamp).as_nanos() / 1_000_000))
    }

    /// The source's clock.
    pub fn clock(&self) -> &SourceClock {
        &self.clock
    }

    /// What goes to the players now.
    #[inline]
    pub fn release(&mut self, now: Time) -> Option<Release<C::Packet>> {
        self.buffer.release(now, &self.clock).or_else(|| self.give_up(now))
    }

    /// When [`Receiving::release`] has something if nothing else comes; `Time::MAX` for never.
    pub fn release_at(&self, now: Time) -> Time {
        self.buffer.release_at(now, &self.clock).min(self.give_up_at().max(now))
    }

    /// Where nothing at all comes, there is no packet behind the hole by whose age it is skipped: players wait as long
    /// for what manifests tell of, from when it left or the last packet came.
    fn give_up(&mut self, now: Time) -> Option<Release<C::Packet>> {
        if now < self.give_up_at() {
            return None;
        }
        let overdue =
            self.announced.partition_point(|(at, _)| *at + self.leaves_within + self.patience <= now).checked_sub(1)?;
        self.buffer.skip_to(self.announced[overdue].1)
    }

    /// When players are told that they miss what has not come; `Time::MAX` while there is something behind it.
    fn give_up_at(&self) -> Time {
        let next = self.buffer.next();
        if next < self.buffer.end() {
            return Time::MAX;
        }
        let missed = self.announced.partition_point(|(_, end)| *end <= next);
        self.announced
            .get(missed)
            .map_or(Time::MAX, |(at, _)| (*at + self.leaves_within).max(self.came) + self.patience)
    }

    /// The manifest that covers `id`, if it has come.
    pub fn manifest(&self, id: PacketId) -> Option<&Arc<Manifest<C>>> {
        let behind = self.manifests.partition_point(|manifest| manifest.first <= id);
        self.manifests.get(behind.checked_sub(1)?).filter(|manifest| manifest.covers(id))
    }

    /// The first packet above all that are known to have left the source: those that are here, and those whose
    /// manifest has come so long ago that they have left.
    pub fn left(&self, now: Time) -> PacketId {
        let left = self.announced.partition_point(|(at, _)| *at + self.leaves_within <= now).checked_sub(1);
        left.map_or(self.buffer.end(), |last| self.announced[last].1.max(self.buffer.end()))
    }

    /// The first packet above all that the source is known to have signed.
    pub fn announced(&self) -> PacketId {
        self.announced.back().map_or(self.buffer.end(), |&(_, end)| end.max(self.buffer.end()))
    }

    /// A packet comes.
    #[inline]
    pub fn on_packet(&mut self, now: Time, arrived: Arrived<C::Packet>) -> Verdict {
        let Some(manifest) = self.manifest(arrived.id) else { return self.wait(now, arrived) };
        let Arrived { id, stamp, packet, .. } = arrived;
        if self.buffer.contains(id) {
            return Verdict::Copy;
        }
        if !C::is_genuine(manifest, id, stamp, &packet) {
            return Verdict::Forged;
        }
        self.clock.on_arrival(now, stamp);
        self.came = now;
        match self.buffer.insert(id, stamp, packet) {
            Inserted::New => Verdict::New,
            Inserted::Late => Verdict::Late,
            Inserted::Copy => Verdict::Copy,
            Inserted::TooOld => Verdict::Ignored,
        }
    }

    fn wait(&mut self, now: Time, arrived: Arrived<C::Packet>) -> Verdict {
        let awaited = if self.asks_below { self.buffer.next() } else { PacketId(u64::MAX) };
        let is_old = self.manifests.front().is_some_and(|oldest| arrived.id < oldest.first.min(awaited));
        if is_old || self.unproven.len() >= MOST_UNPROVEN {
            return Verdict::Ignored;
        }
        let mut of_one = 0;
        for (_, waiting) in &self.unproven {
            if waiting.id == arrived.id && waiting.from == arrived.from {
                return Verdict::Copy;
            }
            of_one += usize::from(waiting.from == arrived.from);
        }
        if of_one >= MOST_UNPROVEN_OF_ONE {
            return Verdict::Ignored;
        }
        self.unproven.push((now, arrived));
        Verdict::Unproven
    }

    /// A manifest comes: whether it is new and signed. What waited for it is then to be taken by
    /// [`Receiving::next_proven`]. `None` if it is not the source's.
    pub fn on_manifest(&mut self, now: Time, manifest: Arc<Manifest<C>>) -> Option<bool> {
        let place = self.manifests.partition_point(|other| other.generation < manifest.generation);
        if self.manifests.get(place).is_some_and(|other| other.generation == manifest.generation) {
            return Some(false);
        }
        if !C::is_signed(&self.source, self.broadcast, &manifest) {
            return None;
        }
        if place == 0 && self.manifests.len() >= MOST_MANIFESTS {
            return Some(false);
        }
        if self.announced.back().is_none_or(|(_, end)| *end < manifest.end()) {
            self.announced.push_back((now, manifest.end()));
        }
        while self.announced.get(1).is_some_and(|(at, _)| *at + self.leaves_within + self.patience <= now) {
            self.announced.pop_front();
        }
        self.manifests.insert(place, manifest);
        if self.manifests.len() > MOST_MANIFESTS {
            self.manifests.pop_front();
        }
        Some(true)
    }

    /// A packet that has waited for a manifest which has come, to be given to
    /// [`Receiving::on_packet`] again.
    pub fn next_proven(&mut self) -> Option<Arrived<C::Packet>> {
        let place = self.unproven.iter().position(|(_, waiting)| self.manifest(waiting.id).is_some())?;
        Some(self.unproven.remove(place).1)
    }

    /// Packets that have come and wait for their manifest, though not for as long as `patience`; in order.
    pub fn unproven(&self, now: Time, patience: Duration) -> Vec<PacketId> {
        let waiting = self.unproven.iter().filter(|&&(since, _)| now.since(since) < patience);
        let mut unproven: Vec<PacketId> = waiting.map(|(_, arrived)| arrived.id).collect();
        unproven.sort_unstable();
        unproven
    }

    /// Whom to ask for the manifests of which packets that have waited for them for `patience`, the last
    /// included: those that came too early from the peer that sent most of them, then what others sent
    /// beyond those.
    pub fn missing_manifests(&self, now: Time, patience: Duration) -> Vec<(SessionId, PacketId, PacketId)> {
        let mut early: Vec<(SessionId, PacketId, PacketId, usize)> = Vec::new();
        for (_, waiting) in self.unproven.iter().filter(|&&(since, _)| now.since(since) >= patience) {
            match early.iter_mut().find(|(from, ..)| *from == waiting.from) {
                Some((_, first, last, count)) => {
                    (*first, *last) = (waiting.id.min(*first), waiting.id.max(*last));
                    *count += 1;
                }
                None => early.push((waiting.from, waiting.id, waiting.id, 1)),
            }
        }
        early.sort_by_key(|&(from, .., count)| (core::cmp::Reverse(count), from));
        let mut missing: Vec<(SessionId, PacketId, PacketId)> = Vec::new();
        for (from, first, last, _) in early {
            if !missing.iter().any(|&(_, asked, until)| asked <= first && last <= until) {
                missing.push((from, first, last));
            }
        }
        missing
    }

    /// Manifests that have not come, though a later one has, and that players still wait for.
    pub fn manifest_holes(&self) -> Vec<Hole> {
        let next = self.buffer.next();
        let from = self.manifests.partition_point(|manifest| manifest.end() < next);
        let behind = self.manifests.range(from..).zip(self.manifests.iter().skip(from + 1));
        let lacks = behind.filter(|(before, after)| before.end() < after.first && before.generation < after.generation);
        let hole = |(before, after): (&Arc<Manifest<C>>, &Arc<Manifest<C>>)| Hole {
            generation: before.generation + 1,
            packets: (before.end(), PacketId(after.first.0 - 1)),
        };
        lacks.map(hole).collect()
    }

    /// The manifests of packets from `first` to `last`, as far as they are here, the oldest first.
    pub fn manifests(&self, first: PacketId, last: PacketId) -> impl Iterator<Item = &Arc<Manifest<C>>> {
        let from = self.manifests.partition_point(|manifest| manifest.end() <= first);
        self.manifests.range(from..).take_while(move |manifest| manifest.first <= last)
    }

    /// A session is over: its number may soon be another's.
    pub fn forget(&mut self, session: SessionId) {
        self.unproven.retain(|(_, waiting)| waiting.from != session);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{TestPacket, Tested, key_of};
    use super::*;

    fn at(millis: u64) -> Time {
        Time::ZERO + Duration::from_millis(millis)
    }

    #[test]
    fn what_waits_for_its_manifest_is_known_until_it_has_waited_too_long() {
        let config = BufferConfig { patience: Duration::from_millis(2700), capacity: 2048 };
        let mut receiving: Receiving<Tested> =
            Receiving::new(at(0), (key_of(0), Broadcast(1)), config, PacketId(0), Duration::ZERO);
        for (millis, id) in [(0, 9), (400, 4)] {
            let packet = TestPacket { is_genuine: true };
            let arrived = Arrived { from: SessionId(1), id: PacketId(id), stamp: Stamp::default(), packet };
            assert_eq!(receiving.on_packet(at(millis), arrived), Verdict::Unproven);
        }
        let patience = Duration::from_millis(500);
        assert_eq!(receiving.unproven(at(499), patience), [PacketId(4), PacketId(9)]);
        assert_eq!(receiving.unproven(at(500), patience), [PacketId(4)]);
        receiving.forget(SessionId(1));
        assert_eq!(receiving.unproven(at(500), patience), []);
    }

    #[test]
    fn in_a_mesh_alone_what_players_wait_for_waits_for_its_manifest_also_below_the_oldest_that_is_here() {
        let config = BufferConfig { patience: Duration::from_millis(2700), capacity: 2048 };
        let mut receiving: Receiving<Tested> =
            Receiving::new(at(0), (key_of(0), Broadcast(1)), config, PacketId(10), Duration::ZERO);
        let manifest = |generation: u32, first: u64| {
            Arc::new(Manifest { generation, first: PacketId(first), packets: 10, proofs: (true, Broadcast(1)) })
        };
        let comes = |receiving: &mut Receiving<Tested>, id: u64| {
            let packet = TestPacket { is_genuine: true };
            let arrived = Arrived { from: SessionId(1), id: PacketId(id), stamp: Stamp::default(), packet };
            receiving.on_packet(at(0), arrived)
        };
        assert_eq!(receiving.on_manifest(at(0), manifest(2, 20)), Some(true));
        assert_eq!(comes(&mut receiving, 12), Verdict::Ignored, "parents bring it with its manifest");
        receiving.ask_below();
        assert_eq!(comes(&mut receiving, 12), Verdict::Unproven);
        assert_eq!(comes(&mut receiving, 9), Verdict::Ignored, "nobody waits for it");
        let missing = receiving.missing_manifests(at(0), Duration::ZERO);
        assert_eq!(missing, [(SessionId(1), PacketId(12), PacketId(12))]);
        assert_eq!(receiving.on_manifest(at(0), manifest(1, 10)), Some(true));
        assert_eq!(receiving.next_proven().map(|arrived| arrived.id), Some(PacketId(12)));
    }

    #[test]
    fn manifests_between_two_that_are_here_are_missing() {
        let config = BufferConfig { patience: Duration::from_millis(2700), capacity: 2048 };
        let mut receiving: Receiving<Tested> =
            Receiving::new(at(0), (key_of(0), Broadcast(1)), config, PacketId(20), Duration::ZERO);
        let mut holes_after = |generation: u32| {
            let manifest = Manifest {
                generation,
                first: PacketId(u64::from(generation) * 10),
                packets: 10,
                proofs: (true, Broadcast(1)),
            };
            receiving.on_manifest(at(0), Arc::new(manifest));
            let holes = receiving.manifest_holes();
            holes.iter().map(|hole| (hole.generation, hole.packets.0.0, hole.packets.1.0)).collect::<Vec<_>>()
        };
        // Players wait for nothing below packet 20.
        assert_eq!(holes_after(0), []);
        assert_eq!(holes_after(2), []);
        assert_eq!(holes_after(6), [(3, 30, 59)]);
        assert_eq!(holes_after(4), [(3, 30, 39), (5, 50, 59)]);
        assert_eq!(holes_after(5), [(3, 30, 39)]);
        assert_eq!(holes_after(3), []);
    }

    #[test]
    fn a_manifest_shows_which_packets_have_left_once_all_have_had_their_turn() {
        let config = BufferConfig { patience: Duration::from_millis(2700), capacity: 2048 };
        let within = Duration::from_millis(300);
        let mut receiving: Receiving<Tested> =
            Receiving::new(at(0), (key_of(0), Broadcast(1)), config, PacketId(0), within);
        for (millis, generation) in [(0, 0), (100, 1), (200, 2)] {
            let manifest = Manifest {
                generation,
                first: PacketId(u64::from(generation) * 10),
                packets: 10,
                proofs: (true, Broadcast(1)),
            };
            assert_eq!(receiving.on_manifest(at(millis), Arc::new(manifest)), Some(true));
        }
        let left = |millis: u64| receiving.left(at(millis)).0;
        assert_eq!([left(299), left(300), left(499), left(500)], [0, 10, 20, 30]);
    }
}
