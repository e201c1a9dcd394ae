//! `anabranch coordinate demo`: three hosts and cross traffic over one link, on real packets, on their own, steered by a
//! coordinator, and steered by one whose policy decides, side by side.
//!
//! ```text
//! alpha (1 flow)  --\
//! beta  (3 flows) ---+--> [ 20 Mbit/s, 200 ms of queue ] --> receivers
//! gamma (1 flow)  --/          ^ cross traffic, on and off
//! ```

mod decisions;
mod figures;
mod page;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anabranch_control::flow::registry::Entry;
use anabranch_control::time::Duration;
use anabranch_lab::flows::FlowScenario;
use anabranch_lab::monitor::Monitor;
use anabranch_lab::parallel::Job;
use anabranch_proto::coordination::coordinator::Share;
use anabranch_proto::coordination::forecast::Expected;
use anabranch_proto::coordination::policy::Learned;
use anabranch_report::Report;
use anabranch_report::output::{create_dir, stage};
use anabranch_scenario::file::parse_flows;
use anabranch_testbed::emulator::testbed_available;
use anabranch_testbed::service::{Coordination, ServiceConfig, fits, run_coordinated};
use anabranch_testbed::{Emulated, TestbedFailure};

use figures::{ByPolicy, Figures, HOSTS, Runs, SETTLE_S, leased_percent};
use page::{Steered, report};

use super::policy;
use crate::failure::Failure;
use crate::printer::{on_stdout, print_line};
use crate::research::emulate::{OnRealPackets, say};
use crate::research::progress;
use crate::research::run::timed_under;
use crate::stderr::eprint_line;
use crate::stream::local;
use crate::table;

/// What the coordinator gives away: what is left keeps the queue short.
const UTILISATION: f64 = 0.95;

/// How often it decides, unless a policy says so.
const EVERY: Duration = Duration::from_millis(100);

