//! What a run's counts say, in the numbers that the thesis compares.
//!
//! A run begins with controllers that know nothing, so its first third, at most
//! 100 000 s, is left out of the means; they are given for the whole run too. The mean of
//! what was received gets an interval by batch means, in a fixed number of batches, or a
//! reason why there is none.

use serde_json::{Map, Value, json};

use crate::overlay::{Measured, Second};
use anabranch_stats::{
    MeanEstimate, PAPER_SHARE, PAPER_WINDOW_S, batch_means, estimate_mean, mean, time_to_convergence,
};

/// How many batches there are, whatever they show: one number, since to go on with another
/// until a check is passed would be to choose the check's answer. Schmeiser ("Batch size
/// effects in the analysis of simulation output", Operations Research 30, 1982) finds that
/// more than 30 hardly narrow an interval and that fewer than 10 widen it.
const BATCHES: usize = 20;

/// No batch is shorter, in seconds: relays count in seconds, so neighbouring ones are
/// never independent.
const SHORTEST_BATCH_S: usize = 10;

/// No warm-up is longer, in seconds.
const LONGEST_WARMUP_S: usize = 100_000;

/// The confidence of every interval.
const CONFIDENCE: f64 = 0.95;

/// What a run says.
#[derive(Clone, Debug)]
pub struct Summary {
    /// The registered name of the controller that ran.
    pub controller: &'static str,
    /// Peers in the overlay.
    pub peers: usize,
    /// Simulated seconds.
    pub seconds: usize,
    /// Seconds that the means leave out.
    pub warmup_s: usize,
    /// Means after the warm-up.
    pub steady: Metrics,
    /// Means over the whole run.
    pub whole: Metrics,
    /// The mean received after the warm-up in bytes a second a peer, and how certain it is.
    pub received: Estimate,
    /// Seconds until the mean over 100 s first exceeds 90 % of the whole run's mean;
    /// none in a run of less than 100 s.
    pub convergence_s: Option<f64>,
    /// What a sender keeps for each peer that it knows, in bytes.
    pub memory_bytes_per_peer_pair: Option<f64>,
    /// Packets and ACKs that arrived at a node.
    pub packet_hops: u64,
}

/// A mean by batches.
#[derive(Clone, Debug)]
pub struct Estimate {
    /// The mean, with an interval or why there is none.
    pub estimate: MeanEstimate,
    /// Seconds of one batch.
    pub batch_s: usize,
    /// The batches' means.
    pub batch_means: Vec<f64>,
}

/// Means over some seconds, all peers together unless it says otherwise. Each is none
/// where it would divide by nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Metrics {
    /// Payload that reached its destination, in bytes a second a peer.
    pub received_bytes_per_s: Option<f64>,
    /// Payload that left its source, in bytes a second a peer.
    pub sent_bytes_per_s: Option<f64>,
    /// Packets and ACKs that were refused because of a limit, in per cent of all that
    /// nodes received. [Raiber 2010] table 7.4, note 3.
    pub drop_percent: Option<f64>,
    /// Packets and ACKs refused because of a limit, each second.
    pub drops_per_s: Option<f64>,
    /// Deadlines that passed without an ACK, each second.
    pub timeouts_per_s: Option<f64>,
    /// ACKs that came after their deadline, each second.
    pub late_acks_per_s: Option<f64>,
    /// Timeouts of packets whose ACK came after all, as a share of all timeouts.
    pub spurious_share: Option<f64>,
    /// How long before their deadline ACKs came, in milliseconds.
    pub early_ms: Option<f64>,
}

impl Summary {
    /// What `measured` says.
    pub fn of(measured: &Measured) -> Summary {
        let seconds = measured.seconds.len();
        let warmup_s = (seconds / 3).min(LONGEST_WARMUP_S);
        let scale = measured.packet.get() as f64 / measured.peers as f64;
        let received: Vec<f64> = measured.received_bytes_per_s().collect();
        let pairs = measured.peer_pairs as f64;
        Summary {
            controller: measured.controller,
            peers: measured.peers,
            seconds,
            warmup_s,
            steady: Metrics::of(&measured.seconds[warmup_s..], scale),
            whole: Metrics::of(&measured.seconds, scale),
            received: Estimate::of(&received[warmup_s..]),
            convergence_s: time_to_convergence(&received, PAPER_WINDOW_S, PAPER_SHARE),
            memory_bytes_per_peer_pair: ratio(measured.sender_memory_bytes as f64, pairs),
            packet_hops: measured.packet_hops(),
        }
    }

