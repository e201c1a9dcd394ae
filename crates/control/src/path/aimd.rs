//! Additive increase, multiplicative decrease of a rate for each peer.
//!
//! An ACK raises the rate of every relay it came over by as much as makes one
//! packet each round trip; a timeout multiplies it by β. Until its first timeout a
//! peer is in slow start: each ACK adds a packet a second, and the rate at which
//! the lost packet left, not today's, is halved. [Raiber 2010] 4.2.3, 4.2.4.
//!
//! The increase is read in two ways. To the letter (4.7), `R += α M / (L R)` adds
//! about a byte a second for each ACK when R is in bytes a second. With consistent
//! units, R L / M packets pass in a round trip L and shall together add α packets
//! each round trip, α M / L: `R += α M² / (L² R)`. Of less than a packet a round trip,
//! each adds α M / L and no more, as a TCP window is at least a segment (RFC 5681, 3.1):
//! over a round trip of a millisecond, a single ACK would else raise a packet a second
//! to a million and a half.

use core::marker::PhantomData;

use bitfield_struct::bitfield;
use serde::Deserialize;

use super::Outcome;
use super::learner::{Evidence, RateLearner};
use crate::registry::{ParameterError, in_range};
use crate::rng::Rng;
use crate::time::Seconds;
use crate::units::{Bytes, OctetRate, Octets, Rate};

/// Parameters. [Raiber 2010] 7.1.5.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AimdConfig {
    /// α: packets added each round trip.
    pub increase: f64,
    /// β: what a timeout multiplies the rate by, in (0, 1).
    pub decrease: f64,
}

impl Default for AimdConfig {
    fn default() -> AimdConfig {
        // 7.1.5 settles on an increase of 1.5 and a division by 1.4.
        AimdConfig { increase: 1.5, decrease: 1.0 / 1.4 }
    }
}

/// How equation 4.7 is read.
pub trait Increase: core::fmt::Debug + Clone + Send + 'static {
    /// What one ACK adds to `rate`; `increase` is α.
    fn increment(increase: f64, packet: Octets, srtt: Seconds, rate: OctetRate) -> OctetRate;
}

/// One packet each round trip, each round trip.
#[derive(Clone, Debug)]
pub struct Consistent;

/// Equation 4.7 to the letter.
#[derive(Clone, Debug)]
pub struct Literal;

impl Increase for Consistent {
    fn increment(increase: f64, packet: Octets, srtt: Seconds, rate: OctetRate) -> OctetRate {
        let step = packet / srtt;
        step * increase * (step / rate).min(1.0)
    }
}

impl Increase for Literal {
    fn increment(increase: f64, packet: Octets, srtt: Seconds, rate: OctetRate) -> OctetRate {
        // Its units are not a rate's: that is the letter.
        OctetRate(increase * packet.0 / (srtt.0 * rate.0))
    }
}

/// One peer's rate.
#[derive(Clone, Debug)]
pub struct Aimd<I> {
    rate: OctetRate,
    slow_start: bool,
    reading: PhantomData<I>,
}

/// How a packet was sent.
#[bitfield(u32)]
pub struct SentAt {
    /// In bytes a second. A rate has no sign: 31 bits are enough.
    #[bits(31, from = f32::from_bits, into = f32::to_bits)]
    rate: f32,
    slow_start: bool,
}

/// The rate at which a packet passes each second.
fn one_a_second(packet: Bytes) -> OctetRate {
    Octets::from(packet) / Seconds(1.0)
}

impl<I> Aimd<I> {
    fn on_timeout(&mut self, decrease: f64, floor: OctetRate, sent: SentAt) {
        if self.slow_start {
            // R = R / 2, of the rate at which the lost packet was sent.
            self.slow_start = false;
            self.rate = OctetRate(f64::from(sent.rate())) / 2.0;
        } else if !sent.slow_start() {
            // R = β R (4.11)
            self.rate = self.rate * decrease;
        }
        // A packet that left in slow start and is missed after its end says nothing
        // new: only the first one counts.
        self.rate = self.rate.max(floor);
    }
}

impl<I: Increase> RateLearner for Aimd<I> {
    type Config = AimdConfig;
    type Note = SentAt;

