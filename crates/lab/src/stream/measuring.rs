//! What viewers got, when, and what it took.

use std::collections::BTreeMap;

use anabranch_control::time::{Duration, Time};
use anabranch_proto::machine::Machine;
use anabranch_proto::session::FlowSessions;
use anabranch_proto::stream::buffer::Release;
use anabranch_proto::stream::client::ClientEvent;
use anabranch_proto::stream::content::ClientId;
use anabranch_proto::stream::exploration::Explorations;
use anabranch_proto::stream::peer::StreamEvent;
use anabranch_proto::stream::server::ServerEvent;
use anabranch_proto::stream::traffic::{Overhead, Traffic};
use anabranch_scenario::stream::StreamScenario;
use anabranch_sim::fabric::NodeId;

use super::delays::ReleaseDelays;
use super::liar::Viewer;
use super::script::{counts_from, packets_per_second};
use super::trees::Trees;
use super::viewers::{Death, Monitored, ViewerMeasured};
use crate::world::{Observer, Transit};

/// What a viewer has got.
#[derive(Clone, Debug, Default)]
pub(super) struct Watched {
    pub joined: Time,
    pub is_honest: bool,
    /// Since when the server has let it in; none while it has not, or has sent it away.
    pub let_in: Option<Time>,
    /// When the first packet went to its player.
    pub first: Option<Time>,
    /// When a keyframe's second of the stream was whole.
    pub started: Option<Time>,
    pub played: u64,
    pub skipped: u64,
    /// The same, of the time that counts.
    pub counted_played: u64,
    pub counted_skipped: u64,
}

/// Sees what happens.
#[derive(Clone, Debug)]
pub(super) struct Measuring {
    /// Packets in a second of the stream.
    per_second: u64,
    /// When each packet left the source.
    pub sent: Vec<Time>,
    pub watched: BTreeMap<u32, Watched>,
    pub delays: ReleaseDelays,
    pub seconds: Vec<StreamSecond>,
    /// From when on it counts, and until when.
    from: Time,
    /// Packets that went to players in that time, and that did not.
    pub played: u64,
    pub skipped: u64,
    /// Of those who tell the truth.
    pub honest_played: u64,
    pub honest_skipped: u64,
    pub overloaded: u64,
    pub forged: u64,
    pub silent: u64,
    /// What went to lines and had room there, by kind.
    pub traffic: Traffic,
    pub packet_hops: u64,
    /// When the server has removed whom.
    pub removed: BTreeMap<ClientId, Time>,
}

impl Measuring {
    /// Of a run of `scenario`.
    pub fn of(scenario: &StreamScenario) -> Measuring {
        Measuring {
            per_second: packets_per_second(scenario),
            sent: Vec::new(),
            watched: BTreeMap::new(),
            delays: ReleaseDelays::default(),
            seconds: Vec::new(),
            from: counts_from(scenario),
            played: 0,
            skipped: 0,
            honest_played: 0,
            honest_skipped: 0,
            overloaded: 0,
            forged: 0,
            silent: 0,
            traffic: Traffic::default(),
            packet_hops: 0,
            removed: BTreeMap::new(),
        }
    }

    fn set_let_in(&mut self, node: NodeId, let_in: Option<Time>) {
        if let Some(watched) = self.watched.get_mut(&node.0) {
            watched.let_in = let_in;
        }
    }

    fn on_release<P>(&mut self, now: Time, node: u32, release: &Release<P>) {
        let Some(watched) = self.watched.get_mut(&node) else { return };
        let counts = now >= self.from;
        let index = (now.as_nanos() / Duration::SECOND.as_nanos()) as usize;
        if self.seconds.len() <= index {
            self.seconds.resize_with(index + 1, StreamSecond::default);
        }
        let second = &mut self.seconds[index];
        match release {
            Release::Packet(id, _) => {
                watched.played += 1;
                watched.first.get_or_insert(now);
                second.played += 1;
                if watched.started.is_none() && watched.played >= self.per_second {
                    watched.started = Some(now);
                }
                if counts {
                    watched.counted_played += 1;
                    self.played += 1;
                    self.honest_played += u64::from(watched.is_honest);
                    if let Some(&sent) = self.sent.get(id.0 as usize)
                        && watched.started.is_some_and(|started| started < now)
                    {
                        self.delays.note(now.since(sent));
                    }
                }
            }
            Release::Skipped(_, count) => {
                watched.skipped += count;
                second.skipped += count;
                if counts {
                    watched.counted_skipped += count;
                    self.skipped += count;
                    self.honest_skipped += if watched.is_honest { *count } else { 0 };
                }
            }
        }
    }
}

/// Has `change` count the bytes of `packet` by kind.
#[inline]
fn count(traffic: &mut Traffic, packet: &<FlowSessions<Viewer> as Machine>::Message, change: impl Fn(&mut u64, u64)) {
    let size = u64::from(packet.size());
    if packet.is_ack_alone() {
        return change(&mut traffic.acks, size);
    }
    let acks = u64::from(packet.ack_length());
    change(&mut traffic.acks, acks);
    let kind = match packet.datagram() {
        Some(datagram) => traffic.of_datagram(datagram),
        None if packet.has_messages() => &mut traffic.messages,
        None => &mut traffic.sessions,
    };
    change(kind, size - acks);
}

