//! Block window: one sender serves blocks to receivers in turn, and holds the queue of the
//! bottleneck that all of them share at a delay of its choice. Once a period it lets out
//! what the window lacks; the window is what fills the path to the receivers that packets
//! are on their way to, plus the queue wanted, corrected by the queue measured. What the
//! queue can hold is learned from the last packet that came through before a loss.
//!
//! ```text
//! u(kT)  = gamma (w - (sent - acknowledged))                              eq. 1
//! d_ref  = a (dmax_p - dmin_p)                                            eq. 16, less dmin_p
//! w(kT)  = U sum_p lambda_p (dmin_p + d_ref + T) + 1 + gamma_2 (d_ref - d(kT))   eq. 17
//! U      = data acknowledged in the last t_c / t_c
//! lambda_p = share of receiver p in what is not acknowledged
//! ```
//!
//! [Efthymiopoulos 2015], sections 4 and 5. Departures, each named where it is made: d_ref
//! is a delay of the queue in eq. 17 although eq. 16 adds dmin_p to it; gamma_2 is a share
//! of U; what is lost counts as acknowledged; a sender without data keeps its U, and begins
//! anew after a rest; the window has a floor; what waits for a receiver that puts off its
//! ACKs has room of its own, which eq. 17, where each packet is acknowledged at once, does not
//! need; a window that a peer's receivers share begins as TCP's does.

#[cfg(test)]
mod lemmas;
mod receivers;
mod upload;

use serde::Deserialize;

use self::receivers::Receivers;
use self::upload::Upload;
use super::recovery::{MINIMUM_WINDOW, Recovery};
use super::setup::{Factory, Setup, factory};
use super::{Abandoned, Feedback, FlowController, Limits, PeerId, Sent};
use crate::registry::{ParameterError, in_range};
use crate::rng::Rng;
use crate::time::{Duration, Millis, Seconds, Time};
use crate::units::{Bytes, Octets, WindowUnit};

/// Receivers whose round trips have a name of their own in the trace.
const TRACED: [&str; 4] = ["rtt_0", "rtt_1", "rtt_2", "rtt_3"];

/// How eq. 16 is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Reference {
    /// `d_ref` is the delay of the queue that section 5 calls it, a share of what the queue
    /// can hold; eq. 17 adds `dmin_p` itself.
    #[default]
    Queue,
    /// `d_ref` contains `dmin_p`, as eq. 16 is printed; eq. 17 then adds it twice.
    Letter,
}

/// Parameters of `block-window`.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Config {
    /// `T`.
    period_ms: Millis,
    /// `gamma`.
    gamma: f64,
    /// `gamma_2` as a share of `U`.
    gamma_2: f64,
    /// `a`: the share of the queue to use.
    queue_share: f64,
    /// `t_c`.
    rate_span_ms: Millis,
    /// `dmax_p - dmin_p` before a loss has shown it.
    initial_queue_ms: Millis,
    reference: Reference,
    /// Begin as TCP does (RFC 5681, 3.1); without a word of it, where a peer's receivers share the window.
    slow_start: Option<bool>,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            // The paper gives no T. The window holds the data of one period more than the
            // path and the queue, so that T must be short against a round trip; 10 ms is a
            // tick that every system's timers keep.
            period_ms: Millis(10.0),
            // Section 5, above eq. 15.
            gamma: 1.0,
            // The paper gives no value. Where U is the bottleneck's rate, eq. 17 makes
            // d - d_ref its own multiple by -gamma_2 / U a round trip later: it dies away
            // below 1 and rings above. Half lies in the middle.
            gamma_2: 0.5,
            // 6.3.
            queue_share: 0.75,
            // The paper gives no t_c: short reacts fast, long is stable (section 5). Half a
            // second is some round trips of its networks.
            rate_span_ms: Millis(500.0),
            // 6.2: "a constant", not given. RFC 6817 2.5 lets nobody aim at more queue.
            initial_queue_ms: Millis(100.0),
            reference: Reference::Queue,
            slow_start: None,
        }
    }
}

/// What the last packet that came through before a loss has shown of the queue.
#[derive(Clone, Copy, Debug)]
enum Fullest {
    /// Its receiver and its round trip: the shorter that receiver's shortest one turns out to be,
    /// the more the queue can hold.
    RoundTrip(PeerId, Duration),
    /// What the queue can hold, as known when that receiver left.
    Queue(Duration),
}