    fn check(config: &AimdConfig) -> Result<(), ParameterError> {
        in_range("increase", config.increase, 0.0..=1e6)?;
        in_range("decrease", config.decrease, 1e-3..=0.999)
    }

    fn new(_config: &AimdConfig, packet: Bytes) -> Aimd<I> {
        Aimd { rate: one_a_second(packet), slow_start: true, reading: PhantomData }
    }

    fn rate(&self, _config: &AimdConfig, _packet: Bytes) -> Rate {
        self.rate.whole()
    }

    fn on_sent(&mut self, _config: &AimdConfig) -> SentAt {
        SentAt::new().with_rate(self.rate.0 as f32).with_slow_start(self.slow_start)
    }

    fn on_outcome(&mut self, config: &AimdConfig, packet: Bytes, evidence: Evidence<'_, SentAt>, _rng: &mut Rng) {
        // Below it, a peer would never be tried again.
        let floor = one_a_second(packet);
        match evidence.report.outcome {
            Outcome::TimedOut => self.on_timeout(config.decrease, floor, evidence.note),
            // R = R + M (4.12)
            Outcome::Acked if self.slow_start => self.rate = self.rate + floor,
            Outcome::Acked => {
                if let Some(srtt) = evidence.srtt() {
                    let more = I::increment(config.increase, packet.into(), srtt.seconds(), self.rate);
                    self.rate = self.rate + more;
                }
            }
        }
    }

    fn heap_bytes(&self) -> usize {
        0
    }

