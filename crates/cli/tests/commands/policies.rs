//! A policy that has learned steers flows as README says, and what is no policy is refused in words.

use std::fs;
use std::path::Path;

use crate::common::{Place, said};

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// The commands of the first shell block below README's heading that run this binary.
fn commands(heading: &str) -> Vec<Vec<String>> {
    let page = fs::read_to_string(root().join("README.md")).unwrap();
    let block = page.split_once(heading).unwrap().1.split_once("```sh\n").unwrap().1.split_once("```").unwrap().0;
    let lines = block.lines().map(|line| line.split("  #").next().unwrap());
    let ours = lines.filter_map(|line| line.strip_prefix("anabranch "));
    ours.map(|line| line.split_whitespace().map(str::to_owned).collect()).collect()
}

#[test]
fn readmes_policies_steer() {
    let commands = commands("## Train a coordinator");
    assert_eq!(commands.len(), 2, "{commands:?}");
    let learned = "policies/cross.safetensors";
    for command in commands {
        // What README trains is not here; what it trained once is.
        let command = command.iter().map(|word| word.replace("out/cross/seed-1/policy.safetensors", learned));
        let mut binary = std::process::Command::new(env!("CARGO_BIN_EXE_anabranch"));
        let said = said(binary.args(command).arg("--json").current_dir(root()).output().unwrap());
        assert_eq!(said.code, Some(0), "{said:?}");
        let (json, metrics) = (said.json(), &said.json()["metrics"]);
        assert_eq!(json["notes"], serde_json::json!([]), "it sees what it saw in training");
        // 86 Mbit/s are left, of which 1448 of 1514 bytes are data; unsteered, Cubic fills the queue and loses. The
        // bound is the least that policies/README.md gives for a period of a second.
        assert!(metrics["goodput_mbit_s"].as_f64().unwrap() > 79.2, "{metrics}");
        assert_eq!(metrics["loss_percent"].as_f64(), Some(0.0), "{metrics}");
    }
}

#[test]
fn what_is_no_policy_is_refused_with_its_file_its_key_and_what_was_expected() {
    let place = Place::new(&fs::read_to_string(root().join("policies/cross.toml")).unwrap());
    let refused = |parts: &[&str]| {
        let said = place.say(&["run", "s.toml", "--json"]);
        assert_eq!((said.code, said.stdout.as_str()), (Some(2), ""), "{said:?}");
        for part in [&["s.toml:", "steering.policy = \"cross.safetensors\": "], parts].concat() {
            assert!(said.stderr.contains(part), "expected {part}: {said:?}");
        }
    };
    refused(&["cross.json: No such file"]);
    for name in ["cross.json", "cross.safetensors"] {
        fs::copy(root().join("policies").join(name), place.path(name)).unwrap();
    }
    let json = fs::read_to_string(place.path("cross.json")).unwrap();
    fs::write(place.path("cross.json"), json.replace("\"cross_off\"", "\"cross_of\"")).unwrap();
    refused(&["there is no feature \"cross_of\"; there are: throughput"]);
    fs::write(place.path("cross.json"), json.replace("      \"queue\",\n", "")).unwrap();
    refused(&["makes 1 rates of 10 numbers", "a policy for it makes 1 rate of 9"]);
    fs::write(place.path("cross.json"), &json).unwrap();
    let mut numbers = fs::read(place.path("cross.safetensors")).unwrap();
    let at = numbers.len() - 4;
    numbers[at..].copy_from_slice(&f32::NAN.to_le_bytes());
    fs::write(place.path("cross.safetensors"), &numbers).unwrap();
    refused(&["cross.safetensors: a number of ", "is NaN, must be a number"]);
    fs::write(place.path("cross.safetensors"), b"weights").unwrap();
    refused(&["cross.safetensors: is no safetensors file"]);
}
