//! The onion's verbs, with the real binary.

use std::process::Command;

const BINARY: &str = env!("CARGO_BIN_EXE_anabranch");

#[test]
fn the_benchmark_says_for_one_k_what_a_packet_and_a_set_up_cost() {
    let output = Command::new(BINARY)
        .args(["bench", "onion", "--k", "4", "--packets", "8192", "--repeat", "1", "--json"])
        .output()
        .unwrap();
    let dial: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let keys: Vec<&String> = dial.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["k", "hops_per_s_per_core", "setup_us", "packet_us"]);
    let [set_up, packet] = ["setup_us", "packet_us"].map(|key| dial[key].as_f64().unwrap());
    assert!(dial["k"] == 4 && packet > 0.0 && set_up > packet, "{dial}");
    // One packet in four sets up a key.
    let per_hop = 1e6 / dial["hops_per_s_per_core"].as_f64().unwrap();
    let part = (per_hop - packet) / (set_up - packet);
    assert!((part - 0.25).abs() < 0.03, "{part} of packets set up keys: {dial}");
}

#[test]
fn a_key_serves_at_least_one_packet() {
    let output = Command::new(BINARY).args(["bench", "onion", "--k", "0"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("1..=65535"));
}
