//! BIC: after a loss the right window lies between the one that lost and the one that the
//! reduction left, and a binary search looks for it: each round trip goes half of the way,
//! or a largest step where that would be too far. Past the old maximum it looks for a new
//! one with steps that double. Small windows grow as Reno's.
//!
//! ```text
//! target = (max + min) / 2, and min = W as W grows                 [Xu 2004]
//! W     += clamp(target - W, Smin, Smax) / W   for each packet     [Xu 2004]
//! past max: W += s / W with s = 1, 2, 4, ... Smax for each round   [Xu 2004]
//! loss     max = W, or (W + (1 - beta) W) / 2 below the last max   [Xu 2004]
//!          min = W = (1 - beta) W                                  [Xu 2004]
//! Reno below low_window                                            [Xu 2004]
//! ```
//!
//! L. Xu, K. Harfoush, I. Rhee: Binary increase congestion control (BIC) for fast
//! long-distance networks. INFOCOM 2004. `min` follows `W`, so `target - W` is half of the
//! distance to `max`; `Smin` keeps that from becoming endless.

use serde::Deserialize;

use super::classic::{Acked, Classic, Window, WindowRule};
use super::counting::Counting;
use super::setup::{Factory, factory};
use super::{Feedback, reno};
use crate::registry::{ParameterError, in_range};
use crate::units::{Packets, WindowUnit};

/// What is left after a loss below `low_window`: Reno's half.
const RENO_SHARE: f64 = 0.5;

/// Parameters of `bic`; windows and steps in packets.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Config {
    /// Largest step of a round trip, Smax.
    largest_step: Packets,
    /// Smallest step of a round trip, Smin.
    smallest_step: Packets,
    /// Below it the window is Reno's.
    low_window: Packets,
    /// Share of the window that a loss takes.
    beta: f64,
    counting: Counting,
}

impl Default for Config {
    fn default() -> Config {
        // [Xu 2004], the values of its simulations: Smax 32, Smin 0.01, low_window 14,
        // beta 0.125.
        Config {
            largest_step: Packets(32.0),
            smallest_step: Packets(0.01),
            low_window: Packets(14.0),
            beta: 0.125,
            counting: Counting::Bytes,
        }
    }
}

/// What the window looks for.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Search {
    /// The window at which the last loss came.
    Below { max: Packets },
    /// A new maximum, by `step` more in this round trip, until `end`.
    Beyond { step: Packets, end: Packets },
    /// The same, with largest steps.
    BeyondLinearly,
}

/// The window rule; windows in packets.
#[derive(Clone, Debug)]
struct Bic {
    search: Search,
    /// The window that the last loss made the target.
    last_max: Packets,
    config: Config,
}

/// Makes `bic`.
pub fn build(parameters: &toml::Table) -> Result<Factory, ParameterError> {
    let config: Config = crate::registry::parameters(parameters)?;
    in_range("largest_step", config.largest_step.0, 0.1..=10_000.0)?;
    in_range("smallest_step", config.smallest_step.0, 0.0001..=config.largest_step.0)?;
    in_range("low_window", config.low_window.0, 0.0..=1e6)?;
    in_range("beta", config.beta, 0.001..=0.9)?;
    Ok(factory(move |setup| Classic::new(setup, config.counting, false, Bic::new(config))))
}

impl Bic {
    fn new(config: Config) -> Bic {
        Bic { search: Search::BeyondLinearly, last_max: Packets::ZERO, config }
    }

    /// The present step of a round trip.
    #[inline]
    fn step(&mut self, window: Packets) -> Packets {
        let Config { largest_step, smallest_step, .. } = self.config;
        match self.search {
            // target - W = (max + W) / 2 - W.
            Search::Below { max } if window < max => {
                return ((max - window) / 2.0).clamp(smallest_step, largest_step);
            }
            Search::Below { .. } => self.search = Search::Beyond { step: Packets(1.0), end: window + Packets(1.0) },
            Search::Beyond { step, end } if window >= end => {
                let step = step * 2.0;
                self.search = match step >= largest_step {
                    true => Search::BeyondLinearly,
                    false => Search::Beyond { step, end: window + step },
                };
            }
            _ => {}
        }
        match self.search {
            Search::Beyond { step, .. } => step.min(largest_step),
            _ => largest_step,
        }
    }
}

impl WindowRule for Bic {
    type Unit = Packets;

    #[inline]
    fn avoid(&mut self, window: &mut Window<Packets>, acked: &Acked<'_, Packets>) {
        if window.size < self.config.low_window {
            return reno::avoid(window, acked.counted);
        }
        window.size += self.step(window.size).share(acked.counted, window.size);
    }

