//! The report of a demo: what was measured, traffic and entropy over time, and what each relay knows.

use std::collections::BTreeMap;

use anabranch_report::{Axis, BarChart, BarSeries, Cell, Figure, Report, Series, Table, XyChart};
use anabranch_stats::Entropy;

use super::super::observe::Hop;
use super::Measured;
use super::pages::Pages;
use super::seen::{Names, Role, Seen};
use super::site::PARTS;
use super::tor::Tor;

/// Of what was `measured`, and of what relays have `seen`.
pub fn of(measured: &Measured, seen: &[Seen], names: &Names) -> Report {
    let n = measured.relays;
    let report = Report::new("An onion overlay on one machine")
        .meta("relays", format!("{n}, of which {} are exits, each a process", measured.exits))
        .meta("authorities", measured.authorities.to_string())
        .meta("version", env!("CARGO_PKG_VERSION"))
        .paragraph(format!(
            "An overlay does not hide its user from whoever runs relays that it uses at both ends, nor from anybody who \
             sees its line and its destination's. If somebody ran c of these {n} relays, this user, with two guards, \
             entered by one of theirs with probability 1 \u{2212} (1 \u{2212} c/{n})\u{b2}: {:.0} % for one of them, {:.0} \
             % for three. Here all run on one machine, which sees everything; and there is one user, so that who sent \
             what is no question: 0 bits. What stands below is of relays.",
            100.0 * exposed(1, n),
            100.0 * exposed(3, n),
        ))
        .table(table(measured));
    let report = match &measured.tor {
        Some(tor) => beside(report, measured, tor),
        None => report,
    };
    let report = report
        .section("Over time")
        .figures_side_by_side(vec![
            Figure::chart("Packets in each second, by what relays wrote down.", traffic(seen)),
            Figure::chart(
                "What the exit did not know of the relay before it, by the shares with which packets came from each in \
                 that second: H = \u{2212}\u{3a3} p log\u{2082} p (Serjantov and Danezis 2002).",
                entropy(seen),
            ),
        ])
        .section("Who knew what")
        .table(overview(seen))
        .section("What one relay knows")
        .paragraph(
            "Choose one: from whom to whom packets went through it, and how many. These are its own notes, which no relay \
             of a network that people use may take; nothing else of it is known to it but when packets came, and that up \
             to 64 of them were one sender's.",
        );
    seen.iter().enumerate().fold(report, |report, (number, seen)| {
        report.folded_table(format!("relay {number}, {}", seen.role().words()), pairs(seen, names))
    })
}

/// 1 − (1 − c/n)².
fn exposed(c: u32, n: u8) -> f64 {
    let honest = 1.0 - f64::from(c) / f64::from(n);
    1.0 - honest * honest
}

fn pairs(seen: &Seen, names: &Names) -> Table {
    let mut pairs: Vec<_> = seen.pairs().into_iter().collect();
    pairs.sort_by_key(|(_, packets)| std::cmp::Reverse(*packets));
    let table = Table::new("Packets by neighbours", ["from", "to", "packets"]);
    pairs.into_iter().fold(table, |table, ((from, to), packets)| {
        table.row([Cell::text(names.of(from)), Cell::text(names.of(to)), Cell::number(packets as f64, 0)])
    })
}

fn table(measured: &Measured) -> Table {
    let rows = [
        ("the list of relays was signed after", format!("{:.1} s", measured.first_list_s)),
        ("the first page came after", format!("{:.2} s", measured.pages.first_page_s)),
        ("others of 50 KiB after", format!("{:.2} s", measured.pages.small_page_s)),
        (
            "a large file",
            format!(
                "{} MB in {:.2} s: {:.1} MB/s",
                measured.pages.large_bytes / 1_000_000,
                measured.pages.large_s,
                measured.pages.mb_per_s
            ),
        ),
        (
            "curl",
            match measured.curl {
                Some(true) => "got the same page",
                Some(false) => "did not get the page",
                None => "is not here",
            }
            .to_owned(),
        ),
        (
            "a Chromium",
            match (measured.chromium, measured.chromium_page_s) {
                (Some(true), Some(seconds)) => format!("got a page and its {} parts in {seconds:.2} s", PARTS),
                (Some(_), _) => "did not get the page and all its parts".to_owned(),
                (None, _) => "was not opened".to_owned(),
            },
        ),
    ];
    rows.into_iter().fold(Table::new("What was measured", ["figure", "value"]), |table, (name, value)| {
        table.row([Cell::text(name), Cell::text(value)])
    })
}

