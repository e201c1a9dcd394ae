//! `anabranch coordinate demo`: three hosts and cross traffic over one link, on real packets, on their own and steered by
//! a coordinator, side by side.
//!
//! ```text
//! alpha (1 flow)  --\
//! beta  (3 flows) ---+--> [ 20 Mbit/s, 200 ms of queue ] --> receivers
//! gamma (1 flow)  --/          ^ cross traffic, on and off
//! ```

mod figures;
mod page;

use std::path::{Path, PathBuf};

use anabranch_control::flow::registry::Entry;
use anabranch_control::time::Duration;
use anabranch_lab::flows::FlowScenario;
use anabranch_lab::monitor::Monitor;
use anabranch_lab::parallel::Job;
use anabranch_proto::coordination::coordinator::Share;
use anabranch_report::Report;
use anabranch_report::output::{create_dir, stage};
use anabranch_scenario::file::parse_flows;
use anabranch_testbed::emulator::testbed_available;
use anabranch_testbed::service::{Believed, ServiceConfig, run_coordinated};
use anabranch_testbed::{Emulated, TestbedFailure};

use figures::{Both, Figures, HOSTS, SETTLE_S, leased_percent};
use page::report;

use crate::emulate::{OnRealPackets, say};
use crate::failure::Failure;
use crate::printer;
use crate::run::timed_under;
use crate::stream::local;
use crate::{progress, table};

/// What the coordinator gives away: what is left keeps the queue short.
const UTILISATION: f64 = 0.95;

/// How often it decides.
const EVERY: Duration = Duration::from_millis(100);

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
