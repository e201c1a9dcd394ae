//! One direction of a link: a transmitter with a rate and a queue, then a delay.
//!
//! Behind a first-in, first-out queue whose rate is known in advance, a packet's departure
//! is known when it arrives. It is computed then, and no event marks it.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use anabranch_control::rng::Rng;
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::{Bytes, Rate};

use super::count::LinkCount;
use super::jitter::{Jitter, JitterCourse};
use super::marks::Marks;
use super::queue::{Capacity, Discipline, Waiting};
use super::ring::Ring;
use crate::loss::{Loss, LossModel};
use crate::varying::{Change, Course, Varying};

/// A link in one direction.
#[derive(Clone, Debug)]
pub struct LinkConfig {
    /// Names its random streams.
    pub name: String,
    /// What it transmits; none if a packet takes no time.
    pub rate: Option<Course<Rate>>,
    /// From the end of transmission to the arrival.
    pub delay: Course<Duration>,
    /// What may wait.
    pub capacity: Capacity,
    /// Who goes next; first come, first served up to the capacity if none is given.
    pub discipline: Option<Box<dyn Discipline>>,
    /// Losses at the far end: a lost packet has used the link.
    pub loss: LossModel,
    /// Random part of the delay.
    pub jitter: Jitter,
}

/// A packet on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Arrival {
    at: Time,
    /// Keeps packets of one instant in their order.
    order: u64,
    packet: u32,
}

/// Packets on their way, the next to arrive first.
#[derive(Clone, Debug)]
enum Pipe {
    InOrder(Ring<(Time, u32)>),
    Reordering { heap: BinaryHeap<Reverse<Arrival>>, order: u64 },
}

/// What becomes of a packet that is offered to a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offer {
    /// It arrives at the far end then.
    Arrives(Time),
    /// It is gone.
    Gone,
}

/// A link at work. What most packets need lies close together, the rest behind a pointer: a
/// network's links should stay in the nearest cache.
#[derive(Clone, Debug)]
pub struct Link {
    seldom: Box<Seldom>,
    capacity: Capacity,
    pub discipline: Option<Box<dyn Discipline>>,
    /// When all that was accepted has been transmitted.
    busy_until: Time,
    /// Packets that wait, and before them some that waited: when each one's transmission begins, and its size.
    waiting: Ring<(Time, u32)>,
    waiting_bytes: u64,
    last_arrival: Time,
    /// No packet is faster.
    least_delay: Duration,
    /// It loses nothing, and every packet takes the least delay.
    is_plain: bool,
    pipe: Pipe,
    /// Transmission times of the sizes seen last, under the present rate.
    known: [(u32, Duration); 2],
    known_until: Time,
    /// What is over after this is counted apart, too.
    mark: Time,
    pub count: LinkCount,
}

/// What only the packets of some links need.
#[derive(Clone, Debug)]
struct Seldom {
    /// What the link is as new.
    config: LinkConfig,
    rate: Option<Varying<Rate>>,
    delay: Varying<Duration>,
    loss: Loss,
    jitter: JitterCourse,
    discipline_rng: Rng,
    /// The rate is not that of `config` any more.
    rate_was_set: bool,
    marks: Marks,
}

/// The random stream from which a rate that changes at random is drawn, for the link of
/// that name.
pub fn rate_stream(seed: u64, name: &str) -> Rng {
    Rng::stream(seed, &format!("rate/{name}"))
}

/// The random streams of one link.
struct Streams<'a> {
    seed: u64,
    name: &'a str,
}

impl Streams<'_> {
    /// The stream for `what`. One that nobody draws from need not have its name, which takes a while.
    fn of(&self, what: &str, is_used: bool) -> Rng {
        if is_used { Rng::stream(self.seed, &format!("{what}/{}", self.name)) } else { Rng::stream(self.seed, "") }
    }

    fn rate(&self, course: &Course<Rate>) -> Rng {
        if course.is_random() { rate_stream(self.seed, self.name) } else { Rng::stream(self.seed, "") }
    }

    fn loss(&self, model: &LossModel) -> Loss {
        let law_is_random = matches!(model, LossModel::Random(course) if course.is_random());
        Loss::new(model, self.of("loss", *model != LossModel::None), self.of("loss-law", law_is_random))
    }
}

