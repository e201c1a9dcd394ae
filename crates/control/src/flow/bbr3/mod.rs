//! BBR, version 3: the path model of version 1 (see `bbr`), probed for bandwidth every two
//! or three seconds instead of every eight round trips. Two bounds that losses set hold it
//! back: a long-term one on what may be in flight, learnt when a probe loses more than 2 %
//! of what it has in flight, and short-term ones on rate and flight, which follow what is
//! delivered while there are losses between probes. It leaves 15 % of the long-term bound
//! free between probes, so that others find room.
//!
//! ```text
//! bw     = min(max_bw, bw_shortterm)                               5.5.10.3
//! rate   = 0.99 * pacing_gain * bw                                 5.6.2
//! W      = cwnd_gain * bw * min_rtt + extra_acked, within bounds   5.6.4.2, 5.6.4.7
//! bounds   inflight_longterm, inflight_shortterm                   bounds.rs
//! ```
//!
//! Sections are those of draft-ietf-ccwg-bbr-04. Departures and readings:
//!
//! - -04's pseudocode no longer ends the phase of ACKs that stop a probe, so that the
//!   bandwidth filter would advance each round; like the drafts before it, we advance it
//!   once for each probe and react to no more of its losses then (5.3.3.6).
//! - Drain paces at 0.35 (5.3.2); the table in 5.6.1 still says 0.5.
//! - A round of Startup with many losses is known by the ACKs that report some, since
//!   feedback does not say which lost packets were neighbours (5.3.1.3).
//! - The sender counts as limited by the window if a packet that left in this round trip or
//!   the one before used it up: feedback tells only whether the application limits it.
//! - Recovery is RFC 9002's, as in version 1. There is no undo after spurious losses.

mod bounds;
mod probe_bw;
mod probe_rtt;
#[cfg(test)]
mod tests;

use serde::Deserialize;

use self::bounds::Bounds;
use self::probe_bw::Cycle;
use super::bbr::model::{FullPipe, LossRecovery, Lull, MIN_PIPE, MinRtt, Step};
use super::round::Rounds;
use super::setup::{Factory, Setup, factory};
use super::{Feedback, FlowController, Limits, PeerId, Sent};
use crate::filter::WindowedMax;
use crate::registry::{ParameterError, in_range};
use crate::rng::Rng;
use crate::time::{Duration, Seconds, Time};
use crate::units::{Bytes, OctetRate, Octets, Rate, WindowUnit};

/// StartupPacingGain, 4 ln 2 (5.3.1.1).
const STARTUP_GAIN: f64 = 2.77;

/// DrainPacingGain (5.3.2).
const DRAIN_GAIN: f64 = 0.35;

/// DefaultCwndGain (5.3.1.1).
const WINDOW_GAIN: f64 = 2.0;

/// PacingMarginPercent: 1 % below the bandwidth (5.6.2).
const PACING_MARGIN: f64 = 0.99;

/// BBRExtraAckedFilterLen, in rounds (5.5.9).
const EXTRA_ACKED_ROUNDS: u64 = 10;

/// MaxBwFilterLen, in cycles of ProbeBW (5.5.6).
const BANDWIDTH_CYCLES: u64 = 2;

/// BBRStartupFullLossCnt (5.3.1.3).
const STARTUP_LOSS_EVENTS: u32 = 6;

/// The round trip for the pacing rate before there is a sample (5.6.2).
const FIRST_RTT: Seconds = Seconds(1e-3);

/// What leaves at once: what the rate carries in this span, but no more than `MOST_QUANTUM` (5.6.3).
const QUANTUM_SPAN: Seconds = Seconds(1e-3);
const MOST_QUANTUM: Octets = Octets(64.0 * 1024.0);

