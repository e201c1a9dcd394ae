//! LEDBAT++: LEDBAT that grows no faster than Reno however short the path, falls by up to
//! half a window a round trip while its queue is above the target, and stops for two round
//! trips now and then. The slowdowns drain the queue, so that the base delay is seen again
//! and a newcomer does not take the queue of those before it for the path.
//!
//! ```text
//! GAIN  = 1 / min(16, ceil(2 TARGET / base))                           4.2
//! below the target, a round trip:  W += GAIN                           4.3
//! above:  W += max(GAIN - W (delay / TARGET - 1), -W / 2)              4.3
//! slow start:  W += GAIN * acked, until delay > 3/4 TARGET             4.1
//! slowdown:  W = 2 for 2 round trips, then slow start up to the old W  4.4
//! ```
//!
//! draft-irtf-iccrg-ledbat-plus-plus-01; windows in packets. Readings:
//!
//! - Slow start ends by delay only the first time (4.1): on the way back from a slowdown it
//!   ends at the old window. There, too, it grows by GAIN: 4.4 names only slow start.
//! - What a round trip adds is spread over its ACKs by what they acknowledge.
//! - A loss on the way back from a slowdown ends the slowdown: the next interval counts it.
//!   One while two packets are held is a loss of the old window, and halves what the way
//!   back leads to.
//! - While the application limits the sender, the window may fall but not grow.
//! - Out of persistent congestion, of which the draft does not speak, slow start leads back
//!   to the reduced window, as out of TCP's timeout.

use serde::Deserialize;

use super::delay::{Delay, MAX_SAMPLES};
use crate::flow::recovery::Recovery;
use crate::flow::setup::{Factory, factory};
use crate::flow::{Feedback, FlowController, Limits};
use crate::registry::{ParameterError, in_range};
use crate::rng::Rng;
use crate::time::{Duration, Millis, Seconds, Time};
use crate::units::{Octets, Packets};

/// The smallest and the first window (4.1, 4.4).
const MINIMUM_WINDOW: Packets = Packets(2.0);

/// The highest divisor of the gain (4.2).
const MAX_DIVISOR: f64 = 16.0;

/// `Constant` of the decrease (4.3).
const DECREASE: f64 = 1.0;

/// Share of the target at which the first slow start ends (4.1).
const SLOW_START_EXIT: f64 = 0.75;

/// Round trips that a slowdown lasts, and that the first waits for after slow start (4.4).
const SLOWDOWN_ROUNDS: u64 = 2;

/// Time between two slowdowns, over how long one takes: they cost at most a tenth (4.4).
const INTERVAL: u64 = 9;

/// Parameters of `ledbat++`.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Config {
    /// TARGET (4.5).
    target_ms: Millis,
    /// Samples of which the least counts as the current delay, as in `ledbat`.
    filter_samples: usize,
    /// Whether to slow down periodically (4.4).
    slowdowns: bool,
}

impl Default for Config {
    fn default() -> Config {
        Config { target_ms: Millis(60.0), filter_samples: 4, slowdowns: true }
    }
}

/// Where a slowdown stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The first slow start.
    Start,
    /// Sends with the target in view, and slows down at this time.
    Steady { slow_down: Time },
    /// Holds two packets until then; `since` is when it began.
    Hold { since: Time, until: Time },
    /// Slow start up to the old window.
    Return { since: Time },
}

/// The controller.
#[derive(Clone, Debug)]
struct LedbatPlusPlus {
    packet: Octets,
    window: Packets,
    threshold: Packets,
    target: Seconds,
    slowdowns: bool,
    phase: Phase,
    delay: Delay,
    recovery: Recovery,
}

/// Makes `ledbat++`.
pub fn build(parameters: &toml::Table) -> Result<Factory, ParameterError> {
    let config: Config = crate::registry::parameters(parameters)?;
    in_range("target_ms", config.target_ms.0, 0.1..=10_000.0)?;
    in_range("filter_samples", config.filter_samples as f64, 1.0..=MAX_SAMPLES as f64)?;
    Ok(factory(move |setup| LedbatPlusPlus {
        packet: setup.packet.into(),
        window: MINIMUM_WINDOW,
        threshold: Packets(f64::INFINITY),
        target: config.target_ms.into(),
        slowdowns: config.slowdowns,
        phase: Phase::Start,
        delay: Delay::new(config.filter_samples),
        recovery: Recovery::default(),
    }))
}

