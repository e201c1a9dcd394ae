//! One parameter of the standard scenario varied for several controllers: what
//! figures 7.4, 7.5, 7.6, 7.8 and table 7.6 of [Raiber 2010] have in common.

use anabranch_control::path::registry::Entry;
use anabranch_control::time::Duration;
use anabranch_control::units::Rate;
use anabranch_sim::delay::DelayModel;

use crate::runs::{Estimate, OfRuns};
use crate::{ExperimentError, Lab, Row};
use anabranch_lab::overlay::summary::Summary;
use anabranch_report::{Axis, Series, XyChart};
use anabranch_scenario::overlay::Scenario;

/// A parameter and the values that it takes.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    /// In a row's metric, as in `received_bytes_per_s[peers=40]`.
    pub name: &'static str,
    /// On an axis.
    pub label: &'static str,
    /// Its unit on an axis.
    pub unit: &'static str,
    /// The values of a full run.
    pub full: &'static [f64],
    /// The values of a quick one.
    pub quick: &'static [f64],
    /// Sets it.
    pub set: fn(&mut Scenario, f64),
}

/// Figure 7.4.
pub const PEERS: Parameter = Parameter {
    name: "peers",
    label: "peers",
    unit: "",
    full: &[10.0, 20.0, 30.0, 40.0, 60.0, 80.0, 100.0],
    quick: &[10.0, 20.0, 60.0],
    set: |scenario, peers| {
        scenario.overlay.peers = peers as usize;
        scenario.overlay.known_peers = peers as usize - 1;
    },
};

/// Figure 7.5.
pub const HOPS: Parameter = Parameter {
    name: "hops",
    label: "relays for each packet",
    unit: "",
    full: &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
    quick: &[1.0, 3.0, 5.0],
    set: |scenario, hops| scenario.overlay.relays = hops as usize,
};

/// Figure 7.6: a constant delay, with the jitter of the scenario.
pub const DELAY: Parameter = Parameter {
    name: "delay_ms",
    label: "delay between peers",
    unit: "ms",
    full: &[10.0, 25.0, 50.0, 75.0, 100.0, 150.0, 200.0],
    quick: &[10.0, 50.0, 200.0],
    set: |scenario, delay_ms| scenario.overlay.delay = DelayModel::Constant(Duration::from_secs_f64(delay_ms / 1e3)),
};

/// Figure 7.8.
pub const BANDWIDTH: Parameter = Parameter {
    name: "limit",
    label: "rate available at each peer",
    unit: "B/s",
    full: &[100e3, 200e3, 400e3, 600e3, 800e3, 1200e3],
    quick: &[100e3, 400e3, 1200e3],
    set: |scenario, limit| scenario.overlay.limit = Rate::from_bytes_per_sec_f64(limit),
};

/// One controller at one value.
#[derive(Clone, Debug)]
pub struct Point {
    /// The value of the parameter.
    pub value: f64,
    /// What the runs say, one a seed.
    pub runs: Vec<Summary>,
}

impl Point {
    /// A value of each run.
    fn of(&self, of: fn(&Summary) -> Option<f64>) -> OfRuns {
        OfRuns::of(&self.runs, of)
    }
}

