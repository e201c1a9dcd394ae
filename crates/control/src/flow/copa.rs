//! Copa: moves the window towards a rate of one packet for each `delta` queueing delays,
//! which keeps `1 / delta` packets of each flow in the queue, and lets the queue run empty
//! every few round trips, so that the least round trip stays known. While the rate stays on
//! one side of its target, the steps double each round trip. When the queue never runs
//! empty, somebody else fills it: then `1 / delta` follows losses, as Reno's window does.
//!
//! ```text
//! d_q      = RTTstanding - RTTmin                       queueing delay
//! lambda_t = 1 / (delta d_q)                            target, packets a second (eq. 1)
//! lambda   = W / (RTTstanding + w)                      rate; w is what receivers wait until they answer
//! ACK        W += v / (delta W) if lambda <= lambda_t, else W -= v / (delta W)
//! pacing   = 2 W / (RTTstanding + w)
//! ```
//!
//! Arun, Balakrishnan, "Copa: Practical Delay-Based Congestion Control for the Internet",
//! NSDI 2018, sections 2.1 and 2.2. Departures and readings:
//!
//! - Growth counts what an ACK acknowledges, so that delayed ACKs do not slow it.
//! - `w` is 0 in the paper, whose receivers answer each packet. Where round trips are reported without what a
//!   receiver put its ACK off for, the window holds that time's packets all the same (Little's law), and without
//!   `w` the rate looked higher than it was: a peer with many receivers had a quarter less than its line.
//! - On a line whose rate is stated, `delta` is by default such that the queue holds what the line sends in
//!   [`QUEUE`], if that is more than the paper's: see there.
//! - The velocity is 1 again with the first ACK that turns the window, not with the next
//!   round trip: a whole round trip backwards at a high velocity made the window of a lone
//!   flow swing between a third and five thirds of the path's product.
//! - One ACK moves the window by no more than it acknowledges, which is slow start's pace:
//!   the paper bounds `v` by nothing.
//! - Losses of nearly a third of what was sent make the window smaller: see `HEAVY_LOSS`.
//! - Competing is off by default, since it was seen to run away (see `Config`).
//! - A rising `1 / delta` falls back to its default at once when the queue runs empty.
//! - After persistent congestion, of which the paper says nothing, the window is 2 packets.

use serde::Deserialize;

use super::recovery::{MINIMUM_WINDOW, Recovery};
use super::round::Rounds;
use super::setup::{Factory, Setup, factory};
use super::sliding::{SlidingMax, SlidingMin};
use super::{Feedback, FlowController, Limits};
use crate::filter::WindowedMin;
use crate::registry::{ParameterError, in_range};
use crate::rng::Rng;
use crate::time::{Duration, Seconds, Time};
use crate::units::{Octets, Packets, Rate};

/// The paper's `delta` (2.1).
const DELTA: f64 = 0.5;

/// The queue that CoDel takes for a good one (RFC 8289, 4.3). Round trips to many receivers hold the queues in which
/// their ACKs wait as well: some milliseconds of a home's line. Two packets of a line that serves several homes take
/// less, and Copa took those queues for its own: it left the line idle for 15 % of the time.
const QUEUE: Duration = Duration::from_millis(5);

/// Span of RTTmin (2.1).
const MIN_RTT_SPAN: Duration = Duration::from_millis(10_000);

/// RTTstanding is the least of half a smoothed round trip (2.1).
const STANDING_SHARE: u64 = 2;

/// Pacing rate over `W / RTTstanding` (2.1).
const PACING_GAIN: f64 = 2.0;

/// Round trips in one direction before the velocity doubles (2.1).
const STEADY_ROUNDS: u32 = 3;

/// Beyond the steps of any window: it changes no step, and only keeps the velocity finite
/// where the window stands at its minimum and so never turns.
const MAX_VELOCITY: f64 = (1u64 << 32) as f64;

/// The queue is nearly empty below this share of the highest delay (2.2).
const NEARLY_EMPTY: f64 = 0.1;