/// A window that begins as TCP's does. Eq. 17 raises it by the part of a round trip that `d_ref` and `T` are,
/// once in `t_c`: from what messages to a few receivers take to what a stream to many needs it would take
/// many seconds, which an uplink's backlog does not live through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    /// It does not.
    Never,
    /// The floor grows by what is acknowledged while it is used up: twofold in a round trip.
    Grows,
    /// A loss or a queue of `d_ref` has shown that it is wide enough: it stays until `U` has been measured.
    Stays(Time),
    /// `U` decides.
    Over,
}

/// The controller; data in bytes.
#[derive(Clone, Debug)]
struct BlockWindow {
    config: Config,
    packet: Octets,
    initial_window: Octets,
    period: Duration,
    rate_span: Duration,
    receivers: Receivers,
    upload: Upload,
    recovery: Recovery,
    /// What the last packet before a loss has shown.
    fullest: Option<Fullest>,
    /// `sum_p lambda_p dmin_p`, once a round trip is known.
    base: Option<Seconds>,
    /// `d(kT)`, once measured.
    queue_delay: Option<Seconds>,
    /// Sum of the queue's delays in this period, and their number.
    delays: (Seconds, u64),
    /// `w(kT)`.
    window: Octets,
    /// No window is smaller.
    floor: Octets,
    start: Start,
    /// `u(kT)`.
    injection: Octets,
    /// What is left of it.
    allowance: Octets,
    /// How long what has arrived waits until that is acknowledged.
    ack_wait: Duration,
    in_flight: Octets,
    /// As the last feedback said.
    app_limited: bool,
    /// When a packet last left or was acknowledged.
    active_at: Time,
    /// When the period ends; none while the sender rests.
    period_ends: Option<Time>,
}

/// Makes `block-window`.
pub fn build(parameters: &toml::Table) -> Result<Factory, ParameterError> {
    let config: Config = crate::registry::parameters(parameters)?;
    in_range("period_ms", config.period_ms.0, 0.1..=1000.0)?;
    in_range("gamma", config.gamma, 0.01..=1.0)?;
    in_range("gamma_2", config.gamma_2, 0.0..=10.0)?;
    in_range("queue_share", config.queue_share, 0.01..=0.99)?;
    in_range("rate_span_ms", config.rate_span_ms.0, config.period_ms.0..=60_000.0)?;
    in_range("initial_queue_ms", config.initial_queue_ms.0, 1.0..=10_000.0)?;
    Ok(factory(move |setup| new(setup, config)))
}

fn new(setup: &Setup, config: Config) -> BlockWindow {
    let window = Octets::from(setup.initial_window.max(setup.packet));
    let (period, rate_span) = (Duration::from(config.period_ms), Duration::from(config.rate_span_ms));
    let slow_starts = config.slow_start.unwrap_or(setup.shared);
    BlockWindow {
        config,
        packet: setup.packet.into(),
        initial_window: window,
        period,
        rate_span,
        receivers: Receivers::default(),
        upload: Upload::new(rate_span, period),
        recovery: Recovery::default(),
        fullest: None,
        base: None,
        queue_delay: None,
        delays: (Seconds::ZERO, 0),
        window,
        floor: window,
        start: if slow_starts { Start::Grows } else { Start::Never },
        injection: window,
        allowance: window,
        ack_wait: Duration::ZERO,
        in_flight: Octets::ZERO,
        app_limited: false,
        active_at: setup.start,
        period_ends: None,
    }
}

/// What may leave in a period: `u(kT) = gamma (w - (sent - acknowledged))`, eq. 1, and
/// nothing where the window has fallen below what is on its way.
#[inline]
fn injection(gamma: f64, window: Octets, outstanding: Octets) -> Octets {
    ((window - outstanding) * gamma).max(Octets::ZERO)
}

impl BlockWindow {
    /// What the queue can hold, `dmax_p - dmin_p`: the same for every receiver,
    /// since they share the queue (section 5).
    fn queue_limit(&self) -> Seconds {
        let shown = self.fullest.and_then(|fullest| self.shown(fullest));
        // 6.2: before a loss a constant is added to dmin_p.
        shown.map_or(self.config.initial_queue_ms.into(), Duration::seconds)
    }

