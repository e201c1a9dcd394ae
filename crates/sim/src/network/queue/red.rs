//! Random early detection (Floyd & Jacobson, "Random Early Detection Gateways for Congestion
//! Avoidance", IEEE/ACM Transactions on Networking 1(4), 1993): the average queue decides
//! how likely an arriving packet is dropped, so that bursts pass and standing queues do not.
//! Drops are spread evenly over the arrivals, and thus over the flows by their shares.
//! The gentle variant (Floyd, "Recommendation on using the gentle variant of RED", 2000)
//! lets the probability rise to 1 between the maximum threshold and its double.
//!
//! ```text
//! avg = (1 - w_q) avg + w_q q                       at an arrival
//! avg = (1 - w_q)^m avg,  m = idle time / s         at an arrival after an idle time
//! p_b = max_p (avg - min_th) / (max_th - min_th)    min_th <= avg < max_th
//! p_b = max_p + (1 - max_p) (avg - max_th) / max_th max_th <= avg < 2 max_th, gentle
//! p_b = p_b size / largest size                     where queues are counted in bytes
//! p_a = p_b / (1 - count p_b)
//! ```
//!
//! `q` is the queue that the packet finds, without the packet in transmission; `s` is a
//! transmission time, ours that of a full packet; `count` the packets since the last drop, this one
//! included, as in the paper's figure 2. (Its section 7 does not include it: gaps between
//! drops are then uniform on 1 .. 1/p_b, here on 1 .. 1/p_b - 1.) The paper
//! marks wherever it says "mark", whatever the average; so do we, where a packet may be
//! marked. Only what does not fit is dropped in any case.

use anabranch_control::rng::Rng;
use anabranch_control::time::{Duration, Time};

use super::fifo::Fifo;
use super::{Discipline, Limit, Waiting};

/// What thresholds count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RedMeasure {
    /// Packets, all with the same probability.
    Packets,
    /// Bytes; a packet's probability goes with its size.
    Bytes,
}

/// A queue under RED.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RedConfig {
    /// What the thresholds count.
    pub measure: RedMeasure,
    /// Average queue below which nothing is dropped.
    pub min_threshold: f64,
    /// Average queue from which on everything is dropped, or the gentle slope begins.
    pub max_threshold: f64,
    /// The weight `w_q` of an arrival in the average.
    pub weight: f64,
    /// The probability `max_p` at the maximum threshold.
    pub max_probability: f64,
    /// Rise to 1 between the maximum threshold and its double, instead of at once.
    pub gentle: bool,
    /// Mark packets that may be marked in place of dropping them.
    pub ecn: bool,
    /// Bytes on the wire of a full packet.
    pub full_packet: u32,
    /// What it holds at most.
    pub limit: Limit,
}

impl RedConfig {
    /// The paper's thresholds of 5 and 15 packets and `w_q` = 0.002 (its simulations,
    /// section 5), with `max_p` = 0.1 in place of 1/50, and gentle, as Floyd recommended
    /// later ("RED: discussions of setting parameters", 1997, and in 2000).
    pub fn packets(limit: u64) -> RedConfig {
        RedConfig {
            measure: RedMeasure::Packets,
            min_threshold: 5.0,
            max_threshold: 15.0,
            weight: 0.002,
            max_probability: 0.1,
            gentle: true,
            ecn: true,
            full_packet: 1514,
            limit: Limit::Packets(limit),
        }
    }
}

/// RED over one queue.
#[derive(Clone, Debug)]
pub struct Red {
    config: RedConfig,
    /// The transmission time of a full packet.
    transmission: Duration,
    queue: Fifo,
    average: f64,
    /// Packets since the last drop or mark; below 0 while the average is low.
    count: i64,
    /// Since when the link has had nothing to transmit.
    idle_since: Option<Time>,
}

impl Red {
    /// An empty queue of a link that transmits a full packet in `transmission`; none for a
    /// link that takes no time.
    pub fn new(config: RedConfig, transmission: Duration) -> Red {
        let queue = Fifo::new(config.limit);
        Red { config, transmission, queue, average: 0.0, count: -1, idle_since: Some(Time::ZERO) }
    }

    /// Moves the average towards the queue that a packet finds at `now`.
    fn update_average(&mut self, now: Time) {
        let RedConfig { weight, measure, .. } = self.config;
        match self.idle_since.take() {
            // avg = (1 - w_q)^m avg: as if m packets had found an empty queue.
            Some(since) => {
                let idle = now.since(since).as_nanos() as f64;
                let m = if self.transmission > Duration::ZERO {
                    idle / self.transmission.as_nanos() as f64
                } else if idle > 0.0 {
                    f64::INFINITY
                } else {
                    0.0
                };
                self.average *= libm::pow(1.0 - weight, m);
            }
            // avg = (1 - w_q) avg + w_q q
            None => {
                let queue = match measure {
                    RedMeasure::Packets => self.queue.len() as f64,
                    RedMeasure::Bytes => self.queue.bytes() as f64,
                };
                self.average += weight * (queue - self.average);
            }
        }
    }