/// Our figures and Tor's, side by side.
fn beside(report: Report, measured: &Measured, tor: &Tor) -> Report {
    let ways: Vec<(String, &Pages)> = std::iter::once(("this overlay".to_owned(), &measured.pages))
        .chain(tor.ways().map(|(name, way)| (format!("Tor, {name}"), &way.pages)))
        .collect();
    let head = ["", "MB/s", "large file, s", "its processor time, s", "first page, s", "other pages of 50 KiB, s"];
    let table = ways.iter().fold(Table::new("The same pages through both", head), |table, (name, pages)| {
        let processor_s = pages.large_processor_s.map_or_else(|| Cell::text("\u{2013}"), |s| Cell::number(s, 2));
        table.row([
            Cell::text(name.clone()),
            Cell::number(pages.mb_per_s, 1),
            Cell::number(pages.large_s, 2),
            processor_s,
            Cell::number(pages.first_page_s, 3),
            Cell::number(pages.small_page_s, 3),
        ])
    });
    let groups = || ways.iter().map(|(name, _)| name.clone()).collect();
    let bars = |axis: Axis, name: &str, of: fn(&Pages) -> Option<f64>| {
        let values = ways.iter().map(|(_, pages)| of(pages)).collect();
        BarChart::new("", axis, groups()).series(BarSeries::new(name, values))
    };
    let carried = tor.ways().map(|(name, way)| format!("{name}: {}", way.carried())).collect::<Vec<_>>().join("; ");
    report
        .section("Tor beside it")
        .paragraph(format!(
            "Tor {} as a private network of {} authorities and {} relays, of which {} are exits, measured first, in the same \
             run, by the same client. By what its clients say of their circuits, {carried}. It was ready after {:.1} s, and \
             took {}; this overlay had its list after {:.1} s, and took {:.2} s in all.",
            tor.version,
            tor.authorities,
            tor.relays,
            tor.exits,
            tor.ready_s,
            tor.took(),
            measured.first_list_s,
            measured.processor_s,
        ))
        .table(table)
        .figures_side_by_side(vec![
            Figure::chart(
                "Goodput of the large file.",
                bars(Axis::new("goodput", "MB/s"), "goodput", |pages| Some(pages.mb_per_s)),
            ),
            Figure::chart(
                "Processor time of all processes while it came.",
                bars(Axis::new("processor time", "s"), "processor time", |pages| pages.large_processor_s),
            ),
        ])
}

/// Packets from the one to the other.
type Which = fn(Hop, Hop) -> bool;

fn traffic(seen: &[Seen]) -> XyChart {
    let lines: [(&str, Which); 3] = [
        ("from the user to its guards", |from, _| matches!(from, Hop::Client(_))),
        ("from guards to the user", |_, to| matches!(to, Hop::Client(_))),
        ("into exits", |_, to| to == Hop::Exit),
    ];
    let line = |which: Which| {
        let mut all: BTreeMap<u64, u64> = BTreeMap::new();
        for (second, packets) in seen.iter().flat_map(|seen| seen.each_second(|passed| which(passed.from, passed.to))) {
            *all.entry(second).or_default() += packets;
        }
        every_second(&all)
    };
    let chart = XyChart::new(Axis::new("time", "s"), Axis::new("packets", "packets/s").from_zero());
    lines.into_iter().fold(chart, |chart, (name, which)| chart.series(Series::line(name, line(which))))
}

/// Relays write nothing of a second without packets, through which a line would be drawn.
fn every_second(counts: &BTreeMap<u64, u64>) -> Vec<(f64, f64)> {
    let (Some((&first, _)), Some((&last, _))) = (counts.first_key_value(), counts.last_key_value()) else {
        return Vec::new();
    };
    (first..=last).map(|second| (second as f64, counts.get(&second).copied().unwrap_or(0) as f64)).collect()
}

fn entropy(seen: &[Seen]) -> XyChart {
    let chart = XyChart::new(Axis::new("time", "s"), Axis::new("entropy", "bits").from_zero());
    let exits = seen.iter().enumerate().filter(|(_, seen)| seen.role() == Role::Exit);
    exits.fold(chart, |chart, (number, seen)| {
        let points = seen.exit_entropy_each_second().into_iter().map(|(second, bits)| (second as f64, bits));
        chart.series(Series::line(format!("relay {number}"), points.collect()).markers())
    })
}

fn overview(seen: &[Seen]) -> Table {
    let head = ["relay", "what it is to the user", "packets", "before it", "bits", "behind it", "bits"];
    let bits = |entropy: Option<Entropy>| {
        entropy.map_or_else(|| Cell::text("\u{2013}"), |entropy| Cell::number(entropy.bits, 2))
    };
    let row = |table: Table, (number, seen): (usize, &Seen)| {
        let (before, after) = (seen.by(|passed| passed.from), seen.by(|passed| passed.to));
        table.row([
            Cell::text(format!("relay {number}")),
            Cell::text(seen.role().words()),
            Cell::number(before.values().sum::<u64>() as f64, 0),
            Cell::number(before.len() as f64, 0),
            bits(seen.entropy(|passed| passed.from)),
            Cell::number(after.len() as f64, 0),
            bits(seen.entropy(|passed| passed.to)),
        ])
    };
    let caption =
        "Neighbours that each relay has met, and what it did not know of which of them the next packet would have";
    seen.iter().enumerate().fold(Table::new(caption, head), row)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_in_which_nobody_wrote_has_no_packets() {
        let counts = BTreeMap::from([(3, 7), (6, 1)]);
        assert_eq!(every_second(&counts), [(3.0, 7.0), (4.0, 0.0), (5.0, 0.0), (6.0, 1.0)]);
        assert_eq!(every_second(&BTreeMap::new()), []);
    }
}
