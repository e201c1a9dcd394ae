//! [Xavier] 6: eight senders, on and off in turn, over a dumbbell; for each controller the
//! medians of throughput and queueing delay over senders and runs, and the ellipse of the
//! Gaussian that fits them.
//!
//! Throughput is what a sender delivered over the time in which it was on; queueing delay is
//! a packet's mean time on its way over the least that any packet of the run took.

mod contender;

use anabranch_control::time::Duration;
use anabranch_control::units::{Bytes, Rate};
use anabranch_proto::flow::{LossRecovery, TcpOptions};
use anabranch_sim::varying::Course;

use super::remy_tables::{self, Trained};
use super::runs::{self, Estimate, OfRuns};
use super::{ExperimentError, Findings, FlowLab, Row, Verdict};
use anabranch_report::{Axis, Cell, Report, Series, Table, XyChart};
use anabranch_scenario::flows::{FlowScenario, OnPeriod, Workload};
use contender::{Cloud, Contender, names};

/// Both in the names of metrics.
const THROUGHPUT: &str = "throughput_mbit_s";
const QUEUEING: &str = "queueing_ms";

/// Whom the report's figures 1 and 2 compare, and those that ns-2's published medians know.
const PAPER: [&str; 8] = ["xavier", "max-throughput", "min-delay", "reno", "vegas", "compound", "cubic", "bic"];

/// What a transfer begins with: the window that the last one left, or the first window again.
const READINGS: [(Option<&str>, &str); 2] = [(None, ""), (Some("first window each time"), "[first window each time]")];

/// Transfers of the published medians.
const LONG_TRANSFER: Bytes = Bytes::new(1_000_000);

/// How ns-2 ran those of the published medians, as its scripts and defaults have it (README.md), and what of it makes
/// the difference.
struct Ns2 {
    /// What its rows are called.
    note: &'static str,
    /// Transfers as long as those of the published medians, or the report's.
    is_long: bool,
    names: &'static [&'static str],
    /// Of NewReno; the others are Linux's, over a recovery with selective ACKs.
    recovery: LossRecovery,
    least_timeout: Duration,
    /// One connection for all transfers, with the first window again after an idle time; else one for each.
    one_connection: bool,
    /// What Cubic leaves of its window at a loss, where it is not our default.
    cubic_beta: Option<f64>,
}

/// ns-2's default.
const NS_2_LEAST_TIMEOUT: Duration = Duration::from_millis(200);

/// As many as the published medians are of: in many runs one sender has several times the others' throughput, but not
/// in all, so that runs differ much.
const NS_2_RUNS: u64 = 128;

/// Of Linux 2.6.22's Cubic, which ns-2 ran: 819 of 1024 (net/ipv4/tcp_cubic.c).
const LINUX_2_6_22_BETA: f64 = 819.0 / 1024.0;

const NS_2: [Ns2; 7] = [
    Ns2 {
        note: "as ns-2 ran it",
        is_long: false,
        names: &["reno"],
        recovery: LossRecovery::Rfc6582,
        least_timeout: NS_2_LEAST_TIMEOUT,
        one_connection: true,
        cubic_beta: None,
    },
    Ns2 {
        is_long: true,
        note: "1 MB as ns-2 ran it",
        names: &["reno", "vegas", "compound", "cubic"],
        recovery: LossRecovery::Rfc6582,
        least_timeout: NS_2_LEAST_TIMEOUT,
        one_connection: true,
        cubic_beta: None,
    },
    // Set after the figures of Cubic with our default had been seen.
    Ns2 {
        is_long: true,
        note: "1 MB as ns-2 ran it, beta 0.8",
        names: &["cubic"],
        recovery: LossRecovery::Rfc6675,
        least_timeout: NS_2_LEAST_TIMEOUT,
        one_connection: true,
        cubic_beta: Some(LINUX_2_6_22_BETA),
    },
    Ns2 {
        is_long: true,
        note: "1 MB as ns-2 ran it but with SACK",
        names: &["reno"],
        recovery: LossRecovery::Rfc6675,
        least_timeout: NS_2_LEAST_TIMEOUT,
        one_connection: true,
        cubic_beta: None,
    },
    Ns2 {
        is_long: true,
        note: "1 MB with ns-2's timer alone",
        names: &["reno"],
        recovery: LossRecovery::Rfc6675,
        least_timeout: NS_2_LEAST_TIMEOUT,
        one_connection: false,
        cubic_beta: None,
    },
    Ns2 {
        is_long: true,
        note: "1 MB without SACK in one connection",
        names: &["reno"],
        recovery: LossRecovery::Rfc6582,
        least_timeout: Duration::SECOND,
        one_connection: true,
        cubic_beta: None,
    },
    Ns2 {
        is_long: true,
        note: "1 MB without SACK",
        names: &["reno"],
        recovery: LossRecovery::Rfc6582,
        least_timeout: Duration::SECOND,
        one_connection: false,
        cubic_beta: None,
    },
];