/// The points of each controller.
#[derive(Clone, Debug)]
pub struct Curves {
    parameter: Parameter,
    /// In the order of the controllers, each in the order of the values.
    pub curves: Vec<(&'static str, Vec<Point>)>,
}

/// Runs every controller at every value with `seeds` seeds; `seconds` tells how long.
pub fn vary(
    lab: &Lab,
    parameter: Parameter,
    controllers: &[&'static Entry],
    seeds: u64,
    seconds: impl Fn(&Entry, f64) -> u64,
) -> Result<Curves, ExperimentError> {
    let values = lab.choose(parameter.full, parameter.quick);
    let mut scenarios = Vec::new();
    for entry in controllers {
        for &value in values {
            let mut scenario = lab.with_controller(entry);
            (parameter.set)(&mut scenario, value);
            scenario.seconds = seconds(entry, value);
            scenarios.push(scenario);
        }
    }
    let summaries: Vec<Vec<Summary>> =
        lab.run_seeds(&scenarios, seeds)?.iter().map(|runs| runs.iter().map(Summary::of).collect()).collect();
    let curves = controllers
        .iter()
        .zip(summaries.chunks(values.len()))
        .map(|(entry, chunk)| {
            let points = values.iter().zip(chunk);
            (entry.name, points.map(|(&value, runs)| Point { value, runs: runs.clone() }).collect())
        })
        .collect();
    Ok(Curves { parameter, curves })
}

impl Curves {
    /// A row for each point: what was received, judged if there is an expectation.
    pub fn received_rows(&self, lab: &Lab) -> Vec<Row> {
        self.points()
            .map(|(name, point)| {
                let metric = self.metric("received_bytes_per_s", point.value);
                lab.mean_row(name, &metric, "B/s", point.of(received).values())
            })
            .collect()
    }

    /// A row for each point: what was refused.
    pub fn drop_rows(&self, lab: &Lab) -> Vec<Row> {
        self.points()
            .map(|(name, point)| {
                let metric = self.metric("drops_per_s", point.value);
                lab.mean_row(name, &metric, "1/s", point.of(drops).values())
            })
            .collect()
    }

    /// What the paper's sentence compares: `of` at the highest value over that at the lowest,
    /// seed by seed.
    pub fn growth(&self, controller: &str, of: fn(&Summary) -> Option<f64>) -> OfRuns {
        let points = self.of_controller(controller);
        match points {
            [first, .., last] => last.of(of).over(&first.of(of)),
            _ => OfRuns::default(),
        }
    }

    /// `received` of one controller over that of another at `value`, seed by seed.
    pub fn ratio(&self, controller: &str, other: &str, value: f64) -> OfRuns {
        let at = |name: &str| {
            let point = self.of_controller(name).iter().find(|point| point.value == value);
            point.map_or_else(OfRuns::default, |point| point.of(received))
        };
        at(controller).over(&at(other))
    }

    fn of_controller(&self, controller: &str) -> &[Point] {
        self.curves.iter().find(|(name, _)| *name == controller).map_or(&[], |(_, points)| points)
    }

    /// The values that were run.
    pub fn values(&self) -> Vec<f64> {
        self.curves.first().map(|(_, points)| points.iter().map(|point| point.value).collect()).unwrap_or_default()
    }

    /// What was received, with intervals, over the parameter.
    pub fn received_chart(&self) -> XyChart {
        let mut chart = self.chart("received", "B/s per peer");
        for (slot, (name, points)) in self.curves.iter().enumerate() {
            let points = points.iter().filter_map(|point| {
                let Estimate { mean, half_width } = point.of(received).estimate();
                mean.is_finite().then(|| (point.value, mean, half_width.unwrap_or(0.0)))
            });
            chart = chart.series(Series::intervals(*name, points.collect()).markers().slot(slot));
        }
        chart
    }

    /// What was refused over the parameter.
    pub fn drops_chart(&self) -> XyChart {
        let mut chart = self.chart("drops", "1/s");
        for (slot, (name, points)) in self.curves.iter().enumerate() {
            let points = points.iter().filter_map(|point| {
                let Estimate { mean, half_width } = point.of(drops).estimate();
                mean.is_finite().then(|| (point.value, mean, half_width.unwrap_or(0.0)))
            });
            chart = chart.series(Series::intervals(*name, points.collect()).markers().slot(slot));
        }
        chart
    }

    fn chart(&self, label: &str, unit: &str) -> XyChart {
        let x = Axis::new(self.parameter.label, self.parameter.unit).from_zero();
        XyChart::new(x, Axis::new(label, unit).from_zero())
    }

    fn points(&self) -> impl Iterator<Item = (&'static str, &Point)> {
        self.curves.iter().flat_map(|(name, points)| points.iter().map(move |point| (*name, point)))
    }

    /// A metric's name at one value.
    pub fn metric(&self, metric: &str, value: f64) -> String {
        format!("{metric}[{}={value}]", self.parameter.name)
    }
}

/// The mean received, in bytes a second a peer.
pub fn received(summary: &Summary) -> Option<f64> {
    summary.steady.received_bytes_per_s
}

/// What was refused, each second.
pub fn drops(summary: &Summary) -> Option<f64> {
    summary.steady.drops_per_s
}
