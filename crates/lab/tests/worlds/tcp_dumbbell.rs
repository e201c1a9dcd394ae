//! TCP's recovery without RACK over the reference dumbbell against what ns-3 measured there, also
//! where losses and their repair decide: 5 Mbit/s, 60 ms of queue, four flows, 300 s, means over seeds.
//! No parameter is set: the recovery brings ns-3's reading of the window's rule with it.
//! `cargo test -p anabranch-lab --test worlds tcp_dumbbell -- --nocapture` prints the figures.

use anabranch_control::flow::registry;
use anabranch_control::time::Duration;
use anabranch_control::units::Rate;
use anabranch_lab::flows;
use anabranch_proto::flow::LossRecovery;
use anabranch_scenario::flows::dumbbell::Bulk;

const SEEDS: u64 = 5;

/// Goodput is counted from the 20th second on.
const COUNTED_S: f64 = 280.0;

/// The bound that was set for every loss before any comparison.
const WITHIN: f64 = 0.05;

/// Goodput of four flows, Mbit/s.
fn goodput(controller: &str, parameters: &str, loss: f64) -> f64 {
    let sum: f64 = (1..=SEEDS)
        .map(|seed| {
            let mut scenario = Bulk {
                flows: 4,
                controller: registry::find(controller).unwrap(),
                parameters: parameters.parse().unwrap(),
                rate: Rate::from_bits_per_sec(5_000_000),
                loss,
                length: Duration::SECOND * 300,
                seed,
            }
            .scenario();
            scenario.packets.recovery = LossRecovery::Rfc6675;
            let measured = flows::run(&scenario, &()).unwrap();
            assert!(measured.flows.iter().all(|flow| flow.controller == controller));
            measured.flows.iter().map(|flow| flow.goodput_bytes as f64 * 8.0 / COUNTED_S / 1e6).sum::<f64>()
        })
        .sum();
    println!("{controller} [{parameters}], loss {loss}: {:.3} Mbit/s", sum / SEEDS as f64);
    sum / SEEDS as f64
}

#[track_caller]
fn agrees(ours: f64, theirs: f64) {
    assert!((ours / theirs - 1.0).abs() <= WITHIN, "{ours} against {theirs}");
}

/// ns-3-dev's where it is known, else ns-3.44's (crates/papers/src/validate/dumbbell.csv).
#[test]
fn reno_agrees_with_ns_3_at_every_loss() {
    for (loss, theirs) in [(0.0, 4.809), (0.01, 4.339), (0.02, 3.205), (0.035, 2.25), (0.05, 1.697)] {
        agrees(goodput("reno", "", loss), theirs);
    }
}

#[test]
fn cubic_agrees_with_ns_3_at_every_loss() {
    for (loss, theirs) in [(0.0, 4.820), (0.01, 4.772), (0.02, 4.633), (0.035, 3.716), (0.05, 2.741)] {
        agrees(goodput("cubic", "", loss), theirs);
    }
}

/// The rules that make the difference to RFC 9002's and RFC 9438's readings, by their switches.
#[test]
fn other_readings_can_be_set_and_are_not_ns_3s() {
    let by_9002 = goodput("reno", "counting = \"bytes\"\nhalving = \"window\"", 0.035);
    assert!(by_9002 > 1.3 * goodput("reno", "", 0.035), "{by_9002}");
    let by_9438 = goodput("cubic", "reno_friendly = \"rfc-9438\"", 0.035);
    assert!(by_9438 > 1.04 * goodput("cubic", "", 0.035), "{by_9438}");
}
