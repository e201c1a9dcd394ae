//! Where a stream begins: packets get their numbers and stamps, and are signed in generations. Each generation leaves
//! after the manifest by which others tell its packets from forgeries: at once after it, or so much later that most
//! viewers have it when they come.
//!
//! Where trees push them, the packets of a generation leave one by one, evenly over the time in which one is collected.
//! All at once, each for several children, they would be a queue of the server's own line, and of each viewer's behind
//! it, ten times a second: a congestion controller that goes by delays takes that for a path that is full.

use std::collections::VecDeque;
use std::sync::Arc;

use anabranch_control::time::{Duration, Time};
use anabranch_control::units::Rate;

use super::content::{Broadcast, Content, MAX_GENERATION, Manifest};
use super::packet::{PacketId, Stamp};

/// How long packets wait at most for the others of their generation. It is a part of the delay that
/// all viewers have; a signature for each packet would cost a core for twenty viewers.
pub(super) const GENERATION: Duration = Duration::from_millis(100);

/// The bitrate is that of so long a time.
const BITRATE_WINDOW: Duration = Duration::from_millis(3000);

/// Who brings no packet for so long has paused: a camera that stands still, an input that begins again.
const PAUSE: Duration = Duration::from_millis(1000);

/// Keyframes that are remembered at most: of half a minute, if they are a second apart.
const MOST_KEYFRAMES: usize = 30;

/// What leaves next.
#[derive(Clone, Debug)]
pub enum Leaving<C: Content> {
    /// The manifest of a generation whose packets follow.
    Manifest(Arc<Manifest<C>>),
    /// A packet, and when it came to the source.
    Packet(PacketId, Stamp, C::Packet),
}

/// A generation that is complete, and has not left as a whole.
#[derive(Clone, Debug)]
struct Signed<C: Content> {
    /// Since when it is.
    at: Time,
    manifest: Arc<Manifest<C>>,
    /// Packets that have not left.
    packets: VecDeque<(Stamp, C::Packet)>,
}

