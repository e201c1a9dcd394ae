//! LearningCC: after each congestion event a bandit chooses how many packets the window
//! gains in a round trip. Congestion is a loss, or a round trip far above the least since
//! the choice; the window then falls to what the path holds, not to a share of itself, so
//! that random losses hardly shrink it. [LearningCC] section II.
//!
//! ```text
//! (1)  W += α / W                                for each ACK, α of the chosen arm
//! (2)  rate = Δdelivered / Δt
//! (3)  reward = rate / srtt
//! (4)  srtt = (1 - γ) srtt + γ rtt
//! (5)  Reward(i) = (1 - δ) Reward(i) + δ reward
//! (6)  rtt_th = rtt_base + θ (srtt_max - rtt_base)
//! algorithm 1   rtt > rtt_th or a loss, once a round trip: W = β Bw rtt_min, choose anew
//! algorithm 2   choose: with probability ε any arm, else the one of the highest reward
//! ```
//!
//! Algorithm 2 notes that an arm was chosen only when it exploits (line 10): to the letter,
//! an exploring sender would choose again with each ACK until it exploits. The text has one
//! choice for each congestion event, and so do we, after either.
//!
//! The letter is silent on how a connection begins and on pacing. Here, as its authors run
//! it: a start-up that doubles the rate each round trip until three rounds have grown it by
//! less than half, then half the rate until the queue is gone; pacing at 1.25 W / srtt.

use serde::Deserialize;

use super::round::Rounds;
use super::setup::{Factory, Setup, factory};
use super::{Feedback, FlowController, Limits};
use crate::filter::WindowedMax;
use crate::registry::{ParameterError, in_range};
use crate::rng::Rng;
use crate::time::{Duration, Seconds, Time};
use crate::units::{OctetRate, Octets, Packets, Rate, WindowUnit};

/// γ, the weight of a round-trip sample ([LearningCC] equation 4).
const RTT_WEIGHT: f64 = 0.125;

/// Round trips over which the bandwidth is a maximum ([LearningCC] section II).
const BANDWIDTH_ROUNDS: u64 = 10;

/// Most arms that there may be.
const MOST_ACTIONS: usize = 8;

// What follows is not in the letter but in its authors' runs.

/// Round trips over which `srtt_max` is a maximum.
const SRTT_MAX_ROUNDS: u64 = 20;
/// How long a least round trip holds before the path is asked again.
const RTT_MIN_EXPIRY: Duration = Duration::from_millis(10_000);
/// Packets in the smallest window.
const MINIMUM_WINDOW: Packets = Packets(4.0);
/// Rate and window of the start-up over what was delivered.
const STARTUP_GAIN: f64 = 2.0;
/// Rate over what was delivered, to be rid of the start-up's queue.
const DRAIN_GAIN: f64 = 0.5;
/// A start-up round that does not grow the bandwidth by this is a sign of a full path...
const STARTUP_GROWTH: f64 = 1.5;
/// ...and this number of them ends it.
const STARTUP_FULL_ROUNDS: u32 = 3;
/// Pace over `W / srtt`.
const PACING_GAIN: f64 = 1.25;

/// Parameters of `learningcc`, [LearningCC] section II.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Config {
    /// ε: how often an arm is chosen at random.
    epsilon: f64,
    /// δ: weight of the newest reward.
    delta: f64,
    /// θ: where between the least and the highest round trip congestion begins.
    theta: f64,
    /// β: what a back-off leaves of the bandwidth-delay product.
    beta: f64,
    /// α of each arm: packets added each round trip.
    actions: Vec<f64>,
}

