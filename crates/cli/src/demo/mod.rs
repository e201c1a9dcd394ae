//! `anabranch demo`: the main job in one process, over real sockets on loopback.
//!
//! ```text
//! one sender:   sender --> 3 of 20 relays --> receiver      a file, other relays each packet
//! all of them:  every peer relays, sends to random others, and receives
//! ```
//!
//! Delays between the peers are emulated by the driver, limits are held by the relays
//! themselves.

mod crowd;
mod one_file;
mod page;
mod predict;
mod series;
mod view;

use std::path::PathBuf;

use anabranch_control::path::registry::Entry;
use anabranch_control::rng::Rng;
use anabranch_control::time::Duration;
use anabranch_control::units::Rate;
use anabranch_net::loopback::NodeDelay;
use anabranch_sim::delay::{DelayModel, Delays, Jitter, JitterTail};

use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::network::{self, LimitKind, PacingArg};

/// Relays of the demo with one sender; peers of the standard scenario.
const PEERS: usize = 20;

/// The plane of the standard scenario: delay across one side, of an access link, and jitter.
const SPAN: Duration = Duration::from_millis(100);
const ACCESS: Duration = Duration::from_millis(5);
const JITTER: f64 = 0.1;

/// How long all send where nothing else is said.
const SECONDS: u64 = 30;

/// Arguments of `demo`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
With one sender, a file goes over 20 relays of different limits to a receiver that checks \
its hash. With --senders 20, each of 20 peers relays, receives, and sends to random others \
for --seconds: the thesis's standard scenario; beside the measured figures stands what the \
simulator predicts for it.")]
pub struct Args {
    /// File to send; one is made if none is given
    #[arg(conflicts_with = "senders")]
    file: Option<PathBuf>,
    /// What learns the relays' rates; see `anabranch controllers`
    #[arg(long, value_name = "NAME", default_value = "explicit-rate", value_parser = network::controller)]
    controller: &'static Entry,
    /// A parameter of the controller, such as epsilon=0.05
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// How rates become sending times
    #[arg(long, value_name = "HOW", default_value = "burst")]
    pacing: PacingArg,
    /// Peers that all relay, send and receive, in place of one sender of a file
    #[arg(long, value_name = "N")]
    senders: Option<usize>,
    /// Relays for each packet
    #[arg(long, value_name = "H", default_value_t = 3)]
    hops: usize,
    /// A relay's limit; with one sender they spread evenly from half of it to one and a half
    /// [default: 60 kB/s with one sender, else 400 kB/s as in the thesis]
    #[arg(long, value_name = "RATE", value_parser = network::limit)]
    limit: Option<Rate>,
    /// How a limit is held
    #[arg(long, value_name = "MODEL", default_value = "window")]
    limit_model: LimitKind,
    /// Decides positions, phases and random choices
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// How long all send [default: 30]
    #[arg(long, value_name = "S", requires = "senders", value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: Option<u64>,
    /// Size of the file that is made, in bytes [default: 6000000]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u64).range(0..=1 << 32))]
    size: Option<u64>,
    /// Say what became of the file as one JSON object on standard output, and all else on standard error
    #[arg(long, conflicts_with = "senders")]
    json: bool,
    /// Then serve a live stream to 20 viewers on this machine, as `anabranch stream demo` does, and tell of both on
    /// one page
    #[arg(long, conflicts_with_all = ["senders", "json"])]
    with_stream: bool,
    /// Folder for what is made and received
    #[arg(long, value_name = "DIR", default_value = "out/demo")]
    out: PathBuf,
}

/// Runs the demo.
pub fn run(args: &Args) -> Result<(), Failure> {
    let interrupt = Interrupt::listen()?;
    check(args)?;
    match args.senders {
        None | Some(1) => one_file::run(args, &interrupt),
        Some(peers) => crowd::run(args, peers, &interrupt),
    }
}

/// Refuses what would be ignored.
fn check(args: &Args) -> Result<(), Failure> {
    if args.senders == Some(1) && args.seconds.is_some() {
        return Err(Failure::new(
            "--seconds is for peers that all send: with --senders 1 a file is sent, however long it takes",
        ));
    }
    if args.size.is_some() && args.senders.is_some_and(|senders| senders != 1) {
        return Err(Failure::new("--size is of the file that one sender sends: peers that all send have no file"));
    }
    Ok(())
}

/// When each node's windows begin: as the simulator draws it.
fn phases(seed: u64, nodes: usize) -> Vec<Duration> {
    let mut rng = Rng::stream(seed, "phases");
    (0..nodes).map(|_| Duration::from_secs_f64(rng.uniform())).collect()
}

/// The delays of the standard scenario between `nodes` nodes, by the node that sends.
fn delays(seed: u64, nodes: usize) -> impl FnMut(u32) -> NodeDelay {
    let delays = Delays::new(&delay_model(), nodes, seed);
    move |node| {
        let delays = delays.clone();
        let mut jitter = Jitter::new(JITTER, JitterTail::Normal, Rng::indexed(seed, "jitter", u64::from(node)));
        Box::new(move |from, to| delays.sample(from, to, &mut jitter))
    }
}

fn delay_model() -> DelayModel {
    DelayModel::Plane { span: SPAN, access: ACCESS, stretch: 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::said;

    #[test]
    fn a_time_for_which_nobody_would_send_is_refused() {
        let parse = |line: &str| said::parse::<Args>(line.split_whitespace());
        assert!(parse("demo --seconds 1").unwrap_err().to_string().contains("--senders"));
        let refused = check(&parse("demo --senders 1 --seconds 1").unwrap()).unwrap_err();
        assert!(refused.words().contains("--seconds"), "{}", refused.words());
        for line in ["demo", "demo --senders 1", "demo --senders 20", "demo --senders 20 --seconds 1"] {
            assert!(check(&parse(line).unwrap()).is_ok(), "{line}");
        }
    }

    #[test]
    fn the_size_of_a_file_that_nobody_would_send_is_refused() {
        let parse = |line: &str| check(&said::parse::<Args>(line.split_whitespace()).unwrap());
        assert!(parse("demo --senders 20 --size 9").unwrap_err().words().contains("--size"));
        assert!(parse("demo --size 9").is_ok() && parse("demo --senders 1 --size 9").is_ok());
    }
}
