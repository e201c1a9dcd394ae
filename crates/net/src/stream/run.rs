//! The thread of a peer that runs.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anabranch_control::time::{Duration, Time};
use anabranch_control::units::{Bytes, Rate};
use anabranch_proto::session::{Closed, PeerKey};
use anabranch_proto::stream::buffer::Release;
use anabranch_proto::stream::client::{Client, ClientEvent};
use anabranch_proto::stream::feeds;
use anabranch_proto::stream::message::StreamInfo;
use anabranch_proto::stream::overlay::ServerLoad;
use anabranch_proto::stream::peer::{StreamEvent, StreamPeer};
use anabranch_proto::stream::server::{Server, ServerEvent};
use anabranch_proto::stream::traffic::Traffic;
use tokio::sync::mpsc::error::TryRecvError;
use tokio::sync::{mpsc, watch};

use super::content::Signed;
use super::events::{NodeEvent, Peer, Video};
use super::outages::Outages;
use super::snapshot::{Feed, NOTHING_COMES, Role, ServerFigures, Snapshot, State};
use super::tally::Tally;
use crate::runtime::Runtime;
use crate::sessions::Sent;

/// How often figures are published.
const PERIOD: Duration = Duration::from_millis(1000);

/// How often a viewer looks for slices that have stopped.
const LOOK: Duration = Duration::from_millis(50);

/// How long goodbyes may take to leave.
const GOODBYE: Duration = Duration::from_millis(50);

/// Packets of video that are taken before sockets are served again.
const PORTION: usize = 64;

/// What the application says to the thread.
#[derive(Clone, Debug, Default)]
pub(super) struct Flags {
    pub is_stopped: Arc<AtomicBool>,
    /// Somebody looks at a page.
    pub is_looked_at: Arc<AtomicBool>,
}

/// Bytes of the headers of IPv4 and UDP.
const HEADERS: u64 = 28;

pub(super) struct Running {
    runtime: Runtime<Peer>,
    key: PeerKey,
    limit: Option<Rate>,
    input: Option<mpsc::Receiver<Video>>,
    events: mpsc::Sender<NodeEvent>,
    snapshots: watch::Sender<Snapshot>,
    flags: Flags,
    state: State,
    stream: Option<StreamInfo>,
    forged: u64,
    played: Played,
    /// Of packets that the application did not take: the first, and how many.
    gap: Option<(u64, u64)>,
    untaken: u64,
    source: (u64, u64),
    tally: Tally,
    /// When figures were published last, and what had been sent until then.
    last_figures: (Time, u64),
    outages: Outages,
}

impl Running {
    pub fn new(
        runtime: Runtime<Peer>,
        key: PeerKey,
        limit: Option<Rate>,
        input: Option<mpsc::Receiver<Video>>,
        events: mpsc::Sender<NodeEvent>,
        flags: Flags,
    ) -> (Running, watch::Receiver<Snapshot>) {
        let is_server = input.is_some();
        let state = if is_server { State::Live } else { State::Connecting };
        let snapshot = Snapshot {
            role: if is_server { Role::Server } else { Role::Viewer },
            uptime: Duration::ZERO,
            key,
            state: state.clone(),
            mode: None,
            slices: None,
            bitrate: None,
            client: None,
            played_packets: 0,
            skipped_packets: 0,
            forged_packets: 0,
            delay: None,
            received_bytes: 0,
            sent_bytes: 0,
            sent_packets: 0,
            sent_by_kind: Traffic::default(),
            lost_bytes: 0,
            download: Rate::ZERO,
            upload: Rate::ZERO,
            capacity: None,
            upload_limit: limit,
            window_bytes: 0,
            in_flight_bytes: 0,
            server_share: None,
            sessions: 0,
            children: 0,
            feeds: Vec::new(),
            children_by_slice: Vec::new(),
            is_private: false,
            is_alone: false,
            too_long: 0,
            narrowest: None,
            narrow_sessions: 0,
            outages: Vec::new(),
            untaken_packets: 0,
            server: None,
            overlay: None,
        };
        let (snapshots, receiver) = watch::channel(snapshot);
        let running = Running {
            runtime,
            key,
            limit,
            input,
            events,
            snapshots,
            flags,
            state,
            stream: None,
            forged: 0,
            played: Played::default(),
            gap: None,
            untaken: 0,
            source: (0, 0),
            tally: Tally::default(),
            last_figures: (Time::ZERO, 0),
            outages: Outages::default(),
        };
        (running, receiver)
    }