/// Round trips over which the highest delay is taken (2.2).
const MAX_RTT_ROUNDS: u64 = 4;

/// Round trips without a nearly empty queue before somebody else must be filling it (2.2).
const FULL_ROUNDS: u64 = 5;

/// Over `rounds` round trips, of `packets` packets or more, the share `share` must be lost before
/// the window falls, and to the share `kept` of itself. The constants
/// are those of the sender that the authors released; the paper leaves losses out.
const HEAVY_LOSS: HeavyLoss = HeavyLoss { packets: 20, rounds: 2, share: 0.3, kept: 0.7 };

struct HeavyLoss {
    packets: u64,
    rounds: u64,
    share: f64,
    kept: f64,
}

/// Packets that leave at once under the pacing rate, as for other paced windows.
const BURST_PACKETS: u64 = 1;

/// Parameters of `copa`.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Config {
    /// `1 / delta` is how many packets a flow keeps in the queue (2.1). Where it is not given, it is [`DELTA`] or, if
    /// that is less, what keeps [`QUEUE`] of a stated line.
    delta: Option<f64>,
    /// Whether to compete with those who fill the queue (2.2). Off unless it is asked for:
    /// in a short buffer Copa's flows take each other for such (docs/flow/copa.md).
    competitive: bool,
}

/// The controller.
#[derive(Clone, Debug)]
struct Copa {
    competitive: bool,
    packet: Octets,
    window: Packets,
    slow_start: bool,
    /// `1 / delta`, and what it is while the flow does not compete.
    queued: Packets,
    default_queued: Packets,
    competing: bool,
    min_rtt: WindowedMin,
    standing_rtt: SlidingMin,
    max_rtt: SlidingMax,
    /// When the queue was last nearly empty.
    emptied: Time,
    velocity: f64,
    /// Round trips since the window began to move in one direction.
    steady: u32,
    rising: bool,
    /// The window when the present round began.
    round_window: Packets,
    rounds: Rounds,
    recovery: Recovery,
    /// Packets acknowledged and lost since `counted_since`.
    counted: (u64, u64),
    counted_since: Time,
    queueing_delay: Duration,
    /// What packets wait for their ACKs after they have arrived.
    ack_wait: Duration,
    limits: Limits,
}

/// Makes `copa`.
pub fn build(parameters: &toml::Table) -> Result<Factory, ParameterError> {
    let config: Config = crate::registry::parameters(parameters)?;
    if let Some(delta) = config.delta {
        in_range("delta", delta, 0.001..=10.0)?;
    }
    Ok(factory(move |setup| Copa::new(setup, config)))
}

impl Copa {
    fn new(setup: &Setup, config: Config) -> Copa {
        let packet = Octets::from(setup.packet);
        let window = Packets::of(setup.initial_window.into(), packet);
        let of_line = setup.line.map_or(Packets(0.0), |line| Packets::of((line * QUEUE).into(), packet));
        let queued = config.delta.map_or(of_line.max(Packets(1.0 / DELTA)), |delta| Packets(1.0 / delta));
        Copa {
            competitive: config.competitive,
            packet,
            window,
            slow_start: true,
            queued,
            default_queued: queued,
            competing: false,
            min_rtt: WindowedMin::new(MIN_RTT_SPAN.as_nanos()),
            standing_rtt: SlidingMin::default(),
            max_rtt: SlidingMax::default(),
            emptied: setup.start,
            velocity: 1.0,
            steady: 0,
            rising: true,
            round_window: window,
            rounds: Rounds::default(),
            recovery: Recovery::default(),
            counted: (0, 0),
            counted_since: setup.start,
            queueing_delay: Duration::ZERO,
            ack_wait: Duration::ZERO,
            limits: Limits::window(setup.initial_window),
        }
    }

