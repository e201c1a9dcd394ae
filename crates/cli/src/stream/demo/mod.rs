//! `anabranch stream demo`: a server and many viewers on this machine, over real sockets, some of which are killed.
//!
//! ```text
//! test picture --> server --QUIC--> viewer --QUIC--> viewer ...     each viewer a process of its own
//! ```
//!
//! What viewers say of packets that went to their players is held against when the server sent those: both read
//! one machine's clock.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use anabranch_control::units::Rate;
use anabranch_media::cutter::{Cut, Cutter};
use anabranch_media::pattern::{Pattern, PatternConfig};
use anabranch_net::sessions::identity::PeerIdentity;
use anabranch_net::stream::node::{InputError, NodeEvent, ServeOptions, StreamNode, Video};
use anabranch_report::output::{create_dir, write_atomically};
use serde_json::json;

use super::local;
use super::overview::HEADERS;
use super::told::{Line, unix_s};
use crate::failure::Failure;
use crate::interrupt::Interrupt;

/// What homes send: viewers have these in turn.
const UPLOADS: [&str; 4] = ["2 Mbit/s", "3 Mbit/s", "4 Mbit/s", "6 Mbit/s"];

/// What the server sends at most: a few copies of the stream.
const SERVER: Rate = Rate::from_bits_per_sec(6_000_000);

/// The stream is older than what players hold before the first viewer comes.
const AHEAD: Duration = Duration::from_millis(3500);

/// From the last viewer's coming until some are killed, and until it is counted from.
const SETTLE: Duration = Duration::from_secs(6);

/// Arguments of `stream demo`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Viewers, each a process of its own
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=200))]
    clients: u32,
    /// So many of them are killed without a word
    #[arg(long, value_name = "N", default_value_t = 5)]
    kill: u32,
    /// How long all watch
    #[arg(long, value_name = "S", default_value_t = 25, value_parser = clap::value_parser!(u64).range(10..=3600))]
    seconds: u64,
    /// The stream's bitrate
    #[arg(long, value_name = "RATE", default_value = "1 Mbit/s", value_parser = local::upload)]
    bitrate: Rate,
    /// What players hold, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "3", value_parser = local::buffer)]
    buffer: Duration,
    /// Print the figures as one JSON object, and all else on standard error
    #[arg(long)]
    json: bool,
    /// Folder for the figures
    #[arg(long, value_name = "DIR", default_value = "out/stream-demo")]
    out: PathBuf,
}

/// A viewer's process; it is killed when this is dropped.
struct Viewer {
    child: Child,
    lines: Receiver<Line>,
    /// When it began, on this process's clock.
    began: Instant,
    /// All that it said.
    said: Vec<Line>,
    is_killed: bool,
}

impl Drop for Viewer {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Viewer {
    fn start(link: &str, number: u32, args: &Args) -> Result<Viewer, Failure> {
        let upload = UPLOADS[number as usize % UPLOADS.len()];
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["stream", "watch", link, "--json", "--limit", "--upload", upload, "--listen", "127.0.0.1:0"]);
        command.args(["--buffer", &args.buffer.as_secs_f64().to_string()]);
        // The first one has a page, and says where.
        if number > 0 {
            command.arg("--no-http").stderr(Stdio::null());
        }
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let stdout = child.stdout.take().ok_or_else(|| Failure::new("a viewer has no output"))?;
        let (sender, lines) = mpsc::channel();
        // It ends with the viewer's output.
        std::thread::Builder::new().name("viewer".into()).spawn(move || {
            let lines = BufReader::new(stdout).lines().map_while(Result::ok);
            for line in lines.filter_map(|line| serde_json::from_str(&line).ok()) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        })?;
        Ok(Viewer { child, lines, began: Instant::now(), said: Vec::new(), is_killed: false })
    }

    fn hear(&mut self) {
        self.said.extend(self.lines.try_iter());
    }

