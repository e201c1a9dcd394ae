//! What a viewer prints with `--json`: lines that programs read, the demo among them.

use std::time::{SystemTime, UNIX_EPOCH};

use anabranch_gateway::overview::{Overview, SentByKind};
use serde::{Deserialize, Serialize};

/// A line.
#[derive(Debug, Serialize)]
pub struct StatusLine<'a> {
    /// What a page is sent.
    #[serde(flatten)]
    pub overview: &'a Overview,
    /// From the viewer's beginning until the first packet went to players, once it has.
    pub started_after_s: Option<f64>,
    /// Of each tenth packet that went to players since the last line, and of the first of all: its number, and when
    /// that was in seconds since 1970.
    pub released: &'a [(u64, f64)],
    /// What players missed since the last line: the first packet's number, how many, and when, in seconds since 1970.
    pub gaps: &'a [(u64, u64, f64)],
    /// When slices stopped coming for half a second or more: since the viewer's beginning, and for how long.
    pub outages_s: Vec<(f64, f64)>,
}

/// What the demo reads of a line.
#[derive(Clone, Debug, Deserialize)]
pub struct Line {
    pub uptime_s: f64,
    pub here: LineHere,
    pub started_after_s: Option<f64>,
    pub released: Vec<(u64, f64)>,
    pub outages_s: Vec<(f64, f64)>,
}

/// Its figures of the viewer itself.
#[derive(Clone, Debug, Deserialize)]
pub struct LineHere {
    pub played_packets: u64,
    pub skipped_packets: u64,
    pub upload: LineUpload,
}

/// What the viewer sends.
#[derive(Clone, Debug, Deserialize)]
pub struct LineUpload {
    pub sent_bytes: u64,
    pub by_kind: SentByKind,
}

/// One of this many packets is reported.
pub const EACH: u64 = 10;

/// Now, in seconds since 1970.
pub fn unix_s() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_viewer_prints_the_demo_reads() {
        let line = r#"{"uptime_s": 2.0, "role": "viewer", "here": {"played_packets": 7, "skipped_packets": 1,
            "upload": {"sent_bytes": 9, "limit_bits_per_s": null, "by_kind": {"packets": 8, "manifests": 0,
            "maps": 0, "wants": 0, "gossip": 0, "messages": 1, "transport": 0}}}, "started_after_s": null, "released": [[3, 1.5]],
            "outages_s": []}"#;
        let line: Line = serde_json::from_str(line).unwrap();
        assert_eq!((line.here.played_packets, line.released[0]), (7, (3, 1.5)));
    }
}
