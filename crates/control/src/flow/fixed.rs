//! A window that never changes, and the two that [Xavier] 4.1 takes as baselines: 40
//! packets take all that a path gives, whatever its delay; one packet waits for nobody.

use serde::Deserialize;

use super::{Feedback, FlowController, Limits};
use crate::registry::ParameterError;
use crate::rng::Rng;
use crate::time::Time;
use crate::units::Bytes;

use super::registry::Setup;

/// Packets in the window of the baseline that takes throughput at any price.
const MAX_THROUGHPUT: f64 = 40.0;

/// Parameters of `fixed`.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Config {
    /// Packets.
    window: f64,
}

impl Default for Config {
    fn default() -> Config {
        // RFC 6928: the window that a sender may begin with.
        Config { window: 10.0 }
    }
}

/// The controller.
#[derive(Debug)]
struct Fixed {
    window: Bytes,
}

/// Makes `fixed`, with the window from its parameters.
pub fn build(setup: &Setup, parameters: &toml::Table) -> Result<Box<dyn FlowController>, ParameterError> {
    let config: Config = crate::registry::parameters(parameters)?;
    crate::registry::in_range("window", config.window, 1.0..=1e9)?;
    Ok(of(setup, config.window))
}

/// Makes `max-throughput`.
pub fn max_throughput(setup: &Setup, parameters: &toml::Table) -> Result<Box<dyn FlowController>, ParameterError> {
    crate::registry::no_parameters(parameters)?;
    Ok(of(setup, MAX_THROUGHPUT))
}

/// Makes `min-delay`.
pub fn min_delay(setup: &Setup, parameters: &toml::Table) -> Result<Box<dyn FlowController>, ParameterError> {
    crate::registry::no_parameters(parameters)?;
    Ok(of(setup, 1.0))
}

fn of(setup: &Setup, packets: f64) -> Box<dyn FlowController> {
    Box::new(Fixed { window: Bytes::new((packets * setup.packet.get() as f64) as u64) })
}

impl FlowController for Fixed {
    fn on_feedback(&mut self, _: Time, _: &Feedback<'_>, _: &mut Rng) {}

    #[inline]
    fn limits(&self) -> Limits {
        Limits::window(self.window)
    }

    fn trace(&self, record: &mut dyn FnMut(&'static str, f64)) {
        record("window", self.window.get() as f64);
    }
}
