//! PCC Vivace: sends a little more and a little less than its rate, takes from the two
//! utilities the slope of utility over rate, and moves the rate by that slope: faster the
//! longer it goes one way, but never by more than a bound that grows as it is hit. Its
//! utility rewards rate less than linearly and punishes loss and a rising round trip. Dong,
//! Meng, Zarchy, Arslan, Gilad, Godfrey, Schapira, "PCC Vivace: online-learning congestion
//! control", NSDI 2018.
//!
//! ```text
//! utility     u = x^0.9 - 900 x dRTT/dt - 11.35 x L     x sent, Mbit/s; L lost share
//! starting    r doubles each interval until u falls; then back to the rate before
//! slope       γ = (u(r (1 + ε)) - u(r (1 - ε))) / (2 ε r)
//! amplifier   m(τ) = τ for τ <= 3, else 2 τ - 3         τ slopes of one sign in a row
//! step        Δ = m(τ) θ γ
//! boundary    |Δ| <= ω r, ω = ω_0 + k δ                 k grows with each step cut off
//! interval    a round trip
//! ```
//!
//! dRTT/dt is the slope of a least-squares line through the interval's round trips; below
//! 0.01 it counts as none, as in the implementations of QUIC and WebRTC: over the few
//! packets of a slow sender's interval chance alone makes such a slope.

use serde::Deserialize;

use super::monitor::Report;
use super::pcc::{Purpose, Trial};
use super::setup::{Factory, Setup, factory};
use super::{Abandoned, Feedback, FlowController, Limits, PeerId, Sent};
use crate::registry::{ParameterError, in_range};
use crate::rng::Rng;
use crate::time::{Duration, Time};
use crate::units::{MbitRate, Packets};

/// Packets a round trip of the first and of the lowest rate (NSDI 2015, 3.2).
const MINIMUM_PACKETS: Packets = Packets(2.0);

/// Steps of one sign from which the amplifier grows by two each (section 5).
const SLOW_AMPLIFICATION: u32 = 3;

/// Parameters of `vivace`, NSDI 2018: section 4 for the utility, 5 for the rate.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Config {
    /// t: power of the rate.
    exponent: f64,
    /// b: weight of the round trip's slope.
    latency: f64,
    /// c: weight of loss.
    loss: f64,
    /// Slopes of the round trip nearer to 0 count as 0, seconds a second.
    gradient_tolerance: f64,
    /// ε: distance of the two probes from the rate.
    epsilon: f64,
    /// θ: what a slope of 1 adds, in Mbit/s.
    step: MbitRate,
    /// ω_0: the first bound of a step, in shares of the rate.
    boundary: f64,
    /// δ: what it grows by.
    boundary_step: f64,
    /// Round trips in an interval.
    interval_rtts: f64,
    /// Packets in an interval at least: two have a slope.
    interval_packets: Packets,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            exponent: 0.9,
            latency: 900.0,
            loss: 11.35,
            gradient_tolerance: 0.01,
            epsilon: 0.05,
            step: MbitRate(1.0),
            boundary: 0.05,
            boundary_step: 0.1,
            interval_rtts: 1.0,
            interval_packets: Packets(2.0),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// The starting phase's.
    Start,
    /// A probe: true for the one that sends more.
    Probe(bool),
    /// At a rate that is not judged.
    Hold,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    Starting {
        /// Utility and rate of the last interval judged.
        best: Option<(f64, MbitRate)>,
        begun: bool,
    },
    Probing {
        begun: usize,
        /// Whether the first probe sends more.
        more_first: bool,
        /// Utilities of more and of less.
        more: Option<f64>,
        less: Option<f64>,
    },
}

/// The controller.
#[derive(Clone, Debug)]
struct Vivace {
    config: Config,
    trial: Trial<Kind>,
    /// The rate around which it probes.
    base: MbitRate,
    phase: Phase,
    ascent: Ascent,
    utility: f64,
}

/// The step from a slope: amplifier and boundary.
#[derive(Clone, Copy, Debug, Default)]
struct Ascent {
    /// Sign of the last slope; 0 before the first.
    sign: f64,
    /// τ: slopes of that sign in a row.
    streak: u32,
    /// k: how often the boundary has grown.
    growths: u32,
}

