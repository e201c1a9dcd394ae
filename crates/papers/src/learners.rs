//! Our own learners beside the thesis's controllers, each setting against what is possible in it.

use anabranch_control::path::registry::{self as path, Entry};
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::Rate;
use anabranch_lab::overlay::{Measured, Second};
use anabranch_report::{Axis, BarChart, BarSeries, Cell, Figure, Report, Series, Table, XyChart};
use anabranch_scenario::overlay::{LimitChange, LimitKind, Misbehaviour, Overlay, Scenario, Sender};
use anabranch_sim::delay::{DelayModel, JitterTail};
use anabranch_stats as stats;

use super::runs::{Estimate, OfRuns};
use super::{ExperimentError, Findings, Lab, Row};

/// Seeds of a full run and of a quick one.
const SEEDS: (u64, u64) = (10, 3);

/// The controllers of a run that asks for none: ours, and of the thesis's and of TCP's rules those
/// that receive most.
const SHOWN: [&str; 7] =
    ["explicit-rate", "timeouts", "tomography", "q-learning", "aimd-literal", "perfect", "flow:bbr3"];
const SHOWN_QUICKLY: [&str; 2] = ["explicit-rate", "timeouts"];

/// What loss alone teaches is there after so many simulated seconds.
const LONGEST_CLIMB_S: u64 = 600;

/// A mean round trip of the standard scenario over three relays, in seconds.
const ROUND_TRIP_S: f64 = 0.5;

/// One variation of the standard scenario.
struct Setting {
    name: &'static str,
    changes: &'static [fn(&mut Scenario)],
}

const fn setting(name: &'static str, changes: &'static [fn(&mut Scenario)]) -> Setting {
    Setting { name, changes }
}

const SETTINGS: &[Setting] = &[
    setting("20 peers, queue", &[]),
    setting("40 peers, queue", &[|s| peers(s, 40)]),
    setting("80 peers, queue", &[|s| peers(s, 80)]),
    setting("1 hop, queue", &[|s| s.overlay.relays = 1]),
    setting("2 hops, queue", &[|s| s.overlay.relays = 2]),
    setting("4 hops, queue", &[|s| s.overlay.relays = 4]),
    setting("20 peers, windows", &[windows]),
    setting("40 peers, windows", &[windows, |s| peers(s, 40)]),
    setting("80 peers, windows", &[windows, |s| peers(s, 80)]),
    setting("1 hop, windows", &[windows, |s| s.overlay.relays = 1]),
    setting("2 hops, windows", &[windows, |s| s.overlay.relays = 2]),
    setting("4 hops, windows", &[windows, |s| s.overlay.relays = 4]),
    setting("20 peers, buckets", &[buckets]),
    setting("20 peers, windows, no stamps", &[windows, no_stamps]),
    setting("200 ms", &[slow]),
    setting("1 % loss", &[lossy]),
    setting("200 ms and 1 % loss", &[slow, lossy]),
    setting("a fifth drops", &[droppers]),
    setting("heavy tails", &[heavy_tails]),
    setting("200 ms, 1 % loss and heavy tails", &[slow, lossy, heavy_tails]),
    setting("dropping, delaying and lying relays", &[misbehaving]),
];

fn peers(scenario: &mut Scenario, peers: usize) {
    scenario.overlay.peers = peers;
    scenario.overlay.known_peers = peers - 1;
}

fn windows(scenario: &mut Scenario) {
    scenario.overlay.limit_model = LimitKind::Window;
}

fn buckets(scenario: &mut Scenario) {
    scenario.overlay.limit_model = LimitKind::Bucket { depth: scenario.overlay.limit * Duration::SECOND };
}

/// What loss alone teaches takes long to settle.
fn no_stamps(scenario: &mut Scenario) {
    scenario.overlay.stamps = false;
    scenario.seconds = scenario.seconds.max(LONGEST_CLIMB_S);
}

/// A mean delay of 200 ms between two nodes: two points of a unit square are 0.52 apart.
fn slow(scenario: &mut Scenario) {
    let access = Duration::from_millis(5);
    scenario.overlay.delay = DelayModel::Plane { span: Duration::from_millis(365), access, stretch: 1.0 };
}

fn lossy(scenario: &mut Scenario) {
    scenario.overlay.loss = 0.01;
}

fn droppers(scenario: &mut Scenario) {
    let dropped = Misbehaviour { drop: 1.0, ..Misbehaviour::default() };
    scenario.overlay.misbehaving = vec![((0..scenario.overlay.peers as u32 / 5).collect(), dropped)];
}

