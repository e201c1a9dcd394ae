//! Cross traffic at work: packets at a rate while it is on.

use anabranch_control::rng::Rng;
use anabranch_control::time::{Duration, Time};
use anabranch_scenario::flows::{CrossTraffic, Pattern};

/// One source.
#[derive(Clone, Debug)]
pub struct CrossSource {
    /// The node that its packets go to.
    pub to: u32,
    /// A packet on the wire, in bytes.
    pub size: u32,
    /// Whether queues may mark its packets in place of dropping them.
    pub ecn_capable: bool,
    /// Packets sent.
    sent: u64,
    due: Time,
    /// Between two packets while it is on.
    gap: Duration,
    pattern: Pattern,
    rng: Rng,
    /// When it goes off; never for one that is always on.
    off_at: Time,
    stop: Time,
}

impl CrossSource {
    /// One as `spec` describes it, to the node `to`.
    pub fn new(spec: &CrossTraffic, to: u32, ecn_capable: bool, seed: u64) -> CrossSource {
        let mut source = CrossSource {
            to,
            size: spec.packet.get() as u32,
            ecn_capable,
            sent: 0,
            due: spec.start,
            gap: spec.packet / spec.rate,
            pattern: spec.pattern,
            rng: Rng::stream(seed, &format!("cross/{}", spec.name)),
            off_at: Time::MAX,
            stop: spec.stop.unwrap_or(Time::MAX),
        };
        source.off_at = source.on_from(spec.start);
        source
    }

    /// Packets sent.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// When the next packet leaves.
    #[inline]
    pub fn due(&self) -> Time {
        self.due
    }

    /// Goes on at `now`; says until when.
    fn on_from(&mut self, now: Time) -> Time {
        match self.pattern {
            Pattern::Constant => Time::MAX,
            Pattern::Periodic { on, .. } => now + on,
            Pattern::Exponential { on, .. } => now + scaled(on, self.rng.exponential()),
        }
    }

    /// A packet leaves at `now`; decides when the next one does.
    pub fn next(&mut self, now: Time) {
        self.sent += 1;
        let mut next = now + self.gap;
        // Several short on-times may pass between two packets of a slow source.
        while next >= self.off_at {
            let off = match self.pattern {
                Pattern::Constant => Duration::ZERO,
                Pattern::Periodic { off, .. } => off,
                Pattern::Exponential { off, .. } => scaled(off, self.rng.exponential()),
            };
            next = self.off_at + off;
            self.off_at = self.on_from(next);
            if self.off_at > next {
                break;
            }
        }
        self.due = if next < self.stop { next } else { Time::MAX };
    }
}

/// `mean` times `factor`.
pub fn scaled(mean: Duration, factor: f64) -> Duration {
    Duration::from_nanos((mean.as_nanos() as f64 * factor) as u64)
}
