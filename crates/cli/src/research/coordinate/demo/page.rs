//! The demo's page.

use anabranch_control::time::Time;
use anabranch_control::units::Rate;
use anabranch_lab::flows::FlowScenario;
use anabranch_report::{Axis, Cell, Figure, Report, Series, Table, XyChart};
use anabranch_testbed::Emulated;
use anabranch_testbed::service::Believed;

use super::decisions::By;
use super::figures::{ByPolicy, HOSTS, Runs, of_hosts};

/// A run with a coordinator.
pub struct Steered<'a> {
    pub emulated: &'a Emulated,
    pub believed: &'a [Believed],
}

/// The page: the table, and all runs over time.
pub fn report(scenario: &FlowScenario, runs: &Runs, alone: &Emulated, steered: &[Steered<'_>]) -> Report {
    let mut rows = runs.rows().into_iter();
    let table = Table::new("All runs", rows.next().unwrap_or_default());
    let table = rows.fold(table, |table, row| table.row(row.iter().map(Cell::text)));
    let mut report = Report::new("Hosts on their own, and steered")
        .meta("controller", runs.controller.as_str())
        .meta("each run", format!("{} s", runs.seconds))
        .meta("seed", runs.seed.to_string())
        .meta("decided each", format!("{} ms", runs.every_s * 1e3))
        .meta("cross traffic expected by", runs.expected)
        .meta("version", env!("CARGO_PKG_VERSION"))
        .paragraph(
            "Three hosts send over one link of 20 Mbit/s with 200 ms of queue, beside cross traffic of 8 Mbit/s that is on \
             for 3 s and off for 3 s: alpha with one flow, beta with three, gamma with one that begins later. On their own, \
             each flow has its controller alone. Steered, a coordinator hears from an agent at each host and a monitor at \
             the link, and divides what cross traffic leaves evenly among hosts; what it says bounds the controllers.",
        );
    if let Some(by) = &runs.by_policy {
        report = report.paragraph(format!(
            "By {}, the same coordinator tells hosts what that policy makes of the same reports, as far as it knows all that \
             the policy sees.",
            by.policy
        ));
    }
    report = report.table(table);
    if let Some(by) = &runs.by_policy {
        report = who_decided(report, by);
    }
    report = report.section("Over time");
    let names = runs.names();
    let all = || [alone].into_iter().chain(steered.iter().map(|run| run.emulated)).zip(&names);
    let time = || Axis::new("time", "s");
    let points = |at: &[Time], values: &[f64]| -> Vec<(f64, f64)> {
        at.iter().zip(values).map(|(at, value)| (at.as_secs_f64(), *value)).collect()
    };
    let most = all().flat_map(|(run, _)| of_hosts(scenario, run)).flatten().fold(0.0, f64::max);
    let delivered = shared("delivered", "Mbit/s", most);
    let rates = all().map(|(run, name)| {
        let chart = HOSTS
            .iter()
            .zip(of_hosts(scenario, run))
            .fold(XyChart::new(time(), delivered.clone()), |chart, (host, rates)| {
                chart.series(Series::line(*host, points(&run.measured.series.at, &rates)))
            });
        Figure::chart(format!("What hosts deliver, {name}"), chart)
    });
    report = report.figures_side_by_side(rates.collect());
    let most = all().flat_map(|(run, _)| run.measured.series.backlog_ms[0].iter().copied()).fold(0.0, f64::max);
    let waited = shared("wait for the link", "ms", most);
    let waits = all().map(|(run, name)| {
        let series = &run.measured.series;
        let wait = Series::line("wait", points(&series.at, &series.backlog_ms[0]));
        let chart = XyChart::new(time(), waited.clone()).series(wait);
        Figure::chart(format!("The queue, {name}"), chart)
    });
    report = report.figures_side_by_side(waits.collect());
    let steered = || steered.iter().map(|run| run.believed).zip(&names[1..]);
    let all = || steered().flat_map(|(believed, _)| believed);
    let most = all().flat_map(|one| one.budgets.iter().flatten()).copied().map(megabits).fold(0.0, f64::max);
    let may_send = shared("may send", "Mbit/s", most);
    let budgets = steered().map(|(believed, name)| {
        let chart = HOSTS.iter().enumerate().fold(XyChart::new(time(), may_send.clone()), |chart, (host, of)| {
            let budget = |one: &Believed| one.budgets.get(host).copied().flatten().map(megabits);
            chart.series(Series::line(*of, course(believed, &budget)))
        });
        Figure::chart(format!("What hosts may send, {name}"), chart)
    });
    report = report.figures_side_by_side(budgets.collect());
    let most = all().map(|one| megabits(one.other.max(one.given))).fold(0.0, f64::max);
    let rate = shared("rate", "Mbit/s", most);
    let believes = steered().map(|(believed, name)| {
        let chart = XyChart::new(time(), rate.clone())
            .series(Series::line("others send", course(believed, &|one| Some(megabits(one.other)))))
            .series(Series::line("hosts may send", course(believed, &|one| Some(megabits(one.given)))));
        Figure::chart(format!("What the coordinator believes, {name}"), chart)
    });
    report.figures_side_by_side(believes.collect())
}

/// An axis for charts that are compared: from zero to the most that any of them shows.
fn shared(label: &str, unit: &str, most: f64) -> Axis {
    let axis = Axis::new(label, unit).from_zero();
    if most > 0.0 { axis.range(0.0, most * 1.05) } else { axis }
}

/// Which decisions were the policy's, and which the rule's, and why.
fn who_decided(report: Report, by: &ByPolicy) -> Report {
    let headers = ["from, s", "decisions", "decided by", "why the rule"].map(str::to_owned);
    let rows = by.decisions.spans().into_iter().map(|span| {
        let who = match span.decided_by {
            By::Policy => by.policy.as_str(),
            By::Rule => "the rule",
        };
        [
            Cell::number(span.from_s, 1),
            Cell::text(span.decisions.to_string()),
            Cell::text(who),
            Cell::text(span.rule_because.unwrap_or_default()),
        ]
    });
    let table = rows.fold(Table::new("Who decided", headers.to_vec()), |table, row| table.row(row));
    let report = report.section("Who decided").paragraph(format!("{}.", by.decisions.in_words(&by.policy)));
    let report = match &by.beyond {
        Some(beyond) => report.paragraph(format!("{beyond}.")),
        None => report,
    };
    report.table(table)
}

fn course(believed: &[Believed], pick: &dyn Fn(&Believed) -> Option<f64>) -> Vec<(f64, f64)> {
    believed.iter().map(|one| (one.at.as_secs_f64(), pick(one).unwrap_or(f64::NAN))).collect()
}

fn megabits(rate: Rate) -> f64 {
    rate.bits_per_sec() as f64 / 1e6
}
