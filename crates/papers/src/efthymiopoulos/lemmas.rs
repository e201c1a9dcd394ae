//! The lemmas of section 4 over real packets: random distances, blocks and service. Their
//! proofs' own model is tested beside the controller.

use anabranch_control::flow::registry::Entry;
use anabranch_control::rng::Rng;
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::Rate;
use anabranch_sim::varying::{Change, Course};

use super::super::{ExperimentError, Findings, FlowLab, Row};
use super::run::Run;
use super::{highest_row, value, written_out};
use anabranch_lab::flows::{FlowScenario, FlowsMeasured};
use anabranch_report::{Axis, Cell, Figure, Report, Series, Table, XyChart};
use anabranch_scenario::flows::Workload;
use anabranch_stats::mean;

/// Cases of a full and of a quick run.
const CASES: (u64, u64) = (200, 20);

/// The beginning, in which `U` is not known yet, in seconds: the queue may be empty.
const BEGINNING_S: f64 = 5.0;

/// Between two rows: the controller's period, so that a row tells of one period.
const PERIOD: Duration = Duration::from_millis(10);

/// The service, Mbit/s on the wire, and how often it changes when it does.
const SERVICE_MBIT_S: (f64, f64) = (1.0, 20.0);
const SERVICE_PERIOD: Duration = Duration::from_millis(1000);

/// A receiver is so far behind the router, ms.
const DISTANCE_MS: (f64, f64) = (2.0, 40.0);

/// Packets in a block.
const BLOCK_PACKETS: (f64, f64) = (1.0, 40.0);

/// What is drawn.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    /// Distances, blocks and a rate.
    Steady,
    /// The same, but each block is one packet.
    SinglePackets,
    /// The same as steady, with another rate each second.
    Varying,
}

/// Case `seed`.
fn case(lab: &FlowLab, seed: u64, kind: Kind) -> FlowScenario {
    let mut scenario = lab.with_seed(seed);
    let mut rng = Rng::stream(seed, "case");
    let mut between = |(low, high): (f64, f64)| low + (high - low) * rng.uniform();
    let receivers = between((1.0, scenario.flows[0].receivers.len() as f64 + 1.0)) as usize;
    scenario.flows[0].receivers.truncate(receivers);
    for way in scenario.flows[0].receivers.clone() {
        let delay = Course::constant(Duration::from_secs_f64(between(DISTANCE_MS) / 1e3));
        let last = |path: &[usize], first: bool| if first { path[0] } else { path[path.len() - 1] };
        scenario.links[last(&way.there, false)].delay = delay.clone();
        scenario.links[last(&way.back, true)].delay = delay;
    }
    let packets = between(BLOCK_PACKETS) as u64;
    let block = if kind == Kind::SinglePackets { 1 } else { packets };
    scenario.flows[0].workload = Workload::Blocks(scenario.packets.data * block);
    let mbit = |mbit_s: f64| Rate::from_bits_per_sec((mbit_s * 1e6) as u64);
    let rate = Course::constant(mbit(between(SERVICE_MBIT_S)));
    let (low, high) = (mbit(SERVICE_MBIT_S.0), rate.first);
    let upload = scenario.links.iter_mut().find(|link| link.name == "upload").expect("the scenario has an upload");
    upload.rate = Some(match kind {
        Kind::Varying => Course { first: high, change: Change::Uniform { every: SERVICE_PERIOD, low, high } },
        _ => rate,
    });
    written_out(&scenario)
}

/// Bytes that wait at the upload when a packet would wait for `backlog` from `at` on.
fn waiting(rate: &Course<Rate>, at: Time, backlog: Duration) -> f64 {
    let end = at + backlog;
    let mut changes: Vec<Time> = match &rate.change {
        Change::At(changes) => changes.iter().map(|(when, _)| *when).filter(|when| (at..end).contains(when)).collect(),
        _ => Vec::new(),
    };
    changes.push(end);
    let mut from = at;
    let mut bytes = 0.0;
    for to in changes {
        bytes += value(rate, from).bytes_per_sec() * to.since(from).as_secs_f64();
        from = to;
    }
    bytes
}

