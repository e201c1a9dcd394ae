//! One run: the audience comes, the source sends, some die, and it is measured.

use std::collections::BTreeMap;

use anabranch_control::flow::registry::Setup;
use anabranch_control::rng::Rng;
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::{Bytes, Rate};
use anabranch_proto::session::{FlowSessions, Packet, PeerKey, SessionConfig};
use anabranch_proto::stream::buffer::BufferConfig;
use anabranch_proto::stream::client::{Client, ClientConfig};
use anabranch_proto::stream::content::ClientId;
use anabranch_proto::stream::feeds::Feed;
use anabranch_proto::stream::message::{Datagram, Message, Mode};
use anabranch_proto::stream::packet::MAX_PACKET;
use anabranch_proto::stream::peer::StreamPeer;
use anabranch_proto::stream::server::{Server, ServerConfig};
use anabranch_proto::stream::tracker::TrackerConfig;
use anabranch_proto::stream::tree::Moves;
use anabranch_scenario::stream::StreamScenario;
use anabranch_sim::access::{Access, AccessConfig, AccessLinks, Direction};
use anabranch_sim::delay::DelayModel;
use anabranch_sim::fabric::NodeId;
use anabranch_sim::loss::LossModel;
use anabranch_sim::network::{Capacity, Jitter, LinkConfig};
use anabranch_sim::varying::Course;

use super::content::{Simulated, SimulatedPacket};
use super::liar::{Lie, Viewer};
use super::measuring::{Measuring, PACKET_ON_WIRE, StreamMeasured, StreamMetrics, quantile};
use super::trees::Trees;
use crate::monitor::Monitor;
use crate::world::{AsTheyAre, World};

/// What a player misses of its buffer when a hole is given up.
const MARGIN: Duration = Duration::from_millis(300);

/// How long an uplink's or downlink's queue is: what homes have, and a tenth of what some had.
const QUEUE: Duration = Duration::from_millis(100);

/// When the audience begins to come: the server knows its stream by then.
const OPENING: Duration = Duration::from_millis(1000);

/// A keyframe comes so often.
const KEYFRAMES: Duration = Duration::from_millis(1000);

/// What liars who drop drop.
const DROPPED: f64 = 0.5;

/// How finely it is looked when slices are back.
const LOOK: Duration = Duration::from_millis(10);

/// How long it is looked for slices that do not come back.
const LOOKED: Duration = Duration::from_millis(10_000);

/// Delays are told in classes of this.
const DELAY_CLASS: Duration = Duration::from_millis(50);

type Payload = Packet<Message<u32, Simulated>, Datagram<Simulated>>;

/// The world of a stream.
type StreamWorld = World<FlowSessions<Viewer>, Access<Payload>, AsTheyAre, Measuring>;

const SERVER: NodeId = NodeId(0);

fn key_of(node: u32) -> PeerKey {
    let mut key = [0; 32];
    key[..4].copy_from_slice(&node.to_be_bytes());
    PeerKey(key)
}

/// What happens besides what machines do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Cue {
    Packet,
    Join,
    Leave(u32),
    Kill,
    /// It is looked which slices have come back.
    Look,
}

struct Stage<'a> {
    scenario: &'a StreamScenario,
    world: StreamWorld,
    cues: BTreeMap<(Time, u64), Cue>,
    order: u64,
    rng: Rng,
    packets: u64,
    next_keyframe: Time,
    killed: u64,
    killed_at: Time,
    /// Viewers and slices whose parent has died, and up to where it had pushed.
    waiting: Vec<(NodeId, u8, u64)>,
    slices_back: Vec<f64>,
}

/// Runs `scenario` until its end, or until `monitor` interrupts it.
///
/// # Panics
///
/// If its controller refuses its parameters, which whoever makes a scenario has to check.
pub fn run(scenario: &StreamScenario, monitor: &dyn Monitor) -> StreamMeasured {
    run_and_look(scenario, monitor, |_, _| ()).0
}

/// A peer at the end of a run.
#[derive(Debug)]
pub struct Seen<'a> {
    /// Server or viewer.
    pub peer: &'a StreamPeer<u32, Simulated>,
    /// Since when the server has let it in; none while it has not, or has sent it away.
    pub let_in: Option<Time>,
    /// Whether it tells the truth.
    pub is_honest: bool,
    /// Its sessions.
    pub sessions: usize,
}

