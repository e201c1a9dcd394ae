//! Figures 10 to 21: the block window beside a TCP flow from the same sender to its first
//! receiver.

use std::ops::Range;

use anabranch_control::flow::registry;
use anabranch_sim::network::Capacity;

use super::super::{ExperimentError, Findings, FlowLab, Length, Row};
use super::run::Run;
use super::with_seeds;
use anabranch_lab::flows::{FlowScenario, FlowsMeasured};
use anabranch_report::{Cell, Report, Table};
use anabranch_scenario::flows::QueueSpec;
use anabranch_stats::mean;

/// Seeds of a full and of a quick run.
const SEEDS: (u64, u64) = (30, 5);

/// The same on real packets, where a run takes two minutes.
const SEEDS_ON_PACKETS: (u64, u64) = (5, 2);

/// What two flows need to come to terms, in seconds: not counted.
const SETTLE_S: f64 = 5.0;

/// The initial value is regained when so much of what is available is delivered...
const REGAINED: f64 = 0.95;

/// ...over this many rows: half a second.
const REGAINED_ROWS: usize = 5;

/// TCPs beside the paper's, where they are registered.
const OTHERS: [&str; 4] = ["reno", "bic", "cubic", "bbr"];

/// The same on real packets, in a full run: one that does not fill queues on purpose.
const OTHERS_ON_PACKETS: [&str; 1] = ["bbr"];

/// Of more than these a page has no charts of their own, but small ones and a table.
const MOST_IN_FULL: usize = 10;

/// What the paper leaves open: parameters, and packets in the buffer.
const VARIANTS: [(&str, &str, u64); 10] = [
    ("gamma_2 = 0", "gamma_2 = 0.0", 50),
    ("gamma_2 = 0.9 U", "gamma_2 = 0.9", 50),
    ("T = 50 ms", "period_ms = 50.0", 50),
    ("t_c = 200 ms", "rate_span_ms = 200.0", 50),
    ("t_c = 2 s", "rate_span_ms = 2000.0", 50),
    ("first queue 200 ms", "initial_queue_ms = 200.0", 50),
    ("d_ref to the letter", "reference = \"letter\"", 50),
    ("buffer of 30 packets", "", 30),
    ("buffer of 100 packets", "", 100),
    ("gamma_2 = 0 and buffer of 100 packets", "gamma_2 = 0.0", 100),
];

/// One of the four experiments.
struct Plan {
    title: &'static str,
    said: &'static str,
    /// The paper's TCP.
    tcp: &'static str,
}

/// Figures 10 to 12: TCP BIC joins at 40 s for 60 s.
pub fn bic_joins(lab: &FlowLab) -> Result<Findings, ExperimentError> {
    let said = "TCP BIC joins after 40 s and stays for 60 s. The paper: d_ref is calibrated once and then stays, the \
                block window does not starve, and regains all when TCP ends.";
    run(lab, &Plan { title: "Efthymiopoulos 2015, figures 10 to 12", said, tcp: "bic" })
}

/// Figures 13 to 15: TCP BIC is 30 s ahead and leaves after 60 s.
pub fn bic_first(lab: &FlowLab) -> Result<Findings, ExperimentError> {
    let said = "TCP BIC has been running for 30 s when the block window begins, and leaves 30 s later. The paper: half \
                of the rate, 2 Mbit/s, then all of it.";
    run(lab, &Plan { title: "Efthymiopoulos 2015, figures 13 to 15", said, tcp: "bic" })
}

/// Figures 16 to 18: TCP Reno from 15 to 75 s.
pub fn reno_joins(lab: &FlowLab) -> Result<Findings, ExperimentError> {
    let said = "TCP Reno runs from 15 to 75 s. The paper: the block window quickly converges at half of the rate, \
                2 Mbit/s.";
    run(lab, &Plan { title: "Efthymiopoulos 2015, figures 16 to 18", said, tcp: "reno" })
}