    /// The probability that a packet of `size` bytes is dropped, before `count` spreads the
    /// drops; none where the average is low.
    fn base_probability(&self, size: u32) -> Option<f64> {
        let RedConfig { min_threshold: min, max_threshold: max, max_probability, .. } = self.config;
        let average = self.average;
        if average < min {
            return None;
        }
        let base = if average < max {
            max_probability * (average - min) / (max - min)
        } else if self.config.gentle && average < 2.0 * max {
            max_probability + (1.0 - max_probability) * (average - max) / max
        } else {
            return Some(1.0);
        };
        Some(match self.config.measure {
            RedMeasure::Packets => base,
            RedMeasure::Bytes => (base * f64::from(size) / f64::from(self.config.full_packet)).min(1.0),
        })
    }

    /// Whether the arriving packet is to be dropped or marked.
    fn chooses(&mut self, size: u32, rng: &mut Rng) -> bool {
        let Some(base) = self.base_probability(size) else {
            self.count = -1;
            return false;
        };
        self.count += 1;
        // p_a = p_b / (1 - count p_b); where count p_b reaches 1, a drop is overdue.
        let room = 1.0 - self.count as f64 * base;
        let chosen = base > 0.0 && (room <= base || rng.chance(base / room));
        if chosen {
            self.count = 0;
        }
        chosen
    }
}

impl Discipline for Red {
    fn enqueue(&mut self, now: Time, mut packet: Waiting, dropped: &mut Vec<Waiting>, rng: &mut Rng) {
        self.update_average(now);
        if self.chooses(packet.size, rng) {
            if !(self.config.ecn && packet.ecn_capable) {
                dropped.push(packet);
                return;
            }
            packet.marked = true;
        }
        if !self.queue.push(packet) {
            // A drop for want of room tells of congestion as any other.
            self.count = 0;
            dropped.push(packet);
        }
    }

