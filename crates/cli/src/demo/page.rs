//! The demo's report: goodput against what is possible, and what was learned of each
//! relay against its true limit.

use std::path::{Path, PathBuf};

use anabranch_report::output;
use anabranch_report::{Axis, BarChart, BarSeries, Figure, Reference, Report, Series as Line, Table, XyChart};

use super::series::{Sample, Series};
use crate::failure::Failure;

/// More relays than this are not told apart by their lines.
const SHOWN: usize = 6;

/// What the page tells besides the series.
pub struct Page<'a> {
    /// Its title.
    pub title: String,
    /// Seed, controller, file: what the head of the page says.
    pub meta: Vec<(&'static str, String)>,
    /// Second by second.
    pub series: &'a Series,
    /// The highest goodput that the limits allow, in bytes a second, all senders together.
    pub ceiling: f64,
    /// Figures to tell in a table, if there are any.
    pub table: Option<Table>,
}

/// Writes `report.html` into `out`, with what there is to tell of a stream, and says where it is.
pub fn write(page: &Page, stream: Option<Report>, out: &Path) -> Result<PathBuf, Failure> {
    output::create_dir(out)?;
    let path = out.join("report.html");
    let report = match stream {
        Some(stream) => {
            let both = Report::new("A file over relays, and a live stream over its viewers");
            both.append("A live stream over its viewers", stream).append("A file over relays", report(page))
        }
        None => report(page),
    };
    report.write(&path)?;
    Ok(path)
}

fn report(page: &Page) -> Report {
    let Series { limits, samples, .. } = page.series;
    let over_time = |label: &str, unit: &str| XyChart::new(Axis::new("time", "s"), Axis::new(label, unit).from_zero());
    let line = |name: &str, of: &dyn Fn(&Sample) -> Option<f64>| {
        Line::line(name, samples.iter().filter_map(|sample| Some((sample.at_s, of(sample)?))).collect())
    };
    let goodput = over_time("goodput", "B/s")
        .series(line("goodput", &|sample| Some(sample.goodput_bytes_per_s)))
        .reference(Reference::horizontal("possible", page.ceiling));
    let losses = over_time("lost", "%")
        .series(line("lost", &|sample| Some(100.0 * sample.lost as f64 / sample.sent.max(1) as f64)));
    let rtt = over_time("round trip", "ms").series(line("smoothed round trip", &|sample| sample.rtt_ms));
    let mut report = page.meta.iter().fold(Report::new(&page.title), |report, (key, value)| report.meta(*key, value));
    report = report.meta("version", env!("CARGO_PKG_VERSION"));
    if let Some(table) = &page.table {
        report = report.table(table.clone());
    }
    report = report.section("Goodput").figure(Figure::chart("Payload that arrived, each second.", goodput));
    let learned: Vec<Option<f64>> = samples.last().map(|last| last.rates_bytes_per_s.clone()).unwrap_or_default();
    if learned.iter().any(Option::is_some) {
        let names = (0..limits.len()).map(|relay| relay.to_string()).collect();
        let limit = limits.iter().map(|limit| Some(limit.bytes_per_sec())).collect();
        let bars = BarChart::new("Relays", Axis::new("rate", "B/s").from_zero(), names)
            .series(BarSeries::new("limit", limit).hollow())
            .series(BarSeries::new("learned", learned));
        let step = limits.len().div_ceil(SHOWN).max(1);
        let rates = (0..limits.len()).step_by(step).fold(over_time("learned rate", "B/s"), |chart, relay| {
            chart.series(line(&format!("relay {relay}"), &|sample| *sample.rates_bytes_per_s.get(relay)?))
        });
        let shown = if step == 1 {
            "How it learned.".to_owned()
        } else {
            format!("How it learned: {} of {} relays.", limits.len().div_ceil(step), limits.len())
        };
        report = report
            .section("Relays")
            .figure(Figure::chart("What the sender had learned of each relay at the end.", bars))
            .figure(Figure::chart(shown, rates));
    }
    report.section("Losses and round trips").figures_side_by_side(vec![
        Figure::chart("Packets whose ACK did not come in time, of those sent in that second.", losses),
        Figure::chart("Round trip over all relays of a packet.", rtt),
    ])
}
