//! ProbeRTT: when the least round trip of the last 5 s is not fresh, half of the estimated
//! product is in flight for 200 ms and a round trip, so that queues drain (5.3.4).

use super::{Ack, Bbr3, MIN_PIPE, State};
use crate::flow::Feedback;
use crate::flow::bbr::model::{MinRtt, PROBE_RTT_DURATION};
use crate::rng::Rng;
use crate::time::{Duration, Time};
use crate::units::{Bytes, Octets, WindowUnit};

/// ProbeRTTCwndGain (5.3.4.1).
pub const WINDOW_GAIN: f64 = 0.5;

/// ProbeRTTInterval (5.3.4.1).
const INTERVAL: Duration = Duration::from_millis(5000);

/// MinRTTFilterLen (5.5.7.2).
const FILTER: Duration = Duration::from_millis(10_000);

/// When to probe, and how far a probe has come.
#[derive(Clone, Copy, Debug)]
pub struct Probe {
    /// The least of the interval.
    min: MinRtt,
    /// When the present probe may end, once little is in flight.
    until: Option<Time>,
    round_done: bool,
}

impl Probe {
    /// Nothing is known at `now`.
    pub fn new(now: Time) -> Probe {
        Probe { min: MinRtt::new(now), until: None, round_done: false }
    }
}

impl Bbr3 {
    /// BBRUpdateMinRTT and BBRCheckProbeRTT.
    #[inline]
    pub fn check_probe_rtt(&mut self, now: Time, ack: &Ack, feedback: &Feedback<'_>, rng: &mut Rng) {
        let stale = self.probe.min.is_stale(now, INTERVAL);
        self.probe.min.raise(feedback.rtt.min);
        self.min_rtt.raise(feedback.rtt.min);
        if let Some(sample) = feedback.rtt.latest
            && (stale || self.probe.min.get().is_none_or(|least| sample < least))
        {
            self.probe.min.set(sample, now);
        }
        if let Some(least) = self.probe.min.get()
            && (self.min_rtt.get().is_none_or(|min_rtt| least < min_rtt) || self.min_rtt.is_stale(now, FILTER))
        {
            self.min_rtt.set(least, self.probe.min.seen);
        }
        if stale && self.state != State::ProbeRtt && !self.idle_restart {
            self.save_window(self.recovery.is_active());
            self.state = State::ProbeRtt;
            self.probe.until = None;
            self.cycle.phase = super::probe_bw::AckPhase::Stopping;
            self.rounds.restart(feedback.delivered);
            self.lull.extend(feedback, true);
        }
        if self.state == State::ProbeRtt {
            self.go_on_probing(now, ack, feedback, rng);
        }
        if ack.delivered > Octets::ZERO {
            self.idle_restart = false;
        }
    }

    /// BBRHandleProbeRTT.
    fn go_on_probing(&mut self, now: Time, ack: &Ack, feedback: &Feedback<'_>, rng: &mut Rng) {
        self.lull.extend(feedback, false);
        if self.probe.until.is_some() {
            self.probe.round_done |= ack.round_ended;
            if self.probe.round_done {
                self.check_probe_rtt_done(now, feedback.delivered, rng);
            }
        } else if Octets::from(feedback.in_flight) <= self.probe_rtt_window() {
            self.probe.until = Some(now + PROBE_RTT_DURATION);
            self.probe.round_done = false;
            self.rounds.restart(feedback.delivered);
        }
    }

    /// BBRCheckProbeRTTDone: goes on with the cycle, at once in CRUISE, since little is in
    /// flight.
    pub fn check_probe_rtt_done(&mut self, now: Time, delivered: Bytes, rng: &mut Rng) {
        if self.probe.until.is_none_or(|until| now <= until) {
            return;
        }
        self.probe.min.seen = now;
        self.restore_window();
        self.bounds.forget_short_term();
        if self.filled {
            self.start_down(now, delivered, rng);
            self.state = State::Cruise;
        } else {
            self.state = State::Startup;
        }
    }

    /// What may be in flight in a probe (BBRProbeRTTCwnd).
    #[inline]
    pub fn probe_rtt_window(&self) -> Octets {
        self.product(self.bandwidth, WINDOW_GAIN).max(MIN_PIPE.in_bytes(self.packet))
    }
}