    fn dequeue(&mut self, now: Time, _: &mut Vec<Waiting>) -> Option<Waiting> {
        let next = self.queue.pop();
        if next.is_none() {
            self.idle_since.get_or_insert(now);
        }
        next
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

    fn red(config: RedConfig) -> Red {
        Red::new(config, ms(1))
    }

    /// Offers a packet of 1514 B to a queue with this average, which stays; whether it was
    /// dropped.
    fn offer(red: &mut Red, average: f64, rng: &mut Rng) -> bool {
        let mut dropped = Vec::new();
        red.average = average;
        red.idle_since = None;
        red.config.weight = 0.0;
        red.enqueue(at(0), packet(0, 0, 1514, at(0)), &mut dropped, rng);
        red.dequeue(at(0), &mut Vec::new());
        !dropped.is_empty()
    }

    #[test]
    fn the_average_moves_by_its_weight_towards_the_queue_that_a_packet_finds() {
        let mut red = red(RedConfig { weight: 0.25, min_threshold: 100.0, ..RedConfig::packets(100) });
        red.idle_since = None;
        let mut rng = Rng::stream(1, "queue");
        let mut expected = 0.0;
        for queue in 0..20 {
            red.enqueue(at(0), packet(queue, 0, 1000, at(0)), &mut Vec::new(), &mut rng);
            expected = 0.75 * expected + 0.25 * f64::from(queue);
            assert!((red.average - expected).abs() < 1e-9);
        }
    }

    #[test]
    fn an_idle_time_lowers_the_average_as_the_packets_that_could_have_left_in_it() {
        let mut red = red(RedConfig { weight: 0.002, ..RedConfig::packets(100) });
        red.average = 4.0;
        red.idle_since = None;
        assert!(red.dequeue(at(100), &mut Vec::new()).is_none());
        assert!(red.dequeue(at(150), &mut Vec::new()).is_none());
        let mut rng = Rng::stream(1, "queue");
        red.enqueue(at(400), packet(0, 0, 1000, at(400)), &mut Vec::new(), &mut rng);
        // 300 ms in which a packet takes 1 ms.
        assert!((red.average - 4.0 * 0.998f64.powi(300)).abs() < 1e-9);
    }

    #[test]
    fn base_probabilities_follow_the_formula_in_every_region() {
        let config = RedConfig { max_probability: 0.1, ..RedConfig::packets(100) };
        let gentle = [(4.99, None), (5.0, Some(0.0)), (10.0, Some(0.05)), (15.0, Some(0.1)), (22.5, Some(0.55))];
        let mut red = red(config);
        for (average, expected) in gentle {
            red.average = average;
            let base = red.base_probability(1514);
            assert_eq!(base.is_some(), expected.is_some());
            assert!((base.unwrap_or(0.0) - expected.unwrap_or(0.0)).abs() < 1e-9, "{average}: {base:?}");
        }
        for average in [30.0, 99.0] {
            red.average = average;
            assert_eq!(red.base_probability(1514), Some(1.0));
        }
        red.config.gentle = false;
        red.average = 15.0;
        assert_eq!(red.base_probability(1514), Some(1.0));
    }

    #[test]
    fn in_bytes_the_probability_goes_with_the_size() {
        let config = RedConfig { measure: RedMeasure::Bytes, ..RedConfig::packets(100) };
        let mut red = red(RedConfig { min_threshold: 5000.0, max_threshold: 15000.0, full_packet: 1500, ..config });
        red.average = 10_000.0;
        assert!((red.base_probability(1500).unwrap() - 0.05).abs() < 1e-12);
        assert!((red.base_probability(150).unwrap() - 0.005).abs() < 1e-12);
    }

    #[test]
    fn gaps_between_drops_are_uniform() {
        // The average 10 gives p_b = 1/20. By the paper's figure 2 the packet after a drop
        // has count 1, so the gap is uniform on 1 .. 1/p_b - 1.
        let mut red = red(RedConfig::packets(100));
        let mut rng = Rng::stream(1, "queue");
        let mut counts = [0u32; 20];
        let mut gap = 0;
        red.count = 0;
        for _ in 0..400_000 {
            gap += 1;
            if offer(&mut red, 10.0, &mut rng) {
                counts[gap] += 1;
                gap = 0;
            }
        }
        let drops: u32 = counts.iter().sum();
        for (gap, &count) in counts.iter().enumerate().skip(1) {
            let share = f64::from(count) / f64::from(drops);
            assert!((share - 1.0 / 19.0).abs() < 0.005, "gap {gap}: {share}");
        }
        assert!((400_000.0 / f64::from(drops) - 10.0).abs() < 0.1);
    }

    #[test]
    fn a_low_average_drops_nothing_and_a_high_one_everything() {
        let mut red = red(RedConfig::packets(100));
        let mut rng = Rng::stream(1, "queue");
        assert!((0..1000).all(|_| !offer(&mut red, 4.9, &mut rng)));
        assert!((0..1000).all(|_| offer(&mut red, 30.0, &mut rng)));
    }

    #[test]
    fn packets_that_may_be_marked_are_marked_at_the_same_arrivals() {
        let config = RedConfig { weight: 0.02, ..RedConfig::packets(1000) };
        let (mut plain, mut marking) = (red(config), red(config));
        let (mut rng, mut same_rng) = (Rng::stream(1, "queue"), Rng::stream(1, "queue"));
        let mut signals = 0;
        for number in 0..2000 {
            let mut dropped = Vec::new();
            let offered = packet(number, 0, 1514, at(0));
            // Both averages follow the plain queue, so that both draw alike.
            plain.average = 10.0;
            marking.average = 10.0;
            plain.config.weight = 0.0;
            marking.config.weight = 0.0;
            plain.enqueue(at(0), offered, &mut dropped, &mut rng);
            plain.dequeue(at(0), &mut Vec::new());
            let mut none = Vec::new();
            marking.enqueue(at(0), Waiting { ecn_capable: true, ..offered }, &mut none, &mut same_rng);
            let next = marking.dequeue(at(0), &mut Vec::new());
            assert!(none.is_empty());
            assert_eq!(next.is_some_and(|next| next.marked), !dropped.is_empty());
            signals += dropped.len();
            plain.idle_since = None;
            marking.idle_since = None;
        }
        assert!(signals > 100, "{signals}");
    }

    #[test]
    fn what_does_not_fit_is_dropped_even_if_it_may_be_marked() {
        let mut red = red(RedConfig { limit: Limit::Bytes(2500), ..RedConfig::packets(0) });
        let mut dropped = Vec::new();
        let mut rng = Rng::stream(1, "queue");
        for number in 0..3 {
            let packet = Waiting { ecn_capable: true, ..packet(number, 0, 1000, at(0)) };
            red.enqueue(at(0), packet, &mut dropped, &mut rng);
        }
        assert_eq!(dropped.len(), 1);
        assert_eq!(red.bytes(), 2000);
    }

    proptest! {
        #[test]
        fn nothing_is_lost(steps in steps(), limit in 1u64..40, ecn in any::<bool>(), gentle in any::<bool>()) {
            let config = RedConfig { weight: 0.3, ecn, gentle, max_threshold: 10.0, ..RedConfig::packets(limit) };
            conserves(&mut red(config), &steps, config.limit)?;
        }
    }
}