impl Ascent {
    /// What to add to `rate` for `slope`, in utility for each Mbit/s.
    fn step(&mut self, config: &Config, slope: f64, rate: MbitRate) -> MbitRate {
        if slope == 0.0 {
            *self = Ascent::default();
            return MbitRate::ZERO;
        }
        if slope.signum() == self.sign {
            self.streak = self.streak.saturating_add(1);
        } else {
            *self = Ascent { sign: slope.signum(), streak: 1, growths: 0 };
        }
        // m(τ) = τ for τ <= 3, else 2 τ - 3
        let streak = f64::from(self.streak);
        let amplifier = if self.streak <= SLOW_AMPLIFICATION { streak } else { 2.0 * streak - 3.0 };
        let wanted = config.step * amplifier * slope;
        // |Δ| <= ω r, ω = ω_0 + k δ
        let bound = rate * (config.boundary + f64::from(self.growths) * config.boundary_step);
        let size = MbitRate(wanted.0.abs());
        if size > bound {
            self.growths = self.growths.saturating_add(1);
            return bound * self.sign;
        }
        // Within it, k falls to the least that would still have let the step pass.
        let excess = (size / rate - config.boundary) / config.boundary_step;
        self.growths = excess.max(0.0).ceil() as u32;
        wanted
    }
}

/// `u = x^t - b x dRTT/dt - c x L`, the rate in Mbit/s.
fn utility(config: &Config, rate: MbitRate, gradient: f64, loss: f64) -> f64 {
    let MbitRate(rate) = rate;
    let gradient = if gradient.abs() < config.gradient_tolerance { 0.0 } else { gradient };
    libm::pow(rate, config.exponent) - config.latency * rate * gradient - config.loss * rate * loss
}

/// Makes `vivace`.
pub fn build(parameters: &toml::Table) -> Result<Factory, ParameterError> {
    Ok(factory(of(parameters)?))
}

fn of(parameters: &toml::Table) -> Result<impl Fn(&Setup) -> Vivace + Send + Sync + use<>, ParameterError> {
    let config: Config = crate::registry::parameters(parameters)?;
    in_range("exponent", config.exponent, 0.01..=1.0)?;
    in_range("latency", config.latency, 0.0..=1e6)?;
    in_range("loss", config.loss, 0.0..=1e6)?;
    in_range("gradient_tolerance", config.gradient_tolerance, 0.0..=1.0)?;
    in_range("epsilon", config.epsilon, 1e-4..=0.5)?;
    in_range("step", config.step.0, 1e-6..=1e6)?;
    in_range("boundary", config.boundary, 1e-4..=0.9)?;
    in_range("boundary_step", config.boundary_step, 1e-4..=10.0)?;
    in_range("interval_rtts", config.interval_rtts, 0.1..=100.0)?;
    in_range("interval_packets", config.interval_packets.0, 2.0..=1e6)?;
    Ok(move |setup: &Setup| Vivace::new(setup, config.clone()))
}

impl Vivace {
    fn new(setup: &Setup, config: Config) -> Vivace {
        let trial = Trial::new(setup.packet, MINIMUM_PACKETS, MINIMUM_PACKETS);
        Vivace {
            base: trial.rate,
            phase: Phase::Starting { best: None, begun: false },
            ascent: Ascent::default(),
            utility: 0.0,
            trial,
            config,
        }
    }

    /// Begins the next interval with the packet that leaves now.
    fn begin(&mut self, now: Time, rng: &mut Rng) {
        let (kind, rate) = self.next(rng);
        self.trial.rate = rate.max(self.trial.minimum());
        let srtt = self.trial.srtt();
        let length = Duration::from(srtt.seconds() * self.config.interval_rtts);
        let length = length.max(self.trial.time_to_send(self.config.interval_packets, self.trial.rate));
        let epoch = self.trial.epoch;
        self.trial.monitor.begin(now, length, Purpose { epoch, kind, rate: self.trial.rate, srtt });
    }

