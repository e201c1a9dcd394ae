//! Our own learners beside the thesis's controllers, each setting against what is possible in it.

mod changes;
mod settings;
mod sockets;

use anabranch_control::path::registry::Entry;
use anabranch_lab::overlay::{Measured, Second};
use anabranch_report::{Axis, BarChart, BarSeries, Cell, Figure, Reference, Report, Series, Table, XyChart};
use anabranch_scenario::overlay::Scenario;
use anabranch_stats as stats;

use super::runs::{Estimate, OfRuns};
use super::{ExperimentError, Findings, Lab, Row};
use changes::{GREEDY, JOINED, ONE_RELAY, SWAPPED, greedy, joined, one_relay, swapped};
use settings::{LONGEST_CLIMB_S, SETTINGS, possible, possible_of_all_who_carry};

/// Seeds of a full run and of a quick one.
const SEEDS: (u64, u64) = (10, 3);

/// The controllers of a run that asks for none: ours, and of the thesis's and of TCP's rules those
/// that receive most.
const SHOWN: [&str; 7] =
    ["explicit-rate", "timeouts", "tomography", "q-learning", "aimd-literal", "perfect", "flow:bbr3"];
const SHOWN_QUICKLY: [&str; 2] = ["explicit-rate", "timeouts"];

/// Settings that are looked at from their first second on.
const FROM_NOTHING: [&str; 2] = ["20 peers, queue", "20 peers, windows"];

/// What charts over time show.
const HOW_SOON: &str = "Means over the seeds and peers, in each second. Relays have a queue of 100 ms, or windows of a \
                        second as in the thesis. Where limits are swapped, ten peers at 400 000 B/s and ten at 200 000 \
                        change places.";

/// What a run without sockets leaves out.
const WITHOUT_SOCKETS: &str = "Without --sockets, files over real sockets are left out: they take real time.";

/// A mean round trip of the standard scenario over three relays, in seconds.
const ROUND_TRIP_S: f64 = 0.5;

/// Every setting's name, those on sockets last.
pub fn settings() -> Vec<&'static str> {
    let varied = SETTINGS.iter().chain(&SWAPPED).map(|setting| setting.name);
    let changing = [JOINED].into_iter().chain(ONE_RELAY.map(|(name, _)| name)).chain([GREEDY]);
    varied.chain(changing).chain(sockets::COURSES.iter().map(|(name, _)| *name)).collect()
}

/// Whether it is on sockets.
pub fn is_on_sockets(setting: &str) -> bool {
    sockets::COURSES.iter().any(|(name, _)| *name == setting)
}