    pub fn run(mut self) -> io::Result<()> {
        let mut next = self.runtime.now();
        let mut next_look = next;
        while !self.flags.is_stopped.load(Ordering::Relaxed) {
            let now = self.runtime.now();
            if now >= next {
                next = now + PERIOD;
                self.publish_figures(now);
            }
            if now >= next_look {
                next_look = now + LOOK;
                self.look_for_outages(now);
                if self.flags.is_looked_at.swap(false, Ordering::Relaxed) {
                    self.act(|app, now| {
                        if let StreamPeer::Client(client) = app {
                            client.look(now);
                        }
                    });
                }
            }
            let has_more = self.take_video();
            self.runtime.turn(if has_more { now } else { next.min(next_look) })?;
            while let Some((_, event)) = self.runtime.poll_event() {
                self.on_event(event);
            }
        }
        self.runtime.act(0, |peer, now, port| peer.close_all(now, port));
        let end = self.runtime.now() + GOODBYE;
        self.runtime.run_until(end)
    }

    fn act(&mut self, act: impl FnOnce(&mut StreamPeer<std::net::SocketAddr, Signed>, Time)) {
        self.runtime.act(0, |peer, now, port| peer.act(now, port, |app, _| act(app.peer_mut(), now)));
    }

    fn look_for_outages(&mut self, now: Time) {
        let (StreamPeer::Client(client), Some(stream)) = (self.runtime.machine(0).app().peer(), &self.stream) else {
            return;
        };
        if stream.mode.has_trees() {
            self.outages.look(now, stream.slices, |slice| client.pushed(slice));
        }
    }

    /// Takes a portion of the video that waits; whether there may be more.
    fn take_video(&mut self) -> bool {
        let Running { runtime, input, source, .. } = self;
        let Some(videos) = input else { return false };
        for _ in 0..PORTION {
            let video = match videos.try_recv() {
                Ok(video) => video,
                Err(TryRecvError::Empty) => return false,
                Err(TryRecvError::Disconnected) => {
                    // Nothing comes any more; those who watch are served on.
                    *input = None;
                    return false;
                }
            };
            *source = (source.0 + video.bytes.len() as u64, source.1 + 1);
            runtime.act(0, |peer, now, port| {
                peer.act(now, port, |app, _| {
                    if let StreamPeer::Server(server) = app.peer_mut() {
                        server.on_input(now, video.bytes, video.is_entry_point);
                    }
                });
            });
        }
        true
    }

    fn on_event(&mut self, event: StreamEvent<Arc<[u8]>>) {
        let event = match event {
            StreamEvent::Client(event) => self.of_client(event),
            StreamEvent::Server(ServerEvent::Joined(client)) => NodeEvent::Joined(client.0),
            StreamEvent::Server(ServerEvent::Refused(refusal)) => NodeEvent::Refused(refusal),
            StreamEvent::Server(ServerEvent::Left(client, was_silent)) => {
                NodeEvent::Left { client: client.0, was_silent }
            }
            StreamEvent::Server(ServerEvent::Excluded(client)) => NodeEvent::Excluded(client.0),
            StreamEvent::Server(ServerEvent::LeftOut(client)) => NodeEvent::LeftOut(client.0),
        };
        self.notify(event);
    }

    fn of_client(&mut self, event: ClientEvent<Arc<[u8]>>) -> NodeEvent {
        match event {
            ClientEvent::Welcomed(info) => {
                if self.stream.is_some_and(|before| before.broadcast != info.broadcast) {
                    self.notify(NodeEvent::Restarted);
                }
                (self.state, self.stream) = (State::Live, Some(info));
                self.played.at = self.runtime.now();
                NodeEvent::Welcomed(info)
            }
            ClientEvent::Overloaded => {
                self.state = State::Overloaded;
                NodeEvent::Overloaded
            }
            ClientEvent::Unreachable => {
                let why = why(self.runtime.machine(0).last_end()).to_owned();
                self.state = State::Unreachable(why.clone());
                NodeEvent::Unreachable(why)
            }
            ClientEvent::Release(Release::Packet(id, bytes)) => NodeEvent::Packet { number: id.0, bytes },
            ClientEvent::Release(Release::Skipped(id, packets)) => NodeEvent::Gap { number: id.0, packets },
            ClientEvent::Silent(feed) => {
                NodeEvent::Silent { slice: feed.slice, parent: feed.parent.map(|parent| parent.0) }
            }
            ClientEvent::Forged(client) => {
                self.forged += 1;
                NodeEvent::Forged(client.map(|client| client.0))
            }
        }
    }