    fn shown(&self, fullest: Fullest) -> Option<Duration> {
        match fullest {
            Fullest::RoundTrip(receiver, rtt) => Some(rtt - self.receivers.min_rtt(receiver)?),
            Fullest::Queue(queue) => Some(queue),
        }
    }

    /// `d_ref = a (dmax_p - dmin_p)`. Eq. 16 adds `dmin_p`, but section 5 calls
    /// `d_ref` a delay of the queue, 6.1 writes `RTT_ref` as `d_ref` plus the round trip,
    /// and eq. 17 adds `dmin_p` once more.
    fn reference(&self) -> Seconds {
        let queue = self.queue_limit() * self.config.queue_share;
        match self.config.reference {
            Reference::Queue => queue,
            Reference::Letter => queue + self.base.unwrap_or(Seconds::ZERO),
        }
    }

    /// The least window (RFC 9002, 7.2).
    fn minimum(&self) -> Octets {
        Octets::of_packets(MINIMUM_WINDOW, self.packet)
    }

    /// `w(kT)`, eq. 17. Without a round trip there is nothing to compute it from.
    fn window(&self) -> Octets {
        let Some(base) = self.base else { return self.floor };
        let (rate, reference) = (self.upload.rate(), self.reference());
        // U sum_p lambda_p (dmin_p + d_ref + T) + 1
        // What waits for its ACK is neither on the path nor in the queue, and counts as sent.
        let span = base + reference + self.period.seconds() + self.ack_wait.seconds();
        let fills = rate * span + self.packet;
        // gamma_2 (d_ref - d(kT)): gamma_2 is in packets a second, and a fixed one is too
        // small for a fast path and unstable on a slow one, hence a share of U.
        let lacks = self.queue_delay.map_or(Seconds::ZERO, |delay| reference - delay);
        let corrects = rate * self.config.gamma_2 * lacks;
        (fills + corrects).max(self.floor)
    }

    /// A period has ended, and `skipped` more without a call.
    fn end_period(&mut self, skipped: u64) {
        // A sender that has left part of its allowance unused has no more data: its ACKs
        // say nothing about the bottleneck (section 5: only a queue makes U meaningful).
        let unused = self.app_limited && self.allowance >= self.packet;
        self.upload.end_period(unused, skipped);
        if self.upload.is_filled() && matches!(self.start, Start::Never | Start::Over) {
            self.floor = self.minimum();
        }
        self.base = self.receivers.base_delay().or(self.base);
        let (sum, count) = core::mem::take(&mut self.delays);
        if count > 0 {
            self.queue_delay = Some(sum / count as f64);
            if self.start == Start::Grows && sum >= self.reference() * count as f64 {
                self.end_start(self.active_at);
            }
        }
        if matches!(self.start, Start::Stays(until) if self.active_at >= until) {
            self.start = Start::Over;
        }
        self.window = self.window();
        self.injection = injection(self.config.gamma, self.window, self.in_flight);
        self.allowance = self.injection;
    }

    /// The window is wide enough; it has doubled since what shows that has left.
    fn end_start(&mut self, now: Time) {
        self.floor = (self.floor / 2.0).max(self.minimum());
        self.start = Start::Stays(now + self.rate_span);
    }

    /// Begins anew with `window`: the rate and the queue of before are no longer true. What
    /// the paths and the buffer are is not forgotten.
    fn restart(&mut self, window: Octets) {
        self.upload.reset();
        self.queue_delay = None;
        self.delays = (Seconds::ZERO, 0);
        self.window = window;
        self.floor = window;
        if self.start != Start::Never {
            self.start = Start::Grows;
        }
        self.injection = injection(self.config.gamma, window, self.in_flight);
        self.allowance = self.injection;
    }
}

impl FlowController for BlockWindow {
    #[inline]
    fn on_sent(&mut self, now: Time, to: PeerId, packet: &Sent, _: &mut Rng) -> bool {
        self.receivers.on_sent(to, packet.size);
        self.in_flight = packet.in_flight.into();
        self.allowance = (self.allowance - packet.size.into()).max(Octets::ZERO);
        self.active_at = now;
        if self.period_ends.is_none() {
            self.period_ends = Some(now + self.period);
        }
        true
    }

