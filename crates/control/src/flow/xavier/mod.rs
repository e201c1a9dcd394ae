//! Xavier: each ACK is answered by one of four actions on the window, and what the action is
//! worth in the state of the path is learned by SARSA with a linear function. Each packet
//! that leaves after an action brings it a reward when it is acknowledged: by what share the
//! mean round-trip time has fallen meanwhile, and a bonus if the action was one that grows.
//! The bonus decides between throughput and delay.
//!
//! ```text
//! actions    W + 1,  W + 1/W,  W - 1/W,  W                    4.3.1; packets; W >= 1
//! choice     with probability epsilon any, else the one with the greatest Q(s, a)
//! EWMA-RTT   e = 0.8 e + 0.2 rtt                              4.3.2
//! RTT-RATIO  rtt / least rtt, to one decimal
//! reward     r = (e_prev - e) / e_prev + beta [the action grew W]        4.3.3
//! SARSA      Q(s, a) += eta (r + gamma Q(s', a') - Q(s, a)), spread over the features
//! ```
//!
//! [Xavier] 4.3. What it leaves open, and what we take:
//! - `gamma` = 0.9 and `eta` = 1 / (10 features): Sutton and Barto, Reinforcement Learning,
//!   2nd ed., examples 3.5 and 3.8 and equation 9.19 with 10 samples. `xavier-precursor` has
//!   0.5 and 1 / sqrt(t), t counting rewards.
//! - `s', a'`: the state and the action of the ACK that brings the reward.
//! - EWMA-RTT as a feature: to 10 ms, the tick in which ns-2's TCP measures it.
//! - The first window: that of the setup. The least: a packet. The greatest: 16384 packets,
//!   the receiver's window in the ns-2 scripts of the report's reference 13.
//! - Losses: actions answer "non-duplicate ACKs" only, which leaves duplicate ones to the TCP
//!   that it is built on: half, once each round trip; a packet after persistent congestion.
//! - Pauses change nothing, or with `restart` the first window holds again after one of
//!   more than EWMA-RTT without a packet in flight, as where ns-2's agent is reset for each
//!   transfer (RFC 5681, 4.1 asks for it after a pause of a retransmission timeout).
//! - Ties are broken by lot: the first choice is between four zeros.
//! - Nothing grows, and no bonus is earned, while the application sends less than the window.

mod value;

use std::collections::VecDeque;

use serde::Deserialize;

use super::recovery::Recovery;
use super::setup::{Factory, Setup, factory};
use super::{Feedback, FlowController, Limits, PeerId, Sent};
use crate::registry::{ParameterError, in_range};
use crate::rng::Rng;
use crate::time::{Millis, Time};
use crate::units::{Bytes, Octets, Packets};
use value::{State, Templates, Value};

/// W + 1, W + 1/W, W - 1/W, W.
const ACTIONS: usize = 4;

/// EWMA-RTT's weight of a new sample, 4.3.2.
const WEIGHT: f64 = 0.2;

/// The smallest window.
const MINIMUM_WINDOW: Packets = Packets(1.0);

/// The largest window.
const MAXIMUM_WINDOW: Packets = Packets(16_384.0);

/// Actions that wait for their rewards; beyond that the oldest gets none.
const MAXIMUM_WAITING: usize = 4096;

/// Samples after which a weight should have learned what they say on average, for equation
/// 9.19 of Sutton and Barto.
const SAMPLES: f64 = 10.0;

/// Parameters of `xavier` and `xavier-precursor`.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Config {
    /// The bonus for growth.
    beta: f64,
    /// Whether the change of the round-trip time counts.
    delta: bool,
    /// Whether RTT-RATIO is a feature.
    ratio: bool,
    /// Whether EWMA-RTT is a feature.
    ewma: bool,
    /// Whether each of them with the action is one.
    cross: bool,
    /// Probability of an action by lot.
    epsilon: f64,
    /// Discount of what follows; none takes the variant's.
    discount: Option<f64>,
    /// Step of learning; none takes the variant's.
    learning_rate: Option<f64>,
    /// To what EWMA-RTT is rounded as a feature.
    ewma_precision_ms: Millis,
    /// What a loss does.
    loss: OnLoss,
    /// Whether the first window holds again after a pause.
    restart: bool,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            // 6.1: "tuned to 2.0".
            beta: 2.0,
            delta: true,
            ratio: true,
            ewma: true,
            cross: true,
            // 4.3.1.
            epsilon: 0.2,
            discount: None,
            learning_rate: None,
            // ns-2's default tcpTick_.
            ewma_precision_ms: Millis(10.0),
            loss: OnLoss::Halve,
            restart: false,
        }
    }
}

/// What a loss does to the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum OnLoss {
    /// Halves it, once each round trip.
    Halve,
    /// Nothing.
    Ignore,
}

/// How far a reward moves the weights.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Step {
    Constant(f64),
    /// 1 / sqrt(t) for the t-th reward.
    InverseRoot,
}