impl LedbatPlusPlus {
    /// GAIN = 1 / min(16, ceil(2 TARGET / base))
    #[inline]
    fn gain(&self) -> f64 {
        let base = self.delay.base().map_or(Seconds::ZERO, Duration::seconds);
        let ratio = self.target * 2.0 / base;
        1.0 / if ratio < MAX_DIVISOR { ratio.ceil().max(1.0) } else { MAX_DIVISOR }
    }

    /// Goes on, with the target in view, until `interval` is over.
    fn steady(&mut self, now: Time, interval: Duration) {
        self.phase = Phase::Steady { slow_down: if self.slowdowns { now + interval } else { Time::MAX } };
    }

    /// Ends the way back from a slowdown that began at `since`.
    fn returned(&mut self, now: Time, since: Time) {
        self.steady(now, now.since(since) * INTERVAL);
    }

    /// `acked` is acknowledged.
    #[inline]
    fn steer(&mut self, now: Time, acked: Packets, smoothed: Duration, app_limited: bool) {
        let gain = self.gain();
        let delay = self.delay.queueing().seconds() / self.target;
        match self.phase {
            Phase::Start if delay > SLOW_START_EXIT => self.steady(now, smoothed * SLOWDOWN_ROUNDS),
            Phase::Start | Phase::Return { .. } if app_limited => {}
            Phase::Start => self.window += acked * gain,
            Phase::Hold { .. } => {}
            Phase::Return { since } => {
                self.window += acked * gain;
                if self.window >= self.threshold {
                    self.window = self.threshold;
                    self.returned(now, since);
                }
            }
            Phase::Steady { .. } => {
                let change = if delay <= 1.0 {
                    Packets(gain)
                } else {
                    (Packets(gain) - self.window * DECREASE * (delay - 1.0)).max(-self.window / 2.0)
                };
                if change < Packets(0.0) || !app_limited {
                    self.window += change * acked.0 / self.window.0;
                }
            }
        }
    }
}

impl FlowController for LedbatPlusPlus {
    #[inline]
    fn on_feedback(&mut self, now: Time, feedback: &Feedback<'_>, _: &mut Rng) {
        let smoothed = feedback.rtt.smoothed;
        if let Some(rtt) = feedback.rtt.latest {
            self.delay.update(now, rtt, feedback.rtt.min);
        }
        if self.recovery.enter(now, feedback) {
            let held = matches!(self.phase, Phase::Hold { .. });
            let before = if held { self.threshold } else { self.window };
            self.threshold = (before / 2.0).max(MINIMUM_WINDOW);
            self.window = self.threshold.min(self.window);
            match self.phase {
                Phase::Start => self.steady(now, smoothed * SLOWDOWN_ROUNDS),
                Phase::Return { since } => self.returned(now, since),
                Phase::Steady { .. } | Phase::Hold { .. } => {}
            }
        } else if feedback.rtt.latest.is_some() {
            let acked = Packets::of(feedback.acked_bytes.into(), self.packet);
            self.steer(now, acked, smoothed, feedback.app_limited);
        }
        match self.phase {
            Phase::Steady { slow_down } if now >= slow_down => {
                self.threshold = self.window.max(MINIMUM_WINDOW);
                self.window = MINIMUM_WINDOW;
                self.phase = Phase::Hold { since: now, until: now + smoothed * SLOWDOWN_ROUNDS };
            }
            Phase::Hold { since, until } if now >= until => self.phase = Phase::Return { since },
            _ => {}
        }
        if feedback.persistent_congestion {
            self.window = MINIMUM_WINDOW;
            self.phase = Phase::Return { since: now };
            self.recovery.reset();
        }
        self.window = self.window.max(MINIMUM_WINDOW);
    }

    #[inline]
    fn limits(&self) -> Limits {
        Limits::window(self.window.in_bytes(self.packet).whole())
    }

    fn trace(&self, record: &mut dyn FnMut(&'static str, f64)) {
        record("window", self.window.in_bytes(self.packet).0);
        record("queueing_delay", self.delay.queueing().as_millis_f64());
        record("base_delay", self.delay.base().map_or(0.0, Duration::as_millis_f64));
        record("gain", self.gain());
    }
}
