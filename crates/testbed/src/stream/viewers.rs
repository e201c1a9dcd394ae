//! Viewers as processes, and what they say of themselves: one line a second, in JSON.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex, PoisonError};

use anabranch_control::time::Duration;
use anabranch_control::units::Rate;
use anabranch_lab::stream::Lie;
use anabranch_lab::stream::script::Arriving;
use anabranch_proto::stream::traffic::Traffic;
use serde::Deserialize;

use super::load::{self, Load};
use super::unix_s;
use crate::failure::TestbedFailure;

/// What a viewer is told to do: whoever runs a scenario makes a command of it.
#[derive(Clone, Debug)]
pub struct Viewing {
    /// The stream's link.
    pub link: String,
    /// Where it listens.
    pub listen: SocketAddr,
    /// What it says that it can send.
    pub upload: Rate,
    /// What its player holds.
    pub buffer: Duration,
    /// Its flow controller.
    pub controller: &'static str,
    /// What it does with others' packets.
    pub lie: Lie,
}

/// A line that a viewer says.
#[derive(Clone, Debug, Deserialize)]
pub struct Line {
    /// Since the viewer runs.
    pub uptime_s: f64,
    /// Of itself.
    pub here: Here,
    /// Packets that went to players since the last line, one in some, the first of all among them: number, and when
    /// in seconds since 1970.
    pub released: Vec<(u64, f64)>,
    /// Packets that players missed since the last line: the first, how many, and when.
    pub gaps: Vec<(u64, u64, f64)>,
    /// When slices stopped coming, since the viewer runs, and for how long; all so far.
    pub outages_s: Vec<(f64, f64)>,
}

/// A viewer's figures of itself.
#[derive(Clone, Debug, Deserialize)]
pub struct Here {
    /// Packets that were not the source's.
    pub forged_packets: u64,
    /// What it sends.
    pub upload: Upload,
}

/// What a viewer sends.
#[derive(Clone, Debug, Deserialize)]
pub struct Upload {
    /// What it can send, as it has measured.
    pub capacity_bits_per_s: Option<f64>,
    /// What it has sent since it runs.
    pub by_kind: SentByKind,
}

/// What a viewer has sent, in bytes, by what it is for.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub struct SentByKind {
    packets: u64,
    manifests: u64,
    maps: u64,
    wants: u64,
    gossip: u64,
    messages: u64,
    /// All that is QUIC's own.
    transport: u64,
}

impl From<SentByKind> for Traffic {
    fn from(by_kind: SentByKind) -> Traffic {
        let SentByKind { packets, manifests, maps, wants, gossip, messages, transport } = by_kind;
        Traffic { packets, manifests, maps, wants, gossip, messages, acks: transport, ..Traffic::default() }
    }
}

/// A viewer's process. It is killed when this is dropped, and ends by itself a second or two after we are killed: it
/// writes to a pipe that nobody reads.
#[derive(Debug)]
pub struct Viewer {
    pub arriving: Arriving,
    /// When it came, in seconds since 1970.
    pub began: f64,
    /// Whether it is no more.
    pub is_dead: bool,
    /// All that it said.
    pub said: Vec<Line>,
    /// What it needed of processors.
    pub load: Load,
    child: Child,
    lines: Receiver<Line>,
    complaint: Arc<Mutex<String>>,
}

impl Drop for Viewer {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Viewer {
    /// Starts `command`, where this is called.
    pub fn start(mut command: Command, arriving: Arriving) -> Result<Viewer, TestbedFailure> {
        let failed = |doing: &str| TestbedFailure::sockets(format!("{doing} viewer {}", arriving.node));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let began = unix_s();
        let mut child = command.spawn().map_err(failed("start"))?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let (sender, lines) = mpsc::channel();
        let complaint: Arc<Mutex<String>> = Arc::default();
        let viewer = Viewer {
            arriving,
            began,
            is_dead: false,
            said: Vec::new(),
            load: Load::default(),
            child,
            lines,
            complaint: Arc::clone(&complaint),
        };
        // Both end with the process.
        let thread = std::thread::Builder::new().name("lines of a viewer".into());
        let listen = move || {
            let lines = stdout.into_iter().flat_map(|stdout| BufReader::new(stdout).lines().map_while(Result::ok));
            for line in lines.filter_map(|line| serde_json::from_str(&line).ok()) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        };
        thread.spawn(listen).map_err(failed("listen to"))?;
        let thread = std::thread::Builder::new().name("complaints of a viewer".into());
        let listen = move || {
            let lines = stderr.into_iter().flat_map(|stderr| BufReader::new(stderr).lines().map_while(Result::ok));
            for line in lines {
                *complaint.lock().unwrap_or_else(PoisonError::into_inner) = line;
            }
        };
        thread.spawn(listen).map_err(failed("listen to"))?;
        Ok(viewer)
    }

    /// Takes what it has said. It must not have ended.
    pub fn hear(&mut self) -> Result<(), TestbedFailure> {
        self.said.extend(self.lines.try_iter());
        if !self.is_dead
            && let Some(status) = self.child.try_wait().map_err(TestbedFailure::sockets("look after a viewer"))?
        {
            let complaint = self.complaint.lock().unwrap_or_else(PoisonError::into_inner);
            let node = self.arriving.node;
            return Err(TestbedFailure::Scenario(format!("viewer {node} has ended by itself ({status}): {complaint}")));
        }
        Ok(())
    }

    /// Notes what it has needed of processors so far.
    pub fn look(&mut self) {
        if !self.is_dead
            && let Some(load) = load::of(self.child.id())
        {
            self.load = load;
        }
    }

    /// Kills it, without a word to it (SIGKILL).
    pub fn kill(&mut self) -> Result<(), TestbedFailure> {
        self.look();
        self.child.kill().map_err(TestbedFailure::sockets("kill a viewer"))?;
        self.is_dead = true;
        Ok(())
    }
}
