//! A stream's scenario on real packets: a server and viewers that are processes of their own, each in a network
//! namespace behind links of its own, by the script that a simulation follows.
//!
//! ```text
//! packets at the bitrate --> server --QUIC--> viewer --QUIC--> viewer ...    a namespace and a process each
//! ```
//!
//! What the server sends is counted by the kernel at its device; what viewers got and missed, they log; delays are
//! between the logs of both ends, by one machine's clock. Whoever dies gets a SIGKILL.

mod homes;
mod load;
mod measure;
mod source;
mod viewers;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use anabranch_control::time::{Duration, Time};
use anabranch_control::units::Rate;
use anabranch_lab::monitor::Monitor;
use anabranch_lab::stream::StreamMeasured;
use anabranch_lab::stream::script::{Act, Script};
use anabranch_net::clock::{Clock, std_duration};
use anabranch_net::sessions::identity::PeerIdentity;
use anabranch_net::stream::{NodeEvent, ServeOptions, StreamNode};
use anabranch_scenario::stream::StreamScenario;

use homes::Home;
pub use homes::MOST_HOMES;
pub use load::Load;
use viewers::Viewer;
pub use viewers::{Line, Viewing};

use crate::emulator::Report;
use crate::failure::TestbedFailure;
use crate::{LONGEST_WAIT, emulator};

/// The server's port.
const PORT: u16 = 7443;

/// After the end, until viewers have said all: they speak once a second.
const LAST_LINES: Duration = Duration::from_millis(1500);

/// Processes that wait longer for a processor, on average, each time that they have something to do, are late by what
/// they would not be on machines of their own.
pub const LONGEST_MEAN_WAIT: Duration = Duration::from_millis(3);

/// What a run on real packets gave.
#[derive(Debug)]
pub struct StreamOnPackets {
    /// What viewers got, in the types of a simulation.
    pub measured: StreamMeasured,
    /// What the emulator did, and whether it could.
    pub emulator: Report,
    /// What the viewers' processes had of processors, and waited for them.
    pub load: Load,
    /// What each viewer found out that it can send.
    pub uploads: Vec<ReportedUpload>,
}

/// A viewer's measurement of its upload, against its line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReportedUpload {
    /// Which viewer.
    pub node: u32,
    /// Its line.
    pub line: Rate,
    /// Since the viewer runs, and what it reported then; none before it knew.
    pub first: Option<(Duration, Rate)>,
    /// The last that it reported.
    pub last: Option<Rate>,
}

impl StreamOnPackets {
    /// Why the figures are not those of the scenario's links and peers; nothing if they are.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = self.emulator.warnings();
        let wait = self.load.mean_wait();
        if wait > LONGEST_MEAN_WAIT {
            warnings.push(format!(
                "viewers waited {:.1} ms for a processor each time on average; {LONGEST_MEAN_WAIT} is the most at \
                 which their delays are the stream's",
                wait.as_millis_f64()
            ));
        }
        warnings
    }
}

/// Now, in seconds since 1970: by this clock viewers log.
fn unix_s() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

