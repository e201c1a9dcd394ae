//! Aurora (Jay, Rotman, Godfrey, Schapira, Tamar: A Deep Reinforcement Learning Perspective on Internet Congestion
//! Control, ICML 2019): an agent changes a sending rate once each monitor interval, by a share of it, and sees how
//! latency and losses answered to the last ten of its rates. There is no window.
//!
//! ```text
//! action       x_t = x_t-1 (1 + alpha a)   if a >= 0,   x_t-1 / (1 - alpha a)   else          4.1, alpha = 0.025
//! seen         d latency / d t,   mean latency / least mean latency,   sent / acknowledged     4.1, ten of each
//! reward       10 throughput - 1000 latency - 2000 loss            4.2; packets/s, seconds, share
//! links        100 to 500 packets/s, 50 to 500 ms, 2 to 2981 packets, 0 to 5 % random loss     5, training
//! ```
//!
//! What the paper leaves open, after its authors' simulator (PCCproject/PCC-RL, `src/gym/network_sim.py` and
//! `src/common/sender_obs.py`): a monitor interval is half the mean round trip of the one before (three times the link's
//! latency at first), rates are 40 to 1000 packets/s and begin at 0.3 to 1.5 of the link's, an episode has 400 intervals,
//! packets have 1500 bytes, and the queue is drawn evenly in its logarithm: 1 and the whole part of `e^0` to `e^8`. The latency is
//! each link's, one there and one back; ACKs neither queue nor are lost.
//!
//! There it is otherwise in what follows. Rewards are a thousandth of the formula's. `alpha` is 0.05 by default
//! (`src/common/config.py`); ours is the paper's. Actions have no limits; ours double or halve the rate at most. The gradient is
//! the mean round trip of the later half of an interval less that of the former, over the interval; ours is the
//! least-squares line through its round trips, over when their packets left. An interval without any counts with a latency of 0, and a send ratio of 1;
//! ours has the mean of the one before, and the highest send ratio if something was sent. Two intervals pass before the
//! first decision; ours begins with it. Later versions stretch latencies at random by up to a tenth, and have longer
//! episodes.

use anabranch_control::rng::Rng;
use anabranch_control::time::Duration;
use anabranch_control::units::{Bytes, Rate};
use anabranch_lab::flows::FlowRunError;
use anabranch_scenario::flows::FlowScenario;
use anabranch_sim::network::Capacity;

use super::line::{Heard, Line};
use super::{Actions, Decide, Seen, Setting};
use crate::catalogue::{OneLink, between, log_between};

/// The share by which an action of 1 changes the rate.
const ALPHA: f64 = 0.025;

/// The rates that there are, in packets a second.
const RATES: (f64, f64) = (40.0, 1000.0);

/// What the first rate is of the link's.
const FIRST_RATE: (f64, f64) = (0.3, 1.5);

/// Mean round trips of the last monitor interval in the next one.
pub(super) const INTERVAL_RTTS: f64 = 0.5;

/// The shortest and the longest monitor interval, in seconds.
const INTERVALS: (f64, f64) = (0.01, 5.0);

/// Nothing but the rate holds packets back.
const NO_WINDOW: f64 = 1e6;

/// A packet on the wire.
const FULL_PACKET: u64 = 1500;

pub(super) static SETTING: Setting = Setting {
    // Twice and half the rate.
    actions: Actions::Range(-40.0, 40.0),
    seen: &[
        Seen {
            name: "latency_gradient",
            unit: "seconds of round trip that came on top, a second of leaving",
            low: -10.0,
            high: 10.0,
        },
        Seen {
            name: "latency_ratio",
            unit: "mean round trip over the least mean of the episode",
            low: 1.0,
            high: 100.0,
        },
        Seen { name: "send_ratio", unit: "packets sent over packets acknowledged", low: 0.0, high: 100.0 },
    ],
    history: 10,
    terms: &["throughput", "latency", "loss"],
    most_steps: 400,
    draw,
};

fn draw(rng: &mut Rng) -> FlowScenario {
    let packets_per_s = between(rng, 100.0, 500.0);
    let delay = Duration::from_secs_f64(between(rng, 0.05, 0.5));
    let queue = log_between(rng, 2.0, 2981.0).round() as u64;
    let loss = between(rng, 0.0, 0.05);
    let header = Bytes::new(66);
    OneLink {
        rate: Rate::from_bits_per_sec((packets_per_s * FULL_PACKET as f64 * 8.0) as u64),
        there: delay,
        back: delay,
        queue: Capacity::Packets(queue),
        loss,
        // Beyond four hundred of the longest intervals.
        length: Duration::from_millis(2_100_000),
        data: Bytes::new(FULL_PACKET) - header,
        header,
        ack_every: 1,
        first_window: 1,
    }
    .scenario()
}

/// The law.
#[derive(Clone, Debug, Default)]
pub struct Aurora {
    /// Packets a second.
    rate: f64,
    /// Of the next monitor interval, in seconds.
    interval: f64,
    /// The mean round trip of the last interval that had one, and the least of them, in seconds; 0 before.
    latency: f64,
    least: f64,
    gradient: f64,
    send_ratio: f64,
    throughput: f64,
    loss: f64,
}