/// The beginning of a stream.
#[derive(Clone, Debug)]
pub struct Source<C: Content> {
    secret: C::Secret,
    broadcast: Broadcast,
    start: Time,
    /// How long the first packet of a generation waits behind its manifest, and the last behind the first.
    lead: Duration,
    spread: Duration,
    /// Generations that have not left; and of how many of them, the oldest, the manifest has.
    signed: VecDeque<Signed<C>>,
    announced: usize,
    /// No packet leaves before.
    next_packet: Time,
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
    /// `broadcast`, which begins at `start` and is signed with `secret`; packets begin to leave `lead` after their manifest,
    /// evenly over `spread`.
    pub fn new(secret: C::Secret, broadcast: Broadcast, start: Time, lead: Duration, spread: Duration) -> Source<C> {
        Source {
            secret,
            broadcast,
            start,
            lead,
            spread,
            signed: VecDeque::new(),
            announced: 0,
            next_packet: start,
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

    /// Which broadcast of its key it is.
    pub fn broadcast(&self) -> Broadcast {
        self.broadcast
    }

    /// The time of the stream.
    pub fn stamp(&self, now: Time) -> Stamp {
        Stamp::at(now, self.start)
    }

    /// How long the last packet of a generation stays.
    pub fn delay(&self) -> Duration {
        self.lead + self.spread
    }

    /// When a packet came that has `stamp`, in milliseconds of the stream, and what they are `now`.
    fn millis(&self, now: Time, stamp: Stamp) -> (u64, u64) {
        let elapsed = now.since(self.start).as_nanos() / 1_000_000;
        (stamp.millis_near(elapsed), elapsed)
    }

    /// How long ago a packet left that stayed so long.
    pub fn age(&self, now: Time, stamp: Stamp) -> Duration {
        let (came, _) = self.millis(now, stamp);
        now.since(self.start + Duration::from_millis(came) + self.delay())
    }

    /// The next packet that leaves.
    pub fn edge(&self) -> PacketId {
        let unsent = |signed: &Signed<C>| PacketId(signed.manifest.end().0 - signed.packets.len() as u64);
        self.signed.front().map_or(self.first, unsent)
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
        if let Some(signed) = self.signed.get(self.announced) {
            self.announced += 1;
            return Some(Leaving::Manifest(Arc::clone(&signed.manifest)));
        }
        let due = self.packet_due();
        if now < due {
            return None;
        }
        let id = self.edge();
        let front = self.signed.front_mut()?;
        let (stamp, packet) = front.packets.pop_front()?;
        if front.packets.is_empty() {
            self.signed.pop_front();
            self.announced -= 1;
        }
        // Timers may be late: what leaves late must not put off what is behind it.
        self.next_packet = due + self.gap(due);
        Some(Leaving::Packet(id, stamp, packet))
    }

    /// When the next packet leaves; `Time::MAX` if none waits.
    fn packet_due(&self) -> Time {
        self.signed.front().map_or(Time::MAX, |signed| (signed.at + self.lead).max(self.next_packet))
    }

    /// The time from `due`, when a packet left, to the next: all leave evenly, and each generation within its time,
    /// also where several are complete at once, as behind a burst of the input.
    fn gap(&self, due: Time) -> Duration {
        let mut packets = 0;
        let gaps = self.signed.iter().take_while(|signed| signed.at + self.lead <= due).map(|signed| {
            packets += signed.packets.len() as u64;
            (signed.at + self.delay()).since(due) / (packets + 1)
        });
        // Whatever is complete later begins at once.
        gaps.min().unwrap_or(Duration::ZERO)
    }

    /// When something leaves next; `Time::MAX` if nothing waits.
    pub fn due(&self) -> Time {
        let collected = if self.collected.is_empty() { Time::MAX } else { self.since + GENERATION };
        if self.announced < self.signed.len() { Time::ZERO } else { collected.min(self.packet_due()) }
    }

    fn sign(&mut self, now: Time) {
        let packets = std::mem::take(&mut self.collected);
        let proofs = C::prove(&self.secret, self.broadcast, self.generation, self.first, &packets);
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
        self.signed.push_back(Signed { at: now, manifest: Arc::new(manifest), packets: packets.into() });
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
        let (Some(&(oldest, before)), Some(&(newest, _))) = (self.recent.front(), self.recent.back()) else {
            return Rate::ZERO;
        };
        // A generation tells of the time since the one before it; the first one of its own time. The next one is late
        // once that time has passed again.
        let (bytes, span) = match newest.since(oldest) {
            Duration::ZERO => (self.recent_bytes, GENERATION),
            span => (self.recent_bytes - before, span.max(now.since(oldest + GENERATION))),
        };
        Rate::from_bytes_per_sec_f64(bytes as f64 / span.as_secs_f64())
    }

    /// The newest packet to begin with that came `behind` ago or earlier; the oldest that is known
    /// if all are newer.
    pub fn keyframe(&self, now: Time, behind: Duration) -> Option<PacketId> {
        let is_old = |stamp: Stamp| {
            let (came, now) = self.millis(now, stamp);
            Duration::from_millis(came) + behind <= Duration::from_millis(now)
        };
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

    /// What leaves until `end` of a source to which packets come at `inputs`, the first of them a keyframe: when, the
    /// first number, and whether it is a manifest.
    fn leaving(source: &mut Source<Tested>, inputs: impl Fn(u64) -> usize, end: u64) -> Vec<(u64, u64, bool)> {
        let mut leaving = Vec::new();
        for millis in 0..end {
            for _ in 0..inputs(millis) {
                source.on_packet(at(millis), TestPacket { is_genuine: true }, millis == 0);
            }
            while let Some(next) = source.poll(at(millis)) {
                leaving.push(match next {
                    Leaving::Manifest(manifest) => (millis, manifest.first.0, true),
                    Leaving::Packet(id, ..) => (millis, id.0, false),
                });
            }
            assert!(source.due() > at(millis), "nothing that is due stays");
        }
        leaving
    }

    fn packets(left: &[(u64, u64, bool)]) -> Vec<(u64, u64)> {
        left.iter().filter(|left| !left.2).map(|left| (left.0, left.1)).collect()
    }

    #[test]
    fn packets_leave_as_evenly_as_they_came_and_the_lead_behind_their_manifest() {
        let mut source: Source<Tested> = Source::new(0, Broadcast(1), at(0), LEAD, GENERATION);
        let left = leaving(&mut source, |millis| usize::from(millis % 10 == 0), 600);
        let manifests: Vec<_> = left.iter().filter(|left| left.2).map(|left| (left.0, left.1)).collect();
        assert_eq!(manifests[..2], [(100, 0), (210, 11)]);
        let packets = packets(&left);
        // Eleven from 400 on, each 100 / 11 ms, and ten from 510 on.
        assert_eq!((packets[0], packets[11], packets.len()), ((400, 0), (510, 11), 21));
        for pair in packets.windows(2).filter(|pair| pair[1].1 != 11) {
            assert!((9..=10).contains(&(pair[1].0 - pair[0].0)) && pair[1].1 == pair[0].1 + 1, "{packets:?}");
        }
        assert_eq!(source.edge().0, packets.last().unwrap().1 + 1);
        // The first came at 0, and left at 400.
        assert_eq!(source.age(at(599), Stamp(0)), Duration::from_millis(199));
    }

    #[test]
    fn packets_and_keyframes_have_their_age_also_after_two_months() {
        let begun = u64::from(u32::MAX) - 300;
        let mut source: Source<Tested> = Source::new(0, Broadcast(1), at(0), LEAD, GENERATION);
        for millis in (begun..begun + 2_000).step_by(100) {
            source.on_packet(at(millis), TestPacket { is_genuine: true }, millis % 1_000 == begun % 1_000);
            while let Some(leaving) = source.poll(at(millis)) {
                let Leaving::Packet(_, stamp, _) = leaving else { continue };
                assert!(source.age(at(millis), stamp) <= Duration::from_millis(200), "{millis} {stamp:?}");
            }
        }
        let now = at(begun + 1_900);
        let behind = |millis| source.keyframe(now, Duration::from_millis(millis)).unwrap();
        assert_eq!((behind(0), behind(1_000), behind(1_800)), (PacketId(10), PacketId(0), PacketId(0)));
    }

    #[test]
    fn the_bitrate_is_that_of_the_packets_from_the_second_generation_on() {
        let mut source: Source<Tested> = Source::new(0, Broadcast(1), at(0), LEAD, GENERATION);
        let mut rates = Vec::new();
        for millis in 0..8000 {
            if millis % 10 == 0 && millis < 6000 {
                source.on_packet(at(millis), TestPacket { is_genuine: true }, false);
            }
            while source.poll(at(millis)).is_some() {}
            rates.push(
                source.bitrate(at(millis)).bytes_per_sec()
                    / Tested::packet_length(&TestPacket { is_genuine: true }) as f64,
            );
        }
        assert_eq!((rates[99], rates[100]), (0.0, 110.0), "eleven in the first 100 ms");
        for at in [210, 300, 1000, 3500, 5900] {
            assert!((99.0..=101.0).contains(&rates[at]), "{} at {at}", rates[at]);
        }
        assert!(rates[7500] < 60.0, "it has paused: {}", rates[7500]);
    }

    #[test]
    fn with_neither_lead_nor_spread_packets_leave_with_their_manifest() {
        let mut source: Source<Tested> = Source::new(0, Broadcast(1), at(0), Duration::ZERO, Duration::ZERO);
        let left = leaving(&mut source, |millis| usize::from(millis % 10 == 0), 250);
        let manifests: Vec<_> = left.iter().filter(|left| left.2).map(|left| (left.0, left.1)).collect();
        assert_eq!(manifests, [(100, 0), (210, 11)]);
        let packets = packets(&left);
        assert!(packets.len() == 22 && packets.iter().all(|left| left.0 == if left.1 < 11 { 100 } else { 210 }));
    }

    /// 150 packets of a keyframe are two generations at once, and a part of a third; then ten come each 100 ms.
    #[test]
    fn a_burst_of_the_input_leaves_evenly_and_in_time() {
        let mut source: Source<Tested> = Source::new(0, Broadcast(1), at(0), LEAD, GENERATION);
        let left = leaving(&mut source, |millis| if millis == 0 { 150 } else { usize::from(millis % 10 == 5) }, 1000);
        let packets = packets(&left);
        let within = |from: u64, to: u64| packets.iter().filter(|(at, _)| (from..to).contains(at)).count();
        assert_eq!(packets[0], (300, 0));
        // Both generations within 100 ms, two at most each millisecond; behind them the third, with what came until
        // it was complete.
        assert_eq!((within(300, 401), within(401, 500)), (128 + 1, 22 + 10 - 1), "{packets:?}");
        assert!((300..400).all(|millis| within(millis, millis + 1) <= 2), "{packets:?}");
        assert!(packets.iter().map(|left| left.1).eq(0..packets.len() as u64), "in order");
    }

    /// More than a generation each 100 ms: the backlog does not grow.
    #[test]
    fn a_fast_source_leaves_as_fast_as_it_comes() {
        let mut source: Source<Tested> = Source::new(0, Broadcast(1), at(0), LEAD, GENERATION);
        let left = packets(&leaving(&mut source, |_| 3, 5000));
        let newest = left.last().unwrap();
        // A generation of 64 takes 22 ms.
        assert!(3 * 5000 - newest.1 <= 3 * (22 + 300 + 100), "{newest:?}");
        let most = (1000..5000).map(|millis| left.iter().filter(|left| left.0 == millis).count()).max().unwrap();
        assert!(most <= 6, "{most} at once");
    }
}