/// Parameters of `bbr3`.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Config {
    /// LossThresh: share of a flight whose loss shows that it was too much (5.3.1.3).
    loss_threshold: f64,
    /// Beta: what a bound keeps at least when it falls (5.5.10.2).
    beta: f64,
    /// Headroom: share of the long-term bound that is left free between probes (5.3.3.1).
    headroom: f64,
}

impl Default for Config {
    fn default() -> Config {
        Config { loss_threshold: 0.02, beta: 0.7, headroom: 0.15 }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Startup,
    Drain,
    Down,
    Cruise,
    Refill,
    Up,
    ProbeRtt,
}

impl State {
    /// Pacing gain and window gain (5.6.1).
    fn gains(self) -> (f64, f64) {
        match self {
            State::Startup => (STARTUP_GAIN, WINDOW_GAIN),
            State::Drain => (DRAIN_GAIN, WINDOW_GAIN),
            State::Down => (0.90, WINDOW_GAIN),
            State::Cruise | State::Refill => (1.0, WINDOW_GAIN),
            State::Up => (1.25, 2.25),
            State::ProbeRtt => (1.0, probe_rtt::WINDOW_GAIN),
        }
    }

    fn is_probe_bw(self) -> bool {
        matches!(self, State::Down | State::Cruise | State::Refill | State::Up)
    }

    /// Whether it sends more on purpose, so that losses are no news (BBRIsProbingBW).
    fn is_accelerating(self) -> bool {
        matches!(self, State::Startup | State::Refill | State::Up)
    }
}

/// What one ACK says (RS).
#[derive(Clone, Copy, Debug)]
struct Ack {
    acked: Octets,
    /// Delivery rate; 0 without a sample.
    rate: OctetRate,
    /// Delivered over the sample's interval; 0 without a sample.
    delivered: Octets,
    /// In flight when the newest acknowledged packet had left.
    in_flight_then: Octets,
    /// Lost since it left.
    lost: Octets,
    app_limited: bool,
    /// Whether a round trip ended with this ACK.
    round_ended: bool,
}

/// The controller.
#[derive(Clone, Debug)]
struct Bbr3 {
    config: Config,
    packet: Octets,
    initial_window: Octets,
    state: State,
    /// Bits a second over cycles.
    bandwidths: WindowedMax,
    max_bandwidth: OctetRate,
    /// The lower of `max_bandwidth` and the short-term bound.
    bandwidth: OctetRate,
    min_rtt: MinRtt,
    probe: probe_rtt::Probe,
    rounds: Rounds,
    full_pipe: FullPipe,
    /// The present search for a plateau has found one.
    full_now: bool,
    filled: bool,
    cycle: Cycle,
    bounds: Bounds,
    aggregation: Aggregation,
    lull: Lull,
    idle_restart: bool,
    recovery: LossRecovery,
    /// Declared lost since the sender began.
    lost: Bytes,
    /// The window was used up in this round trip, and in the one before.
    limited: (bool, bool),
    window: Octets,
    prior_window: Octets,
    rate: OctetRate,
    quantum: Octets,
    /// Whether the pacing rate rests on a round trip.
    timed: bool,
    limits: Limits,
}

/// ACKs that come in clumps (5.5.9).
#[derive(Clone, Debug)]
struct Aggregation {
    since: Time,
    acked: Octets,
    /// Bytes over rounds.
    extra: WindowedMax,
}

/// Makes `bbr3`.
pub fn build(parameters: &toml::Table) -> Result<Factory, ParameterError> {
    let config: Config = crate::registry::parameters(parameters)?;
    in_range("loss_threshold", config.loss_threshold, 0.0..=0.5)?;
    in_range("beta", config.beta, 0.1..=1.0)?;
    in_range("headroom", config.headroom, 0.0..=0.9)?;
    Ok(factory(move |setup| new(setup, config)))
}

fn new(setup: &Setup, config: Config) -> Bbr3 {
    let window = Octets::from(setup.initial_window);
    let mut bbr = Bbr3 {
        config,
        packet: setup.packet.into(),
        initial_window: window,
        state: State::Startup,
        bandwidths: WindowedMax::new(BANDWIDTH_CYCLES),
        max_bandwidth: OctetRate::ZERO,
        bandwidth: OctetRate::ZERO,
        min_rtt: MinRtt::new(setup.start),
        probe: probe_rtt::Probe::new(setup.start),
        rounds: Rounds::default(),
        full_pipe: FullPipe::default(),
        full_now: false,
        filled: false,
        cycle: Cycle::new(setup.start),
        bounds: Bounds::default(),
        aggregation: Aggregation {
            since: setup.start,
            acked: Octets::ZERO,
            extra: WindowedMax::new(EXTRA_ACKED_ROUNDS),
        },
        lull: Lull::default(),
        idle_restart: false,
        recovery: LossRecovery::default(),
        lost: Bytes::ZERO,
        limited: (false, false),
        window,
        prior_window: window,
        rate: window * STARTUP_GAIN / FIRST_RTT,
        quantum: Octets::ZERO,
        timed: false,
        limits: Limits::window(setup.initial_window),
    };
    bbr.set_quantum();
    bbr.refresh();
    bbr
}

impl Bbr3 {
    /// `gain` times the product of `bandwidth` and the least round trip (BBRBDPMultiple).
    #[inline]
    fn product(&self, bandwidth: OctetRate, gain: f64) -> Octets {
        self.min_rtt.get().map_or(self.initial_window, |rtt| bandwidth * gain * rtt.seconds())
    }

