//! The page of a demo: figures, the browser's picture, and how it went over time.

use anabranch_report::{Axis, Cell, Figure, Reference, Report, Series, Table, XyChart};

use super::figures::{Figures, Measured};
use super::viewer::Viewer;

/// What `measured` shows.
pub fn of(measured: &Measured<'_>, figures: &Figures) -> Report {
    let args = measured.args;
    let rows = figures.words().into_iter();
    let table = rows.fold(Table::new("What became of it", ["figure", "value"]), |table, (name, words)| {
        table.row([Cell::text(name), Cell::text(words)])
    });
    let mut report = Report::new("A live stream over its viewers")
        .meta("viewers", format!("{}, each a process, with uploads of 2 to 6 Mbit/s", figures.clients))
        .meta("stream", format!("{} Mbit/s", args.bitrate.bits_per_sec() as f64 / 1e6))
        .meta("server's upload", format!("{} Mbit/s", super::SERVER.bits_per_sec() as f64 / 1e6))
        .meta("version", env!("CARGO_PKG_VERSION"))
        .paragraph(format!(
            "Real processes over loopback. Figures of packets and delays are those of viewers that tell the truth and \
             were not killed. Packets count from {} s after the last viewer came: what was missed while all came does \
             not. The server's bytes are all its UDP datagrams, with 28 bytes of headers for each.",
            super::SETTLE.as_secs()
        ))
        .table(table);
    if let Some(picture) = measured.shown.and_then(|shown| shown.picture.clone()) {
        let caption = "The first viewer's page at the end, in a headless Chromium that played it all the time.";
        report = report.figure(Figure::picture(caption, "the page of a viewer, which plays a test picture", picture));
    }
    report.section("Over time").figures_side_by_side(vec![
        Figure::chart(
            "Packets that players of honest viewers missed, all together, each second.",
            lines(measured, Axis::new("missed", "packets/s").from_zero(), true),
        ),
        Figure::chart(
            "Packets that went to players of honest viewers, all together, each second.",
            lines(measured, Axis::new("played", "packets/s").from_zero(), false),
        ),
    ])
}

/// Packets of all viewers that count, in each second of the demo.
fn lines(measured: &Measured<'_>, axis: Axis, is_missed: bool) -> XyChart {
    let counts = |viewer: &&Viewer| viewer.counts();
    let mut seconds: Vec<u64> = Vec::new();
    for viewer in measured.viewers.iter().filter(counts) {
        let own = (viewer.began - measured.demo).as_secs_f64();
        let mut before = 0;
        for line in &viewer.said {
            let count = if is_missed { line.here.skipped_packets } else { line.here.played_packets };
            let second = (own + line.uptime_s) as usize;
            if seconds.len() <= second {
                seconds.resize(second + 1, 0);
            }
            seconds[second] += count.saturating_sub(before);
            before = count;
        }
    }
    let points = seconds.iter().enumerate().map(|(second, count)| (second as f64, *count as f64)).collect();
    let chart = XyChart::new(Axis::new("time", "s"), axis).series(Series::line("packets", points));
    match measured.killed_at {
        Some(killed) => chart.reference(Reference::vertical("some are killed", killed.as_secs_f64())),
        None => chart,
    }
}
