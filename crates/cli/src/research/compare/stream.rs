//! A stream in the simulator and with real peers, side by side.

use anabranch_lab::finished::Metrics;
use anabranch_lab::stream::StreamMetrics;
use anabranch_proto::stream::traffic::Overhead;
use anabranch_scenario::stream::StreamScenario;
use serde_json::{Value, json};

use super::{Args, Repeats, mean, print_invalid, with_spread};
use crate::failure::Failure;
use crate::printer::{on_stdout, print_line};
use crate::research::emulate::stream::{OnRealPeers, extra, say_all, verdict};
use crate::research::progress;
use crate::research::run::timed_under;
use crate::table;

/// Figures agree that differ by no more than this part of the simulation's.
const AGREEMENT: f64 = 0.1;

/// Players miss as much that miss no more or less than this part of a per cent of their packets.
const MISSED_AGREEMENT: f64 = 0.1;

/// How two figures are held together.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Held {
    /// They are shown.
    Not,
    /// As a part of the simulation's.
    Relative,
    /// As points of per cent, of which this many may lie between.
    Points(f64),
}

/// A figure, and how it is held.
struct Metric {
    name: &'static str,
    label: &'static str,
    held: Held,
    of: fn(&StreamMetrics) -> f64,
}

const METRICS: [Metric; 15] = [
    Metric {
        name: "savings_percent",
        label: "saved at the server, %",
        held: Held::Relative,
        of: |metrics| metrics.savings_percent,
    },
    Metric {
        name: "server_bytes",
        label: "sent by the server, MB",
        held: Held::Relative,
        of: |metrics| metrics.server_bytes as f64 / 1e6,
    },
    Metric {
        name: "latency_p95_s",
        label: "delay, 95 %, s",
        held: Held::Relative,
        of: |metrics| metrics.latency_p95_s,
    },
    Metric {
        name: "release_p50_s",
        label: "source to release, 50 %, s",
        held: Held::Not,
        of: |metrics| metrics.release_p50_s,
    },
    Metric {
        name: "release_p95_s",
        label: "source to release, 95 %, s",
        held: Held::Not,
        of: |metrics| metrics.release_p95_s,
    },
    Metric {
        name: "delivered_percent",
        label: "delivered, %",
        held: Held::Points(MISSED_AGREEMENT),
        of: |metrics| metrics.delivered_percent,
    },
    Metric {
        name: "skipped_packets",
        label: "packets missed",
        held: Held::Not,
        of: |metrics| metrics.skipped_packets as f64,
    },
    Metric { name: "startup_p95_s", label: "start, 95 %, s", held: Held::Not, of: |metrics| metrics.startup_p95_s },
    Metric {
        name: "slices_back_p99_s",
        label: "slices back, 99 %, s",
        held: Held::Not,
        of: |metrics| metrics.slices_back_p99_s,
    },
    Metric { name: "overhead_percent", label: "overhead, %", held: Held::Not, of: |metrics| metrics.overhead_percent },
    Metric {
        name: "overhead_repeated_percent",
        label: "packets again, late or lost, %",
        held: Held::Not,
        of: |metrics| overhead(metrics, |overhead| overhead.repeated),
    },
    Metric {
        name: "overhead_manifests_percent",
        label: "manifests, %",
        held: Held::Not,
        of: |metrics| overhead(metrics, |overhead| overhead.manifests),
    },
    Metric {
        name: "overhead_trading_percent",
        label: "maps, questions and gossip, %",
        held: Held::Not,
        of: |metrics| overhead(metrics, |overhead| overhead.maps + overhead.wants + overhead.gossip),
    },
    Metric {
        name: "overhead_transport_percent",
        label: "ACKs, messages, handshakes, %",
        held: Held::Not,
        of: |metrics| overhead(metrics, |overhead| overhead.acks + overhead.messages + overhead.sessions),
    },
    Metric {
        name: "parent_changes",
        label: "changes of parents",
        held: Held::Not,
        of: |metrics| metrics.parent_changes as f64,
    },
];

/// A kind of overhead; not a number where kinds are not told apart.
fn overhead(metrics: &StreamMetrics, of: impl Fn(&Overhead) -> f64) -> f64 {
    metrics.overhead.as_ref().map_or(f64::NAN, of)
}

/// A figure of all repeats, both ways.
struct Line<'m> {
    metric: &'m Metric,
    simulated: Vec<f64>,
    real: Vec<f64>,
}