    /// Once a round trip: the velocity doubles while the window keeps its direction, from
    /// the third round trip on, and is 1 again when it turns (2.1).
    fn update_velocity(&mut self) {
        let rises = self.window > self.round_window;
        if rises == self.rising {
            self.steady += 1;
            if self.steady >= STEADY_ROUNDS {
                self.velocity = (2.0 * self.velocity).min(MAX_VELOCITY);
            }
        } else {
            self.turn(rises);
        }
        self.round_window = self.window;
    }

    fn turn(&mut self, rises: bool) {
        self.rising = rises;
        self.steady = 0;
        self.velocity = 1.0;
    }

    /// Whether somebody else fills the queue, and how hard to push then (2.2).
    fn update_mode(&mut self, now: Time, round_ended: bool, lost: bool, smoothed: Duration) {
        self.competing = self.competitive && now.since(self.emptied) > smoothed * FULL_ROUNDS;
        if !self.competing {
            self.queued = self.default_queued;
        } else if lost {
            // delta stays at or below its default
            self.queued = (self.queued / 2.0).max(self.default_queued);
        } else if round_ended {
            self.queued += Packets(1.0);
        }
    }

    /// Answers losses that no random ones are: without it, flows that take a queue that is
    /// always full for the path would send without end.
    fn answer_heavy_loss(&mut self, now: Time, feedback: &Feedback<'_>) {
        self.counted.0 += feedback.acked.len() as u64;
        self.counted.1 += feedback.lost.len() as u64;
        let packets = self.counted.0 + self.counted.1;
        let is_over = now.since(self.counted_since) > feedback.rtt.smoothed * HEAVY_LOSS.rounds;
        if is_over && packets > HEAVY_LOSS.packets {
            if self.counted.1 as f64 > HEAVY_LOSS.share * packets as f64 {
                self.window = (self.window * HEAVY_LOSS.kept).max(MINIMUM_WINDOW);
                self.slow_start = false;
                self.turn(false);
            }
            self.counted = (0, 0);
            self.counted_since = now;
        }
    }

    /// W += v / (delta W) for each packet that is acknowledged, or less.
    fn steer(&mut self, turn: Seconds, acked: Packets) {
        // lambda <= lambda_t: W / (RTTstanding + w) <= 1 / (delta d_q)
        let too_slow = self.window * self.queueing_delay.as_secs_f64() <= self.queued * turn.0;
        if self.slow_start {
            if too_slow {
                self.window += acked;
                return;
            }
            self.slow_start = false;
            self.round_window = self.window;
        }
        if too_slow != self.rising && self.velocity > 1.0 {
            self.turn(too_slow);
        }
        let step = (self.queued * self.velocity * acked.0 / self.window.0).min(acked);
        self.window += if too_slow { step } else { -step };
    }
}

impl FlowController for Copa {
    #[inline]
    fn on_feedback(&mut self, now: Time, feedback: &Feedback<'_>, _: &mut Rng) {
        let lost = self.recovery.enter(now, feedback);
        let round_ended = self.rounds.ends(feedback);
        let smoothed = feedback.rtt.smoothed;
        self.answer_heavy_loss(now, feedback);
        if let Some(sample) = feedback.rtt.latest {
            let rtt = sample.as_nanos();
            // Of receivers that come and go the base may rise: no queue was ever shorter than none.
            let least = self.min_rtt.update(now.as_nanos(), rtt).max(feedback.rtt.min.as_nanos());
            let most = self.max_rtt.update(now, rtt, smoothed * MAX_RTT_ROUNDS);
            let standing = Duration::from_nanos(self.standing_rtt.update(now, rtt, smoothed / STANDING_SHARE));
            self.queueing_delay = standing - Duration::from_nanos(least);
            // What a window is sent in: also what waits for its ACK counts in the window.
            let turn = (standing + self.ack_wait).seconds();
            // d_q < 0.1 (RTTmax - RTTmin), or no queue at all: both sides are 0 then
            let threshold = NEARLY_EMPTY * (most - least.min(most)) as f64;
            if self.queueing_delay.as_nanos() as f64 <= threshold {
                self.emptied = now;
            }
            self.update_mode(now, round_ended, lost, smoothed);
            if !feedback.app_limited {
                if round_ended && !self.slow_start {
                    self.update_velocity();
                }
                self.steer(turn, Packets::of(feedback.acked_bytes.into(), self.packet));
            }
            self.window = self.window.max(MINIMUM_WINDOW);
            let window = self.window.in_bytes(self.packet);
            let rate = window * PACING_GAIN / turn.max(Seconds::NANOSECOND);
            self.limits.rate = Some(rate.whole().max(Rate::LOWEST));
        } else if lost {
            self.update_mode(now, false, true, smoothed);
        }
        if feedback.persistent_congestion {
            self.window = MINIMUM_WINDOW;
            self.round_window = self.window;
            self.turn(true);
            self.recovery.reset();
        }
        self.limits.window = self.window.in_bytes(self.packet).whole();
        self.limits.burst = self.packet.whole() * BURST_PACKETS;
    }

