//! Quantities of a case, as they are drawn.

use anabranch_control::rng::Rng;
use anabranch_control::time::Duration;

/// Log-uniform in [low, high).
pub(super) fn log_uniform(rng: &mut Rng, low: f64, high: f64) -> f64 {
    low * libm::exp(rng.uniform() * libm::log(high / low))
}

/// 0 half of the time, else up to `most`, rather little than much.
pub(super) fn now_and_then(rng: &mut Rng, most: f64) -> f64 {
    let share = rng.uniform();
    if rng.chance(0.5) { most * share * share } else { 0.0 }
}

/// Log-uniform in [low, high) seconds.
pub(super) fn seconds(rng: &mut Rng, low: f64, high: f64) -> Duration {
    Duration::from_secs_f64(log_uniform(rng, low, high))
}