impl Link {
    pub fn new(config: LinkConfig, seed: u64) -> Link {
        let pipe = match config.jitter.reorders {
            true => Pipe::Reordering { heap: BinaryHeap::new(), order: 0 },
            false => Pipe::InOrder(Ring::new()),
        };
        let is_constant = config.delay.change == Change::Never && config.jitter.deviation == Duration::ZERO;
        let streams = Streams { seed, name: &config.name };
        let least_delay = if is_constant { config.delay.first } else { Duration::ZERO };
        let is_plain = is_constant && config.loss == LossModel::None;
        Link {
            capacity: config.capacity,
            discipline: config.discipline.clone(),
            busy_until: Time::ZERO,
            waiting: Ring::new(),
            waiting_bytes: 0,
            last_arrival: Time::ZERO,
            least_delay,
            is_plain,
            pipe,
            known: [(0, Duration::ZERO); 2],
            known_until: Time::ZERO,
            mark: Time::MAX,
            count: LinkCount::default(),
            seldom: Box::new(Seldom {
                rate: config.rate.as_ref().map(|course| Varying::new(course, streams.rate(course))),
                delay: Varying::new(&config.delay, streams.of("delay", config.delay.is_random())),
                loss: streams.loss(&config.loss),
                jitter: JitterCourse::new(config.jitter, seed, &config.name),
                discipline_rng: streams.of("queue", config.discipline.is_some()),
                rate_was_set: false,
                marks: Marks::default(),
                config,
            }),
        }
    }

    /// As new, with the random streams of `seed`.
    pub fn reset(&mut self, seed: u64) {
        let Seldom { config, rate, delay, loss, jitter, discipline_rng, rate_was_set, marks } = &mut *self.seldom;
        marks.reset();
        self.mark = marks.next();
        let streams = Streams { seed, name: &config.name };
        let is_constant = config.rate.as_ref().is_none_or(|course| course.change == Change::Never);
        if *rate_was_set || !is_constant {
            *rate = config.rate.as_ref().map(|course| Varying::new(course, streams.rate(course)));
            *rate_was_set = false;
        }
        if config.delay.change != Change::Never {
            *delay = Varying::new(&config.delay, streams.of("delay", config.delay.is_random()));
        }
        *loss = streams.loss(&config.loss);
        jitter.reset(seed);
        if config.discipline.is_some() {
            *discipline_rng = streams.of("queue", true);
            self.discipline = config.discipline.clone();
        }
        self.busy_until = Time::ZERO;
        self.waiting.clear();
        self.waiting_bytes = 0;
        self.last_arrival = Time::ZERO;
        match &mut self.pipe {
            Pipe::InOrder(pipe) => pipe.clear(),
            Pipe::Reordering { heap, order } => {
                heap.clear();
                *order = 0;
            }
        }
        self.known = [(0, Duration::ZERO); 2];
        self.known_until = Time::ZERO;
        self.count = LinkCount::default();
    }

    /// From the next transmission on it has `rate`, whatever its course was.
    pub fn set_rate(&mut self, rate: Rate) {
        self.seldom.rate = Some(Varying::new(&Course::constant(rate), Rng::stream(0, "")));
        self.seldom.rate_was_set = true;
        self.known_until = Time::ZERO;
    }

    /// What is done by each of these instants will be asked for then.
    pub fn set_marks(&mut self, at: [Time; 2]) {
        self.seldom.marks = Marks::new(at);
        self.mark = self.seldom.marks.next();
    }

    /// At one of the marks: what is done by now, and the bytes transmitted; none at another instant.
    pub fn pass_mark(&mut self, now: Time) -> Option<(LinkCount, Bytes)> {
        let done = self.seldom.marks.pass(now, self.count);
        self.mark = self.seldom.marks.next();
        done
    }

    #[cold]
    fn transmits_beyond_mark(&mut self, start: Time, end: Time, size: u32) {
        self.seldom.marks.transmits(start, end, size);
    }

    /// Whether packets leave in the order of their coming, so that all is known in advance.
    pub fn is_first_in_first_out(&self) -> bool {
        self.discipline.is_none() && matches!(self.pipe, Pipe::InOrder(_))
    }

    /// A packet comes to a link without a discipline.
    #[inline(always)]
    pub fn offer(&mut self, now: Time, size: u32) -> Offer {
        let start = self.busy_until.max(now);
        if start > now && !self.admit(now, start, size) {
            self.count.dropped += 1;
            if now > self.mark {
                self.seldom.marks.drops(now);
            }
            return Offer::Gone;
        }
        self.depart(start, size)
    }

    /// Transmits from `start` on, which is not before all earlier transmissions ended.
    #[inline(always)]
    pub fn depart(&mut self, start: Time, size: u32) -> Offer {
        let end = self.transmitted(start, size);
        self.busy_until = end;
        self.count.packets += 1;
        self.count.bytes += u64::from(size);
        if end > self.mark {
            self.transmits_beyond_mark(start, end, size);
        }
        if !self.is_plain {
            return self.propagate(end);
        }
        self.last_arrival = end + self.least_delay;
        Offer::Arrives(self.last_arrival)
    }

