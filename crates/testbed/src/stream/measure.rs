//! What a stream on real packets gave, from the logs of its viewers and the counters of its devices.

use std::collections::{BTreeMap, BTreeSet};

use anabranch_control::time::Duration;
use anabranch_control::units::Rate;
use anabranch_lab::stream::script::{Act, Script, counts_from, packets_per_second};
use anabranch_lab::stream::{ReleaseDelays, StreamMeasured, StreamMetrics, StreamSecond, Trees, quantile};
use anabranch_proto::stream::on_wire;
use anabranch_proto::stream::packet::MAX_PACKET;
use anabranch_proto::stream::traffic::Traffic;
use anabranch_scenario::stream::StreamScenario;

use super::load::Load;
use super::viewers::{Line, Viewer};
use super::{ReportedUpload, StreamOnPackets};
use crate::emulator::Report;

/// What was seen.
pub struct Seen {
    /// When each packet went into the server, in seconds since 1970.
    pub sent: Vec<f64>,
    /// When the stream was over, in seconds since 1970.
    pub ended: f64,
    /// How long it ran.
    pub length: Duration,
    /// Bytes that left each home, the server's first.
    pub sent_bytes: Vec<u64>,
    /// How often a viewer got another parent.
    pub parent_changes: u64,
    /// What the server has sent, by kind.
    pub server_traffic: Traffic,
    /// Those that came.
    pub viewers: BTreeMap<u32, Viewer>,
    /// Those of them that were there at the end.
    pub alive: BTreeSet<u32>,
}

/// What a viewer's player got, by its log.
#[derive(Clone, Debug, Default)]
struct Log {
    /// Number and time of packets that were released, one in some, the first of all among them.
    released: Vec<(u64, f64)>,
    /// Number, count and time of packets that were missed.
    gaps: Vec<(u64, u64, f64)>,
}

impl Log {
    /// That of `lines`, up to `end`.
    fn of(lines: &[Line], end: f64) -> Log {
        Log {
            released: lines.iter().flat_map(|line| &line.released).copied().filter(|(_, at)| *at <= end).collect(),
            gaps: lines.iter().flat_map(|line| &line.gaps).copied().filter(|(.., at)| *at <= end).collect(),
        }
    }

    /// Packets that went to the player from packet `from` on and before `to`.
    fn played_between(&self, from: u64, to: u64) -> u64 {
        let missed = self.gaps.iter().filter(|(number, ..)| (from..to).contains(number)).map(|(_, count, _)| count);
        (to - from).saturating_sub(missed.sum())
    }

    /// Packets that went to the player from time `from` on, as far as is reported, and those that did not.
    fn played_and_missed(&self, from: f64) -> (u64, u64) {
        let released = &self.released[self.released.partition_point(|(_, at)| *at < from)..];
        let played = match (released.first(), released.last()) {
            (Some((first, _)), Some((last, _))) => self.played_between(*first, last + 1),
            _ => 0,
        };
        (played, self.gaps.iter().filter(|(.., at)| *at >= from).map(|(_, count, _)| count).sum())
    }

    /// When this many packets had gone to the player.
    fn had(&self, packets: u64) -> Option<f64> {
        let (first, _) = self.released.first()?;
        let has = |(number, _): &&(u64, f64)| self.played_between(*first, number + 1) >= packets;
        self.released.iter().find(has).map(|(_, at)| *at)
    }

    /// Adds what happened in each second since `begun`.
    fn note_seconds(&self, begun: f64, seconds: &mut [StreamSecond]) {
        let place = |at: f64| (at - begun).max(0.0) as usize;
        for pair in self.released.windows(2) {
            let [(before, _), (number, at)] = *pair else { continue };
            if let Some(second) = seconds.get_mut(place(at)) {
                second.played += self.played_between(before, number);
            }
        }
        for (_, count, at) in &self.gaps {
            if let Some(second) = seconds.get_mut(place(*at)) {
                second.skipped += count;
            }
        }
    }
}