impl Default for Config {
    fn default() -> Config {
        Config { epsilon: 0.3, delta: 0.85, theta: 0.8, beta: 0.9, actions: vec![1.0, 2.0, 3.0, 4.0, 5.0] }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Startup,
    Drain,
    Learning,
}

/// The controller.
#[derive(Clone, Debug)]
struct LearningCc {
    config: Config,
    packet: Octets,
    window: Octets,
    phase: Phase,
    rounds: Rounds,
    /// Bits a second over round trips.
    bandwidth: WindowedMax,
    /// Pace of start-up and drain.
    startup_rate: OctetRate,
    /// Bandwidth when a start-up round last grew it.
    full_bandwidth: OctetRate,
    full_rounds: u32,
    /// 0 before the first sample.
    srtt: Seconds,
    /// In nanoseconds.
    srtt_max: WindowedMax,
    rtt_min: Seconds,
    rtt_min_at: Time,
    /// The least since the action was chosen; infinite before the first sample.
    rtt_base: Seconds,
    /// Packets that left until then left before the last back-off could slow them.
    last_cutback: Option<Time>,
    /// When the action was chosen; none from a back-off until the first ACK after it.
    chosen_at: Option<Time>,
    action: usize,
    rewards: [f64; MOST_ACTIONS],
    acked_count: u64,
    /// ACKs that could add to the window, the sum of their α, and back-offs, for the trace.
    counted_acks: u64,
    counted_alpha: f64,
    back_offs: u64,
}

/// Makes `learningcc`.
pub fn build(parameters: &toml::Table) -> Result<Factory, ParameterError> {
    Ok(factory(of(parameters)?))
}

fn of(parameters: &toml::Table) -> Result<impl Fn(&Setup) -> LearningCc + Send + Sync + use<>, ParameterError> {
    let config: Config = crate::registry::parameters(parameters)?;
    in_range("epsilon", config.epsilon, 0.0..=1.0)?;
    in_range("delta", config.delta, 0.0..=1.0)?;
    in_range("theta", config.theta, 0.0..=1.0)?;
    in_range("beta", config.beta, 0.1..=1.0)?;
    in_range("the number of actions", config.actions.len() as f64, 1.0..=MOST_ACTIONS as f64)?;
    for action in &config.actions {
        in_range("actions", *action, 0.01..=1000.0)?;
    }
    Ok(move |setup: &Setup| LearningCc::new(setup, config.clone()))
}

/// The least window, where a full packet has `packet` bytes.
fn minimum(packet: Octets) -> Octets {
    Octets::of_packets(MINIMUM_WINDOW, packet)
}

impl LearningCc {
    fn new(setup: &Setup, config: Config) -> LearningCc {
        let packet = Octets::from(setup.packet);
        LearningCc {
            config,
            packet,
            window: Octets::from(setup.initial_window).max(minimum(packet)),
            phase: Phase::Startup,
            rounds: Rounds::default(),
            bandwidth: WindowedMax::new(BANDWIDTH_ROUNDS),
            startup_rate: OctetRate::ZERO,
            full_bandwidth: OctetRate::ZERO,
            full_rounds: 0,
            srtt: Seconds::ZERO,
            srtt_max: WindowedMax::new(SRTT_MAX_ROUNDS),
            rtt_min: Seconds::INFINITY,
            rtt_min_at: setup.start,
            rtt_base: Seconds::INFINITY,
            last_cutback: None,
            chosen_at: None,
            action: 0,
            rewards: [0.0; MOST_ACTIONS],
            acked_count: 0,
            counted_acks: 0,
            counted_alpha: 0.0,
            back_offs: 0,
        }
    }

    fn bandwidth(&self) -> OctetRate {
        Rate::from_bits_per_sec(self.bandwidth.get()).into()
    }

    /// `Bw rtt_min`; none before there are samples.
    fn bandwidth_delay(&self) -> Option<Octets> {
        let product = self.bandwidth() * self.rtt_min;
        (product.is_finite() && product > Octets::ZERO).then_some(product)
    }

    fn srtt_max(&self) -> Seconds {
        Seconds(self.srtt_max.get() as f64 / 1e9)
    }