    #[inline]
    fn on_feedback(&mut self, now: Time, feedback: &Feedback<'_>, _: &mut Rng) {
        let lost = feedback.lost.iter().map(|lost| lost.sent.size).sum::<Bytes>();
        self.receivers.on_answer(feedback.receiver, feedback.acked_bytes + lost);
        self.in_flight = feedback.in_flight.into();
        self.app_limited = feedback.app_limited;
        self.active_at = now;
        self.upload.on_acked(feedback.acked_bytes);
        if self.start == Start::Grows && !feedback.app_limited {
            self.floor += feedback.acked_bytes.into();
        }
        if let (Some(rtt), Some(newest)) = (feedback.rtt.latest, feedback.acked.last()) {
            self.receivers.on_round_trip(feedback.receiver, newest.at, rtt, feedback.rtt.min);
            let packets = feedback.acked.len() as u64;
            self.delays.0 += (rtt - feedback.rtt.min).seconds() * packets as f64;
            self.delays.1 += packets;
        }
        let is_lost = self.recovery.enter(now, feedback);
        if is_lost && self.start == Start::Grows {
            self.end_start(now);
        }
        if is_lost
            && let Some(first) = feedback.lost.first()
            && let Some((receiver, rtt)) = self.receivers.last_before(first.sent.at)
        {
            // dmax_p: the round trip of the last packet that came through (section 5).
            self.fullest = Some(Fullest::RoundTrip(receiver, rtt));
        }
        if feedback.persistent_congestion {
            // RFC 9002 7.6.2; the paper has no answer to a path that delivers nothing.
            self.restart(self.minimum());
            self.recovery.reset();
        }
    }

    fn set_ack_wait(&mut self, wait: Duration) {
        self.ack_wait = wait;
    }

    fn distinguishes_receivers(&self) -> bool {
        true
    }

    /// What was on its way leaves the sum of eq. 17. Of a receiver that is gone only the queue
    /// stays known, which all share.
    fn on_abandoned(&mut self, _: Time, abandoned: &Abandoned<'_>) {
        let receiver = abandoned.receiver;
        self.receivers.on_answer(receiver, abandoned.packets.iter().map(|sent| sent.size).sum());
        self.in_flight = abandoned.in_flight.into();
        if abandoned.is_gone {
            if let Some(fullest @ Fullest::RoundTrip(whose, _)) = self.fullest
                && whose == receiver
            {
                self.fullest = self.shown(fullest).map(Fullest::Queue);
            }
            self.receivers.forget(receiver);
        }
    }

    fn on_timer(&mut self, now: Time, _: &mut Rng) {
        let Some(due) = self.period_ends.filter(|due| *due <= now) else { return };
        // A rest longer than t_c has left nothing to measure U by: RFC 5681 4.1 begins with
        // the initial window then.
        if self.in_flight == Octets::ZERO && now.since(self.active_at) >= self.rate_span {
            self.period_ends = None;
            self.restart(self.initial_window);
            return;
        }
        let skipped = now.since(due).as_nanos() / self.period.as_nanos();
        self.period_ends = Some(due + self.period * (1 + skipped));
        self.end_period(skipped);
    }

    #[inline]
    fn timer(&self) -> Option<Time> {
        self.period_ends
    }

    /// What is in flight and what is left of `u(kT)`: ACKs make no room before the period
    /// ends. An empty network always takes a packet.
    #[inline]
    fn limits(&self) -> Limits {
        Limits::window((self.in_flight + self.allowance).max(self.packet).whole())
    }

    /// `window` is w(kT), `injection` u(kT), `upload_rate` U; `queue_delay` is d(kT),
    /// `queue_reference` d_ref, `queue_limit` the queue's delay when it is full;
    /// `base_delay` is the mean of dmin_p weighted by lambda_p. `rtt_N` is the last round
    /// trip to receiver N. What is not known yet is 0.
    fn trace(&self, record: &mut dyn FnMut(&'static str, f64)) {
        record("window", self.window.0);
        record("injection", self.injection.0);
        record("upload_rate", self.upload.rate().bits_per_sec());
        record("queue_delay", self.queue_delay.unwrap_or(Seconds::ZERO).as_millis());
        record("queue_reference", self.reference().as_millis());
        record("queue_limit", self.queue_limit().as_millis());
        record("base_delay", self.base.unwrap_or(Seconds::ZERO).as_millis());
        for (receiver, name) in (0..).zip(TRACED) {
            let rtt = self.receivers.latest_rtt(PeerId(receiver));
            record(name, rtt.map_or(0.0, Duration::as_millis_f64));
        }
    }
}

#[cfg(test)]
mod tests;