/// Figures 19 to 21: TCP Reno is 25 s ahead.
pub fn reno_first(lab: &FlowLab) -> Result<Findings, ExperimentError> {
    let said = "TCP Reno has been running for 25 s when the block window begins. The paper: the block window tends to \
                about 3 Mbit/s.";
    run(lab, &Plan { title: "Efthymiopoulos 2015, figures 19 to 21", said, tcp: "reno" })
}

/// The scenario's second flow is TCP, whose controller is chosen here.
fn beside(scenario: &FlowScenario, tcp: &'static registry::Entry) -> FlowScenario {
    let mut scenario = scenario.clone();
    scenario.flows[1].controller = tcp;
    scenario.flows[1].parameters = toml::Table::new();
    scenario
}

fn run(lab: &FlowLab, plan: &Plan) -> Result<Findings, ExperimentError> {
    let mut names = vec![plan.tcp];
    let others = lab.form((&OTHERS[..], &OTHERS[..]), (&OTHERS_ON_PACKETS[..], &[]));
    names.extend(others.iter().filter(|name| **name != plan.tcp && registry::find(name).is_ok()));
    let (full, quick) = if lab.medium.is_real_form() { SEEDS_ON_PACKETS } else { SEEDS };
    let seeds = with_seeds(lab, full, quick);
    let of = |tcp: &'static registry::Entry, change: &dyn Fn(&mut FlowScenario)| -> Vec<FlowScenario> {
        let with_tcp = |scenario: &FlowScenario| {
            let mut scenario = beside(scenario, tcp);
            change(&mut scenario);
            lab.as_carried(scenario)
        };
        seeds.iter().map(with_tcp).collect()
    };
    let mut rows = Vec::new();
    let mut report = Report::new(plan.title).paragraph(format!("{} The charts show the first seed.", plan.said));
    let beside_it = lab.controllers(&names)?;
    let many = beside_it.len() > MOST_IN_FULL;
    let (mut small, mut compared) = (Vec::new(), Vec::new());
    for tcp in beside_it {
        let scenarios = of(tcp, &|_| {});
        let measured = lab.run_all(&scenarios)?;
        let found = measured_rows(lab, tcp.name, &scenarios, &measured);
        compared.push((tcp.name, [0, 1].map(|flow| found[flow].ours.unwrap_or(f64::NAN))));
        rows.extend(found);
        let first = Run { scenario: &scenarios[0], measured: &measured[0] };
        if many {
            small.push(first.rate_figure());
            continue;
        }
        report = report
            .section(lab.name(tcp.name))
            .figure(first.queue_figure())
            .figures_side_by_side(vec![first.window_figure(), first.rate_figure()]);
    }
    if many {
        report = report.table(shares(compared)).figures_side_by_side(small);
    }
    if lab.length == Length::Full && !lab.medium.is_real_form() {
        let tcp = registry::find(plan.tcp)?;
        for (name, parameters, buffer) in VARIANTS {
            let parameters: toml::Table = parameters.parse().expect("the variants are TOML");
            let scenarios = of(tcp, &|scenario| {
                scenario.flows[0].parameters = parameters.clone();
                let upload = scenario.links.iter_mut().find(|link| link.name == "upload");
                upload.expect("the scenario has an upload").queue = QueueSpec::DropTail(Capacity::Packets(buffer));
            });
            rows.extend(share_rows(lab, &format!("{}, {name}", tcp.name), &scenarios, &lab.run_all(&scenarios)?));
        }
    }
    Ok(Findings { rows, report })
}

/// What either flow gets beside each controller, the most of the block window first.
fn shares(mut compared: Vec<(&str, [f64; 2])>) -> Table {
    compared.sort_by(|(_, one), (_, other)| other[0].total_cmp(&one[0]));
    let headers = ["beside", "block window (Mbit/s)", "the other (Mbit/s)"];
    let table = Table::new("Data delivered a second while both are there, means over the runs", headers);
    compared.into_iter().fold(table, |table, (name, shares)| {
        table.row([Cell::text(name)].into_iter().chain(shares.map(|share| Cell::number(share, 3))))
    })
}

