//! One run: the audience comes, the source sends, some die, and it is measured.

use std::collections::BTreeMap;
use std::sync::Arc;

use anabranch_control::flow::registry::Setup;
use anabranch_control::rng::Rng;
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::{Bytes, Rate};
use anabranch_proto::session::{FlowSessions, Packet, PeerKey, SessionConfig};
use anabranch_proto::stream::buffer::BufferConfig;
use anabranch_proto::stream::client::{Client, ClientConfig};
use anabranch_proto::stream::content::{Broadcast, ClientId};
use anabranch_proto::stream::enabler::EnablerConfig;
use anabranch_proto::stream::exploration::ExplorationConfig;
use anabranch_proto::stream::feeds::Feed;
use anabranch_proto::stream::message::{Datagram, Message, Mode};
use anabranch_proto::stream::on_wire;
use anabranch_proto::stream::packet::MAX_PACKET;
use anabranch_proto::stream::peer::StreamPeer;
use anabranch_proto::stream::server::{MOST_OF_NETWORK, Server, ServerConfig};
use anabranch_proto::stream::tracker::TrackerConfig;
use anabranch_proto::stream::tree::Moves;
use anabranch_scenario::stream::{OPENING, StreamScenario};
use anabranch_sim::access::{Access, AccessConfig, AccessLinks, Direction};
use anabranch_sim::agenda::Agenda;
use anabranch_sim::fabric::NodeId;

use super::content::{Simulated, SimulatedPacket};
use super::error::StreamRunError;
use super::liar::{Lie, Viewer};
use super::measuring::{Measuring, StreamMeasured, StreamMetrics, Watched, quantile};
use super::script::{Act, Arriving, KEYFRAMES, Script, counts_from, delays, link, links};
use super::trees::Trees;
use super::viewers::{Death, Monitored, ViewerMeasured};
use crate::monitor::Monitor;
#[cfg(test)]
use crate::soak::planted;
use crate::world::{AsTheyAre, World};

/// What a player misses of its buffer when a hole is given up.
const MARGIN: Duration = Duration::from_millis(300);

/// Within this, once a player holds all that it waits for, a viewer that can get anything has got some: longer than
/// any path.
const TO_DELIVER: Duration = Duration::from_millis(10_000);

/// How finely it is looked when slices are back.
const LOOK: Duration = Duration::from_millis(10);

/// How long it is looked for slices that do not come back.
const LOOKED: Duration = Duration::from_millis(10_000);

type Payload = Packet<Message<u32, Simulated>, Datagram<Simulated>>;

/// The world of a stream.
type StreamWorld = World<FlowSessions<Viewer>, Access<Payload>, AsTheyAre, Measuring>;

pub(super) const SERVER: NodeId = NodeId(0);

fn key_of(node: u32) -> PeerKey {
    let mut key = [0; 32];
    key[..4].copy_from_slice(&node.to_be_bytes());
    PeerKey(key)
}

/// What happens besides what machines do.
#[derive(Clone, Copy, Debug)]
enum Cue {
    Packet,
    /// The next act of the script.
    Audience,
    /// It is looked which slices have come back.
    Look,
    /// What is measured counts from now on.
    Count,
}

/// A clone is a snapshot that goes on as the original would.
#[derive(Clone)]
pub(super) struct Stage {
    pub(super) scenario: Arc<StreamScenario>,
    pub(super) world: StreamWorld,
    /// Viewers of one network at most.
    most_of_network: usize,
    /// What is measured counts from then on.
    counted_from: Time,
    so_far: SoFar,
}

/// What is to come, and what has happened.
#[derive(Clone, Default)]
struct SoFar {
    cues: Agenda<Cue>,
    script: std::vec::IntoIter<(Time, Act)>,
    packets: u64,
    next_keyframe: Time,
    killed: u64,
    killed_at: Time,
    /// Viewers and slices whose parent has died, and up to where it had pushed.
    waiting: Vec<(NodeId, u8, u64)>,
    slices_back: Vec<f64>,
    /// Bytes that each node had sent when what is measured began to count.
    sent_before: Vec<u64>,
    /// Who left or died, and when; by node.
    dead: BTreeMap<NodeId, (Option<ClientId>, Time)>,
    monitored: Vec<Monitored>,
}

