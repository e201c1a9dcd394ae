//! Vegas: compares the rate that the window would give without a queue with the rate that
//! it gives, once each round trip. The difference, times the least round trip, is how many
//! of its own packets wait in the queue; below `alpha` the window grows by a packet, above
//! `beta` it shrinks by one. It so holds a short queue instead of filling it until a loss.
//!
//! ```text
//! Expected = F / BaseRTT,  Actual = F / RTT             [Brakmo, Peterson 1995] III-B
//! Diff     = (Expected - Actual) BaseRTT = F (1 - BaseRTT / RTT)
//! W += 1 where Diff < alpha,  W -= 1 where Diff > beta  [Brakmo, Peterson 1995] III-B
//! slow start: W doubles every other round trip, until Diff > gamma      III-C
//! ```
//!
//! L. S. Brakmo, L. L. Peterson: TCP Vegas: end to end congestion avoidance on a global
//! Internet. IEEE JSAC 13(8), 1995. `F` is what was delivered over the flight of the packet
//! whose round trip is taken, for the paper's window, which it takes to equal what is in
//! transit. The round trip is the least of the round's samples, not that of one segment, so
//! that a receiver that waits before it answers is not mistaken for a queue. The paper's
//! third part, an earlier retransmission, is the sender's affair, as is how losses are
//! found; a round trip with a loss halves the window, as in Reno.

use serde::Deserialize;

use super::Feedback;
use super::classic::{Acked, Classic, Window, WindowRule};
use super::counting::Counting;
use super::round::RoundMin;
use super::setup::{Factory, factory};
use crate::registry::{ParameterError, in_range};
use crate::time::{Duration, Time};
use crate::units::{Packets, WindowUnit};

/// Parameters of `vegas`, packets in the queue.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Config {
    alpha: Packets,
    beta: Packets,
    gamma: Packets,
}

impl Default for Config {
    fn default() -> Config {
        // [Brakmo, Peterson 1995]: Vegas-2,4, with gamma 1.
        Config { alpha: Packets(2.0), beta: Packets(4.0), gamma: Packets(1.0) }
    }
}

/// The window rule; windows in packets. Its slow start is its own: no threshold ends it but a
/// queue, and it goes on from the round trip to which the comparison belongs.
#[derive(Clone, Debug)]
struct Vegas {
    slow_start: bool,
    /// The window doubles in this round of slow start.
    doubles: bool,
    rounds: RoundMin,
    /// The least round trip of the round that ends with the present feedback, if one does.
    round_min: Option<Duration>,
    /// Diff when it was last taken.
    queued: Packets,
    config: Config,
}

/// Makes `vegas`.
pub fn build(parameters: &toml::Table) -> Result<Factory, ParameterError> {
    let config: Config = crate::registry::parameters(parameters)?;
    in_range("alpha", config.alpha.0, 0.1..=10_000.0)?;
    in_range("beta", config.beta.0, config.alpha.0..=10_000.0)?;
    in_range("gamma", config.gamma.0, 0.1..=10_000.0)?;
    Ok(factory(move |setup| {
        let rounds = RoundMin::default();
        let rule = Vegas { slow_start: true, doubles: true, rounds, round_min: None, queued: Packets::ZERO, config };
        Classic::new(setup, Counting::Bytes, false, rule)
    }))
}

impl Vegas {
    /// A round trip has ended, over which `flight` packets were delivered.
    fn judge(&mut self, window: &mut Window<Packets>, flight: Packets, rtt: Duration, base: Duration) {
        // Diff = F (1 - BaseRTT / RTT); none on a path that takes no time.
        let share = if rtt > base { 1.0 - base.as_secs_f64() / rtt.as_secs_f64() } else { 0.0 };
        self.queued = flight * share;
        if self.slow_start {
            // A round in which the window stands still allows a valid comparison.
            self.slow_start = self.doubles || self.queued <= self.config.gamma;
            self.doubles = !self.doubles;
        } else if self.queued < self.config.alpha {
            window.size += Packets(1.0);
        } else if self.queued > self.config.beta {
            window.size = (window.size - Packets(1.0)).max(window.minimum());
        }
    }
}