/// A standard deviation of half the mean, with a Pareto's tail.
fn heavy_tails(scenario: &mut Scenario) {
    scenario.overlay.jitter = 0.5;
    scenario.overlay.jitter_tail = JitterTail::Pareto;
}

/// By how much delaying relays delay.
const DELAY: Duration = Duration::SECOND;

/// A fifth drops everything, a tenth delays everything by a second, a tenth stamps ten times what there is.
fn misbehaving(scenario: &mut Scenario) {
    let peers = scenario.overlay.peers as u32;
    let [drops, delays, lies] = [0..peers / 5, peers / 5..peers * 3 / 10, peers * 3 / 10..peers * 2 / 5];
    let behaved = Misbehaviour::default();
    scenario.overlay.misbehaving = vec![
        (drops.collect(), Misbehaviour { drop: 1.0, ..behaved }),
        (delays.collect(), Misbehaviour { delay: DELAY, ..behaved }),
        (lies.collect(), Misbehaviour { stamp_factor: 10.0, ..behaved }),
    ];
    scenario.overlay.watch = Some(peers - 1);
}

/// The payload that each peer can receive at most in bytes a second, if its peers are all alike, send
/// as much as they can, and no relay is idle.
///
/// Of the packets that a peer sends, the share q^i reaches the i-th node where a link keeps the share q;
/// relays that do what they should not are left out by all, and only receive.
fn possible(overlay: &Overlay) -> f64 {
    let (packet, ack) = (overlay.packet.get() as f64, overlay.ack.get() as f64);
    let kept = 1.0 - overlay.loss;
    let hops = overlay.relays as i32;
    let misbehaving: usize = overlay.misbehaving.iter().map(|(peers, _)| peers.len()).sum();
    let relaying = (overlay.peers - misbehaving) as f64 / overlay.peers as f64;
    // Bytes that one sent packet brings to relays, and to its destination.
    let relayed: f64 =
        (1..=hops).map(|hop| packet * kept.powi(hop) + ack * kept.powi(2 * hops + 2 - hop)).sum::<f64>() / relaying;
    let delivered = kept.powi(hops + 1);
    overlay.limit.bytes_per_sec() * packet * delivered / (relayed + packet * delivered)
}

/// Runs all settings.
pub fn run(lab: &Lab) -> Result<Findings, ExperimentError> {
    let shown: &[&str] = if lab.seconds(1, 0) == 1 { &SHOWN } else { &SHOWN_QUICKLY };
    let controllers = lab.controllers_or(shown)?;
    let seeds = lab.seconds(SEEDS.0, SEEDS.1);
    let mut rows = Vec::new();
    let mut table =
        Table::new("Share of what is possible", ["setting".to_owned()].into_iter().chain(names(&controllers)));
    let mut start = Vec::new();
    for setting in SETTINGS {
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
            let Estimate { mean, half_width } = share.estimate();
            cells.push(half_width.map_or(Cell::number(mean, 3), |half| Cell::interval(mean, half)));
        }
        table = table.row(cells);
        if setting.name == SETTINGS[0].name {
            rows.extend(measured.iter().flat_map(|runs| from_nothing(lab, setting.name, runs)));
            start = measured;
        }
    }
    let most = possible(&lab.scenario.overlay);
    let swapped = swapped(lab, &controllers, seeds, &mut rows)?;
    joined(lab, &controllers, seeds, &mut rows)?;
    one_relay(lab, &controllers, seeds, &mut rows)?;
    greedy(lab, &controllers, seeds, &mut rows)?;
    let report = Report::new("Our learners beside the thesis's")
        .section("Twenty peers, relays with a queue")
        .figures_side_by_side(vec![
            Figure::chart("What each receives.", bars(&controllers, &rows, most)),
            Figure::chart("From nothing, the first seed.", over_time(&start, 0..40, |_| 0)),
        ])
        .section("Limits exchanged at the middle")
        .figure(Figure::chart(
            "Ten peers at 400 000 B/s and ten at 200 000 change places at 0 s.",
            over_time(&swapped, -20..60, |seconds| seconds / 2),
        ))
        .section("Every setting")
        .table(table);
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

