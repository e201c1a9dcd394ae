//! TCP's recovery without RACK over the reference dumbbell against what ns-3 measured there, also
//! where losses and their repair decide: 5 Mbit/s, 60 ms of queue, four flows, 300 s, means over seeds.
//! No parameter is set: the recovery brings ns-3's reading of the window's rule with it.
//! `cargo test -p anabranch-lab --test worlds tcp_dumbbell -- --nocapture` prints the figures.

use anabranch_control::flow::registry;
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::{Bytes, Rate};
use anabranch_proto::flow::{LossRecovery, TcpOptions};
use anabranch_scenario::file::parse_flows;
use anabranch_scenario::flows::FlowScenario;
use anabranch_scenario::flows::dumbbell::Bulk;

const SEEDS: u64 = 5;

/// The bound that was set for every loss before any comparison.
const WITHIN: f64 = 0.05;

/// Goodput of four flows, Mbit/s.
fn goodput(controller: &str, parameters: &str, loss: f64) -> f64 {
    goodput_of(controller, parameters, loss, without_rack)
}

/// As `recovery = "rfc6675"` has it.
fn without_rack(scenario: &mut FlowScenario) {
    scenario.packets.recovery = LossRecovery::Rfc6675;
    scenario.packets.tcp = TcpOptions::under(LossRecovery::Rfc6675);
}

/// The same of the scenario after `prepare`.
fn goodput_of(controller: &str, parameters: &str, loss: f64, prepare: impl Fn(&mut FlowScenario)) -> f64 {
    goodput_over(4, 5, controller, parameters, loss, prepare)
}

/// The same of `flows` flows over a bottleneck of `mbit_s`.
fn goodput_over(
    flows: usize,
    mbit_s: u64,
    controller: &str,
    parameters: &str,
    loss: f64,
    prepare: impl Fn(&mut FlowScenario),
) -> f64 {
    let sum: f64 = (1..=SEEDS)
        .map(|seed| {
            let mut scenario = Bulk {
                flows,
                controller: registry::find(controller).unwrap(),
                parameters: parameters.parse().unwrap(),
                rate: Rate::from_bits_per_sec(mbit_s * 1_000_000),
                loss,
                length: Duration::SECOND * 300,
                seed,
            }
            .scenario();
            prepare(&mut scenario);
            let counted_s = scenario.length.as_secs_f64() - scenario.goodput_from.as_secs_f64();
            let measured = anabranch_lab::flows::run(&scenario, &()).unwrap();
            assert!(measured.flows.iter().all(|flow| flow.controller == controller));
            measured.flows.iter().map(|flow| flow.goodput_bytes as f64 * 8.0 / counted_s / 1e6).sum::<f64>()
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
    for (loss, theirs) in [(0.0, 4.820), (0.01, 4.772), (0.02, 4.633), (0.035, 3.699), (0.05, 2.750)] {
        agrees(goodput("cubic", "", loss), theirs);
    }
}

#[test]
fn cubic_agrees_with_ns_3_with_larger_windows() {
    for (flows, mbit_s, loss, theirs) in [(1, 20, 0.01, 2.295), (2, 20, 0.035, 1.980), (4, 20, 0.05, 2.876)] {
        agrees(goodput_over(flows, mbit_s, "cubic", "", loss, without_rack), theirs);
    }
}

/// ns-2's `Newreno`, whose least timeout is 200 ms, which sends 1488 B and counts from the beginning
/// (crates/papers/src/validate/dumbbell.csv).
#[test]
fn reno_without_selective_acks_agrees_with_ns_2() {
    for (loss, theirs) in [(0.0, 4.851), (0.01, 4.636)] {
        let ours = goodput_of("reno", "halving = \"window\"", loss, |scenario| {
            scenario.packets.recovery = LossRecovery::Rfc6582;
            scenario.packets.tcp.least_timeout = Duration::from_millis(200);
            scenario.packets.header = Bytes::new(40);
            scenario.goodput_from = Time::ZERO;
        });
        agrees(ours, theirs);
    }
}

#[test]
fn a_window_that_receivers_share_falls_at_once_whatever_reduction_is_asked_for() {
    let text = include_str!("../../../../scenarios/flows/star.toml");
    for controller in ["reno", "cubic"] {
        let received = |reduction: &str| {
            let packets = format!("[packets]\nrecovery = \"rfc6675\"\nreduction = \"{reduction}\"");
            let mut scenario = parse_flows(&format!("{text}\n{packets}"), "star.toml", &[]).unwrap();
            scenario.flows[0].controller = registry::find(controller).unwrap();
            let measured = anabranch_lab::flows::run(&scenario, &()).unwrap();
            measured.flows[0].goodput_bytes
        };
        let at_once = received("rfc6675");
        assert!(at_once > 20_000_000, "{controller}: {at_once} of 30 million");
        assert_eq!((received("rfc6937"), received("ns-3")), (at_once, at_once), "{controller}");
    }
}

/// Each classic controller under each recovery, with and without what TCP's leave open: without random loss all fill
/// the link, since bulk flows are never idle.
#[test]
fn every_window_rule_fills_a_link_under_every_recovery() {
    for controller in ["reno", "cubic", "bic", "westwood", "compound", "vegas"] {
        for (_, recovery) in LossRecovery::ALL {
            for restart_after_idle in [false, true] {
                let ours = goodput_of(controller, "", 0.0, |scenario| {
                    let least_timeout = Duration::from_millis(if restart_after_idle { 200 } else { 1000 });
                    scenario.packets.recovery = recovery;
                    scenario.packets.tcp =
                        TcpOptions { least_timeout, restart_after_idle, ..TcpOptions::under(recovery) };
                    scenario.length = Duration::SECOND * 60;
                });
                assert!(ours > 4.5, "{controller}, {}, restarts {restart_after_idle}: {ours}", recovery.name());
            }
        }
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
