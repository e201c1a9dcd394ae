//! Each viewer by itself: what it got, and what it sent of what it could.

use anabranch_control::time::{Duration, Time};
use anabranch_control::units::Rate;
use anabranch_proto::stream::gossip::Mean;

/// One viewer, over the time that counts: from when all have come, or from its own coming.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ViewerMeasured {
    /// What its line could send when it came.
    pub upload: Rate,
    /// What it has sent, with all headers.
    pub sent: Rate,
    /// How long that was measured.
    pub span: Duration,
    /// Packets that went to its players, and that they missed.
    pub played: u64,
    /// Packets that they missed.
    pub skipped: u64,
    /// Whether it was there at the end.
    pub stayed: bool,
}

impl ViewerMeasured {
    /// Packets that went to its players, of those that were due, in percent; none if none was.
    pub fn delivered_percent(&self) -> Option<f64> {
        let due = self.played + self.skipped;
        (due > 0).then(|| 100.0 * self.played as f64 / due as f64)
    }

    /// The share of its line that it has not used.
    pub fn idle_share(&self) -> f64 {
        1.0 - self.sent.bytes_per_sec() / self.upload.bytes_per_sec()
    }
}

/// What the server knew by gossip, once a second from the end of the first epoch on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Monitored {
    /// When.
    pub at: Time,
    /// What peers have on average, the server included.
    pub mean: Mean,
    /// What their lines can send on average, of the server what it may; as they were when viewers came.
    pub mean_of_lines: Rate,
    /// What the server may send.
    pub helper: Rate,
    /// The surplus that the helper's law has acted on last, in bytes a second; none without a helper.
    pub surplus: Option<f64>,
}

/// Somebody left, or died.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Death {
    /// When.
    pub at: Time,
    /// When the server has removed it; none if it has not.
    pub removed: Option<Time>,
}