    /// Notifies the application, if it has room; of packets for which it had none, as soon as it has.
    fn notify(&mut self, event: NodeEvent) {
        if let Some((number, packets)) = self.gap
            && self.events.try_send(NodeEvent::Gap { number, packets }).is_ok()
        {
            self.gap = None;
        }
        let (number, packets, is_here) = match event {
            NodeEvent::Packet { number, .. } => (number, 1, true),
            NodeEvent::Gap { number, packets } => (number, packets, false),
            // What is handed over late is so in its order, or not at all.
            _ if self.gap.is_some() => return,
            _ => {
                let _ = self.events.try_send(event);
                return;
            }
        };
        if self.gap.is_none() && self.events.try_send(event).is_ok() {
            return;
        }
        self.untaken += u64::from(is_here);
        let (first, before) = self.gap.unwrap_or((number, 0));
        self.gap = Some((first, before + packets));
    }

    fn publish_figures(&mut self, now: Time) {
        let peer = self.runtime.machine(0);
        let before = self.tally.received;
        let key = self.key;
        self.tally.count(peer.open_sessions().map(|(session, remote, traffic)| (session, remote.key == key, traffic)));
        let state = match peer.app().peer() {
            StreamPeer::Client(client) if self.state == State::Live => self.played.look(now, client),
            _ => self.state.clone(),
        };
        let (last_at, sent_before) = std::mem::replace(&mut self.last_figures, (now, peer.sent().bytes));
        let span = now.since(last_at).as_secs_f64().max(1e-3);
        let rate = |bytes: u64| Rate::from_bytes_per_sec_f64(bytes as f64 / span);
        let (all_sent, (_, _, lost)) = (peer.sent(), peer.totals());
        let Tally { received, from_server, too_long, narrowest, narrow_sessions, .. } = self.tally;
        let mut snapshot = Snapshot {
            uptime: now.since(Time::ZERO),
            state,
            forged_packets: self.forged,
            received_bytes: received,
            sent_bytes: all_sent.bytes,
            sent_packets: all_sent.packets,
            sent_by_kind: by_kind(peer.app().traffic(), all_sent),
            lost_bytes: lost.get(),
            download: rate(received - before),
            upload: rate(all_sent.bytes - sent_before),
            upload_limit: self.limit,
            window_bytes: peer.limits().window.get(),
            in_flight_bytes: peer.in_flight().get(),
            sessions: peer.sessions(),
            untaken_packets: self.untaken,
            too_long,
            narrowest,
            narrow_sessions,
            ..self.snapshots.borrow().clone()
        };
        match peer.app().peer() {
            StreamPeer::Server(server) => of_server(now, server, self.source, &mut snapshot),
            StreamPeer::Client(client) => {
                snapshot.server_share = (received > 0).then(|| from_server as f64 / received as f64);
                of_viewer(now, client, self.stream.as_ref(), &mut snapshot);
                snapshot.outages = self.outages.all(now);
            }
        }
        let load = ServerLoad {
            sent: snapshot.upload,
            sent_bytes: snapshot.sent_bytes + HEADERS * snapshot.sent_packets,
            source_bytes: self.source.0,
        };
        // Somebody may look at it later.
        self.snapshots.send_replace(snapshot);
        self.act(|app, _| {
            if let StreamPeer::Server(server) = app {
                server.set_load(load);
            }
        });
    }
}

/// What has gone to a viewer's players.
#[derive(Clone, Copy, Debug, Default)]
struct Played {
    /// How many packets, and how many they missed, as of the last look.
    packets: u64,
    skipped: u64,
    /// When more had come, or the server let the viewer in.
    at: Time,
}

impl Played {
    fn look(&mut self, now: Time, client: &Client<std::net::SocketAddr, Signed>) -> State {
        self.state(now, client.played(), client.skipped(), client.patience() + NOTHING_COMES)
    }

