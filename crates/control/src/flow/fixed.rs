//! A window that never changes, and the two that [Xavier] 4.1 takes as baselines: 40
//! packets take all that a path gives, whatever its delay; one packet waits for nobody.

use serde::Deserialize;

use super::{Feedback, FlowController, Limits};
use crate::registry::ParameterError;
use crate::rng::Rng;
use crate::time::Time;
use crate::units::{Bytes, Packets};

use super::setup::{Factory, factory};

/// The window of the baseline that takes throughput at any price.
const MAX_THROUGHPUT: Packets = Packets(40.0);

/// Parameters of `fixed`.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Config {
    window: Packets,
}

impl Default for Config {
    fn default() -> Config {
        // RFC 6928: the window that a sender may begin with.
        Config { window: Packets(10.0) }
    }
}

/// The controller.
#[derive(Clone, Debug)]
struct Fixed {
    window: Bytes,
}

/// Makes `fixed`, with the window from its parameters.
pub fn build(parameters: &toml::Table) -> Result<Factory, ParameterError> {
    let config: Config = crate::registry::parameters(parameters)?;
    crate::registry::in_range("window", config.window.0, 1.0..=1e9)?;
    Ok(of(config.window))
}

/// Makes `max-throughput`.
pub fn max_throughput(parameters: &toml::Table) -> Result<Factory, ParameterError> {
    crate::registry::no_parameters(parameters)?;
    Ok(of(MAX_THROUGHPUT))
}

/// Makes `min-delay`.
pub fn min_delay(parameters: &toml::Table) -> Result<Factory, ParameterError> {
    crate::registry::no_parameters(parameters)?;
    Ok(of(Packets(1.0)))
}

fn of(window: Packets) -> Factory {
    factory(move |setup| Fixed { window: window.in_bytes(setup.packet.into()).whole() })
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::setup::{Setup, made};
    use crate::flow::testing::{PACKET, Path, drive};
    use crate::time::Duration;
    use crate::units::Rate;

    /// 20 packets a round trip fill it.
    const PATH: Path =
        Path { rate: Rate::from_bytes_per_sec(200_000), rtt: Duration::from_millis(100), buffer: 1000, loss: 0.0 };

    /// Packets a second and the last round trip in ms.
    fn throughput_and_delay(controller: Result<Box<dyn FlowController>, ParameterError>) -> (f64, f64) {
        let run = drive(&mut *controller.unwrap(), PATH, 60.0, 1);
        assert!(run.window.windows(2).all(|pair| pair[0] == pair[1]), "the window changed");
        (run.throughput(), *run.rtt_ms.last().unwrap())
    }

    #[test]
    fn throughput_is_the_path_s_or_the_window_each_round_trip_and_the_rest_waits() {
        let setup = Setup::new(PACKET, Time::ZERO);
        let none = toml::Table::new();
        // A round trip is 100 ms and the 5 ms in which a packet is sent.
        let (throughput, delay) = throughput_and_delay(made(min_delay, &setup, &none));
        assert!((throughput - 1.0 / 0.105).abs() < 0.1 && (delay - 105.0).abs() < 0.1, "{throughput} {delay}");
        let (throughput, delay) = throughput_and_delay(made(build, &setup, &"window = 10".parse().unwrap()));
        assert!((throughput - 10.0 / 0.105).abs() < 0.5 && (delay - 105.0).abs() < 0.1, "{throughput} {delay}");
        let (throughput, delay) = throughput_and_delay(made(max_throughput, &setup, &none));
        assert!((throughput - 200.0).abs() < 1.0 && (delay - 200.0).abs() < 0.1, "{throughput} {delay}");
    }
}