impl Decide for Aurora {
    fn begin(&mut self, line: &mut Line, rng: &mut Rng) -> Result<(), FlowRunError> {
        let scenario = line.scenario();
        let flow = &scenario.flows[0].receivers[0];
        // Of the slowest link of the way.
        let rates =
            flow.there.iter().filter_map(|&link| Some(scenario.links[link].rate.as_ref()?.first.bytes_per_sec()));
        let packet = (scenario.packets.data + scenario.packets.header).get() as f64;
        let link = rates.fold(f64::INFINITY, f64::min) / packet;
        let one_way: f64 = flow.there.iter().map(|&link| scenario.links[link].delay.first.as_secs_f64()).sum();
        let first = if link.is_finite() { link * between(rng, FIRST_RATE.0, FIRST_RATE.1) } else { RATES.0 };
        self.rate = first.clamp(RATES.0, RATES.1);
        self.interval = (3.0 * one_way).clamp(INTERVALS.0, INTERVALS.1);
        self.send_ratio = 1.0;
        Ok(())
    }

    fn act(&mut self, action: f32, line: &mut Line) -> Result<(), FlowRunError> {
        let change = ALPHA * f64::from(action);
        let rate = if change >= 0.0 { self.rate * (1.0 + change) } else { self.rate / (1.0 - change) };
        self.rate = rate.clamp(RATES.0, RATES.1);
        line.set(NO_WINDOW, Some(self.rate));
        let (began, until, sent) = (line.now_s(), line.after(self.interval), line.sent());
        // Round trips, over when their packets left: the line that the controller draws, too.
        let (mut acked, mut lost, mut samples) = (0.0, 0.0, Vec::new());
        loop {
            match line.hear(until)? {
                Heard::Ack { packets, rtt } => {
                    acked += packets;
                    samples.push((line.now_s() - rtt - began, rtt));
                }
                Heard::Lost(packets) => lost += packets,
                Heard::Silence => break,
            }
        }
        let seconds = (line.now_s() - began).max(1e-9);
        let sent = (line.sent() - sent) as f64;
        self.throughput = acked / seconds;
        self.loss = if acked + lost > 0.0 { lost / (acked + lost) } else { 0.0 };
        self.send_ratio = if acked > 0.0 {
            sent / acked
        } else if sent > 0.0 {
            f64::from(SETTING.seen[2].high)
        } else {
            1.0
        };
        self.gradient = slope(&samples);
        if !samples.is_empty() {
            self.latency = samples.iter().map(|(_, rtt)| rtt).sum::<f64>() / samples.len() as f64;
            self.least = if self.least > 0.0 { self.least.min(self.latency) } else { self.latency };
            self.interval = (INTERVAL_RTTS * self.latency).clamp(INTERVALS.0, INTERVALS.1);
        }
        Ok(())
    }

    fn seen(&self) -> Vec<f64> {
        let ratio = if self.least > 0.0 { self.latency / self.least } else { 1.0 };
        vec![self.gradient, ratio, self.send_ratio]
    }

    fn terms(&self) -> (Vec<f64>, f64) {
        let reward = 10.0 * self.throughput - 1000.0 * self.latency - 2000.0 * self.loss;
        (vec![self.throughput, self.latency, self.loss], reward)
    }
}

/// Of the least-squares line through the points; 0 where there is none.
fn slope(points: &[(f64, f64)]) -> f64 {
    let count = points.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (x, y) = (mean(|point| point.0), mean(|point| point.1));
    let spread: f64 = points.iter().map(|point| (point.0 - x) * (point.0 - x)).sum();
    let together: f64 = points.iter().map(|point| (point.0 - x) * (point.1 - y)).sum();
    if spread > 0.0 { together / spread } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use anabranch_control::flow::policy::{FlowFeature, MOST_ACTION, STEP};

    use super::*;

    #[test]
    fn an_action_and_what_is_seen_are_those_of_the_controller_that_runs_what_was_trained() {
        assert_eq!(ALPHA, STEP);
        assert_eq!(SETTING.actions, Actions::Range(-MOST_ACTION, MOST_ACTION));
        for seen in SETTING.seen {
            assert!(FlowFeature::AURORA.iter().any(|feature| feature.name() == seen.name), "{}", seen.name);
        }
    }

    #[test]
    fn a_slope_is_that_of_the_line_through_the_points() {
        assert_eq!(slope(&[(0.0, 1.0), (1.0, 1.5), (2.0, 2.0)]), 0.5);
        assert_eq!((slope(&[]), slope(&[(1.0, 3.0)])), (0.0, 0.0));
    }

    #[test]
    fn a_reward_weighs_packets_a_second_seconds_and_a_share() {
        let law = Aurora { throughput: 200.0, latency: 0.25, loss: 0.01, ..Aurora::default() };
        // 10 * 200 - 1000 * 0.25 - 2000 * 0.01
        assert_eq!(law.terms(), (vec![200.0, 0.25, 0.01], 2000.0 - 250.0 - 20.0));
    }
}