    /// Room for what is being sent and acknowledged in bursts (5.6.4.2, 5.5.8).
    #[inline]
    fn with_quanta(&self, in_flight: Octets) -> Octets {
        let cap = in_flight.max(self.quantum * 3.0).max(MIN_PIPE.in_bytes(self.packet));
        if self.state == State::Up { cap + self.packet * 2.0 } else { cap }
    }

    /// What the ACK in `feedback` says; nothing if it acknowledges nothing.
    #[inline]
    fn read(&mut self, feedback: &Feedback<'_>) -> Option<Ack> {
        let newest = feedback.acked.last()?;
        let round_ended = self.rounds.ends(feedback);
        if round_ended {
            self.cycle.rounds += 1;
            self.limited = (false, self.limited.0);
        }
        Some(Ack {
            acked: feedback.acked_bytes.into(),
            rate: feedback.rate.map_or(OctetRate::ZERO, |sample| sample.rate().into()),
            delivered: feedback.rate.map_or(Octets::ZERO, |sample| sample.delivered.into()),
            in_flight_then: newest.in_flight.into(),
            lost: (self.lost - newest.lost).into(),
            app_limited: newest.app_limited || self.lull.contains(newest),
            round_ended,
        })
    }

    /// Samples that the application limited count only if they are higher (5.5.5).
    #[inline]
    fn update_bandwidth(&mut self, ack: &Ack) {
        if ack.rate > OctetRate::ZERO && (!ack.app_limited || ack.rate >= self.max_bandwidth) {
            let highest = self.bandwidths.update(self.cycle.count, ack.rate.whole().bits_per_sec());
            self.max_bandwidth = Rate::from_bits_per_sec(highest).into();
        }
    }

    /// How much more is acknowledged than the bandwidth explains (5.5.9).
    #[inline]
    fn update_aggregation(&mut self, now: Time, ack: &Ack) {
        let mut expected = self.bandwidth * now.since(self.aggregation.since).seconds();
        if self.aggregation.acked <= expected {
            self.aggregation.acked = Octets::ZERO;
            self.aggregation.since = now;
            expected = Octets::ZERO;
        }
        self.aggregation.acked += ack.acked;
        let extra = (self.aggregation.acked - expected).clamp(Octets::ZERO, self.window).whole().get();
        // Until the pipe was full, one round is remembered.
        if ack.round_ended && !self.filled {
            self.aggregation.extra.reset(self.rounds.count(), extra);
        } else {
            self.aggregation.extra.update(self.rounds.count(), extra);
        }
    }

