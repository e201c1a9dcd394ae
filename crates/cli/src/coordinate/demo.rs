//! `anabranch coordinate demo`: three hosts and cross traffic over one link, on real packets, on their own and steered by
//! a coordinator, side by side.
//!
//! ```text
//! alpha (1 flow)  --\
//! beta  (3 flows) ---+--> [ 20 Mbit/s, 200 ms of queue ] --> receivers
//! gamma (1 flow)  --/          ^ cross traffic, on and off
//! ```

use std::path::{Path, PathBuf};

use anabranch_control::flow::registry::Entry;
use anabranch_control::time::{Duration, Time};
use anabranch_lab::flows::FlowScenario;
use anabranch_lab::flows::summary::FlowsSummary;
use anabranch_lab::monitor::Monitor;
use anabranch_lab::parallel::Job;
use anabranch_proto::coordination::coordinator::Share;
use anabranch_report::output::{create_dir, stage};
use anabranch_report::{Axis, Cell, Figure, Report, Series, Table, XyChart};
use anabranch_scenario::file::parse_flows;
use anabranch_scenario::policy::hosts;
use anabranch_stats::{jain_fairness, percentile};
use anabranch_testbed::emulator::testbed_available;
use anabranch_testbed::service::{Believed, ServiceConfig, run_coordinated};
use anabranch_testbed::{Emulated, TestbedFailure};
use serde::Serialize;

use crate::emulate::{OnRealPackets, say};
use crate::failure::Failure;
use crate::printer;
use crate::run::timed_under;
use crate::stream::local;
use crate::{progress, table};

/// The hosts, in the order of the scenario's.
const HOSTS: [&str; 3] = ["alpha", "beta", "gamma"];

/// What the coordinator gives away: what is left keeps the queue short.
const UTILISATION: f64 = 0.95;

/// How often it decides.
const EVERY: Duration = Duration::from_millis(100);

/// Figures are counted from then on: hosts begin, and are found.
const SETTLE_S: f64 = 3.0;

/// Arguments of `coordinate demo`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Three hosts send over a link of 20 Mbit/s with 200 ms of queue, QUIC with a controller of ours: one flow, three flows, \
and one flow that begins later; cross traffic of 8 Mbit/s comes and goes. All of it is real packets through network \
namespaces and an emulated link, which takes Linux and root (or CAP_NET_ADMIN and CAP_SYS_ADMIN). It runs twice: the \
hosts on their own, and steered by the coordinator and the agents of `anabranch coordinate` and `anabranch agent`, over \
QUIC, whose budgets bound the flows' controllers.")]
pub struct Args {
    /// What decides how fast flows send; see `anabranch controllers`
    #[arg(long, value_name = "NAME", default_value = "cubic", value_parser = controller)]
    controller: &'static Entry,
    /// How long each of the two runs takes
    #[arg(long, value_name = "S", default_value_t = 18, value_parser = clap::value_parser!(u64).range(8..=600))]
    seconds: u64,
    /// Print the figures as one JSON object, and all else on standard error
    #[arg(long)]
    json: bool,
    /// Folder for the figures and the page
    #[arg(long, value_name = "DIR", default_value = "out/coordinate-demo")]
    out: PathBuf,
}

fn controller(name: &str) -> Result<&'static Entry, String> {
    let entry = local::controller(name)?;
    match entry.needs() {
        Some(needs) => Err(format!("needs {needs}, which the demo has no place for")),
        None => Ok(entry),
    }
}

/// The scenario of both runs.
fn scenario(controller: &str, seconds: u64) -> Result<FlowScenario, Failure> {
    let text = format!(
        r#"
        [run]
        seconds = {seconds}
        seed = 1
        goodput_from_s = {SETTLE_S}
        delays_from_s = {SETTLE_S}
        sample_every_s = 0.1

        [dumbbell]
        pairs = 4
        rate = "20 Mbit/s"
        delay_ms = 10
        queue = {{ ms = 200 }}
        access_rate = "1 Gbit/s"
        access_delay_ms = [2, 5, 10, 2]

        [[flow]]
        name = "alpha"
        controller = "quic:{controller}"
        from = "s0"
        to = "r0"

        [[flow]]
        name = "beta{{i}}"
        count = 3
        controller = "quic:{controller}"
        from = "s1"
        to = "r1"

        [[flow]]
        name = "gamma"
        controller = "quic:{controller}"
        from = "s2"
        to = "r2"
        start_s = {third}

        [[cross_traffic]]
        from = "s3"
        to = "r3"
        rate = "8 Mbit/s"
        pattern = {{ on_s = 3, off_s = 3 }}
        "#,
        third = seconds as f64 / 3.0,
    );
    parse_flows(&text, "coordinate demo", &[]).map_err(Failure::from)
}