/// Runs `scenario` until its end, or until `monitor` interrupts it.
///
/// # Errors
///
/// When a whole run delivers nothing, though the first viewer had [`TO_DELIVER`] beyond what its player holds.
///
/// # Panics
///
/// If its controller refuses its parameters, which whoever makes a scenario has to check.
pub fn run(scenario: &StreamScenario, monitor: &dyn Monitor) -> Result<StreamMeasured, StreamRunError> {
    let look = |sent, peers: Vec<Seen<'_>>| (sent, peers.iter().filter(|peer| peer.let_in.is_some()).count());
    let (measured, (sent, let_in)) = run_and_look(scenario, monitor, look);
    let is_whole = measured.metrics.simulated >= scenario.duration;
    let had_time = OPENING + scenario.stream.buffer + TO_DELIVER <= scenario.duration;
    if is_whole && had_time && measured.seconds.iter().all(|second| second.played == 0) {
        return Err(StreamRunError::NothingDelivered {
            controller: scenario.stream.controller.name,
            length: scenario.duration,
            sent,
            viewers: measured.viewers.len(),
            let_in,
        });
    }
    Ok(measured)
}

/// The same where it is asked whether anything is delivered, so that nothing is a result too.
///
/// # Panics
///
/// As [`run`].
pub fn measure(scenario: &StreamScenario, monitor: &dyn Monitor) -> StreamMeasured {
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
    #[cfg(test)]
    if planted::is_any() {
        stage.plant();
    }
    let watched = &stage.world.observer().watched;
    let peers = stage.world.nodes().map(|(node, sessions)| Seen {
        peer: sessions.app().peer(),
        let_in: watched.get(&node.0).and_then(|watched| watched.let_in),
        is_honest: watched.get(&node.0).is_some_and(|watched| watched.is_honest),
        sessions: sessions.sessions(),
    });
    let seen = look(stage.so_far.packets, peers.collect());
    (stage.measured(), seen)
}

impl Stage {
    pub(super) fn new(scenario: &StreamScenario) -> Stage {
        Stage::limited(scenario, MOST_OF_NETWORK)
    }

    /// Where a network has this many viewers at most.
    fn limited(scenario: &StreamScenario, most_of_network: usize) -> Stage {
        let audience = &scenario.audience;
        let links =
            AccessLinks { up: link("up", audience.upload.mean(), 0.0), down: link("down", audience.download, 0.0) };
        let access = AccessConfig { delay: delays(audience), jitter: 0.0, links };
        let fabric = Access::new(access, audience.clients + 1, scenario.seed);
        let mut stage = Stage {
            world: World::new(fabric, AsTheyAre, Measuring::of(scenario), ()),
            most_of_network,
            counted_from: counts_from(scenario),
            so_far: SoFar::default(),
            scenario: Arc::new(scenario.clone()),
        };
        stage.begin();
        stage
    }

    /// Back to the beginning, with what chance is with `seed`.
    pub(super) fn reset(&mut self, seed: u64) {
        Arc::make_mut(&mut self.scenario).seed = seed;
        self.world.reset(seed);
        *self.world.observer_mut() = Measuring::of(&self.scenario);
        self.so_far = SoFar::default();
        self.begin();
    }

    /// The server is there, and all is planned.
    fn begin(&mut self) {
        let Script(acts) = Script::of(&self.scenario);
        let times: Vec<Time> = acts.iter().map(|(at, _)| *at).collect();
        self.so_far.script = acts.into_iter();
        self.join_server();
        self.cue(self.counted_from, Cue::Count);
        self.cue(Time::ZERO, Cue::Packet);
        times.into_iter().for_each(|at| self.cue(at, Cue::Audience));
    }

    fn cue(&mut self, at: Time, cue: Cue) {
        self.so_far.cues.add(at, cue);
    }

    fn buffer(&self) -> BufferConfig {
        let stream = &self.scenario.stream;
        let patience = Duration::from_nanos(stream.buffer.as_nanos().saturating_sub(MARGIN.as_nanos()));
        // What players hold, and as much again that others may want.
        let packets = stream.bitrate * (stream.buffer * 2);
        let capacity = (packets.get() / MAX_PACKET as u64) as usize + 64;
        BufferConfig { patience, capacity }
    }

