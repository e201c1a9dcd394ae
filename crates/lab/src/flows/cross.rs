//! Cross traffic at work: packets at a rate while it is on.

use anabranch_control::rng::Rng;
use anabranch_control::time::{Duration, Time};
use anabranch_sim::network::RouteId;

use super::measured::CrossMeasured;
use anabranch_scenario::flows::{CrossTraffic, Pattern};

/// One source.
#[derive(Debug)]
pub struct Source {
    /// What its packets pass.
    pub route: RouteId,
    /// A packet on the wire, in bytes.
    pub size: u32,
    /// What has become of its packets.
    pub count: CrossMeasured,
    /// Between two packets while it is on.
    gap: Duration,
    pattern: Pattern,
    rng: Rng,
    /// When it goes off; never for one that is always on.
    off_at: Time,
    stop: Time,
}

impl Source {
    /// One as `spec` describes it, over `route`.
    pub fn new(spec: &CrossTraffic, route: RouteId, seed: u64) -> Source {
        let mut source = Source {
            route,
            size: spec.packet.get() as u32,
            count: CrossMeasured::default(),
            gap: spec.packet / spec.rate,
            pattern: spec.pattern,
            rng: Rng::stream(seed, &format!("cross/{}", spec.name)),
            off_at: Time::MAX,
            stop: spec.stop.unwrap_or(Time::MAX),
        };
        source.off_at = source.on_from(spec.start);
        source
    }

    /// Goes on at `now`; says until when.
    fn on_from(&mut self, now: Time) -> Time {
        match self.pattern {
            Pattern::Constant => Time::MAX,
            Pattern::Periodic { on, .. } => now + on,
            Pattern::Exponential { on, .. } => now + scaled(on, self.rng.exponential()),
        }
    }

    /// A packet leaves at `now`; says when the next one does.
    pub fn next(&mut self, now: Time) -> Time {
        self.count.sent += 1;
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
        if next < self.stop { next } else { Time::MAX }
    }
}

/// `mean` times `factor`.
pub fn scaled(mean: Duration, factor: f64) -> Duration {
    Duration::from_nanos((mean.as_nanos() as f64 * factor) as u64)
}
