//! LEDBAT: sends what others leave. The window grows by up to a packet a round trip while
//! the queueing delay is below a target, and shrinks in proportion while it is above, so
//! that a queue that others build drives it out. A loss halves the window.
//!
//! ```text
//! off_target = (TARGET - queueing_delay) / TARGET
//! W += GAIN * off_target * bytes_newly_acked * MSS / W
//! W <= flightsize + ALLOWED_INCREASE * MSS
//! ```
//!
//! RFC 6817, 2.4.2. Departures and readings:
//!
//! - Delays are round trips, since feedback has no one-way delays (see `delay`).
//! - The window grows no more while the application limits the sender; RFC 6817 bounds it
//!   by the flight size, and we do that too.
//! - There is no slow start, as in the RFC's pseudocode, and the window begins with
//!   INIT_CWND, whatever the sender's initial window.

mod delay;
pub mod plus_plus;
#[cfg(test)]
mod tests;

use serde::Deserialize;

use self::delay::{Delay, MAX_SAMPLES};
use super::recovery::Recovery;
use super::setup::{Factory, factory};
use super::{Feedback, FlowController, Limits};
use crate::registry::{ParameterError, in_range};
use crate::rng::Rng;
use crate::time::{Duration, Millis, Seconds, Time};
use crate::units::{Bytes, Octets, Packets, WindowUnit};

/// MIN_CWND and INIT_CWND (2.5).
const MIN_CWND: Packets = Packets(2.0);

/// ALLOWED_INCREASE (2.5).
const ALLOWED_INCREASE: Packets = Packets(1.0);

/// Parameters of `ledbat`.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Config {
    /// TARGET: the queueing delay that it keeps, at most 100 ms (2.5).
    target_ms: Millis,
    /// GAIN: packets a round trip without a queue, at most 1 (2.5).
    gain: f64,
    /// CURRENT_FILTER: samples of which the least counts as the current delay. The RFC gives
    /// no number; 4 is ours.
    filter_samples: usize,
}

impl Default for Config {
    fn default() -> Config {
        Config { target_ms: Millis(100.0), gain: 1.0, filter_samples: 4 }
    }
}

/// The controller.
#[derive(Clone, Debug)]
struct Ledbat {
    packet: Octets,
    window: Octets,
    target: Seconds,
    gain: f64,
    delay: Delay,
    recovery: Recovery,
}

/// Makes `ledbat`.
pub fn build(parameters: &toml::Table) -> Result<Factory, ParameterError> {
    let config: Config = crate::registry::parameters(parameters)?;
    in_range("target_ms", config.target_ms.0, 0.1..=10_000.0)?;
    in_range("gain", config.gain, 0.001..=1.0)?;
    in_range("filter_samples", config.filter_samples as f64, 1.0..=MAX_SAMPLES as f64)?;
    Ok(factory(move |setup| Ledbat {
        packet: setup.packet.into(),
        window: Octets::from(setup.packet) * MIN_CWND.0,
        target: config.target_ms.into(),
        gain: config.gain,
        delay: Delay::new(config.filter_samples),
        recovery: Recovery::default(),
    }))
}

impl FlowController for Ledbat {
    #[inline]
    fn on_feedback(&mut self, now: Time, feedback: &Feedback<'_>, _: &mut Rng) {
        let acked = Octets::from(feedback.acked_bytes);
        let minimum = self.packet * MIN_CWND.0;
        if let Some(rtt) = feedback.rtt.latest {
            self.delay.update(now, rtt, feedback.rtt.min);
            let off_target = 1.0 - self.delay.queueing().seconds() / self.target;
            if off_target < 0.0 || !feedback.app_limited {
                self.window += (acked * (self.gain * off_target)).share(self.packet, self.window);
            }
            // What is lost and must be sent again counts as in flight (2.4.2).
            let lost: Bytes = feedback.lost.iter().map(|lost| lost.sent.size).sum();
            let flight = Octets::from(feedback.in_flight + lost) + acked;
            self.window = self.window.min(flight + self.packet * ALLOWED_INCREASE.0).max(minimum);
        }
        if self.recovery.enter(now, feedback) {
            // cwnd = min(cwnd, max(cwnd / 2, MIN_CWND * MSS)), at most once a round trip
            self.window = self.window.min((self.window / 2.0).max(minimum));
        }
        if feedback.persistent_congestion {
            // As after a congestion timeout: one packet.
            self.window = self.packet;
            self.recovery.reset();
        }
    }

    #[inline]
    fn limits(&self) -> Limits {
        Limits::window(self.window.whole())
    }

    fn trace(&self, record: &mut dyn FnMut(&'static str, f64)) {
        record("window", self.window.0);
        record("queueing_delay", self.delay.queueing().as_millis_f64());
        record("base_delay", self.delay.base().map_or(0.0, Duration::as_millis_f64));
    }
}
