//! Where a stream begins: packets get their numbers and stamps, and leave in generations, each after
//! the manifest by which others tell them from forgeries: at once after it, or so much later that most viewers
//! have it when they come.

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

/// Who brings no packet for so long has paused: a camera that stands still, an input that begins again.
const PAUSE: Duration = Duration::from_millis(1000);

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

/// What leaves next.
#[derive(Clone, Debug)]
pub enum Leaving<C: Content> {
    /// The manifest of a generation whose packets follow.
    Manifest(Arc<Manifest<C>>),
    /// Its packets.
    Packets(Signed<C>),
}

/// The beginning of a stream.
#[derive(Clone, Debug)]
pub struct Source<C: Content> {
    secret: C::Secret,
    start: Time,
    /// How long packets wait behind their manifest.
    lead: Duration,
    /// Generations that have not left, each with the time since which it is complete; and of how many of them,
    /// the oldest, the manifest has.
    signed: VecDeque<(Time, Signed<C>)>,
    announced: usize,
    generation: u32,
    /// The first packet of the generation that is being collected.
    first: PacketId,
    collected: Vec<(Stamp, C::Packet)>,
    /// When the first of them came.
    since: Time,
    keyframes: VecDeque<(PacketId, Stamp)>,
    /// When the first generation came after the last pause.
    resumed: Time,
    /// When generations left, and how many bytes each had.
    recent: VecDeque<(Time, u64)>,
    recent_bytes: u64,
}

impl<C: Content> Source<C> {
    /// A stream that begins at `start`, signed with `secret`; packets leave `lead` after their manifest.
    pub fn new(secret: C::Secret, start: Time, lead: Duration) -> Source<C> {
        Source {
            secret,
            start,
            lead,
            signed: VecDeque::new(),
            announced: 0,
            generation: 0,
            first: PacketId(0),
            collected: Vec::new(),
            since: start,
            keyframes: VecDeque::new(),
            resumed: start,
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

    /// How long ago a packet came, less what it has waited behind its manifest.
    pub fn age(&self, now: Time, stamp: Stamp) -> Duration {
        now.since(self.start + stamp.elapsed() + self.lead)
    }

    /// The next packet that leaves.
    pub fn edge(&self) -> PacketId {
        self.signed.front().map_or(self.first, |(_, signed)| signed.manifest.first)
    }

    /// The stream goes on; `is_keyframe` if players can begin with this packet. [`Source::poll`] gives what
    /// leaves.
    pub fn on_packet(&mut self, now: Time, packet: C::Packet, is_keyframe: bool) {
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
        if self.collected.len() == usize::from(MAX_GENERATION) {
            self.sign(now);
        }
    }

    /// What leaves now: generations that are full, or have been collected for long enough.
    pub fn poll(&mut self, now: Time) -> Option<Leaving<C>> {
        if !self.collected.is_empty() && now >= self.since + GENERATION {
            self.sign(now);
        }
        if let Some((_, signed)) = self.signed.get(self.announced) {
            self.announced += 1;
            return Some(Leaving::Manifest(Arc::clone(&signed.manifest)));
        }
        if self.signed.front().is_none_or(|(at, _)| now < *at + self.lead) {
            return None;
        }
        self.announced -= 1;
        self.signed.pop_front().map(|(_, signed)| Leaving::Packets(signed))
    }

    /// When something leaves next; `Time::MAX` if nothing waits.
    pub fn due(&self) -> Time {
        let collected = if self.collected.is_empty() { Time::MAX } else { self.since + GENERATION };
        let signed = self.signed.front().map_or(Time::MAX, |(at, _)| *at + self.lead);
        if self.announced < self.signed.len() { Time::ZERO } else { collected.min(signed) }
    }

    fn sign(&mut self, now: Time) {
        let packets = std::mem::take(&mut self.collected);
        let proofs = C::prove(&self.secret, self.generation, self.first, &packets);
        let manifest =
            Manifest { generation: self.generation, first: self.first, packets: packets.len() as u16, proofs };
        let bytes = packets.iter().map(|(_, packet)| C::packet_length(packet) as u64).sum();
        if self.is_paused(now) {
            self.resumed = now;
        }
        self.recent.push_back((now, bytes));
        self.recent_bytes += bytes;
        self.first = manifest.end();
        self.generation += 1;
        self.signed.push_back((now, Signed { manifest: Arc::new(manifest), packets }));
    }

    fn is_paused(&self, now: Time) -> bool {
        self.recent.back().is_none_or(|&(last, _)| now >= last + PAUSE)
    }

    /// Since when it goes on without a pause; none in one.
    pub fn goes_on_since(&self, now: Time) -> Option<Time> {
        (!self.is_paused(now)).then_some(self.resumed)
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

    /// The newest packet to begin with that came `behind` ago or earlier; the oldest that is known
    /// if all are newer.
    pub fn keyframe(&self, now: Time, behind: Duration) -> Option<PacketId> {
        let latest = self.stamp(now).elapsed();
        let is_old = |stamp: Stamp| stamp.elapsed() + behind <= latest;
        let old = self.keyframes.iter().rev().find(|(_, stamp)| is_old(*stamp));
        old.or(self.keyframes.front()).map(|&(id, _)| id)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{TestPacket, Tested};
    use super::*;

    const LEAD: Duration = Duration::from_millis(300);

    fn at(millis: u64) -> Time {
        Time::ZERO + Duration::from_millis(millis)
    }

    /// What leaves until `end` of a source that gets a packet each 10 ms, the first a keyframe: when, the first number,
    /// and whether it is a manifest.
    fn leaving(source: &mut Source<Tested>, end: u64) -> Vec<(u64, u64, bool)> {
        let mut leaving = Vec::new();
        for millis in 0..end {
            if millis % 10 == 0 {
                source.on_packet(at(millis), TestPacket { is_genuine: true }, millis == 0);
            }
            while let Some(next) = source.poll(at(millis)) {
                leaving.push(match next {
                    Leaving::Manifest(manifest) => (millis, manifest.first.0, true),
                    Leaving::Packets(signed) => (millis, signed.manifest.first.0, false),
                });
            }
            assert!(source.due() > at(millis), "nothing that is due stays");
        }
        leaving
    }

    #[test]
    fn packets_leave_the_lead_behind_their_manifest_and_in_order() {
        let mut source: Source<Tested> = Source::new(0, at(0), LEAD);
        let left = leaving(&mut source, 600);
        let manifests: Vec<_> = left.iter().filter(|left| left.2).map(|left| (left.0, left.1)).collect();
        let packets: Vec<_> = left.iter().filter(|left| !left.2).map(|left| (left.0 - 300, left.1)).collect();
        assert_eq!(manifests[0], (100, 0));
        assert!(manifests.len() == 5 && packets.len() == 2, "{left:?}");
        assert_eq!(packets, manifests[..2]);
        // The next that leaves is the first whose packets have not.
        assert_eq!(source.edge().0, manifests[2].1);
        // Its keyframe came at 0, and has left at 400.
        assert_eq!(source.age(at(599), Stamp(0)), Duration::from_millis(299));
    }

    #[test]
    fn without_a_lead_packets_leave_with_their_manifest() {
        let mut source: Source<Tested> = Source::new(0, at(0), Duration::ZERO);
        let left = leaving(&mut source, 250);
        assert_eq!(left.iter().map(|left| left.2).collect::<Vec<_>>(), [true, false, true, false]);
        assert!(left.chunks(2).all(|pair| pair[0].0 == pair[1].0), "{left:?}");
    }
}