impl Line<'_> {
    /// Whether the means lie too far from each other.
    fn disagrees(&self) -> bool {
        let (simulated, real) = (mean(&self.simulated), mean(&self.real));
        let difference = (real - simulated).abs();
        let most = match self.metric.held {
            Held::Not => return false,
            Held::Relative => AGREEMENT * simulated.abs(),
            Held::Points(points) => points,
        };
        // Not a number agrees with nothing.
        let agrees = difference <= most;
        !agrees
    }

    fn difference(&self) -> String {
        let (simulated, real) = (mean(&self.simulated), mean(&self.real));
        match self.metric.held {
            Held::Points(_) => format!("{:+.3} points", real - simulated),
            _ if simulated > 0.0 => format!("{:+.1} %", 100.0 * (real / simulated - 1.0)),
            _ => format!("{:+.3}", real - simulated),
        }
    }

    fn to_row(&self) -> Vec<String> {
        let verdict = match (self.metric.held, self.disagrees()) {
            (Held::Not, _) => "",
            (_, false) => "agrees",
            (_, true) => "DIFFERS",
        };
        vec![
            self.metric.label.to_owned(),
            with_spread(&self.simulated),
            with_spread(&self.real),
            self.difference(),
            verdict.to_owned(),
        ]
    }

    fn to_json(&self) -> Value {
        json!({
            "metric": self.metric.name,
            "simulated": self.simulated,
            "real": self.real,
            "is_held": self.metric.held != Held::Not,
            "agrees": !self.disagrees(),
        })
    }
}

/// Runs both until their ends or Ctrl-C.
pub fn run(args: &Args, scenario: &StreamScenario) -> Result<(), Failure> {
    let name = args.what.name();
    let new = |metric| Line { metric, simulated: Vec::new(), real: Vec::new() };
    let mut lines: Vec<Line<'_>> = METRICS.iter().map(new).collect();
    let (mut warnings, mut runs) = (Vec::new(), Vec::new());
    let progress = progress::until_interrupted()?;
    let repeats = Repeats::make(args.repeat, |repeat| {
        let scenario = StreamScenario { seed: scenario.seed + repeat, ..scenario.clone() };
        let (simulated, _) = timed_under(&progress, &scenario, &format!("{name}, simulated"))?;
        if progress.is_interrupted() {
            return Ok(false);
        }
        let (real, _) = timed_under(&progress, &OnRealPeers::new(&scenario)?, &format!("{name}, real"))?;
        if real.measured.metrics.simulated < scenario.duration {
            return Ok(false);
        }
        say_all(&real);
        for line in &mut lines {
            line.simulated.push((line.metric.of)(&simulated.metrics));
            line.real.push((line.metric.of)(&real.measured.metrics));
        }
        warnings.extend(real.warnings());
        runs.push(json!({
            "seed": scenario.seed,
            "simulated": simulated.metrics.to_map(),
            "real": real.measured.metrics.to_map(),
            "on_packets": extra(&real),
        }));
        Ok(true)
    })?;
    let apart: Vec<&str> = lines.iter().filter(|line| line.disagrees()).map(|line| line.metric.label).collect();
    if args.what.json {
        let lines: Vec<_> = lines.iter().map(Line::to_json).collect();
        let object = json!({
            "repeats": repeats.whole,
            "interrupted": repeats.is_interrupted(),
            "agrees": apart.is_empty(),
            "warnings": warnings,
            "lines": lines,
            "runs": runs,
        });
        print_line!("{object}")?;
    } else {
        let headers = ["", "simulated", "real", "difference", ""].map(str::to_owned).to_vec();
        let rows: Vec<Vec<String>> = [headers].into_iter().chain(lines.iter().map(Line::to_row)).collect();
        on_stdout(|stdout| {
            table::print(&rows, 1..4, stdout)?;
            print_invalid(&warnings, stdout)
        })?;
    }
    repeats.end()?;
    verdict(&warnings)?;
    match apart[..] {
        [] => Ok(()),
        _ => Err(Failure::new(format!(
            "the simulation and real peers differ in: {}; expected at most {:.0} % between them, and {MISSED_AGREEMENT} \
             points of what is delivered",
            apart.join("; "),
            100.0 * AGREEMENT
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(held: Held, simulated: f64, real: f64) -> Line<'static> {
        let metric = Metric { name: "", label: "", held, of: |_| 0.0 };
        Line { metric: Box::leak(Box::new(metric)), simulated: vec![simulated], real: vec![real] }
    }

    #[test]
    fn figures_agree_within_a_tenth_and_nothing_agrees_with_what_was_not_measured() {
        assert!(!line(Held::Relative, 100.0, 109.0).disagrees() && line(Held::Relative, 100.0, 111.0).disagrees());
        assert!(!line(Held::Points(0.1), 99.95, 100.0).disagrees() && line(Held::Points(0.1), 99.8, 100.0).disagrees());
        assert!(line(Held::Relative, 1.0, f64::NAN).disagrees() && line(Held::Points(0.1), f64::NAN, 1.0).disagrees());
        assert!(!line(Held::Not, 1.0, 100.0).disagrees());
    }
}