/// The same, and what `look` makes of the number of packets that left the source, and of the peers that are there at
/// the end.
///
/// # Panics
///
/// As [`run`].
pub fn run_and_look<R>(
    scenario: &StreamScenario,
    monitor: &dyn Monitor,
    look: impl FnOnce(u64, Vec<Seen<'_>>) -> R,
) -> (StreamMeasured, R) {
    let mut stage = Stage::new(scenario);
    stage.play(monitor);
    let watched = &stage.world.observer().watched;
    let peers = stage.world.nodes().map(|(node, sessions)| Seen {
        peer: sessions.app().peer(),
        let_in: watched.get(&node.0).and_then(|watched| watched.let_in),
        is_honest: watched.get(&node.0).is_some_and(|watched| watched.is_honest),
        sessions: sessions.sessions(),
    });
    let seen = look(stage.packets, peers.collect());
    (stage.measured(), seen)
}

fn link(name: &str, rate: Rate, loss: f64) -> LinkConfig {
    LinkConfig {
        name: name.into(),
        rate: Some(Course::constant(rate)),
        delay: Course::constant(Duration::ZERO),
        capacity: Capacity::Time(QUEUE),
        discipline: None,
        loss: if loss > 0.0 { LossModel::Random(Course::constant(loss)) } else { LossModel::None },
        jitter: Jitter::NONE,
    }
}

impl Stage<'_> {
    fn new(scenario: &StreamScenario) -> Stage<'_> {
        let audience = &scenario.audience;
        let links =
            AccessLinks { up: link("up", audience.upload.mean(), 0.0), down: link("down", audience.download, 0.0) };
        let delay = DelayModel::Plane { span: audience.span, access: audience.access, stretch: 1.0 };
        let fabric = Access::new(AccessConfig { delay, jitter: 0.0, links }, audience.clients + 1, scenario.seed);
        let per_second = (scenario.stream.bitrate.bytes_per_sec() / MAX_PACKET as f64).ceil() as u64;
        let from = Time::ZERO + OPENING + audience.arrival;
        let world = World::new(fabric, AsTheyAre, Measuring::new(per_second, from), ());
        let mut stage = Stage {
            scenario,
            world,
            cues: BTreeMap::new(),
            order: 0,
            rng: Rng::stream(scenario.seed, "audience"),
            packets: 0,
            next_keyframe: Time::ZERO,
            killed: 0,
            killed_at: Time::ZERO,
            waiting: Vec::new(),
            slices_back: Vec::new(),
        };
        stage.join_server();
        stage.cue(Time::ZERO, Cue::Packet);
        for client in 0..audience.clients as u64 {
            let share = Duration::from_nanos(audience.arrival.as_nanos() * client / (audience.clients as u64).max(1));
            stage.cue(Time::ZERO + OPENING + share, Cue::Join);
        }
        if scenario.churn.kill_share > 0.0 {
            stage.cue(Time::ZERO + scenario.churn.kill_at, Cue::Kill);
        }
        stage
    }

    fn cue(&mut self, at: Time, cue: Cue) {
        self.order += 1;
        self.cues.insert((at, self.order), cue);
    }

    fn buffer(&self) -> BufferConfig {
        let stream = &self.scenario.stream;
        let patience = Duration::from_nanos(stream.buffer.as_nanos().saturating_sub(MARGIN.as_nanos()));
        // What players hold, and as much again that others may want.
        let packets = stream.bitrate * (stream.buffer * 2);
        BufferConfig { patience, capacity: (packets.get() / MAX_PACKET as u64) as usize + 64 }
    }

    fn join(&mut self, peer: StreamPeer<u32, Simulated>, lie: Lie, up: Rate, down: Rate, loss: f64) -> NodeId {
        let number = self.world.len() as u32;
        let links = AccessLinks { up: link("up", up, 0.0), down: link("down", down, loss) };
        self.world.fabric_mut().set_next(links);
        let rng = Rng::indexed(self.scenario.seed, "peer", u64::from(number));
        let stream = &self.scenario.stream;
        let setup = Setup::new(Bytes::new(MAX_PACKET as u64), self.world.now());
        let controller = (stream.controller.build)(&setup, &stream.parameters).expect("its parameters were checked");
        let viewer = Viewer::new(peer, lie, Rng::indexed(self.scenario.seed, "lie", u64::from(number)));
        self.world.join(FlowSessions::new(viewer, SessionConfig::default(), key_of(number), controller, &rng))
    }

    fn join_server(&mut self) {
        let StreamScenario { stream, audience, .. } = self.scenario;
        let tracker = TrackerConfig {
            slices: stream.slices,
            moves: if stream.mode == Mode::Trees { Moves::PRINTED } else { Moves::ALL },
            upload: audience.server_upload,
            reserve: 0.1,
            silence: Duration::from_millis(10_000),
            has_backups: stream.mode == Mode::Hybrid,
            most_clients: 2 * audience.clients + 16,
        };
        // What a newcomer begins with is waited for as long as any hole, by its age: it needs the other half
        // of that time to come.
        let begin_behind = Duration::from_nanos(stream.buffer.as_nanos() / 2);
        let config = ServerConfig { mode: stream.mode, tracker, begin_behind, buffer: self.buffer() };
        let rng = Rng::stream(self.scenario.seed, "server");
        let server = Server::new(config, key_of(0), Time::ZERO, rng);
        let node =
            self.join(StreamPeer::Server(server), Lie::None, audience.server_upload, audience.server_upload, 0.0);
        debug_assert_eq!(node, SERVER);
    }

    fn join_client(&mut self) {
        let StreamScenario { audience, liars, churn, .. } = self.scenario;
        let number = self.world.len();
        let upload = audience.upload.of(number as u64 - 1, self.scenario.seed);
        // One draw decides what somebody is, so that shares add up.
        let draw = self.rng.uniform();
        let mut threshold = 0.0;
        let mut is = |share: f64| {
            let before = threshold;
            threshold += share;
            (before..threshold).contains(&draw)
        };
        let (free_rides, claims, drops, poisons) =
            (is(liars.free_riders), is(liars.claimers), is(liars.droppers), is(liars.poisoners));
        let lie = match (free_rides, drops, poisons) {
            (true, _, _) => Lie::FreeRider,
            (_, true, _) => Lie::Drops(DROPPED),
            (_, _, true) => Lie::Poisons,
            _ => Lie::None,
        };
        let factor = if claims { liars.claim_factor } else { 1.0 };
        let claimed = Rate::from_bytes_per_sec_f64(upload.bytes_per_sec() * factor);
        let config = ClientConfig { server: SERVER.0, source: key_of(0), upload: claimed, buffer: self.buffer() };
        let (download, loss) = (audience.download, audience.loss);
        let node = self.join(StreamPeer::Client(Client::new(config)), lie, upload, download, loss);
        let watched = super::measuring::Watched {
            joined: self.world.now(),
            is_honest: lie == Lie::None && !claims,
            ..Default::default()
        };
        self.world.observer_mut().watched.insert(node.0, watched);
        if let Some(mean) = churn.mean_stay {
            // Exponential: who stays long stays longer.
            let stay = -mean.as_secs_f64() * libm::log(1.0 - self.rng.uniform());
            self.cue(self.world.now() + Duration::from_secs_f64(stay), Cue::Leave(node.0));
        }
    }

    fn play(&mut self, monitor: &dyn Monitor) {
        let end = Time::ZERO + self.scenario.duration;
        let mut next_second = Time::ZERO + Duration::SECOND;
        while let Some((&(at, order), &cue)) = self.cues.first_key_value() {
            if at >= end {
                break;
            }
            if monitor.is_interrupted() {
                return;
            }
            self.cues.remove(&(at, order));
            self.world.step(at);
            while at >= next_second {
                monitor.on_second();
                next_second += Duration::SECOND;
            }
            match cue {
                Cue::Packet => self.send_packet(at),
                Cue::Join => self.join_client(),
                Cue::Leave(node) => {
                    if self.world.leave(NodeId(node)).is_some() {
                        self.cue(at, Cue::Join);
                    }
                }
                Cue::Kill => self.kill(at),
                Cue::Look => self.look(at),
            }
        }
        self.world.step(end);
        while next_second <= end {
            monitor.on_second();
            next_second += Duration::SECOND;
        }
    }

    fn send_packet(&mut self, now: Time) {
        let is_keyframe = now >= self.next_keyframe;
        if is_keyframe {
            self.next_keyframe += KEYFRAMES;
        }
        self.world.act(SERVER, |sessions, now, out| {
            sessions.act(now, out, |viewer, _| {
                let StreamPeer::Server(server) = viewer.peer_mut() else { unreachable!("node 0 is the server") };
                server.on_input(now, SimulatedPacket { is_genuine: true }, is_keyframe);
            });
        });
        self.world.observer_mut().sent.push(now);
        self.packets += 1;
        let interval = Bytes::new(MAX_PACKET as u64) / self.scenario.stream.bitrate;
        self.cue(now + interval, Cue::Packet);
    }

    fn client(&self, node: NodeId) -> Option<&Client<u32, Simulated>> {
        match self.world.node(node)?.app().peer() {
            StreamPeer::Client(client) => Some(client),
            StreamPeer::Server(_) => None,
        }
    }

    /// Some die; from now on it is looked how long it takes until their children get what they got from
    /// them.
    fn kill(&mut self, now: Time) {
        let mut alive: Vec<NodeId> = self.world.nodes().map(|(node, _)| node).filter(|&node| node != SERVER).collect();
        let count = (alive.len() as f64 * self.scenario.churn.kill_share).round() as usize;
        let mut dead: Vec<ClientId> = Vec::new();
        for _ in 0..count {
            let node = alive.swap_remove(self.rng.below(alive.len()));
            dead.extend(self.client(node).and_then(Client::id));
            self.world.leave(node);
        }
        self.killed += count as u64;
        self.killed_at = now;
        let mut waiting = Vec::new();
        for &node in &alive {
            let Some(client) = self.client(node) else { continue };
            let fed_by_dead = (0..self.scenario.stream.slices)
                .filter(|&slice| matches!(client.feed(slice), Feed::Client(parent) if dead.contains(&parent)));
            waiting.extend(fed_by_dead.map(|slice| (node, slice, client.pushed(slice).0)));
        }
        self.waiting = waiting;
        self.cue(now + LOOK, Cue::Look);
    }

    /// Notes which slices are back: two packets, so that it is none that the dead had sent. Who leaves
    /// meanwhile waits no more.
    fn look(&mut self, now: Time) {
        let since = now.since(self.killed_at);
        let mut waiting = std::mem::take(&mut self.waiting);
        let mut back = 0;
        waiting.retain(|&(node, slice, before)| {
            let Some(client) = self.client(node) else { return false };
            let is_back = client.pushed(slice).0 > before + 2 * u64::from(self.scenario.stream.slices);
            back += usize::from(is_back);
            !is_back
        });
        self.waiting = waiting;
        self.slices_back.extend(std::iter::repeat_n(since.as_secs_f64(), back));
        if since < LOOKED && !self.waiting.is_empty() {
            self.cue(now + LOOK, Cue::Look);
        }
    }

    fn measured(mut self) -> StreamMeasured {
        // What is not back counts as the longest time.
        self.slices_back.extend(self.waiting.iter().map(|_| LOOKED.as_secs_f64()));
        let server_bytes = self.world.fabric().count(SERVER, Direction::Up).bytes;
        let all_bytes: u64 =
            (0..self.world.len() as u32).map(|node| self.world.fabric().count(NodeId(node), Direction::Up).bytes).sum();
        let (parent_changes, trees) = match self.world.node(SERVER).map(|server| server.app().peer()) {
            Some(StreamPeer::Server(server)) => {
                let tracker = server.tracker();
                (tracker.parent_changes(), Trees::of(tracker, usize::from(self.scenario.stream.slices)))
            }
            _ => unreachable!("node 0 is the server, which never leaves"),
        };
        let simulated = self.world.now().since(Time::ZERO);
        let observed = self.world.observer_mut();
        let got: u64 = observed.watched.values().map(|watched| watched.played).sum();
        let mut startup: Vec<f64> = observed
            .watched
            .values()
            .filter_map(|watched| watched.started.map(|started| started.since(watched.joined).as_secs_f64()))
            .collect();
        let due = observed.honest_played + observed.honest_skipped;
        let useful = got as f64 * PACKET_ON_WIRE;
        let metrics = StreamMetrics {
            simulated,
            clients: observed.watched.len() as u64,
            started: startup.len() as u64,
            killed: self.killed,
            delivered_percent: 100.0 * observed.honest_played as f64 / (due as f64).max(1.0),
            skipped_packets: observed.honest_skipped,
            savings_percent: 100.0 * (1.0 - server_bytes as f64 / (got as f64 * MAX_PACKET as f64).max(1.0)),
            startup_p95_s: quantile(&mut startup, 0.95),
            latency_p95_s: observed.delay(0.95).map_or(f64::NAN, |delay| delay.as_secs_f64())
                + self.scenario.stream.buffer.as_secs_f64(),
            slices_back_p99_s: if self.slices_back.is_empty() { 0.0 } else { quantile(&mut self.slices_back, 0.99) },
            overhead_percent: 100.0 * (all_bytes as f64 - useful) / useful.max(1.0),
            server_bytes,
            source_bytes: self.packets * MAX_PACKET as u64,
            forged_packets: observed.forged,
            parent_changes,
            sent: observed.sent_by_kind,
            silent_feeds: observed.silent,
            overloaded: observed.overloaded,
            packet_hops: observed.packet_hops,
        };
        let (seconds, delays) = (std::mem::take(&mut observed.seconds), observed.delay_classes(DELAY_CLASS));
        StreamMeasured { metrics, seconds, delays, trees }
    }
}