    /// Half the width of the 95 % interval of what was received, if it can be trusted.
    pub fn received_ci95(&self) -> Option<f64> {
        self.received.estimate.interval().map(|interval| interval.half_width)
    }

    /// Every number by its name, in a fixed order; none becomes null.
    pub fn metrics(&self) -> Map<String, Value> {
        let Metrics {
            received_bytes_per_s,
            sent_bytes_per_s,
            drop_percent,
            drops_per_s,
            timeouts_per_s,
            late_acks_per_s,
            spurious_share,
            early_ms,
        } = self.steady;
        let named = [
            ("received_bytes_per_s", received_bytes_per_s),
            ("received_bytes_per_s_ci95", self.received_ci95()),
            ("sent_bytes_per_s", sent_bytes_per_s),
            ("drop_percent", drop_percent),
            ("drops_per_s", drops_per_s),
            ("timeouts_per_s", timeouts_per_s),
            ("late_acks_per_s", late_acks_per_s),
            ("spurious_share", spurious_share),
            ("ack_early_ms", early_ms),
            ("convergence_s", self.convergence_s),
            ("memory_bytes_per_peer_pair", self.memory_bytes_per_peer_pair),
            ("whole_run_received_bytes_per_s", self.whole.received_bytes_per_s),
            ("whole_run_drop_percent", self.whole.drop_percent),
            ("simulated_s", Some(self.seconds as f64)),
            ("warmup_s", Some(self.warmup_s as f64)),
        ];
        named.into_iter().map(|(name, value)| (name.to_owned(), json!(value))).collect()
    }

    /// Every number with its label and unit, as a reader wants them.
    pub fn rows(&self) -> Vec<(&'static str, String)> {
        let Metrics { drop_percent, timeouts_per_s, late_acks_per_s, spurious_share, .. } = self.steady;
        vec![
            ("controller", self.controller.to_owned()),
            ("simulated", format!("{} s, means without the first {} s", self.seconds, self.warmup_s)),
            ("received by a node", self.received_text()),
            ("drops", with_unit(drop_percent, "% of all packets and ACKs that nodes received")),
            ("timeouts", with_unit(timeouts_per_s, "/s, all nodes together")),
            ("late ACKs", with_unit(late_acks_per_s, "/s, all nodes together")),
            ("spurious timeouts", with_unit(spurious_share.map(|share| 100.0 * share), "% of the timeouts")),
            (
                "convergence",
                match self.convergence_s {
                    Some(seconds) => format!("{seconds} s until 100 s reach 90 % of the mean"),
                    None => format!("unknown: the run has less than {PAPER_WINDOW_S} s, or received nothing"),
                },
            ),
            ("memory", with_unit(self.memory_bytes_per_peer_pair, "B for each peer that a sender knows")),
            ("packet-hops", self.packet_hops.to_string()),
        ]
    }

    fn received_text(&self) -> String {
        let Some(mean) = self.received.estimate.mean().or(self.steady.received_bytes_per_s) else {
            return "unknown: not one second is over".to_owned();
        };
        let batches = format!("{} batches of {} s", self.received.batch_means.len(), self.received.batch_s);
        match self.received.estimate {
            MeanEstimate::Interval(interval) => {
                format!("{mean:.0} B/s ± {:.0} (95 %, {batches})", interval.half_width)
            }
            MeanEstimate::Correlated { lag1, .. } => {
                format!("{mean:.0} B/s, no interval: the means of {batches} are correlated ({lag1:.2}); run longer")
            }
            MeanEstimate::TooShort { needed, .. } => format!(
                "{mean:.0} B/s, no interval: too short for {needed} batches of {SHORTEST_BATCH_S} s; run longer"
            ),
            MeanEstimate::NotFinite { .. } => "not a number".to_owned(),
        }
    }
}