    /// What the next interval is for, and its rate.
    fn next(&mut self, rng: &mut Rng) -> (Kind, MbitRate) {
        let (base, epsilon) = (self.base, self.config.epsilon);
        match &mut self.phase {
            // Before a round trip is known there is no rate to judge.
            Phase::Starting { .. } if self.trial.srtt.is_none() => (Kind::Hold, base),
            Phase::Starting { begun, .. } => {
                if *begun && !self.trial.app_limited {
                    self.base = base * 2.0;
                }
                *begun = true;
                (Kind::Start, self.base)
            }
            Phase::Probing { begun, more_first, .. } => {
                if *begun == 0 {
                    *more_first = rng.chance(0.5);
                }
                *begun += 1;
                let more = (*begun == 1) == *more_first;
                match *begun {
                    1 | 2 => (Kind::Probe(more), base * if more { 1.0 + epsilon } else { 1.0 - epsilon }),
                    _ => (Kind::Hold, base),
                }
            }
        }
    }

    /// Probes around `rate`.
    fn probe(&mut self, now: Time, rate: MbitRate) {
        self.base = rate.max(self.trial.minimum());
        self.trial.next_epoch();
        // What is under way belongs to no probe any more.
        self.trial.monitor.cut(now);
        self.phase = Phase::Probing { begun: 0, more_first: false, more: None, less: None };
    }

    fn on_report(&mut self, now: Time, report: &Report<Purpose<Kind>>) {
        if report.purpose.kind == Kind::Hold {
            return;
        }
        // What the application held back says nothing about the rate.
        if report.app_limited {
            if let Phase::Probing { .. } = self.phase {
                self.probe(now, self.base);
            }
            return;
        }
        self.utility = utility(&self.config, report.sent_rate(), report.rtt_gradient, report.loss());
        match (&mut self.phase, report.purpose.kind) {
            (Phase::Starting { best, .. }, Kind::Start) => match *best {
                Some((highest, rate)) if self.utility < highest => self.probe(now, rate),
                _ => *best = Some((self.utility, report.purpose.rate)),
            },
            (Phase::Probing { more, less, .. }, Kind::Probe(is_more)) => {
                let known = if is_more { &mut *more } else { &mut *less };
                *known = Some(self.utility);
                if let (Some(more), Some(less)) = (*more, *less) {
                    self.ascend(now, more, less);
                }
            }
            _ => {}
        }
    }

    /// Moves the rate along the slope between the utilities of more and less.
    fn ascend(&mut self, now: Time, more: f64, less: f64) {
        // γ = (u(r (1 + ε)) - u(r (1 - ε))) / (2 ε r)
        let slope = (more - less) / (self.base * (2.0 * self.config.epsilon)).0;
        let step = self.ascent.step(&self.config, slope, self.base);
        self.probe(now, self.base + step);
    }
}