    fn join(&mut self, peer: StreamPeer<u32, Simulated>, lie: Lie, links: AccessLinks, upload: Rate) -> NodeId {
        let number = self.world.len() as u32;
        self.world.fabric_mut().set_next(links);
        let rng = Rng::indexed(self.scenario.seed, "peer", u64::from(number));
        let stream = &self.scenario.stream;
        let setup = Setup::new(Bytes::new(MAX_PACKET as u64), self.world.now()).on_line_of(upload).shared();
        let controller = stream.controller.make(&setup, &stream.parameters).expect("its parameters were checked");
        let viewer = Viewer::new(peer, lie, Rng::indexed(self.scenario.seed, "lie", u64::from(number)));
        let config = SessionConfig::default();
        // A server has room for all who come, and for others in the place of those who have gone without a word.
        let most_sessions = match number {
            0 => config.most_sessions.max(2 * self.scenario.audience.clients + 16),
            _ => config.most_sessions,
        };
        let config = SessionConfig { most_sessions, ..config };
        #[cfg(test)]
        let config = planted::stream_sessions(config);
        self.world.join(FlowSessions::new(viewer, config, key_of(number), controller, &rng))
    }

    fn join_server(&mut self) {
        let (scenario, most_of_network) = (Arc::clone(&self.scenario), self.most_of_network);
        let StreamScenario { stream, audience, .. } = &*scenario;
        let tracker = TrackerConfig {
            slices: stream.slices,
            moves: if stream.mode == Mode::Trees { Moves::PRINTED } else { Moves::ALL },
            upload: audience.server_upload,
            reserve: 0.1,
            silence: Duration::from_millis(10_000),
            has_backups: stream.mode == Mode::Hybrid,
            most_clients: 2 * audience.clients + 16,
        };
        // So far behind the edge a whole GOP is there, if keyframes are a second apart.
        let begin_behind = stream.buffer.min(KEYFRAMES);
        let share = stream.exploration();
        let config = ServerConfig {
            broadcast: Broadcast::default(),
            mode: stream.mode,
            tracker,
            most_of_network,
            begin_behind,
            buffer: self.buffer(),
            exploration: (share > 0.0).then(|| ExplorationConfig { share, ..ExplorationConfig::default() }),
            helper: self.scenario.helper.map(|helper| EnablerConfig::between(helper.least, helper.most)),
        };
        let rng = Rng::stream(self.scenario.seed, "server");
        let server = Server::new(config, key_of(0), Time::ZERO, rng);
        let rate = audience.server_upload;
        let links = AccessLinks { up: link("up", rate, 0.0), down: link("down", rate, 0.0) };
        let node = self.join(StreamPeer::Server(server), Lie::None, links, rate);
        debug_assert_eq!(node, SERVER);
    }

    fn join_client(&mut self, arriving: &Arriving) {
        let Arriving { node, upload, claimed, lie, is_honest } = *arriving;
        let links = links(&self.scenario.audience, upload);
        let config = ClientConfig { server: SERVER.0, source: key_of(0), upload: claimed, buffer: self.buffer() };
        let joined = self.join(StreamPeer::Client(Client::new(config)), lie, links, claimed);
        debug_assert_eq!(joined.0, node, "nodes are numbered as they come");
        let watched = Watched { joined: self.world.now(), is_honest, ..Default::default() };
        self.world.observer_mut().watched.insert(node, watched);
    }

    fn play(&mut self, monitor: &dyn Monitor) {
        self.play_until(Time::ZERO + self.scenario.duration, monitor);
    }

    /// At the end, the trees' books are wrong, or viewers have forgotten all that they played, if that is planted: the
    /// trees look at themselves in builds for tests, so that no error lives for long.
    #[cfg(test)]
    fn plant(&mut self) {
        let buffer = self.buffer();
        let nodes: Vec<NodeId> = self.world.nodes().map(|(node, _)| node).collect();
        for node in nodes {
            self.world.act(node, |sessions, now, out| {
                sessions.act(now, out, |viewer, _| match viewer.peer_mut() {
                    StreamPeer::Server(server) => planted::miscount(server),
                    StreamPeer::Client(client) => {
                        let upload = Rate::LOWEST;
                        let config = ClientConfig { server: SERVER.0, source: key_of(0), upload, buffer };
                        planted::forget(client, config);
                    }
                });
            });
        }
    }

