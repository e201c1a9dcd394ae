//! The onion's verbs, with the real binary: the benchmark, and a whole overlay on loopback.

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

#[test]
fn a_whole_overlay_on_this_machine_carries_pages_as_they_are() {
    let output =
        Command::new(BINARY).args(["onion", "demo", "--relays", "8", "--megabytes", "1", "--json"]).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    let measured: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(measured["relays"] == 8 && measured["exits"] == 1 && measured["large_bytes"] == 1_000_000, "{measured}");
    assert!(measured["mb_per_s"].as_f64().unwrap() > 0.0 && measured["curl"] != false, "{measured}");
    // A browser, where there is one: `--no-browser` and machines without have null.
    if measured["chromium"].is_null() {
        eprintln!("no Chromium is here: no page was opened in one");
    } else {
        assert_eq!(measured["chromium"], true, "{measured}\n{stderr}");
        assert!(measured["chromium_page_s"].as_f64().unwrap() > 0.0, "{measured}");
    }
    let [for_it, in_all] = ["large_processor_s", "processor_s"].map(|key| measured[key].as_f64().unwrap());
    assert!(for_it > 0.0 && for_it < in_all, "{measured}");
    // One exit has opened all of it, two guards have handed over what came back, and no relay did both.
    let of = |key: &str| -> Vec<u64> {
        measured["knew"].as_array().unwrap().iter().map(|relay| relay[key].as_u64().unwrap()).collect()
    };
    let (guards, exits) = (of("to_clients"), of("delivered"));
    assert!(guards.iter().filter(|count| **count > 0).count() <= 2, "{measured}");
    assert_eq!(exits.iter().filter(|count| **count > 0).count(), 1, "{measured}");
    assert!(guards.iter().zip(&exits).all(|(guard, exit)| *guard == 0 || *exit == 0), "{measured}");
    assert!(measured["proxy"]["packets_received"].as_u64().unwrap() > 1000, "{measured}");
}

#[test]
fn a_browser_that_cannot_be_driven_is_said_and_the_rest_is_measured() {
    let output = Command::new(BINARY)
        .args(["onion", "demo", "--relays", "6", "--megabytes", "1", "--json"])
        .env("CHROMIUM", "/bin/true")
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    assert!(stderr.contains("the browser cannot be driven"), "{stderr}");
    let measured: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(measured["chromium"] == false && measured["chromium_page_s"].is_null(), "{measured}");
    assert!(measured["mb_per_s"].as_f64().unwrap() > 0.0, "{measured}");
}

#[test]
fn what_is_wrong_with_a_network_is_reported_with_file_and_line() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("network.toml");
    std::fs::write(&file, "threshold = 2\nround_s = 9000.0\n[[authority]]\nkey = \"00\"\naddress = \"1.2.3.4:5\"\n")
        .unwrap();
    let state = folder.path().join("state");
    for verb in ["relay", "proxy"] {
        let mut command = Command::new(BINARY);
        command.args(["onion", verb, "--network"]).arg(&file).arg("--state").arg(&state);
        if verb == "relay" {
            command.args(["--listen", "127.0.0.1:0"]);
        }
        let output = command.output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains("network.toml:4:7: key `key`"), "{stderr}");
        assert!(!state.exists(), "nothing is left of it");
    }
}

#[test]
fn what_is_wrong_with_options_is_reported_before_anything_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let (file, state) = (folder.path().join("network.toml"), folder.path().join("state"));
    let key = "07".repeat(32);
    std::fs::write(&file, format!("[[authority]]\nkey = \"{key}\"\naddress = \"127.0.0.1:7\"\n")).unwrap();
    let wrong: [(&[&str], &str); 5] = [
        (&["proxy", "--socks", "127.0.0.1:0", "--placement", "nosuch"], "--placement nosuch: "),
        (&["proxy", "--socks", "127.0.0.1:0", "--cover", "0"], "invalid value '0' for '--cover <N>'"),
        (
            &["proxy", "--socks", "127.0.0.1:0", "--cover", "9", "--hops", "2", "--guards", "1"],
            "--cover: a loop over one",
        ),
        (&["relay", "--listen", "0.0.0.0:0"], "others cannot reach 0.0.0.0:0: say with --address"),
        (&["relay", "--listen", "127.0.0.1:0", "--allow", "example.org"], "names no ports"),
    ];
    for (arguments, words) in wrong {
        let mut command = Command::new(BINARY);
        command.arg("onion").args(arguments).arg("--network").arg(&file).arg("--state").arg(&state);
        let output = command.output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains(words), "{stderr}");
        assert!(!state.exists(), "nothing is left of {arguments:?}");
    }
}