impl Seen {
    /// What that says, in the types of a simulation.
    pub fn measured(self, scenario: &StreamScenario, script: &Script, emulator: Report) -> StreamOnPackets {
        let Seen { sent, ended, length, sent_bytes, parent_changes, server_traffic, viewers, alive } = self;
        let begun = ended - length.as_secs_f64();
        let from = begun + counts_from(scenario).as_secs_f64();
        let mut seconds = vec![StreamSecond::default(); length.as_secs_f64().ceil() as usize];
        let mut delays = ReleaseDelays::default();
        let (mut got, mut played, mut missed, mut forged) = (0, 0, 0, 0);
        let (mut startup, mut first, mut slices_back) = (Vec::new(), Vec::new(), Vec::new());
        let (mut load, mut uploads, mut traffic) = (Load::default(), Vec::new(), server_traffic);
        let killed = killed(script, length);
        for viewer in viewers.values() {
            let log = Log::of(&viewer.said, ended);
            got += log.played_and_missed(0.0).0;
            if viewer.arriving.is_honest {
                let (own, not) = log.played_and_missed(from);
                (played, missed) = (played + own, missed + not);
            }
            let started = log.had(packets_per_second(scenario));
            startup.extend(started.map(|started| started - viewer.began));
            first.extend(log.released.first().map(|(_, at)| at - viewer.began));
            let counts = |at: f64| at >= from && started.is_some_and(|started| started < at);
            for (number, at) in log.released.iter().filter(|(_, at)| counts(*at)) {
                if let Some(sent) = sent.get(*number as usize) {
                    delays.note(Duration::from_secs_f64((at - sent).max(0.0)));
                }
            }
            log.note_seconds(begun, &mut seconds);
            if let Some(Line { here, .. }) = viewer.said.last() {
                forged += here.forged_packets;
                traffic = traffic.and(&here.upload.by_kind.into());
            }
            if let Some((at, _)) = killed.filter(|_| alive.contains(&viewer.arriving.node)) {
                slices_back.extend(outages_after(viewer, begun + at));
            }
            load = load.and(viewer.load);
            uploads.push(upload(viewer));
        }
        let server_bytes = sent_bytes.first().copied().unwrap_or(0);
        let overhead = traffic.overhead(sent_bytes.iter().sum(), got as f64 * on_wire::PACKET as f64);
        let release_p95_s = delays.quantile(0.95);
        let metrics = StreamMetrics {
            simulated: length,
            clients: viewers.len() as u64,
            started: startup.len() as u64,
            killed: killed.map_or(0, |(_, count)| count),
            delivered_percent: 100.0 * played as f64 / (played + missed) as f64,
            skipped_packets: missed,
            savings_percent: 100.0 * (1.0 - server_bytes as f64 / (got as f64 * MAX_PACKET as f64).max(1.0)),
            startup_p95_s: quantile(&mut startup, 0.95),
            startup_p50_s: quantile(&mut startup, 0.5),
            let_in_p95_s: f64::NAN,
            first_packet_p95_s: quantile(&mut first, 0.95),
            latency_p95_s: release_p95_s + scenario.stream.buffer.as_secs_f64(),
            release_p50_s: delays.quantile(0.5),
            release_p95_s,
            slices_back_p99_s: if slices_back.is_empty() { 0.0 } else { quantile(&mut slices_back, 0.99) },
            overhead_percent: overhead.all,
            server_bytes,
            source_bytes: (sent.len() * MAX_PACKET) as u64,
            forged_packets: forged,
            parent_changes,
            overhead: Some(overhead),
            silent_feeds: None,
            overloaded: None,
            packet_hops: emulator.routes.iter().map(|route| route.delivered).sum(),
        };
        // What only whoever looks into the peers could tell is not there.
        let measured = StreamMeasured {
            metrics,
            seconds,
            delays: delays.classes(),
            trees: Trees::default(),
            viewers: Vec::new(),
            deaths: Vec::new(),
            explorations: None,
            monitored: Vec::new(),
        };
        StreamOnPackets { measured, emulator, load, uploads }
    }
}

/// When some died at once, in seconds since the stream began, and how many.
fn killed(script: &Script, length: Duration) -> Option<(f64, u64)> {
    script.0.iter().find_map(|(at, act)| match act {
        Act::Kill(nodes) if at.as_secs_f64() < length.as_secs_f64() => Some((at.as_secs_f64(), nodes.len() as u64)),
        _ => None,
    })
}

/// For how long slices of `viewer` stopped coming that were not there at `time` or stopped later, in seconds.
fn outages_after(viewer: &Viewer, time: f64) -> Vec<f64> {
    let Some(last) = viewer.said.last() else { return Vec::new() };
    // Its own clock began when it did, but for what a process needs to begin.
    let ends_after = |(began, length): &&(f64, f64)| viewer.began + began + length >= time;
    last.outages_s.iter().filter(ends_after).map(|(_, length)| *length).collect()
}

fn upload(viewer: &Viewer) -> ReportedUpload {
    let capacity = |line: &Line| {
        let rate = Rate::from_bits_per_sec(line.here.upload.capacity_bits_per_s? as u64);
        Some((Duration::from_secs_f64(line.uptime_s), rate))
    };
    ReportedUpload {
        node: viewer.arriving.node,
        line: viewer.arriving.upload,
        first: viewer.said.iter().find_map(capacity),
        last: viewer.said.iter().rev().find_map(capacity).map(|(_, rate)| rate),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each tenth packet from 100 on, ten a second from second 5 on; 20 packets from 141 on are missed at second 9.5.
    fn log() -> Log {
        let released = (10..=20).filter(|number| ![15, 16].contains(number));
        Log {
            released: released.map(|number| (10 * number, number as f64 - 5.0)).collect(),
            gaps: vec![(141, 20, 9.5)],
        }
    }

    #[test]
    fn what_was_missed_was_not_played() {
        assert_eq!(log().played_and_missed(0.0), (101 - 20, 20));
        assert_eq!(log().played_and_missed(9.7), (31, 0), "from 170 to 200");
        assert_eq!(log().played_and_missed(100.0), (0, 0));
        assert_eq!(Log::default().played_and_missed(0.0), (0, 0));
    }

    #[test]
    fn a_player_has_so_many_packets_when_so_many_came() {
        assert_eq!((log().had(1), log().had(41), log().had(42)), (Some(5.0), Some(9.0), Some(12.0)));
        assert_eq!(log().had(1000), None);
    }

    #[test]
    fn seconds_add_up_to_all() {
        let mut seconds = vec![StreamSecond::default(); 16];
        log().note_seconds(4.0, &mut seconds);
        let sum = |of: fn(&StreamSecond) -> u64| seconds.iter().map(of).sum::<u64>();
        assert_eq!((sum(|second| second.played), sum(|second| second.skipped)), (80, 20));
        assert_eq!((seconds[2].played, seconds[5].skipped), (10, 20));
    }
}
