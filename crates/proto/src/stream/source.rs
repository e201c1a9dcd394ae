//! Where a stream begins: packets get their numbers and stamps, and leave in generations, each after
//! the manifest by which others tell them from forgeries.

use std::collections::VecDeque;
use std::sync::Arc;

use anabranch_control::time::{Duration, Time};
use anabranch_control::units::Rate;

use super::content::{Content, MAX_GENERATION, Manifest};
use super::packet::{PacketId, Stamp};

/// How long packets wait at most for the others of their generation. It is a part of the delay that
/// all viewers have; a signature for each packet would cost a core for twenty viewers.
const GENERATION: Duration = Duration::from_millis(100);

/// The bitrate is that of so long a time.
const BITRATE_WINDOW: Duration = Duration::from_millis(3000);

/// Keyframes that are remembered at most: of half a minute, if they are a second apart.
const MOST_KEYFRAMES: usize = 30;

/// A generation that is complete.
#[derive(Clone, Debug)]
pub struct Signed<C: Content> {
    /// What proves its packets.
    pub manifest: Arc<Manifest<C>>,
    /// Its packets in order, the first with the manifest's first number.
    pub packets: Vec<(Stamp, C::Packet)>,
}

/// The beginning of a stream.
#[derive(Clone, Debug)]
pub struct Source<C: Content> {
    secret: C::Secret,
    start: Time,
    generation: u32,
    /// The first packet of the generation that is being collected.
    first: PacketId,
    collected: Vec<(Stamp, C::Packet)>,
    /// When the first of them came.
    since: Time,
    keyframes: VecDeque<(PacketId, Stamp)>,
    /// When generations left, and how many bytes each had.
    recent: VecDeque<(Time, u64)>,
    recent_bytes: u64,
}

impl<C: Content> Source<C> {
    /// A stream that begins at `start`, signed with `secret`.
    pub fn new(secret: C::Secret, start: Time) -> Source<C> {
        Source {
            secret,
            start,
            generation: 0,
            first: PacketId(0),
            collected: Vec::new(),
            since: start,
            keyframes: VecDeque::new(),
            recent: VecDeque::new(),
            recent_bytes: 0,
        }
    }

    /// By which it signs.
    pub fn secret(&self) -> &C::Secret {
        &self.secret
    }

    /// The time of the stream.
    pub fn stamp(&self, now: Time) -> Stamp {
        Stamp::at(now, self.start)
    }

    /// How long ago a packet came.
    pub fn age(&self, now: Time, stamp: Stamp) -> Duration {
        now.since(self.start + stamp.elapsed())
    }

    /// The next packet that leaves.
    pub fn edge(&self) -> PacketId {
        self.first
    }

    /// The stream goes on; `is_keyframe` if players can begin with this packet. A generation that is
    /// full is given back.
    pub fn on_packet(&mut self, now: Time, packet: C::Packet, is_keyframe: bool) -> Option<Signed<C>> {
        if self.collected.is_empty() {
            self.since = now;
        }
        let stamp = self.stamp(now);
        if is_keyframe {
            let id = self.first.after(self.collected.len() as u64);
            self.keyframes.push_back((id, stamp));
            if self.keyframes.len() > MOST_KEYFRAMES {
                self.keyframes.pop_front();
            }
        }
        self.collected.push((stamp, packet));
        (self.collected.len() == usize::from(MAX_GENERATION)).then(|| self.sign(now))
    }

    /// The generation that has been collected for long enough, if one has.
    pub fn poll(&mut self, now: Time) -> Option<Signed<C>> {
        (now >= self.due()).then(|| self.sign(now))
    }

    /// When a generation is due; `Time::MAX` if nothing is collected.
    pub fn due(&self) -> Time {
        if self.collected.is_empty() { Time::MAX } else { self.since + GENERATION }
    }

    fn sign(&mut self, now: Time) -> Signed<C> {
        let packets = std::mem::take(&mut self.collected);
        let proofs = C::prove(&self.secret, self.generation, self.first, &packets);
        let manifest =
            Manifest { generation: self.generation, first: self.first, packets: packets.len() as u16, proofs };
        let bytes = packets.iter().map(|(_, packet)| C::packet_length(packet) as u64).sum();
        self.recent.push_back((now, bytes));
        self.recent_bytes += bytes;
        self.first = manifest.end();
        self.generation += 1;
        Signed { manifest: Arc::new(manifest), packets }
    }

    /// Bits of packets a second over the last seconds; zero before the first generation.
    pub fn bitrate(&mut self, now: Time) -> Rate {
        while let Some(&(at, bytes)) = self.recent.front()
            && self.recent.len() > 1
            && now.since(at) > BITRATE_WINDOW
        {
            self.recent_bytes -= bytes;
            self.recent.pop_front();
        }
        let Some(&(oldest, _)) = self.recent.front() else { return Rate::ZERO };
        // A generation tells of the time until the next one.
        let span = now.since(oldest).max(GENERATION);
        Rate::from_bytes_per_sec_f64(self.recent_bytes as f64 / span.as_secs_f64())
    }

    /// The newest packet to begin with that left `behind` ago or earlier; the oldest that is known
    /// if all are newer.
    pub fn keyframe(&self, now: Time, behind: Duration) -> Option<PacketId> {
        let latest = self.stamp(now).elapsed();
        let is_old = |stamp: Stamp| stamp.elapsed() + behind <= latest;
        let old = self.keyframes.iter().rev().find(|(_, stamp)| is_old(*stamp));
        old.or(self.keyframes.front()).map(|&(id, _)| id)
    }
}
