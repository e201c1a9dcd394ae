//! HyStart++ (RFC 9406): ends slow start when round trips grow, before the queue overflows.
//!
//! A round whose least round trip is an eighth above the last round's (4 to 16 ms) begins
//! a conservative slow start, in which the window grows a quarter as fast. If round trips
//! fall again there, that was noise and slow start goes on; after five rounds it ends.
//!
//! ```text
//! threshold = clamp(last_round_min / 8, 4 ms, 16 ms)                      4.2
//! round_min >= last_round_min + threshold: conservative slow start        4.2
//! conservative: W += min(acked, 8 packets) / 4                            4.2
//! conservative and round_min < its first round_min: slow start again      4.2
//! ```

use super::Feedback;
use super::round::Rounds;
use crate::time::Duration;
use crate::units::WindowUnit;

/// MIN_RTT_THRESH, RFC 9406 4.3.
const LEAST_THRESHOLD: Duration = Duration::from_millis(4);

/// MAX_RTT_THRESH, RFC 9406 4.3.
const LARGEST_THRESHOLD: Duration = Duration::from_millis(16);

/// MIN_RTT_DIVISOR, RFC 9406 4.3.
const THRESHOLD_DIVISOR: u64 = 8;

/// N_RTT_SAMPLE, RFC 9406 4.3.
const SAMPLES: u32 = 8;

/// CSS_GROWTH_DIVISOR, RFC 9406 4.3.
const CONSERVATIVE_DIVISOR: f64 = 4.0;

/// CSS_ROUNDS, RFC 9406 4.3.
const CONSERVATIVE_ROUNDS: u32 = 5;

/// L, RFC 9406 4.3, for a sender that does not pace: packets that one ACK counts at most.
const MOST_COUNTED: f64 = 8.0;

/// No sample.
const NONE: Duration = Duration::from_nanos(u64::MAX);

/// Where slow start is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Doubles the window each round trip.
    Standard,
    /// Looks whether round trips stay above `baseline`.
    Conservative { baseline: Duration, rounds: u32 },
    /// Congestion avoidance follows.
    Over,
}

/// A slow start that watches round trips; once, at a flow's beginning (RFC 9406, 4.3).
#[derive(Clone, Copy, Debug)]
pub struct HyStart {
    phase: Phase,
    rounds: Rounds,
    last_round_min: Duration,
    round_min: Duration,
    samples: u32,
}

impl Default for HyStart {
    fn default() -> HyStart {
        HyStart { phase: Phase::Standard, rounds: Rounds::default(), last_round_min: NONE, round_min: NONE, samples: 0 }
    }
}

impl HyStart {
    /// By how much the window grows when `acked` is acknowledged; a full packet is `packet`.
    pub fn growth<U: WindowUnit>(&mut self, acked: U, packet: U, feedback: &Feedback<'_>) -> U {
        self.observe(feedback);
        let counted = acked.min(packet * MOST_COUNTED);
        match self.phase {
            Phase::Standard => counted,
            Phase::Conservative { .. } => counted / CONSERVATIVE_DIVISOR,
            Phase::Over => U::ZERO,
        }
    }

    /// Whether slow start is over.
    pub fn is_over(&self) -> bool {
        self.phase == Phase::Over
    }

