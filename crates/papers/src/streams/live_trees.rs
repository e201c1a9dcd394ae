//! [Raiber 2010] figure 7.11: the trees of ten slices, as the server has made them of a stream that runs.

use anabranch_lab::stream::{StreamMeasured, Trees};
use anabranch_proto::stream::packet::MAX_PACKET;
use anabranch_report::{Figure, Forest, Report, Tree};
use anabranch_scenario::stream::StreamScenario;

use super::super::runs::OfRuns;
use super::super::{ExperimentError, Findings, StreamLab};
use super::PACKET_ON_WIRE;

/// Seeds of a full run and of a quick one: each has latencies of its own.
const SEEDS: (u64, u64) = (10, 3);

/// The slices that the figure shows.
const SHOWN: std::ops::Range<usize> = 10..20;

/// How many of a node's children in all trees together are more than its line can carry, with the headers of
/// their packets.
fn over_limit(scenario: &StreamScenario, trees: &Trees) -> f64 {
    let slice = scenario.stream.bitrate.bytes_per_sec() * (PACKET_ON_WIRE / MAX_PACKET as f64)
        / f64::from(scenario.stream.slices);
    let over = |node: usize| {
        let upload = match node {
            0 => scenario.audience.server_upload,
            client => scenario.audience.upload.of(client as u64 - 1, scenario.seed),
        };
        trees.children(node) as f64 - (upload.bytes_per_sec() / slice).floor()
    };
    (0..=trees.clients()).map(over).fold(f64::NEG_INFINITY, f64::max).max(0.0)
}

/// Places in trees that clients do not have.
fn missing(scenario: &StreamScenario, run: &StreamMeasured) -> f64 {
    (scenario.audience.clients * usize::from(scenario.stream.slices) - run.trees.depths().len()) as f64
}

/// Runs the stream, and draws the trees.
pub fn run(lab: &StreamLab) -> Result<Findings, ExperimentError> {
    lab.no_other_controllers()?;
    let scenario = &lab.scenario;
    let runs = lab.run_seeds(std::slice::from_ref(scenario), lab.seconds(SEEDS.0, SEEDS.1))?.remove(0);
    let of = |value: &dyn Fn(&StreamMeasured) -> f64| OfRuns::of(&runs, |run| Some(value(run)));
    let mean_depth = |run: &StreamMeasured| {
        let depths = run.trees.depths();
        depths.iter().sum::<usize>() as f64 / depths.len() as f64
    };
    let deepest = |run: &StreamMeasured| run.trees.depths().into_iter().max().unwrap_or(0) as f64;
    let places_missing = of(&|run| missing(scenario, run));
    let over = of(&|run| over_limit(scenario, &run.trees));
    let delivered = of(&|run| run.metrics.delivered_percent);
    let rows = vec![
        lab.never_row("trees", "places_missing", "", places_missing.values()),
        lab.never_row("trees", "children_over_limit", "", over.values()),
        lab.mean_row("trees", "mean_depth", "hops", of(&mean_depth).values()),
        lab.mean_row("trees", "deepest", "hops", of(&deepest).values()),
        lab.mean_row("trees", "delivered_percent", "%", delivered.values()),
    ];
    let trees = SHOWN.map(|slice| Tree::new(format!("slice {slice}"), runs[0].trees.parents(slice)));
    let caption = "Ten of the twenty trees at the end of the first seed's run. S is the server.";
    let report = Report::new("Raiber 2010, figure 7.11").figure(Figure::chart(caption, Forest::new(trees.collect())));
    Ok(Findings { rows, report })
}