/// Runs the settings that are wanted.
pub fn run(lab: &Lab) -> Result<Findings, ExperimentError> {
    let shown: &[&str] = if lab.seconds(1, 0) == 1 { &SHOWN } else { &SHOWN_QUICKLY };
    let controllers = lab.controllers_or(shown)?;
    let seeds = lab.seconds(SEEDS.0, SEEDS.1);
    let mut rows = Vec::new();
    let mut table =
        Table::new("Share of what is possible", ["setting".to_owned()].into_iter().chain(names(&controllers)));
    let mut over_time = Vec::new();
    for setting in SETTINGS.iter().filter(|setting| lab.wants(setting.name)) {
        let scenarios: Vec<Scenario> = controllers.iter().map(|entry| varied(lab, entry, setting.changes)).collect();
        let measured = lab.run_seeds(&scenarios, seeds)?;
        let mut cells = vec![Cell::text(setting.name)];
        for (scenario, runs) in scenarios.iter().zip(&measured) {
            let most = possible(&scenario.overlay);
            let share = OfRuns::of(runs, |run| Some(stats::mean(&second_half(run))? / most));
            let name = |metric: &str| format!("{metric}[{}]", setting.name);
            rows.push(lab.mean_row(runs[0].controller, &name("share_of_possible"), "", share.values()));
            let drops = OfRuns::of(runs, |run| Some(drop_percent(&run.seconds[run.seconds.len() / 2..])));
            rows.push(lab.mean_row(runs[0].controller, &name("drop_percent"), "%", drops.values()));
            if !scenario.overlay.misbehaving.is_empty() && scenario.overlay.watch.is_some() {
                rows.extend(named(lab, setting.name, scenario, runs));
            }
            let carried = possible_of_all_who_carry(&scenario.overlay);
            if carried > most {
                let share = OfRuns::of(runs, |run| Some(stats::mean(&second_half(run))? / carried));
                rows.push(lab.mean_row(runs[0].controller, &name("share_of_all_who_carry"), "", share.values()));
            }
            let Estimate { mean, half_width } = share.estimate();
            cells.push(half_width.map_or(Cell::number(mean, 3), |half| Cell::interval(mean, half)));
        }
        table = table.row(cells);
        if setting.name == FROM_NOTHING[0] {
            rows.extend(measured.iter().flat_map(|runs| from_nothing(lab, setting.name, runs)));
        }
        if FROM_NOTHING.contains(&setting.name) {
            let chart = from_the_start(&measured, possible(&scenarios[0].overlay));
            over_time.push(Figure::chart(format!("{}, from nothing.", setting.name), chart));
        }
    }
    for setting in SWAPPED.iter().filter(|setting| lab.wants(setting.name)) {
        let (measured, most) = swapped(lab, setting, &controllers, seeds, &mut rows)?;
        let chart = around_the_middle(&measured, most);
        over_time.push(Figure::chart(format!("20 peers, {}.", setting.name), chart));
    }
    if lab.wants(JOINED) {
        joined(lab, &controllers, seeds, &mut rows)?;
    }
    one_relay(lab, &controllers, seeds, &mut rows)?;
    if lab.wants(GREEDY) {
        greedy(lab, &controllers, seeds, &mut rows)?;
    }
    let mut report = Report::new("Our learners beside the thesis's");
    if !over_time.is_empty() {
        report = report.section("How soon").paragraph(HOW_SOON).figures_side_by_side(over_time);
    }
    if !table.is_empty() {
        report = report.section("Every setting");
        if lab.wants(SETTINGS[0].name) {
            let most = possible(&lab.scenario.overlay);
            let caption = format!("{}: what each receives.", SETTINGS[0].name);
            report = report.figure(Figure::chart(caption, bars(&controllers, &rows, most)));
        }
        report = report.table(table);
    }
    match &lab.loopback {
        Some(loopback) => sockets::run(lab, &**loopback, &mut rows)?,
        None => report = report.paragraph(WITHOUT_SOCKETS),
    }
    Ok(Findings { rows, report })
}

