//! BBR, version 1: models the path by the highest delivery rate of the last rounds and the
//! least round trip of the last seconds, and paces at that rate whatever is lost. One round
//! trip in eight sends a quarter more, to see whether more is delivered, and the next a
//! quarter less, to drain what that has queued; a window of twice the product of both
//! bounds what delayed ACKs may put in flight. When the least round trip has not been seen
//! for 10 s, four packets are in flight for 200 ms, so that every queue drains.
//!
//! ```text
//! BtlBw  = max over 10 rounds of the delivery rate         4.1.1.3
//! RTprop = min over 10 s of the round trip                 4.1.2.3
//! rate   = pacing_gain * BtlBw                             4.2.1
//! W      = cwnd_gain * BtlBw * RTprop + 3 * send_quantum   4.2.3.2
//! ```
//!
//! Sections are those of draft-cardwell-iccrg-bbr-congestion-control-00. Departures:
//!
//! - Recovery is RFC 9002's: it lasts until a packet is acknowledged that left after the
//!   loss was known, so that it and the round of packet conservation end together (4.2.3.4
//!   lets TCP's recovery last longer, until every loss is repaired).
//! - RTprop comes from packets whose number is the highest acknowledged, the only ones
//!   that give a sample (RFC 9002, 5.1), not from each acknowledged packet.
//! - Of what Linux adds, `linux` names what can be had; long-term sampling against policers is
//!   left out.

mod linux;
pub mod model;
#[cfg(test)]
pub mod tests;

use serde::Deserialize;

use self::model::{FullPipe, LossRecovery, Lull, MIN_PIPE, MinRtt, PROBE_RTT_DURATION, Step};
use super::round::Rounds;
use super::setup::{Factory, Setup, factory};
use super::{Feedback, FlowController, Limits, PeerId, Sent};
use crate::filter::WindowedMax;
use crate::registry::{ParameterError, in_range};
use crate::rng::Rng;
use crate::time::{Duration, Seconds, Time};
use crate::units::{Bytes, OctetRate, Octets, Rate, WindowUnit};

/// 2 / ln 2, the least gain that doubles the rate each round (4.3.2.1, BBRHighGain).
const HIGH_GAIN: f64 = 2.885;

/// Pacing gains of ProbeBW, a round trip each (4.3.4.1).
const CYCLE: [f64; 8] = [1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];

/// The round trip for the pacing rate before there is a sample (4.2.1).
const FIRST_RTT: Seconds = Seconds(1e-3);

/// Below this rate a packet leaves at once (4.2.2).
const ONE_PACKET_BELOW: OctetRate = OctetRate(1.2e6 / 8.0);

/// Below this rate two leave at once, and above it what it carries in `QUANTUM_SPAN`, but no more
/// than `MOST_QUANTUM` (4.2.2).
const TWO_PACKETS_BELOW: OctetRate = OctetRate(24e6 / 8.0);
const QUANTUM_SPAN: Seconds = Seconds(1e-3);
const MOST_QUANTUM: Octets = Octets(64.0 * 1024.0);

/// Parameters of `bbr`.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Config {
    /// Window over the bandwidth-delay product in ProbeBW (4.2.3.2, 4.3.4.1).
    cwnd_gain: f64,
    /// Rounds of the bandwidth filter (4.1.1.3, BtlBwFilterLen).
    bandwidth_rounds: u64,
    /// Seconds of the round-trip filter, and so between two probes of it (4.1.2.3).
    min_rtt_s: Seconds,
    /// Rules that are Linux's.
    linux: linux::Rules,
}

