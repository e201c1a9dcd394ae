//! FQ-CoDel (RFC 8290): a keyed hash spreads flows over many queues, each under CoDel, and
//! the queues take turns by bytes. A queue that has just become active goes before those
//! that have had a turn, so that sparse flows hardly wait. When all queues together hold too
//! much, the largest loses packets from its head.
//!
//! ```text
//! queue = hash(flow, key) mod queues
//! a turn: credits > 0: one packet leaves, credits -= its size
//!         credits <= 0: credits += quantum, and behind the old queues
//! ```
//!
//! Where the limit is passed, RFC 8290 4.1 drops half of the packets of the queue with most
//! bytes, at most 64, so that the search for that queue is not repeated for each packet. We
//! take half of its bytes, as Linux does.

use std::collections::VecDeque;

use anabranch_control::rng::Rng;
use anabranch_control::time::Time;

use super::codel::{CodelLaw, CodelState, Source};
use super::{Discipline, Waiting};

/// Defaults of RFC 8290, 5.2.
const QUEUES: u32 = 1024;
const QUANTUM: u32 = 1514;
const LIMIT: u32 = 10_240;

/// Packets that are dropped at once at most (RFC 8290, 4.1).
const DROP_BATCH: u32 = 64;

/// No packet.
const NONE: u32 = u32::MAX;

/// Queues under FQ-CoDel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FqCodelConfig {
    /// When each queue drops.
    pub law: CodelLaw,
    /// Over how many queues flows are spread, from 1 to 65536.
    pub queues: u32,
    /// Bytes that a queue sends in a turn.
    pub quantum: u32,
    /// Packets that wait at most, all queues together.
    pub limit: u32,
}

impl Default for FqCodelConfig {
    fn default() -> FqCodelConfig {
        FqCodelConfig { law: CodelLaw::default(), queues: QUEUES, quantum: QUANTUM, limit: LIMIT }
    }
}

/// Which list a queue is on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Turn {
    /// It is empty, and had been when its last turn came.
    #[default]
    Idle,
    New,
    Old,
}

/// One queue: a chain of packets in the pool.
#[derive(Clone, Copy, Debug)]
struct Queue {
    head: u32,
    tail: u32,
    bytes: u64,
    credits: i64,
    turn: Turn,
    codel: CodelState,
}

/// A place in the pool.
#[derive(Clone, Copy, Debug)]
struct Place {
    packet: Waiting,
    next: u32,
}

/// All packets that wait. It grows to the limit at most and then never again.
#[derive(Clone, Debug, Default)]
struct Pool {
    places: Vec<Place>,
    free: Vec<u32>,
}

impl Pool {
    fn waiting(&self) -> usize {
        self.places.len() - self.free.len()
    }

    fn push(&mut self, queue: &mut Queue, packet: Waiting) {
        let place = Place { packet, next: NONE };
        let at = match self.free.pop() {
            Some(at) => {
                self.places[at as usize] = place;
                at
            }
            None => {
                self.places.push(place);
                self.places.len() as u32 - 1
            }
        };
        match queue.tail {
            NONE => queue.head = at,
            tail => self.places[tail as usize].next = at,
        }
        queue.tail = at;
        queue.bytes += u64::from(packet.size);
    }

    fn pop(&mut self, head: &mut u32, tail: &mut u32, bytes: &mut u64) -> Option<Waiting> {
        if *head == NONE {
            return None;
        }
        let Place { packet, next } = self.places[*head as usize];
        self.free.push(*head);
        *head = next;
        if next == NONE {
            *tail = NONE;
        }
        *bytes -= u64::from(packet.size);
        Some(packet)
    }
}

/// One queue's packets, as CoDel sees them.
struct Chain<'a> {
    pool: &'a mut Pool,
    head: &'a mut u32,
    tail: &'a mut u32,
    bytes: &'a mut u64,
    total: &'a mut u64,
}

