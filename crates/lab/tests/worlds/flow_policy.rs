//! A policy that controls a flow from end to end, in a scenario: from its file, and the same each time.

use std::fs;
use std::path::Path;

use anabranch_control::policy::{Activation, Layer, Policy};
use anabranch_lab::flows::run;
use anabranch_scenario::file::{AnyScenario, flows_to_toml, parse_flows, read_any};
use anabranch_scenario::flows::FlowScenario;
use anabranch_scenario::policy::flow::{FlowPurpose, SavedFlow};

/// Of ten intervals of Aurora's features it looks at the newest one's latency ratio: 10 (1.1 - ratio). It knows ratios up to
/// `most`.
fn saved(most: f32) -> SavedFlow {
    let mut weights = vec![0.0; 30];
    weights[1] = -10.0;
    let layers = vec![Layer { weights, biases: vec![11.0] }];
    let policy = Policy::new(layers, Activation::Tanh, vec![0.0; 30], vec![1.0; 30]).unwrap();
    let policy = policy.with_known(vec![-1.0; 30], vec![most; 30]).unwrap();
    SavedFlow { policy, purpose: FlowPurpose::aurora(), trained: serde_json::Value::Null }
}

fn scenario(directory: &Path, most: f32) -> FlowScenario {
    saved(most).save(&directory.join("p.safetensors")).unwrap();
    let text = "[run]\nseconds = 60\n[dumbbell]\npairs = 1\nrate = \"10 Mbit/s\"\ndelay_ms = 20\n\
                [[flow]]\ncontroller = \"policy\"\nparameters = { file = \"p.safetensors\" }\n";
    let path = directory.join("s.toml");
    fs::write(&path, text).unwrap();
    match read_any(&path, &[]).unwrap() {
        AnyScenario::Flows(scenario) => scenario,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_policy_from_a_file_fills_a_link_with_a_short_queue_and_its_scenario_needs_no_file_any_more() {
    let directory = tempfile::tempdir().unwrap();
    let scenario = scenario(directory.path(), 10.0);
    let measured = run(&scenario, &()).unwrap();
    let goodput = measured.flows[0].delivered_bytes as f64 * 8e-6 / 60.0;
    // 10 Mbit/s less headers are 9.56; from ten packets a round trip it takes some seconds to get there.
    assert!((7.5..9.57).contains(&goodput), "{goodput} Mbit/s");
    assert_eq!(measured.flows[0].packets_lost, 0);
    assert_eq!(measured.notes, Vec::<String>::new());
    let again = parse_flows(&flows_to_toml(&scenario), "again.toml", &[]).unwrap();
    let other = run(&again, &()).unwrap();
    assert_eq!(other.flows[0].delivered_bytes, measured.flows[0].delivered_bytes, "the same scenario is the same run");
    assert_eq!(other.events, measured.events);
}

#[test]
fn a_run_says_that_a_policy_saw_what_its_training_never_had_shown() {
    let directory = tempfile::tempdir().unwrap();
    let measured = run(&scenario(directory.path(), 1.0), &()).unwrap();
    assert_eq!(measured.notes.len(), 1, "{:?}", measured.notes);
    let note = &measured.notes[0];
    assert!(note.starts_with("flow \"flow0\": p.safetensors: at "), "{note}");
    assert!(note.contains("from -1 to 1 in its training"), "{note}");
}