impl Ns2 {
    fn contenders(&self, contenders: &[Contender]) -> Vec<Contender> {
        let asked = contenders.iter().filter(|one| one.variant.is_none() && self.names.contains(&one.name));
        asked
            .map(|one| {
                let parameters: toml::Table = match one.name {
                    // ns-2 halves the window and not what is in flight.
                    "reno" => "halving = \"window\"".parse().expect("written here"),
                    // Nor does it run ns-3's Cubic.
                    "cubic" => "reno_friendly = \"rfc-8312\"".parse().expect("written here"),
                    _ => one.parameters.clone(),
                };
                let beta = self.cubic_beta.map(|beta| ("beta".to_owned(), toml::Value::Float(beta)));
                let parameters = parameters.into_iter().chain(beta).collect();
                Contender { anew: !self.one_connection, parameters, ..one.clone() }
            })
            .collect()
    }

    fn prepare(&self, scenario: &mut FlowScenario) {
        if self.is_long {
            lengthen(scenario);
        }
        let is_reno = scenario.flows.iter().all(|flow| flow.controller.name == "reno");
        let packets = &mut scenario.packets;
        packets.recovery = if is_reno { self.recovery } else { LossRecovery::Rfc6675 };
        // What ns-2 does not do otherwise is the RFCs', not ns-3's.
        packets.tcp = TcpOptions {
            least_timeout: self.least_timeout,
            restart_after_idle: self.one_connection,
            ..TcpOptions::RFC
        };
        // With timestamps.
        packets.header = Bytes::new(50);
    }
}

/// Figure 1: 15 Mbit/s.
pub fn fig_1(lab: &FlowLab) -> Result<Findings, ExperimentError> {
    let tables = remy_tables::all()?;
    let contenders = versus(lab, &tables)?;
    let clouds = contender::run(lab, &contenders, |_| {})?;
    let mut rows = medians(lab, &clouds, "");
    let judged: Vec<&Cloud> = clouds.iter().filter(|cloud| cloud.contender.variant.is_none()).collect();
    rows.extend(baselines(lab, &clouds));
    rows.extend(remy_frontier(lab, &clouds, &tables));
    for (variant, suffix) in READINGS {
        let xavier = clouds.iter().find(|cloud| cloud.contender.name == "xavier" && cloud.contender.variant == variant);
        if let (Some(xavier), Some(reno)) = (xavier, named(&judged, "reno")) {
            let mut judge = |metric: &str, ours: OfRuns| {
                rows.push(lab.mean_row("xavier", &format!("{metric}{suffix}"), "", ours.values()));
            };
            judge("throughput_over_reno", xavier.throughputs().over(&reno.throughputs()));
            judge("queueing_over_reno", xavier.queueings().over(&reno.queueings()));
        }
    }
    // The published medians are those of transfers of 1 MB.
    let long: Vec<Contender> = contenders.iter().filter(|one| !one.name.starts_with("xavier")).cloned().collect();
    let long = contender::run(lab, &long, lengthen)?;
    rows.extend(medians(lab, &long, "1 MB"));
    for ns_2 in &NS_2 {
        let clouds = contender::run_often(lab, NS_2_RUNS, &ns_2.contenders(&contenders), |scenario| {
            ns_2.prepare(scenario);
        })?;
        rows.extend(medians(lab, &clouds, ns_2.note));
    }
    let report = report("[Xavier] figure 1: 15 Mbit/s", &tables);
    let report = plane(report, "Transfers of 100 kB. Up and right is better.", &clouds)
        .table(table("Medians over senders and runs, transfers of 100 kB", &clouds));
    let report = plane(report, "Transfers of 1 MB, as in the published medians of ns-2.", &long)
        .table(table("Medians over senders and runs, transfers of 1 MB", &long));
    Ok(Findings { rows, report })
}

