//! What is reported of a stream's run: its numbers, its seconds and its charts.

use anabranch_control::time::Duration;
use anabranch_report::{Axis, BarChart, BarSeries, Figure};
use anabranch_scenario::file::AnyScenario;
use anabranch_scenario::stream::StreamScenario;
use serde_json::{Map, Value, json};

use super::{StreamMeasured, StreamMetrics, StreamSecond};
use crate::finished::{Application, Counts, Metrics, by_name, number, over_time};

/// More classes of delays cannot be told apart in a chart.
const MOST_CLASSES: usize = 16;

impl Metrics for StreamMetrics {
    fn simulated(&self) -> Duration {
        self.simulated
    }

    fn packet_hops(&self) -> u64 {
        self.packet_hops
    }

    fn to_map(&self) -> Map<String, Value> {
        let kinds = self.overhead.unwrap_or_default().kinds();
        let kinds = kinds.map(|(name, _, percent)| (name, number(self.overhead.map_or(f64::NAN, |_| percent))));
        let numbers = [
            ("simulated_s", number(self.simulated.as_secs_f64())),
            ("clients", json!(self.clients)),
            ("started", json!(self.started)),
            ("killed", json!(self.killed)),
            ("delivered_percent", number(self.delivered_percent)),
            ("skipped_packets", json!(self.skipped_packets)),
            ("savings_percent", number(self.savings_percent)),
            ("startup_p95_s", number(self.startup_p95_s)),
            ("startup_p50_s", number(self.startup_p50_s)),
            ("let_in_p95_s", number(self.let_in_p95_s)),
            ("first_packet_p95_s", number(self.first_packet_p95_s)),
            ("latency_p95_s", number(self.latency_p95_s)),
            ("release_p50_s", number(self.release_p50_s)),
            ("release_p95_s", number(self.release_p95_s)),
            ("slices_back_p99_s", number(self.slices_back_p99_s)),
            ("overhead_percent", number(self.overhead_percent)),
            ("server_bytes", json!(self.server_bytes)),
            ("source_bytes", json!(self.source_bytes)),
            ("forged_packets", json!(self.forged_packets)),
            ("parent_changes", json!(self.parent_changes)),
            ("silent_feeds", json!(self.silent_feeds)),
            ("overloaded", json!(self.overloaded)),
        ];
        by_name(numbers.into_iter().chain(kinds))
    }

    fn rows(&self) -> Vec<(&'static str, String)> {
        let seconds = |value: f64| if value.is_finite() { format!("{value:.2} s") } else { "-".to_owned() };
        let percent = |value: f64| if value.is_finite() { format!("{value:.2} %") } else { "-".to_owned() };
        let megabytes = |bytes: u64| format!("{:.1} MB", bytes as f64 / 1e6);
        let mut rows = vec![("viewers", format!("{}, of whom {} have begun to play", self.clients, self.started))];
        if self.killed > 0 {
            rows.push(("killed at once", self.killed.to_string()));
        }
        rows.extend([
            ("delivered to honest viewers", percent(self.delivered_percent)),
            ("packets they missed", self.skipped_packets.to_string()),
            ("saved at the server", percent(self.savings_percent)),
            ("start, 95 %", seconds(self.startup_p95_s)),
            ("delay, 95 %", seconds(self.latency_p95_s)),
            ("overhead", percent(self.overhead_percent)),
        ]);
        rows.extend(self.overhead.map(|overhead| ("of that", overhead.in_words())));
        rows.extend([
            ("sent by the server", megabytes(self.server_bytes)),
            ("the stream itself", megabytes(self.source_bytes)),
            ("changes of parents", self.parent_changes.to_string()),
        ]);
        if self.killed > 0 {
            rows.push(("slices back, 99 %", seconds(self.slices_back_p99_s)));
        }
        if self.forged_packets > 0 {
            rows.push(("forged packets found", self.forged_packets.to_string()));
        }
        if let Some(overloaded) = self.overloaded.filter(|count| *count > 0) {
            rows.push(("refused for want of room", overloaded.to_string()));
        }
        rows
    }
}

fn counts(measured: &StreamMeasured, of: fn(&StreamSecond) -> u64) -> Counts {
    measured.seconds.iter().map(of).collect()
}

/// Classes are put together until a chart can show them.
fn delays(delays: &[(f64, u64)]) -> Figure {
    let each = delays.len().div_ceil(MOST_CLASSES).max(1);
    let all: u64 = delays.iter().map(|(_, count)| count).sum();
    let share =
        |counts: &[(f64, u64)]| 100.0 * counts.iter().map(|(_, count)| count).sum::<u64>() as f64 / all.max(1) as f64;
    let (names, values): (Vec<_>, Vec<_>) =
        delays.chunks(each).map(|counts| (format!("{:.2}", counts[counts.len() - 1].0), Some(share(counts)))).unzip();
    let chart = BarChart::new("seconds at most", Axis::new("packets", "%"), names)
        .series(BarSeries::new("share of the packets", values));
    Figure::chart("From the source to the release, without what players hold", chart)
}

impl Application for StreamScenario {
    type Metrics = StreamMetrics;
    const CAPTION: &'static str = "What viewers got";
    const INTRODUCTION: Option<&'static str> = None;

    fn seed(&self) -> u64 {
        self.seed
    }

    fn controller(&self) -> String {
        self.stream.controller.name.to_owned()
    }

    fn duration(&self) -> Duration {
        self.duration
    }

    fn to_toml(&self) -> String {
        AnyScenario::Stream(self.clone()).to_toml()
    }

    fn metrics(measured: &StreamMeasured) -> &StreamMetrics {
        &measured.metrics
    }

    fn each_second(measured: &StreamMeasured) -> Vec<(&'static str, Counts)> {
        vec![
            ("played_packets", counts(measured, |second| second.played)),
            ("skipped_packets", counts(measured, |second| second.skipped)),
        ]
    }

    fn figures(measured: &StreamMeasured) -> Vec<Figure> {
        let caption = "Packets that went to players and that players missed, all viewers together";
        let lines = [
            ("played", counts(measured, |second| second.played)),
            ("missed", counts(measured, |second| second.skipped)),
        ];
        vec![over_time(caption, "packets", "1/s", lines), delays(&measured.delays)]
    }
}
