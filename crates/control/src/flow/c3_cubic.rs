//! Cubic as [C3] steers it: a coordinator that knows the network grants each flow a rate, and
//! `rate * RTT_min` is the window that Cubic begins with and does not exceed; without a grant
//! it is Cubic. [C3] leaves local control active: Cubic's answer to loss stays. With the
//! actuator `fixed` that window holds whatever is lost.
//!
//! The grant is a bound from outside, as any controller may get (`Bounded`). As a parameter
//! it is one that never changes: what a coordinator says in a network that is known.

use serde::Deserialize;

use super::setup::{Factory, factory};
use super::{Abandoned, Actuator, Bounded, Feedback, FlowController, Limits, PeerId, Sent, cubic};
use crate::registry::{ParameterError, in_range, parameters};
use crate::rng::Rng;
use crate::time::{Duration, Time};
use crate::units::{MbitRate, Rate};

/// Parameters of `c3-cubic`.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Config {
    /// The granted rate of data; none leaves Cubic alone.
    granted_mbit_s: Option<MbitRate>,
    /// What the grant does to the window.
    actuator: Actuator,
}

/// The controller.
#[derive(Clone, Debug)]
struct C3Cubic {
    cubic: Bounded,
    granted: Option<Rate>,
    actuator: Actuator,
}

/// Makes `c3-cubic`.
pub fn build(table: &toml::Table) -> Result<Factory, ParameterError> {
    let config: Config = parameters(table)?;
    if let Some(granted) = config.granted_mbit_s {
        in_range("granted_mbit_s", granted.0, 1e-3..=1e6)?;
    }
    let cubic = cubic::build(&toml::Table::new())?;
    let granted = config.granted_mbit_s.map(MbitRate::whole);
    Ok(factory(move |setup| C3Cubic { cubic: Bounded::new(cubic(setup)), granted, actuator: config.actuator }))
}

impl FlowController for C3Cubic {
    fn on_sent(&mut self, now: Time, to: PeerId, packet: &Sent, rng: &mut Rng) -> bool {
        self.cubic.on_sent(now, to, packet, rng)
    }

    fn on_feedback(&mut self, now: Time, feedback: &Feedback<'_>, rng: &mut Rng) {
        self.cubic.on_feedback(now, feedback, rng);
        // RTT_min is none before the first sample.
        if let (Some(granted), Some(_)) = (self.granted, feedback.rtt.latest) {
            // cWnd_flow = rate_flow * RTT_min
            self.cubic.set(self.actuator.bounds(granted * feedback.rtt.min));
        }
    }

    fn set_ack_wait(&mut self, wait: Duration) {
        self.cubic.set_ack_wait(wait);
    }

    fn on_abandoned(&mut self, now: Time, abandoned: &Abandoned<'_>) {
        self.cubic.on_abandoned(now, abandoned);
    }

    fn on_timer(&mut self, now: Time, rng: &mut Rng) {
        self.cubic.on_timer(now, rng);
    }

    fn timer(&self) -> Option<Time> {
        self.cubic.timer()
    }

    fn limits(&self) -> Limits {
        self.cubic.limits()
    }

    fn trace(&self, record: &mut dyn FnMut(&'static str, f64)) {
        record("window", self.limits().window.get() as f64);
        record("granted", self.granted.map_or(0.0, |rate| rate.bits_per_sec() as f64));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::setup::{Setup, made};
    use crate::flow::testing::{PACKET, PATH, Path, drive, silence};
    use crate::flow::{LossCause, Lost};

    const SHORT: Path = Path { buffer: 50, ..PATH };

    fn run(parameters: &str, path: Path) -> crate::flow::testing::Drive {
        let setup = Setup::new(PACKET, Time::ZERO);
        drive(&mut *made(build, &setup, &parameters.parse().unwrap()).unwrap(), path, 30.0, 1)
    }

    #[test]
    fn a_grant_sets_the_window_to_the_rate_over_the_least_round_trip() {
        let drive = run("granted_mbit_s = 4.0", SHORT);
        // 4 Mbit/s over 101 ms, of which 1 ms is the packet's transmission.
        assert!((drive.window.last().unwrap() - 50.5).abs() < 0.01, "{:?}", drive.window.last());
        assert_eq!(drive.lost, 0);
    }

    #[test]
    fn losses_cut_cubic_beneath_a_grant_unless_the_grant_fixes_its_window() {
        let lossy = Path { loss: 0.02, ..SHORT };
        let (granted, alone) = (run("granted_mbit_s = 7.0", lossy), run("", lossy));
        assert!(granted.throughput() < 1.1 * alone.throughput(), "{}", granted.throughput());
        assert!(granted.window.iter().all(|window| *window <= 88.4), "7 Mbit/s over 101 ms");
        let fixed = run("granted_mbit_s = 7.0\nactuator = \"fixed\"", lossy);
        assert!(fixed.throughput() > 0.95 * 0.98 * 875.0, "{}", fixed.throughput());
        assert!(alone.throughput() < 0.5 * fixed.throughput(), "{}", alone.throughput());
    }

    #[test]
    fn a_loss_before_the_first_round_trip_sample_sets_no_window() {
        let setup = Setup::new(PACKET, Time::ZERO);
        let mut granted = made(build, &setup, &"granted_mbit_s = 4.0".parse().unwrap()).unwrap();
        let lost = [Lost { sent: Sent { size: PACKET, ..Sent::default() }, cause: LossCause::TimeThreshold }];
        let report = Feedback { lost: &lost, ..silence() };
        granted.on_feedback(Time::from_secs_f64(1.0), &report, &mut Rng::stream(1, "controller"));
        assert!(granted.limits().window < setup.initial_window, "{:?}", granted.limits().window);
    }

    #[test]
    fn without_a_grant_it_is_cubic() {
        let setup = Setup::new(PACKET, Time::ZERO);
        let mut cubic = made(cubic::build, &setup, &toml::Table::new()).unwrap();
        assert_eq!(run("", SHORT).window, drive(&mut *cubic, SHORT, 30.0, 1).window);
    }
}
