//! Westwood+: Reno that measures how much is delivered in each round trip, and after a
//! loss falls to what that rate carries in the least round trip, instead of half. A loss
//! at random then costs little, for the measured rate is still what the path carries.
//!
//! ```text
//! b_k = delivered in round trip k / its length          [Grieco, Mascolo 2004] 2
//! BWE = 0.9 BWE + 0.1 b_k                               [Grieco, Mascolo 2004] 2
//! loss  W = ssthresh = max(BWE RTT_min, 2 packets)      [Grieco, Mascolo 2004] 2
//! else  as Reno                                         RFC 5681
//! ```
//!
//! L. A. Grieco, S. Mascolo: Performance evaluation and comparison of Westwood+, New Reno,
//! and Vegas TCP congestion control. ACM CCR 34(2), 2004. The first sample sets the filter,
//! which the paper leaves open, and a window below `BWE RTT_min` is not raised by a loss,
//! as in the first Westwood (Mascolo et al., MobiCom 2001).

use serde::Deserialize;

use super::classic::{Acked, Classic, Window, WindowRule};
use super::counting::Counting;
use super::round::Rounds;
use super::setup::{Factory, factory};
use super::{Feedback, reno};
use crate::registry::{ParameterError, in_range};
use crate::time::Time;
use crate::units::{Bytes, OctetRate, Octets};

/// Parameters of `westwood`.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Config {
    /// Weight of the past in the bandwidth filter.
    memory: f64,
    counting: Counting,
}

impl Default for Config {
    fn default() -> Config {
        // [Grieco, Mascolo 2004] 2: alpha = 0.9.
        Config { memory: 0.9, counting: Counting::Bytes }
    }
}

/// Bandwidth, sampled once each round trip.
#[derive(Clone, Copy, Debug, Default)]
struct Bandwidth {
    rounds: Rounds,
    /// When the present round began, and what had been delivered then; none before the
    /// first ACK, for nothing can be delivered in the first round trip.
    began: Option<(Time, Bytes)>,
    /// The application left the network unused in the present round.
    limited: bool,
    estimate: Option<OctetRate>,
}

impl Bandwidth {
    /// Takes a sample when a round trip has ended.
    #[inline]
    fn observe(&mut self, now: Time, feedback: &Feedback<'_>, memory: f64) {
        // Such a round says nothing of the path, nor does one that a pause is a part of.
        self.limited |= feedback.app_limited || feedback.acked.last().is_some_and(|newest| newest.app_limited);
        if !self.rounds.ends(feedback) {
            return;
        }
        let began = self.began.replace((now, feedback.delivered));
        let limited = core::mem::take(&mut self.limited);
        if let Some((at, delivered)) = began
            && now > at
            && !limited
        {
            // BWE = 0.9 BWE + 0.1 b_k.
            let sample = Octets::from(feedback.delivered - delivered) / now.since(at).seconds();
            self.estimate = Some(self.estimate.map_or(sample, |past| past * memory + sample * (1.0 - memory)));
        }
    }
}

/// The window rule.
#[derive(Clone, Debug)]
struct Westwood {
    bandwidth: Bandwidth,
    memory: f64,
}

/// Makes `westwood`.
pub fn build(parameters: &toml::Table) -> Result<Factory, ParameterError> {
    let config: Config = crate::registry::parameters(parameters)?;
    in_range("memory", config.memory, 0.0..=0.9999)?;
    Ok(factory(move |setup| {
        let rule = Westwood { bandwidth: Bandwidth::default(), memory: config.memory };
        Classic::new(setup, config.counting, false, rule)
    }))
}

impl WindowRule for Westwood {
    type Unit = Octets;

    #[inline]
    fn observe(&mut self, now: Time, feedback: &Feedback<'_>) {
        self.bandwidth.observe(now, feedback, self.memory);
    }

    #[inline]
    fn avoid(&mut self, window: &mut Window<Octets>, acked: &Acked<'_, Octets>) {
        reno::avoid(window, acked.counted);
    }