impl WindowRule for Vegas {
    type Unit = Packets;

    #[inline]
    fn observe(&mut self, _: Time, feedback: &Feedback<'_>) {
        self.round_min = self.rounds.ended(feedback);
    }

    fn avoid(&mut self, window: &mut Window<Packets>, acked: &Acked<'_, Packets>) {
        let Feedback { delivered, acked: packets, rtt, .. } = *acked.feedback;
        if let (Some(round_min), Some(newest)) = (self.round_min, packets.last()) {
            let flight = window.in_unit((delivered - newest.delivered).into());
            self.judge(window, flight, round_min, rtt.min);
        }
    }

    #[inline]
    fn grow(&mut self, window: &mut Window<Packets>, acked: &Acked<'_, Packets>) {
        self.avoid(window, acked);
        if self.slow_start && self.doubles {
            window.size += acked.counted;
        }
    }

    fn reduce(&mut self, window: &mut Window<Packets>, feedback: &Feedback<'_>) {
        window.reduce_to(window.size / 2.0);
        self.slow_start = false;
        self.rounds.restart(feedback.delivered);
    }

    fn on_persistent_congestion(&mut self) {
        self.slow_start = true;
    }

    fn trace(&self, window: &Window<Packets>, record: &mut dyn FnMut(&'static str, f64)) {
        record("window", window.in_bytes(window.size).0);
        record("queued", window.in_bytes(self.queued).0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::setup::{Setup, made};
    use crate::flow::testing::{Drive, PACKET, PATH, Path, drive};
    use crate::units::Rate;

    fn vegas(path: Path, seconds: f64) -> Drive {
        let setup = Setup::new(PACKET, Time::ZERO);
        drive(&mut *made(build, &setup, &toml::Table::new()).unwrap(), path, seconds, 1)
    }

    #[test]
    fn two_to_four_packets_wait_in_the_queue() {
        let run = vegas(PATH, 60.0);
        assert_eq!(run.lost, 0);
        let late = &run.rtt_ms[run.rtt_ms.len() / 2..];
        // A round trip without a queue is 100 ms and the packet's own millisecond.
        let queued: Vec<f64> = late.iter().map(|rtt| rtt - 101.0).collect();
        let mean = queued.iter().sum::<f64>() / queued.len() as f64;
        assert!((2.0..=4.0).contains(&mean), "{mean} packets on average");
        assert!(
            queued.iter().all(|packets| (1.0..=5.0).contains(packets)),
            "{:?}",
            queued.iter().copied().fold(0.0, f64::max)
        );
    }

    #[test]
    fn slow_start_doubles_the_window_every_other_round_trip() {
        let wide = Path { rate: Rate::from_bytes_per_sec(1_000_000_000), ..PATH };
        let run = vegas(wide, 0.85);
        let after = |round_trips: f64| {
            let end = Time::from_secs_f64(0.1005 * round_trips + 0.05);
            run.window[run.at.iter().rposition(|at| *at <= end).unwrap()]
        };
        let windows: Vec<f64> = (1..=8).map(|round| after(f64::from(round))).collect();
        let falls = |a: f64, b: f64| (a / b - 1.0).abs() < 0.05;
        for pair in windows.windows(3) {
            assert!(falls(pair[2], 2.0 * pair[0]), "{windows:?}");
            assert!(falls(pair[1], pair[0]) || falls(pair[1], pair[2]), "{windows:?}");
        }
    }

    #[test]
    fn slow_start_ends_once_more_than_gamma_packets_wait() {
        let run = vegas(PATH, 60.0);
        let highest = run.window.iter().copied().fold(0.0, f64::max);
        assert!(highest < 170.0, "{highest}: a queue of 100 packets is a window of 200");
    }
}