impl Source for Chain<'_> {
    #[inline]
    fn pop(&mut self) -> Option<Waiting> {
        let packet = self.pool.pop(self.head, self.tail, self.bytes)?;
        *self.total -= u64::from(packet.size);
        Some(packet)
    }

    #[inline]
    fn bytes(&self) -> u64 {
        *self.bytes
    }
}

/// FQ-CoDel at work.
#[derive(Clone, Debug)]
pub struct FqCodel {
    config: FqCodelConfig,
    /// The hash's key, drawn with the first packet.
    key: Option<u64>,
    queues: Box<[Queue]>,
    pool: Pool,
    /// Bytes that wait, all queues together.
    bytes: u64,
    new: VecDeque<u16>,
    old: VecDeque<u16>,
}

impl FqCodel {
    /// Empty queues.
    pub fn new(config: FqCodelConfig) -> FqCodel {
        let none =
            Queue { head: NONE, tail: NONE, bytes: 0, credits: 0, turn: Turn::Idle, codel: CodelState::default() };
        let queues = config.queues.clamp(1, 1 << 16) as usize;
        FqCodel {
            config,
            key: None,
            queues: vec![none; queues].into(),
            pool: Pool::default(),
            bytes: 0,
            new: VecDeque::with_capacity(queues),
            old: VecDeque::with_capacity(queues),
        }
    }

    /// Where packets of `flow` wait.
    fn place_of(&mut self, flow: u64, rng: &mut Rng) -> usize {
        let key = *self.key.get_or_insert_with(|| rng.bits());
        // The high bits of a product with the number of queues are as even as the hash.
        let hash = mixed(flow.wrapping_add(key)) >> 32;
        ((hash * self.queues.len() as u64) >> 32) as usize
    }

    /// The queue with most bytes loses half of them from its head, or a batch of packets.
    #[cold]
    fn shrink(&mut self, dropped: &mut Vec<Waiting>) {
        let Some(fattest) = self.queues.iter_mut().max_by_key(|queue| queue.bytes) else { return };
        let enough = fattest.bytes / 2;
        let Queue { head, tail, bytes, .. } = fattest;
        for _ in 0..DROP_BATCH {
            let Some(packet) = self.pool.pop(head, tail, bytes) else { return };
            self.bytes -= u64::from(packet.size);
            dropped.push(packet);
            if *bytes <= enough {
                return;
            }
        }
    }
}

