//! What a demo has shown, in numbers.

use std::time::{Duration, Instant};

use anabranch_gateway::overview::SentByKind;
use anabranch_net::stream::snapshot::Snapshot;
use anabranch_proto::session::DATAGRAM_HEADERS;
use anabranch_proto::stream::message::PACKET_HEADER;
use anabranch_proto::stream::traffic::{Overhead, Traffic};
use serde::{Serialize, Serializer};

use super::Args;
use super::playing::Shown;
use super::viewer::Viewer;

/// Bytes of a packet's headers: those of IPv4, UDP and QUIC, and ours.
const ON_WIRE: f64 = (DATAGRAM_HEADERS + PACKET_HEADER) as f64;

/// Bytes of the headers of IPv4 and UDP.
const HEADERS: u64 = 28;

/// What was measured.
pub struct Measured<'a> {
    pub args: &'a Args,
    pub demo: Instant,
    /// From when on packets count.
    pub from: Duration,
    pub killed_at: Option<Duration>,
    pub viewers: &'a [Viewer],
    /// When each packet left the source, in seconds since 1970.
    pub source_sent: &'a [f64],
    pub source_bytes: u64,
    pub server: &'a Snapshot,
    /// Viewers that were shut out.
    pub excluded: u32,
    pub shown: Option<&'a Shown>,
    pub frames_per_s: u32,
}

/// The figures. Those of packets, delays and slices are of viewers that tell the truth and live.
#[derive(Clone, Debug, Serialize)]
pub struct Figures {
    pub clients: usize,
    pub started: usize,
    pub killed: usize,
    pub liars: usize,
    /// Viewers that were shut out since they sent what is not the stream's.
    pub excluded: u32,
    pub delivered_percent: f64,
    pub skipped_packets: u64,
    pub savings_percent: f64,
    pub startup_p95_s: Option<f64>,
    pub latency_p95_s: Option<f64>,
    pub slices_back_p99_s: f64,
    /// Bytes beside packets that came in time, in percent of those: the sum of the kinds.
    pub overhead_percent: f64,
    /// The same by kind; what QUIC sends by itself, handshakes among it, stands with the ACKs. Each viewer says once a
    /// second what it has sent, and who is killed no more: packets of its last second count where they came and not
    /// where they left. Where so many are missing that fewer left than came, none were repeated: 0, never less.
    #[serde(flatten, serialize_with = "kinds")]
    pub overhead_by_kind: Overhead,
    /// All that left the server: its UDP datagrams, and 28 bytes of headers for each.
    pub server_bytes: u64,
    pub source_bytes: u64,
    /// Frames that a browser has presented, and those that were due from the first to the last; none without one.
    pub browser_frames: Option<u64>,
    pub browser_due_frames: Option<u64>,
    /// From the opening of the page until it presented the first.
    pub browser_first_s: Option<f64>,
}

/// The value that this share of `values` is at most; none of none.
pub fn quantile(mut values: Vec<f64>, share: f64) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let rank = (values.len() as f64 * share).ceil() as usize;
    values.get(rank.saturating_sub(1)).copied()
}

/// Each kind by its name.
fn kinds<S: Serializer>(overhead: &Overhead, to: S) -> Result<S::Ok, S::Error> {
    to.collect_map(overhead.kinds().iter().map(|(name, _, percent)| (name, percent)))
}

/// What a viewer has said that it sent.
fn sent(by_kind: &SentByKind) -> Traffic {
    let SentByKind { packets, manifests, maps, wants, gossip, messages, transport } = *by_kind;
    Traffic { packets, manifests, maps, wants, gossip, messages, acks: transport, ..Traffic::default() }
}

/// `overhead`, where more packets came than were seen to leave: as many left at least.
fn without_unseen(overhead: Overhead) -> Overhead {
    let unseen = (-overhead.repeated).max(0.0);
    Overhead { all: overhead.all + unseen, repeated: overhead.repeated + unseen, ..overhead }
}