/// An action that packets left after.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Decision {
    /// What the sender knew to be delivered then: its packets carry the same number, and no
    /// other action's do.
    delivered: Bytes,
    state: State,
    action: u8,
    grew: bool,
    /// EWMA-RTT then.
    ewma_rtt: Millis,
    /// Packets that left after it and are in flight.
    packets: u32,
}

/// The controller.
#[derive(Clone, Debug)]
struct Xavier {
    config: Config,
    discount: f64,
    step: Step,
    packet: Octets,
    window: Packets,
    first_window: Packets,
    /// When the last ACK came.
    heard: Time,
    recovery: Recovery,
    /// None before the first sample.
    ewma_rtt: Option<Millis>,
    min_rtt: Millis,
    ratio: f64,
    value: Value,
    /// The last decision, until a packet leaves after it.
    fresh: Option<Decision>,
    /// Those after which packets left, oldest first; gone once none of theirs can be at the
    /// front.
    waiting: VecDeque<Decision>,
    rewards: u64,
    /// For the trace: the last action, reward and error.
    last: (u8, f64, f64),
}

/// Makes `xavier`.
pub fn build(parameters: &toml::Table) -> Result<Factory, ParameterError> {
    // Sutton and Barto, examples 3.5 and 3.8.
    Ok(factory(of(parameters, 0.9, None)?))
}

/// Makes `xavier-precursor`.
pub fn build_precursor(parameters: &toml::Table) -> Result<Factory, ParameterError> {
    Ok(factory(of(parameters, 0.5, Some(Step::InverseRoot))?))
}

fn of(
    parameters: &toml::Table,
    discount: f64,
    step: Option<Step>,
) -> Result<impl Fn(&Setup) -> Xavier + Send + Sync + use<>, ParameterError> {
    let config: Config = crate::registry::parameters(parameters)?;
    let templates = Templates { ratio: config.ratio, ewma: config.ewma, cross: config.cross };
    // Sutton and Barto 9.19: eta = 1 / (samples * E[x . x]); x . x counts features.
    let step = step.unwrap_or(Step::Constant(1.0 / (SAMPLES * templates.count() as f64)));
    let discount = config.discount.unwrap_or(discount);
    in_range("beta", config.beta, 0.0..=1e6)?;
    in_range("epsilon", config.epsilon, 0.0..=1.0)?;
    // With a discount of 1 the sum of rewards of a flow without an end is infinite.
    in_range("discount", discount, 0.0..=0.999)?;
    in_range("learning_rate", config.learning_rate.unwrap_or(0.0), 0.0..=1.0 / templates.count() as f64)?;
    in_range("ewma_precision_ms", config.ewma_precision_ms.0, 0.001..=10_000.0)?;
    let step = config.learning_rate.map_or(step, Step::Constant);
    Ok(move |setup: &Setup| Xavier::new(setup, config, discount, step))
}

impl Xavier {
    fn new(setup: &Setup, config: Config, discount: f64, step: Step) -> Xavier {
        let templates = Templates { ratio: config.ratio, ewma: config.ewma, cross: config.cross };
        let first_window = Packets::of(setup.initial_window.into(), setup.packet.into());
        let first_window = first_window.clamp(MINIMUM_WINDOW, MAXIMUM_WINDOW);
        Xavier {
            config,
            discount,
            step,
            packet: setup.packet.into(),
            window: first_window,
            first_window,
            heard: setup.start,
            recovery: Recovery::default(),
            ewma_rtt: None,
            min_rtt: Millis::INFINITY,
            ratio: 1.0,
            value: Value::new(templates),
            fresh: None,
            waiting: VecDeque::new(),
            rewards: 0,
            last: (3, 0.0, 0.0),
        }
    }

    /// EWMA-RTT and RTT-RATIO take in a sample; says the mean.
    #[inline]
    fn observe(&mut self, rtt: Millis) -> Millis {
        self.min_rtt = self.min_rtt.min(rtt);
        self.ratio = if self.min_rtt > Millis::ZERO { rtt / self.min_rtt } else { 1.0 };
        // e = 0.8 e + 0.2 rtt
        let ewma_rtt = self.ewma_rtt.map_or(rtt, |before| before * (1.0 - WEIGHT) + rtt * WEIGHT);
        self.ewma_rtt = Some(ewma_rtt);
        ewma_rtt
    }

    /// Epsilon-greedy, ties by lot.
    #[inline]
    fn choose(&self, state: State, rng: &mut Rng) -> usize {
        if rng.chance(self.config.epsilon) {
            return rng.below(ACTIONS);
        }
        let values: [f64; ACTIONS] = core::array::from_fn(|action| self.value.of(state, action));
        let best = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let ties = values.iter().filter(|value| **value == best).count();
        let lot = if ties > 1 { rng.below(ties) } else { 0 };
        let mut winners = (0..ACTIONS).filter(|&action| values[action] == best);
        winners.nth(lot).expect("one of the values is the greatest, and none is NaN")
    }

