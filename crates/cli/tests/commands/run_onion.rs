//! `anabranch run` and `anabranch sweep` on onion overlays, as a user sees them.

use std::path::Path;

use crate::common::{Place, names};

/// Three users over a dozen relays.
const SMALL: &str = "\
[run]
seconds = 10
warmup_s = 4
seed = 3
[onion]
relays = 12
guards = 1
[users]
count = 3
receive_only = 0.5
[relays]
limit = \"1 MB/s\"
";

#[test]
fn json_is_one_object_with_what_was_promised() {
    let said = Place::new(SMALL).say(&["run", "s.toml", "--json"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let json = said.json();
    let metrics = &json["metrics"];
    for key in [
        "goodput_bytes_per_s",
        "download_bytes_per_s",
        "upload_bytes_per_s",
        "limit_bytes_per_s",
        "limit_percent",
        "refused_percent",
        "lost_percent",
        "stall_max_s",
        "draw_entropy_bits",
        "overhead_percent",
    ] {
        assert!(metrics[key].is_number(), "{key} in {metrics}");
    }
    assert!(metrics["goodput_bytes_per_s"].as_f64().unwrap() > 50e3, "{metrics}");
    assert!(metrics["greedy_attraction"].is_null() && metrics["wrong"] == 0, "{metrics}");
    assert_eq!((&json["seed"], &json["controller"]), (&3.into(), &"timeouts at stepped".into()));
}

#[test]
fn a_run_says_what_it_measured_writes_it_and_is_the_same_again() {
    let place = Place::new(SMALL);
    for out in ["a", "b"] {
        let said = place.say(&["run", "s.toml", "--out", out]);
        assert_eq!(said.code, Some(0), "{said:?}");
        for line in ["downloaded", "of what relays can carry", "longest stall", "seed"] {
            assert!(said.stdout.contains(line), "{line} in {said:?}");
        }
        assert_eq!(place.names(out), ["report.html", "series.parquet", "summary.json"]);
    }
    let read = |name: &str| std::fs::read(place.path(name)).unwrap();
    assert_eq!(read("a/series.parquet"), read("b/series.parquet"));
    assert_eq!(read("a/report.html"), read("b/report.html"));
}

#[test]
fn a_sweep_goes_over_placements_and_total_rates() {
    let place = Place::new(SMALL);
    let grid = ["--grid", "onion.placement=random,timeouts", "--grid", "onion.total_rate=stepped,flow:cubic"];
    let mut words = vec!["sweep", "s.toml", "--out", "out", "--json"];
    words.extend(grid);
    let said = place.say(&words);
    assert_eq!(said.code, Some(0), "{said:?}");
    let table = std::fs::read_to_string(place.path("out/results.csv")).unwrap();
    for name in ["random at stepped", "timeouts at flow:cubic", "limit_percent"] {
        assert!(table.contains(name), "{name} in {table}");
    }
}

#[test]
fn what_is_wrong_is_refused_at_its_line_and_nothing_is_written() {
    Place::new("[onion]\nplacement = \"timeout\"\n").say(&["run", "s.toml"]).refuses("s.toml:2");
    Place::new("[onion]\n[users]\ncount = 0\n").say(&["run", "s.toml"]).refuses("s.toml:3");
    Place::new("[onion]\n[adversary]\n").say(&["run", "s.toml"]).refuses("anabranch onion attack");
    let place = Place::new(SMALL);
    place.say(&["run", "s.toml", "--out", "out", "--qlog"]).refuses("--qlog");
    place.say(&["emulate", "s.toml"]).refuses("anabranch onion demo");
    let said = place.say(&["run", "s.toml", "--set", "onion.hops=9", "--out", "out"]);
    assert!(said.code == Some(2) && said.stderr.contains("--set onion.hops=9"), "{said:?}");
    assert!(!place.path("out").join("summary.json").exists());
}

#[test]
fn a_run_that_delivers_nothing_fails_and_writes_nothing() {
    let place = Place::new(SMALL);
    let lossy = ["--set", "run.seconds=40", "--set", "onion.loss=0.99"];
    let said = place.say(&[&["run", "s.toml", "--json", "--out", "out"][..], &lossy].concat());
    assert_eq!((said.code, said.stdout.as_str()), (Some(2), ""), "{said:?}");
    assert!(said.stderr.contains("anabranch: in 40 s nothing was delivered to users or services"), "{said:?}");
    assert!(place.names("out").is_empty(), "nothing half-written");
    let said = place.say(&[&["sweep", "s.toml", "--out", "swept"][..], &lossy].concat());
    assert!(said.code == Some(2) && said.stderr.contains("seed 3: in 40 s nothing was delivered"), "{said:?}");
    assert_eq!(place.names("swept"), ["points"]);
}

#[test]
fn every_example_runs_and_stands_in_the_documentation() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = std::fs::read_to_string(root.join("docs/onion-scenarios.md")).unwrap();
    let folder = root.join("scenarios/onion");
    let mut ran = 0;
    for name in names(&folder).into_iter().filter(|name| !name.starts_with("attack")) {
        let path = folder.join(&name);
        let place = Place::new(SMALL);
        let words = ["run", path.to_str().unwrap(), "--set", "run.seconds=2", "--set", "run.warmup_s=1"];
        let said =
            place.say(&[&words[..], &["--set", "relays.kill_at_s=1", "--set", "users.begin_within_s=1"]].concat());
        assert_eq!(said.code, Some(0), "{name}: {said:?}");
        assert!(page.contains(&format!("scenarios/onion/{name}")), "docs/onion-scenarios.md does not name {name}");
        ran += 1;
    }
    assert!(ran >= 3, "{ran} examples");
}

/// What is needed of memory is estimated before a run begins: it must be what runs take, or the wrong ones are refused.
#[cfg(target_os = "linux")]
#[test]
fn a_run_takes_about_the_memory_that_is_estimated_beforehand() {
    let most = |users: u64, relays: u64| {
        let text = format!(
            "[run]\nseconds = 1\nwarmup_s = 0.5\n[onion]\nrelays = {relays}\n\
             [users]\ncount = {users}\nbegin_within_s = 0.1\n"
        );
        let place = Place::new(&text);
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_anabranch"));
        let mut child = command
            .args(["run", "s.toml", "--json"])
            .current_dir(place.path("."))
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let status = format!("/proc/{}/status", child.id());
        let mut most = 0;
        while child.try_wait().unwrap().is_none() {
            let text = std::fs::read_to_string(&status).unwrap_or_default();
            let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB"));
            most = line.and_then(|kilobytes| kilobytes.parse().ok()).unwrap_or(most);
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        assert!(child.wait().unwrap().success());
        1024 * most
    };
    let (small, large) = (most(10, 100), most(100, 2000));
    let estimated = |users, relays| {
        let mut scenario = anabranch_scenario::onion_run::OnionRunScenario::standard();
        (scenario.users.count, scenario.onion.relays) = (users, relays);
        anabranch_lab::onion::memory::least_bytes(&scenario)
    };
    let (took, expected) = (large - small, estimated(100, 2000) - estimated(10, 100));
    assert!((0.7..1.3).contains(&(took as f64 / expected as f64)), "{took} bytes, and {expected} were estimated");
}