    fn trace(&self, _config: &AimdConfig, _packet: Bytes, record: &mut dyn FnMut(&'static str, f64)) {
        record("rate_bytes_per_s", self.rate.0);
        record("slow_start", f64::from(u8::from(self.slow_start)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::{Hop, Report, Slot};
    use crate::rtt::{PairRtts, RttConfig};
    use crate::time::Duration;

    const PACKET: Bytes = Bytes::new(1500);

    fn after<I: Increase>(learner: &mut Aimd<I>, outcome: Outcome, note: SentAt, srtt_ms: u64) -> f64 {
        let mut rtts = PairRtts::new(&RttConfig::default(), 1);
        rtts.sample(&[Slot(0)], Duration::from_millis(srtt_ms));
        let path = [Hop::default()];
        let report = Report::of(outcome, &path, &rtts);
        let evidence = Evidence { report: &report, place: 0, note };
        learner.on_outcome(&AimdConfig::default(), PACKET, evidence, &mut Rng::stream(1, "aimd"));
        learner.rate.0
    }

    /// An ACK's note says nothing to it.
    const SLOWLY: SentAt = SentAt::new();

    fn steady<I: Increase>(rate: f64) -> Aimd<I> {
        Aimd { rate: OctetRate(rate), slow_start: false, reading: PhantomData }
    }

    #[test]
    fn a_note_keeps_what_was_noted_as_a_number() {
        for (rate, slow_start) in [(1.0f32, false), (123_456.79, true), (f32::MAX, true), (0.0, false)] {
            let note = SentAt::new().with_rate(rate).with_slow_start(slow_start);
            let note = SentAt::from(u32::from(note));
            assert_eq!((note.rate(), note.slow_start()), (rate, slow_start));
        }
    }

    #[test]
    fn consistent_units_add_alpha_packets_a_round_trip_each_round_trip() {
        let mut learner = steady::<Consistent>(60_000.0);
        // L = 0.5 s: 20 packets in a round trip, which add 1.5 × 1500 / 0.5 B/s together.
        let rate = (0..20).map(|_| after(&mut learner, Outcome::Acked, SLOWLY, 500)).last().unwrap();
        assert!((rate - 60_000.0 - 4500.0).abs() < 200.0, "{rate}");
    }

    #[test]
    fn an_ack_adds_no_more_than_a_round_trip_may() {
        // L = 1 ms, and a packet a second: one ACK adds 1.5 packets a millisecond.
        let rate = after(&mut steady::<Consistent>(1500.0), Outcome::Acked, SLOWLY, 1);
        assert!((rate - 1500.0 - 1.5 * 1500.0 / 1e-3).abs() < 1e-3, "{rate}");
    }

    #[test]
    fn to_the_letter_an_ack_adds_hardly_anything() {
        let mut learner = steady::<Literal>(15_000.0);
        let rate = after(&mut learner, Outcome::Acked, SLOWLY, 500);
        assert!((rate - 15_000.3).abs() < 1e-9, "{rate}"); // 1.5 × 1500 / (0.5 × 15000)
    }

    #[test]
    fn slow_start_adds_a_packet_a_second_for_each_ack() {
        let mut learner = Aimd::<Consistent>::new(&AimdConfig::default(), PACKET);
        assert_eq!(after(&mut learner, Outcome::Acked, SLOWLY, 100), 3000.0);
        assert_eq!(after(&mut learner, Outcome::Acked, SLOWLY, 100), 4500.0);
    }

    #[test]
    fn slow_start_ends_at_half_the_rate_of_the_lost_packet_and_only_once() {
        let mut learner = Aimd::<Consistent>::new(&AimdConfig::default(), PACKET);
        for _ in 0..9 {
            after(&mut learner, Outcome::Acked, SLOWLY, 100);
        }
        let (lost, also_lost) = (learner.on_sent(&AimdConfig::default()), learner.on_sent(&AimdConfig::default()));
        for _ in 0..10 {
            after(&mut learner, Outcome::Acked, SLOWLY, 100);
        }
        assert_eq!(after(&mut learner, Outcome::TimedOut, lost, 100), 7500.0); // sent at 15 000
        assert_eq!(after(&mut learner, Outcome::TimedOut, also_lost, 100), 7500.0);
        let steady = learner.on_sent(&AimdConfig::default());
        assert!((after(&mut learner, Outcome::TimedOut, steady, 100) - 7500.0 / 1.4).abs() < 1e-9);
    }

    #[test]
    fn repeated_timeouts_hold_one_packet_a_second() {
        let mut learner = steady::<Consistent>(60_000.0);
        let note = learner.on_sent(&AimdConfig::default());
        let rate = (0..50).map(|_| after(&mut learner, Outcome::TimedOut, note, 100)).last().unwrap();
        assert_eq!(rate, 1500.0);
    }

    /// One flow over one relay that takes 40 packets a second. R packets pass in a second and
    /// each adds α / (L² R), so R² grows by 2 α / L² for each ACK: 6 packets a second each second,
    /// a little less while R is small. A second so begins with at most 46, of which 6 are lost.
    #[test]
    fn alone_on_a_relay_the_rate_is_a_saw_tooth_around_its_limit() {
        const LIMIT: u32 = 40;
        let mut learner = steady::<Consistent>(30_000.0);
        let (mut falls, mut rates) = (0, Vec::new());
        for _ in 0..200 {
            let before = learner.rate.0 / 1500.0;
            let packets = before as u32;
            for packet in 0..packets {
                let note = learner.on_sent(&AimdConfig::default());
                let outcome = if packet < LIMIT { Outcome::Acked } else { Outcome::TimedOut };
                after(&mut learner, outcome, note, 500);
            }
            let (acked, lost) = (packets.min(LIMIT), packets.saturating_sub(LIMIT));
            let risen = (before * before + 2.0 * 6.0 * f64::from(acked)).sqrt();
            let expected = risen / 1.4f64.powi(lost as i32);
            let rate = learner.rate.0 / 1500.0;
            assert!((rate / expected - 1.0).abs() < 0.02, "{rate} after {before} and {lost} lost, not {expected}");
            falls += u32::from(lost > 0);
            rates.push(rate);
        }
        let (lowest, highest) = rates.iter().fold((f64::MAX, 0.0f64), |(l, h), &r| (l.min(r), h.max(r)));
        // From 40 / 1.4 at the most, at 6 a second, a tooth takes at least two seconds; from
        // 40 / 1.4^6 at the least, at 4 a second, at most ten.
        assert!((20..=100).contains(&falls), "{falls} falls");
        assert!(highest > 40.0 && highest <= 46.0, "{highest}");
        assert!((40.0 / 1.4f64.powi(6)..40.0 / 1.4).contains(&lowest), "{lowest}");
    }
}
