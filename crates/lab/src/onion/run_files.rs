//! What is reported of a run of an onion scenario: its numbers, its seconds and its charts.

use anabranch_control::time::Duration;
use anabranch_report::Figure;
use anabranch_scenario::file::onion_run_to_toml;
use anabranch_scenario::onion_run::OnionRunScenario;
use serde_json::{Map, Value, json};

use super::{OnionMeasured, OnionMetrics, OnionSecond};
use crate::finished::{Application, Counts, Metrics, by_name, number, over_time};

impl OnionMetrics {
    /// Bytes a second that users and services read.
    pub fn goodput_bytes_per_s(&self) -> f64 {
        self.download_bytes_per_s + self.upload_bytes_per_s
    }
}

impl Metrics for OnionMetrics {
    fn simulated(&self) -> Duration {
        self.simulated
    }

    fn packet_hops(&self) -> u64 {
        self.packet_hops
    }

    fn to_map(&self) -> Map<String, Value> {
        by_name([
            ("simulated_s", number(self.simulated.as_secs_f64())),
            ("counted_s", number(self.counted.as_secs_f64())),
            ("users", json!(self.users)),
            ("goodput_bytes_per_s", number(self.goodput_bytes_per_s())),
            ("download_bytes_per_s", number(self.download_bytes_per_s)),
            ("upload_bytes_per_s", number(self.upload_bytes_per_s)),
            ("limit_bytes_per_s", number(self.limit_bytes_per_s)),
            ("limit_percent", number(100.0 * self.limit_share)),
            ("idle_percent", number(100.0 * self.account.idle)),
            ("carried_lost_percent", number(100.0 * self.account.lost)),
            ("carried_beyond_percent", number(100.0 * self.account.beyond)),
            ("jain_index", number(self.jain_index)),
            ("refused_percent", number(self.refused_percent)),
            ("lost_percent", number(self.lost_percent)),
            ("stall_max_s", number(self.stall_max_s)),
            ("stall_p95_s", number(self.stall_p95_s)),
            ("finished", json!(self.finished)),
            ("finish_p50_s", number(self.finish_p50_s)),
            ("greedy_attraction", number(self.greedy_attraction)),
            ("dropper_attraction", number(self.dropper_attraction)),
            ("draw_entropy_bits", number(self.draw_entropy_bits)),
            ("loops", json!(self.loops)),
            ("loops_returned_percent", number(self.loops_returned_percent)),
            ("overhead_percent", number(self.overhead_percent)),
            ("ended_sessions", json!(self.ended_sessions)),
            ("wrong", json!(self.wrong)),
        ])
    }

    fn rows(&self) -> Vec<(&'static str, String)> {
        let seconds = |value: f64| if value.is_finite() { format!("{value:.2} s") } else { "-".to_owned() };
        let percent = |value: f64| if value.is_finite() { format!("{value:.2} %") } else { "-".to_owned() };
        let rate = |value: f64| if value.is_finite() { format!("{:.1} kB/s", value / 1e3) } else { "-".to_owned() };
        let times =
            |value: f64| if value.is_finite() { format!("{value:.2} times its weight") } else { "-".to_owned() };
        let mut rows = vec![
            ("users", self.users.to_string()),
            ("downloaded", rate(self.download_bytes_per_s)),
            ("uploaded", rate(self.upload_bytes_per_s)),
            ("of what relays can carry", percent(100.0 * self.limit_share)),
            ("of that, idle", percent(100.0 * self.account.idle)),
            ("carried and lost", percent(100.0 * self.account.lost)),
            ("carried beyond the least", percent(100.0 * self.account.beyond)),
            ("Jain's index of users", format!("{:.3}", self.jain_index)),
            ("refused by relays", percent(self.refused_percent)),
            ("lost of what users sent", percent(self.lost_percent)),
            ("longest stall", seconds(self.stall_max_s)),
            ("entropy of a drawn relay", format!("{:.2} bits", self.draw_entropy_bits)),
            ("packets beyond the least", percent(self.overhead_percent)),
        ];
        if self.greedy_attraction.is_finite() {
            rows.push(("greedy relays attract", times(self.greedy_attraction)));
        }
        if self.dropper_attraction.is_finite() {
            rows.push(("droppers attract", times(self.dropper_attraction)));
        }
        if self.finished > 0 {
            rows.push(("downloads that are whole", format!("{} in {}", self.finished, seconds(self.finish_p50_s))));
        }
        if self.loops > 0 {
            rows.push(("loops that came back", format!("{} of {}", percent(self.loops_returned_percent), self.loops)));
        }
        if self.ended_sessions > 0 {
            rows.push(("sessions that ended early", self.ended_sessions.to_string()));
        }
        rows
    }
}

fn counts(measured: &OnionMeasured, of: fn(&OnionSecond) -> u64) -> Counts {
    measured.seconds.iter().map(of).collect()
}

impl Application for OnionRunScenario {
    type Metrics = OnionMetrics;
    const CAPTION: &'static str = "What users got";
    const INTRODUCTION: Option<&'static str> = Some(
        "What is measured here is what users can have. It says nothing of what hides them: whoever runs a user's guard \
         and the service's relay links both (anabranch onion attack).",
    );

    fn seed(&self) -> u64 {
        self.seed
    }

    /// What placed packets, there and back.
    fn controller(&self) -> String {
        self.onion.controllers()
    }

    fn duration(&self) -> Duration {
        self.duration
    }

    fn to_toml(&self) -> String {
        onion_run_to_toml(self)
    }

    fn metrics(measured: &OnionMeasured) -> &OnionMetrics {
        &measured.metrics
    }

    fn each_second(measured: &OnionMeasured) -> Vec<(&'static str, Counts)> {
        vec![
            ("downloaded_bytes", counts(measured, |second| second.downloaded)),
            ("uploaded_bytes", counts(measured, |second| second.uploaded)),
            ("relayed_packets", counts(measured, |second| second.packets)),
            ("refused_packets", counts(measured, |second| second.refused)),
        ]
    }

    fn figures(measured: &OnionMeasured) -> Vec<Figure> {
        let bytes = [
            ("down", counts(measured, |second| second.downloaded)),
            ("up", counts(measured, |second| second.uploaded)),
        ];
        let packets = [
            ("came", counts(measured, |second| second.packets)),
            ("refused", counts(measured, |second| second.refused)),
        ];
        vec![
            over_time("Bytes that were read", "Bytes that were read", "bytes/s", bytes),
            over_time("Packets at relays", "Packets at relays", "1/s", packets),
        ]
    }
}