/// Arguments of `coordinate demo`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Three hosts send over a link of 20 Mbit/s with 200 ms of queue, QUIC with a controller of ours: one flow, three flows, \
and one flow that begins later; cross traffic of 8 Mbit/s comes and goes. All of it is real packets through network \
namespaces and an emulated link, which takes Linux and root (or CAP_NET_ADMIN and CAP_SYS_ADMIN). It runs twice: the \
hosts on their own, and steered by the coordinator and the agents of `anabranch coordinate` and `anabranch agent`, over \
QUIC, whose budgets bound the flows' controllers. With --policy it runs a third time, steered by that policy; the rule \
then decides as often as the policy.")]
pub struct Args {
    /// What decides how fast flows send; see `anabranch controllers`
    #[arg(long, value_name = "NAME", default_value = "cubic", value_parser = controller)]
    controller: &'static Entry,
    /// What the rule takes cross traffic to do: what it did last, what it will do if it comes and goes as the last time,
    /// or the one of both that has been closer
    #[arg(long, value_name = "last-span|last-period|closer", default_value = "closer")]
    expected: Expected,
    /// What a trained policy tells the hosts in a third run: NAME.safetensors, with NAME.json beside it
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// How long each run takes
    #[arg(long, value_name = "S", default_value_t = 18, value_parser = clap::value_parser!(u64).range(8..=600))]
    seconds: u64,
    /// Of all random draws of the flows' controllers
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
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

/// The scenario of all runs.
fn scenario(controller: &str, seconds: u64, seed: u64) -> Result<FlowScenario, Failure> {
    let text = format!(
        r#"
        [run]
        seconds = {seconds}
        seed = {seed}
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

/// A run with a coordinator.
struct Coordinated<'a> {
    scenario: &'a FlowScenario,
    config: ServiceConfig,
}

impl Job for Coordinated<'_> {
    type Measured = (Emulated, Coordination);
    type Error = TestbedFailure;

    fn seconds(&self) -> u64 {
        self.scenario.seconds()
    }

    fn run(&self, monitor: &dyn Monitor) -> Result<Self::Measured, TestbedFailure> {
        run_coordinated(self.scenario, &self.config, monitor)
    }

    fn is_whole(&self, (emulated, _): &Self::Measured) -> bool {
        self.scenario.is_whole(&emulated.measured)
    }
}

/// The coordinators of the runs: by the rule, and by `learned` from the file at `path`, which both decide as often as it.
fn coordinators(
    scenario: &FlowScenario,
    expected: Expected,
    learned: Option<(&Path, Arc<Learned>)>,
) -> Result<(ServiceConfig, Option<ServiceConfig>), Failure> {
    let every = learned.as_ref().map_or(EVERY, |(_, learned)| learned.sight.interval);
    let rule =
        ServiceConfig { link: 0, every, utilisation: UTILISATION, share: Share::PerHost, expected, policy: None };
    let Some((path, learned)) = learned else { return Ok((rule, None)) };
    let by_policy = ServiceConfig { policy: Some(learned), ..rule.clone() };
    fits(scenario, &by_policy).map_err(|error| policy::unfit("the demo", path, &error))?;
    Ok((rule, Some(by_policy)))
}

/// Runs the demo.
pub fn run(args: &Args) -> Result<(), Failure> {
    // What is asked for can be wrong wherever it is asked.
    let scenario = scenario(args.controller.name, args.seconds, args.seed)?;
    let learned = args.policy.as_deref().map(|path| Ok::<_, Failure>((path, policy::load(path)?))).transpose()?;
    let (by_rule, by_policy) = coordinators(&scenario, args.expected, learned)?;
    testbed_available().map_err(|reason| Failure::new(format!("the demo can't run here: {reason}")))?;
    create_dir(&args.out)?;
    let progress = progress::until_interrupted()?;
    let whole = |is_whole: bool| match is_whole {
        true => Ok(()),
        false => Err(Failure::interrupted("nothing was written")),
    };
    let alone = OnRealPackets(&scenario);
    let (on_their_own, _) = timed_under(&progress, &alone, "hosts on their own")?;
    whole(alone.is_whole(&on_their_own))?;
    let every_s = by_rule.every.as_secs_f64();
    let coordinate = |config: ServiceConfig, name: &str| {
        let run = Coordinated { scenario: &scenario, config };
        let (measured, _) = timed_under(&progress, &run, name)?;
        whole(run.is_whole(&measured))?;
        Ok::<_, Failure>(measured)
    };
    let (steered, coordination) = coordinate(by_rule, "the same, steered")?;
    let by_policy = by_policy.and_then(|config| Some((config.policy.as_ref()?.name.clone(), config)));
    let by_policy = by_policy
        .map(|(name, config)| Ok::<_, Failure>((coordinate(config, &format!("the same, steered by {name}"))?, name)))
        .transpose()?;
    let all: Vec<&Emulated> =
        [&on_their_own, &steered].into_iter().chain(by_policy.as_ref().map(|((run, _), _)| run)).collect();
    all.iter().for_each(|run| say(&run.emulator));
    let runs = Runs {
        controller: args.controller.name.to_owned(),
        seconds: args.seconds,
        seed: args.seed,
        every_s,
        expected: args.expected.name(),
        hosts: HOSTS,
        on_their_own: Figures::of(&scenario, &on_their_own),
        steered: Figures::of(&scenario, &steered),
        leased_percent: leased_percent(&scenario, &coordination.believed),
        by_policy: by_policy
            .as_ref()
            .map(|((run, coordination), name)| ByPolicy::of(&scenario, name, run, coordination)),
        warnings: all.iter().flat_map(|run| run.emulator.warnings()).collect(),
    };
    let mut coordinated = vec![Steered { emulated: &steered, believed: &coordination.believed }];
    coordinated.extend(
        by_policy.as_ref().map(|((emulated, coordination), _)| Steered { emulated, believed: &coordination.believed }),
    );
    let page = report(&scenario, &runs, &on_their_own, &coordinated);
    write(&args.out, &runs, &page)?;
    if args.json {
        print_line!("{}", serde_json::to_string(&runs)?)?;
    } else {
        on_stdout(|stdout| table::print(&runs.rows(), 1.., stdout))?;
        if let Some(by) = &runs.by_policy {
            print_line!("{}", by.decisions.in_words(&by.policy))?;
        }
    }
    if let Some(beyond) = runs.by_policy.as_ref().and_then(|by| by.beyond.as_ref()) {
        eprint_line!("{beyond}");
    }
    eprint_line!("wrote {} and {}", args.out.join("figures.json").display(), args.out.join("report.html").display());
    if all.iter().any(|run| run.emulator.is_saturated()) {
        return Err(Failure::new("the emulator could not carry this link: what was measured says nothing of it"));
    }
    Ok(())
}

/// Both files, or neither.
fn write(out: &Path, runs: &Runs, page: &Report) -> Result<(), Failure> {
    let figures = serde_json::to_string_pretty(runs)? + "\n";
    let staged = [
        stage(&out.join("figures.json"), |file| std::io::Write::write_all(file, figures.as_bytes()))?,
        page.stage(&out.join("report.html"))?,
    ];
    for file in staged {
        file.commit()?;
    }
    Ok(())
}