/// MurmurHash3's finaliser, which is in the public domain: every bit of the input reaches
/// every bit of the output.
fn mixed(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    bits = (bits ^ (bits >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    bits ^ (bits >> 33)
}

impl Discipline for FqCodel {
    fn enqueue(&mut self, _: Time, packet: Waiting, dropped: &mut Vec<Waiting>, rng: &mut Rng) {
        let place = self.place_of(packet.flow, rng);
        let queue = &mut self.queues[place];
        self.pool.push(queue, packet);
        self.bytes += u64::from(packet.size);
        if queue.turn == Turn::Idle {
            queue.turn = Turn::New;
            queue.credits = i64::from(self.config.quantum);
            self.new.push_back(place as u16);
        }
        if self.pool.waiting() > self.config.limit as usize {
            self.shrink(dropped);
        }
    }

    fn dequeue(&mut self, now: Time, dropped: &mut Vec<Waiting>) -> Option<Waiting> {
        loop {
            let from_new = !self.new.is_empty();
            let place = *self.new.front().or(self.old.front())?;
            let queue = &mut self.queues[usize::from(place)];
            let list = if from_new { &mut self.new } else { &mut self.old };
            if queue.credits <= 0 {
                queue.credits += i64::from(self.config.quantum.max(1));
                queue.turn = Turn::Old;
                list.pop_front();
                self.old.push_back(place);
                continue;
            }
            let Queue { head, tail, bytes, codel, .. } = queue;
            let mut chain = Chain { pool: &mut self.pool, head, tail, bytes, total: &mut self.bytes };
            if let Some(packet) = codel.dequeue(&self.config.law, now, &mut chain, dropped) {
                queue.credits -= i64::from(packet.size);
                return Some(packet);
            }
            list.pop_front();
            // An empty new queue has its turn among the old ones before it may be new again
            // (RFC 8290, 4.2): else a flow could jump the line with every packet.
            if from_new && !self.old.is_empty() {
                queue.turn = Turn::Old;
                self.old.push_back(place);
            } else {
                queue.turn = Turn::Idle;
            }
        }
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, proptest};

    use super::super::Limit;
    use super::super::testing::{at, conserves, ms, packet, steps};
    use super::*;

    /// Flows that share no queue: the first `flows` numbers from 0 whose places differ.
    fn apart(fq: &mut FqCodel, rng: &mut Rng, flows: usize) -> Vec<u64> {
        let mut places = Vec::new();
        let mut chosen = Vec::new();
        for flow in 0.. {
            let place = fq.place_of(flow, rng);
            if !places.contains(&place) {
                places.push(place);
                chosen.push(flow);
            }
            if chosen.len() == flows {
                break;
            }
        }
        chosen
    }

    fn add(fq: &mut FqCodel, now: Time, flow: u64, size: u32, rng: &mut Rng) -> Vec<Waiting> {
        let mut dropped = Vec::new();
        fq.enqueue(now, packet(0, flow, size, now), &mut dropped, rng);
        dropped
    }

    #[test]
    fn flows_get_equal_bytes_however_much_each_offers_and_in_whatever_sizes() {
        let mut rng = Rng::stream(1, "queue");
        let mut fq = FqCodel::new(FqCodelConfig::default());
        let flows = apart(&mut fq, &mut rng, 3);
        let mut bytes = [0u64; 3];
        // A packet leaves each ms; offered are 8, 2 and 2 packets of 1500, 1500 and 750 B.
        for millis in 0..5000 {
            for (flow, (number, size)) in flows.iter().zip([(8, 1500), (2, 1500), (2, 750)]) {
                for _ in 0..number {
                    add(&mut fq, at(millis), *flow, size, &mut rng);
                }
            }
            let sent = fq.dequeue(at(millis), &mut Vec::new()).unwrap();
            let which = flows.iter().position(|flow| *flow == sent.flow).unwrap();
            bytes[which] += u64::from(sent.size);
        }
        let mean = bytes.iter().sum::<u64>() as f64 / 3.0;
        assert!(bytes.iter().all(|&bytes| (bytes as f64 / mean - 1.0).abs() < 0.01), "{bytes:?}");
    }

    #[test]
    fn a_sparse_flow_goes_before_those_that_have_a_queue() {
        let mut rng = Rng::stream(1, "queue");
        let mut fq = FqCodel::new(FqCodelConfig::default());
        let flows = apart(&mut fq, &mut rng, 4);
        for _ in 0..50 {
            for &flow in &flows[..3] {
                add(&mut fq, at(0), flow, 1500, &mut rng);
            }
        }
        for _ in 0..9 {
            fq.dequeue(at(1), &mut Vec::new());
        }
        add(&mut fq, at(2), flows[3], 100, &mut rng);
        assert_eq!(fq.dequeue(at(2), &mut Vec::new()).unwrap().flow, flows[3]);
        // Its queue is empty now. Before it may be new again, the others have their turns.
        assert_ne!(fq.dequeue(at(3), &mut Vec::new()).unwrap().flow, flows[3]);
        add(&mut fq, at(3), flows[3], 100, &mut rng);
        assert_ne!(fq.dequeue(at(3), &mut Vec::new()).unwrap().flow, flows[3]);
    }

    #[test]
    fn the_fattest_flow_loses_from_its_head_when_there_is_no_room() {
        let mut rng = Rng::stream(1, "queue");
        let mut fq = FqCodel::new(FqCodelConfig { limit: 100, ..FqCodelConfig::default() });
        let flows = apart(&mut fq, &mut rng, 2);
        let mut dropped = Vec::new();
        for number in 0..60 {
            fq.enqueue(at(0), packet(number, flows[0], 1500, at(0)), &mut dropped, &mut rng);
        }
        for number in 100..141 {
            assert!(dropped.is_empty());
            fq.enqueue(at(0), packet(number, flows[1], 1000, at(0)), &mut dropped, &mut rng);
        }
        // Half of the 60 packets of the fatter flow, those that came first.
        assert_eq!(dropped.iter().map(|packet| packet.packet).collect::<Vec<_>>(), (0..30).collect::<Vec<_>>());
        assert_eq!(fq.bytes(), 30 * 1500 + 41 * 1000);
    }

    #[test]
    fn a_batch_is_bounded() {
        let mut rng = Rng::stream(1, "queue");
        let mut fq = FqCodel::new(FqCodelConfig { limit: 1000, ..FqCodelConfig::default() });
        let gone = (0..1001).map(|_| add(&mut fq, at(0), 0, 1000, &mut rng).len()).max();
        assert_eq!(gone, Some(64));
    }

    #[test]
    fn memory_is_bounded_by_the_limit_whatever_comes() {
        let mut rng = Rng::stream(1, "queue");
        let mut fq = FqCodel::new(FqCodelConfig { limit: 500, ..FqCodelConfig::default() });
        for round in 0..20_000 {
            add(&mut fq, at(round), round % 777, 1000, &mut rng);
            if round % 3 == 0 {
                fq.dequeue(at(round), &mut Vec::new());
            }
        }
        // One more, while its queue is chosen that loses.
        assert!(fq.pool.places.len() <= 501);
        assert!(fq.new.capacity() <= 2048 && fq.old.capacity() <= 2048);
        assert!(fq.new.len() + fq.old.len() <= 1024);
    }

    #[test]
    fn another_key_puts_flows_elsewhere_and_the_hash_is_even() {
        let place = |seed: u64, flow: u64| {
            FqCodel::new(FqCodelConfig::default()).place_of(flow, &mut Rng::stream(seed, "queue"))
        };
        assert!((0..100).filter(|&flow| place(1, flow) == place(2, flow)).count() < 5);
        let mut fq = FqCodel::new(FqCodelConfig { queues: 16, ..FqCodelConfig::default() });
        let mut rng = Rng::stream(3, "queue");
        let mut counts = [0u32; 16];
        for flow in 0..16_000 {
            counts[fq.place_of(flow, &mut rng)] += 1;
        }
        // 5 standard deviations around 1000.
        assert!(counts.iter().all(|count| count.abs_diff(1000) < 155), "{counts:?}");
    }

    #[test]
    fn each_queue_is_under_codel() {
        let mut rng = Rng::stream(1, "queue");
        let mut fq = FqCodel::new(FqCodelConfig::default());
        for number in 0..400 {
            fq.enqueue(at(0), packet(number, 0, 1000, at(0)), &mut Vec::new(), &mut rng);
        }
        let mut dropped = Vec::new();
        let mut first = None;
        for millis in 6..300 {
            fq.dequeue(at(millis), &mut dropped);
            if first.is_none() && !dropped.is_empty() {
                first = Some(millis);
            }
        }
        assert_eq!(first, Some(106));
    }

    proptest! {
        #[test]
        fn nothing_is_lost(steps in steps(), limit in 1u32..40, queues in 1u32..9, quantum in 1u32..3000, ecn in any::<bool>()) {
            let law = CodelLaw { interval: ms(10), mtu: 300, ecn, ..CodelLaw::default() };
            let config = FqCodelConfig { law, queues, quantum, limit };
            conserves(&mut FqCodel::new(config), &steps, Limit::Packets(u64::from(limit)))?;
        }
    }
}