    fn reduce(&mut self, window: &mut Window<Octets>, feedback: &Feedback<'_>) {
        // W = ssthresh = max(BWE RTT_min, 2 packets); half before the first sample.
        let carried = match self.bandwidth.estimate {
            Some(estimate) => estimate * feedback.rtt.min.seconds(),
            None => window.size / 2.0,
        };
        let threshold = carried.max(window.minimum());
        window.slow_start.end(threshold);
        window.size = window.size.min(threshold);
    }

    fn trace(&self, window: &Window<Octets>, record: &mut dyn FnMut(&'static str, f64)) {
        window.trace(record);
        record("bandwidth", self.bandwidth.estimate.map_or(0.0, OctetRate::bits_per_sec));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::Sent;
    use crate::flow::setup::{Setup, made};
    use crate::flow::testing::{Drive, PACKET, PATH, Path, drive, feedback, traced};
    use crate::time::Duration;

    /// A packet in 1000 is lost at random.
    const LOSSY: Path = Path { buffer: 100, loss: 0.001, ..PATH };

    fn run(name: &str, path: Path, seconds: f64) -> Drive {
        let setup = Setup::new(PACKET, Time::ZERO);
        let entry = crate::flow::registry::find(name).unwrap();
        drive(&mut *entry.make(&setup, &toml::Table::new()).unwrap(), path, seconds, 1)
    }

    #[test]
    fn a_loss_leaves_what_the_rate_carries_in_the_least_round_trip() {
        let run = run("westwood", LOSSY, 120.0);
        let mut falls = 0;
        for i in 1..run.at.len() {
            let settled = run.at[i] > Time::from_secs_f64(20.0);
            if settled && run.window[i] < run.window[i - 1] - 0.5 {
                // 1000 packets a second and 101 ms, and not half of the window before.
                assert!((85.0..=102.0).contains(&run.window[i]), "from {} to {}", run.window[i - 1], run.window[i]);
                falls += 1;
            }
        }
        assert!(falls > 50, "{falls} falls");
    }

    #[test]
    fn what_is_delivered_after_a_pause_is_no_sample_and_neither_is_the_first_ack() {
        let mut bandwidth = Bandwidth::default();
        let mut estimate = |at_ms: u64, delivered_when_sent: u64, delivered: u64, app_limited: bool| {
            let acked = [Sent { delivered: Bytes::new(delivered_when_sent), app_limited, ..Sent::default() }];
            let ack = Feedback { delivered: Bytes::new(delivered), ..feedback(&acked, Duration::from_millis(100)) };
            bandwidth.observe(Time::ZERO + Duration::from_millis(at_ms), &ack, 0.9);
            bandwidth.estimate
        };
        assert_eq!(estimate(100, 0, 1000, false), None, "nothing could be delivered in the first round trip");
        assert_eq!(estimate(200, 1000, 11_000, false), Some(OctetRate(100_000.0)));
        // Ten seconds later a packet that left into an empty network ends the round.
        assert_eq!(estimate(10_300, 11_000, 12_000, true), Some(OctetRate(100_000.0)));
        assert_eq!(estimate(10_400, 12_000, 22_000, false), Some(OctetRate(100_000.0)));
    }

    #[test]
    fn random_losses_cost_less_than_reno_pays() {
        let lossy = Path { loss: 0.01, ..LOSSY };
        let (westwood, reno) = (run("westwood", lossy, 120.0).throughput(), run("reno", lossy, 120.0).throughput());
        assert!(westwood > 3.0 * reno, "{westwood} against Reno's {reno}");
    }

    #[test]
    fn the_filter_finds_the_rate_of_the_bottleneck() {
        let setup = Setup::new(PACKET, Time::ZERO);
        let mut westwood = made(build, &setup, &toml::Table::new()).unwrap();
        drive(&mut *westwood, Path { loss: 0.0, ..LOSSY }, 60.0, 1);
        let bandwidth = traced(&*westwood, "bandwidth");
        assert!((bandwidth / 8e6 - 1.0).abs() < 0.05, "{bandwidth} bits a second");
    }
}