    /// Goes on until `end`, unless `monitor` interrupts it.
    pub(super) fn play_until(&mut self, end: Time, monitor: &dyn Monitor) {
        let whole = self.world.now().as_nanos() / Duration::SECOND.as_nanos();
        let mut next_second = Time::ZERO + Duration::SECOND * (whole + 1);
        while self.so_far.cues.next_at().is_some_and(|at| at < end) {
            if monitor.is_interrupted() {
                return;
            }
            let Some((at, cue)) = self.so_far.cues.take() else { break };
            self.world.step(at);
            while at >= next_second {
                monitor.on_second();
                self.note_monitored(next_second);
                next_second += Duration::SECOND;
            }
            match cue {
                Cue::Packet => self.send_packet(at),
                Cue::Count => self.so_far.sent_before = self.sent(),
                Cue::Audience => match self.so_far.script.next() {
                    Some((_, Act::Join(arriving))) => self.join_client(&arriving),
                    Some((_, Act::Leave(node))) => self.bury(at, NodeId(node)),
                    Some((_, Act::Kill(nodes))) => self.kill(at, &nodes),
                    None => unreachable!("there is a cue for each act"),
                },
                Cue::Look => self.look(at),
            }
        }
        self.world.step(end);
        self.world.debug_assert_no_late_timers();
        while next_second <= end {
            monitor.on_second();
            next_second += Duration::SECOND;
        }
    }

    fn server(&self) -> &Server<u32, Simulated> {
        match self.world.node(SERVER).map(|server| server.app().peer()) {
            Some(StreamPeer::Server(server)) => server,
            _ => unreachable!("node 0 is the server, which never leaves"),
        }
    }

    /// What the server has found by gossip, and what there really is.
    fn note_monitored(&mut self, at: Time) {
        let server = self.server();
        let Some(mean) = server.monitored() else { return };
        let helper = server.tracker().upload();
        let watched = &self.world.observer().watched;
        let here = watched.keys().filter(|&&node| !self.so_far.dead.contains_key(&NodeId(node)));
        let upload =
            |&node: &u32| self.scenario.audience.upload.of(u64::from(node) - 1, self.scenario.seed).bytes_per_sec();
        let (viewers, all) = here.fold((0, 0.0), |(viewers, all), node| (viewers + 1, all + upload(node)));
        let mean_of_lines = Rate::from_bytes_per_sec_f64((all + helper.bytes_per_sec()) / f64::from(viewers + 1));
        let surplus = server.advice().map(|advice| advice.surplus);
        self.so_far.monitored.push(Monitored { at, mean, mean_of_lines, helper, surplus });
    }

    fn send_packet(&mut self, now: Time) {
        let is_keyframe = now >= self.so_far.next_keyframe;
        if is_keyframe {
            self.so_far.next_keyframe += KEYFRAMES;
        }
        self.world.act(SERVER, |sessions, now, out| {
            sessions.act(now, out, |viewer, _| {
                let StreamPeer::Server(server) = viewer.peer_mut() else { unreachable!("node 0 is the server") };
                server.on_input(now, SimulatedPacket { is_genuine: true }, is_keyframe);
            });
        });
        self.world.observer_mut().sent.push(now);
        self.so_far.packets += 1;
        let interval = Bytes::new(MAX_PACKET as u64) / self.scenario.stream.bitrate;
        self.cue(now + interval, Cue::Packet);
    }

    pub(super) fn client(&self, node: NodeId) -> Option<&Client<u32, Simulated>> {
        match self.world.node(node)?.app().peer() {
            StreamPeer::Client(client) => Some(client),
            StreamPeer::Server(_) => None,
        }
    }

    /// A viewer is gone, without a word.
    pub(super) fn bury(&mut self, now: Time, node: NodeId) {
        let client = self.client(node).and_then(Client::id);
        if self.world.leave(node).is_some() {
            self.so_far.dead.insert(node, (client, now));
        }
    }

    /// Bytes that each node has sent, with all headers.
    fn sent(&self) -> Vec<u64> {
        (0..self.world.len() as u32).map(|node| self.world.fabric().count(NodeId(node), Direction::Up).bytes).collect()
    }

    fn viewers(&self) -> Vec<ViewerMeasured> {
        let (end, watched) = (self.world.now(), &self.world.observer().watched);
        let sent = self.sent();
        let viewer = |(&node, watched): (&u32, &Watched)| {
            let number = node as usize;
            let death = self.so_far.dead.get(&NodeId(node)).map(|&(_, at)| at);
            let from = watched.joined.max(self.counted_from);
            let span = death.unwrap_or(end).since(from);
            let bytes = sent[number] - self.so_far.sent_before.get(number).copied().unwrap_or(0);
            ViewerMeasured {
                upload: self.scenario.audience.upload.of(u64::from(node) - 1, self.scenario.seed),
                sent: Rate::from_bytes_per_sec_f64(bytes as f64 / span.as_secs_f64().max(1e-9)),
                span,
                played: watched.counted_played,
                skipped: watched.counted_skipped,
                stayed: death.is_none(),
            }
        };
        watched.iter().map(viewer).collect()
    }

