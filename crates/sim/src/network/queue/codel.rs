//! CoDel (RFC 8289): a queue is good as long as it empties now and then. It is bad when no
//! packet of a whole interval waited less than a target; then one packet is dropped as it
//! leaves, and further ones at gaps that shrink with the square root of their number, until
//! a packet waits less than the target again. An episode that follows closely on another
//! goes on with its number of drops.
//!
//! ```text
//! sojourn = now - since
//! drop_next = t + interval / sqrt(count)                                 control law
//! count = count - last_count, if that is above 1 and now - drop_next < 16 interval, else 1
//! ```
//!
//! These are the pseudocode of RFC 8289, 5.4 to 5.6.
//!
//! A packet that may be marked is marked in the place of its drop, and leaves; the next
//! signal is due by the same law.

use anabranch_control::rng::Rng;
use anabranch_control::time::{Duration, Time};

use super::fifo::Fifo;
use super::{Discipline, Limit, Waiting};

/// The wait that a queue may keep up (RFC 8289's TARGET).
const TARGET: Duration = Duration::from_millis(5);

/// A worst-case round trip in the Internet (RFC 8289's INTERVAL).
const INTERVAL: Duration = Duration::from_millis(100);

/// A full Ethernet frame without its checksum.
const MTU: u32 = 1514;

/// Intervals after an episode in which the next one still goes on with its count (RFC 8289,
/// 5.5).
const MEMORY: u64 = 16;

/// When CoDel drops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodelLaw {
    /// The wait that a queue may keep up.
    pub target: Duration,
    /// How long it may exceed that before the first drop.
    pub interval: Duration,
    /// Bytes on the wire of the largest packet: a queue that holds no more after a packet
    /// has left is never bad, for a packet in a slow transmission makes others wait.
    pub mtu: u32,
    /// Mark packets that may be marked in place of dropping them.
    pub ecn: bool,
}

impl Default for CodelLaw {
    fn default() -> CodelLaw {
        CodelLaw { target: TARGET, interval: INTERVAL, mtu: MTU, ecn: true }
    }
}

/// A queue under CoDel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodelConfig {
    /// When it drops.
    pub law: CodelLaw,
    /// What it holds at most; a packet that does not fit is dropped when it comes.
    pub limit: Limit,
}

/// Packets in the order of their coming, of one queue.
pub trait Source {
    /// Takes the packet that came first.
    fn pop(&mut self) -> Option<Waiting>;
    /// Bytes that wait.
    fn bytes(&self) -> u64;
}

impl Source for Fifo {
    #[inline]
    fn pop(&mut self) -> Option<Waiting> {
        Fifo::pop(self)
    }

    #[inline]
    fn bytes(&self) -> u64 {
        Fifo::bytes(self)
    }
}

/// Where one queue stands.
#[derive(Clone, Copy, Debug, Default)]
pub struct CodelState {
    /// When the queue will have been above the target for an interval; none while below.
    first_above: Option<Time>,
    dropping: bool,
    /// When the next packet is due to be dropped in an episode.
    drop_next: Time,
    /// Drops of this episode, those that it goes on from included.
    count: u32,
    /// `count` when the last episode began.
    last_count: u32,
}

impl CodelState {
    /// The next packet to leave; those that are dropped on the way are added to `dropped`.
    pub fn dequeue(
        &mut self,
        law: &CodelLaw,
        now: Time,
        queue: &mut impl Source,
        dropped: &mut Vec<Waiting>,
    ) -> Option<Waiting> {
        let (mut packet, mut bad) = self.look(law, now, queue)?;
        if self.dropping {
            self.dropping = bad;
            // Several drops may be due at once: packets leave less often than that.
            while self.dropping && now >= self.drop_next {
                self.count = self.count.saturating_add(1);
                let leaves = signal(law, &mut packet, dropped);
                if !leaves {
                    (packet, bad) = self.look(law, now, queue)?;
                    self.dropping = bad;
                }
                if self.dropping {
                    self.drop_next = control(law, self.drop_next, self.count);
                }
                if leaves {
                    break;
                }
            }
        } else if bad {
            self.begin(law, now);
            if !signal(law, &mut packet, dropped) {
                (packet, _) = self.look(law, now, queue)?;
            }
        }
        Some(packet)
    }

    /// Takes the first packet, and says whether the queue has been bad for an interval.
    #[inline]
    fn look(&mut self, law: &CodelLaw, now: Time, queue: &mut impl Source) -> Option<(Waiting, bool)> {
        let Some(packet) = queue.pop() else {
            self.first_above = None;
            return None;
        };
        if now.since(packet.since) < law.target || queue.bytes() <= u64::from(law.mtu) {
            self.first_above = None;
            return Some((packet, false));
        }
        let bad = match self.first_above {
            None => {
                self.first_above = Some(now + law.interval);
                false
            }
            Some(at) => now >= at,
        };
        Some((packet, bad))
    }