impl FlowController for Vivace {
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
            self.base = self.trial.packets_per_rtt(MINIMUM_PACKETS);
            self.trial.monitor.cut(now);
        }
        if feedback.persistent_congestion {
            self.trial.restart();
            self.base = self.trial.rate;
            self.ascent = Ascent::default();
            self.phase = Phase::Starting { best: None, begun: false };
            return;
        }
        while let Some(report) = self.trial.next_report() {
            self.on_report(now, &report);
        }
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
        record("amplifier_streak", f64::from(self.ascent.streak));
        record("boundary_growths", f64::from(self.ascent.growths));
        record("utility", self.utility);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::flow::setup::made;
    use crate::flow::testing::{Drive, PACKET, Path, drive};
    use crate::units::Rate;

    /// 100 packets a round trip of 30 ms fill it: 26.7 Mbit/s.
    const PATH: Path =
        Path { rate: Rate::from_bytes_per_sec(3_333_333), rtt: Duration::from_millis(30), buffer: 100, loss: 0.0 };

    fn vivace(path: Path, seconds: f64) -> Drive {
        let setup = Setup::new(PACKET, Time::ZERO);
        drive(&mut *made(build, &setup, &toml::Table::new()).unwrap(), path, seconds, 1)
    }

    #[test]
    fn the_utility_is_the_papers() {
        let config = Config::default();
        // Hand-computed: 10^0.9 = 7.943282; less 900 * 10 * 0.02; less 11.35 * 10 * 0.05.
        for (gradient, loss, expected) in
            [(0.0, 0.0, 7.943_282), (0.02, 0.0, -172.056_718), (0.0, 0.05, 2.268_282), (0.009, 0.0, 7.943_282)]
        {
            let got = utility(&config, MbitRate(10.0), gradient, loss);
            assert!((got - expected).abs() < 1e-6, "{got} for {gradient} and {loss}");
        }
    }

    #[test]
    fn the_amplifier_counts_slopes_of_one_sign_and_begins_anew_with_the_other() {
        let (config, mut ascent) = (Config::default(), Ascent::default());
        // A rate so high that nothing is cut off.
        for amplified in [1.0, 2.0, 3.0, 5.0, 7.0] {
            assert!((ascent.step(&config, 0.1, MbitRate(1e6)).0 - 0.1 * amplified).abs() < 1e-12);
        }
        assert!((ascent.step(&config, -0.1, MbitRate(1e6)).0 + 0.1).abs() < 1e-12);
    }

    #[test]
    fn a_step_is_cut_off_at_a_boundary_that_grows_and_falls_back() {
        let (config, mut ascent) = (Config::default(), Ascent::default());
        for bound in [0.05, 0.15, 0.25] {
            assert!((ascent.step(&config, 100.0, MbitRate(10.0)).0 - bound * 10.0).abs() < 1e-9);
        }
        // m = 5: a step of 1 is a tenth of the rate, which a boundary grown once lets pass.
        assert!((ascent.step(&config, 0.2, MbitRate(10.0)).0 - 1.0).abs() < 1e-9);
        assert_eq!(ascent.growths, 1);
        assert!((ascent.step(&config, -100.0, MbitRate(10.0)).0 + 0.5).abs() < 1e-9, "the other sign begins anew");
    }

    #[test]
    fn alone_it_converges_to_the_bottleneck_s_rate_with_a_short_queue() {
        let run = vivace(PATH, 60.0);
        let half = run.rate.len() / 2;
        let mean = run.rate[half..].iter().sum::<f64>() / (run.rate.len() - half) as f64;
        assert!((2_800.0..3_600.0).contains(&mean), "{mean} packets/s of 3333");
        let rtts: Vec<f64> = run.rtt_ms[half..].iter().copied().filter(|ms| ms.is_finite()).collect();
        let mean_rtt = rtts.iter().sum::<f64>() / rtts.len() as f64;
        assert!(mean_rtt < 45.0, "a full buffer is 60 ms, the mean {mean_rtt}");
    }

    #[test]
    fn its_rate_stays_while_each_probe_is_answered_alike() {
        let setup = Setup::new(PACKET, Time::ZERO);
        let mut vivace = of(&toml::Table::new()).unwrap()(&setup);
        vivace.trial.srtt = Some(Duration::from_millis(100));
        vivace.probe(Time::ZERO, MbitRate(10.0));
        vivace.ascend(Time::ZERO, 3.0, 3.0);
        assert!((vivace.base.0 - 10.0).abs() < 1e-12);
        // A slope of 0.4 / (2 * 0.05 * 10) moves it by 0.4 Mbit/s.
        vivace.ascend(Time::ZERO, 3.4, 3.0);
        assert!((vivace.base.0 - 10.4).abs() < 1e-9, "{:?}", vivace.base);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn on_any_path_it_goes_on_and_numbers_are_numbers(
            rate in 20_000u64..5_000_000, rtt_ms in 1u64..400, buffer in 1usize..300, loss in 0.0..0.4, seed in 0u64..1000,
        ) {
            let setup = Setup::new(PACKET, Time::ZERO);
            let mut vivace = made(build, &setup, &toml::Table::new()).unwrap();
            let path = Path { rate: Rate::from_bytes_per_sec(rate), rtt: Duration::from_millis(rtt_ms), buffer, loss };
            let run = drive(&mut *vivace, path, 5.0, seed);
            prop_assert!(run.rate.iter().all(|rate| *rate > 0.0));
            prop_assert!(run.window.iter().all(|window| *window >= 10.0));
            vivace.trace(&mut |name, value| assert!(value.is_finite(), "{name} is {value}"));
        }
    }
}
