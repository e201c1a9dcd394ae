//! PCC Allegro: tries a little more and a little less than its rate, twice each in random
//! order, moves in the direction that had the higher utility both times, and goes on in it
//! with growing steps until the utility falls. Its utility counts throughput while less
//! than 5 % is lost. Dong, Li, Zarchy, Godfrey, Schapira, "PCC: re-architecting congestion
//! control for consistent high performance", NSDI 2015.
//!
//! ```text
//! utility    u = T sigmoid(L - 0.05) - x L         x sent, T = x (1 - L), L lost share
//! starting   r doubles each interval until u falls; then back to the rate before
//! deciding   r (1 + ε), r (1 - ε) in two pairs; no agreement: ε grows by ε_min up to ε_max
//! adjusting  r_n = r_(n-1) (1 + n step dir) until u(r_n) < u(r_(n-1)); then r_(n-1)
//! interval   the longer of 10 packets and 1.7 to 2.2 round trips, at random
//! ```
//!
//! The paper starts each adjusting interval at once. Here the next waits for the last one's
//! utility, at the rate under trial, so that one step too far is one and not three.
//!
//! `allegro-quic` is the sender that the LearningCC authors ran under the name of Vivace:
//! the PCC of the QUIC implementations. Its probes are 5 % and never grow, its steps 2 % up
//! to 10 %, its starting phase waits for each utility and ends when the round trip has grown
//! by 30 %, it waits at the lower of the rates in question, its intervals are 1.5 least round
//! trips, and its utility also falls with a rising
//! round trip: `u = T sigmoid(L - 0.05) sigmoid(1 - rtt_begin / rtt_end) - x L`. The paper has
//! such a term for interactive flows (section 4).

use serde::Deserialize;

use super::monitor::Report;
use super::pcc::{Purpose, SHORTEST_RTT, Trial, sigmoid};
use super::setup::{Factory, Setup, factory};
use super::{Abandoned, Feedback, FlowController, Limits, PeerId, Sent};
use crate::registry::{ParameterError, in_range};
use crate::rng::Rng;
use crate::time::{Duration, Time};
use crate::units::{MbitRate, Packets};

/// Intervals of a decision: two pairs of more and less (3.2).
const PROBES: usize = 4;

/// Which round trip an interval is measured in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum RoundTripOf {
    Smoothed,
    Least,
}

/// Parameters of `allegro` and `allegro-quic`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Config {
    /// ε_min: the first probe's distance from the rate.
    epsilon_min: f64,
    /// ε_max: the furthest.
    epsilon_max: f64,
    /// What a step of the adjusting phase grows by.
    step: f64,
    /// The largest step.
    step_max: f64,
    /// The lost share at which throughput counts half.
    loss_tolerance: f64,
    /// How sharply it ceases to count there.
    loss_steepness: f64,
    /// The same for the round trip's growth; 0: it does not matter.
    latency_steepness: f64,
    /// Round-trip growth that an adjusting interval may have for nothing.
    latency_tolerance: f64,
    /// Round-trip growth that ends the starting phase; 0: none does.
    starting_tolerance: f64,
    /// Whether the starting phase waits for each interval's utility.
    starting_waits: bool,
    /// Whether the lowest rate in question is held, not the one under trial, while a
    /// utility is awaited.
    holds_lower: bool,
    /// Packets in an interval at least.
    interval_packets: Packets,
    /// Round trips in an interval, at random from here...
    interval_rtts_min: f64,
    /// ...to here.
    interval_rtts_max: f64,
    /// Which round trip.
    interval_rtt: RoundTripOf,
    /// Packets a round trip of the first rate.
    initial_packets: Packets,
    /// Packets a round trip of the lowest rate.
    minimum_packets: Packets,
}

impl Default for Config {
    /// NSDI 2015: 2.2 for the utility, 3.1 for intervals, 3.2 for the rest.
    fn default() -> Config {
        Config {
            epsilon_min: 0.01,
            epsilon_max: 0.05,
            step: 0.01,
            step_max: 1.0,
            loss_tolerance: 0.05,
            loss_steepness: 100.0,
            latency_steepness: 0.0,
            latency_tolerance: 0.0,
            starting_tolerance: 0.0,
            starting_waits: false,
            holds_lower: false,
            interval_packets: Packets(10.0),
            interval_rtts_min: 1.7,
            interval_rtts_max: 2.2,
            interval_rtt: RoundTripOf::Smoothed,
            initial_packets: Packets(2.0),
            minimum_packets: Packets(2.0),
        }
    }
}