/// Data in the queue over the window, the most of a run. Lemma 1 is about one window; where
/// it falls below what is on its way already, that is the bound until it has drained.
fn queue_over_window(run: &Run<'_>) -> f64 {
    let rate = run.scenario.links[run.upload()].rate.as_ref().expect("the upload has a rate");
    let window = run.window();
    let in_flight = &run.measured.series.flows[0].in_flight;
    let (mut bound, mut most) = (0.0f64, 0.0f64);
    for row in run.rows_from(0.0) {
        let before = if row > 0 { in_flight[row - 1] } else { 0.0 };
        bound = window[row].max(bound.min(before));
        let backlog = Duration::from_secs_f64(run.measured.series.backlog_ms[run.upload()][row] / 1e3);
        most = most.max(waiting(rate, run.at(row), backlog) * run.data_share() / bound);
    }
    most
}

fn is_empty(run: &Run<'_>, row: usize) -> bool {
    run.measured.series.backlog_ms[run.upload()][row] == 0.0
}

/// Whether the window satisfies eq. 10 at `row` even for the farthest receiver, since what
/// the shares of eq. 6 are is not traced: `w > u_max / T (max_p d_p + T) + 2`. The two
/// packets are what the model, which knows no packets, does not see: `u(kT)` is rounded down
/// to whole ones, and one in transmission has left the queue but is not acknowledged.
fn is_wide_enough(run: &Run<'_>, row: usize) -> bool {
    let rate = run.scenario.links[run.upload()].rate.as_ref().expect("the upload has a rate");
    let most = match &rate.change {
        Change::At(changes) => changes.iter().map(|(_, rate)| *rate).fold(rate.first, Rate::max),
        _ => rate.first,
    };
    let farthest = (0..run.receivers()).map(|receiver| run.path_rtt(receiver, run.at(row))).fold(0.0, f64::max);
    let span = farthest + PERIOD.as_millis_f64();
    let packet = run.scenario.packets.data.get() as f64;
    run.window()[row] > most.bytes_per_sec() * run.data_share() * span / 1e3 + 2.0 * packet
}

/// Whether eq. 10 held for the period in which `row` lies. Lemma 2 speaks of the queue at the
/// end of a period at whose beginning it held; a row at the instant of a tick shows the old
/// window or the new one, so that both rows must satisfy it.
fn held_eq_10(run: &Run<'_>, row: usize) -> bool {
    (row - 1..=row).all(|row| is_wide_enough(run, row))
}

/// What the lemmas mean for controllers that they were not written for.
const OTHERS: &str = "Other controllers in the same cases. The lemmas are about the block window, whose window counts \
    what is on its way to all receivers; of the others, those that are led by a rate have a window above what \
    they send, and none divides its blocks as eq. 10 supposes.";

/// The scenario under another controller.
fn under(scenario: &FlowScenario, entry: &'static Entry) -> FlowScenario {
    let mut scenario = scenario.clone();
    scenario.flows[0].controller = entry;
    scenario.flows[0].parameters = toml::Table::new();
    scenario
}

/// A line for each controller: in each kind of cases, the most that waited over the window
/// and how much of the time nothing did.
fn table(compared: &[(&str, Vec<Row>)]) -> Table {
    let kinds = ["steady", "single packets", "varying"];
    let headers = kinds.iter().flat_map(|kind| [format!("{kind}: queue over window, the most"), "empty".to_owned()]);
    let table = Table::new("Other controllers", ["controller".to_owned()].into_iter().chain(headers));
    compared.iter().fold(table, |table, (name, found)| {
        let of = |metric: &str| found.iter().filter(move |row| row.metric == metric).collect::<Vec<_>>();
        let cells = of("queue_over_window_max")
            .into_iter()
            .zip(of("empty_queue_share"))
            .flat_map(|(most, empty)| [most, empty].map(|row| Cell::number(row.ours.unwrap_or(f64::NAN), 3)));
        table.row([Cell::text(*name)].into_iter().chain(cells.collect::<Vec<Cell>>()))
    })
}