    /// 5.3.1: the end of Startup by a plateau or by losses, and that of Drain.
    #[inline]
    fn check_startup(&mut self, now: Time, ack: &Ack, was_recovering: bool, feedback: &Feedback<'_>, rng: &mut Rng) {
        if !self.full_now && ack.round_ended && !ack.app_limited {
            self.full_now = self.full_pipe.on_round(ack.rate);
            self.filled |= self.full_now;
        }
        if self.state == State::Startup {
            let lossy = self.bounds.loss_round_ended
                && was_recovering
                && self.bounds.loss_events >= STARTUP_LOSS_EVENTS
                && self.is_too_much(ack.lost, ack.in_flight_then);
            if lossy && !self.filled {
                self.filled = true;
                self.bounds.inflight_long = self.product(self.bandwidth, 1.0).max(self.bounds.latest_inflight);
            }
            if self.filled {
                self.state = State::Drain;
            }
        }
        if self.bounds.loss_round_ended {
            self.bounds.loss_events = 0;
        }
        let drained = self.with_quanta(self.product(self.bandwidth, 1.0));
        if self.state == State::Drain && Octets::from(feedback.in_flight) <= drained {
            self.start_down(now, feedback.delivered, rng);
        }
    }

    fn save_window(&mut self, recovering: bool) {
        let modulated = recovering || self.state == State::ProbeRtt;
        self.prior_window = if modulated { self.prior_window.max(self.window) } else { self.window };
    }

    fn restore_window(&mut self) {
        self.window = self.window.max(self.prior_window);
    }

    /// The pacing rate falls only once the pipe was full (5.6.2).
    #[inline]
    fn set_rate(&mut self, gain: f64) {
        let rate = self.bandwidth * gain * PACING_MARGIN;
        if rate > OctetRate::ZERO && (self.filled || rate > self.rate) {
            self.rate = rate;
        }
    }

    /// The first round trip replaces the guess for it.
    fn set_first_rate(&mut self, feedback: &Feedback<'_>) {
        if !self.timed && feedback.rtt.latest.is_some() {
            self.timed = true;
            let rtt = feedback.rtt.smoothed.seconds().max(Seconds::NANOSECOND);
            self.rate = self.initial_window * STARTUP_GAIN / rtt;
        }
    }

    /// What leaves at once (5.6.3).
    #[inline]
    fn set_quantum(&mut self) {
        self.quantum = (self.rate * QUANTUM_SPAN).min(MOST_QUANTUM).max(self.packet * 2.0);
    }

    /// The window that the model asks for (5.6.4.6).
    #[inline]
    fn set_window(&mut self, ack: &Ack, feedback: &Feedback<'_>) {
        let extra = Octets::from(Bytes::new(self.aggregation.extra.get()));
        let wanted = self.product(self.bandwidth, self.state.gains().1) + extra;
        let max_inflight = self.with_quanta(wanted);
        if self.filled {
            self.window = (self.window + ack.acked).min(max_inflight);
        } else if self.window < max_inflight || Octets::from(feedback.delivered) < self.initial_window {
            self.window += ack.acked;
        }
        self.window = self.window.max(MIN_PIPE.in_bytes(self.packet));
        if self.state == State::ProbeRtt {
            self.window = self.window.min(self.probe_rtt_window());
        }
    }

    /// Holds the window within the bounds (5.6.4.7).
    #[inline]
    fn bound_window(&mut self) {
        let long = match self.state {
            State::Cruise | State::ProbeRtt => self.inflight_with_headroom(),
            state if state.is_probe_bw() => self.bounds.inflight_long,
            _ => Octets::INFINITY,
        };
        let cap = long.min(self.bounds.inflight_short).max(MIN_PIPE.in_bytes(self.packet));
        self.window = self.window.min(cap);
    }