    fn set_ack_wait(&mut self, wait: Duration) {
        self.ack_wait = wait;
    }

    #[inline]
    fn limits(&self) -> Limits {
        self.limits
    }

    fn trace(&self, record: &mut dyn FnMut(&'static str, f64)) {
        record("window", self.window.in_bytes(self.packet).0);
        record("rate", self.limits.rate.map_or(0.0, |rate| rate.bits_per_sec() as f64));
        record("queueing_delay", self.queueing_delay.as_millis_f64());
        record("delta", 1.0 / self.queued.0);
        record("velocity", self.velocity);
        record("competing", f64::from(u8::from(self.competing)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::RoundTrip;
    use crate::flow::sent::Sent;
    use crate::flow::setup::made;
    use crate::flow::testing::{
        Drive, PACKET, PATH, Path, acknowledge, drive, drive_behind, feedback, silence, traced,
    };

    fn copa(parameters: &str) -> Box<dyn FlowController> {
        made(build, &Setup::new(PACKET, Time::ZERO), &parameters.parse().unwrap()).unwrap()
    }

    /// Packets in the queue when each ACK's packet left it, from `from` seconds on.
    fn queue(run: &Drive, from: f64) -> Vec<f64> {
        let late = run.at.iter().zip(&run.rtt_ms).filter(|(at, rtt)| at.as_secs_f64() > from && rtt.is_finite());
        late.map(|(_, rtt)| rtt - 101.0).collect()
    }

    fn mean(values: &[f64]) -> f64 {
        values.iter().sum::<f64>() / values.len() as f64
    }

    #[test]
    fn the_queue_holds_about_one_over_delta_packets() {
        // The paper's analysis: between none and 2.5 / delta packets, 1.25 / delta on average.
        for (delta, expected) in [(0.5, 2.0), (0.2, 5.0), (0.1, 10.0)] {
            let run = drive(&mut *copa(&format!("delta = {delta}")), PATH, 60.0, 1);
            let mean = mean(&queue(&run, 20.0));
            assert!((1.0..1.5).contains(&(mean / expected)), "delta {delta}: {mean} packets queued on average");
            assert!(run.throughput() > 950.0, "delta {delta}: {} packets a second", run.throughput());
        }
    }

    #[test]
    fn on_a_stated_line_the_queue_holds_five_milliseconds_of_it_unless_delta_is_given() {
        let delta = |bytes_per_sec, parameters: &str| {
            let setup = Setup::new(PACKET, Time::ZERO).on_line_of(Rate::from_bytes_per_sec(bytes_per_sec));
            traced(&*made(build, &setup, &parameters.parse().unwrap()).unwrap(), "delta")
        };
        // A packet takes 1 ms, 0.5 ms, and 10 ms.
        assert_eq!([1_000_000, 2_000_000, 100_000].map(|rate| delta(rate, "")), [0.2, 0.1, 0.5]);
        assert_eq!(delta(1_000_000, "delta = 0.5"), 0.5);
        let setup = Setup::new(PACKET, Time::ZERO).on_line_of(PATH.rate);
        let run = drive(&mut *made(build, &setup, &toml::Table::new()).unwrap(), PATH, 60.0, 1);
        let mean = mean(&queue(&run, 20.0));
        assert!((5.0..7.5).contains(&mean), "{mean} packets queued on average");
    }

    #[test]
    fn what_waits_for_its_ack_counts_in_the_window_and_not_in_the_rate() {
        let window_and_rate = |wait: Duration| {
            let (mut copa, mut rng) = (copa(""), Rng::stream(1, "controller"));
            copa.set_ack_wait(wait);
            // Slow start to 100 packets over an empty path of 100 ms.
            for millis in 0..90 {
                acknowledge(&mut *copa, Time::ZERO + Duration::from_millis(200 + millis), PATH.rtt, false, &mut rng);
            }
            let before = copa.limits();
            // 2.2 packets are queued: 909 packets a second are the target, 978 the window of 100 over 102.2 ms.
            for millis in 400..410 {
                let now = Time::ZERO + Duration::from_millis(millis);
                let acked = [Sent { at: now, size: PACKET, ..Sent::default() }];
                let queued = feedback(&acked, PATH.rtt + Duration::from_nanos(2_200_000));
                let rtt = RoundTrip { min: PATH.rtt, ..queued.rtt };
                copa.on_feedback(now, &Feedback { rtt, ..queued }, &mut rng);
            }
            let rate = before.rate.unwrap().bytes_per_sec() / PACKET.get() as f64;
            (before.window.get() / PACKET.get(), copa.limits().window > before.window, rate.round())
        };
        assert_eq!(window_and_rate(Duration::ZERO), (100, false, 2000.0));
        assert_eq!(window_and_rate(Duration::from_millis(25)), (100, true, 1600.0));
    }

    #[test]
    fn the_window_swings_around_the_product_and_empties_the_queue_each_five_round_trips() {
        let run = drive(&mut *copa("delta = 0.1"), PATH, 60.0, 1);
        let late: Vec<f64> = run
            .at
            .iter()
            .zip(&run.window)
            .filter(|(at, _)| at.as_secs_f64() > 20.0)
            .map(|(_, window)| *window)
            .collect();
        let (least, most) = (late.iter().copied().fold(f64::MAX, f64::min), late.iter().copied().fold(0.0, f64::max));
        // The paper's analysis: the queue swings between none and 2.5 / delta packets.
        assert!((95.0..=102.0).contains(&least) && (110.0..=130.0).contains(&most), "from {least} to {most}");
        let empty: Vec<f64> = run
            .at
            .iter()
            .zip(&run.rtt_ms)
            .filter(|(at, rtt)| at.as_secs_f64() > 20.0 && **rtt < 101.0 + 2.5)
            .map(|(at, _)| at.as_secs_f64())
            .collect();
        let pause = empty.windows(2).map(|pair| pair[1] - pair[0]).fold(0.0, f64::max);
        assert!(pause < 5.0 * 0.13, "the queue was not nearly empty for {pause} s");
    }

    #[test]
    fn slow_start_doubles_the_window_until_the_rate_exceeds_its_target() {
        let run = drive(&mut *copa(""), PATH, 0.39, 1);
        let last = run.window.last().unwrap();
        assert!((79.0..=82.0).contains(last), "{last}");
    }

    #[test]
    fn packets_leave_at_twice_the_window_a_standing_round_trip() {
        let run = drive(&mut *copa(""), PATH, 30.0, 1);
        let (window, rate) = (run.window.last().unwrap(), run.rate.last().unwrap());
        assert!((rate / (2.0 * window / 0.102) - 1.0).abs() < 0.05, "{rate} packets a second for {window}");
    }

    #[test]
    fn a_queue_that_never_empties_makes_it_compete_if_it_may() {
        // Others queue 40 ms from 10 s on; after RTTmin's 10 s that would look like the path.
        let others = |now: Time| Duration::from_millis(if now.as_secs_f64() > 10.0 { 40 } else { 0 });
        let window = |parameters: &str| {
            let run = drive_behind(&mut *copa(parameters), PATH, others, 18.0, 1);
            *run.window.last().unwrap()
        };
        let (yields, competes) = (window("competitive = false"), window("competitive = true"));
        assert!(competes > 1.3 * yields, "{competes} against {yields}");
    }

    #[test]
    fn an_empty_queue_is_nearly_empty_even_where_round_trips_never_change() {
        let mut copa = copa("competitive = true");
        let mut rng = Rng::stream(1, "controller");
        for ms in 0..5000 {
            let now = Time::ZERO + Duration::from_millis(1000 + ms);
            acknowledge(&mut *copa, now, Duration::from_millis(100), true, &mut rng);
        }
        assert_eq!((traced(&*copa, "competing"), traced(&*copa, "delta")), (0.0, 0.5));
    }

    #[test]
    fn a_window_that_can_fall_no_further_leaves_the_velocity_finite() {
        let mut copa = Copa {
            window: Packets(2.0),
            rising: false,
            ..Copa::new(&Setup::new(PACKET, Time::ZERO), Config::default())
        };
        (0..2000).for_each(|_| copa.update_velocity());
        assert!(copa.velocity > 1e6 && copa.velocity < 1e12, "{}", copa.velocity);
    }

    #[test]
    fn persistent_congestion_begins_the_count_of_steady_round_trips_anew() {
        let setup = Setup::new(PACKET, Time::ZERO);
        let mut copa = Copa { velocity: 8.0, steady: 5, window: Packets(60.0), ..Copa::new(&setup, Config::default()) };
        let lost = Feedback { persistent_congestion: true, ..silence() };
        copa.on_feedback(Time::from_secs_f64(1.0), &lost, &mut Rng::stream(1, "controller"));
        assert_eq!((copa.window, copa.velocity, copa.steady, copa.round_window), (Packets(2.0), 1.0, 0, Packets(2.0)));
    }

    #[test]
    fn a_window_that_turns_moves_slowly_again() {
        let mut copa = Copa {
            velocity: 8.0,
            steady: 5,
            rising: true,
            round_window: Packets(50.0),
            window: Packets(40.0),
            ..Copa::new(&Setup::new(PACKET, Time::ZERO), Config::default())
        };
        copa.update_velocity();
        assert_eq!((copa.velocity, copa.steady, copa.rising), (1.0, 0, false));
        for expected in [1.0, 1.0, 2.0, 4.0] {
            copa.window -= Packets(1.0);
            copa.update_velocity();
            assert!((copa.velocity - expected).abs() < 1e-9, "{} instead of {expected}", copa.velocity);
        }
    }

    #[test]
    fn losses_of_a_third_make_the_window_smaller_and_those_of_a_fifth_do_not() {
        let run = |loss: f64| drive(&mut *copa(""), Path { loss, ..PATH }, 30.0, 1);
        assert!(run(0.2).throughput() > 700.0, "{} packets a second", run(0.2).throughput());
        assert!(run(0.4).throughput() < 300.0, "{} packets a second", run(0.4).throughput());
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig::with_cases(24))]

        #[test]
        fn any_path_leaves_a_window_and_a_rate(
            bytes_per_s in 2_000u64..5_000_000, rtt_ms in 1u64..300, buffer in 0usize..200, loss in 0.0f64..0.4, seed: u64,
        ) {
            let rate = Rate::from_bytes_per_sec(bytes_per_s);
            let path = Path { rate, rtt: Duration::from_millis(rtt_ms), buffer, loss };
            for parameters in ["", "competitive = true"] {
                let run = drive(&mut *copa(parameters), path, 5.0, seed);
                proptest::prop_assert!(run.window.iter().all(|window| *window >= 2.0));
                proptest::prop_assert!(run.rate.iter().all(|rate| *rate > 0.0));
            }
        }
    }
}
