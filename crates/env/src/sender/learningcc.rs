//! The decision of [LearningCC]: by how many packets the window grows each round trip until the next congestion event,
//! which ends a step. What the paper's bandit is told, a network may be told too, and more.
//!
//! ```text
//! (1)  W += alpha / W                        for each packet that is acknowledged, alpha of the chosen arm: 1 to 5
//! (3)  reward = rate / srtt                  Mbit/s over seconds, of the step
//! (4)  srtt = (1 - gamma) srtt + gamma rtt
//! (6)  rtt_th = rtt_base + theta (srtt_max - rtt_base)
//! algorithm 1   rtt > rtt_th or a loss, once a round trip: W = beta Bw rtt_min, and an arm is chosen anew
//! ```
//!
//! Start-up, pacing and the letter's gaps are those of the controller `learningcc`, whose file tells them. Here `Bw` is
//! the most that a round trip delivered, of the last ten; a least round trip holds all episode, in which no link changes;
//! and a step without an event ends after five seconds, without a back-off. An episode is over one flow's share of the
//! paper's link: 5 Mbit/s, a round trip of 60 ms, a queue of 37 500 bytes.

use std::collections::VecDeque;

use anabranch_control::rng::Rng;
use anabranch_control::time::Duration;
use anabranch_control::units::{Bytes, Rate};
use anabranch_lab::flows::FlowRunError;
use anabranch_scenario::flows::FlowScenario;
use anabranch_sim::network::Capacity;

use super::line::{Heard, Line};
use super::{Actions, Decide, Seen, Setting};
use crate::catalogue::OneLink;

/// gamma, theta and beta ([LearningCC] equation 4, section II).
const RTT_WEIGHT: f64 = 0.125;
const THETA: f64 = 0.8;
const BETA: f64 = 0.9;

/// Round trips over which the bandwidth is a maximum, and the mean round trip.
const BANDWIDTH_ROUNDS: usize = 10;
const SRTT_MAX_ROUNDS: usize = 20;

/// The least window, and the first one, in packets.
const LEAST_WINDOW: f64 = 4.0;
const FIRST_WINDOW: f64 = 10.0;

/// Pace over `W / srtt`.
const PACING_GAIN: f64 = 1.25;

/// A round trip of the start-up that delivers less than this more is a sign of a full path, and three end it.
const STARTUP_GROWTH: f64 = 1.5;
const STARTUP_FULL_ROUNDS: u32 = 3;

/// The longest step, in seconds.
const LONGEST_STEP_S: f64 = 5.0;

pub(super) static SETTING: Setting = Setting {
    actions: Actions::Choice(5),
    seen: &[
        Seen { name: "rate", unit: "data that was acknowledged in the step, Mbit/s", low: 0.0, high: 10_000.0 },
        Seen { name: "srtt", unit: "mean round trip at the step's end, seconds", low: 0.0, high: 10.0 },
        Seen { name: "round_trip", unit: "mean round trip over the least", low: 1.0, high: 100.0 },
        Seen { name: "by_loss", unit: "1 if a loss ended the step, else 0", low: 0.0, high: 1.0 },
    ],
    history: 1,
    terms: &["rate", "srtt"],
    most_steps: 10_000,
    draw,
};

fn draw(_: &mut Rng) -> FlowScenario {
    OneLink {
        rate: Rate::from_bits_per_sec(5_000_000),
        there: Duration::from_millis(30),
        back: Duration::from_millis(30),
        queue: Capacity::Bytes(37_500),
        loss: 0.0,
        length: Duration::from_millis(60_000),
        data: Bytes::new(1448),
        header: Bytes::new(66),
        ack_every: 2,
        first_window: 10,
    }
    .scenario()
}

/// The law; windows in packets, times in seconds.
#[derive(Clone, Debug, Default)]
pub struct LearningCc {
    window: f64,
    srtt: f64,
    rtt_min: f64,
    rtt_base: f64,
    last_cutback: f64,
    /// Of the round that is under way.
    round_began: f64,
    round_acked: f64,
    /// Packets a second of the last rounds, and mean round trips.
    rates: VecDeque<f64>,
    srtts: VecDeque<f64>,
    rate_mbit_s: f64,
    by_loss: bool,
}

impl LearningCc {
    fn bandwidth(&self) -> f64 {
        self.rates.iter().copied().fold(0.0, f64::max)
    }

