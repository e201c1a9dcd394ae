//! Compound: Reno's window plus a delay window. While fewer than `gamma` packets wait in
//! the queue the delay window grows by a power of the whole window, which fills a wide path
//! quickly; when more wait it gives way by as many, and what is left is Reno. `gamma` itself
//! is learned from the queue that Reno's part alone would have built before losses.
//!
//! ```text
//! W    = cwnd + dwnd,   cwnd += 1 / W for each packet acknowledged        [Tan 2006]
//! Diff = W (1 - baseRTT / RTT)                                            [Tan 2006]
//! dwnd += max(alpha W^k - 1, 0)                  where Diff < gamma       [Tan 2006]
//! dwnd  = max(dwnd - zeta Diff, 0)               where Diff >= gamma      [Tan 2006]
//! loss    cwnd /= 2,  dwnd = max((1 - beta) W - cwnd / 2, 0)              [Tan 2006]
//!         gamma = (1 - lambda) gamma + lambda 3/4 Diff_reno,              [draft]
//!         Diff_reno = cwnd (1 - baseRTT / RTT), gamma between 5 and 30    [draft]
//! ```
//!
//! K. Tan, J. Song, Q. Zhang, M. Sridharan: A Compound TCP approach for high-speed and long
//! distance networks. INFOCOM 2006; draft-sridharan-tcpm-ctcp-02. The exponent that equals
//! HighSpeed TCP's response is 0.8; the paper implements 0.75, and so do we. Neither text
//! gives lambda: 1/2 is ours.

use serde::Deserialize;

use super::counting::Counting;
use super::recovery::{MINIMUM_PACKETS, Recovery};
use super::round::RoundMin;
use super::setup::Setup;
use super::slow_start::SlowStart;
use super::{Feedback, FlowController, Limits};
use crate::registry::{ParameterError, in_range};
use crate::rng::Rng;
use crate::time::{Duration, Time};
use crate::units::Bytes;

/// Packets that gamma is at least and at most; it begins, and begins again after a timeout,
/// with the most (draft-sridharan-tcpm-ctcp-02).
const GAMMA: (f64, f64) = (5.0, 30.0);

/// Share of Reno's own queue that a flow may hold (draft-sridharan-tcpm-ctcp-02).
const GAMMA_SHARE: f64 = 0.75;

/// Parameters of `compound`.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Config {
    /// Scale of the delay window's growth.
    alpha: f64,
    /// Share of the window that a loss takes.
    beta: f64,
    /// Power of the window in the delay window's growth.
    k: f64,
    /// How fast the delay window gives way to a queue.
    zeta: f64,
    /// Packets in the queue at which it does; learned if none is given.
    gamma: Option<f64>,
    /// Weight of a new sample of gamma.
    lambda: f64,
    counting: Counting,
}

impl Default for Config {
    fn default() -> Config {
        // [Tan 2006]: alpha 1/8, beta 1/2, k 3/4, zeta 1.
        Config { alpha: 0.125, beta: 0.5, k: 0.75, zeta: 1.0, gamma: None, lambda: 0.5, counting: Counting::Bytes }
    }
}

/// The controller; windows in packets.
#[derive(Debug)]
struct Compound {
    packet: f64,
    /// Reno's window.
    cwnd: f64,
    /// The delay window.
    dwnd: f64,
    gamma: f64,
    rounds: RoundMin,
    /// What Reno's part had in the queue in the last round, until a loss takes it.
    reno_queued: Option<f64>,
    slow_start: SlowStart,
    recovery: Recovery,
    config: Config,
}

/// Makes `compound`.
pub fn build(setup: &Setup, parameters: &toml::Table) -> Result<Box<dyn FlowController>, ParameterError> {
    let config: Config = crate::registry::parameters(parameters)?;
    in_range("alpha", config.alpha, 0.0..=100.0)?;
    in_range("beta", config.beta, 0.01..=0.99)?;
    in_range("k", config.k, 0.0..=1.0)?;
    in_range("zeta", config.zeta, 0.0..=100.0)?;
    in_range("lambda", config.lambda, 0.0..=1.0)?;
    if let Some(gamma) = config.gamma {
        in_range("gamma", gamma, 0.1..=10_000.0)?;
    }
    Ok(Box::new(Compound::new(setup, config)))
}

impl Compound {
    fn new(setup: &Setup, config: Config) -> Compound {
        let packet = setup.packet.get() as f64;
        Compound {
            packet,
            cwnd: setup.initial_window.get() as f64 / packet,
            dwnd: 0.0,
            gamma: config.gamma.unwrap_or(GAMMA.1),
            rounds: RoundMin::default(),
            reno_queued: None,
            slow_start: SlowStart::new(false),
            recovery: Recovery::default(),
            config,
        }
    }

    #[inline]
    fn window(&self) -> f64 {
        self.cwnd + self.dwnd
    }

    fn reduce(&mut self) {
        let before = self.window();
        if let (Some(queued), None) = (self.reno_queued.take(), self.config.gamma) {
            // gamma = (1 - lambda) gamma + lambda 3/4 Diff_reno.
            let learned = self.gamma + self.config.lambda * (GAMMA_SHARE * queued - self.gamma);
            self.gamma = learned.clamp(GAMMA.0, GAMMA.1);
        }
        // cwnd /= 2; dwnd = max((1 - beta) W - cwnd / 2, 0).
        self.cwnd = (self.cwnd / 2.0).max(MINIMUM_PACKETS);
        self.dwnd = ((1.0 - self.config.beta) * before - self.cwnd).max(0.0);
        self.slow_start.end(self.cwnd);
    }

