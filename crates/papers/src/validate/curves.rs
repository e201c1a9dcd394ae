//! Window curves: what each controller does alone on the dumbbell, to be looked at and to
//! be held against what it did before.

use anabranch_control::flow::registry::{CONTROLLERS, Entry};
use anabranch_control::time::Duration;
use anabranch_control::units::Rate;

use super::{ValidationError, run_all};
use anabranch_lab::parallel::Progress;
use anabranch_report::{Axis, Figure, Report, Series, XyChart};
use anabranch_scenario::flows::FlowScenario;
use anabranch_scenario::flows::dumbbell::Bulk;

/// Simulated time, and the span between two points: about a round trip without a queue.
const SECONDS: u64 = 60;
const EVERY: Duration = Duration::from_millis(62);

/// One controller's window over time.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// The registered name of the controller that ran.
    pub controller: String,
    /// Seconds, and the window in packets.
    pub points: Vec<(f64, f64)>,
}

fn scenario(controller: &'static Entry) -> FlowScenario {
    let bulk = Bulk {
        flows: 1,
        controller,
        parameters: toml::Table::new(),
        rate: Rate::from_bits_per_sec(5_000_000),
        loss: 0.0,
        length: Duration::SECOND * SECONDS,
        seed: 1,
    };
    FlowScenario { sample_every: Some(EVERY), ..bulk.scenario() }
}

/// Every controller that needs no parameter, alone on the dumbbell of 5 Mbit/s.
///
/// # Errors
///
/// When one misbehaves, or at an interruption.
pub fn curves(progress: &Progress) -> Result<Vec<Curve>, ValidationError> {
    let controllers = CONTROLLERS.iter().filter(|entry| entry.needs().is_none());
    let scenarios: Vec<FlowScenario> = controllers.map(scenario).collect();
    let runs = run_all(&scenarios, progress)?;
    let curve = |(scenario, run): (&FlowScenario, anabranch_lab::flows::FlowsMeasured)| {
        let packet = scenario.packets.data.get() as f64;
        let windows = run.series.flows[0].window.iter().map(|window| window / packet);
        let points = run.series.at.iter().map(|at| at.as_secs_f64()).zip(windows).collect();
        Curve { controller: run.flows[0].controller.to_string(), points }
    };
    Ok(scenarios.iter().zip(runs).map(curve).collect())
}

/// A page with a chart for each curve.
pub fn page(curves: &[Curve]) -> Report {
    let figures = curves.iter().map(|curve| {
        let chart = XyChart::new(Axis::new("time", "s"), Axis::new("window", "packets").from_zero())
            .series(Series::line(&*curve.controller, curve.points.clone()));
        Figure::chart(&*curve.controller, chart)
    });
    let figures: Vec<Figure> = figures.collect();
    let title = Report::new("Window curves").paragraph(
        "Each controller alone over 5 Mbit/s with a round trip of 62 ms, which 26 packets fill, and a queue of 60 ms, \
         which is 24 packets more; a point each round trip without a queue.",
    );
    figures.chunks(2).fold(title, |report, pair| report.figures_side_by_side(pair.to_vec()))
}
