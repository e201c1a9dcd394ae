//! Reno: doubles the window each round trip until a first loss, then adds a packet each
//! round trip, and halves after each round trip with a loss.
//!
//! ```text
//! slow start            W += acked                       RFC 5681 eq. 2, RFC 9002 7.3.1
//! congestion avoidance  W += packet * acked / W          RFC 5681 eq. 3, RFC 9002 7.3.3
//! loss                  W = ssthresh = max(W / 2, 2 packets)   RFC 5681 eq. 4, RFC 9002 7.3.2
//! persistent congestion W = 2 packets                          RFC 9002 7.6.2
//! timeout of TCP        ssthresh as after a loss, W = 1 packet  RFC 5681 3.1
//! ```
//!
//! With selective ACKs, the NewReno of RFC 6582 is one reduction for all losses of one
//! flight. Whether growth counts bytes or ACKs is left open by RFC 5681 3.1: counting ACKs
//! grows by half as much where each second packet is acknowledged, as ns-2 and ns-3 do.
//! Slow start may watch round trips (HyStart++, RFC 9406).

use serde::Deserialize;

use super::classic::{Acked, Classic, Window, WindowRule};
use super::counting::Counting;
use super::reading::ClassicReading;
use super::setup::{Factory, factory};
use super::{Feedback, TcpRecovery};
use crate::registry::ParameterError;
use crate::units::{Octets, WindowUnit};

/// What is halved after a loss.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Halving {
    /// The window (RFC 9002).
    #[default]
    Window,
    /// What is in flight once the loss is known, neither lost nor acknowledged, as ns-3
    /// reads RFC 5681's FlightSize: three packets less than the window or more.
    InFlight,
}

/// Parameters of `reno`.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Config {
    counting: Counting,
    halving: Halving,
    hystart: bool,
}

/// The reading of ns-3: each ACK of new data is a packet (RFC 5681, eq. 3, left open beside counting bytes), and
/// FlightSize (RFC 5681, eq. 4; RFC 6675, 5, 4.2) is what is neither lost nor acknowledged. ns-2 counts ACKs too and
/// halves the window.
pub const CLASSIC: ClassicReading = ClassicReading { with_sack: NS_3, without_sack: NS_3, chosen_by: &[] };

const NS_3: &str = "counting = \"acks\"\nhalving = \"in-flight\"";

/// The window rule.
#[derive(Clone, Debug)]
struct Reno {
    halving: Halving,
}

/// Makes `reno`.
pub fn build(parameters: &toml::Table) -> Result<Factory, ParameterError> {
    let config: Config = crate::registry::parameters(parameters)?;
    let Config { counting, halving, hystart } = config;
    Ok(factory(move |setup| Classic::new(setup, counting, hystart, Reno { halving })))
}

/// W += packet counted / W (RFC 5681, eq. 3), which other rules build on.
#[inline]
pub fn avoid<U: WindowUnit>(window: &mut Window<U>, counted: U) {
    window.size += window.packet().share(counted, window.size);
}

impl WindowRule for Reno {
    type Unit = Octets;

    #[inline]
    fn avoid(&mut self, window: &mut Window<Octets>, acked: &Acked<'_, Octets>) {
        avoid(window, acked.counted);
    }

    #[inline]
    fn reduce(&mut self, window: &mut Window<Octets>, feedback: &Feedback<'_>) {
        let halved = match self.halving {
            Halving::Window => window.size,
            Halving::InFlight => match feedback.tcp {
                Some(TcpRecovery::Timeout { in_flight, .. }) => in_flight.into(),
                _ => feedback.in_flight.into(),
            },
        };
        // W = ssthresh = max(W / 2, 2 packets)
        window.reduce_to(halved / 2.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::setup::{Setup, made};
    use crate::flow::testing::{Drive, PACKET, PATH, Path, drive};
    use crate::time::Time;
    use crate::units::Rate;

    /// A queue of 20 is too short for half of the window.
    const SHORT: Path = Path { buffer: 20, ..PATH };

    fn reno(parameters: &str, path: Path, seconds: f64) -> Drive {
        let setup = Setup::new(PACKET, Time::ZERO);
        drive(&mut *made(build, &setup, &parameters.parse().unwrap()).unwrap(), path, seconds, 1)
    }

    #[test]
    fn slow_start_doubles_the_window_each_round_trip() {
        let run = reno("", PATH, 0.39);
        // 10 packets leave at 0; each of three whole round trips doubles them.
        let last = run.window.last().unwrap();
        assert!((79.0..=82.0).contains(last), "{last}");
    }

    #[test]
    fn congestion_avoidance_adds_a_packet_each_round_trip() {
        let run = reno("", SHORT, 60.0);
        let growth: Vec<f64> = run.window.windows(2).map(|pair| pair[1] - pair[0]).filter(|step| *step > 0.0).collect();
        let late = &growth[growth.len() / 2..];
        assert!(late.iter().all(|step| *step < 0.03), "an ACK added {:?}", late.iter().copied().fold(0.0, f64::max));
    }

    #[test]
    fn a_flight_with_losses_halves_the_window_once() {
        let run = reno("", SHORT, 60.0);
        let mut falls = 0;
        for pair in run.window.windows(2).filter(|pair| pair[1] < pair[0]) {
            assert!((pair[1] - pair[0] / 2.0).abs() < 1.0, "from {} to {}", pair[0], pair[1]);
            falls += 1;
        }
        // From 60 to 121 packets take 61 round trips of 100 to 120 ms: a fall each 6.6 s.
        assert!((7..=11).contains(&falls), "{falls} falls in a minute");
    }

    #[test]
    fn with_a_lone_random_loss_rate_throughput_follows_the_square_root_law() {
        let wide = Path { rate: Rate::from_bytes_per_sec(1_000_000_000), buffer: 100_000, loss: 0.001, ..PATH };
        let run = reno("", wide, 400.0);
        // Mathis et al. 1997: sqrt(3 / (2 p)) packets a round trip, an ACK for each packet.
        let law = (1.5f64 / 0.001).sqrt() / 0.1;
        assert!((run.throughput() / law - 1.0).abs() < 0.1, "{} against {law}", run.throughput());
    }
}