/// What `allegro-quic` has instead.
const QUIC: &str = r#"
epsilon_min = 0.05
epsilon_max = 0.05
step = 0.02
step_max = 0.10
loss_steepness = 1000.0
latency_steepness = 200.0
latency_tolerance = 0.05
starting_tolerance = 0.3
starting_waits = true
holds_lower = true
interval_packets = 2.0
interval_rtts_min = 1.5
interval_rtts_max = 1.5
interval_rtt = "least"
initial_packets = 10.0
minimum_packets = 4.0
"#;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// The starting phase's.
    Start,
    /// The decision's, by its place.
    Probe(usize),
    /// The adjusting phase's.
    Adjust,
    /// At a rate that is not judged.
    Hold,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    Starting {
        /// Utility and rate of the best interval so far.
        best: Option<(f64, MbitRate)>,
        /// The rate of the interval begun last.
        rate: Option<MbitRate>,
        /// An interval is under way whose utility is awaited.
        awaits: bool,
    },
    Deciding {
        begun: usize,
        /// Which probes send more.
        more: [bool; PROBES],
        utilities: [Option<f64>; PROBES],
    },
    Adjusting {
        /// +1 or -1.
        direction: f64,
        n: u32,
        /// Utility and rate of the step before.
        before: (f64, MbitRate),
        begun: bool,
    },
}

/// The controller.
#[derive(Clone, Debug)]
struct Allegro {
    config: Config,
    trial: Trial<Kind>,
    /// The rate around which it decides, or under trial.
    base: MbitRate,
    epsilon: f64,
    phase: Phase,
    utility: f64,
    /// The smoothed round trip when the open interval began.
    begun_srtt: Duration,
}

/// Makes `allegro`.
pub fn build(parameters: &toml::Table) -> Result<Factory, ParameterError> {
    Ok(factory(of(parameters)?))
}

/// Makes `allegro-quic`.
pub fn build_quic(parameters: &toml::Table) -> Result<Factory, ParameterError> {
    let mut all: toml::Table = QUIC.parse().expect("a table that a test reads");
    all.extend(parameters.clone());
    build(&all)
}

fn of(parameters: &toml::Table) -> Result<impl Fn(&Setup) -> Allegro + Send + Sync + use<>, ParameterError> {
    let config: Config = crate::registry::parameters(parameters)?;
    in_range("epsilon_min", config.epsilon_min, 1e-4..=0.5)?;
    in_range("epsilon_max", config.epsilon_max, config.epsilon_min..=0.5)?;
    in_range("step", config.step, 1e-4..=0.5)?;
    in_range("step_max", config.step_max, config.step..=1.0)?;
    in_range("loss_tolerance", config.loss_tolerance, 0.0..=1.0)?;
    in_range("loss_steepness", config.loss_steepness, 0.0..=1e5)?;
    in_range("latency_steepness", config.latency_steepness, 0.0..=1e5)?;
    in_range("latency_tolerance", config.latency_tolerance, 0.0..=1.0)?;
    in_range("starting_tolerance", config.starting_tolerance, 0.0..=100.0)?;
    in_range("interval_packets", config.interval_packets.0, 1.0..=1e6)?;
    in_range("interval_rtts_min", config.interval_rtts_min, 0.1..=100.0)?;
    in_range("interval_rtts_max", config.interval_rtts_max, config.interval_rtts_min..=100.0)?;
    in_range("initial_packets", config.initial_packets.0, 1.0..=1000.0)?;
    in_range("minimum_packets", config.minimum_packets.0, 0.1..=1000.0)?;
    Ok(move |setup: &Setup| Allegro::new(setup, config.clone()))
}

impl Allegro {
    fn new(setup: &Setup, config: Config) -> Allegro {
        let trial = Trial::new(setup.packet, config.initial_packets, config.minimum_packets);
        Allegro {
            base: trial.rate,
            epsilon: config.epsilon_min,
            phase: Phase::Starting { best: None, rate: None, awaits: false },
            utility: 0.0,
            begun_srtt: trial.srtt(),
            trial,
            config,
        }
    }

    /// How long an interval at `rate` is.
    fn length(&self, rate: MbitRate, rng: &mut Rng) -> Duration {
        let Config { interval_rtts_min: low, interval_rtts_max: high, interval_packets, .. } = self.config;
        let rtt = match self.config.interval_rtt {
            RoundTripOf::Smoothed => self.trial.srtt(),
            RoundTripOf::Least => self.trial.min_rtt,
        };
        let rtts = low + (high - low) * rng.uniform();
        Duration::from(rtt.seconds() * rtts).max(self.trial.time_to_send(interval_packets, rate))
    }