/// What `measured` says.
pub fn of(measured: &Measured<'_>) -> Figures {
    let Measured { args, viewers, source_bytes, source_sent, server, .. } = measured;
    let (mut played, mut skipped, mut all_played, mut viewers_sent) = (0, 0, 0, 0);
    let mut traffic = server.sent_by_kind;
    let (mut delays, mut outages, mut starts) = (Vec::new(), Vec::new(), Vec::new());
    for viewer in *viewers {
        let Some(last) = viewer.said.last() else { continue };
        all_played += last.here.played_packets;
        viewers_sent += last.here.upload.sent_bytes;
        traffic = traffic.and(&sent(&last.here.upload.by_kind));
        starts.extend(last.started_after_s);
        if !viewer.counts() {
            continue;
        }
        let before = viewer.at(measured.demo, measured.from);
        let before = before.map_or((0, 0), |line| (line.here.played_packets, line.here.skipped_packets));
        played += last.here.played_packets - before.0;
        skipped += last.here.skipped_packets - before.1;
        let released = viewer.said.iter().flat_map(|line| &line.released);
        delays.extend(released.filter_map(|(number, at)| Some(at - source_sent.get(*number as usize)?)));
        let own = (viewer.began - measured.demo).as_secs_f64();
        let after = |(began, length): &&(f64, f64)| {
            measured.killed_at.is_some_and(|killed| own + began + length >= killed.as_secs_f64())
        };
        outages.extend(last.outages_s.iter().filter(after).map(|(_, length)| *length));
    }
    let each = *source_bytes as f64 / source_sent.len().max(1) as f64;
    let delivered = all_played as f64 * each;
    let server_bytes = server.sent_bytes + HEADERS * server.sent_packets;
    let useful = delivered * (1.0 + ON_WIRE / each.max(1.0));
    let overhead = without_unseen(traffic.overhead(server_bytes + viewers_sent, useful));
    let due = |shown: &Shown| (shown.span_s * f64::from(measured.frames_per_s)).round() as u64 + 1;
    Figures {
        clients: viewers.len(),
        started: starts.len(),
        killed: viewers.iter().filter(|viewer| viewer.is_killed).count(),
        liars: viewers.iter().filter(|viewer| viewer.lie.is_some()).count(),
        excluded: measured.excluded,
        delivered_percent: 100.0 * played as f64 / (played + skipped) as f64,
        skipped_packets: skipped,
        savings_percent: 100.0 * (1.0 - server_bytes as f64 / delivered.max(1.0)),
        startup_p95_s: quantile(starts, 0.95),
        latency_p95_s: quantile(delays, 0.95).map(|delay| delay + args.buffer.as_secs_f64()),
        slices_back_p99_s: quantile(outages, 0.99).unwrap_or(0.0),
        overhead_percent: overhead.all,
        overhead_by_kind: overhead,
        server_bytes,
        source_bytes: *source_bytes,
        browser_frames: measured.shown.map(|shown| shown.frames),
        browser_due_frames: measured.shown.map(due),
        browser_first_s: measured.shown.and_then(|shown| shown.first_after_s),
    }
}

impl Figures {
    /// Each with what it says, for people.
    pub fn words(&self) -> Vec<(&'static str, String)> {
        let seconds = |seconds: Option<f64>| seconds.map_or("–".to_owned(), |seconds| format!("{seconds:.2} s"));
        let percent = |percent: f64| if percent.is_finite() { format!("{percent:.2} %") } else { "–".to_owned() };
        let megabytes = |bytes: u64| format!("{:.2} MB", bytes as f64 / 1e6);
        let who = format!("{} ({} killed, {} lying)", self.clients, self.killed, self.liars);
        let mut words = vec![
            ("viewers", who),
            ("shut out for forged packets", self.excluded.to_string()),
            ("packets in time, honest viewers", percent(self.delivered_percent)),
            ("packets missed", self.skipped_packets.to_string()),
            ("saved: what the server did not send", percent(self.savings_percent)),
            ("first packet to players, 95 %", seconds(self.startup_p95_s)),
            ("from camera to screen, 95 %", seconds(self.latency_p95_s)),
            ("slices back after deaths, 99 %", seconds(Some(self.slices_back_p99_s))),
            ("bytes beside the stream's packets", percent(self.overhead_percent)),
            ("of that", self.overhead_by_kind.in_words()),
            ("sent by the server", megabytes(self.server_bytes)),
            ("the stream itself", megabytes(self.source_bytes)),
        ];
        if let (Some(frames), Some(due)) = (self.browser_frames, self.browser_due_frames) {
            words.push(("frames that a browser presented", format!("{frames} of {due}")));
            words.push(("its first, after its page was opened", seconds(self.browser_first_s)));
        }
        words
    }

    /// The same as a table's rows.
    pub fn rows(&self) -> Vec<Vec<String>> {
        self.words().into_iter().map(|(name, words)| vec![name.to_owned(), words]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_that_came_and_were_not_seen_to_leave_are_no_negative_share() {
        let traffic = Traffic { packets: 980, acks: 50, ..Traffic::default() };
        let seen = traffic.overhead(1030, 1000.0);
        assert!(seen.repeated < 0.0, "20 bytes were not seen to leave");
        let overhead = without_unseen(seen);
        assert_eq!((overhead.repeated, overhead.acks), (0.0, 5.0));
        assert!((overhead.all - 5.0).abs() < 1e-9, "the sum of the kinds");
        let more = traffic.overhead(1080, 1000.0);
        assert_eq!(without_unseen(more), more, "what was repeated stays");
    }
}