/// Transfers as long as those of the published medians.
fn lengthen(scenario: &mut FlowScenario) {
    for flow in &mut scenario.flows {
        if let Workload::OnOff { on: OnPeriod::Bytes { mean }, .. } = &mut flow.workload {
            *mean = LONG_TRANSFER;
        }
    }
}

/// Figure 2: 3 Mbit/s, for which no table was trained.
pub fn fig_2(lab: &FlowLab) -> Result<Findings, ExperimentError> {
    let tables = remy_tables::all()?;
    let clouds = contender::run(lab, &versus(lab, &tables)?, |_| {})?;
    let mut rows = medians(lab, &clouds, "");
    let judged: Vec<&Cloud> = clouds.iter().filter(|cloud| cloud.contender.variant.is_none()).collect();
    if let Some(xavier) = named(&judged, "xavier") {
        for Trained { name, parameters } in &tables {
            let (queueing, throughput) =
                (format!("queueing_over_xavier[{name}]"), format!("throughput_over_remy[{name}]"));
            match (parameters, clouds.iter().find(|cloud| cloud.contender.variant == Some(*name))) {
                (Ok(_), Some(remy)) => {
                    let (more, less) =
                        (remy.queueings().over(&xavier.queueings()), xavier.throughputs().over(&remy.throughputs()));
                    rows.push(lab.mean_row("remy", &queueing, "", more.values()));
                    rows.push(lab.mean_row("xavier", &throughput, "", less.values()));
                }
                (Err(why), _) => {
                    rows.push(remy_tables::skipped(lab, &queueing, "", why));
                    let row = remy_tables::skipped(lab, &throughput, "", why);
                    rows.push(Row { subject: "xavier".to_owned(), ..row });
                }
                (Ok(_), None) => {}
            }
        }
    }
    let report = report("[Xavier] figure 2: 3 Mbit/s", &tables);
    let report = plane(report, "Transfers of 100 kB. Up and right is better.", &clouds)
        .table(table("Medians over senders and runs", &clouds));
    Ok(Findings { rows, report })
}

/// What rows are called that ran over it.
const NARROW: &str = "3 Mbit/s";

/// The bottleneck of figure 2, over which figure 3 may have been run as well.
fn narrow(scenario: &mut FlowScenario) {
    let rate = Rate::from_bits_per_sec(3_000_000);
    for link in scenario.links.iter_mut().filter(|link| ["bottleneck", "bottleneck-back"].contains(&link.name.as_str()))
    {
        link.rate = Some(Course::constant(rate));
    }
}