impl Default for Config {
    fn default() -> Config {
        Config { cwnd_gain: 2.0, bandwidth_rounds: 10, min_rtt_s: Seconds(10.0), linux: linux::Rules::default() }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Startup,
    Drain,
    ProbeBw,
    ProbeRtt,
}

/// The controller.
#[derive(Clone, Debug)]
struct Bbr {
    config: Config,
    packet: Octets,
    initial_window: Octets,
    state: State,
    pacing_gain: f64,
    window_gain: f64,
    /// Bits a second over rounds.
    bandwidths: WindowedMax,
    bandwidth: OctetRate,
    min_rtt: MinRtt,
    /// How long the least round trip is believed (RTpropFilterLen).
    min_rtt_lifetime: Duration,
    rounds: Rounds,
    full_pipe: FullPipe,
    filled: bool,
    phase: usize,
    phase_since: Time,
    /// When the probe of the round trip may end, once the queue is drained.
    probe_until: Option<Time>,
    probe_round_done: bool,
    lull: Lull,
    aggregation: linux::Aggregation,
    idle_restart: bool,
    recovery: LossRecovery,
    /// In the first round of recovery only what is delivered is replaced.
    conserving: bool,
    window: Octets,
    /// The last window that neither recovery nor a probe had made smaller.
    prior_window: Octets,
    rate: OctetRate,
    quantum: Octets,
    /// Whether the pacing rate rests on a round trip.
    timed: bool,
    limits: Limits,
}

/// Makes `bbr`.
pub fn build(parameters: &toml::Table) -> Result<Factory, ParameterError> {
    let config: Config = crate::registry::parameters(parameters)?;
    in_range("cwnd_gain", config.cwnd_gain, 1.0..=100.0)?;
    in_range("bandwidth_rounds", config.bandwidth_rounds as f64, 1.0..=16.0)?;
    in_range("min_rtt_s", config.min_rtt_s.0, 0.1..=3600.0)?;
    Ok(factory(move |setup| new(setup, config)))
}

fn new(setup: &Setup, config: Config) -> Bbr {
    let window = Octets::from(setup.initial_window);
    let mut bbr = Bbr {
        packet: setup.packet.into(),
        initial_window: window,
        state: State::Startup,
        pacing_gain: HIGH_GAIN,
        window_gain: HIGH_GAIN,
        bandwidths: WindowedMax::new(config.bandwidth_rounds),
        bandwidth: OctetRate::ZERO,
        min_rtt: MinRtt::new(setup.start),
        min_rtt_lifetime: config.min_rtt_s.into(),
        rounds: Rounds::default(),
        full_pipe: FullPipe::default(),
        filled: false,
        phase: 0,
        phase_since: setup.start,
        probe_until: None,
        probe_round_done: false,
        lull: Lull::default(),
        aggregation: linux::Aggregation::default(),
        idle_restart: false,
        recovery: LossRecovery::default(),
        conserving: false,
        window,
        prior_window: window,
        rate: OctetRate::ZERO,
        quantum: Octets::ZERO,
        timed: false,
        limits: Limits::window(setup.initial_window),
        config,
    };
    bbr.pace_at(window * HIGH_GAIN / FIRST_RTT);
    bbr.set_quantum();
    bbr
}

impl Bbr {
    /// What `gain` times the path's product needs in flight (4.2.3.2, BBRInflight).
    #[inline]
    fn in_flight_for(&self, gain: f64) -> Octets {
        match self.min_rtt.get() {
            // estimated_bdp = BtlBw * RTprop; gain * estimated_bdp + 3 * send_quantum
            Some(rtt) => {
                let window = self.bandwidth * gain * rtt.seconds() + self.quantum * 3.0;
                let probes = self.state == State::ProbeBw && self.phase == 0;
                self.config.linux.window(window, self.packet, probes)
            }
            None => self.initial_window,
        }
    }

    /// Whether the sample shows what the application, or a probe of the round trip, let leave
    /// (rs.is_app_limited); so too if there is none.
    #[inline]
    fn is_limited(&self, feedback: &Feedback<'_>) -> bool {
        feedback.rate.is_none_or(|sample| sample.app_limited)
            || feedback.acked.last().is_none_or(|newest| self.lull.contains(newest))
    }

    /// BtlBw: samples that the application limited count only if they are higher (4.1.1.4).
    #[inline]
    fn update_bandwidth(&mut self, feedback: &Feedback<'_>) {
        let Some(sample) = &feedback.rate else { return };
        let bits = sample.rate().bits_per_sec();
        if !self.is_limited(feedback) || bits >= self.bandwidths.get() {
            let highest = self.bandwidths.update(self.rounds.count(), bits);
            self.bandwidth = Rate::from_bits_per_sec(highest).into();
        }
    }

    /// Whether the phase of ProbeBW is over (4.3.4.3, BBRIsNextCyclePhase).
    #[inline]
    fn phase_is_over(&self, now: Time, feedback: &Feedback<'_>, lost: Bytes) -> bool {
        let full_length = self.min_rtt.get().is_none_or(|rtt| now.since(self.phase_since) > rtt);
        let prior_in_flight = || Octets::from(feedback.in_flight + feedback.acked_bytes + lost);
        if self.pacing_gain > 1.0 {
            full_length && (lost > Bytes::ZERO || prior_in_flight() >= self.in_flight_for(self.pacing_gain))
        } else if self.pacing_gain < 1.0 {
            full_length || prior_in_flight() <= self.in_flight_for(1.0)
        } else {
            full_length
        }
    }