    /// Begins the next interval with the packet that leaves now.
    fn begin(&mut self, now: Time, rng: &mut Rng) {
        let (kind, rate) = self.next(rng);
        self.trial.rate = rate.max(self.trial.minimum());
        let length = self.length(self.trial.rate, rng);
        let (epoch, srtt) = (self.trial.epoch, self.trial.srtt());
        self.begun_srtt = srtt;
        self.trial.monitor.begin(now, length, Purpose { epoch, kind, rate: self.trial.rate, srtt });
    }

    /// What the next interval is for, and its rate.
    fn next(&mut self, rng: &mut Rng) -> (Kind, MbitRate) {
        let (base, epsilon, sampled) = (self.base, self.epsilon, self.trial.srtt.is_some());
        let lower = self.config.holds_lower;
        match &mut self.phase {
            // Half of a rate that has not proven itself, while its utility is awaited.
            Phase::Starting { awaits: true, .. } if self.config.starting_waits => (Kind::Hold, base / 2.0),
            // Before a round trip is known there is no rate to judge.
            Phase::Starting { .. } if !sampled => (Kind::Hold, base),
            Phase::Starting { rate, awaits, .. } => {
                // r doubles each interval, if the application fills it.
                let doubled = if rate.is_some() && !self.trial.app_limited { base * 2.0 } else { base };
                (*rate, *awaits) = (Some(doubled), true);
                self.base = doubled;
                (Kind::Start, doubled)
            }
            Phase::Deciding { begun, .. } if *begun == PROBES => {
                (Kind::Hold, if lower { base * (1.0 - epsilon) } else { base })
            }
            Phase::Deciding { begun, more, .. } => {
                let place = *begun;
                more[place] = if place % 2 == 0 { rng.chance(0.5) } else { !more[place - 1] };
                *begun += 1;
                (Kind::Probe(place), base * if more[place] { 1.0 + epsilon } else { 1.0 - epsilon })
            }
            Phase::Adjusting { begun: true, before, .. } => (Kind::Hold, if lower { base.min(before.1) } else { base }),
            Phase::Adjusting { begun, .. } => {
                *begun = true;
                (Kind::Adjust, base)
            }
        }
    }

    /// Tries more and less around `rate`.
    fn decide(&mut self, now: Time, rate: MbitRate) {
        self.base = rate.max(self.trial.minimum());
        self.trial.next_epoch();
        // What is under way belongs to no search any more.
        self.trial.monitor.cut(now);
        self.phase = Phase::Deciding { begun: 0, more: [false; PROBES], utilities: [None; PROBES] };
    }

    fn utility_of(&self, report: &Report<Purpose<Kind>>) -> f64 {
        let tolerance = match report.purpose.kind {
            Kind::Start => self.config.starting_tolerance,
            Kind::Adjust => self.config.latency_tolerance,
            Kind::Probe(_) | Kind::Hold => 0.0,
        };
        let growth = 1.0 - report.purpose.srtt.seconds() / self.trial.srtt().seconds().max(SHORTEST_RTT);
        let latency = if growth.abs() <= tolerance { 0.0 } else { growth };
        utility(&self.config, report.sent_rate(), report.acked_rate(), report.loss(), latency)
    }

    fn on_report(&mut self, now: Time, report: &Report<Purpose<Kind>>) {
        if report.purpose.kind == Kind::Hold {
            return;
        }
        // What the application held back says nothing about the rate.
        if report.app_limited {
            match &mut self.phase {
                Phase::Starting { awaits, .. } => *awaits = false,
                _ => self.decide(now, self.base),
            }
            return;
        }
        let utility = self.utility_of(report);
        self.utility = utility;
        match (&mut self.phase, report.purpose.kind) {
            (Phase::Starting { best, awaits, .. }, Kind::Start) => match *best {
                Some((highest, rate)) if utility < highest => self.decide(now, rate),
                _ => {
                    *best = Some((utility, report.purpose.rate));
                    *awaits = false;
                }
            },
            (Phase::Deciding { utilities, .. }, Kind::Probe(place)) => {
                utilities[place] = Some(utility);
                self.conclude(now);
            }
            (Phase::Adjusting { direction, n, before, begun }, Kind::Adjust) => {
                if utility < before.0 {
                    let rate = before.1;
                    self.decide(now, rate);
                    return;
                }
                // r_n = r_(n-1) (1 + n step dir)
                *before = (utility, self.base);
                *n += 1;
                *begun = false;
                let step = (f64::from(*n) * self.config.step).min(self.config.step_max);
                self.base = (self.base * (1.0 + *direction * step)).max(self.trial.minimum());
                self.trial.monitor.cut(now);
            }
            _ => {}
        }
    }

