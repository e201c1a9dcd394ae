//! The demo's page.

use anabranch_control::time::Time;
use anabranch_lab::flows::FlowScenario;
use anabranch_report::{Axis, Cell, Figure, Report, Series, Table, XyChart};
use anabranch_testbed::Emulated;
use anabranch_testbed::service::Believed;

use super::figures::{Both, HOSTS, of_hosts};

/// The page: the table, and both runs over time.
pub fn report(scenario: &FlowScenario, both: &Both, runs: [&Emulated; 2], believed: &[Believed]) -> Report {
    let mut rows = both.rows().into_iter();
    let table = Table::new("Both runs", rows.next().unwrap_or_default());
    let table = rows.fold(table, |table, row| table.row(row.iter().map(Cell::text)));
    let mut report = Report::new("Hosts on their own, and steered")
        .meta("controller", both.controller.as_str())
        .meta("each run", format!("{} s", both.seconds))
        .meta("version", env!("CARGO_PKG_VERSION"))
        .paragraph(
            "Three hosts send over one link of 20 Mbit/s with 200 ms of queue, beside cross traffic of 8 Mbit/s that is on \
             for 3 s and off for 3 s: alpha with one flow, beta with three, gamma with one that begins later. Left each \
             flow has its controller alone. Right a coordinator hears from an agent at each host and a monitor at the \
             link, and divides what cross traffic leaves evenly among hosts; what it says bounds the controllers.",
        )
        .table(table)
        .section("Over time");
    let names = ["on their own", "steered"];
    let time = || Axis::new("time", "s");
    let points = |at: &[Time], values: &[f64]| -> Vec<(f64, f64)> {
        at.iter().zip(values).map(|(at, value)| (at.as_secs_f64(), *value)).collect()
    };
    let rates = runs.iter().zip(names).map(|(run, name)| {
        let chart = HOSTS
            .iter()
            .zip(of_hosts(scenario, run))
            .fold(XyChart::new(time(), Axis::new("delivered", "Mbit/s")), |chart, (host, rates)| {
                chart.series(Series::line(*host, points(&run.measured.series.at, &rates)))
            });
        Figure::chart(format!("What hosts deliver, {name}"), chart)
    });
    report = report.figures_side_by_side(rates.collect());
    let waits = runs.iter().zip(names).map(|(run, name)| {
        let series = &run.measured.series;
        let wait = Series::line("wait", points(&series.at, &series.backlog_ms[0]));
        let chart = XyChart::new(time(), Axis::new("wait for the link", "ms")).series(wait);
        Figure::chart(format!("The queue, {name}"), chart)
    });
    report = report.figures_side_by_side(waits.collect());
    let of = |pick: &dyn Fn(&Believed) -> Option<f64>| -> Vec<(f64, f64)> {
        believed.iter().map(|one| (one.at.as_secs_f64(), pick(one).unwrap_or(f64::NAN))).collect()
    };
    let megabits = |rate: anabranch_control::units::Rate| rate.bits_per_sec() as f64 / 1e6;
    let budgets =
        HOSTS.iter().enumerate().fold(XyChart::new(time(), Axis::new("may send", "Mbit/s")), |chart, (host, name)| {
            chart.series(Series::line(*name, of(&|one| one.budgets.get(host).copied().flatten().map(megabits))))
        });
    let believes = XyChart::new(time(), Axis::new("rate", "Mbit/s"))
        .series(Series::line("others send", of(&|one| Some(megabits(one.other)))))
        .series(Series::line("hosts may send", of(&|one| Some(megabits(one.given)))));
    report.figures_side_by_side(vec![
        Figure::chart("What hosts may send, steered", budgets),
        Figure::chart("What the coordinator believes, steered", believes),
    ])
}