    /// How a viewer is that was let in, for whose players so many packets came, and so many did not, and that is silent
    /// when none came for `most`.
    fn state(&mut self, now: Time, packets: u64, skipped: u64, most: Duration) -> State {
        if packets > self.packets {
            self.at = now;
        }
        let (span, is_missed) = (now.since(self.at), skipped > self.skipped);
        (self.packets, self.skipped) = (packets, skipped);
        if span < most { State::Live } else { State::Silent { span, is_missed } }
    }
}

/// What has left by kind: what is left over is QUIC's own.
fn by_kind(known: Traffic, all: Sent) -> Traffic {
    let all = all.bytes + HEADERS * all.packets;
    Traffic { acks: all.saturating_sub(known.packets + known.beside_packets()), ..known }
}

/// Why the server is not reached.
fn why(end: Option<Closed>) -> &'static str {
    match end {
        Some(Closed::Refused) => {
            "the server has another key than the link says, speaks another protocol, or takes no more sessions; check the link"
        }
        Some(Closed::TimedOut) => "nobody answers at the link's address",
        Some(Closed::ByPeer) => "the server has ended the session",
        Some(Closed::Misused) => "the server has sent what no server sends",
        None => "no session with the server can begin",
    }
}

fn of_viewer(now: Time, client: &Client<std::net::SocketAddr, Signed>, stream: Option<&StreamInfo>, to: &mut Snapshot) {
    to.mode = stream.map(|stream| stream.mode);
    to.slices = stream.map(|stream| stream.slices);
    to.bitrate = stream.map(|stream| stream.bitrate);
    to.client = client.id().map(|client| client.0);
    to.played_packets = client.played();
    to.skipped_packets = client.skipped();
    to.children = client.children();
    to.capacity = client.capacity();
    let feed = |slice| match client.feed(slice) {
        feeds::Feed::None => Feed::None,
        feeds::Feed::Server => Feed::Server(client.feed_state(slice)),
        feeds::Feed::Client(parent) => Feed::Client(parent.0, client.feed_state(slice)),
    };
    let slices = 0..stream.map_or(0, |stream| stream.slices);
    to.feeds = slices.clone().map(feed).collect();
    to.children_by_slice = slices.map(|slice| client.children_of(slice).map(|child| child.0).collect()).collect();
    to.is_private = stream.is_some_and(|stream| stream.is_private);
    to.is_alone = client.is_private();
    to.overlay = client.overlay().map(|(at, view)| (now.since(at), view.clone()));
    to.delay = client.receiving().and_then(|receiving| receiving.delay(now));
}

fn of_server(
    now: Time,
    server: &Server<std::net::SocketAddr, Signed>,
    (source_bytes, source_packets): (u64, u64),
    to: &mut Snapshot,
) {
    let before = to.server.as_ref().map_or(0, |server| server.source_bytes);
    let came = source_bytes.saturating_sub(before);
    to.mode = Some(server.mode());
    to.slices = Some(server.slices());
    to.bitrate = (came > 0).then(|| Rate::from_bytes_per_sec_f64(Bytes::new(came).get() as f64 / PERIOD.as_secs_f64()));
    to.children = server.children();
    to.played_packets = source_packets;
    to.is_private = server.tracker().is_private();
    let parent_changes = server.tracker().parent_changes();
    to.server = Some(ServerFigures { source_bytes, source_packets, parent_changes });
    to.overlay = Some((Duration::ZERO, server.overlay(now)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_viewer_for_whom_nothing_comes_any_more_is_silent_until_it_does() {
        let at = |seconds: u64| Time::ZERO + Duration::SECOND * seconds;
        let mut played = Played { at: at(10), ..Played::default() };
        let mut state = |seconds, packets, skipped| played.state(at(seconds), packets, skipped, Duration::SECOND * 5);
        let silent = |seconds, is_missed| State::Silent { span: Duration::SECOND * seconds, is_missed };
        assert_eq!(state(11, 0, 0), State::Live, "it was let in only now");
        assert_eq!(state(15, 0, 0), silent(5, false));
        assert_eq!(state(16, 100, 0), State::Live);
        assert_eq!(state(20, 100, 0), State::Live);
        assert_eq!(state(21, 100, 0), silent(5, false), "it has played before");
        assert_eq!(state(22, 100, 7), silent(6, true));
        assert_eq!(state(23, 101, 7), State::Live);
    }
}