    /// Decides, once the utilities of all probes are known.
    fn conclude(&mut self, now: Time) {
        let Phase::Deciding { more, utilities, .. } = self.phase else { return };
        let mut known = [0.0; PROBES];
        for (known, utility) in known.iter_mut().zip(utilities) {
            let Some(utility) = utility else { return };
            *known = utility;
        }
        let mut votes = [0.0; PROBES / 2];
        for (pair, vote) in votes.iter_mut().enumerate() {
            let (first, second) = (known[2 * pair], known[2 * pair + 1]);
            let higher = if more[2 * pair] { first - second } else { second - first };
            *vote = if higher == 0.0 { 0.0 } else { higher.signum() };
        }
        let direction = votes[0];
        if direction == 0.0 || votes.iter().any(|vote| *vote != direction) {
            self.epsilon = (self.epsilon + self.config.epsilon_min).min(self.config.epsilon_max);
            self.decide(now, self.base);
            return;
        }
        let chosen = self.base * (1.0 + direction * self.epsilon);
        // The winner's utility in the last pair: the newest knowledge of it.
        let last = if more[PROBES - 2] == (direction > 0.0) { PROBES - 2 } else { PROBES - 1 };
        let before = (known[last], chosen);
        self.epsilon = self.config.epsilon_min;
        self.base = (chosen * (1.0 + direction * self.config.step)).max(self.trial.minimum());
        self.trial.next_epoch();
        self.trial.monitor.cut(now);
        self.phase = Phase::Adjusting { direction, n: 1, before, begun: false };
    }

    /// Ends the starting phase when the round trip has grown too much.
    fn check_latency(&mut self, now: Time) {
        let tolerance = self.config.starting_tolerance;
        let Phase::Starting { rate: Some(rate), .. } = self.phase else { return };
        let grown = self.trial.srtt().seconds() / self.begun_srtt.seconds().max(SHORTEST_RTT);
        if tolerance > 0.0 && grown > 1.0 + tolerance {
            self.decide(now, rate / 2.0);
        }
    }
}

/// `u = T sigmoid(L - tolerance) sigmoid(latency) - x L`, T and x in Mbit/s; without a
/// steepness of latency, the paper's `u = T sigmoid(L - tolerance) - x L`.
fn utility(config: &Config, sent: MbitRate, acked: MbitRate, loss: f64, latency: f64) -> f64 {
    let loss_factor = sigmoid(config.loss_steepness, loss - config.loss_tolerance);
    let latency_factor = match config.latency_steepness {
        0.0 => 1.0,
        // 1/2 where the round trip stays as it is, as in that sender.
        steepness => sigmoid(steepness, latency),
    };
    (acked * loss_factor * latency_factor - sent * loss).0
}

impl FlowController for Allegro {
    fn on_sent(&mut self, now: Time, _: PeerId, packet: &Sent, rng: &mut Rng) -> bool {
        let is_due = self.trial.monitor.is_due(now);
        if is_due {
            self.begin(now, rng);
        }
        self.trial.monitor.on_sent(packet);
        is_due
    }

    fn on_feedback(&mut self, now: Time, feedback: &Feedback<'_>, _: &mut Rng) {
        if self.trial.on_feedback(feedback) {
            // r = 2 MSS / RTT (3.2), now that the round trip is known.
            self.base = self.trial.packets_per_rtt(self.config.initial_packets);
            self.trial.monitor.cut(now);
        }
        if feedback.persistent_congestion {
            self.trial.restart();
            self.base = self.trial.rate;
            self.epsilon = self.config.epsilon_min;
            self.phase = Phase::Starting { best: None, rate: None, awaits: false };
            return;
        }
        while let Some(report) = self.trial.next_report() {
            self.on_report(now, &report);
        }
        self.check_latency(now);
    }

    fn on_abandoned(&mut self, _: Time, abandoned: &Abandoned<'_>) {
        self.trial.monitor.on_abandoned(abandoned);
    }

    fn limits(&self) -> Limits {
        self.trial.limits()
    }

    fn trace(&self, record: &mut dyn FnMut(&'static str, f64)) {
        let limits = self.trial.limits();
        record("window", limits.window.get() as f64);
        record("rate", limits.rate.map_or(0.0, |rate| rate.bits_per_sec() as f64));
        record("base_rate", self.base.bits_per_sec());
        record("epsilon", self.epsilon);
        record("utility", self.utility);
    }
}

#[cfg(test)]
mod tests;
