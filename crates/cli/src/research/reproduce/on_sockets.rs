//! `anabranch reproduce --sockets`: files that are sent as users send them, by this very command in
//! processes of their own on the loopback interface.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anabranch_control::rng::Rng;
use anabranch_control::units::Rate;
use anabranch_lab::monitor::Monitor;
use anabranch_lab::physical::{self, Sizes};
use anabranch_net::setup::{self, PACKET};
use anabranch_papers::{Arrived, Course, FileOverRelays, Loopback};
use anabranch_proto::overlay::wire;
use anabranch_proto::transfer;
use serde_json::Value;

use crate::failure::Failure;
use crate::research::progress::Lines;

/// A file that has not come by then is given up: many times what any should take.
const LONGEST: Duration = Duration::from_secs(300);

/// So often it is looked whether a process has ended.
const LOOK: Duration = Duration::from_millis(10);

/// Relays that are processes, and what each forwards at most.
const RELAYS: usize = 8;
const LIMIT: Rate = Rate::from_bytes_per_sec(4_000_000);
const HOPS: usize = 3;

/// Bytes of the file that goes over them.
const FILE: usize = 20_000_000;

/// When relays that shall be killed are, after the sender was started: about the middle of the file.
const KILLED_AFTER: Duration = Duration::from_secs(1);

/// Starts processes of one program.
#[derive(Debug)]
pub struct Processes {
    program: PathBuf,
    lines: Lines,
}

impl Processes {
    /// Those of this program, which says on `lines` what became of each file.
    pub fn of_this_program(lines: Lines) -> Result<Processes, Failure> {
        let program = std::env::current_exe()
            .map_err(|error| Failure::new(format!("cannot find this program to start it again: {error}")))?;
        Ok(Processes { program, lines })
    }

    fn start(&self, arguments: &[&str], folder: &Path) -> Result<Running, String> {
        let mut command = Command::new(&self.program);
        // Keys and settings of their own, and not the user's.
        command.args(arguments).current_dir(folder).env("XDG_CONFIG_HOME", folder.join("settings"));
        let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| format!("cannot start {}: {error}", self.program.display()))?;
        let lines = BufReader::new(child.stdout.take().expect("its standard output is a pipe"));
        Ok(Running { name: arguments[0].to_owned(), child, lines })
    }

    fn demo(&self, file: &FileOverRelays, limit_model: &str, folder: &Path, monitor: &dyn Monitor) -> Sent {
        let seed = file.seed.to_string();
        let arguments = ["demo", "--json", "--controller", file.controller, "--limit-model", limit_model];
        let demo = self.start(&[&arguments[..], &["--seed", &seed, "--out", "demo"]].concat(), folder)?;
        let Some(said) = demo.end(monitor, || ())? else { return Ok(None) };
        let possible = number(&said, "possible_bytes_per_second")?;
        arrived(&said, possible).map(Some)
    }

    fn over_processes(&self, file: &FileOverRelays, killed: usize, folder: &Path, monitor: &dyn Monitor) -> Sent {
        let sent = bytes(file.seed);
        fs::write(folder.join("file.bin"), &sent).map_err(|error| format!("cannot make a file: {error}"))?;
        let (mut relays, mut addresses) = (Vec::new(), Vec::new());
        let limit = format!("{} B/s", LIMIT.bytes_per_sec());
        for _ in 0..RELAYS {
            let mut relay =
                self.start(&["relay", "--listen", "127.0.0.1:0", "--log", "off", "--limit", &limit], folder)?;
            addresses.push(relay.address(" on ")?);
            relays.push(relay);
        }
        let list = addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        let mut receiver = self.start(&["receive", "--listen", "127.0.0.1:0", "--out", "in", "--once"], folder)?;
        let to = receiver.address("receiving on ")?;
        let (key, hops) = (receiver.after("public key ")?, HOPS.to_string());
        let at = to.to_string();
        let arguments = ["send", "file.bin", "--to", &at, "--key", &key, "--relays", &list, "--hops", &hops];
        let started = Instant::now();
        let sender = self.start(&[&arguments[..], &["--json", "--controller", file.controller]].concat(), folder)?;
        let mut to_kill = killed;
        let said = sender.end(monitor, || {
            if to_kill > 0 && started.elapsed() >= KILLED_AFTER {
                // Each is killed, and waited for, as it is dropped.
                relays.drain(..to_kill);
                to_kill = 0;
            }
        })?;
        let Some(said) = said else { return Ok(None) };
        if to_kill > 0 {
            return Err(format!("the file had come before relays were killed, after {KILLED_AFTER:?}"));
        }
        let came = fs::read(folder.join("in").join("file.bin")).map_err(|error| format!("no file came: {error}"))?;
        if came != sent {
            return Err("the file that came is not the one that was sent".to_owned());
        }
        arrived(&said, possible(&addresses, to)?).map(Some)
    }
}