    /// The decision that `packet` left after, which has one packet less in flight now.
    #[inline]
    fn settle(&mut self, packet: &Sent) -> Option<Decision> {
        let key = |decision: &Decision| decision.delivered;
        // Most packets are acknowledged in the order in which they left.
        let is_oldest = self.waiting.front().is_some_and(|oldest| oldest.delivered == packet.delivered);
        let place = if is_oldest { 0 } else { self.waiting.binary_search_by_key(&packet.delivered, key).ok()? };
        let waiting = &mut self.waiting[place];
        waiting.packets = waiting.packets.checked_sub(1)?;
        let decision = *waiting;
        while self.waiting.front().is_some_and(|oldest| oldest.packets == 0) {
            self.waiting.pop_front();
        }
        Some(decision)
    }

    /// Rewards the decision that `packet` left after; `next` is Q(s', a').
    #[inline]
    fn reward(&mut self, packet: &Sent, ewma_rtt: Millis, next: f64) {
        let Some(Decision { state, action, grew, ewma_rtt: previous, .. }) = self.settle(packet) else { return };
        // r = (e_prev - e) / e_prev + beta [the action grew W]
        let counts = self.config.delta && previous > Millis::ZERO;
        let delta = if counts { (previous - ewma_rtt) / previous } else { 0.0 };
        let reward = delta + if grew { self.config.beta } else { 0.0 };
        self.rewards += 1;
        let step = match self.step {
            Step::Constant(step) => step,
            Step::InverseRoot => 1.0 / (self.rewards as f64).sqrt(),
        };
        // Q(s, a) += eta (r + gamma Q(s', a') - Q(s, a))
        let error = reward + self.discount * next - self.value.of(state, usize::from(action));
        self.value.add(state, usize::from(action), step * error);
        self.last = (self.last.0, reward, error);
    }

    /// Does `action` to the window; says whether it grew.
    #[inline]
    fn act(&mut self, action: usize, app_limited: bool) -> bool {
        let window = match action {
            0 => self.window + Packets(1.0),
            1 => self.window + Packets(1.0 / self.window.0),
            2 => self.window - Packets(1.0 / self.window.0),
            _ => self.window,
        };
        let grows = window > self.window;
        if grows && app_limited {
            return false;
        }
        self.window = window.clamp(MINIMUM_WINDOW, MAXIMUM_WINDOW);
        grows
    }
}

impl FlowController for Xavier {
    #[inline]
    fn on_sent(&mut self, now: Time, _: PeerId, packet: &Sent, _: &mut Rng) -> bool {
        let alone = packet.in_flight == packet.size;
        let paused = now.since(self.heard).millis();
        let restarts = self.config.restart && alone && self.ewma_rtt.is_some_and(|ewma_rtt| paused > ewma_rtt);
        if restarts {
            self.window = self.window.min(self.first_window);
        }
        if let Some(decision) = self.fresh.take() {
            // What is delivered never falls; where a driver says that it does, the order that
            // `settle` searches comes before what was decided.
            while self.waiting.back().is_some_and(|last| last.delivered >= decision.delivered) {
                self.waiting.pop_back();
            }
            if self.waiting.len() == MAXIMUM_WAITING {
                self.waiting.pop_front();
            }
            self.waiting.push_back(decision);
        }
        if let Some(decision) = self.waiting.back_mut().filter(|decision| decision.delivered == packet.delivered) {
            decision.packets += 1;
        }
        restarts
    }

    #[inline]
    fn on_feedback(&mut self, now: Time, feedback: &Feedback<'_>, rng: &mut Rng) {
        if feedback.persistent_congestion {
            self.window = MINIMUM_WINDOW;
            self.recovery.reset();
        } else if self.recovery.enter(now, feedback) && self.config.loss == OnLoss::Halve {
            self.window = (self.window / 2.0).max(MINIMUM_WINDOW);
        }
        for lost in feedback.lost {
            self.settle(&lost.sent);
        }
        let Some(rtt) = feedback.rtt.latest.filter(|_| !feedback.acked.is_empty()) else {
            // An ACK that brings no sample brings no reward.
            for packet in feedback.acked {
                self.settle(packet);
            }
            return;
        };
        self.heard = now;
        let ewma_rtt = self.observe(rtt.millis());
        let state = State::new(self.ratio, ewma_rtt / self.config.ewma_precision_ms);
        let action = self.choose(state, rng);
        let next = self.value.of(state, action);
        for packet in feedback.acked {
            self.reward(packet, ewma_rtt, next);
        }
        let grew = self.act(action, feedback.app_limited);
        self.last.0 = action as u8;
        let delivered = feedback.delivered;
        self.fresh = Some(Decision { delivered, state, action: action as u8, grew, ewma_rtt, packets: 0 });
    }

    #[inline]
    fn limits(&self) -> Limits {
        Limits::window(self.window.in_bytes(self.packet).whole())
    }

    fn trace(&self, record: &mut dyn FnMut(&'static str, f64)) {
        record("window", self.window.in_bytes(self.packet).0);
        record("ewma_rtt_ms", self.ewma_rtt.unwrap_or(Millis::ZERO).0);
        record("rtt_ratio", self.ratio);
        record("action", f64::from(self.last.0));
        record("reward", self.last.1);
        record("error", self.last.2);
    }
}

#[cfg(test)]
mod tests;