    #[inline]
    fn refresh(&mut self) {
        self.limits = Limits {
            window: self.window.max(Octets::ONE).whole(),
            rate: Some(self.rate.max(OctetRate(1.0)).whole()),
            // The packet that leaves is not part of what may leave beside it.
            burst: self.quantum.whole(),
        };
    }

    /// 5.2.3, in the draft's order.
    #[inline]
    fn on_ack(&mut self, now: Time, ack: &Ack, was_recovering: bool, feedback: &Feedback<'_>, rng: &mut Rng) {
        let newest_delivered = feedback.acked.last().map_or(Bytes::ZERO, |newest| newest.delivered);
        self.bounds.begin_ack(ack, newest_delivered, feedback.delivered);
        self.update_bandwidth(ack);
        self.adapt_short_term();
        self.update_aggregation(now, ack);
        self.check_startup(now, ack, was_recovering, feedback, rng);
        self.advance_cycle(now, ack, feedback, rng);
        self.check_probe_rtt(now, ack, feedback, rng);
        self.bounds.end_ack(ack);
        self.bandwidth = self.max_bandwidth.min(self.bounds.bandwidth_short);
        self.set_first_rate(feedback);
        self.set_rate(self.state.gains().0);
        self.set_quantum();
        self.set_window(ack, feedback);
    }
}

impl FlowController for Bbr3 {
    #[inline]
    fn on_sent(&mut self, now: Time, _: PeerId, packet: &Sent, rng: &mut Rng) -> bool {
        self.limited.0 |= Octets::from(packet.in_flight) + self.packet > self.window;
        // 5.4.1: a flow that was idle paces at the bandwidth that it knew.
        let was_idle = packet.in_flight == packet.size && packet.app_limited;
        if was_idle {
            self.idle_restart = true;
            self.aggregation.since = now;
            self.aggregation.acked = Octets::ZERO;
            if self.state.is_probe_bw() {
                self.set_rate(1.0);
            } else if self.state == State::ProbeRtt {
                self.check_probe_rtt_done(now, packet.delivered, rng);
            }
            self.refresh();
        }
        was_idle
    }

    #[inline]
    fn on_feedback(&mut self, now: Time, feedback: &Feedback<'_>, rng: &mut Rng) {
        if !feedback.lost.is_empty() {
            self.bounds.loss_events += 1;
            for lost in feedback.lost {
                self.lost += lost.sent.size;
                self.on_lost(now, &lost.sent, feedback.delivered, rng);
            }
        }
        let was_recovering = self.recovery.is_active();
        let step = self.recovery.step(now, feedback);
        if step == Step::Begins && !was_recovering {
            self.save_window(false);
        }
        if step == Step::Ends {
            self.restore_window();
        }
        if feedback.persistent_congestion {
            // 5.6.4.4, as after a retransmission timeout.
            self.save_window(was_recovering);
            self.window = Octets::from(feedback.in_flight) + self.packet;
        }
        if let Some(ack) = self.read(feedback) {
            self.on_ack(now, &ack, was_recovering, feedback, rng);
        }
        self.bound_window();
        self.refresh();
    }

    #[inline]
    fn limits(&self) -> Limits {
        self.limits
    }

    fn trace(&self, record: &mut dyn FnMut(&'static str, f64)) {
        // Infinity where there is no bound: plots want a number.
        let finite = |amount: Octets| amount.0.min(f64::from(u32::MAX));
        record("window", self.window.0);
        record("rate", self.rate.bits_per_sec());
        record("bandwidth", self.bandwidth.bits_per_sec());
        record("min_rtt", self.min_rtt.get().map_or(0.0, Duration::as_millis_f64));
        record("inflight_longterm", finite(self.bounds.inflight_long));
        record("inflight_shortterm", finite(self.bounds.inflight_short));
        record("state", f64::from(self.state as u8));
    }
}