/// The experiment.
pub fn run(lab: &FlowLab) -> Result<Findings, ExperimentError> {
    let others = lab.others(&["block-window"])?;
    let mut compared: Vec<(&str, Vec<Row>)> = Vec::new();
    compared.extend(others.iter().map(|entry| (entry.name, Vec::new())));
    let seeds = lab.scenario.seed..lab.scenario.seed + lab.seconds(CASES.0, CASES.1);
    let mut rows = Vec::new();
    let mut chart = XyChart::new(Axis::new("case", ""), Axis::new("queue over window, the most", "").from_zero());
    for (subject, kind) in
        [("steady", Kind::Steady), ("single-packets", Kind::SinglePackets), ("varying", Kind::Varying)]
    {
        let scenarios: Vec<FlowScenario> = seeds.clone().map(|seed| case(lab, seed, kind)).collect();
        let measured: Vec<FlowsMeasured> = lab.run_all(&scenarios)?;
        let runs = Run::all(&scenarios, &measured);
        let ratios: Vec<f64> = runs.iter().map(queue_over_window).collect();
        let points = ratios.iter().enumerate().map(|(i, ratio)| (i as f64 + 1.0, *ratio)).collect();
        chart = chart.series(Series::points(subject, points));
        rows.push(highest_row(lab, subject, "queue_over_window_max", "", &ratios));
        rows.extend(empty_rows(lab, subject, &runs));
        for (entry, (name, found)) in others.iter().zip(&mut compared) {
            let scenarios: Vec<FlowScenario> = scenarios.iter().map(|scenario| under(scenario, entry)).collect();
            let measured = lab.run_all(&scenarios)?;
            let runs = Run::all(&scenarios, &measured);
            let ratios: Vec<f64> = runs.iter().map(queue_over_window).collect();
            let subject = format!("{name}, {subject}");
            found.push(highest_row(lab, &subject, "queue_over_window_max", "", &ratios));
            found.extend(empty_rows(lab, &subject, &runs));
        }
    }
    let report = Report::new("Efthymiopoulos 2015, lemmas 1 and 2")
        .paragraph(
            "Up to five receivers 2 to 40 ms behind the router, blocks of 1 to 39 packets or single ones, 1 to 20 \
             Mbit/s, the rate steady or drawn anew each second. Lemma 1: the queue never exceeds w. Lemma 2: it is never empty while w \
             satisfies eq. 10.",
        )
        .figure(Figure::chart("The most that waited in each case.", chart));
    let report = if compared.is_empty() { report } else { report.paragraph(OTHERS).table(table(&compared)) };
    rows.extend(compared.into_iter().flat_map(|(_, found)| found));
    Ok(Findings { rows, report })
}

/// How much of the time the queue is empty, at all and while eq. 10 holds.
fn empty_rows(lab: &FlowLab, subject: &str, runs: &[Run<'_>]) -> Vec<Row> {
    let share = |of: &dyn Fn(&Run<'_>, usize) -> Option<bool>| -> Vec<f64> {
        let of_run = |run: &Run<'_>| {
            let held: Vec<f64> = run.rows_from(BEGINNING_S).filter_map(|row| of(run, row)).map(f64::from).collect();
            mean(&held)
        };
        runs.iter().filter_map(of_run).collect()
    };
    let satisfied = share(&|run, row| Some(is_wide_enough(run, row)));
    let always = satisfied.iter().all(|share| *share == 1.0);
    let empty = lab.never_row(subject, "empty_queue_share", "", &share(&|run, row| Some(is_empty(run, row))));
    vec![
        // The lemma says nothing of a run in which eq. 10 fails at times.
        if always { empty } else { empty.outside("w does not satisfy eq. 10 all the time") },
        lab.mean_row(subject, "eq_10_share", "", &satisfied),
        lab.never_row(
            subject,
            "empty_queue_share_within_eq_10",
            "",
            &share(&|run, row| held_eq_10(run, row).then(|| is_empty(run, row))),
        ),
    ]
}