    /// What it had said `after` the beginning of `demo`, the latest before.
    fn at(&self, demo: Instant, after: Duration) -> Option<&Line> {
        let own = |line: &&Line| (self.began - demo).as_secs_f64() + line.uptime_s <= after.as_secs_f64();
        self.said.iter().rev().find(own)
    }
}

/// The server of the demo, and its test picture.
struct Source {
    pattern: Pattern,
    cutter: Cutter,
    next: Instant,
    /// When each packet went to the server, in seconds since 1970.
    sent: Vec<f64>,
    bytes: u64,
}

impl Source {
    /// Sends the pictures that are due.
    fn run(&mut self, video: &anabranch_net::stream::node::Input) -> Result<(), Failure> {
        while Instant::now() >= self.next {
            self.next += self.pattern.interval();
            let now = unix_s();
            let bytes = self.pattern.next_frame(Duration::from_secs_f64(now));
            let mut cuts: Vec<Cut> = Vec::new();
            self.cutter
                .push(&bytes, |cut| cuts.push(cut))
                .map_err(|_| Failure::new("the test picture is no stream"))?;
            for cut in cuts {
                self.bytes += cut.bytes.len() as u64;
                self.sent.push(now);
                match video.push(Video { bytes: cut.bytes, is_entry_point: cut.is_entry_point }) {
                    Ok(()) => {}
                    Err(InputError::Full(_)) => return Err(Failure::new("this machine is too slow for the demo")),
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(())
    }
}

/// Runs the demo.
pub fn run(args: &Args) -> Result<(), Failure> {
    if args.kill >= args.clients {
        return Err(Failure::new(format!(
            "--kill {}: of {} viewers one must be left; expected at most {}",
            args.kill,
            args.clients,
            args.clients - 1
        )));
    }
    create_dir(&args.out)?;
    let interrupt = Interrupt::listen()?;
    let (node, video, mut events) = StreamNode::serve(ServeOptions {
        is_limited: true,
        buffer: local::span(args.buffer),
        ..ServeOptions::new(([127, 0, 0, 1], 0).into(), PeerIdentity::generate(), SERVER)
    })?;
    let pattern = Pattern::new(PatternConfig { bits_per_s: args.bitrate.bits_per_sec(), ..PatternConfig::default() })?;
    let mut source = Source { pattern, cutter: Cutter::default(), next: Instant::now(), sent: Vec::new(), bytes: 0 };
    let link = node.link().to_string();
    crate::network::say(args.json, &format!("a stream of {} at {link}", words(args.bitrate)));
    let demo = Instant::now();
    let (mut viewers, mut killed_at): (Vec<Viewer>, Option<Duration>) = (Vec::new(), None);
    let last_comes = AHEAD + Duration::from_millis(50) * args.clients;
    let end = last_comes + SETTLE + Duration::from_secs(args.seconds);
    while demo.elapsed() < end {
        if interrupt.is_raised() {
            return Err(Failure::interrupted("the demo was stopped before its figures were there"));
        }
        source.run(&video)?;
        while events.try_recv().is_ok_and(|event| !matches!(event, NodeEvent::Packet { .. })) {}
        viewers.iter_mut().for_each(Viewer::hear);
        let due = AHEAD + Duration::from_millis(50) * viewers.len() as u32;
        if viewers.len() < args.clients as usize && demo.elapsed() >= due {
            viewers.push(Viewer::start(&link, viewers.len() as u32, args)?);
            if viewers.len() == args.clients as usize {
                crate::network::say(args.json, &format!("{} viewers have come", args.clients));
            }
        }
        if killed_at.is_none() && demo.elapsed() >= last_comes + SETTLE * 2 {
            // Every fourth one, so that all kinds of lines die.
            let step = (args.clients / args.kill.max(1)).max(1) as usize;
            for viewer in viewers.iter_mut().skip(1).step_by(step).take(args.kill as usize) {
                viewer.child.kill()?;
                viewer.is_killed = true;
            }
            killed_at = Some(demo.elapsed());
            crate::network::say(args.json, &format!("{} of them were killed", args.kill));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    viewers.iter_mut().for_each(Viewer::hear);
    let snapshot = node.snapshot();
    let figures = figures(args, demo, last_comes + SETTLE, killed_at, &viewers, &source, &snapshot);
    drop(viewers);
    node.stop()?;
    let file = args.out.join("figures.json");
    write_atomically(&file, |writer| Ok(serde_json::to_writer_pretty(writer, &figures)?))?;
    if args.json {
        println!("{figures}");
    } else {
        let object = figures.as_object().ok_or_else(|| Failure::new("figures are an object"))?;
        let rows: Vec<Vec<String>> = object.iter().map(|(name, value)| vec![name.clone(), value.to_string()]).collect();
        crate::table::print(&rows, 2.., &mut std::io::stdout().lock())?;
    }
    eprintln!("wrote {}", file.display());
    Ok(())
}

fn words(rate: Rate) -> String {
    format!("{} Mbit/s", rate.bits_per_sec() as f64 / 1e6)
}

/// The value that this share of `values` is at most; none of none.
fn quantile(mut values: Vec<f64>, share: f64) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let rank = (values.len() as f64 * share).ceil() as usize;
    values.get(rank.saturating_sub(1)).copied()
}

fn figures(
    args: &Args,
    demo: Instant,
    from: Duration,
    killed_at: Option<Duration>,
    viewers: &[Viewer],
    source: &Source,
    server: &anabranch_net::stream::snapshot::Snapshot,
) -> serde_json::Value {
    let (mut played, mut skipped, mut all_played, mut viewers_sent) = (0, 0, 0, 0);
    let (mut delays, mut outages, mut starts) = (Vec::new(), Vec::new(), Vec::new());
    for viewer in viewers {
        let Some(last) = viewer.said.last() else { continue };
        all_played += last.here.played_packets;
        viewers_sent += last.here.upload.sent_bytes;
        starts.extend(last.started_after_s);
        if viewer.is_killed {
            continue;
        }
        let before = viewer.at(demo, from).map_or((0, 0), |line| (line.here.played_packets, line.here.skipped_packets));
        played += last.here.played_packets - before.0;
        skipped += last.here.skipped_packets - before.1;
        let released = viewer.said.iter().flat_map(|line| &line.released);
        delays.extend(released.filter_map(|(number, at)| Some(at - source.sent.get(*number as usize)?)));
        let own = (viewer.began - demo).as_secs_f64();
        let after = |(began, length): &&(f64, f64)| {
            killed_at.is_some_and(|killed| own + began + length >= killed.as_secs_f64())
        };
        outages.extend(last.outages_s.iter().filter(after).map(|(_, length)| *length));
    }
    let each = source.bytes as f64 / source.sent.len().max(1) as f64;
    let delivered = all_played as f64 * each;
    let server_bytes = server.sent_bytes + HEADERS * server.sent_packets;
    let useful = delivered * (1.0 + 77.0 / each);
    json!({
        "clients": viewers.len(),
        "started": starts.len(),
        "killed": viewers.iter().filter(|viewer| viewer.is_killed).count(),
        "delivered_percent": 100.0 * played as f64 / ((played + skipped) as f64).max(1.0),
        "skipped_packets": skipped,
        "savings_percent": 100.0 * (1.0 - server_bytes as f64 / delivered.max(1.0)),
        "startup_p95_s": quantile(starts, 0.95),
        "latency_p95_s": quantile(delays, 0.95).map(|delay| delay + args.buffer.as_secs_f64()),
        "slices_back_p99_s": quantile(outages, 0.99).unwrap_or(0.0),
        "overhead_percent": 100.0 * ((server_bytes + viewers_sent) as f64 / useful.max(1.0) - 1.0),
        "server_bytes": server_bytes,
        "source_bytes": source.bytes,
    })
}