    fn enter_phase(&mut self, now: Time, phase: usize) {
        self.phase = phase % CYCLE.len();
        self.phase_since = now;
        self.pacing_gain = CYCLE[self.phase];
    }

    /// Begins anywhere in the cycle but at the phase that drains (4.3.4.2).
    fn enter_probe_bw(&mut self, now: Time, rng: &mut Rng) {
        self.state = State::ProbeBw;
        self.window_gain = self.config.cwnd_gain;
        // cycle_index = 8 - 1 - random in 0..=6, then one further
        self.enter_phase(now, CYCLE.len() - rng.below(CYCLE.len() - 1));
    }

    fn enter_startup(&mut self) {
        self.state = State::Startup;
        self.pacing_gain = HIGH_GAIN;
        self.window_gain = HIGH_GAIN;
    }

    fn check_full_pipe(&mut self, now: Time, round_ended: bool, feedback: &Feedback<'_>, rng: &mut Rng) {
        if !self.filled && round_ended && !self.is_limited(feedback) {
            self.filled = self.full_pipe.on_round(self.bandwidth);
        }
        if self.state == State::Startup && self.filled {
            // 4.3.3: the inverse of Startup's gain drains in a round what that has queued.
            self.state = State::Drain;
            self.pacing_gain = 1.0 / HIGH_GAIN;
            self.window_gain = HIGH_GAIN;
        }
        if self.state == State::Drain && Octets::from(feedback.in_flight) <= self.in_flight_for(1.0) {
            self.enter_probe_bw(now, rng);
        }
    }

    /// RTprop, and whether it must be probed (4.1.2.3, 4.3.5).
    fn check_min_rtt(&mut self, now: Time, round_ended: bool, feedback: &Feedback<'_>, rng: &mut Rng) {
        let stale = self.min_rtt.is_stale(now, self.min_rtt_lifetime);
        self.min_rtt.raise(feedback.rtt.min);
        if let Some(sample) = feedback.rtt.latest
            && (stale || self.min_rtt.get().is_none_or(|least| sample <= least))
        {
            self.min_rtt.set(sample, now);
        }
        if stale && self.state != State::ProbeRtt && !self.idle_restart {
            self.save_window();
            self.state = State::ProbeRtt;
            self.pacing_gain = 1.0;
            self.window_gain = 1.0;
            self.probe_until = None;
            self.lull.extend(feedback, true);
        }
        if self.state == State::ProbeRtt {
            self.lull.extend(feedback, false);
            match self.probe_until {
                None if Octets::from(feedback.in_flight) <= MIN_PIPE.in_bytes(self.packet) => {
                    self.probe_until = Some(now + PROBE_RTT_DURATION);
                    self.probe_round_done = false;
                    self.rounds.restart(feedback.delivered);
                }
                None => {}
                Some(until) => {
                    self.probe_round_done |= round_ended;
                    if self.probe_round_done && now > until {
                        self.min_rtt.seen = now;
                        self.window = self.window.max(self.prior_window);
                        if self.filled { self.enter_probe_bw(now, rng) } else { self.enter_startup() }
                    }
                }
            }
        }
        self.idle_restart = false;
    }

    fn save_window(&mut self) {
        let modulated = self.recovery.is_active() || self.state == State::ProbeRtt;
        self.prior_window = if modulated { self.prior_window.max(self.window) } else { self.window };
    }

    /// The pacing rate falls only once the pipe was full (4.2.1).
    fn set_rate(&mut self, gain: f64, feedback: Option<&Feedback<'_>>) {
        if let Some(feedback) = feedback
            && !self.timed
            && feedback.rtt.latest.is_some()
        {
            self.timed = true;
            let rtt = feedback.rtt.smoothed.seconds().max(Seconds::NANOSECOND);
            self.pace_at(self.initial_window * HIGH_GAIN / rtt);
        }
        let rate = self.config.linux.paced(self.bandwidth * gain);
        if rate > OctetRate::ZERO && (self.filled || rate > self.rate) {
            self.pace_at(rate);
        }
    }

    #[inline]
    fn pace_at(&mut self, rate: OctetRate) {
        // Of most ACKs the model learns nothing new.
        if rate != self.rate {
            self.rate = rate;
            self.limits.rate = Some(rate.max(OctetRate(1.0)).whole());
        }
    }