impl Metrics {
    /// The means over `seconds`; `scale` turns packets into bytes a peer.
    pub fn of(seconds: &[Second], scale: f64) -> Metrics {
        let sum = |count: fn(&Second) -> u32| seconds.iter().map(|s| u64::from(count(s))).sum::<u64>() as f64;
        let span = seconds.len() as f64;
        let drops = sum(|s| s.refused) + sum(|s| s.refused_acks);
        let early_us = seconds.iter().map(|s| s.early_us).sum::<u64>() as f64;
        Metrics {
            received_bytes_per_s: ratio(sum(|s| s.delivered) * scale, span),
            sent_bytes_per_s: ratio(sum(|s| s.sent) * scale, span),
            drop_percent: ratio(100.0 * drops, sum(|s| s.packet_hops)),
            drops_per_s: ratio(drops, span),
            timeouts_per_s: ratio(sum(|s| s.timed_out), span),
            late_acks_per_s: ratio(sum(|s| s.late_acks), span),
            spurious_share: ratio(sum(|s| s.late_acks), sum(|s| s.timed_out)),
            early_ms: ratio(early_us / 1000.0, sum(|s| s.acked)),
        }
    }
}

impl Estimate {
    /// The mean of values of one second each, in [`BATCHES`] batches of equal length; what is
    /// left over is left out at the beginning. A run that is too short for them has no
    /// interval, nor has one whose batch means are correlated.
    pub fn of(per_second: &[f64]) -> Estimate {
        let batch_s = per_second.len() / BATCHES;
        if batch_s < SHORTEST_BATCH_S {
            let batch_means = batch_means(per_second, SHORTEST_BATCH_S);
            let estimate =
                MeanEstimate::TooShort { mean: mean(per_second), batches: batch_means.len(), needed: BATCHES };
            return Estimate { estimate, batch_s: SHORTEST_BATCH_S, batch_means };
        }
        let batch_means = batch_means(&per_second[per_second.len() - BATCHES * batch_s..], batch_s);
        Estimate { estimate: estimate_mean(&batch_means, CONFIDENCE), batch_s, batch_means }
    }
}

fn ratio(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| part / whole)
}

