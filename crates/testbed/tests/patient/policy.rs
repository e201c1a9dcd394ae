//! A policy steers flows of real packets. Skipped, with a word, where there are no namespaces.

use std::sync::Mutex;

use anabranch_control::policy::{Activation, Layer, Policy};
use anabranch_control::time::{Duration, Time};
use anabranch_lab::monitor::Monitor;
use anabranch_scenario::file::{AnyScenario, read_any};
use anabranch_scenario::flows::FlowScenario;
use anabranch_scenario::policy::file::Purpose;
use anabranch_scenario::policy::{Actuator, Agents, Feature, Saved, Sight};
use anabranch_testbed::emulator::testbed_available;

/// A host for each stack, over 8 Mbit/s.
const SCENARIO: &str = r#"
[run]
seconds = 5
goodput_from_s = 1
[packets]
header_bytes = 52
[dumbbell]
pairs = 3
rate = "8 Mbit/s"
delay_ms = 10
queue = { ms = 100 }
access_rate = "1 Gbit/s"
access_delay_ms = 1
[[flow]]
name = "ours"
controller = "cubic"
steered = true
handshake = true
from = "s0"
to = "r0"
[[flow]]
name = "quic"
controller = "quic:cubic"
steered = true
from = "s1"
to = "r1"
[[flow]]
name = "kernel"
controller = "kernel:cubic"
steered = true
from = "s2"
to = "r2"
[steering]
link = "bottleneck"
policy = "p.safetensors"
"#;

/// What it directs each host, of the link. The rule would direct a third.
const DIRECTED: f32 = 0.125;

/// A policy that directs all hosts to [`DIRECTED`] while they have something to send, and nothing before.
fn scenario(actuator: Actuator) -> FlowScenario {
    steered(SCENARIO, actuator, Layer { weights: vec![DIRECTED], biases: vec![0.0] })
}

/// What `text` says, under a policy that sees who is active.
fn steered(text: &str, actuator: Actuator, layer: Layer) -> FlowScenario {
    let directory = tempfile::tempdir().unwrap();
    let layers = vec![layer];
    let policy = Policy::new(layers, Activation::Tanh, vec![0.0], vec![1.0]).unwrap();
    let policy = policy.with_known(vec![0.0], vec![1.0]).unwrap();
    let sight = Sight {
        link: 0,
        interval: Duration::from_millis(50),
        actuator,
        features: vec![Feature::Active],
        history: 1,
        delay: 0,
        agents: Agents::Hosts,
    };
    let saved = Saved { policy, purpose: Purpose::of(&sight), trained: serde_json::Value::Null };
    saved.save(&directory.path().join("p.safetensors")).unwrap();
    let path = directory.path().join("s.toml");
    std::fs::write(&path, text).unwrap();
    match read_any(&path, &[]).unwrap() {
        AnyScenario::Flows(scenario) => scenario,
        other => panic!("{other:?}"),
    }
}

/// Writes down decisions.
#[derive(Default)]
struct Decisions(Mutex<Vec<(Time, Vec<f32>)>>);

impl Monitor for Decisions {
    fn on_second(&self) {}

    fn is_interrupted(&self) -> bool {
        false
    }

    fn on_decision(&self, now: Time, rates: &[f32]) {
        self.0.lock().unwrap().push((now, rates.to_vec()));
    }
}

#[test]
fn each_stack_keeps_to_what_the_policy_directs_its_host() {
    if let Err(reason) = testbed_available() {
        eprintln!("skipped: {reason}");
        return;
    }
    let scenario = scenario(Actuator::Rate);
    let decisions = Decisions::default();
    let emulated = anabranch_testbed::run(&scenario, &decisions).unwrap();
    let decisions = decisions.0.into_inner().unwrap();
    // Each 50 ms of 5 s; on a busy machine some are missed.
    assert!((10..=100).contains(&decisions.len()), "{} decisions", decisions.len());
    assert!(
        decisions.iter().all(|(_, rates)| rates.iter().all(|rate| [0.0, DIRECTED].contains(rate))),
        "{decisions:?}"
    );
    assert_eq!(decisions.last().unwrap().1, [DIRECTED; 3], "all send");
    // A pace of 1 Mbit/s with headers: data at most, and half of it whatever the machine is busy with.
    for flow in &emulated.measured.flows {
        let goodput = flow.goodput_bytes as f64 * 8.0 / 4e6;
        assert!((0.45..1.0).contains(&goodput), "{}: {goodput} Mbit/s", flow.controller);
    }
}

/// A transfer of 28 packets over a round trip of 100 ms, again and again.
const TRANSFERS: &str = r#"
[run]
seconds = 4
[dumbbell]
pairs = 1
rate = "20 Mbit/s"
delay_ms = 50
[[flow]]
controller = "CONTROLLER"
steered = true
handshake = true
workload = { once_bytes = 40000, every_s = 0.5 }
[steering]
link = "bottleneck"
policy = "p.safetensors"
"#;

/// The handshake and what is under way take a round trip and a half; a first window of ten packets takes another trip.
#[test]
fn a_connection_begins_with_the_window_that_the_policy_directs() {
    if let Err(reason) = testbed_available() {
        eprintln!("skipped: {reason}");
        return;
    }
    for controller in ["cubic", "quic:cubic"] {
        let soonest = |packets_log2: f32| {
            let layer = Layer { weights: vec![0.0], biases: vec![packets_log2] };
            let scenario = steered(&TRANSFERS.replace("CONTROLLER", controller), Actuator::Initial, layer);
            let measured = anabranch_testbed::run(&scenario, &()).unwrap().measured;
            measured.flows[0].completion.iter().min().expect("a transfer ends").as_millis_f64()
        };
        let (of_32, of_ten) = (soonest(5.0), soonest(0.0));
        assert!((150.0..225.0).contains(&of_32), "{controller}: {of_32} ms");
        assert!(of_ten >= 250.0, "{controller}: {of_ten} ms");
    }
}

#[test]
fn what_a_policy_does_that_the_kernel_takes_from_nobody_is_refused() {
    for (actuator, does) in [(Actuator::Fixed, "fixes windows"), (Actuator::Initial, "the window to begin with")] {
        let refused = anabranch_testbed::run(&scenario(actuator), &()).unwrap_err().to_string();
        for part in
            ["steering.policy = \"p.safetensors\": it", does, actuator.name(), "flow \"kernel\"", "\"quic:cubic\""]
        {
            assert!(refused.contains(part), "expected {part}\n     got {refused}");
        }
    }
}
