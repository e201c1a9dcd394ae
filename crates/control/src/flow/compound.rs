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

use super::Feedback;
use super::classic::{Acked, Classic, Window, WindowRule};
use super::counting::Counting;
use super::round::RoundMin;
use super::setup::{Factory, factory};
use crate::registry::{ParameterError, in_range};
use crate::time::{Duration, Time};
use crate::units::{Packets, WindowUnit};

/// Packets that gamma is at least and at most; it begins, and begins again after a timeout,
/// with the most (draft-sridharan-tcpm-ctcp-02).
const GAMMA: (Packets, Packets) = (Packets(5.0), Packets(30.0));

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
    gamma: Option<Packets>,
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

/// The window rule; windows in packets. The window that it moves is Reno's, `cwnd`.
#[derive(Clone, Debug)]
struct Compound {
    /// The delay window, which is allowed beyond Reno's.
    dwnd: Packets,
    gamma: Packets,
    rounds: RoundMin,
    /// The least round trip of the round that ends with the present feedback, if one does.
    round_min: Option<Duration>,
    /// What Reno's part had in the queue in the last round, until a loss takes it.
    reno_queued: Option<Packets>,
    config: Config,
}

/// Makes `compound`.
pub fn build(parameters: &toml::Table) -> Result<Factory, ParameterError> {
    let config: Config = crate::registry::parameters(parameters)?;
    in_range("alpha", config.alpha, 0.0..=100.0)?;
    in_range("beta", config.beta, 0.01..=0.99)?;
    in_range("k", config.k, 0.0..=1.0)?;
    in_range("zeta", config.zeta, 0.0..=100.0)?;
    in_range("lambda", config.lambda, 0.0..=1.0)?;
    if let Some(gamma) = config.gamma {
        in_range("gamma", gamma.0, 0.1..=10_000.0)?;
    }
    Ok(factory(move |setup| Classic::new(setup, config.counting, false, Compound::new(config))))
}

impl Compound {
    fn new(config: Config) -> Compound {
        let gamma = config.gamma.unwrap_or(GAMMA.1);
        Compound { dwnd: Packets::ZERO, gamma, rounds: RoundMin::default(), round_min: None, reno_queued: None, config }
    }

    /// The delay window after a round trip.
    fn judge(&mut self, cwnd: Packets, rtt: Duration, base: Duration) {
        let Config { alpha, k, zeta, .. } = self.config;
        let share = 1.0 - base.as_secs_f64() / rtt.as_secs_f64().max(f64::MIN_POSITIVE);
        self.reno_queued = Some(cwnd * share);
        // Diff = W (1 - baseRTT / RTT).
        let window = cwnd + self.dwnd;
        let queued = window * share;
        self.dwnd = match queued < self.gamma {
            true => self.dwnd + Packets(alpha * libm::pow(window.0, k) - 1.0).max(Packets::ZERO),
            false => (self.dwnd - queued * zeta).max(Packets::ZERO),
        };
    }
}

impl WindowRule for Compound {
    type Unit = Packets;

    #[inline]
    fn observe(&mut self, _: Time, feedback: &Feedback<'_>) {
        self.round_min = self.rounds.ended(feedback);
    }

    #[inline]
    fn avoid(&mut self, window: &mut Window<Packets>, acked: &Acked<'_, Packets>) {
        if let Some(rtt) = self.round_min {
            self.judge(window.size, rtt, acked.feedback.rtt.min);
        }
        // cwnd += 1 / W.
        window.size += Packets(acked.counted / (window.size + self.dwnd));
    }

    fn reduce(&mut self, window: &mut Window<Packets>, _: &Feedback<'_>) {
        let before = window.size + self.dwnd;
        if let (Some(queued), None) = (self.reno_queued.take(), self.config.gamma) {
            // gamma = (1 - lambda) gamma + lambda 3/4 Diff_reno.
            let learned = self.gamma + (queued * GAMMA_SHARE - self.gamma) * self.config.lambda;
            self.gamma = learned.clamp(GAMMA.0, GAMMA.1);
        }
        // cwnd /= 2; dwnd = max((1 - beta) W - cwnd / 2, 0).
        window.reduce_to(window.size / 2.0);
        self.dwnd = (before * (1.0 - self.config.beta) - window.size).max(Packets::ZERO);
    }

