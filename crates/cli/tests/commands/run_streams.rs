//! `anabranch run` and `anabranch sweep` on streams, as a user sees them.

use std::path::Path;

use crate::common::{Place, names};

/// Eight homes, of which the server could serve three.
const SMALL: &str = "\
[run]
seconds = 14
seed = 3
[stream]
bitrate = \"1 Mbit/s\"
slices = 4
[audience]
clients = 8
arrival_s = 2
upload = \"2 Mbit/s\"
download = \"20 Mbit/s\"
server_upload = \"4 Mbit/s\"
";

#[test]
fn json_is_one_object_with_what_was_promised() {
    let said = Place::new(SMALL).say(&["run", "s.toml", "--json"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let json = said.json();
    let metrics = &json["metrics"];
    for key in [
        "clients",
        "killed",
        "delivered_percent",
        "skipped_packets",
        "savings_percent",
        "startup_p95_s",
        "latency_p95_s",
        "slices_back_p99_s",
        "overhead_percent",
        "server_bytes",
        "source_bytes",
    ] {
        assert!(metrics[key].is_number(), "{key} in {metrics}");
    }
    assert_eq!((&metrics["clients"], &metrics["started"]), (&8.into(), &8.into()));
    let delivered = metrics["delivered_percent"].as_f64().unwrap();
    assert!(delivered > 90.0, "{delivered}");
    // 14 s of 1 Mbit/s.
    let source = metrics["source_bytes"].as_f64().unwrap();
    assert!((1.7e6..1.8e6).contains(&source), "{source}");
    // The server could not have sent it eight times.
    assert!(metrics["server_bytes"].as_f64().unwrap() < 14.0 * 4e6 / 8.0, "{metrics}");
    // Manifests are 64 bytes, and 16 for each of some ten packets, and go to each viewer once at least.
    assert!(metrics["overhead_manifests_percent"].as_f64().unwrap() > 1.0, "{metrics}");
    let kinds = metrics.as_object().unwrap().iter().filter(|(name, _)| name.starts_with("overhead_"));
    let kinds = kinds.filter(|(name, _)| *name != "overhead_percent").map(|(_, percent)| percent.as_f64().unwrap());
    let (sum, all) = (kinds.sum::<f64>(), metrics["overhead_percent"].as_f64().unwrap());
    assert!((sum - all).abs() < 1e-6, "{sum} of {metrics}");
    assert_eq!((&json["seed"], &json["scenario"], &json["controller"]), (&3.into(), &"s.toml".into(), &"copa".into()));
    assert_eq!(json["interrupted"], false);
}

#[test]
fn a_run_says_what_it_measured_writes_it_and_is_the_same_again() {
    let place = Place::new(SMALL);
    for out in ["a", "b"] {
        let said = place.say(&["run", "s.toml", "--out", out]);
        assert_eq!(said.code, Some(0), "{said:?}");
        for line in
            ["delivered to honest viewers", "saved at the server", "start, 95 %", "overhead", "manifests", "seed"]
        {
            assert!(said.stdout.contains(line), "{line} in {said:?}");
        }
        assert_eq!(place.names(out), ["report.html", "series.parquet", "summary.json"]);
    }
    let read = |name: &str| std::fs::read(place.path(name)).unwrap();
    assert_eq!(read("a/series.parquet"), read("b/series.parquet"));
    assert_eq!(read("a/report.html"), read("b/report.html"));
    let page = String::from_utf8(read("a/report.html")).unwrap();
    for word in ["From the source to the release", "played", "[audience]"] {
        assert!(page.contains(word), "{word}");
    }
}

#[test]
fn what_lies_and_what_dies_is_counted() {
    let sets = ["--set", "churn.kill_share=0.25", "--set", "churn.kill_at_s=8", "--set", "liars.poisoners=0.25"];
    let said = Place::new(SMALL).say(&[&["run", "s.toml", "--json"][..], &sets].concat());
    let metrics = &said.json()["metrics"];
    assert_eq!(metrics["killed"], 2, "{said:?}");
    assert!(metrics["forged_packets"].as_u64().unwrap() > 0, "{metrics}");
    let said = Place::new(SMALL).say(&[&["run", "s.toml"][..], &sets].concat());
    assert!(said.stdout.contains("killed at once") && said.stdout.contains("forged packets found"), "{said:?}");
}

#[test]
fn a_sweep_has_a_row_for_each_mode() {
    let place = Place::new(SMALL);
    let grid = "stream.mode=trees,mesh,hybrid";
    let said = place.say(&["sweep", "s.toml", "--grid", grid, "--seeds", "2", "--out", "out", "--json"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let json = said.json();
    assert_eq!((json["points"].as_array().unwrap().len(), json["combinations"].as_array().unwrap().len()), (6, 3));
    for combination in json["combinations"].as_array().unwrap() {
        assert!(combination["metrics"]["delivered_percent"]["mean"].as_f64().unwrap() > 90.0, "{combination}");
    }
}

#[test]
fn a_run_that_delivers_nothing_fails_and_writes_nothing() {
    let place = Place::new(SMALL);
    let far = ["--set", "run.seconds=20", "--set", "audience.span_ms=200000"];
    let said = place.say(&[&["run", "s.toml", "--json", "--out", "out"][..], &far].concat());
    assert_eq!((said.code, said.stdout.as_str()), (Some(2), ""), "{said:?}");
    assert!(said.stderr.contains("anabranch: in 20 s nothing was delivered to any viewer"), "{said:?}");
    assert!(place.names("out").is_empty(), "nothing half-written");
    // Of a sweep, the point is named, and the others have their table.
    let grid = ["sweep", "s.toml", "--grid", "audience.span_ms=100,200000", "--out", "swept", "--threads", "1"];
    let said = place.say(&[&grid[..], &["--set", "run.seconds=20", "--json"]].concat());
    assert_eq!(said.code, Some(2), "{said:?}");
    let words = "audience.span_ms=200000, seed 3: in 20 s nothing was delivered";
    assert!(said.stderr.contains(words) && said.json()["failed"][0].as_str().unwrap().starts_with(words), "{said:?}");
    let files = ["points", "report.html", "results.csv", "results.parquet"];
    assert_eq!((place.names("swept"), place.names("swept/points").len()), (files.map(str::to_owned).to_vec(), 1));
}

#[test]
fn what_is_for_flows_alone_is_refused() {
    let place = Place::new(SMALL);
    let said = place.say(&["run", "s.toml", "--out", "out", "--pcap"]);
    assert!(said.code == Some(2) && said.stderr.contains("this is a stream"), "{said:?}");
}

#[test]
fn every_example_runs_and_stands_in_the_documentation() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = std::fs::read_to_string(root.join("docs/stream-scenarios.md")).unwrap();
    let folder = root.join("scenarios/stream");
    let files: Vec<String> = names(&folder).into_iter().filter(|name| name.ends_with(".toml")).collect();
    assert!(files.len() >= 8, "{files:?}");
    for name in files {
        let path = folder.join(&name);
        let short = ["run.seconds=12", "audience.clients=12", "audience.arrival_s=2"];
        let mut arguments = vec!["run", path.to_str().unwrap(), "--json"];
        short.iter().for_each(|set| arguments.extend(["--set", set]));
        if ["deaths.toml", "compare.toml"].contains(&&*name) {
            arguments.extend(["--set", "churn.kill_at_s=8"]);
        }
        let said = Place::new("").say(&arguments);
        assert_eq!(said.code, Some(0), "{name}: {said:?}");
        assert!(said.json()["metrics"]["delivered_percent"].as_f64().unwrap() > 50.0, "{name}: {said:?}");
        assert!(page.contains(&format!("`{name}`")), "{name}");
    }
}

#[test]
fn what_was_measured_is_printed_though_there_is_no_room_for_files() {
    let place = Place::new(SMALL);
    // No file takes the place of a folder, whoever asks.
    std::fs::create_dir_all(place.path("out/summary.json/taken")).unwrap();
    let said = place.say(&["run", "s.toml", "--json", "--set", "run.seconds=4", "--out", "out"]);
    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(said.json()["metrics"]["clients"].is_number() && said.stderr.contains("summary.json"), "{said:?}");
}

/// As a shell makes of `*.toml`.
#[test]
fn several_scenarios_run_one_after_the_other_and_all_are_read_before() {
    let place = Place::new(SMALL);
    std::fs::write(place.path("t.toml"), SMALL.replace("seed = 3", "seed = 4")).unwrap();
    let said = place.say(&["run", "s.toml", "t.toml", "--json", "--set", "run.seconds=4", "--out", "out"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let seeds: Vec<i64> = said
        .stdout
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).expect(line)["seed"].as_i64().unwrap())
        .collect();
    assert_eq!(seeds, [3, 4], "an object a line");
    for folder in ["out/s", "out/t"] {
        assert_eq!(names(&place.path(folder)), ["report.html", "series.parquet", "summary.json"], "{folder}");
    }
    let said = place.say(&["run", "s.toml", "t.toml", "--set", "run.seconds=4"]);
    let heads: Vec<&str> = said.stdout.lines().filter(|line| line.ends_with(".toml")).collect();
    assert_eq!(heads, ["s.toml", "t.toml"], "{said:?}");
    // Nothing runs if one is wrong, or if two would be written into one folder.
    std::fs::write(place.path("wrong.toml"), SMALL.replace("slices", "slises")).unwrap();
    let said = place.say(&["run", "s.toml", "wrong.toml", "--json", "--out", "none"]);
    assert_eq!((said.code, said.stdout.as_str()), (Some(2), ""), "{said:?}");
    assert!(said.stderr.contains("wrong.toml") && said.stderr.contains("slises"), "{said:?}");
    let said = place.say(&["run", "s.toml", "s.toml", "--out", "none"]);
    assert_eq!((said.code, said.stdout.as_str()), (Some(2), ""), "{said:?}");
    assert!(said.stderr.contains("would both be written into"), "{said:?}");
    assert!(!place.path("none").exists());
}