/// Figure 3: the bonus.
pub fn fig_3(lab: &FlowLab) -> Result<Findings, ExperimentError> {
    let mut contenders = vec![
        Contender::xavier("CMB-X", "beta = 0"),
        Contender::xavier("beta 0.5", "beta = 0.5"),
        Contender::xavier("beta 1", "beta = 1"),
        Contender::xavier("CMB-X-B", ""),
        Contender::xavier("CMB-X-B-ONLY", "delta = false"),
        Contender::named("min-delay")?,
        Contender::named("max-throughput")?,
        Contender::xavier("CMB-X, first window each time", "beta = 0\nrestart = true"),
        Contender::xavier("CMB-X-B, first window each time", "restart = true"),
        Contender::xavier("CMB-X-B-ONLY, first window each time", "delta = false\nrestart = true"),
        Contender { anew: true, ..Contender::xavier("CMB-X, learns anew", "beta = 0") },
        Contender { anew: true, ..Contender::xavier("CMB-X-B-ONLY, learns anew", "delta = false") },
    ];
    contenders.extend(others(lab, &["xavier", "min-delay", "max-throughput"])?);
    let clouds = contender::run(lab, &contenders, |_| {})?;
    let mut rows = medians(lab, &clouds, "");
    let [without, _, _, full, only, min_delay, max_throughput, first @ ..] = clouds.as_slice() else {
        unreachable!("as many clouds as contenders")
    };
    let mut judge = |reading: &str, without: &Cloud, full: &Cloud, only: &Cloud| {
        let mut judge = |metric: &str, kind: &str, ours: OfRuns| {
            rows.push(lab.mean_row("xavier", &format!("{metric}[{kind}{reading}]"), "", ours.values()));
        };
        judge("throughput_over_min_delay", "CMB-X", without.throughputs().over(&min_delay.throughputs()));
        judge("queueing_over_max_throughput", "CMB-X", without.queueings().over(&max_throughput.queueings()));
        judge("throughput_over_full", "CMB-X-B-ONLY", only.throughputs().over(&full.throughputs()));
        judge("queueing_over_full", "CMB-X-B-ONLY", only.queueings().over(&full.queueings()));
        judge("throughput_over_without", "CMB-X-B", full.throughputs().over(&without.throughputs()));
        judge("queueing_over_without", "CMB-X-B", full.queueings().over(&without.queueings()));
    };
    judge("", without, full, only);
    if let [without, full, only, ..] = first {
        judge(", first window each time", without, full, only);
    }
    let narrow = contender::run(lab, &contenders, narrow)?;
    rows.extend(medians(lab, &narrow, NARROW));
    let report = report("[Xavier] figure 3: the bonus for growth", &[]);
    let report = plane(report, "Throughput and delay are traded by the bonus.", &clouds)
        .table(table("Medians over senders and runs", &clouds))
        .table(table("The same over 3 Mbit/s", &narrow));
    Ok(Findings { rows, report })
}

/// Figure 4: the features.
pub fn fig_4(lab: &FlowLab) -> Result<Findings, ExperimentError> {
    let variants = [
        Contender::xavier("CMB-X-B", ""),
        Contender::xavier("CMB-B", "cross = false"),
        Contender::xavier("EWMA-B", "cross = false\nratio = false"),
        Contender::xavier("RATIO-B", "cross = false\newma = false"),
    ];
    let contenders: Vec<Contender> = variants.iter().cloned().chain(others(lab, &["xavier"])?).collect();
    let clouds = contender::run(lab, &contenders, |_| {})?;
    let mut rows = medians(lab, &clouds, "");
    let throughputs: Vec<OfRuns> = clouds[..variants.len()].iter().map(Cloud::throughputs).collect();
    let [full, uncrossed, _, ratio_only] = &throughputs[..] else { unreachable!("as many clouds as contenders") };
    let mut judge = |metric: &str, ours: OfRuns| rows.push(lab.mean_row("xavier", metric, "", ours.values()));
    judge("throughput_over_ratio_b[CMB-B]", uncrossed.over(ratio_only));
    judge("throughput_over_cmb_b[CMB-X-B]", full.over(uncrossed));
    let pairs: Vec<OfRuns> =
        throughputs.iter().flat_map(|one| throughputs.iter().map(move |other| one.over(other))).collect();
    rows.push(runs::highest(lab, "xavier", "highest_over_lowest_throughput", "", &pairs));
    let report = report("[Xavier] figure 4: the features", &[]);
    let report = plane(report, "Features taken away one by one.", &clouds)
        .table(table("Medians over senders and runs", &clouds));
    Ok(Findings { rows, report })
}