    /// Of those whom the server had let in, and had not sent away before.
    fn deaths(&self) -> Vec<Death> {
        let removed = &self.world.observer().removed;
        let death = |&(client, at): &(Option<ClientId>, Time)| {
            let removed = removed.get(&client?).copied();
            removed.is_none_or(|removed| removed >= at).then_some(Death { at, removed })
        };
        self.so_far.dead.values().filter_map(death).collect()
    }

    /// Some die; from now on it is looked how long it takes until their children get what they got from
    /// them.
    fn kill(&mut self, now: Time, nodes: &[u32]) {
        let mut dead: Vec<ClientId> = Vec::new();
        for &node in nodes {
            dead.extend(self.client(NodeId(node)).and_then(Client::id));
            self.bury(now, NodeId(node));
        }
        let alive: Vec<NodeId> = self.world.nodes().map(|(node, _)| node).filter(|&node| node != SERVER).collect();
        self.so_far.killed += nodes.len() as u64;
        self.so_far.killed_at = now;
        let mut waiting = Vec::new();
        for &node in &alive {
            let Some(client) = self.client(node) else { continue };
            let fed_by_dead = (0..self.scenario.stream.slices)
                .filter(|&slice| matches!(client.feed(slice), Feed::Client(parent) if dead.contains(&parent)));
            waiting.extend(fed_by_dead.map(|slice| (node, slice, client.pushed(slice).0)));
        }
        self.so_far.waiting = waiting;
        self.cue(now + LOOK, Cue::Look);
    }

    /// Notes which slices are back: two packets, so that it is none that the dead had sent. Who leaves
    /// meanwhile waits no more.
    fn look(&mut self, now: Time) {
        let since = now.since(self.so_far.killed_at);
        let mut waiting = std::mem::take(&mut self.so_far.waiting);
        let mut back = 0;
        waiting.retain(|&(node, slice, before)| {
            let Some(client) = self.client(node) else { return false };
            let is_back = client.pushed(slice).0 > before + 2 * u64::from(self.scenario.stream.slices);
            back += usize::from(is_back);
            !is_back
        });
        self.so_far.waiting = waiting;
        self.so_far.slices_back.extend(std::iter::repeat_n(since.as_secs_f64(), back));
        if since < LOOKED && !self.so_far.waiting.is_empty() {
            self.cue(now + LOOK, Cue::Look);
        }
    }

    pub(super) fn measured(mut self) -> StreamMeasured {
        // What is not back counts as the longest time.
        self.so_far.slices_back.extend(self.so_far.waiting.iter().map(|_| LOOKED.as_secs_f64()));
        let (viewers, deaths) = (self.viewers(), self.deaths());
        let server_bytes = self.world.fabric().count(SERVER, Direction::Up).bytes;
        let all_bytes: u64 = self.sent().into_iter().sum();
        let tracker = self.server().tracker();
        let (parent_changes, trees) =
            (tracker.parent_changes(), Trees::of(tracker, usize::from(self.scenario.stream.slices)));
        let (explorations, monitored) = (self.server().explorations(), std::mem::take(&mut self.so_far.monitored));
        let simulated = self.world.now().since(Time::ZERO);
        let observed = self.world.observer_mut();
        let got: u64 = observed.watched.values().map(|watched| watched.played).sum();
        let after = |of: fn(&Watched) -> Option<Time>| -> Vec<f64> {
            let watched = observed.watched.values();
            watched.filter_map(|watched| Some(of(watched)?.since(watched.joined).as_secs_f64())).collect()
        };
        let (mut startup, mut first) = (after(|watched| watched.started), after(|watched| watched.first));
        let mut let_in = after(|watched| watched.let_in);
        let due = observed.honest_played + observed.honest_skipped;
        let useful = got as f64 * on_wire::PACKET as f64;
        let overhead = observed.traffic.overhead(all_bytes, useful);
        let metrics = StreamMetrics {
            simulated,
            clients: observed.watched.len() as u64,
            started: startup.len() as u64,
            killed: self.so_far.killed,
            delivered_percent: 100.0 * observed.honest_played as f64 / due as f64,
            skipped_packets: observed.honest_skipped,
            savings_percent: 100.0 * (1.0 - server_bytes as f64 / (got as f64 * MAX_PACKET as f64).max(1.0)),
            startup_p95_s: quantile(&mut startup, 0.95),
            startup_p50_s: quantile(&mut startup, 0.5),
            let_in_p95_s: quantile(&mut let_in, 0.95),
            first_packet_p95_s: quantile(&mut first, 0.95),
            latency_p95_s: observed.delays.quantile(0.95) + self.scenario.stream.buffer.as_secs_f64(),
            release_p50_s: observed.delays.quantile(0.5),
            release_p95_s: observed.delays.quantile(0.95),
            slices_back_p99_s: if self.so_far.slices_back.is_empty() {
                0.0
            } else {
                quantile(&mut self.so_far.slices_back, 0.99)
            },
            overhead_percent: overhead.all,
            server_bytes,
            source_bytes: self.so_far.packets * MAX_PACKET as u64,
            forged_packets: observed.forged,
            parent_changes,
            overhead: Some(overhead),
            silent_feeds: Some(observed.silent),
            overloaded: Some(observed.overloaded),
            packet_hops: observed.packet_hops,
        };
        let (seconds, delays) = (std::mem::take(&mut observed.seconds), observed.delays.classes());
        StreamMeasured { metrics, seconds, delays, trees, viewers, deaths, explorations, monitored }
    }
}

