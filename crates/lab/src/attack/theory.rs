//! What should come out, by formulas.

use anabranch_control::units::Rate;
use anabranch_onion::size::{DATAGRAM, LEAST_PAYLOAD};
use anabranch_scenario::onion::{Cover, Mode, OnionScenario};

/// Bytes of data in a cell of Tor's, and of the cell (tor-spec, "Cells": 514 bytes on a link of today's
/// protocol, 498 of a relay cell's data).
const TOR_DATA: f64 = 498.0;
const TOR_CELL: f64 = 514.0;

/// What a receiver holds of a stream until what is missing has come, in bytes.
pub const REORDERING: f64 = 1_048_576.0;

/// The probability that one of g guards is the adversary's: 1 − (1 − p)^g.
pub fn exposure(p: f64, guards: u64) -> f64 {
    1.0 - libm::pow(1.0 - p, guards as f64)
}

/// The correlation of what enters and what leaves, of which a share p each is seen at random:
/// pF / (1 + pF).
pub fn correlation(p: f64, burstiness: f64) -> f64 {
    p * burstiness / (1.0 + p * burstiness)
}

/// The mean time until some packet of a sender has its first and its last relay among the adversary's, in
/// seconds, where both are others for every packet: n² / c² packets. None where they are not, or it runs
/// no relay.
pub fn both_ends_s(scenario: &OnionScenario, p: f64) -> Option<f64> {
    let overlay = &scenario.overlay;
    let is_letter = overlay.mode == Mode::PerPacket && overlay.guards == 0 && overlay.far_guards == 0;
    let (on, off) = (scenario.senders.on.as_secs_f64(), scenario.senders.off.as_secs_f64());
    let packets_per_s = scenario.senders.packets_per_s * on / (on + off);
    (is_letter && p > 0.0).then(|| 1.0 / (p * p * packets_per_s))
}

/// What one sender's download can have, when all relays are equal and others use the same part of each:
///
/// ```text
/// min(line, share of the relays that its packets pass) · data / packet
/// ```
///
/// With another path for every packet, g guards bound it to g relays' spare rate; fresh first relays do
/// not bound it, nor do middles. A circuit is one relay's; two legs end at one relay, which is as
/// large as the others here, so that they bring nothing: where last relays are larger than first ones,
/// they do. At a constant rate a sender has that rate and no more. With delays, what may be under way
/// is what a receiver puts in order: a megabyte each round trip, over twice the hops.
///
/// It is a bound from above: what ACKs, blocks for replies and congestion control take is not in it, as it is in what
/// [`goodput`](super::goodput) measures.
pub fn goodput(scenario: &OnionScenario) -> Rate {
    let overlay = &scenario.overlay;
    let spare = overlay.relay_rate.bytes_per_sec() * (1.0 - overlay.load);
    let all = spare * overlay.relays as f64;
    let edge = |guards: u64| if guards == 0 { all / overlay.path() as f64 } else { guards as f64 * spare };
    let (path, efficiency) = match overlay.mode {
        Mode::PerPacket => (edge(overlay.guards).min(edge(overlay.far_guards)), LEAST_PAYLOAD as f64 / DATAGRAM as f64),
        Mode::Circuit | Mode::TwoLegs => (spare, TOR_DATA / TOR_CELL),
    };
    let mut goodput = overlay.line_rate.bytes_per_sec().min(path) * efficiency;
    if overlay.cover == Cover::ConstantRate {
        goodput = goodput.min(scenario.senders.packets_per_s * LEAST_PAYLOAD as f64);
    }
    if overlay.mix_delay.as_nanos() > 0 {
        // The mean distance of two points in a square is 0.52 of its side.
        let link = 2.0 * overlay.access.as_secs_f64() + 0.52 * overlay.span.as_secs_f64();
        let one_way = overlay.path() as f64 * (overlay.mix_delay.as_secs_f64() + link) + link;
        goodput = goodput.min(REORDERING / (2.0 * one_way));
    }
    Rate::from_bytes_per_sec_f64(goodput)
}

#[cfg(test)]
mod tests {
    use anabranch_control::time::Duration;

    use super::*;

    #[test]
    fn the_formulas_give_the_numbers_that_are_known() {
        for (p, expected) in [(0.01, 0.26), (0.05, 0.63), (0.1, 0.77), (0.2, 0.87)] {
            assert!((correlation(p, 34.0) - expected).abs() < 0.011, "{p}");
        }
        assert!((exposure(0.1, 3) - 0.271).abs() < 1e-12 && exposure(0.1, 0) == 0.0);
        let mut scenario = OnionScenario::standard();
        assert_eq!(both_ends_s(&scenario, 0.1), None);
        scenario.overlay.guards = 0;
        let seconds = both_ends_s(&scenario, 0.1).unwrap();
        assert!((seconds - 2.0).abs() < 1e-9, "a hundred packets, at fifty a second: {seconds}");
    }

    #[test]
    fn guards_bound_a_download_and_a_constant_rate_more() {
        let mut scenario = OnionScenario::standard();
        let mut of = |change: fn(&mut OnionScenario)| {
            change(&mut scenario);
            goodput(&scenario).bytes_per_sec()
        };
        let letter = of(|s| s.overlay.guards = 0);
        let one = of(|s| s.overlay.guards = 1);
        let three = of(|s| s.overlay.guards = 3);
        assert!((letter - 10e6 * 11.0 / 14.0).abs() < 1.0 && (one - 1e6 * 11.0 / 14.0).abs() < 1.0);
        assert!((three / one - 3.0).abs() < 1e-6);
        let delayed = of(|s| s.overlay.mix_delay = Duration::from_millis(200));
        assert!(delayed < 0.8e6, "{delayed}");
        let constant = of(|s| s.overlay.cover = Cover::ConstantRate);
        assert!((constant - 110_000.0).abs() < 1.0);
        let circuit = of(|s| {
            s.overlay.mode = Mode::Circuit;
            s.overlay.cover = Cover::Off;
            s.overlay.mix_delay = Duration::ZERO;
        });
        assert!((circuit - 1e6 * 498.0 / 514.0).abs() < 1.0);
    }
}
