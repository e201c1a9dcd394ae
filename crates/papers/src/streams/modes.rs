//! The two systems alone and both together, over how much more peers can send than they watch.
//!
//! Nothing delivers the whole stream with less than the demand: at `c` times the demand, `c < 1`, no more than a
//! share `c` arrives. Of `n` viewers, `1 - 1/n` is the most that a server can save, which sends each packet once.

use anabranch_proto::stream::message::Mode;
use anabranch_report::{Axis, Figure, Reference, Report, Series, XyChart};

use super::super::runs::OfRuns;
use super::super::{ExperimentError, Findings, StreamLab};
use super::{DELIVERED, Metric, OVERHEAD, SAVINGS, name_of, set_capacity};

/// Seeds of a full run and of a quick one.
const SEEDS: (u64, u64) = (10, 2);

/// What all can send together, over the demand.
const CAPACITIES: [f64; 7] = [1.05, 1.1, 1.15, 1.25, 1.5, 1.75, 2.0];
const QUICK_CAPACITIES: [f64; 2] = [1.25, 2.0];

/// Viewers of a quick run.
const QUICK_CLIENTS: usize = 20;

const MODES: [Mode; 3] = [Mode::Trees, Mode::Mesh, Mode::Hybrid];

/// Runs each mode at each capacity.
pub fn run(lab: &StreamLab) -> Result<Findings, ExperimentError> {
    lab.no_other_controllers()?;
    let seeds = lab.seconds(SEEDS.0, SEEDS.1);
    let capacities = lab.choose(&CAPACITIES, &QUICK_CAPACITIES);
    let mut scenarios = Vec::new();
    for mode in MODES {
        for &capacity in capacities {
            let mut scenario = lab.shortened(QUICK_CLIENTS);
            scenario.stream.mode = mode;
            set_capacity(&mut scenario, capacity);
            scenarios.push(scenario);
        }
    }
    let measured = lab.run_seeds(&scenarios, seeds)?;
    let of = |mode: usize, capacity: usize, metric: &Metric| {
        OfRuns::of(&measured[mode * capacities.len() + capacity], |run| Some(metric.2(run)))
    };
    let mut rows = Vec::new();
    for (m, mode) in MODES.iter().enumerate() {
        for (c, capacity) in capacities.iter().enumerate() {
            for metric in [DELIVERED, SAVINGS, OVERHEAD] {
                let name = format!("{}[{capacity} times]", metric.0);
                rows.push(lab.mean_row(name_of(*mode), &name, metric.1, of(m, c, &metric).values()));
            }
        }
    }
    let chart = |metric: Metric, label: &str, bound: Option<(&str, f64)>| {
        let mut chart = XyChart::new(Axis::new("capacity over demand", ""), Axis::new(label, metric.1));
        for (m, mode) in MODES.iter().enumerate() {
            let points = capacities.iter().enumerate().map(|(c, &capacity)| {
                let estimate = of(m, c, &metric).estimate();
                (capacity, estimate.mean, estimate.half_width.unwrap_or(f64::NAN))
            });
            chart = chart.series(Series::intervals(name_of(*mode), points.collect()).slot(m));
        }
        match bound {
            Some((name, value)) => chart.reference(Reference::horizontal(name, value)),
            None => chart,
        }
    };
    let clients = scenarios[0].audience.clients as f64;
    let most_saved = 100.0 * (1.0 - 1.0 / clients);
    let report = Report::new("Trees, mesh, and both").figures_side_by_side(vec![
        Figure::chart("Packets that were there in time.", chart(DELIVERED, "delivered", Some(("all", 100.0)))),
        Figure::chart(
            "Bytes that the server did not have to send.",
            chart(SAVINGS, "saved", Some(("each packet sent once", most_saved))),
        ),
        Figure::chart("Bytes beside the stream's.", chart(OVERHEAD, "overhead", None)),
    ]);
    Ok(Findings { rows, report })
}