    /// An episode begins.
    fn begin(&mut self, law: &CodelLaw, now: Time) {
        self.dropping = true;
        // The rate of drops that the last episode ended with is near to what is needed, if
        // that was not long ago.
        let delta = self.count.saturating_sub(self.last_count);
        let recent = now.since(self.drop_next) < law.interval * MEMORY;
        self.count = if delta > 1 && recent { delta } else { 1 };
        self.last_count = self.count;
        self.drop_next = control(law, now, self.count);
    }
}

/// `t + interval / sqrt(count)`.
#[inline]
fn control(law: &CodelLaw, t: Time, count: u32) -> Time {
    t + Duration::from_nanos((law.interval.as_nanos() as f64 / f64::from(count).sqrt()) as u64)
}

/// Tells the packet's sender of congestion: marks the packet, or drops it; true if it still
/// leaves.
#[inline]
fn signal(law: &CodelLaw, packet: &mut Waiting, dropped: &mut Vec<Waiting>) -> bool {
    let marks = law.ecn && packet.ecn_capable;
    if marks {
        packet.marked = true;
    } else {
        dropped.push(*packet);
    }
    marks
}

/// CoDel over one queue.
#[derive(Clone, Debug)]
pub struct Codel {
    law: CodelLaw,
    state: CodelState,
    queue: Fifo,
}

impl Codel {
    /// An empty queue.
    pub fn new(config: CodelConfig) -> Codel {
        Codel { law: config.law, state: CodelState::default(), queue: Fifo::new(config.limit) }
    }
}

impl Discipline for Codel {
    fn enqueue(&mut self, _: Time, packet: Waiting, dropped: &mut Vec<Waiting>, _: &mut Rng) {
        if !self.queue.push(packet) {
            dropped.push(packet);
        }
    }

    fn dequeue(&mut self, now: Time, dropped: &mut Vec<Waiting>) -> Option<Waiting> {
        self.state.dequeue(&self.law, now, &mut self.queue, dropped)
    }

    fn bytes(&self) -> u64 {
        self.queue.bytes()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, proptest};

    use super::super::testing::{at, conserves, ms, packet, steps};
    use super::*;

    const LAW: CodelLaw = CodelLaw { target: TARGET, interval: INTERVAL, mtu: MTU, ecn: true };

    fn codel() -> Codel {
        Codel::new(CodelConfig { law: LAW, limit: Limit::Packets(100_000) })
    }

    fn enqueue(codel: &mut Codel, packet: Waiting) {
        let mut dropped = Vec::new();
        codel.enqueue(packet.since, packet, &mut dropped, &mut Rng::stream(1, "queue"));
        assert!(dropped.is_empty());
    }

    /// A packet leaves each ms and has waited `sojourn` ms; when each drop happened, in ms.
    fn drops(codel: &mut Codel, from: u64, span: u64, sojourn: u64) -> Vec<u64> {
        let mut gone = Vec::new();
        for millis in from..from + span {
            // There are always packets behind, of the same age.
            while codel.queue.len() < 20 {
                enqueue(codel, packet(0, 0, 1000, at(millis - sojourn)));
            }
            let mut dropped = Vec::new();
            codel.queue.packets_for_test().for_each(|waiting| waiting.since = at(millis - sojourn));
            assert!(codel.dequeue(at(millis), &mut dropped).is_some());
            gone.extend(dropped.iter().map(|_| millis));
        }
        gone
    }

    #[test]
    fn nothing_is_dropped_while_packets_wait_less_than_the_target() {
        assert!(drops(&mut codel(), 1000, 5000, 4).is_empty());
    }

    #[test]
    fn the_first_drop_comes_when_an_interval_has_passed_above_the_target() {
        assert_eq!(drops(&mut codel(), 1000, 100, 5), []);
        assert_eq!(drops(&mut codel(), 1000, 101, 5), [1100]);
    }

    #[test]
    fn one_packet_below_the_target_begins_the_interval_anew() {
        let mut codel = codel();
        assert_eq!(drops(&mut codel, 1000, 99, 20), []);
        assert_eq!(drops(&mut codel, 1099, 1, 4), []);
        assert_eq!(drops(&mut codel, 1100, 101, 20), [1200]);
    }

    #[test]
    fn gaps_between_drops_shrink_with_the_square_root_of_their_number() {
        let measured = drops(&mut codel(), 1000, 1000, 20);
        let mut due = 1100.0;
        let mut expected = vec![1100];
        for count in 1u32.. {
            due += 100.0 / f64::from(count).sqrt();
            if due >= 2000.0 {
                break;
            }
            expected.push(f64::ceil(due) as u64);
        }
        // Without a ms in which two were due, these are the law's own times.
        assert_eq!(measured.len(), expected.len());
        for (measured, expected) in measured.iter().zip(&expected) {
            assert!(measured.abs_diff(*expected) <= 1, "{measured} {expected}");
        }
        assert!(measured.len() > 20, "{measured:?}");
    }