    /// Learns from an ACK about rate and round trip; whether a round ended, and whether
    /// the least round trip was too old.
    fn learn(&mut self, now: Time, feedback: &Feedback<'_>) -> (bool, bool) {
        let round_ended = self.rounds.ends(feedback);
        // rate = Δdelivered / Δt (2)
        if let Some(sample) = feedback.rate {
            let bits = sample.rate().bits_per_sec();
            if !sample.app_limited || bits > self.bandwidth.get() {
                self.bandwidth.update(self.rounds.count(), bits);
            }
        }
        let Some(rtt) = feedback.rtt.latest.map(Duration::seconds) else { return (round_ended, false) };
        // srtt = (1 - γ) srtt + γ rtt (4)
        self.srtt = if self.srtt == Seconds::ZERO { rtt } else { self.srtt * (1.0 - RTT_WEIGHT) + rtt * RTT_WEIGHT };
        self.srtt_max.update(self.rounds.count(), (self.srtt.0 * 1e9) as u64);
        let expired = now > self.rtt_min_at + RTT_MIN_EXPIRY && self.rtt_min.is_finite();
        if expired || rtt < self.rtt_min {
            self.rtt_min = rtt;
            self.rtt_min_at = now;
        }
        (round_ended, expired)
    }

    /// Ends the start-up when the path is full, and the drain when its queue is gone.
    fn start_up(&mut self, now: Time, round_ended: bool, feedback: &Feedback<'_>, rng: &mut Rng) {
        let bandwidth = self.bandwidth();
        if self.phase == Phase::Startup && round_ended && !feedback.app_limited {
            if bandwidth >= self.full_bandwidth * STARTUP_GROWTH {
                self.full_bandwidth = bandwidth;
                self.full_rounds = 0;
            } else {
                self.full_rounds += 1;
            }
            if self.full_rounds >= STARTUP_FULL_ROUNDS {
                self.phase = Phase::Drain;
            }
        }
        let Some(product) = self.bandwidth_delay() else { return };
        self.startup_rate = match self.phase {
            Phase::Startup => self.startup_rate.max(self.window / self.rtt_min).max(bandwidth * STARTUP_GAIN),
            _ => bandwidth * DRAIN_GAIN,
        };
        let target = (product * STARTUP_GAIN).max(minimum(self.packet));
        // The first samples of a start see a burst's first packets, not the path.
        self.window = if self.phase == Phase::Startup { self.window.max(target) } else { target };
        if self.phase == Phase::Drain && Octets::from(feedback.in_flight) <= product {
            self.phase = Phase::Learning;
            self.window = product.max(minimum(self.packet));
            self.explore(rng);
            self.rtt_base = Seconds::INFINITY;
            self.chosen_at = Some(now);
        }
    }

    /// Whether a packet that left at `at` could know of the last back-off.
    #[inline]
    fn is_recent(&self, at: Time) -> bool {
        self.last_cutback.is_none_or(|cutback| at > cutback)
    }

    /// `rtt > rtt_th`, with `rtt_th = rtt_base + θ (srtt_max - rtt_base)` (6).
    fn is_delayed(&self, rtt: Seconds) -> bool {
        rtt > self.rtt_base + (self.srtt_max() - self.rtt_base).max(Seconds::ZERO) * self.config.theta
    }

    /// Whether `feedback` is a congestion event that no back-off has answered yet
    /// (algorithm 1, lines 1 to 4). `expired`: the least round trip is not known any more.
    fn is_congested(&self, feedback: &Feedback<'_>, expired: bool) -> bool {
        let lost = feedback.lost.iter().any(|lost| self.is_recent(lost.sent.at));
        let recent = feedback.acked.last().is_some_and(|sent| self.is_recent(sent.at));
        let delayed =
            self.rtt_base.is_finite() && feedback.rtt.latest.is_some_and(|rtt| self.is_delayed(rtt.seconds()));
        lost || (recent && (delayed || expired || feedback.ecn_marked_packets > 0))
    }

    /// Algorithm 1, lines 5 to 8.
    fn back_off(&mut self, now: Time) {
        // W = β Bw rtt_min; before there is either, a lost start halves as Reno's does.
        let window = self.bandwidth_delay().map_or(self.window / 2.0, |product| product * self.config.beta);
        self.window = window.max(minimum(self.packet));
        self.last_cutback = Some(now);
        self.acked_count = 0;
        self.chosen_at = None;
        self.rtt_base = Seconds::INFINITY;
        self.back_offs += 1;
    }

    fn explore(&mut self, rng: &mut Rng) {
        self.action = rng.below(self.config.actions.len());
    }