    /// What leaves at once (4.2.2).
    fn set_quantum(&mut self) {
        let quantum = if self.rate < ONE_PACKET_BELOW {
            self.packet
        } else if self.rate < TWO_PACKETS_BELOW {
            self.packet * 2.0
        } else {
            (self.rate * QUANTUM_SPAN).min(MOST_QUANTUM)
        };
        if quantum != self.quantum {
            self.quantum = quantum;
            // The packet that leaves is not part of what may leave beside it.
            self.limits.burst = quantum.whole();
        }
    }

    /// The window (4.2.3.4 to 4.2.3.6).
    fn set_window(&mut self, now: Time, feedback: &Feedback<'_>, lost: Octets) {
        let in_flight = Octets::from(feedback.in_flight);
        let acked = Octets::from(feedback.acked_bytes);
        let was_active = self.recovery.is_active();
        match self.recovery.step(now, feedback) {
            Step::Begins => {
                if !was_active {
                    self.prior_window =
                        if self.state == State::ProbeRtt { self.prior_window.max(self.window) } else { self.window };
                }
                // cwnd = packets_in_flight + max(packets_delivered, 1)
                self.window = in_flight + acked.max(self.packet);
                self.conserving = true;
            }
            Step::Ends => {
                self.conserving = false;
                self.window = self.window.max(self.prior_window);
            }
            Step::None => {}
        }
        if feedback.persistent_congestion {
            self.prior_window = self.prior_window.max(self.window);
            self.window = self.packet;
            return;
        }
        if lost > Octets::ZERO {
            self.window = (self.window - lost).max(self.packet);
        }
        let extra = if self.filled { self.config.linux.extra(&self.aggregation, self.bandwidth) } else { Octets::ZERO };
        let target = self.in_flight_for(self.window_gain) + extra;
        if self.conserving {
            self.window = self.window.max(in_flight + acked);
        } else {
            if self.filled {
                self.window = (self.window + acked).min(target);
            } else if self.window < target || Octets::from(feedback.delivered) < self.initial_window {
                self.window += acked;
            }
            self.window = self.window.max(MIN_PIPE.in_bytes(self.packet));
        }
        if self.state == State::ProbeRtt {
            self.window = self.window.min(MIN_PIPE.in_bytes(self.packet));
        }
    }
}

impl FlowController for Bbr {
    /// A flow that was idle paces at the bandwidth that it knew (4.3.6).
    #[inline]
    fn on_sent(&mut self, _: Time, _: PeerId, packet: &Sent, _: &mut Rng) -> bool {
        let was_idle = packet.in_flight == packet.size && packet.app_limited;
        if was_idle {
            self.idle_restart = true;
            if self.state == State::ProbeBw {
                self.set_rate(1.0, None);
            }
        }
        was_idle
    }

    #[inline]
    fn on_feedback(&mut self, now: Time, feedback: &Feedback<'_>, rng: &mut Rng) {
        let lost: Bytes = feedback.lost.iter().map(|lost| lost.sent.size).sum();
        let round_ended = self.rounds.ends(feedback);
        if !feedback.acked.is_empty() {
            self.update_bandwidth(feedback);
            if self.config.linux.measures_aggregation() {
                self.aggregation.on_acked(now, feedback.acked_bytes.into(), self.bandwidth, self.window, round_ended);
            }
            if self.state == State::ProbeBw && self.phase_is_over(now, feedback, lost) {
                self.enter_phase(now, self.phase + 1);
            }
            // Once the pipe was full there is nothing more to find, but when its queue is drained.
            if !self.filled || self.state == State::Drain {
                self.check_full_pipe(now, round_ended, feedback, rng);
            }
            self.check_min_rtt(now, round_ended, feedback, rng);
            self.set_rate(self.pacing_gain, Some(feedback));
            self.set_quantum();
        }
        self.set_window(now, feedback, lost.into());
        self.limits.window = self.window.max(Octets::ONE).whole();
    }

    #[inline]
    fn limits(&self) -> Limits {
        self.limits
    }

    fn trace(&self, record: &mut dyn FnMut(&'static str, f64)) {
        record("window", self.window.0);
        record("rate", self.rate.bits_per_sec());
        record("bandwidth", self.bandwidth.bits_per_sec());
        record("min_rtt", self.min_rtt.get().map_or(0.0, Duration::as_millis_f64));
        record("pacing_gain", self.pacing_gain);
        record("state", f64::from(self.state as u8));
    }
}