fn with_unit(value: Option<f64>, unit: &str) -> String {
    match value {
        Some(value) if value != 0.0 && value.abs() < 0.01 => format!("{value:.2e} {unit}"),
        Some(value) => format!("{} {unit}", (value * 1000.0).round() / 1000.0),
        None => "none to speak of".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use anabranch_control::units::Bytes;

    use super::*;

    fn measured(seconds: Vec<Second>) -> Measured {
        Measured {
            seconds,
            controller: "aimd",
            peers: 2,
            packet: Bytes::new(1000),
            data_in_flight: 0,
            sender_memory_bytes: 600,
            peer_pairs: 2,
            rates: None,
            acked_by_sender: Vec::new(),
        }
    }

    fn second(delivered: u32) -> Second {
        Second {
            sent: delivered + 1,
            delivered,
            packet_hops: 100,
            refused: 2,
            refused_acks: 1,
            acked: 10,
            timed_out: 4,
            late_acks: 1,
            early_us: 20_000,
            ..Second::default()
        }
    }

    #[test]
    fn counts_become_means_with_the_stated_units() {
        // Delivered 8 and 10 by turns after a warm-up of nothing.
        let mut seconds = vec![Second::default(); 200];
        seconds.extend((0..400).map(|i| second(8 + 2 * (i % 2))));
        let summary = Summary::of(&measured(seconds));
        let steady = summary.steady;
        assert_eq!((summary.seconds, summary.warmup_s), (600, 200));
        assert_eq!(steady.received_bytes_per_s, Some(4500.0));
        assert_eq!(steady.sent_bytes_per_s, Some(5000.0));
        assert_eq!(steady.drop_percent, Some(3.0));
        assert_eq!(steady.drops_per_s, Some(3.0));
        assert_eq!((steady.timeouts_per_s, steady.late_acks_per_s), (Some(4.0), Some(1.0)));
        assert_eq!(steady.spurious_share, Some(0.25));
        assert_eq!(steady.early_ms, Some(2.0));
        assert_eq!(summary.whole.received_bytes_per_s, Some(3000.0));
        assert_eq!(summary.memory_bytes_per_peer_pair, Some(300.0));
        assert_eq!(summary.packet_hops, 40_000);
        // 0.9 of 3000 is exceeded by a window that has 40 % without data: 4500 * 0.61.
        assert_eq!(summary.convergence_s, Some(161.0));
        let metrics = summary.metrics();
        assert_eq!(metrics["received_bytes_per_s"], 4500.0);
        assert_eq!(metrics["simulated_s"], 600.0);
    }

    #[test]
    fn a_short_run_has_a_mean_and_says_why_it_has_no_interval() {
        let summary = Summary::of(&measured(vec![second(8); 30]));
        assert_eq!(summary.steady.received_bytes_per_s, Some(4000.0));
        assert_eq!(summary.received_ci95(), None);
        assert!(summary.metrics()["received_bytes_per_s_ci95"].is_null());
        assert!(summary.metrics()["convergence_s"].is_null());
        let rows = summary.rows();
        assert!(rows[2].1.contains("4000 B/s, no interval: too short"), "{}", rows[2].1);
    }

    #[test]
    fn a_rising_run_gets_no_interval_and_a_level_one_does() {
        let rising = Summary::of(&measured((0..3000).map(second).collect()));
        assert!(matches!(rising.received.estimate, MeanEstimate::Correlated { .. }));
        assert_eq!(rising.received.batch_means.len(), BATCHES);
        // A multiplicative generator, so that the seconds have no order.
        let mut state = 1u64;
        let level = (0..3000).map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            second(5 + (state >> 62) as u32)
        });
        let level = Summary::of(&measured(level.collect()));
        let interval = level.received.estimate.interval().unwrap();
        assert!(interval.contains(3250.0) && interval.half_width < 50.0, "{interval:?}");
        assert_eq!(level.received.batch_means.len(), BATCHES);
    }

    #[test]
    fn a_failed_check_refuses_the_interval_and_no_other_number_of_batches_is_tried() {
        // Twenty batches of 20 s in pairs of one level: neighbours are correlated, while ten
        // batches of 40 s would not be.
        let levels = [5.0, 4.0, 1.0, 2.0, 6.0, 5.0, 3.0, 2.0, 4.0, 3.0];
        let per_second: Vec<f64> = levels.iter().flat_map(|level| [*level; 40]).collect();
        assert!(estimate_mean(&batch_means(&per_second, 40), CONFIDENCE).interval().is_some());
        let estimate = Estimate::of(&per_second);
        assert!(matches!(estimate.estimate, MeanEstimate::Correlated { .. }), "{:?}", estimate.estimate);
        assert_eq!((estimate.batch_means.len(), estimate.batch_s), (BATCHES, 20));
    }

    #[test]
    fn there_are_always_as_many_batches_or_no_interval() {
        let noise = |i: usize| ((i * 7919) % 101) as f64;
        for seconds in [200, 219, 239, 4_001] {
            let estimate = Estimate::of(&(0..seconds).map(noise).collect::<Vec<f64>>());
            assert_eq!((estimate.batch_means.len(), estimate.batch_s), (BATCHES, seconds / BATCHES), "{seconds} s");
        }
        let short = Estimate::of(&(0..199).map(noise).collect::<Vec<f64>>());
        assert!(matches!(short.estimate, MeanEstimate::TooShort { mean: Some(_), batches: 19, needed: BATCHES }));
    }

    #[test]
    fn nothing_measured_is_none_not_zero() {
        let summary = Summary::of(&measured(Vec::new()));
        assert_eq!(summary.steady, Metrics::default());
        assert!(summary.metrics()["drop_percent"].is_null());
        assert!(summary.rows()[2].1.starts_with("unknown"));
    }
}