impl Observer<FlowSessions<Viewer>> for Measuring {
    #[inline]
    fn on_sent(&mut self, _: Time, _: NodeId, _: NodeId, packet: &<FlowSessions<Viewer> as Machine>::Message) {
        count(&mut self.traffic, packet, |kind, bytes| *kind += bytes);
    }

    /// The queue of the line was full: uplinks lose nothing else here.
    #[inline]
    fn on_lost(&mut self, _: Time, _: NodeId, packet: &<FlowSessions<Viewer> as Machine>::Message) {
        count(&mut self.traffic, packet, |kind, bytes| *kind -= bytes);
    }

    #[inline]
    fn on_arrival(&mut self, _: Time, _: Transit, _: &<FlowSessions<Viewer> as Machine>::Message) {
        self.packet_hops += 1;
    }

    fn on_event(&mut self, now: Time, node: NodeId, event: <FlowSessions<Viewer> as Machine>::Event) {
        match event {
            StreamEvent::Client(ClientEvent::Release(release)) => self.on_release(now, node.0, &release),
            StreamEvent::Client(ClientEvent::Welcomed(_)) => self.set_let_in(node, Some(now)),
            StreamEvent::Client(ClientEvent::Unreachable) => self.set_let_in(node, None),
            StreamEvent::Client(ClientEvent::Overloaded) => {
                self.overloaded += 1;
                self.set_let_in(node, None);
            }
            StreamEvent::Client(ClientEvent::Silent(_)) => self.silent += 1,
            StreamEvent::Client(ClientEvent::Forged(_)) => self.forged += 1,
            StreamEvent::Server(
                ServerEvent::Left(client, _) | ServerEvent::LeftOut(client) | ServerEvent::Excluded(client),
            ) => {
                self.removed.insert(client, now);
            }
            _ => {}
        }
    }
}

/// What became of the stream in one second, over all viewers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamSecond {
    /// Packets that went to players.
    pub played: u64,
    /// Packets that players missed.
    pub skipped: u64,
}

/// What happened in a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StreamMeasured {
    /// What that says.
    pub metrics: StreamMetrics,
    /// Each second of the run.
    pub seconds: Vec<StreamSecond>,
    /// From the source to the release: upper end of each class in seconds, and packets in it.
    pub delays: Vec<(f64, u64)>,
    /// The trees at the end.
    pub trees: Trees,
    /// Each viewer that came, in the order in which they did.
    pub viewers: Vec<ViewerMeasured>,
    /// Those who left or died, unannounced.
    pub deaths: Vec<Death>,
    /// What became of exploration packets; none where nothing is explored.
    pub explorations: Option<Explorations>,
    /// What the server knew by gossip, where it did.
    pub monitored: Vec<Monitored>,
}

/// What a run has measured.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StreamMetrics {
    /// How long the stream ran: less than was asked for if it was interrupted.
    pub simulated: Duration,
    /// Viewers that came, those in the place of others included.
    pub clients: u64,
    /// Viewers that have begun to play.
    pub started: u64,
    /// Viewers that died at once.
    pub killed: u64,
    /// Packets that went to players, of those that were due, in percent; of honest viewers. Not a number where none was
    /// due.
    pub delivered_percent: f64,
    /// Packets that players of honest viewers missed.
    pub skipped_packets: u64,
    /// What the server did not send of what viewers got, in percent, all its bytes counted.
    pub savings_percent: f64,
    /// Until a second of the stream was whole: 95 % of the viewers that have begun to play.
    pub startup_p95_s: f64,
    /// The same of half of them.
    pub startup_p50_s: f64,
    /// Until the server has let it in: 95 %; none where viewers do not tell.
    pub let_in_p95_s: f64,
    /// Until the first packet went to the player: 95 %.
    pub first_packet_p95_s: f64,
    /// From the source to the release, and what a player holds ready: 95 % of the packets.
    pub latency_p95_s: f64,
    /// From the source to the release: half of the packets.
    pub release_p50_s: f64,
    /// The same of 95 %.
    pub release_p95_s: f64,
    /// Until a slice comes again whose parent has died: 99 %; 0 if none has.
    pub slices_back_p99_s: f64,
    /// Bytes beside packets of the stream that came first, of those packets with their headers, in
    /// percent.
    pub overhead_percent: f64,
    /// Bytes that left the server, with all headers.
    pub server_bytes: u64,
    /// Bytes of the stream.
    pub source_bytes: u64,
    /// Packets that viewers found to be forged.
    pub forged_packets: u64,
    /// How often a viewer got another parent for a slice.
    pub parent_changes: u64,
    /// The same by kind; none where it is encrypted.
    pub overhead: Option<Overhead>,
    /// Slices whose parent was missed; none where viewers do not tell.
    pub silent_feeds: Option<u64>,
    /// Attempts to join that were refused for want of room; none where viewers do not tell.
    pub overloaded: Option<u64>,
    /// Packets that arrived at a peer.
    pub packet_hops: u64,
}

/// The value that this share of `values` is at most; not a number of none.
pub fn quantile(values: &mut [f64], share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let rank = (values.len() as f64 * share).ceil() as usize;
    values.get(rank.saturating_sub(1)).copied().unwrap_or(f64::NAN)
}