/// Runs `scenario` on real packets, in real time, until its end or until `monitor` interrupts it. `command` says how
/// a viewer is started.
pub fn run(
    scenario: &StreamScenario,
    monitor: &dyn Monitor,
    command: &dyn Fn(&Viewing) -> Command,
) -> Result<StreamOnPackets, TestbedFailure> {
    check(scenario)?;
    let script = Script::of(scenario);
    let clock = Clock::start();
    let (mut homes, emulator) = homes::build(scenario, &script, clock)?;
    let listen: SocketAddr = (homes[0].address, PORT).into();
    let options = ServeOptions {
        mode: scenario.stream.mode,
        slices: scenario.stream.slices,
        controller: scenario.stream.controller.name.to_owned(),
        buffer: scenario.stream.buffer,
        most_clients: 2 * scenario.audience.clients + 16,
        // Homes are next to each other here.
        most_of_network: 2 * scenario.audience.clients + 16,
        ..ServeOptions::new(listen, PeerIdentity::generate(), scenario.audience.server_upload)
    };
    let (node, video, mut events) =
        homes[0].run(|| StreamNode::serve(options))?.map_err(|error| TestbedFailure::Scenario(error.to_string()))?;
    // Networks and the server stand: the stream begins.
    let begun = clock.now();
    let stop = AtomicBool::new(false);
    let shown = Shown { scenario, link: node.link().to_string(), command };
    let (sent, played) = std::thread::scope(|scope| {
        let source = scope.spawn(|| source::feed(scenario, &video, begun, clock, &stop));
        let played = (|| {
            let mut viewers = BTreeMap::new();
            let mut acts = script.0.iter().peekable();
            let mut second = begun + Duration::SECOND;
            let end = begun + scenario.duration;
            while clock.now() < end && !monitor.is_interrupted() {
                if emulator.has_ended() || source.is_finished() && clock.now() + Duration::SECOND < end {
                    break;
                }
                while let Some((_, act)) = acts.next_if(|(at, _)| begun + at.since(Time::ZERO) <= clock.now()) {
                    shown.act(act, &homes, &mut viewers)?;
                }
                viewers.values_mut().try_for_each(Viewer::hear)?;
                while events.try_recv().is_ok_and(|event| !matches!(event, NodeEvent::Packet { .. })) {}
                if clock.now() >= second {
                    second += Duration::SECOND;
                    monitor.on_second();
                }
                let next = acts.peek().map_or(end, |(at, _)| begun + at.since(Time::ZERO));
                std::thread::sleep(std_duration(next.since(clock.now())).min(LONGEST_WAIT));
            }
            Ok::<_, TestbedFailure>(viewers)
        })();
        stop.store(true, Ordering::Relaxed);
        let sent = source.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        (sent, played)
    });
    let (mut viewers, sent) = (played?, sent?);
    let ended = unix_s();
    let length = clock.now().since(begun).min(scenario.duration);
    let sent_bytes: Result<Vec<u64>, TestbedFailure> = homes.iter_mut().map(Home::sent_bytes).collect();
    let snapshot = node.snapshot();
    let (server_traffic, server) = (snapshot.sent_by_kind, snapshot.server.unwrap_or_default());
    let parent_changes = server.parent_changes;
    if !monitor.is_interrupted() {
        let last = clock.now() + LAST_LINES;
        while clock.now() < last {
            std::thread::sleep(LONGEST_WAIT);
            viewers.values_mut().try_for_each(Viewer::hear)?;
        }
    }
    let alive: BTreeSet<u32> = viewers.iter().filter(|(_, viewer)| !viewer.is_dead).map(|(node, _)| *node).collect();
    viewers.values_mut().filter(|viewer| !viewer.is_dead).try_for_each(Viewer::kill)?;
    node.stop().map_err(TestbedFailure::sockets("stop the server"))?;
    let emulator = emulator.stop()?;
    let sent_bytes = sent_bytes?;
    let seen = measure::Seen { sent, ended, length, sent_bytes, parent_changes, server_traffic, viewers, alive };
    Ok(seen.measured(scenario, &script, emulator))
}

/// What viewers are started with.
struct Shown<'a> {
    scenario: &'a StreamScenario,
    link: String,
    command: &'a dyn Fn(&Viewing) -> Command,
}

impl Shown<'_> {
    fn act(&self, act: &Act, homes: &[Home], viewers: &mut BTreeMap<u32, Viewer>) -> Result<(), TestbedFailure> {
        match act {
            Act::Join(arriving) => {
                let home = &homes[arriving.node as usize];
                let viewing = Viewing {
                    link: self.link.clone(),
                    listen: (home.address, 0).into(),
                    upload: arriving.claimed,
                    buffer: self.scenario.stream.buffer,
                    controller: self.scenario.stream.controller.name,
                    lie: arriving.lie,
                };
                let command = (self.command)(&viewing);
                let viewer = home.run(|| Viewer::start(command, *arriving))??;
                viewers.insert(arriving.node, viewer);
                Ok(())
            }
            Act::Leave(node) => viewers.get_mut(node).map_or(Ok(()), Viewer::kill),
            Act::Kill(nodes) => {
                let mut dying = nodes.iter();
                dying.try_for_each(|node| viewers.get_mut(node).map_or(Ok(()), Viewer::kill))
            }
        }
    }
}

/// Refuses what real viewers do not do.
/// Whether `scenario` can run with real peers here.
///
/// # Errors
///
/// What it asks for that they cannot do, or what the system does not allow.
pub fn check(scenario: &StreamScenario) -> Result<(), TestbedFailure> {
    emulator::testbed_available().map_err(TestbedFailure::Scenario)?;
    if !scenario.stream.parameters.is_empty() {
        return Err(TestbedFailure::Scenario(
            "stream.parameters: a viewer's controller has its own defaults on real packets; take them out".into(),
        ));
    }
    if scenario.stream.exploration() > 0.0 {
        return Err(TestbedFailure::Scenario(
            "stream.exploration: a real server does not explore its viewers by packets yet, and with mode = \"trees\" a \
             scenario does unless it says otherwise; expected stream.exploration = 0"
                .into(),
        ));
    }
    if scenario.helper.is_some() {
        return Err(TestbedFailure::Scenario("[helper]: a real server has none yet; take it out".into()));
    }
    let liars = &scenario.liars;
    if liars.free_riders + liars.droppers + liars.poisoners > 0.0 {
        return Err(TestbedFailure::Scenario(
            "[liars]: on real packets viewers can claim too much, and not lie otherwise; expected claimers alone"
                .into(),
        ));
    }
    Ok(())
}