    /// The delay window after a round trip.
    fn judge(&mut self, rtt: Duration, base: Duration) {
        let Config { alpha, k, zeta, .. } = self.config;
        let share = 1.0 - base.as_secs_f64() / rtt.as_secs_f64().max(f64::MIN_POSITIVE);
        self.reno_queued = Some(self.cwnd * share);
        // Diff = W (1 - baseRTT / RTT).
        let window = self.window();
        let queued = window * share;
        self.dwnd = match queued < self.gamma {
            true => self.dwnd + (alpha * libm::pow(window, k) - 1.0).max(0.0),
            false => (self.dwnd - zeta * queued).max(0.0),
        };
    }
}

impl FlowController for Compound {
    #[inline]
    fn on_feedback(&mut self, now: Time, feedback: &Feedback<'_>, _: &mut Rng) {
        let round_ended = self.rounds.ended(feedback);
        if self.recovery.begins(now, feedback) {
            self.reduce();
        } else {
            let packets = self.config.counting.counted(feedback, &self.recovery, self.packet) / self.packet;
            if packets > 0.0 {
                if self.slow_start.holds(self.cwnd) {
                    self.cwnd = self.slow_start.grown(self.cwnd, packets, 1.0, feedback);
                } else {
                    if let Some(rtt) = round_ended {
                        self.judge(rtt, feedback.rtt.min);
                    }
                    // cwnd += 1 / W.
                    self.cwnd += packets / self.window();
                }
            }
        }
        if feedback.persistent_congestion {
            self.cwnd = MINIMUM_PACKETS;
            self.dwnd = 0.0;
            self.gamma = self.config.gamma.unwrap_or(GAMMA.1);
            self.reno_queued = None;
            self.recovery.reset();
        }
    }

    #[inline]
    fn limits(&self) -> Limits {
        Limits::window(Bytes::new((self.window() * self.packet) as u64))
    }

    fn trace(&self, record: &mut dyn FnMut(&'static str, f64)) {
        record("window", self.window() * self.packet);
        record("slow_start_threshold", self.slow_start.traced_threshold() * self.packet);
        record("delay_window", self.dwnd * self.packet);
        record("gamma", self.gamma * self.packet);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::testing::{PACKET, PATH, Path, drive, traced};
    use crate::units::Rate;

    /// Never a queue, and losses at random.
    const WIDE: Path = Path {
        rate: Rate::from_bytes_per_sec(1_000_000_000),
        rtt: Duration::from_millis(100),
        buffer: 100_000,
        loss: 0.001,
    };

    fn compound(cwnd: f64, dwnd: f64) -> Compound {
        let mut compound = Compound::new(&Setup::new(PACKET, Time::ZERO), Config::default());
        (compound.cwnd, compound.dwnd) = (cwnd, dwnd);
        compound
    }

    const MS: fn(u64) -> Duration = Duration::from_millis;

    #[test]
    fn the_delay_window_grows_by_a_power_of_the_window_while_the_queue_is_short() {
        let mut grows = compound(40.0, 41.0);
        grows.judge(MS(100), MS(100));
        // 81^(3/4) = 27.
        assert!((grows.dwnd - (41.0 + 27.0 / 8.0 - 1.0)).abs() < 1e-9, "{}", grows.dwnd);
        let mut small = compound(10.0, 0.0);
        small.judge(MS(100), MS(100));
        assert_eq!(small.dwnd, 0.0);
    }

    #[test]
    fn the_delay_window_gives_way_by_what_waits_in_the_queue() {
        let mut queued = compound(60.0, 60.0);
        // 120 packets, a third of the round trip in the queue: 40 of them.
        queued.judge(MS(150), MS(100));
        assert!((queued.dwnd - 20.0).abs() < 1e-9, "{}", queued.dwnd);
    }

    #[test]
    fn when_the_queue_grows_what_is_left_is_reno() {
        let mut compound = build(&Setup::new(PACKET, Time::ZERO), &toml::Table::new()).unwrap();
        let run = drive(&mut *compound, PATH, 120.0, 1);
        assert_eq!(traced(&*compound, "delay_window"), 0.0);
        // A packet each round trip, that is 1 / W for an ACK.
        let late = run.window.len() / 2..run.window.len() - 1;
        let growth = late.clone().map(|i| (run.window[i + 1] - run.window[i]) * run.window[i]);
        let (sum, count) = growth.filter(|step| *step >= 0.0).fold((0.0, 0.0), |(sum, n), step| (sum + step, n + 1.0));
        assert!((sum / count - 1.0).abs() < 0.05, "{} packets a round trip", sum / count);
    }

    #[test]
    fn where_no_queue_grows_it_is_faster_than_reno() {
        let throughput = |name: &str| {
            let entry = crate::flow::registry::find(name).unwrap();
            let mut controller = (entry.build)(&Setup::new(PACKET, Time::ZERO), &toml::Table::new()).unwrap();
            drive(&mut *controller, WIDE, 300.0, 1).throughput()
        };
        let ratio = throughput("compound") / throughput("reno");
        assert!((1.2..2.0).contains(&ratio), "{ratio} times Reno");
    }

    #[test]
    fn a_loss_halves_the_whole_window() {
        let mut compound = compound(40.0, 60.0);
        compound.reduce();
        assert_eq!((compound.cwnd, compound.dwnd), (20.0, 30.0));
    }

    #[test]
    fn gamma_is_learned_from_what_renos_part_had_in_the_queue() {
        let mut compound = compound(40.0, 60.0);
        compound.reno_queued = Some(8.0);
        compound.reduce();
        assert_eq!(compound.gamma, (30.0 + 6.0) / 2.0);
        compound.reduce();
        assert_eq!(compound.gamma, 18.0, "a sample serves for one loss");
        for _ in 0..10 {
            compound.reno_queued = Some(0.0);
            compound.reduce();
        }
        assert_eq!(compound.gamma, 5.0);
    }
}
