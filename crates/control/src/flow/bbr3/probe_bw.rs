//! ProbeBW: sends less (DOWN) until the queue is drained and some room is left, cruises
//! until it is time to probe, refills the pipe for a round trip and sends more (UP), until
//! no more is delivered or too much is lost (5.3.3).

use super::{Ack, Bbr3, State};
use crate::flow::Feedback;
use crate::rng::Rng;
use crate::time::{Duration, Time};
use crate::units::{Bytes, OctetRate, Octets, WindowUnit};

/// Most round trips between two probes: what Reno needs to grow by a small path's product
/// (5.3.3.5).
const RENO_ROUNDS: f64 = 63.0;

/// The long-term bound grows by at most this power of two packets a round (5.3.3.6).
const MAX_SLOPE: u32 = 30;

/// What the ACKs that come now tell about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AckPhase {
    /// No probe.
    Init,
    /// Packets from before the probe.
    Starting,
    /// The probe.
    Feedback,
    /// The end of the probe.
    Stopping,
    /// The round before the probe.
    Refilling,
}

/// Where in the cycle we are.
#[derive(Clone, Copy, Debug)]
pub struct Cycle {
    /// Cycles, the clock of the bandwidth filter.
    pub count: u64,
    /// When this cycle began.
    since: Time,
    /// Wall clock until the next probe, from `since` on.
    wait: Duration,
    /// Round trips since the last probe.
    pub rounds: u64,
    pub phase: AckPhase,
    /// ACKed bytes for each byte by which the long-term bound grows.
    growth_divisor: f64,
    slope: u32,
}

impl Cycle {
    /// Before the first cycle.
    pub fn new(now: Time) -> Cycle {
        Cycle {
            count: 0,
            since: now,
            wait: Duration::ZERO,
            rounds: 0,
            phase: AckPhase::Init,
            growth_divisor: f64::INFINITY,
            slope: 0,
        }
    }
}

impl Bbr3 {
    /// Sends less; picks when to probe next.
    pub fn start_down(&mut self, now: Time, delivered: Bytes, rng: &mut Rng) {
        self.bounds.forget_round();
        self.cycle.growth_divisor = f64::INFINITY;
        // 5.3.3.5: 0 or 1 round trip less, and between 2 and 3 s, for better mixing.
        self.cycle.rounds = rng.below(2) as u64;
        self.cycle.wait = Duration::from_secs_f64(2.0 + rng.uniform());
        self.cycle.since = now;
        self.cycle.phase = AckPhase::Stopping;
        self.rounds.restart(delivered);
        self.state = State::Down;
    }

    fn start_refill(&mut self, delivered: Bytes) {
        self.bounds.forget_short_term();
        self.cycle.slope = 0;
        self.cycle.phase = AckPhase::Refilling;
        self.rounds.restart(delivered);
        self.state = State::Refill;
    }

    fn start_up(&mut self, ack: &Ack, delivered: Bytes) {
        self.bounds.of_probe = true;
        self.cycle.phase = AckPhase::Starting;
        self.rounds.restart(delivered);
        self.restart_full_pipe(ack.rate);
        self.state = State::Up;
        self.raise_slope();
    }

    fn restart_full_pipe(&mut self, baseline: OctetRate) {
        self.full_pipe.restart(baseline);
        self.full_now = false;
    }

    /// The growth of the long-term bound doubles each round (BBRRaiseInflightLongtermSlope).
    fn raise_slope(&mut self) {
        let growth = self.packet * f64::from(1u32 << self.cycle.slope);
        self.cycle.slope = (self.cycle.slope + 1).min(MAX_SLOPE);
        self.cycle.growth_divisor = (self.window / growth).max(1.0);
    }

    fn is_window_limited(&self) -> bool {
        self.limited.0 || self.limited.1
    }

    /// BBRUpdateProbeBWCyclePhase.
    #[inline]
    pub fn advance_cycle(&mut self, now: Time, ack: &Ack, feedback: &Feedback<'_>, rng: &mut Rng) {
        if !self.filled {
            return;
        }
        self.adapt_long_term(ack);
        let in_flight = Octets::from(feedback.in_flight);
        let pipe_is_full = self.state == State::Up && self.is_time_to_go_down(ack);
        match self.state {
            State::Down | State::Cruise if self.is_time_to_probe(now) => self.start_refill(feedback.delivered),
            State::Down if self.is_time_to_cruise(in_flight) => self.state = State::Cruise,
            State::Refill if ack.round_ended => self.start_up(ack, feedback.delivered),
            State::Up if pipe_is_full => self.start_down(now, feedback.delivered, rng),
            _ => {}
        }
    }

    /// BBRIsTimeToProbeBW: by the clock, or after as many round trips as Reno would need.
    #[inline]
    fn is_time_to_probe(&self, now: Time) -> bool {
        let reno = (self.target_inflight() / self.packet).min(RENO_ROUNDS);
        now > self.cycle.since + self.cycle.wait || self.cycle.rounds as f64 >= reno
    }

    /// BBRIsTimeToCruise: there is headroom, and the queue is drained.
    #[inline]
    fn is_time_to_cruise(&self, in_flight: Octets) -> bool {
        in_flight <= self.inflight_with_headroom()
            && in_flight <= self.with_quanta(self.product(self.max_bandwidth, 1.0))
    }

    /// BBRIsTimeToGoDown: the pipe is full, as far as the long-term bound lets it be seen.
    #[inline]
    fn is_time_to_go_down(&mut self, ack: &Ack) -> bool {
        if self.is_window_limited() && self.window >= self.bounds.inflight_long {
            self.restart_full_pipe(ack.rate);
            return false;
        }
        self.full_now
    }

    /// BBRAdaptLongTermModel: where a probe's ACKs begin and end, and what lost little.
    #[inline]
    fn adapt_long_term(&mut self, ack: &Ack) {
        if ack.round_ended {
            match self.cycle.phase {
                AckPhase::Starting => self.cycle.phase = AckPhase::Feedback,
                AckPhase::Stopping => {
                    self.cycle.phase = AckPhase::Init;
                    self.bounds.of_probe = false;
                    if self.state.is_probe_bw() && !ack.app_limited {
                        // The filter forgets what is two cycles old (5.5.6).
                        self.cycle.count += 1;
                    }
                }
                _ => {}
            }
        }
        if self.bounds.inflight_long == Octets::INFINITY || self.is_too_much(ack.lost, ack.in_flight_then) {
            return;
        }
        self.bounds.inflight_long = self.bounds.inflight_long.max(ack.in_flight_then);
        if self.state == State::Up {
            self.raise_long_term(ack);
        }
    }

    /// BBRProbeInflightLongtermUpward.
    fn raise_long_term(&mut self, ack: &Ack) {
        if !self.is_window_limited() || self.window < self.bounds.inflight_long {
            return;
        }
        self.bounds.inflight_long += ack.acked / self.cycle.growth_divisor;
        if ack.round_ended {
            self.raise_slope();
        }
    }
}