    /// What becomes of a packet whose transmission ended at `end`.
    #[inline(never)]
    fn propagate(&mut self, end: Time) -> Offer {
        let Seldom { delay, loss, jitter, marks, .. } = &mut *self.seldom;
        if loss.loses(end) {
            self.count.lost += 1;
            marks.loses(end);
            return Offer::Gone;
        }
        let mean = delay.at(end);
        let mut arrival = end + jitter.delay(end, mean);
        if !jitter.reorders() {
            arrival = arrival.max(self.last_arrival);
        }
        self.last_arrival = arrival;
        Offer::Arrives(arrival)
    }

    /// When a packet that comes at `at`, behind all that came before, could arrive at the far
    /// end at the earliest.
    #[inline]
    pub fn earliest_arrival(&self, at: Time) -> Time {
        self.last_arrival.max(at + self.least_delay)
    }

    /// No packet is faster.
    pub fn least_delay(&self) -> Duration {
        self.least_delay
    }

    /// Whether a packet that must wait until `start` finds room.
    #[inline]
    fn admit(&mut self, now: Time, start: Time, size: u32) -> bool {
        match self.capacity {
            Capacity::Unlimited => return true,
            Capacity::Time(limit) => return start.since(now) <= limit,
            Capacity::Bytes(_) | Capacity::Packets(_) => {}
        }
        // Those that wait no longer are taken off when their room is needed: many in a row cost less than one at a time.
        if !self.has_room(size) || self.waiting.is_full() {
            self.take_off_begun(now);
            if !self.has_room(size) {
                return false;
            }
        }
        self.waiting_bytes += u64::from(size);
        self.waiting.push_back((start, size));
        true
    }

    /// Whether a packet fits beside all that have not been taken off.
    #[inline]
    fn has_room(&self, size: u32) -> bool {
        match self.capacity {
            Capacity::Bytes(limit) => self.waiting_bytes + u64::from(size) <= limit,
            Capacity::Packets(limit) => (self.waiting.len() as u64) < limit,
            Capacity::Unlimited | Capacity::Time(_) => true,
        }
    }

    /// Takes off the packets whose transmission has begun.
    fn take_off_begun(&mut self, now: Time) {
        while let Some((begins, bytes)) = self.waiting.front()
            && begins <= now
        {
            self.waiting_bytes -= u64::from(bytes);
            self.waiting.pop_front();
        }
    }

    /// When a transmission that begins at `start` ends, whatever the rate does meanwhile.
    #[inline]
    fn transmitted(&mut self, start: Time, size: u32) -> Time {
        if start < self.known_until {
            for (known, time) in self.known {
                if known == size && start + time <= self.known_until {
                    return start + time;
                }
            }
        }
        self.transmitted_seldom(start, size)
    }

    #[cold]
    fn transmitted_seldom(&mut self, start: Time, size: u32) -> Time {
        let Some(rate) = &mut self.seldom.rate else {
            self.known_until = Time::MAX;
            self.known = [(size, Duration::ZERO), self.known[0]];
            return start;
        };
        let mut left = Bytes::new(u64::from(size));
        let mut at = start;
        loop {
            let present = rate.at(at);
            let change = rate.next_change();
            let end = at + left / present;
            if end <= change {
                if at == start {
                    // Times under an earlier rate are no longer true.
                    let before = if self.known_until == change { self.known[0] } else { (0, Duration::ZERO) };
                    self.known_until = change;
                    self.known = [(size, end.since(start)), before];
                }
                return end;
            }
            if change == Time::MAX {
                return Time::MAX;
            }
            left -= present * change.since(at);
            at = change;
        }
    }

    /// Puts a packet on its way; whether it is the next to arrive.
    #[inline(always)]
    pub fn carry(&mut self, at: Time, packet: u32) -> bool {
        match &mut self.pipe {
            Pipe::InOrder(pipe) => {
                pipe.push_back((at, packet));
                pipe.len() == 1
            }
            Pipe::Reordering { heap, order } => {
                *order += 1;
                let arrival = Arrival { at, order: *order, packet };
                let first = heap.peek().is_none_or(|Reverse(next)| arrival < *next);
                heap.push(Reverse(arrival));
                first
            }
        }
    }

    /// Takes the packet that arrives next, and says when the one after it will.
    #[inline(always)]
    pub fn arrive(&mut self) -> (u32, Time) {
        match &mut self.pipe {
            Pipe::InOrder(pipe) => {
                let (_, packet) = pipe.pop_front().expect("an arrival was pending");
                let Some((next, _)) = pipe.front() else {
                    // The next packet takes the place of this one, which is in the cache.
                    pipe.clear();
                    return (packet, Time::MAX);
                };
                (packet, next)
            }
            Pipe::Reordering { heap, .. } => {
                let Reverse(arrival) = heap.pop().expect("an arrival was pending");
                (arrival.packet, heap.peek().map_or(Time::MAX, |Reverse(next)| next.at))
            }
        }
    }

