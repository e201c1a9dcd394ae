//! Who sends when: on for an exponential time, off for another, at a constant rate while on.

use anabranch_control::rng::Rng;
use anabranch_control::time::{Duration, Time};
use anabranch_scenario::onion::{Cover, OnionScenario};

/// A packet that leaves a sender.
#[derive(Clone, Copy, Debug)]
pub struct Packet {
    pub at: Time,
    /// Whether it goes to the sender's destination; a dummy ends at its last relay.
    pub is_data: bool,
}

/// All packets of one sender, in time.
pub struct Packets {
    rng: Rng,
    interval: Duration,
    means: [f64; 2],
    end: Time,
    cover: Cover,
    is_on: bool,
    /// When the sender goes on or off next.
    turns_at: Time,
    next: Time,
}

impl Packets {
    pub fn new(scenario: &OnionScenario, seed: u64, sender: u64) -> Packets {
        let senders = &scenario.senders;
        let mut rng = Rng::indexed(seed, "traffic", sender);
        let means = [senders.off.as_secs_f64(), senders.on.as_secs_f64()];
        // As if it had gone on for ever: on with the probability that it is on.
        let is_on = rng.chance(means[1] / (means[0] + means[1]));
        let interval = Duration::from_secs_f64(1.0 / senders.packets_per_s);
        let next = Time::from_secs_f64(rng.uniform() * interval.as_secs_f64());
        let turns_at = Time::from_secs_f64(rng.exponential() * means[usize::from(is_on)]);
        let end = Time::ZERO + scenario.duration;
        Packets { rng, interval, means, end, cover: scenario.overlay.cover, is_on, turns_at, next }
    }
}

impl Iterator for Packets {
    type Item = Packet;

    fn next(&mut self) -> Option<Packet> {
        loop {
            if self.next >= self.end {
                return None;
            }
            while self.turns_at <= self.next {
                let turned_at = self.turns_at;
                self.is_on = !self.is_on;
                let lasts = self.rng.exponential() * self.means[usize::from(self.is_on)];
                self.turns_at = turned_at + Duration::from_secs_f64(lasts).max(Duration::from_nanos(1));
                // Who is not on a tick for ever begins to send when there is something to send.
                if self.is_on && self.cover == Cover::Off {
                    let first = self.rng.uniform() * self.interval.as_secs_f64();
                    self.next = turned_at + Duration::from_secs_f64(first);
                }
            }
            if self.next >= self.end {
                return None;
            }
            let packet = Packet { at: self.next, is_data: self.is_on };
            if self.is_on || self.cover == Cover::ConstantRate {
                self.next += self.interval;
                return Some(packet);
            }
            self.next = self.turns_at;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sender_sends_half_of_the_time_and_with_cover_always() {
        let mut scenario = OnionScenario::standard();
        scenario.duration = Duration::from_millis(3_000_000);
        let count = |scenario: &OnionScenario| {
            let packets: Vec<Packet> = Packets::new(scenario, 1, 7).collect();
            assert!(packets.is_sorted_by(|a, b| a.at <= b.at));
            (packets.len(), packets.iter().filter(|packet| packet.is_data).count())
        };
        let (all, data) = count(&scenario);
        assert!(all == data && (135_000..165_000).contains(&all), "{all}");
        scenario.overlay.cover = Cover::ConstantRate;
        let (all, data) = count(&scenario);
        assert!(all == 300_000 && (135_000..165_000).contains(&data), "{all} {data}");
    }
}
