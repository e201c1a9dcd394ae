//! What viewers got, when, and what it took.

use std::collections::BTreeMap;

use anabranch_control::time::{Duration, Time};
use anabranch_proto::machine::Machine;
use anabranch_proto::session::{FlowSessions, WireLength};
use anabranch_proto::stream::buffer::Release;
use anabranch_proto::stream::client::ClientEvent;
use anabranch_proto::stream::message::Datagram;
use anabranch_proto::stream::packet::MAX_PACKET;
use anabranch_proto::stream::peer::StreamEvent;
use anabranch_sim::fabric::NodeId;

use super::liar::Viewer;
use super::trees::Trees;
use crate::world::{Observer, Transit};

/// Delays are counted in classes of ten milliseconds, up to ten seconds.
const CLASS: Duration = Duration::from_millis(10);
const CLASSES: usize = 1000;

/// What a viewer has got.
#[derive(Clone, Debug, Default)]
pub(super) struct Watched {
    pub joined: Time,
    pub is_honest: bool,
    /// Since when the server has let it in; none while it has not, or has sent it away.
    pub let_in: Option<Time>,
    /// When a keyframe's second of the stream was whole.
    pub started: Option<Time>,
    pub played: u64,
    pub skipped: u64,
}

/// Sees what happens.
#[derive(Clone, Debug)]
pub(super) struct Measuring {
    /// Packets in a second of the stream.
    per_second: u64,
    /// When each packet left the source.
    pub sent: Vec<Time>,
    pub watched: BTreeMap<u32, Watched>,
    delays: Vec<u64>,
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
    pub sent_by_kind: Sent,
    pub packet_hops: u64,
}

/// What left, in bytes of datagrams without the headers of their packets, and packets without any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Packets of the stream.
    pub packets: u64,
    /// What they are told apart by.
    pub manifests: u64,
    /// What neighbours have.
    pub maps: u64,
    /// What is asked for.
    pub wants: u64,
    /// Packets with nothing but an ACK.
    pub acks_alone: u64,
    /// Packets with messages, of handshakes and probes.
    pub others: u64,
}

impl Measuring {
    pub fn new(per_second: u64, from: Time) -> Measuring {
        Measuring {
            per_second,
            sent: Vec::new(),
            watched: BTreeMap::new(),
            delays: vec![0; CLASSES + 1],
            seconds: Vec::new(),
            from,
            played: 0,
            skipped: 0,
            honest_played: 0,
            honest_skipped: 0,
            overloaded: 0,
            forged: 0,
            silent: 0,
            sent_by_kind: Sent::default(),
            packet_hops: 0,
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
                second.played += 1;
                if watched.started.is_none() && watched.played >= self.per_second {
                    watched.started = Some(now);
                }
                if counts {
                    self.played += 1;
                    self.honest_played += u64::from(watched.is_honest);
                    if let Some(&sent) = self.sent.get(id.0 as usize)
                        && watched.started.is_some_and(|started| started < now)
                    {
                        let class = (now.since(sent).as_nanos() / CLASS.as_nanos()) as usize;
                        self.delays[class.min(CLASSES)] += 1;
                    }
                }
            }
            Release::Skipped(_, count) => {
                watched.skipped += count;
                second.skipped += count;
                if counts {
                    self.skipped += count;
                    self.honest_skipped += if watched.is_honest { *count } else { 0 };
                }
            }
        }
    }

    /// How many packets took at most so many seconds from the source to the release, and more than those of the
    /// class before; in classes of `width`, which is a multiple of ten milliseconds.
    pub fn delay_classes(&self, width: Duration) -> Vec<(f64, u64)> {
        let each = (width.as_nanos() / CLASS.as_nanos()) as usize;
        let used = self.delays.iter().rposition(|&count| count > 0).map_or(0, |last| last + 1);
        let classes = self.delays[..used].chunks(each).enumerate();
        classes.map(|(class, counts)| ((width * (class as u64 + 1)).as_secs_f64(), counts.iter().sum())).collect()
    }

    /// The delay from the source to the release that this share of the packets had at most; none without
    /// a packet.
    pub fn delay(&self, share: f64) -> Option<Duration> {
        let total: u64 = self.delays.iter().sum();
        let rank = (total as f64 * share).ceil() as u64;
        let mut below = 0;
        let class = self.delays.iter().position(|&count| {
            below += count;
            below >= rank.max(1)
        })?;
        Some(CLASS * (class as u64 + 1))
    }
}

impl Observer<FlowSessions<Viewer>> for Measuring {
    #[inline]
    fn on_sent(&mut self, _: Time, _: NodeId, _: NodeId, packet: &<FlowSessions<Viewer> as Machine>::Message) {
        let sent = &mut self.sent_by_kind;
        let Some(datagram) = packet.datagram() else {
            let count = if packet.is_ack_alone() { &mut sent.acks_alone } else { &mut sent.others };
            *count += 1;
            return;
        };
        let count = match datagram {
            Datagram::Packet { .. } => &mut sent.packets,
            Datagram::Manifest(_) => &mut sent.manifests,
            Datagram::Have(_) => &mut sent.maps,
            Datagram::Want(_) | Datagram::WantManifests(..) => &mut sent.wants,
        };
        *count += datagram.wire_length() as u64;
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
    /// Packets that went to players, of those that were due, in percent; of honest viewers.
    pub delivered_percent: f64,
    /// Packets that players of honest viewers missed.
    pub skipped_packets: u64,
    /// What the server did not send of what viewers got, in percent, all its bytes counted.
    pub savings_percent: f64,
    /// Until a second of the stream was whole: 95 % of the viewers that have begun to play.
    pub startup_p95_s: f64,
    /// From the source to the release, and what a player holds ready: 95 % of the packets.
    pub latency_p95_s: f64,
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
    /// What left all peers.
    pub sent: Sent,
    /// Slices whose parent was missed.
    pub silent_feeds: u64,
    /// Attempts to join that were refused for want of room.
    pub overloaded: u64,
    /// Packets that arrived at a peer.
    pub packet_hops: u64,
}

/// Bytes of a packet of the stream with all headers.
pub const PACKET_ON_WIRE: f64 = MAX_PACKET as f64 + 77.0;

/// The value that this share of `values` is at most; not a number of none.
pub(super) fn quantile(values: &mut [f64], share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let rank = (values.len() as f64 * share).ceil() as usize;
    values.get(rank.saturating_sub(1)).copied().unwrap_or(f64::NAN)
}
