//! `anabranch onion attack` as a user sees it.

use std::path::Path;

use crate::common::{Place, names};

/// Thirty senders over sixty relays, without guards.
pub const SMALL: &str = "\
[run]
seconds = 30
seed = 3
[onion]
relays = 60
guards = 0
[senders]
count = 30
[adversary]
share = 0.2
probes = 4
probe_s = 20
";

#[test]
fn an_attack_says_what_it_found_and_the_same_again() {
    let place = Place::new(SMALL);
    let said = place.say(&["onion", "attack", "s.toml", "--json", "--out", "out"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let json = said.json();
    for key in ["linked", "correlation", "correlation_expected", "auc", "rank", "entropy_bits", "degree", "attracted"] {
        assert!(json[key].is_number(), "{key} in {json}");
    }
    assert_eq!((&json["relays"], &json["flows"]), (&12.into(), &30.into()));
    assert!(json["linked"].as_f64().unwrap() > 0.8, "as written, nearly all are linked: {json}");
    assert!(json["probed"]["auc"].is_number() && json["scenario"].as_str().unwrap().contains("[adversary]"), "{json}");
    assert_eq!(place.names("out"), ["attack.json"]);
    let first = std::fs::read(place.path("out/attack.json")).unwrap();
    let again = place.say(&["onion", "attack", "s.toml", "--json", "--out", "out"]);
    assert_eq!((again.code, std::fs::read(place.path("out/attack.json")).unwrap()), (Some(0), first));

    let table = place.say(&["onion", "attack", "s.toml", "--set", "onion.guards=2", "--set", "adversary.probes=0"]);
    assert!(table.code == Some(0) && table.stdout.contains("12 of 60 are the adversary's"), "{table:?}");
    assert!(table.stdout.contains("entropy") && !table.stdout.contains("probing"), "{table:?}");
}

#[test]
fn what_is_wrong_is_refused_at_its_line() {
    let place = Place::new("[onion]\nguards = 9\n[adversary]\n");
    place.say(&["onion", "attack", "s.toml"]).refuses("s.toml:2");
    let said = Place::new(SMALL).say(&["onion", "attack", "s.toml", "--set", "adversary.share=2"]);
    assert!(said.code == Some(2) && said.stderr.contains("--set adversary.share=2"), "{said:?}");
}

#[test]
fn every_example_runs_and_stands_in_the_documentation() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let pages =
        ["docs/onion.md", "docs/onion-scenarios.md"].map(|page| std::fs::read_to_string(root.join(page)).unwrap());
    let folder = root.join("scenarios/onion");
    let files: Vec<String> = names(&folder).into_iter().filter(|name| name.starts_with("attack")).collect();
    assert!(!files.is_empty());
    for name in files {
        let path = folder.join(&name);
        let short =
            ["run.seconds=12", "run.repetitions=1", "senders.count=12", "adversary.probes=2", "adversary.probe_s=10"];
        let mut arguments = vec!["onion", "attack", path.to_str().unwrap(), "--json"];
        short.iter().for_each(|set| arguments.extend(["--set", set]));
        let said = Place::new("").say(&arguments);
        assert_eq!(said.code, Some(0), "{name}: {said:?}");
        assert!(said.json()["entropy_bits"].as_f64().unwrap() > 0.0, "{name}: {said:?}");
        assert!(pages.iter().all(|page| page.contains(&format!("scenarios/onion/{name}"))), "{name}");
    }
}