/// From when to when both flows are there, in seconds, without the beginning.
fn together(scenario: &FlowScenario) -> (f64, f64) {
    let [blocks, tcp] = &scenario.flows[..] else { panic!("the scenario has the block window and TCP") };
    let end = tcp.stop.map_or(scenario.length.as_secs_f64(), |stop| stop.as_secs_f64());
    (blocks.start.max(tcp.start).as_secs_f64() + SETTLE_S, end.min(scenario.length.as_secs_f64()))
}

/// What either flow gets while both are there.
fn share_rows(lab: &FlowLab, subject: &str, scenarios: &[FlowScenario], measured: &[FlowsMeasured]) -> Vec<Row> {
    let runs = Run::all(scenarios, measured);
    let share = |flow: usize| -> Vec<f64> {
        let of = |run: &Run<'_>| {
            let (from, to) = together(run.scenario);
            mean(&run.goodput(flow)[run.rows(from, to)]).unwrap_or(f64::NAN)
        };
        runs.iter().map(of).collect()
    };
    vec![
        lab.mean_row(subject, "block_window_mbit_s", "Mbit/s", &share(0)),
        lab.mean_row(subject, "tcp_mbit_s", "Mbit/s", &share(1)),
    ]
}

fn measured_rows(lab: &FlowLab, subject: &str, scenarios: &[FlowScenario], measured: &[FlowsMeasured]) -> Vec<Row> {
    let runs = Run::all(scenarios, measured);
    let mut rows = share_rows(lab, subject, scenarios, measured);
    let each = |of: &dyn Fn(&Run<'_>) -> f64| -> Vec<f64> { runs.iter().map(of).collect() };
    let row = |metric: &str, unit: &str, of: &dyn Fn(&Run<'_>) -> f64| lab.mean_row(subject, metric, unit, &each(of));
    let joined = |run: &Run<'_>| run.scenario.flows[0].start.max(run.scenario.flows[1].start).as_secs_f64();
    let first = |run: &Run<'_>| run.reference_changes(run.rows(joined(run), joined(run) + 10.0));
    let later = |run: &Run<'_>| run.reference_changes(run.rows(joined(run) + 10.0, together(run.scenario).1));
    rows.push(row("reference_changes_in_first_10_s", "", &first));
    rows.push(lab.never_row(subject, "reference_changes_later", "", &each(&later)));
    rows.push(row("lost_packets", "", &|run| run.measured.flows[0].packets_lost as f64));
    let after = |run: &Run<'_>| -> Option<Range<usize>> {
        let end = run.scenario.flows[1].stop?.as_secs_f64();
        (end < run.scenario.length.as_secs_f64()).then(|| run.rows_from(end))
    };
    if after(&runs[0]).is_some() {
        let when = |run: &Run<'_>| after(run).and_then(|rows| regained(run, rows)).unwrap_or(f64::NAN);
        rows.push(row("regained_s", "s", &when));
        rows.push(row("utilisation_after", "", &|run| {
            let Some(rows) = after(run) else { return f64::NAN };
            let settled = rows.start + (rows.len() / 4)..rows.end;
            mean(&run.goodput(0)[settled.clone()]).unwrap_or(f64::NAN) / run.available(run.at(settled.start))
        }));
    }
    rows
}

/// Seconds from the first of `rows` until the block window delivers nearly all that is
/// available again.
fn regained(run: &Run<'_>, rows: Range<usize>) -> Option<f64> {
    let enough = REGAINED * run.available(run.at(rows.start));
    let begin = run.at(rows.start);
    let delivered = &run.goodput(0)[rows.clone()];
    let row = delivered.windows(REGAINED_ROWS).position(|window| mean(window).is_some_and(|mean| mean >= enough))?;
    Some(run.at(rows.start + row).since(begin).as_secs_f64())
}