    fn on_persistent_congestion(&mut self) {
        self.dwnd = Packets::ZERO;
        self.gamma = self.config.gamma.unwrap_or(GAMMA.1);
        self.reno_queued = None;
    }

    #[inline]
    fn beyond(&self) -> Packets {
        self.dwnd
    }

    fn trace(&self, window: &Window<Packets>, record: &mut dyn FnMut(&'static str, f64)) {
        record("window", window.in_bytes(window.size + self.dwnd).0);
        record("slow_start_threshold", window.traced_threshold());
        record("delay_window", window.in_bytes(self.dwnd).0);
        record("gamma", window.in_bytes(self.gamma).0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::classic::testing::window;
    use crate::flow::setup::{Setup, made};
    use crate::flow::testing::{PACKET, PATH, Path, drive, silence, traced};
    use crate::units::Rate;

    /// Never a queue, and losses at random.
    const WIDE: Path = Path {
        rate: Rate::from_bytes_per_sec(1_000_000_000),
        rtt: Duration::from_millis(100),
        buffer: 100_000,
        loss: 0.001,
    };

    fn compound(dwnd: f64) -> Compound {
        Compound { dwnd: Packets(dwnd), ..Compound::new(Config::default()) }
    }

    const MS: fn(u64) -> Duration = Duration::from_millis;

    #[test]
    fn the_delay_window_grows_by_a_power_of_the_window_while_the_queue_is_short() {
        let mut grows = compound(41.0);
        grows.judge(Packets(40.0), MS(100), MS(100));
        // 81^(3/4) = 27.
        assert!((grows.dwnd.0 - (41.0 + 27.0 / 8.0 - 1.0)).abs() < 1e-9, "{:?}", grows.dwnd);
        let mut small = compound(0.0);
        small.judge(Packets(10.0), MS(100), MS(100));
        assert_eq!(small.dwnd, Packets::ZERO);
    }

    #[test]
    fn the_delay_window_gives_way_by_what_waits_in_the_queue() {
        let mut queued = compound(60.0);
        // 120 packets, a third of the round trip in the queue: 40 of them.
        queued.judge(Packets(60.0), MS(150), MS(100));
        assert!((queued.dwnd.0 - 20.0).abs() < 1e-9, "{:?}", queued.dwnd);
    }

    #[test]
    fn when_the_queue_grows_what_is_left_is_reno() {
        let mut compound = made(build, &Setup::new(PACKET, Time::ZERO), &toml::Table::new()).unwrap();
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
            let mut controller = entry.make(&Setup::new(PACKET, Time::ZERO), &toml::Table::new()).unwrap();
            drive(&mut *controller, WIDE, 300.0, 1).throughput()
        };
        let ratio = throughput("compound") / throughput("reno");
        assert!((1.2..2.0).contains(&ratio), "{ratio} times Reno");
    }

    #[test]
    fn a_loss_halves_the_whole_window() {
        let (mut compound, mut window) = (compound(60.0), window::<Compound>(40.0));
        compound.reduce(&mut window, &silence());
        assert_eq!((window.size, compound.dwnd), (Packets(20.0), Packets(30.0)));
    }

    #[test]
    fn gamma_is_learned_from_what_renos_part_had_in_the_queue() {
        let (mut compound, mut window) = (compound(60.0), window::<Compound>(40.0));
        compound.reno_queued = Some(Packets(8.0));
        compound.reduce(&mut window, &silence());
        assert_eq!(compound.gamma, Packets((30.0 + 6.0) / 2.0));
        compound.reduce(&mut window, &silence());
        assert_eq!(compound.gamma, Packets(18.0), "a sample serves for one loss");
        for _ in 0..10 {
            compound.reno_queued = Some(Packets::ZERO);
            compound.reduce(&mut window, &silence());
        }
        assert_eq!(compound.gamma, Packets(5.0));
    }
}