    fn observe(&mut self, feedback: &Feedback<'_>) {
        if self.rounds.ends(feedback) {
            self.last_round_min = self.round_min;
            self.round_min = NONE;
            self.samples = 0;
            if let Phase::Conservative { rounds, .. } = &mut self.phase {
                *rounds += 1;
                if *rounds >= CONSERVATIVE_ROUNDS {
                    self.phase = Phase::Over;
                }
            }
        }
        let Some(rtt) = feedback.rtt.latest else { return };
        self.round_min = self.round_min.min(rtt);
        self.samples += 1;
        if self.samples < SAMPLES {
            return;
        }
        match self.phase {
            Phase::Standard if self.last_round_min != NONE => {
                let threshold = (self.last_round_min / THRESHOLD_DIVISOR).clamp(LEAST_THRESHOLD, LARGEST_THRESHOLD);
                if self.round_min >= self.last_round_min + threshold {
                    self.phase = Phase::Conservative { baseline: self.round_min, rounds: 0 };
                }
            }
            Phase::Conservative { baseline, .. } if self.round_min < baseline => self.phase = Phase::Standard,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::Sent;
    use crate::flow::registry::{Setup, find};
    use crate::flow::testing::{Drive, PACKET, Path, drive, feedback, traced};
    use crate::time::Time;
    use crate::units::{Bytes, Packets, Rate};

    /// Tells of a round of ten packets, each with this round trip; what ten packets add.
    fn round(hystart: &mut HyStart, number: u64, rtt_ms: f64) -> f64 {
        let mut grown = 0.0;
        for i in 0..10 {
            let delivered = Bytes::new(10 * number * PACKET.get());
            let acked = [Sent { size: PACKET, delivered, ..Sent::default() }];
            let mut ack = feedback(&acked, Duration::from_secs_f64(rtt_ms / 1e3));
            ack.delivered = delivered + PACKET * (i + 1);
            if i == 0 {
                // The next round begins with packets that leave now.
                ack.delivered = Bytes::new(10 * (number + 1) * PACKET.get());
            }
            grown += hystart.growth(Packets(1.0), Packets(1.0), &ack).0;
        }
        grown
    }

    #[test]
    fn round_trips_an_eighth_longer_slow_the_growth_to_a_quarter_and_five_rounds_end_it() {
        let mut hystart = HyStart::default();
        assert_eq!(round(&mut hystart, 0, 80.0), 10.0);
        assert_eq!(round(&mut hystart, 1, 89.0), 10.0, "an eighth of 80 ms is 10 ms");
        // Seven samples are too few to tell; the eighth decides.
        assert_eq!(round(&mut hystart, 2, 101.0), 7.0 + 3.0 / 4.0);
        for number in 3..7 {
            assert_eq!(round(&mut hystart, number, 101.0), 10.0 / 4.0);
        }
        assert!(!hystart.is_over());
        assert_eq!(round(&mut hystart, 7, 101.0), 0.0);
        assert!(hystart.is_over());
    }

    #[test]
    fn round_trips_that_fall_again_were_noise_and_slow_start_goes_on() {
        let mut hystart = HyStart::default();
        round(&mut hystart, 0, 80.0);
        round(&mut hystart, 1, 95.0);
        assert_eq!(round(&mut hystart, 2, 80.0), 7.0 / 4.0 + 3.0);
        assert_eq!(round(&mut hystart, 3, 80.0), 10.0);
    }

    #[test]
    fn the_threshold_lies_between_4_and_16_ms() {
        let slowed = |first: f64, second: f64| {
            let mut hystart = HyStart::default();
            round(&mut hystart, 0, first);
            round(&mut hystart, 1, second) < 10.0
        };
        assert!(!slowed(8.0, 11.9) && slowed(8.0, 12.0));
        assert!(!slowed(800.0, 815.9) && slowed(800.0, 816.0));
    }

    /// 1000 packets a round trip fill it.
    const PATH: Path =
        Path { rate: Rate::from_bytes_per_sec(10_000_000), rtt: Duration::from_millis(100), buffer: 0, loss: 0.0 };

    /// Round trips are seen to grow at the start of the round after that which filled the
    /// path, when 2560 packets are in flight; a quarter more in each of five rounds makes 7800.
    const DEEP: usize = 8000;

    fn first_seconds(name: &str, parameters: &str, buffer: usize) -> (Drive, f64) {
        let setup = Setup::new(PACKET, Time::ZERO);
        let mut controller = find(name).unwrap().make(&setup, &parameters.parse().unwrap()).unwrap();
        let run = drive(&mut *controller, Path { buffer, ..PATH }, 6.0, 1);
        (run, traced(&*controller, "slow_start_threshold") / PACKET.get() as f64)
    }

    #[test]
    fn slow_start_leaves_before_a_deep_queue_overflows_and_not_before_the_path_is_full() {
        for name in ["reno", "cubic"] {
            let (plain, _) = first_seconds(name, "", DEEP);
            assert!(plain.lost > 1000, "{name} lost {}", plain.lost);
            let (watching, threshold) = first_seconds(name, "hystart = true", DEEP);
            assert_eq!(watching.lost, 0, "{name}");
            assert!((1000.0..9000.0).contains(&threshold), "{name} left at {threshold} packets");
        }
    }

    #[test]
    fn where_the_queue_is_too_short_for_five_slow_rounds_fewer_packets_are_lost() {
        let ((plain, _), (watching, _)) =
            (first_seconds("reno", "", 1000), first_seconds("reno", "hystart = true", 1000));
        assert!(watching.lost > 0 && watching.lost < plain.lost, "{} and {}", watching.lost, plain.lost);
    }
}