    fn reduce(&mut self, window: &mut Window<Packets>, _: &Feedback<'_>) {
        let before = window.size;
        let kept = if before < self.config.low_window {
            self.last_max = before;
            before * RENO_SHARE
        } else {
            // min = (1 - beta) W; max = W, or halfway between both where W < the last max.
            let kept = before * (1.0 - self.config.beta);
            self.last_max = if before < self.last_max { (before + kept) / 2.0 } else { before };
            kept
        };
        self.search = Search::Below { max: self.last_max };
        window.reduce_to(kept);
    }

    fn trace(&self, window: &Window<Packets>, record: &mut dyn FnMut(&'static str, f64)) {
        window.trace(record);
        record("last_max", window.in_bytes(self.last_max).0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::classic::testing::{avoiding, window};
    use crate::flow::setup::{Setup, made};
    use crate::flow::testing::{PACKET, Path, acknowledge, drive, silence};
    use crate::rng::Rng;
    use crate::time::{Duration, Time};
    use crate::units::Rate;

    fn bic(search: Search) -> Bic {
        Bic { search, ..Bic::new(Config::default()) }
    }

    #[test]
    fn the_search_goes_half_of_the_way_but_no_further_than_a_largest_step() {
        let step = |window| bic(Search::Below { max: Packets(200.0) }).step(Packets(window)).0;
        assert_eq!([step(100.0), step(136.0), step(180.0), step(199.0)], [32.0, 32.0, 10.0, 0.5]);
        assert_eq!(step(199.999), 0.01);
    }

    #[test]
    fn beyond_the_maximum_steps_double_until_they_are_largest() {
        let (mut bic, mut window) = (bic(Search::Below { max: Packets(200.0) }), Packets(200.0));
        let mut steps = Vec::new();
        while steps.len() < 8 {
            let step = bic.step(window);
            steps.push(step.0);
            window += step;
        }
        assert_eq!(steps, [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 32.0, 32.0]);
    }

    #[test]
    fn a_loss_takes_an_eighth_and_sets_the_maximum_lower_below_the_last_one() {
        let (mut bic, mut window) = (bic(Search::BeyondLinearly), window::<Bic>(160.0));
        bic.reduce(&mut window, &silence());
        assert_eq!((window.size, bic.search), (Packets(140.0), Search::Below { max: Packets(160.0) }));
        window.size = Packets(144.0);
        bic.reduce(&mut window, &silence());
        assert_eq!((window.size, bic.search), (Packets(126.0), Search::Below { max: Packets(135.0) }));
        window.size = Packets(12.0);
        bic.reduce(&mut window, &silence());
        assert_eq!(window.size, Packets(6.0), "below low_window a loss halves");
    }

    #[test]
    fn near_the_old_maximum_the_distance_halves_in_less_than_two_round_trips() {
        let mut bic = avoiding(160.0, Counting::Bytes, bic(Search::Below { max: Packets(200.0) }));
        let mut rng = Rng::stream(1, "controller");
        let mut round_trips_until = |distance: f64| {
            let mut round_trips = 0.0;
            while 200.0 - bic.size() > distance {
                round_trips += 1.0 / bic.size();
                acknowledge(&mut bic, Time::from_secs_f64(1.0), Duration::from_millis(100), false, &mut rng);
            }
            round_trips
        };
        // Each ACK goes 1 / W of half of the distance: W' = (max - W) / 2 a round trip.
        let expected = 2.0 * core::f64::consts::LN_2;
        for distance in [20.0, 10.0, 5.0, 2.5] {
            let round_trips = round_trips_until(distance);
            assert!((round_trips / expected - 1.0).abs() < 0.01, "{round_trips} to {distance} packets");
        }
    }

    #[test]
    fn after_each_loss_an_eighth_is_gone_and_the_window_comes_back() {
        // 1000 packets a round trip fill it.
        let path = Path {
            rate: Rate::from_bytes_per_sec(10_000_000),
            rtt: Duration::from_millis(100),
            buffer: 100,
            loss: 0.0,
        };
        let mut bic = made(build, &Setup::new(PACKET, Time::ZERO), &toml::Table::new()).unwrap();
        let run = drive(&mut *bic, path, 60.0, 1);
        let settled = Time::from_secs_f64(20.0);
        let fell = |i: &usize| run.window[*i] < 0.95 * run.window[i - 1] && run.at[*i] > settled;
        let falls: Vec<usize> = (1..run.at.len()).filter(fell).collect();
        assert!(falls.len() > 5, "{} falls", falls.len());
        for i in falls {
            let (before, after) = (run.window[i - 1], run.window[i]);
            assert!((after / before - 0.875).abs() < 0.002, "{before} fell to {after}");
            // A window of 1101 packets fills the path and the queue.
            assert!((1090.0..1200.0).contains(&before), "a loss at {before}");
        }
    }
}