    /// The arm with the highest reward; the present one if none is higher.
    fn exploit(&mut self) {
        for i in 0..self.config.actions.len() {
            if self.rewards[i] > self.rewards[self.action] {
                self.action = i;
            }
        }
    }

    /// Algorithm 2, lines 5 to 12.
    fn choose(&mut self, now: Time, rng: &mut Rng) {
        self.rtt_base = Seconds::INFINITY;
        match rng.chance(self.config.epsilon) {
            true => self.explore(rng),
            false => self.exploit(),
        }
        self.chosen_at = Some(now);
    }

    /// Credits the present arm with what the newest packet saw, if it left under that arm.
    fn reward(&mut self, feedback: &Feedback<'_>) {
        let (Some(newest), Some(sample)) = (feedback.acked.last(), feedback.rate) else { return };
        if self.srtt > Seconds::ZERO && !sample.app_limited && self.chosen_at.is_some_and(|chosen| newest.at > chosen) {
            // reward = rate / srtt (3); Reward = (1 - δ) Reward + δ reward (5)
            let reward = sample.rate().bytes_per_sec() / self.srtt.0;
            let kept = &mut self.rewards[self.action];
            *kept = (1.0 - self.config.delta) * *kept + self.config.delta * reward;
        }
    }

    /// Algorithm 2, for each acknowledged packet.
    fn grow(&mut self, now: Time, feedback: &Feedback<'_>, rng: &mut Rng) {
        for sent in feedback.acked {
            if !self.is_recent(sent.at) {
                continue;
            }
            if self.chosen_at.is_none() {
                self.choose(now, rng);
            }
            if let Some(rtt) = feedback.rtt.latest {
                self.rtt_base = self.rtt_base.min(rtt.seconds());
            }
            if feedback.app_limited {
                continue;
            }
            let alpha = self.config.actions[self.action];
            self.counted_acks += 1;
            self.counted_alpha += alpha;
            self.acked_count += 1;
            // W += MSS each time that acked_count α reaches W / MSS (lines 16 to 20)
            if self.acked_count as f64 * alpha >= self.window / self.packet {
                self.window += self.packet;
                self.acked_count = 0;
            }
        }
    }
}

impl FlowController for LearningCc {
    fn on_feedback(&mut self, now: Time, feedback: &Feedback<'_>, rng: &mut Rng) {
        let (round_ended, expired) = self.learn(now, feedback);
        if self.phase != Phase::Learning {
            self.start_up(now, round_ended, feedback, rng);
        } else {
            self.reward(feedback);
            if self.is_congested(feedback, expired) {
                self.back_off(now);
            } else {
                self.grow(now, feedback, rng);
            }
        }
        if feedback.persistent_congestion {
            self.back_off(now);
            self.window = minimum(self.packet);
            self.last_cutback = None;
        }
    }

    fn limits(&self) -> Limits {
        let window = self.window.whole();
        let pace = match self.phase {
            Phase::Learning => self.window * PACING_GAIN / self.srtt,
            _ => self.startup_rate,
        };
        if self.srtt == Seconds::ZERO || pace <= OctetRate::ZERO {
            return Limits::window(window);
        }
        // Never slower than a packet a second: a pace must not stop a flow.
        let rate = pace.max(self.packet / Seconds(1.0)).whole();
        Limits { window, rate: Some(rate), burst: self.packet.whole() }
    }

    fn trace(&self, record: &mut dyn FnMut(&'static str, f64)) {
        let finite_ms = |span: Seconds| if span.is_finite() { span.as_millis() } else { 0.0 };
        record("window", self.window.0);
        record("rate", self.limits().rate.map_or(0.0, |rate| rate.bits_per_sec() as f64));
        record("bandwidth", self.bandwidth.get() as f64);
        record("rtt_min", finite_ms(self.rtt_min));
        record("rtt_base", finite_ms(self.rtt_base));
        record("srtt_max", self.srtt_max().as_millis());
        record("alpha", self.config.actions[self.action]);
        record("mean_alpha", self.counted_alpha / self.counted_acks.max(1) as f64);
        record("counted_acks", self.counted_acks as f64);
        record("back_offs", self.back_offs as f64);
    }
}

#[cfg(test)]
mod tests;