fn names(controllers: &[&'static Entry]) -> impl Iterator<Item = String> {
    controllers.iter().map(|entry| entry.name.to_owned())
}

/// The experiment's scenario with `entry`, varied by `changes`.
fn varied(lab: &Lab, entry: &'static Entry, changes: &[fn(&mut Scenario)]) -> Scenario {
    let mut scenario = lab.with_controller(entry);
    scenario.seconds = match entry.name {
        // Those that climb by loss alone are at their mean only then.
        "timeouts" | "tomography" => lab.seconds(LONGEST_CLIMB_S, 120),
        "q-learning" | "aimd-literal" => lab.seconds(4_000, 120),
        _ => lab.seconds(240, 60),
    };
    changes.iter().for_each(|change| change(&mut scenario));
    if !scenario.overlay.stamps {
        // So do those that read stamps, where there are none.
        scenario.seconds = scenario.seconds.max(lab.seconds(LONGEST_CLIMB_S, 60));
    }
    scenario
}

fn second_half(run: &Measured) -> Vec<f64> {
    run.received_bytes_per_s().skip(run.seconds.len() / 2).collect()
}

/// Refused packets and ACKs in per cent of all that nodes received.
fn drop_percent(seconds: &[Second]) -> f64 {
    let sum = |count: fn(&Second) -> u32| seconds.iter().map(|second| u64::from(count(second))).sum::<u64>() as f64;
    100.0 * (sum(|s| s.refused) + sum(|s| s.refused_acks)) / sum(|s| s.packet_hops).max(1.0)
}

/// How soon the rate is there, and what is lost meanwhile.
fn from_nothing(lab: &Lab, setting: &str, runs: &[Measured]) -> Vec<Row> {
    let ten = (10.0 * ROUND_TRIP_S) as usize;
    let share = OfRuns::of(runs, |run| {
        let received: Vec<f64> = run.received_bytes_per_s().collect();
        Some(stats::mean(&received[ten..ten + 2])? / stats::mean(&second_half(run))?)
    });
    let lost = OfRuns::of(runs, |run| Some(drop_percent(&run.seconds[..ten])));
    let name = runs[0].controller;
    vec![
        lab.mean_row(name, &format!("share_after_10_round_trips[{setting}]"), "", share.values()),
        lab.mean_row(name, &format!("lost_in_10_round_trips_percent[{setting}]"), "%", lost.values()),
    ]
}

/// Which relays the watched sender says after ten seconds to misbehave.
fn named(lab: &Lab, setting: &str, scenario: &Scenario, runs: &[Measured]) -> Vec<Row> {
    const WITHIN_S: usize = 10;
    let misbehaves = |node: &u32| scenario.overlay.misbehaving.iter().any(|(peers, _)| peers.contains(node));
    // Of those that do, or do not, the share that is named.
    let share_named = |run: &Measured, wanted: bool| {
        let trace = run.rates.as_ref()?;
        let traced = |name: &str, slot: usize| {
            let values = trace.traced.get(name)?;
            trace.of_slot(values, slot).nth(WITHIN_S - 1)
        };
        let mut named = Vec::new();
        for (slot, _) in trace.known.iter().enumerate().filter(|(_, node)| misbehaves(node) == wanted) {
            named.push(f64::from(traced("misbehaves", slot)?));
        }
        stats::mean(&named)
    };
    let row = |metric: &str, wanted| {
        let shares = OfRuns::of(runs, |run| share_named(run, wanted));
        lab.mean_row(runs[0].controller, &format!("{metric}[{setting}]"), "", shares.values())
    };
    // A controller that tells of no relay names none.
    match share_named(&runs[0], true) {
        Some(_) => vec![row("named_after_10_s", true), row("misnamed_after_10_s", false)],
        None => Vec::new(),
    }
}

fn bars(controllers: &[&'static Entry], rows: &[Row], most: f64) -> BarChart {
    let metric = format!("share_of_possible[{}]", SETTINGS[0].name);
    let row = |name: &str| rows.iter().find(|row| row.subject == name && row.metric == metric);
    let shares = controllers.iter().map(|entry| Some(row(entry.name)?.ours? * most)).collect();
    let reach =
        controllers.iter().map(|entry| row(entry.name).and_then(|row| row.ci95).unwrap_or(0.0) * most).collect();
    BarChart::new("received", Axis::new("received", "B/s per peer").from_zero(), names(controllers).collect())
        .series(BarSeries::new("ours", shares).intervals(reach))
}

/// The first seconds of runs, on a scale on which those that climb in seconds and those that take minutes
/// have both room.
fn from_the_start(measured: &[Vec<Measured>], most: f64) -> XyChart {
    const SHOWN_S: std::ops::Range<isize> = 0..240;
    let chart = XyChart::new(Axis::new("time since all began", "s").log(), share_axis());
    shares_over_time(chart, measured, SHOWN_S, |_| 0, most)
}

/// The seconds about the middle of runs.
fn around_the_middle(measured: &[Vec<Measured>], most: f64) -> XyChart {
    const SHOWN_S: std::ops::Range<isize> = -10..50;
    let chart = XyChart::new(Axis::new("time since limits changed places", "s"), share_axis());
    shares_over_time(chart, measured, SHOWN_S, |seconds| seconds / 2, most)
}

fn share_axis() -> Axis {
    Axis::new("received, of the physical limit", "%").from_zero()
}

/// What was received in each second of `shown`, counted from the second that `origin` says of a run's
/// length: the mean over the seeds, in per cent of `most`.
fn shares_over_time(
    mut chart: XyChart,
    measured: &[Vec<Measured>],
    shown: std::ops::Range<isize>,
    origin: fn(usize) -> usize,
    most: f64,
) -> XyChart {
    for (slot, runs) in measured.iter().enumerate() {
        let seconds = runs[0].seconds.len();
        let received: Vec<Vec<f64>> = runs.iter().map(|run| run.received_bytes_per_s().collect()).collect();
        let points = (0..seconds).filter_map(|second| {
            let since = second as isize - origin(seconds) as isize;
            let mean = received.iter().map(|of_run| of_run[second]).sum::<f64>() / runs.len() as f64;
            shown.contains(&since).then_some((since as f64 + 0.5, 100.0 * mean / most))
        });
        chart = chart.series(Series::line(runs[0].controller, points.collect()).slot(slot));
    }
    chart.reference(Reference::horizontal("physical limit", 100.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_settings_have_one_name() {
        let mut names = settings();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn the_controllers_that_are_shown_are_registered() {
        for name in SHOWN {
            assert!(anabranch_control::path::registry::find(name).is_ok(), "{name}");
        }
    }
}