    /// When the transmitter is free again.
    #[inline]
    pub fn busy_until(&self) -> Time {
        self.busy_until
    }

    /// How long a packet that came now would wait for its transmission; for a link with a
    /// discipline, as if it were served in order.
    pub fn backlog(&mut self, now: Time) -> Duration {
        let transmission = self.busy_until.since(now);
        let waiting = self.discipline.as_ref().map_or(0, |discipline| discipline.bytes());
        match &mut self.seldom.rate {
            Some(rate) if waiting > 0 => transmission + Bytes::new(waiting) / rate.at(now),
            _ => transmission,
        }
    }

    /// The rate at `now`, or at the last transmission's beginning if that is later: a link
    /// that works in advance knows no earlier one any more.
    pub fn rate_at(&mut self, now: Time) -> Option<Rate> {
        self.seldom.rate.as_mut().map(|rate| rate.at(now))
    }

    /// Bytes that are counted although their transmission is still to come. An estimate
    /// where the rate changes before they are over, or, for a link that is computed in
    /// advance, where there are pauses between them.
    pub fn bytes_ahead(&mut self, now: Time) -> Bytes {
        match &mut self.seldom.rate {
            Some(rate) => rate.at(now) * self.busy_until.since(now),
            None => Bytes::ZERO,
        }
    }

    /// A packet comes to a link with a discipline; whoever is dropped for it, itself perhaps, is
    /// added to `dropped`.
    pub fn enqueue(&mut self, now: Time, waiting: Waiting, dropped: &mut Vec<Waiting>) {
        if let Some(discipline) = &mut self.discipline {
            discipline.enqueue(now, waiting, dropped, &mut self.seldom.discipline_rng);
        }
    }

    /// Asks the discipline who goes next.
    pub fn next_waiting(&mut self, now: Time, dropped: &mut Vec<Waiting>) -> Option<Waiting> {
        self.discipline.as_mut()?.dequeue(now, dropped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(capacity: Capacity) -> Link {
        let config = LinkConfig {
            name: "link".into(),
            rate: Some(Course::constant(Rate::from_bits_per_sec(8_000_000))),
            delay: Course::constant(Duration::from_millis(1)),
            capacity,
            discipline: None,
            loss: LossModel::None,
            jitter: Jitter::NONE,
        };
        Link::new(config, 1)
    }

    #[test]
    fn a_packet_finds_room_beside_those_that_wait_still() {
        let mut rng = Rng::stream(1, "offers");
        for capacity in [Capacity::Packets(7), Capacity::Bytes(6_000)] {
            let mut link = link(capacity);
            // Packets that wait: when each one's transmission begins, and its size.
            let (mut waiting, mut busy_until) = (Vec::new(), Time::ZERO);
            let (mut now, mut dropped) = (Time::ZERO, 0);
            for _ in 0..20_000 {
                now += Duration::from_nanos(1_000 * rng.below(1_500) as u64);
                let size = 100 + rng.below(1_400) as u32;
                waiting.retain(|&(begins, _)| begins > now);
                let bytes: u64 = waiting.iter().map(|&(_, size)| u64::from(size)).sum();
                let fits = match capacity {
                    Capacity::Packets(limit) => (waiting.len() as u64) < limit,
                    Capacity::Bytes(limit) => bytes + u64::from(size) <= limit,
                    Capacity::Unlimited | Capacity::Time(_) => unreachable!("none of those tried"),
                };
                let start = busy_until.max(now);
                if start > now && !fits {
                    assert_eq!(link.offer(now, size), Offer::Gone);
                    dropped += 1;
                    continue;
                }
                if start > now {
                    waiting.push((start, size));
                }
                busy_until = start + Duration::from_nanos(1_000 * u64::from(size));
                assert_eq!(link.offer(now, size), Offer::Arrives(busy_until + Duration::from_millis(1)));
            }
            assert!((200..15_000).contains(&dropped), "{capacity:?} drops {dropped}");
        }
    }

    #[test]
    fn what_no_longer_waits_takes_no_memory_however_long_the_queue_may_be() {
        let mut link = link(Capacity::Packets(1_000_000));
        for number in 0..100_000u64 {
            // Four at once, each four milliseconds: three of them wait.
            link.offer(Time::ZERO + Duration::from_millis(4 * (number / 4)), 1_000);
        }
        assert!(link.waiting.places() <= 16, "{}", link.waiting.places());
    }
}