/// Those that were asked for beside `shown`, made anew for each transfer.
fn others(lab: &FlowLab, shown: &[&str]) -> Result<Vec<Contender>, ExperimentError> {
    lab.others(shown)?.into_iter().map(|entry| Contender::named(entry.name)).collect()
}

/// Everyone that figures 1 and 2 compare and that is there.
fn versus(lab: &FlowLab, tables: &[Trained]) -> Result<Vec<Contender>, ExperimentError> {
    let paper: Vec<&str> = names(&PAPER);
    let mut contenders = Vec::new();
    for entry in lab.controllers(&paper)? {
        match entry.name {
            "remy" => {}
            "xavier" => {
                contenders.push(Contender { variant: None, ..Contender::xavier("", "") });
                contenders.push(Contender::xavier("first window each time", "restart = true"));
                contenders.push(Contender { anew: true, ..Contender::xavier("learns anew each time", "") });
                let precursor = Contender::xavier("precursor", "");
                contenders.push(Contender { name: "xavier-precursor", ..precursor });
            }
            name => contenders.push(Contender::named(name)?),
        }
    }
    for table in tables {
        if let Ok(parameters) = &table.parameters {
            let remy = Contender::named("remy")?;
            contenders.push(Contender { variant: Some(table.name), parameters: parameters.clone(), ..remy });
        }
    }
    Ok(contenders)
}

/// Whether each baseline takes its goal to the end, at the other's cost.
fn baselines(lab: &FlowLab, clouds: &[Cloud]) -> Vec<Row> {
    let others = || {
        let baseline = |name| ["max-throughput", "min-delay"].contains(&name);
        clouds.iter().filter(move |cloud| !baseline(cloud.contender.name))
    };
    // Over the highest of the others is the lowest ratio to any of them.
    let over_each = |one: &Cloud, of: fn(&Cloud) -> OfRuns| -> Vec<OfRuns> {
        others().map(|other| of(one).over(&of(other))).collect()
    };
    let all: Vec<&Cloud> = clouds.iter().collect();
    let mut rows = Vec::new();
    if let Some(most) = named(&all, "max-throughput") {
        let over = |metric: &str, of| runs::lowest(lab, "max-throughput", metric, "", &over_each(most, of));
        rows.push(over("throughput_over_highest_other", Cloud::throughputs));
        rows.push(over("queueing_over_highest_other", Cloud::queueings));
    }
    if let Some(least) = named(&all, "min-delay") {
        let over = |metric: &str, of| runs::highest(lab, "min-delay", metric, "", &over_each(least, of));
        rows.push(over("queueing_over_lowest_other", Cloud::queueings));
        rows.push(over("throughput_over_lowest_other", Cloud::throughputs));
    }
    rows
}

/// Whether nobody has both more throughput and less delay than `one`: by the intervals of the
/// differences between runs with the same seed.
fn frontier(one: &Cloud, all: &[Cloud]) -> Verdict {
    let less = |a: OfRuns, b: OfRuns| a.with(&b, |a, b| a - b).estimate();
    let mut verdict = Verdict::Agrees;
    for other in all.iter().filter(|other| other.contender.label() != one.contender.label()) {
        let ahead = [less(other.throughputs(), one.throughputs()), less(one.queueings(), other.queueings())];
        let ends = ahead.map(|Estimate { mean, half_width }| {
            half_width.map_or((f64::NEG_INFINITY, f64::INFINITY), |half| (mean - half, mean + half))
        });
        if ends.iter().all(|(low, _)| *low > 0.0) {
            return Verdict::Disagrees;
        }
        if ends.iter().all(|(_, high)| *high > 0.0) {
            verdict = Verdict::Open;
        }
    }
    verdict
}