    /// What an ACK says; whether a round trip is over.
    fn learn(&mut self, now: f64, packets: f64, rtt: f64) -> bool {
        self.srtt = if self.srtt == 0.0 { rtt } else { (1.0 - RTT_WEIGHT) * self.srtt + RTT_WEIGHT * rtt };
        self.rtt_min = if self.rtt_min == 0.0 { rtt } else { self.rtt_min.min(rtt) };
        self.rtt_base = self.rtt_base.min(rtt);
        self.round_acked += packets;
        let is_over = now - self.round_began >= self.srtt;
        if is_over {
            self.rates.push_back(self.round_acked / (now - self.round_began));
            self.rates.drain(..self.rates.len().saturating_sub(BANDWIDTH_ROUNDS));
            self.srtts.push_back(self.srtt);
            self.srtts.drain(..self.srtts.len().saturating_sub(SRTT_MAX_ROUNDS));
            (self.round_began, self.round_acked) = (now, 0.0);
        }
        is_over
    }

    fn is_delayed(&self, rtt: f64) -> bool {
        let most = self.srtts.iter().copied().fold(self.srtt, f64::max);
        rtt > self.rtt_base + THETA * (most - self.rtt_base).max(0.0)
    }

    fn limit(&self, line: &mut Line) {
        let pace = (self.srtt > 0.0).then(|| PACING_GAIN * self.window / self.srtt);
        line.set(self.window, pace);
    }
}

impl Decide for LearningCc {
    fn begin(&mut self, line: &mut Line, _: &mut Rng) -> Result<(), FlowRunError> {
        (self.window, self.rtt_base) = (FIRST_WINDOW, f64::INFINITY);
        line.set(self.window, None);
        let (until, mut best, mut full) = (line.after(LONGEST_STEP_S), 0.0, 0);
        while full < STARTUP_FULL_ROUNDS {
            match line.hear(until)? {
                Heard::Ack { packets, rtt } => {
                    // Twice as much each round trip.
                    self.window += packets;
                    if self.learn(line.now_s(), packets, rtt) {
                        let rate = self.bandwidth();
                        full = if rate >= best * STARTUP_GROWTH { 0 } else { full + 1 };
                        best = rate.max(best);
                    }
                    line.set(self.window, None);
                }
                Heard::Lost(_) | Heard::Silence => break,
            }
        }
        self.window = (self.bandwidth() * self.rtt_min).max(LEAST_WINDOW);
        self.last_cutback = line.now_s();
        self.limit(line);
        Ok(())
    }

    fn act(&mut self, action: f32, line: &mut Line) -> Result<(), FlowRunError> {
        let alpha = 1.0 + f64::from(action);
        let (began, until, mut acked) = (line.now_s(), line.after(LONGEST_STEP_S), 0.0);
        self.rtt_base = f64::INFINITY;
        self.by_loss = false;
        loop {
            // Once a round trip: what left before could not know.
            let is_recent = |now: f64, law: &LearningCc| now > law.last_cutback + law.srtt;
            let is_congested = match line.hear(until)? {
                Heard::Ack { packets, rtt } => {
                    acked += packets;
                    let now = line.now_s();
                    if !is_recent(now, self) {
                        // What is acknowledged now left before the arm was chosen.
                        self.learn(now, packets, rtt);
                        self.rtt_base = f64::INFINITY;
                        false
                    } else {
                        self.learn(now, packets, rtt);
                        self.window += alpha * packets / self.window;
                        self.limit(line);
                        self.is_delayed(rtt) && rtt > self.rtt_base
                    }
                }
                Heard::Lost(_) => {
                    self.by_loss = is_recent(line.now_s(), self);
                    self.by_loss
                }
                Heard::Silence => break,
            };
            if is_congested {
                self.window = (BETA * self.bandwidth() * self.rtt_min).max(LEAST_WINDOW);
                self.last_cutback = line.now_s();
                self.limit(line);
                break;
            }
        }
        let seconds = (line.now_s() - began).max(1e-9);
        self.rate_mbit_s = acked * line.packet_bits() / 1e6 / seconds;
        Ok(())
    }

    fn seen(&self) -> Vec<f64> {
        let ratio = if self.rtt_min > 0.0 { self.srtt / self.rtt_min } else { 1.0 };
        vec![self.rate_mbit_s, self.srtt, ratio, f64::from(u8::from(self.by_loss))]
    }

    fn terms(&self) -> (Vec<f64>, f64) {
        let reward = if self.srtt > 0.0 { self.rate_mbit_s / self.srtt } else { 0.0 };
        (vec![self.rate_mbit_s, self.srtt], reward)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reward_is_the_rate_over_the_mean_round_trip() {
        let law = LearningCc { rate_mbit_s: 4.5, srtt: 0.09, ..LearningCc::default() };
        assert_eq!(law.terms(), (vec![4.5, 0.09], 50.0));
        assert_eq!(LearningCc::default().terms().1, 0.0);
    }

    #[test]
    fn a_round_trip_is_long_beyond_four_fifths_of_the_way_to_the_longest_mean() {
        let srtts = VecDeque::from([0.06, 0.16]);
        let law = LearningCc { rtt_base: 0.06, srtt: 0.1, srtts, ..LearningCc::default() };
        assert!(!law.is_delayed(0.1399) && law.is_delayed(0.1401));
    }
}
