//! Cubic: after a loss the window follows a cubic function of the time since, which rises
//! fast at first, is flat around the window at which the loss came, and then looks for more.
//! Where that would be slower than Reno it follows an estimate of Reno's window. Growth
//! hardly depends on the round trip, so that flows with different ones share evenly.
//!
//! ```text
//! W_cubic(t) = C (t - K)^3 + W_max                                       RFC 9438 fig. 1
//! K          = cbrt((W_max - W_epoch) / C)                               RFC 9438 fig. 2
//! target     = clamp(W_cubic(t + RTT), W, 1.5 W)                         RFC 9438 4.2
//! W         += (target - W) / W          for each packet acknowledged    RFC 9438 4.4, 4.5
//! W_est     += alpha / W                 for each packet acknowledged    RFC 9438 fig. 4
//! W          = W_est                     where W_cubic(t) < W_est        RFC 9438 4.3
//! loss         W_max = W, or W (1 + beta) / 2 below the last W_max       RFC 9438 4.7
//!              W = ssthresh = max(beta W, 2 packets)                     RFC 9438 4.6
//! ```
//!
//! Where we depart from the letter: 4.4 and 4.5 speak of each new ACK, and we count packets
//! acknowledged, as 4.3 does, so that delayed ACKs do not slow the curve. 4.6 reduces what
//! is in flight, or the window if it cannot grow unused: we do the latter. In the
//! Reno-friendly region the window never falls to `W_est`. After a timeout 4.8 takes the
//! window back to one packet; ours is two (RFC 9002, 7.2). Spurious losses (4.9) are not
//! undone, for feedback does not tell of them.

mod linux;
#[cfg(test)]
mod ns3;

use serde::Deserialize;

use super::Feedback;
use super::classic::{Acked, Classic, Window, WindowRule};
use super::counting::Counting;
use super::reading::ClassicReading;
use super::setup::{Factory, factory};
use crate::registry::{ParameterError, in_range};
use crate::time::{Seconds, Time};
use crate::units::{Packets, WindowUnit};

/// Share of the window that is left after a loss, RFC 9438 4.6.
const BETA: f64 = 0.7;

/// The window grows by no more than this in a round trip, RFC 9438 4.2.
const MOST_GROWTH: f64 = 1.5;

/// Whose estimate of Reno's window is a lower bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum RenoFriendly {
    /// Grows by a packet each round trip from the window before the reduction on.
    #[default]
    #[serde(rename = "rfc-9438")]
    Rfc9438,
    /// Grows by alpha all the time (RFC 8312, 4.2), as Linux and ns-3 do.
    #[serde(rename = "rfc-8312")]
    Rfc8312,
    /// No bound.
    Off,
}

/// Parameters of `cubic`.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Config {
    /// Share of the window that is left after a loss; none is RFC 9438's, or Linux's.
    beta: Option<f64>,
    /// How steep the curve is, packets / s^3.
    c: f64,
    counting: Counting,
    fast_convergence: bool,
    reno_friendly: RenoFriendly,
    hystart: bool,
    /// Rules that are Linux's.
    linux: linux::Rules,
    /// What becomes of whole growth that is not a packet yet.
    remainder: linux::Remainder,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            beta: None,
            // RFC 9438 5.1.
            c: 0.4,
            counting: Counting::Bytes,
            fast_convergence: true,
            reno_friendly: RenoFriendly::Rfc9438,
            hystart: false,
            linux: linux::Rules::default(),
            remainder: linux::Remainder::default(),
        }
    }
}

impl Config {
    #[inline]
    fn beta(&self) -> f64 {
        self.beta.unwrap_or(BETA)
    }
}

/// The reading of ns-3 over selective ACKs, whose windows are whole packets (docs/flow/cubic.md); without them RFC 8312's
/// Reno-friendly region alone, since no other program's figures are known there. Both have that region, which `w-est` is
/// too: who sets either has chosen.
pub const CLASSIC: ClassicReading = ClassicReading {
    with_sack: NS_3,
    without_sack: "reno_friendly = \"rfc-8312\"",
    chosen_by: &["reno_friendly", "linux"],
};