/// The second run.
struct Coordinated<'a>(&'a FlowScenario);

impl Job for Coordinated<'_> {
    type Measured = (Emulated, Vec<Believed>);
    type Error = TestbedFailure;

    fn seconds(&self) -> u64 {
        self.0.seconds()
    }

    fn run(&self, monitor: &dyn Monitor) -> Result<Self::Measured, TestbedFailure> {
        let config = ServiceConfig { link: 0, every: EVERY, utilisation: UTILISATION, share: Share::PerHost };
        run_coordinated(self.0, config, monitor)
    }

    fn is_whole(&self, (emulated, _): &Self::Measured) -> bool {
        self.0.is_whole(&emulated.measured)
    }
}

/// What one of the runs gave.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Figures {
    /// What the link transmitted of what it could, cross traffic included.
    utilisation: Option<f64>,
    /// How long a packet would have waited for the link: the median and what 95 % of the instants did not exceed.
    wait_ms_p50: f64,
    wait_ms_p95: f64,
    /// One way, of all flows' packets.
    one_way_ms_p50: Option<f64>,
    one_way_ms_p99: Option<f64>,
    lost_percent: Option<f64>,
    /// Data of each host's flows, while all three have flows.
    hosts_mbit_s: Vec<f64>,
    /// Jain's index of these.
    fairness: Option<f64>,
}

/// Both.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Both {
    controller: String,
    seconds: u64,
    hosts: [&'static str; HOSTS.len()],
    on_their_own: Figures,
    steered: Figures,
    /// Of the instants at which the coordinator was looked at, those at which all hosts with flows had a lease.
    leased_percent: f64,
    /// Why figures say nothing of these links; empty where they do.
    warnings: Vec<String>,
}

impl Figures {
    fn of(scenario: &FlowScenario, emulated: &Emulated) -> Figures {
        let summary = FlowsSummary::of(scenario, &emulated.measured);
        let waits: Vec<f64> = counted(&emulated.measured.series.at, &emulated.measured.series.backlog_ms[0], SETTLE_S);
        let wait = |percent: f64| percentile(&waits, percent / 100.0).unwrap_or(f64::NAN);
        let all_from = scenario.flows.iter().map(|flow| flow.start.as_secs_f64()).fold(SETTLE_S, f64::max) + SETTLE_S;
        let hosts_mbit_s: Vec<f64> = of_hosts(scenario, emulated)
            .iter()
            .map(|rates| {
                let rates = counted(&emulated.measured.series.at, rates, all_from);
                rates.iter().sum::<f64>() / rates.len().max(1) as f64
            })
            .collect();
        Figures {
            utilisation: summary.links.first().and_then(|link| link.utilisation),
            wait_ms_p50: wait(50.0),
            wait_ms_p95: wait(95.0),
            one_way_ms_p50: summary.one_way.p50_ms,
            one_way_ms_p99: summary.one_way.p99_ms,
            lost_percent: summary.loss_percent,
            fairness: jain_fairness(&hosts_mbit_s),
            hosts_mbit_s,
        }
    }
}

/// Of a series, what was so from then on and is known.
fn counted(at: &[Time], values: &[f64], from_s: f64) -> Vec<f64> {
    let later = at.iter().zip(values).filter(|(at, value)| at.as_secs_f64() >= from_s && value.is_finite());
    later.map(|(_, value)| *value).collect()
}

/// What each host's flows deliver, row by row.
fn of_hosts(scenario: &FlowScenario, emulated: &Emulated) -> Vec<Vec<f64>> {
    let series = &emulated.measured.series;
    let sum = |flows: &Vec<usize>, row: usize| {
        let rates = flows.iter().filter_map(|flow| series.flows[*flow].goodput_mbit_s.get(row));
        rates.filter(|rate| rate.is_finite()).sum()
    };
    hosts(scenario, 0).iter().map(|flows| (0..series.at.len()).map(|row| sum(flows, row)).collect()).collect()
}