/// How many others have both more throughput and less delay than each table.
fn remy_frontier(lab: &FlowLab, clouds: &[Cloud], tables: &[Trained]) -> Vec<Row> {
    let mut rows = Vec::new();
    let of = |name: &str| clouds.iter().find(|cloud| cloud.contender.variant == Some(name));
    for Trained { name, parameters } in tables {
        let metric = format!("dominated_by[{name}]");
        match (parameters, of(name)) {
            (Err(why), _) => rows.push(remy_tables::skipped(lab, &metric, "", why)),
            (Ok(_), Some(remy)) => {
                let better =
                    |other: &&Cloud| other.throughput() > remy.throughput() && other.queueing() < remy.queueing();
                let row = lab.row("remy", &metric, "", Some(clouds.iter().filter(better).count() as f64));
                rows.push(Row { verdict: row.verdict.map(|_| frontier(remy, clouds)), ..row });
            }
            (Ok(_), None) => {}
        }
    }
    let metric = "throughput_delta0.1_over_delta10";
    match (of("delta0.1"), of("delta10")) {
        (Some(fast), Some(slow)) => {
            rows.push(lab.mean_row("remy", metric, "", fast.throughputs().over(&slow.throughputs()).values()));
        }
        _ => rows.push(remy_tables::skipped(lab, metric, "", "not all tables are there")),
    }
    rows
}

fn named<'c>(clouds: &[&'c Cloud], name: &str) -> Option<&'c Cloud> {
    clouds.iter().copied().find(|cloud| cloud.contender.name == name)
}

/// Each contender's medians over its senders, means over the runs.
fn medians(lab: &FlowLab, clouds: &[Cloud], note: &str) -> Vec<Row> {
    let row = |cloud: &Cloud| {
        let kinds: Vec<&str> =
            [cloud.contender.variant.unwrap_or(""), note].into_iter().filter(|x| !x.is_empty()).collect();
        let metric = |name: &str| match kinds.as_slice() {
            [] => name.to_owned(),
            kinds => format!("{name}[{}]", kinds.join(", ")),
        };
        [
            lab.mean_row(cloud.contender.name, &metric(THROUGHPUT), "Mbit/s", cloud.throughputs().values()),
            lab.mean_row(cloud.contender.name, &metric(QUEUEING), "ms", cloud.queueings().values()),
        ]
    };
    clouds.iter().flat_map(row).collect()
}

fn report(title: &str, tables: &[Trained]) -> Report {
    let report = Report::new(title).section("Throughput and queueing delay").paragraph(
        "A dot is the median over senders and runs, an ellipse the contour at one standard deviation of the Gaussian \
         that fits them.",
    );
    match remy_tables::missing(tables) {
        Some(missing) => report.paragraph(missing),
        None => report,
    }
}

/// Adds the throughput-delay plane, with the least delay at the right.
fn plane(report: Report, caption: &str, clouds: &[Cloud]) -> Report {
    let x = Axis::new("queueing delay", "ms").log().reversed();
    let mut chart = XyChart::new(x, Axis::new("throughput", "Mbit/s").from_zero());
    for cloud in clouds {
        chart = chart.series(Series::ellipse(cloud.contender.label(), &cloud.points));
    }
    report.small_multiples(caption, chart)
}

fn table(caption: &str, clouds: &[Cloud]) -> Table {
    let headers = ["controller", "throughput (Mbit/s)", "queueing delay (ms)", "lost packets (%)"];
    let mut clouds: Vec<&Cloud> = clouds.iter().collect();
    if clouds.len() > XyChart::MOST_SERIES {
        clouds.sort_by(|one, other| other.throughput().total_cmp(&one.throughput()));
    }
    clouds.into_iter().fold(Table::new(caption, headers), |table, cloud| {
        table.row([
            Cell::text(cloud.contender.label()),
            Cell::number(cloud.throughput(), 3),
            Cell::number(cloud.queueing(), 2),
            Cell::number(cloud.loss_percent, 3),
        ])
    })
}

/// Simulated time of each run: 100 s, as in the report's reference 13.
fn length(lab: &FlowLab) -> Duration {
    Duration::SECOND * lab.seconds(100, 30)
}