/// What became of a file; none if it had not come after [`LONGEST`].
type Sent = Result<Option<Arrived>, String>;

impl Loopback for Processes {
    fn send(&self, file: &FileOverRelays, monitor: &dyn Monitor) -> Sent {
        let folder = tempfile::tempdir().map_err(|error| format!("cannot make a folder: {error}"))?;
        let sent = match file.course {
            Course::Demo { limit_model } => self.demo(file, limit_model, folder.path(), monitor),
            Course::Processes { killed } => self.over_processes(file, killed, folder.path(), monitor),
        }?;
        let what = format!("{}, {:?}, seed {}", file.controller, file.course, file.seed);
        self.lines.say(&match sent {
            Some(Arrived { seconds, share_of_possible, lost_percent }) => format!(
                "{what}: {seconds:.2} s, {:.1} % of what is possible, {lost_percent:.2} % lost",
                100.0 * share_of_possible
            ),
            None => format!("{what}: not there after {LONGEST:?}"),
        });
        Ok(sent)
    }
}

/// The most bytes of a file a second that one sender can bring over relays at `addresses` to `to`.
fn possible(addresses: &[SocketAddr], to: SocketAddr) -> Result<f64, String> {
    let route = setup::longest_route(addresses, HOPS, to);
    let block = transfer::block_size(&route, PACKET).ok_or("the route leaves no room for data in a packet")?;
    let sizes = Sizes { packet: PACKET as f64, ack: wire::ack_len(&route) as f64, payload: f64::from(block) };
    Ok(physical::one_sender(&[LIMIT; RELAYS], HOPS, &sizes))
}

/// A file's bytes, which nothing could make shorter.
fn bytes(seed: u64) -> Vec<u8> {
    let mut rng = Rng::stream(seed, "file");
    (0..FILE / 8).flat_map(|_| rng.bits().to_le_bytes()).collect()
}

/// What the sender's JSON object says.
fn arrived(said: &Value, possible: f64) -> Result<Arrived, String> {
    let packets = number(said, "packets")?;
    Ok(Arrived {
        seconds: number(said, "seconds")?,
        share_of_possible: number(said, "bytes_per_second")? / possible,
        lost_percent: 100.0 * number(said, "lost_packets")? / packets.max(1.0),
    })
}

fn number(said: &Value, key: &str) -> Result<f64, String> {
    said[key].as_f64().ok_or_else(|| format!("expected a number for \"{key}\" in {said}"))
}

/// A process that is killed when nobody wants it any more.
#[derive(Debug)]
struct Running {
    name: String,
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Running {
    /// What follows `before` on its next line.
    fn after(&mut self, before: &str) -> Result<String, String> {
        let mut line = String::new();
        self.lines.read_line(&mut line).map_err(|error| format!("{}: {error}", self.name))?;
        match line.split_once(before) {
            Some((_, after)) => Ok(after.trim().to_owned()),
            None => {
                let errors = self.errors();
                Err(format!("{} said {line:?}{errors}", self.name))
            }
        }
    }

    fn address(&mut self, before: &str) -> Result<SocketAddr, String> {
        let said = self.after(before)?;
        said.parse().map_err(|error| format!("{} is at {said:?}: {error}", self.name))
    }

    /// The JSON object that it says at its end; none if it takes too long. `meanwhile` is called again and
    /// again until then.
    fn end(mut self, monitor: &dyn Monitor, mut meanwhile: impl FnMut()) -> Result<Option<Value>, String> {
        let started = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().map_err(|error| format!("{}: {error}", self.name))? {
                break status;
            }
            if monitor.is_interrupted() {
                return Err("interrupted".to_owned());
            }
            if started.elapsed() > LONGEST {
                return Ok(None);
            }
            meanwhile();
            thread::sleep(LOOK);
        };
        let mut said = String::new();
        self.lines.read_to_string(&mut said).map_err(|error| format!("{}: {error}", self.name))?;
        if !status.success() {
            let errors = self.errors();
            return Err(format!("{} ended with {status}{errors}", self.name));
        }
        serde_json::from_str(&said).map(Some).map_err(|error| format!("{} said {said:?}: {error}", self.name))
    }

    /// What it has said on standard error, once it has ended.
    fn errors(&mut self) -> String {
        // What is killed already can't be killed.
        let _ = self.child.kill();
        let mut said = String::new();
        match self.child.stderr.take().map(|mut errors| errors.read_to_string(&mut said)) {
            Some(Ok(_)) if !said.trim().is_empty() => format!(": {}", said.trim()),
            _ => String::new(),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