/// Runs the demo.
pub fn run(args: &Args) -> Result<(), Failure> {
    testbed_available().map_err(|reason| Failure::new(format!("the demo can't run here: {reason}")))?;
    let scenario = scenario(args.controller.name, args.seconds)?;
    create_dir(&args.out)?;
    let progress = progress::until_interrupted()?;
    let whole = |is_whole: bool| match is_whole {
        true => Ok(()),
        false => Err(Failure::interrupted("nothing was written")),
    };
    let alone = OnRealPackets(&scenario);
    let (on_their_own, _) = timed_under(&progress, &alone, "hosts on their own")?;
    whole(alone.is_whole(&on_their_own))?;
    let coordinated = Coordinated(&scenario);
    let (steered, _) = timed_under(&progress, &coordinated, "the same, steered")?;
    whole(coordinated.is_whole(&steered))?;
    let (steered, believed) = steered;
    for emulated in [&on_their_own, &steered] {
        say(&emulated.emulator);
    }
    let both = Both {
        controller: args.controller.name.to_owned(),
        seconds: args.seconds,
        hosts: HOSTS,
        on_their_own: Figures::of(&scenario, &on_their_own),
        steered: Figures::of(&scenario, &steered),
        leased_percent: leased_percent(&scenario, &believed),
        warnings: [&on_their_own, &steered].iter().flat_map(|run| run.emulator.warnings()).collect(),
    };
    let page = report(&scenario, &both, [&on_their_own, &steered], &believed);
    write(&args.out, &both, &page)?;
    if args.json {
        printer::print_line(&serde_json::to_string(&both)?)?;
    } else {
        table::print(&both.rows(), 1.., &mut std::io::stdout().lock())?;
    }
    eprintln!("wrote {} and {}", args.out.join("figures.json").display(), args.out.join("report.html").display());
    if on_their_own.emulator.is_saturated() || steered.emulator.is_saturated() {
        return Err(Failure::new("the emulator could not carry this link: what was measured says nothing of it"));
    }
    Ok(())
}

/// Both files, or neither.
fn write(out: &Path, both: &Both, page: &Report) -> Result<(), Failure> {
    let figures = serde_json::to_string_pretty(both)? + "\n";
    let staged = [
        stage(&out.join("figures.json"), |file| std::io::Write::write_all(file, figures.as_bytes()))?,
        page.stage(&out.join("report.html"))?,
    ];
    for file in staged {
        file.commit()?;
    }
    Ok(())
}

fn leased_percent(scenario: &FlowScenario, believed: &[Believed]) -> f64 {
    let starts: Vec<f64> = hosts(scenario, 0)
        .iter()
        .map(|flows| flows.iter().map(|flow| scenario.flows[*flow].start.as_secs_f64()).fold(f64::MAX, f64::min))
        .collect();
    let settled: Vec<&Believed> = believed.iter().filter(|one| one.at.as_secs_f64() >= SETTLE_S).collect();
    let is_leased = |one: &&&Believed| {
        let mut hosts = one.budgets.iter().zip(&starts);
        hosts.all(|(budget, start)| budget.is_some() || one.at.as_secs_f64() < start + 1.0)
    };
    100.0 * settled.iter().filter(is_leased).count() as f64 / settled.len().max(1) as f64
}

impl Both {
    /// For people.
    fn rows(&self) -> Vec<Vec<String>> {
        let number = |value: f64, digits: usize| format!("{value:.digits$}");
        let maybe = |value: Option<f64>, digits: usize| value.map_or("-".to_owned(), |value| number(value, digits));
        let row = |name: &str, of: &dyn Fn(&Figures) -> String| {
            vec![name.to_owned(), of(&self.on_their_own), of(&self.steered)]
        };
        let mut rows = vec![vec![String::new(), "on their own".to_owned(), "steered".to_owned()]];
        rows.push(row("link used, %", &|run| maybe(run.utilisation.map(|part| part * 100.0), 1)));
        rows.push(row("wait for the link, ms, p50", &|run| number(run.wait_ms_p50, 1)));
        rows.push(row("wait for the link, ms, p95", &|run| number(run.wait_ms_p95, 1)));
        rows.push(row("one way, ms, p50", &|run| maybe(run.one_way_ms_p50, 1)));
        rows.push(row("one way, ms, p99", &|run| maybe(run.one_way_ms_p99, 1)));
        rows.push(row("lost, %", &|run| maybe(run.lost_percent, 2)));
        for (number_of, name) in HOSTS.iter().enumerate() {
            rows.push(row(&format!("{name}, Mbit/s"), &|run| maybe(run.hosts_mbit_s.get(number_of).copied(), 2)));
        }
        rows.push(row("Jain's index of hosts", &|run| maybe(run.fairness, 3)));
        rows
    }
}

/// The page: the table, and both runs over time.
fn report(scenario: &FlowScenario, both: &Both, runs: [&Emulated; 2], believed: &[Believed]) -> Report {
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
