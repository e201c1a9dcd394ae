//! What is gained and what is given away: goodput against the chance of being linked in ten minutes, for
//! each way of using the overlay, and beside Tor's.

use std::sync::atomic::Ordering;

use anabranch_control::time::Duration;
use anabranch_report::{Axis, Chart, Series, XyChart};
use anabranch_scenario::onion::{Cover, Exit, Mode, OnionScenario};
use serde::Serialize;

use super::{Found, goodput};
use crate::onion::OnionRunError;
use crate::parallel::Progress;

/// Shares of the relays that adversaries run.
pub const SHARES: [f64; 4] = [0.01, 0.05, 0.1, 0.2];

/// How long they watch.
const TEN_MINUTES: Duration = Duration::from_millis(600_000);

/// Mean delay at each relay, where there is one.
const MIX_DELAY: Duration = Duration::from_millis(500);

/// One way of using the overlay, and what adversaries of each of [`SHARES`] find.
#[derive(Clone, Debug, Serialize)]
pub struct Way {
    /// What it is called.
    pub name: &'static str,
    /// What one download gets in the simulated overlay: [`goodput::measure`].
    pub goodput_bytes_per_s: f64,
    /// What they find.
    pub found: Vec<Found>,
}

type Change = fn(&mut OnionScenario);

/// All ways, and what each changes in a scenario.
const WAYS: [(&str, Change); 10] = [
    ("as written, no guards", |s| s.overlay.guards = 0),
    ("1 guard", |s| s.overlay.guards = 1),
    ("2 guards", |s| s.overlay.guards = 2),
    ("3 guards", |s| s.overlay.guards = 3),
    // What `anabranch onion proxy` does unless it is told otherwise.
    ("2 guards, one exit for a session", |s| {
        (s.overlay.guards, s.overlay.exit, s.overlay.placement) = (2, Exit::PerSession, "timeouts".into());
    }),
    ("2 guards at both ends, 3 + 3 hops", |s| {
        (s.overlay.guards, s.overlay.far_hops, s.overlay.far_guards) = (2, 3, 2);
    }),
    ("2 guards, delays of 0.5 s", |s| (s.overlay.guards, s.overlay.mix_delay) = (2, MIX_DELAY)),
    ("2 guards, constant rate", |s| (s.overlay.guards, s.overlay.cover) = (2, Cover::ConstantRate)),
    ("one circuit", |s| (s.overlay.guards, s.overlay.mode) = (1, Mode::Circuit)),
    ("two legs", |s| (s.overlay.guards, s.overlay.mode) = (2, Mode::TwoLegs)),
];

/// Runs every way of using `scenario`'s overlay for ten minutes, and a download in it; none if it was interrupted.
///
/// # Errors
///
/// When what places packets does not work.
pub fn run(scenario: &OnionScenario, progress: &Progress) -> Result<Option<Vec<Way>>, OnionRunError> {
    let simulated = WAYS.len() as u64 * scenario.repetitions * goodput::SECONDS;
    progress.total.fetch_add(simulated, Ordering::Relaxed);
    let way = |(name, change): &(&'static str, Change)| {
        let mut scenario = scenario.clone();
        scenario.duration = TEN_MINUTES;
        scenario.adversary.probes = 0;
        let standard = OnionScenario::standard().overlay;
        (scenario.overlay.mode, scenario.overlay.cover) = (standard.mode, standard.cover);
        scenario.overlay.exit = standard.exit;
        (scenario.overlay.far_hops, scenario.overlay.far_guards) = (0, 0);
        scenario.overlay.mix_delay = Duration::ZERO;
        change(&mut scenario);
        let Some(goodput) = goodput::measure(&scenario, progress)? else { return Ok(None) };
        let found = super::run(&scenario, &SHARES, progress);
        Ok(found.map(|found| Way { name, goodput_bytes_per_s: goodput.bytes_per_sec(), found }))
    };
    WAYS.iter().map(way).collect()
}

/// The chart: goodput to the right, the chance of being linked upwards, a way for each series, and in it
/// an adversary's share from point to point. What is less than one flow of all is drawn as half a flow.
pub fn chart(ways: &[Way]) -> Chart {
    let mut chart = XyChart::new(
        Axis::new("goodput of one download", "MB/s").log(),
        Axis::new("linked within ten minutes", "%").log(),
    );
    for way in ways {
        let point = |found: &Found| {
            let least = 0.5 / found.flows as f64;
            (way.goodput_bytes_per_s / 1e6, 100.0 * found.linked.max(least))
        };
        chart = chart.series(Series::line(way.name, way.found.iter().map(point).collect()).markers());
    }
    chart.into()
}
