//! What the programs are made of may be given to others: every dependency has a licence that allows it without
//! conditions on our own, and none calls itself hazardous.

use std::collections::BTreeMap;
use std::process::Command;

use serde_json::Value;

/// Licences that ask for no more than a notice. The GPL and its kin are not among them.
const ALLOWED: [&str; 11] = [
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "CC0-1.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Zlib",
];

/// Whether an SPDX expression of at most one level of brackets allows it: all parts of an AND, one of each OR. A slash is
/// the OR of old manifests.
fn is_allowed(expression: &str) -> bool {
    let is_one_allowed = |part: &str| {
        let part = part.trim().trim_start_matches('(').trim_end_matches(')').replace('/', " OR ");
        part.split(" OR ").any(|name| ALLOWED.contains(&name.trim()))
    };
    expression.split(" AND ").all(is_one_allowed)
}

fn said(command: &mut Command) -> Vec<u8> {
    let output = command.output().expect("it is installed");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// This machine's platform, whose dependencies are there without a network.
fn platform() -> String {
    let version = String::from_utf8(said(Command::new("rustc").arg("-vV"))).expect("text");
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    host.expect("rustc names its host").to_owned()
}

#[test]
fn every_dependency_may_be_given_on_and_none_calls_itself_hazardous() {
    let mut command = Command::new(env!("CARGO"));
    command.args(["metadata", "--format-version", "1", "--locked", "--offline", "--filter-platform", &platform()]);
    let metadata: Value = serde_json::from_slice(&said(command.current_dir(env!("CARGO_MANIFEST_DIR")))).expect("JSON");
    let packages = metadata["packages"].as_array().expect("packages");
    assert!(packages.len() > 200, "{} packages", packages.len());
    let mut wrong = BTreeMap::new();
    for package in packages {
        let name = package["name"].as_str().expect("a name");
        let licence = package["license"].as_str().unwrap_or("none");
        if !is_allowed(licence) {
            wrong.insert(name, format!("licence {licence}"));
        }
        let words = format!("{} {}", package["description"], package["keywords"]).to_lowercase();
        if ["hazmat", "hazardous"].iter().any(|word| words.contains(word)) {
            wrong.insert(name, words);
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn an_expression_is_allowed_if_one_of_each_choice_is() {
    for allowed in ["MIT", "MIT/Apache-2.0", "MIT OR LGPL-2.1-or-later", "(MIT OR Apache-2.0) AND BSD-3-Clause"] {
        assert!(is_allowed(allowed), "{allowed}");
    }
    for other in ["none", "GPL-3.0-only", "AGPL-3.0-or-later", "MIT AND GPL-2.0-only", "(MIT OR ISC) AND AGPL-3.0-only"]
    {
        assert!(!is_allowed(other), "{other}");
    }
}