const NS_3: &str = "counting = \"cumulative\"
linux = [\"whole-reduction\", \"whole-growth\", \"w-est\", \"least-rtt\"]
remainder = \"kept\"";

/// A congestion avoidance stage.
#[derive(Clone, Copy, Debug)]
struct Epoch {
    start: Time,
    k: Seconds,
    w_max: Packets,
    w_est: Packets,
    /// By how much `w_est` grows for a window acknowledged.
    alpha: Packets,
}

/// The window rule; windows in packets, as in the RFC.
#[derive(Clone, Debug)]
struct Cubic {
    w_max: Packets,
    /// The window before the last reduction.
    w_prior: Packets,
    /// None until the first packet is counted in congestion avoidance.
    epoch: Option<Epoch>,
    /// Since when the application has left the window unused: that time does not count.
    unused_since: Option<Time>,
    linux: linux::State,
    config: Config,
}

/// Makes `cubic`.
pub fn build(parameters: &toml::Table) -> Result<Factory, ParameterError> {
    let config: Config = crate::registry::parameters(parameters)?;
    in_range("beta", config.beta(), 0.1..=0.99)?;
    in_range("c", config.c, 0.001..=1000.0)?;
    if config.remainder == linux::Remainder::Kept && !config.linux.whole_growth {
        let what =
            "remainder = \"kept\" keeps what whole growth has counted; expected linux = [\"whole-growth\"] beside it";
        return Err(ParameterError(what.to_owned()));
    }
    Ok(factory(move |setup| Classic::new(setup, config.counting, config.hystart, Cubic::new(config))))
}

impl Cubic {
    fn new(config: Config) -> Cubic {
        let linux = linux::State::default();
        Cubic { w_max: Packets::ZERO, w_prior: Packets::ZERO, epoch: None, unused_since: None, linux, config }
    }

    /// Begins a congestion avoidance stage with `window`.
    fn epoch(&self, now: Time, window: Packets) -> Epoch {
        // K = cbrt((W_max - W_epoch) / C). Without a reduction before, after HyStart++ or a
        // timeout, K is 0 and W_max the window (4.8, 4.10).
        let rise = self.w_max - window;
        let (k, w_max) = if rise > Packets::ZERO {
            (Seconds(libm::cbrt(rise.0 / self.config.c)), self.w_max)
        } else {
            (Seconds::ZERO, window)
        };
        // alpha = 3 (1 - beta) / (1 + beta): as much as Reno on average (4.3).
        let beta = self.config.beta();
        let alpha = Packets(3.0 * (1.0 - beta) / (1.0 + beta));
        Epoch { start: now, k, w_max, w_est: window, alpha }
    }

    /// Moves the curve by the time in which the application did not use the window.
    #[inline]
    fn note_use(&mut self, now: Time, app_limited: bool) {
        if app_limited {
            self.unused_since.get_or_insert(now);
        } else if let Some(since) = self.unused_since.take()
            && let Some(epoch) = &mut self.epoch
        {
            epoch.start += now.since(since.max(epoch.start));
        }
    }
}

impl WindowRule for Cubic {
    type Unit = Packets;

    #[inline]
    fn observe(&mut self, now: Time, feedback: &Feedback<'_>) {
        self.note_use(now, feedback.app_limited);
    }

    #[inline]
    fn avoid(&mut self, window: &mut Window<Packets>, acked: &Acked<'_, Packets>) {
        if self.config.linux.change_growth() {
            return self.avoid_as_linux(window, acked);
        }
        let (now, rtt) = (acked.now, acked.feedback.rtt.smoothed);
        let mut epoch = match self.epoch {
            Some(epoch) => epoch,
            None => self.epoch(now, window.size),
        };
        let t = now.since(epoch.start).seconds() - epoch.k;
        let curve = |Seconds(t)| Packets(self.config.c * t * t * t) + epoch.w_max;
        let share = acked.counted / window.size;
        // W_est += alpha / W, and alpha = 1 from the window before the reduction on (4.3).
        epoch.w_est += epoch.alpha * share;
        if epoch.w_est >= self.w_prior && self.config.reno_friendly == RenoFriendly::Rfc9438 {
            epoch.alpha = Packets(1.0);
        }
        if self.config.reno_friendly != RenoFriendly::Off && curve(t) < epoch.w_est {
            window.size = window.size.max(epoch.w_est);
        } else {
            // target = clamp(W_cubic(t + RTT), W, 1.5 W) (4.2); W += (target - W) / W (4.4).
            let target = curve(t + rtt.seconds()).clamp(window.size, window.size * MOST_GROWTH);
            window.size += (target - window.size) * share;
        }
        self.epoch = Some(epoch);
    }

    fn reduce(&mut self, window: &mut Window<Packets>, _: &Feedback<'_>) {
        // W_max = W (1 + beta) / 2 where W < W_max: the flow gives room to a new one (4.7).
        let beta = self.config.beta();
        self.w_max = match self.config.fast_convergence && window.size < self.w_max {
            true => window.size * (1.0 + beta) / 2.0,
            false => window.size,
        };
        self.w_prior = window.size;
        // ssthresh = beta W, at least two packets (4.6).
        let left = match self.config.linux.reduced(window.size, self.w_max, self.config.beta) {
            Some((left, w_max)) => {
                self.w_max = w_max;
                left
            }
            None => window.size * beta,
        };
        window.reduce_to(left);
        self.epoch = None;
        self.linux.end_epoch(self.config.remainder);
    }

    fn on_persistent_congestion(&mut self) {
        // Slow start up to the reduced window, then the curve from there (4.8).
        self.w_max = Packets::ZERO;
        self.epoch = None;
    }

    fn trace(&self, window: &Window<Packets>, record: &mut dyn FnMut(&'static str, f64)) {
        window.trace(record);
        record("w_max", window.in_bytes(self.w_max).0);
        record("w_est", self.epoch.map_or(0.0, |epoch| window.in_bytes(epoch.w_est).0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::FlowController;
    use crate::flow::classic::testing::{avoiding, window};
    use crate::flow::setup::{Setup, made};
    use crate::flow::testing::{Drive, PACKET, Path, acknowledge, drive, silence};
    use crate::rng::Rng;
    use crate::time::Duration;
    use crate::units::Rate;

    /// 1000 packets a round trip fill it; the curve takes seconds, Reno's way back minutes.
    const WIDE: Path =
        Path { rate: Rate::from_bytes_per_sec(10_000_000), rtt: Duration::from_millis(100), buffer: 100, loss: 0.0 };

    /// Round trips so short that Reno is faster than the curve.
    const SHORT: Path = Path {
        rate: Rate::from_bytes_per_sec(100_000_000),
        rtt: Duration::from_millis(10),
        buffer: 10_000,
        loss: 0.01,
    };

    fn run(parameters: &str, path: Path, seconds: f64) -> Drive {
        let setup = Setup::new(PACKET, Time::ZERO);
        drive(&mut *made(build, &setup, &parameters.parse().unwrap()).unwrap(), path, seconds, 1)
    }

    /// A controller whose window of 100 packets has just been reduced.
    fn reduced(counting: Counting) -> Classic<Cubic> {
        let mut controller = avoiding(100.0, counting, Cubic::new(Config::default()));
        let (cubic, window) = controller.parts();
        cubic.reduce(window, &silence());
        controller
    }

    #[test]
    fn between_losses_the_window_follows_the_curve_of_the_rfc() {
        let run = run("fast_convergence = false", WIDE, 60.0);
        let falls: Vec<usize> = (1..run.at.len())
            .filter(|&i| run.window[i] < 0.75 * run.window[i - 1] && run.at[i] > Time::from_secs_f64(5.0))
            .collect();
        assert!(falls.len() >= 3, "{} falls", falls.len());
        for pair in falls.windows(2) {
            let (w_max, after) = (run.window[pair[0] - 1], run.window[pair[0]]);
            assert!((after / w_max - 0.7).abs() < 0.002, "{w_max} fell to {after}");
            let start = (pair[0]..pair[1]).find(|&i| run.window[i] > after).unwrap();
            let k = libm::cbrt((w_max - after) / 0.4);
            for i in start..pair[1] {
                let t = run.at[i].since(run.at[start]).as_secs_f64();
                let curve = 0.4 * (t - k) * (t - k) * (t - k) + w_max;
                assert!((run.window[i] / curve - 1.0).abs() < 0.01, "{} after {t} s, the curve {curve}", run.window[i]);
            }
        }
    }

    #[test]
    fn where_round_trips_are_short_throughput_is_renos() {
        let setup = Setup::new(PACKET, Time::ZERO);
        let mut reno = made(super::super::reno::build, &setup, &toml::Table::new()).unwrap();
        let reno = drive(&mut *reno, SHORT, 200.0, 1).throughput();
        let by_8312 = run("reno_friendly = \"rfc-8312\"", SHORT, 200.0).throughput();
        assert!((by_8312 / reno - 1.0).abs() < 0.05, "RFC 8312: {by_8312} against Reno's {reno}");
        // RFC 9438 grows by a whole packet where RFC 8312 goes on with alpha, so it is faster.
        let by_9438 = run("", SHORT, 200.0).throughput();
        assert!((1.0..1.2).contains(&(by_9438 / reno)), "RFC 9438: {by_9438} against Reno's {reno}");
        let off = run("reno_friendly = \"off\"", SHORT, 200.0).throughput();
        assert!(off < 0.6 * reno, "the curve alone: {off} against Reno's {reno}");
    }

    #[test]
    fn a_loss_below_the_last_maximum_lowers_the_next_one() {
        let (mut cubic, mut window) = (Cubic::new(Config::default()), window::<Cubic>(100.0));
        cubic.reduce(&mut window, &silence());
        assert_eq!((cubic.w_max, window.size), (Packets(100.0), Packets(70.0)));
        window.size = Packets(80.0);
        cubic.reduce(&mut window, &silence());
        assert_eq!(cubic.w_max, Packets(80.0 * 0.85));
        assert!((window.size.0 - 56.0).abs() < 1e-9);
        window.size = Packets(90.0);
        cubic.reduce(&mut window, &silence());
        assert_eq!(cubic.w_max, Packets(90.0));
    }

    #[test]
    fn what_the_application_leaves_unused_neither_grows_the_window_nor_moves_the_curve() {
        let mut cubic = reduced(Counting::Bytes);
        let mut rng = Rng::stream(1, "controller");
        let mut on_ack = |cubic: &mut Classic<Cubic>, at_ms: u64, app_limited: bool| {
            let now = Time::ZERO + Duration::from_millis(at_ms);
            acknowledge(cubic, now, Duration::from_millis(100), app_limited, &mut rng);
            cubic.size()
        };
        let before = on_ack(&mut cubic, 1000, false);
        assert_eq!(on_ack(&mut cubic, 1001, true), before);
        assert_eq!(on_ack(&mut cubic, 9000, true), before);
        // 8 s later the curve stands where it stood: an ACK adds what it would have added.
        let added = on_ack(&mut cubic, 9001, false) - before;
        let mut other = reduced(Counting::Bytes);
        let first = on_ack(&mut other, 1000, false);
        let expected = on_ack(&mut other, 1001, false) - first;
        assert!((added - expected).abs() < 1e-3, "{added} against {expected}");
    }

    #[test]
    fn counting_acks_where_each_second_packet_is_answered_halves_the_growth() {
        let grown = |counting| {
            let mut cubic = reduced(counting);
            let (before, now) = (cubic.size(), Time::from_secs_f64(1.0));
            let sent = [crate::flow::Sent { at: now, size: PACKET, ..Default::default() }; 2];
            let feedback = crate::flow::testing::feedback(&sent, Duration::from_millis(100));
            cubic.on_feedback(now, &feedback, &mut Rng::stream(1, "controller"));
            cubic.size() - before
        };
        let (bytes, acks) = (grown(Counting::Bytes), grown(Counting::Acks));
        assert!((bytes / acks - 2.0).abs() < 1e-6, "{bytes} and {acks}");
    }
}