#[cfg(test)]
mod flooding;

#[cfg(test)]
mod tests {
    use anabranch_control::flow::registry;
    use anabranch_scenario::stream::Rates;

    use super::super::script::QUEUE;
    use super::*;
    use crate::soak::streams::draw;

    fn small(duration_ms: u64) -> StreamScenario {
        let mut scenario =
            StreamScenario { duration: Duration::from_millis(duration_ms), ..StreamScenario::standard() };
        (scenario.audience.clients, scenario.audience.arrival) = (8, Duration::SECOND);
        scenario
    }

    #[test]
    fn what_full_queues_drop_is_no_part_of_what_left() {
        let mut scenario = small(10_000);
        scenario.stream.controller = registry::find("fixed").unwrap();
        // A window of several times what the queues hold.
        scenario.stream.parameters = toml::from_str("window = 400").unwrap();
        scenario.audience.upload = Rates::InTurn(vec![Rate::from_bits_per_sec(2_000_000)]);
        scenario.audience.server_upload = Rate::from_bits_per_sec(3_000_000);
        let mut stage = Stage::new(&scenario);
        stage.play_until(Time::ZERO + scenario.duration, &());
        let nodes = (0..stage.world.len() as u32).map(NodeId);
        let dropped: u64 = nodes.map(|node| stage.world.fabric().count(node, Direction::Up).dropped).sum();
        let traffic = stage.world.observer().traffic;
        let (counted, left) = (traffic.packets + traffic.beside_packets(), stage.sent().iter().sum::<u64>());
        // What waits at the end is in the queues of nine lines.
        let waits = (Rate::from_bits_per_sec(19_000_000) * QUEUE).get() + 9 * 1500;
        assert!(dropped > 500 && left <= counted && counted - left <= waits, "{dropped}: {counted} {left} {waits}");
        assert!(stage.measured().metrics.overhead.unwrap().repeated > 0.0);
    }

    #[test]
    fn of_viewers_for_whom_nothing_was_due_nobody_says_how_much_came() {
        let mut scenario = small(8000);
        scenario.liars.free_riders = 1.0;
        let mut stage = Stage::new(&scenario);
        stage.play_until(Time::ZERO + scenario.duration, &());
        let metrics = stage.measured().metrics;
        assert!(metrics.delivered_percent.is_nan(), "{}", metrics.delivered_percent);
        assert_eq!(crate::finished::Metrics::to_map(&metrics)["delivered_percent"], serde_json::Value::Null);
    }

    #[test]
    fn a_snapshot_goes_on_as_the_original_does_and_may_be_gone_back_to() {
        // Drawn: all modes, with viewers who come, go, die and lie.
        let mut hops = 0;
        for seed in 1..=6 {
            let scenario = draw(seed);
            let (middle, end) = (Time::from_secs_f64(10.0), Time::from_secs_f64(15.0));
            let mut stage = Stage::new(&scenario);
            stage.play_until(middle, &());
            let snapshot = stage.clone();
            stage.play_until(end, &());
            let original = stage.measured();
            hops += original.metrics.packet_hops;
            for _ in 0..2 {
                let mut copy = snapshot.clone();
                copy.play_until(end, &());
                // Debug's form: where nothing was measured, a number is no number.
                assert!(format!("{:?}", copy.measured()) == format!("{original:?}"), "{seed}");
            }
        }
        assert!(hops > 10_000, "{hops} packets have passed");
    }
}