    #[test]
    fn an_episode_soon_after_another_goes_on_with_its_count() {
        let mut codel = codel();
        let first = drops(&mut codel, 1000, 1000, 20);
        drops(&mut codel, 2000, 10, 1);
        assert!(!codel.state.dropping);
        let again = drops(&mut codel, 2010, 400, 20);
        // The first episode dropped once an interval at first; this one begins where that
        // one ended.
        let expected = 100.0 / ((first.len() - 1) as f64).sqrt();
        let gap = again[1] - again[0];
        assert!((gap as f64 - expected).abs() <= 1.0, "{gap} instead of {expected}");
    }

    #[test]
    fn an_episode_long_after_another_begins_with_one_drop_an_interval() {
        let mut codel = codel();
        drops(&mut codel, 1000, 1000, 20);
        drops(&mut codel, 2000, 16 * 100 + 20, 1);
        let again = drops(&mut codel, 3620, 400, 20);
        assert_eq!(again[1] - again[0], 100);
    }

    #[test]
    fn an_episode_is_remembered_from_its_last_drop_on() {
        let mut codel = codel();
        codel.state =
            CodelState { first_above: Some(at(500)), dropping: true, drop_next: at(1000), count: 5, last_count: 1 };
        enqueue(&mut codel, packet(0, 0, 1000, at(900)));
        (1..4).for_each(|number| enqueue(&mut codel, packet(number, 0, 1000, at(999))));
        let mut dropped = Vec::new();
        let next = codel.dequeue(at(1000), &mut dropped);
        assert_eq!((dropped.len(), next.map(|next| next.packet)), (1, Some(1)));
        // No further drop is due, so none is scheduled.
        assert!(!codel.state.dropping);
        assert_eq!(codel.state.drop_next, at(1000));
    }

    #[test]
    fn a_queue_of_one_packet_is_never_bad() {
        let mut codel = codel();
        // 100 kbit/s: a packet of 1514 B takes 121 ms, and each waits so long for the one
        // before it.
        for millis in (0..100).map(|i| 1000 + 121 * i) {
            enqueue(&mut codel, packet(0, 0, MTU, at(millis - 121)));
            enqueue(&mut codel, packet(1, 0, MTU, at(millis - 121)));
            let mut dropped = Vec::new();
            assert!(codel.dequeue(at(millis), &mut dropped).is_some());
            assert!(codel.dequeue(at(millis), &mut dropped).is_some());
            assert!(dropped.is_empty());
        }
    }

    #[test]
    fn a_packet_that_may_be_marked_is_marked_when_another_would_be_dropped() {
        let mut plain = codel();
        let expected = drops(&mut plain, 1000, 2000, 20);
        let mut codel = codel();
        let mut marks = Vec::new();
        for millis in 1000..3000 {
            while codel.queue.len() < 20 {
                enqueue(&mut codel, Waiting { ecn_capable: true, ..packet(0, 0, 1000, at(millis - 20)) });
            }
            codel.queue.packets_for_test().for_each(|waiting| waiting.since = at(millis - 20));
            let mut dropped = Vec::new();
            if codel.dequeue(at(millis), &mut dropped).is_some_and(|packet| packet.marked) {
                marks.push(millis);
            }
            assert!(dropped.is_empty());
        }
        // One packet leaves a ms: while no two drops are due in one, the times are the same.
        let slow = expected.windows(2).take_while(|pair| pair[1] > pair[0] + 2).count();
        assert!(slow > 50, "{slow}");
        assert_eq!(marks[..slow], expected[..slow]);
    }

    #[test]
    fn what_does_not_fit_is_dropped_when_it_comes() {
        let mut codel = Codel::new(CodelConfig { law: LAW, limit: Limit::Bytes(2500) });
        let mut dropped = Vec::new();
        for number in 0..3 {
            codel.enqueue(at(0), packet(number, 0, 1000, at(0)), &mut dropped, &mut Rng::stream(1, "queue"));
        }
        assert_eq!(dropped.iter().map(|packet| packet.packet).collect::<Vec<_>>(), [2]);
        assert_eq!(codel.bytes(), 2000);
    }

    proptest! {
        #[test]
        fn nothing_is_lost(steps in steps(), limit in 1u64..40, ecn in any::<bool>()) {
            let law = CodelLaw { interval: ms(10), mtu: 300, ecn, ..LAW };
            let limit = Limit::Packets(limit);
            conserves(&mut Codel::new(CodelConfig { law, limit }), &steps, limit)?;
        }
    }
}
