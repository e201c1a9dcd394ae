//! `anabranch run` as a user sees it.

use std::path::Path;

use crate::common::{Place, SMALL, gives_what_its_seed_says, names};

const FILES: [&str; 3] = ["report.html", "series.parquet", "summary.json"];

#[test]
fn json_is_one_object_with_what_was_promised() {
    let said = Place::new(SMALL).say(&["run", "s.toml", "--json", "--seed", "7"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let json = said.json();
    let metrics = json["metrics"].as_object().unwrap();
    for metric in ["received_bytes_per_s", "drop_percent", "timeouts_per_s", "late_acks_per_s", "convergence_s"] {
        assert!(metrics[metric].is_number(), "{metric}: {}", metrics[metric]);
    }
    assert!(metrics["received_bytes_per_s"].as_f64().unwrap() > 10_000.0);
    assert!(json["packet_hops"].as_u64().unwrap() > 10_000);
    assert!(json["wall_s"].as_f64().unwrap() > 0.0);
    assert_eq!(json["seed"], 7);
    assert_eq!(json["controller"], "q-learning");
    assert_eq!(json["scenario"], "s.toml");
    assert_eq!(json["interrupted"], false);
    assert!(said.stderr.is_empty(), "a bar belongs on a terminal: {said:?}");
}

#[test]
fn a_run_says_what_it_measured_and_writes_what_it_says() {
    let place = Place::new(SMALL);
    let said = place.say(&["run", "s.toml", "--out", "new/folder", "--set", "overlay.limit=2 Mbit/s"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    for line in ["controller", "received by a node", "drops", "convergence", "packet-hops", "wall clock"] {
        assert!(said.stdout.contains(line), "{line} in {said:?}");
    }
    assert_eq!(place.names("new/folder"), FILES);
    for name in FILES {
        assert!(said.stderr.contains(&format!("wrote new/folder/{name}: ")), "{said:?}");
    }
    let page = std::fs::read_to_string(place.path("new/folder/report.html")).unwrap();
    assert!(page.contains("limit = &quot;250000 B/s&quot;") || page.contains("limit = \"250000 B/s\""));
    assert!(page.contains("Learned rates of sender 1"));
    assert_eq!(&std::fs::read(place.path("new/folder/series.parquet")).unwrap()[..4], b"PAR1");
}

#[test]
fn the_same_scenario_and_seed_give_the_same_bytes() {
    gives_what_its_seed_says(SMALL);
}

#[test]
fn an_overlay_gives_the_same_bytes_on_any_number_of_threads() {
    let place = Place::new(SMALL);
    let larger = ["--set", "overlay.peers=400", "--set", "overlay.known_peers=16", "--set", "run.seconds=3"];
    for threads in ["1", "2", "3"] {
        let run = ["run", "s.toml", "--threads", threads, "--out", threads];
        let said = place.say(&[&run[..], &larger[..]].concat());
        assert_eq!(said.code, Some(0), "{said:?}");
    }
    for name in ["report.html", "series.parquet"] {
        let [one, two, three] = ["1", "2", "3"].map(|out| place.written(out, name));
        assert!(one == two && one == three, "{name} differs");
    }
    place.say(&["run", "s.toml", "--threads", "0"]).refuses("--threads");
}

#[cfg(unix)]
#[test]
fn what_is_interrupted_is_written_and_said() {
    let place = Place::new(SMALL);
    let arguments = ["run", "s.toml", "--set", "run.seconds=10000000", "--json", "--out", "out"];
    let said = place.interrupt(&arguments, || place.path("out").exists(), "-INT");
    assert_eq!(said.code, Some(130), "{said:?}");
    assert!(said.stderr.contains("interrupted: these are the first "), "{said:?}");
    let json = said.json();
    assert_eq!(json["interrupted"], true);
    let seconds = json["metrics"]["simulated_s"].as_f64().unwrap();
    assert!((1.0..1e7).contains(&seconds), "{json}");
    assert_eq!(place.names("out"), FILES);
    let page = std::fs::read_to_string(place.path("out/report.html")).unwrap();
    assert!(page.contains("This run was interrupted after"));
}

/// Packets in proportion to `overlay.limit`: at 1 Gbit/s its only second takes many real ones.
const BUSY: &str = "\
[run]
seconds = 1
[overlay]
peers = 100
relays = 2
controller = \"perfect\"
limit = \"20 Mbit/s\"
join.every_s = 0
";

#[cfg(unix)]
#[test]
fn a_signal_is_heard_within_a_simulated_second() {
    let place = Place::new(BUSY);
    let arguments = ["run", "s.toml", "--set", "overlay.limit=1 Gbit/s", "--json", "--out", "out"];
    let said = place.interrupt(&arguments, || place.path("out").exists(), "-TERM");
    assert_eq!(said.code, Some(130), "{said:?}");
    assert!(said.stderr.contains("interrupted: these are the first 0 of 1 simulated seconds"), "{said:?}");
    let json = said.json();
    assert_eq!((&json["interrupted"], &json["metrics"]["simulated_s"]), (&true.into(), &0.0.into()));
    assert_eq!(place.names("out"), FILES);
}

#[test]
fn every_scenario_that_we_ship_runs() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    let files: Vec<String> = names(&folder).into_iter().filter(|name| name.ends_with(".toml")).collect();
    assert!(files.len() >= 3, "{files:?}");
    for name in files {
        let path = folder.join(&name);
        let said = Place::new("").say(&["run", path.to_str().unwrap(), "--set", "run.seconds=3", "--json"]);
        assert_eq!(said.code, Some(0), "{name}: {said:?}");
        assert!(said.json()["metrics"]["received_bytes_per_s"].as_f64().unwrap() > 1000.0, "{name}: {said:?}");
    }
}