/// Which relays the watched sender takes for misbehaving ones after ten seconds: those that it has set
/// aside, and those that it finds to delay by more than half of what the delaying ones do.
fn named(lab: &Lab, setting: &str, scenario: &Scenario, runs: &[Measured]) -> Vec<Row> {
    const WITHIN_S: usize = 10;
    let misbehaves = |node: &u32| scenario.overlay.misbehaving.iter().any(|(peers, _)| peers.contains(node));
    // Of those that do, or do not, the share that is named.
    let share_named = |run: &Measured, wanted: bool| {
        let trace = run.rates.as_ref()?;
        let told = |name: &str, slot: usize| {
            let values = trace.told.get(name)?;
            trace.of_slot(values, slot).nth(WITHIN_S - 1)
        };
        let mut named = Vec::new();
        for (slot, _) in trace.known.iter().enumerate().filter(|(_, node)| misbehaves(node) == wanted) {
            let delays = f64::from(told("delay_ms", slot)?) > DELAY.as_millis_f64() / 2.0;
            named.push(f64::from(u8::from(delays || told("set_aside", slot)? > 0.0)));
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

/// Limits change places at the middle: how much of what is possible is received soon after.
fn swapped(
    lab: &Lab,
    controllers: &[&'static Entry],
    seeds: u64,
    rows: &mut Vec<Row>,
) -> Result<Vec<Vec<Measured>>, ExperimentError> {
    let exchange = |entry: &&'static Entry| {
        let mut scenario = varied(lab, entry, &[]);
        let (low, high) = (Rate::from_bytes_per_sec(200_000), Rate::from_bytes_per_sec(400_000));
        let change = |second: u64, peers: std::ops::Range<u32>, limit| LimitChange {
            at: Time::ZERO + Duration::SECOND * second,
            peers: peers.collect(),
            limit,
        };
        let middle = scenario.seconds / 2;
        scenario.overlay.limit_changes =
            vec![change(0, 10..20, low), change(middle, 0..10, low), change(middle, 10..20, high)];
        scenario
    };
    let scenarios: Vec<Scenario> = controllers.iter().map(exchange).collect();
    let measured = lab.run_seeds(&scenarios, seeds)?;
    // Destinations are drawn from all alike, so the mean limit says what is possible.
    let mut mean = lab.scenario.overlay.clone();
    mean.limit = Rate::from_bytes_per_sec(300_000);
    let most = possible(&mean);
    let twenty = (20.0 * ROUND_TRIP_S) as usize;
    for runs in &measured {
        let share = OfRuns::of(runs, |run| {
            let after: Vec<f64> = run.received_bytes_per_s().skip(run.seconds.len() / 2 + twenty).take(10).collect();
            Some(stats::mean(&after)? / most)
        });
        let metric = "share_after_20_round_trips[limits swapped]";
        rows.push(lab.mean_row(runs[0].controller, metric, "", share.values()));
    }
    Ok(measured)
}

/// Peers begin to send one after another: how equal their shares are once all do.
fn joined(lab: &Lab, controllers: &[&'static Entry], seeds: u64, rows: &mut Vec<Row>) -> Result<(), ExperimentError> {
    let joining = |entry: &&'static Entry| {
        let mut scenario = varied(lab, entry, &[]);
        scenario.overlay.join_every =
            Duration::from_millis(1000 * scenario.seconds / 3 / scenario.overlay.peers as u64);
        scenario
    };
    let scenarios: Vec<Scenario> = controllers.iter().map(joining).collect();
    for runs in &lab.run_seeds(&scenarios, seeds)? {
        let fairness = OfRuns::of(runs, Measured::fairness);
        rows.push(lab.mean_row(runs[0].controller, "fairness[joined one after another]", "", fairness.values()));
    }
    Ok(())
}

/// One of the relays begins to relay at the middle, or no longer does: how much of what is possible
/// then is received soon after.
fn one_relay(
    lab: &Lab,
    controllers: &[&'static Entry],
    seeds: u64,
    rows: &mut Vec<Row>,
) -> Result<(), ExperimentError> {
    for (name, joins) in [("a relay joins", true), ("a relay dies", false)] {
        let changing = |entry: &&'static Entry| {
            let mut scenario = varied(lab, entry, &[]);
            let middle = Time::ZERO + Duration::SECOND * (scenario.seconds / 2);
            let gone = Misbehaviour { drop: 1.0, ..Misbehaviour::default() };
            let gone =
                if joins { Misbehaviour { until: middle, ..gone } } else { Misbehaviour { from: middle, ..gone } };
            scenario.overlay.misbehaving = vec![(vec![0], gone)];
            scenario
        };
        let scenarios: Vec<Scenario> = controllers.iter().map(changing).collect();
        let mut after = lab.scenario.overlay.clone();
        if !joins {
            after.misbehaving = vec![(vec![0], Misbehaviour { drop: 1.0, ..Misbehaviour::default() })];
        }
        let most = possible(&after);
        let twenty = (20.0 * ROUND_TRIP_S) as usize;
        for runs in &lab.run_seeds(&scenarios, seeds)? {
            let share = OfRuns::of(runs, |run| {
                let after = run.received_bytes_per_s().skip(run.seconds.len() / 2 + twenty).take(10);
                Some(stats::mean(&after.collect::<Vec<_>>())? / most)
            });
            let metric = format!("share_after_20_round_trips[{name}]");
            rows.push(lab.mean_row(runs[0].controller, &metric, "", share.values()));
        }
    }
    Ok(())
}

/// Half of the senders offer twice their share whatever becomes of it, at relays with fair shares: what
/// the others have of theirs.
fn greedy(lab: &Lab, controllers: &[&'static Entry], seeds: u64, rows: &mut Vec<Row>) -> Result<(), ExperimentError> {
    let most = possible(&lab.scenario.overlay);
    let half = lab.scenario.overlay.peers / 2;
    let among_greedy = |entry: &&'static Entry| {
        let mut scenario = varied(lab, entry, &[]);
        let controller = path::find("random").expect("a registered controller");
        let offered = Some(Rate::from_bytes_per_sec_f64(2.0 * most));
        scenario.overlay.senders = vec![((0..half as u32).collect(), Sender { controller, offered })];
        scenario.overlay.fair_shares = true;
        scenario
    };
    // All senders have to be of the manager's.
    let controllers: Vec<&'static Entry> =
        controllers.iter().copied().filter(|entry| !matches!(entry.build, path::Build::Omniscient)).collect();
    let scenarios: Vec<Scenario> = controllers.iter().map(among_greedy).collect();
    for runs in &lab.run_seeds(&scenarios, seeds)? {
        let share = OfRuns::of(runs, |run| {
            let seconds = run.seconds.len() - run.seconds.len() / 2;
            let acked: Vec<f64> = run.acked_by_sender[half..].iter().map(|&acked| f64::from(acked)).collect();
            Some(stats::mean(&acked)? * run.packet.get() as f64 / seconds as f64 / most)
        });
        rows.push(lab.mean_row(runs[0].controller, "share_of_fair_share[half are greedy]", "", share.values()));
    }
    Ok(())
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

/// What was received in each second of `shown`, counted from the second that `origin` says of a run's
/// length; of the first seeds.
fn over_time(measured: &[Vec<Measured>], shown: std::ops::Range<isize>, origin: fn(usize) -> usize) -> XyChart {
    let mut chart = XyChart::new(Axis::new("time", "s"), Axis::new("received", "B/s per peer").from_zero());
    for (slot, run) in measured.iter().map(|runs| &runs[0]).enumerate() {
        let origin = origin(run.seconds.len()) as isize;
        let points = run.received_bytes_per_s().zip(-origin..).filter(|(_, second)| shown.contains(second));
        let points = points.map(|(received, second)| (second as f64 + 0.5, received)).collect();
        chart = chart.series(Series::line(run.controller, points).slot(slot));
    }
    chart
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_possible_is_the_limit_shared_by_all_that_a_packet_costs() {
        let mut overlay = Scenario::standard().overlay;
        // 400 000 B/s x 1500 / (4 x 1500 + 3 x 40)
        assert!((possible(&overlay) - 98_039.2).abs() < 0.1, "{}", possible(&overlay));
        overlay.loss = 0.01;
        let lossy = possible(&overlay);
        assert!(lossy < 98_039.2 && lossy > 0.96 * 98_039.2, "{lossy}: loss spares later relays");
        overlay.loss = 0.0;
        overlay.misbehaving = vec![((0..4).collect(), Misbehaviour { drop: 1.0, ..Misbehaviour::default() })];
        // Sixteen relays carry what twenty send: 400 000 x 1500 / ((3 x 1500 + 3 x 40) / 0.8 + 1500)
        assert!((possible(&overlay) - 82_474.2).abs() < 0.1, "{}", possible(&overlay));
    }

    #[test]
    fn every_setting_has_a_goal_or_is_left_to_be_seen() {
        for name in SHOWN {
            assert!(path::find(name).is_ok(), "{name}");
        }
        let mut names: Vec<&str> = SETTINGS.iter().map(|setting| setting.name).collect();
        names.dedup();
        assert_eq!(names.len(), SETTINGS.len());
    }
}
