//! `emulate` and `compare` of streams with the real binary: viewers are processes in namespaces. Skipped where that
//! needs rights or devices that are not there.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::common::{Place, Said, is_testbed_missing, said};

/// Four homes, one of which dies; one that sends less than it watches, and a server that sends two copies.
const SMALL: &str = "\
[run]
seconds = 12
[stream]
bitrate = \"500 kbit/s\"
slices = 5
buffer_s = 2
[audience]
clients = 4
arrival_s = 1
upload = [\"1 Mbit/s\", \"400 kbit/s\", \"2 Mbit/s\"]
download = \"10 Mbit/s\"
server_upload = \"1.5 Mbit/s\"
span_ms = 60
[churn]
kill_share = 0.25
kill_at_s = 8
";

/// How long anything may take on a busy machine.
const LONG: Duration = Duration::from_secs(60);

/// The processes that a process has started.
fn children(of: u32) -> BTreeSet<u32> {
    let processes =
        std::fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let parent = |process: &u32| {
        let status = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
        // After the name in brackets: state, parent.
        status.rsplit_once(") ")?.1.split(' ').nth(1)?.parse::<u32>().ok()
    };
    processes.filter(|process| parent(process) == Some(of)).collect()
}

/// A process that is there and no zombie.
fn is_alive(process: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    status.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

fn devices() -> BTreeSet<String> {
    let folder = Path::new("/sys/class/net");
    if folder.exists() { crate::common::names(folder).into_iter().collect() } else { BTreeSet::new() }
}

/// A machine that is too busy, or on which the two differ, says so after the figures.
fn ended(said: &Said) {
    let is_excused =
        said.stderr.contains("could not carry these peers") || said.stderr.contains("real peers differ in");
    assert!(said.code == Some(0) || said.code == Some(2) && is_excused, "{said:?}");
}

#[test]
fn real_viewers_get_the_stream_and_both_ways_are_shown_side_by_side() {
    if is_testbed_missing() {
        return;
    }
    let before = devices();
    let place = Place::new(SMALL);
    let said = place.say(&["compare", "s.toml", "--json"]);
    ended(&said);
    assert_eq!(devices(), before);
    let json = said.json();
    let (simulated, real) = (&json["runs"][0]["simulated"], &json["runs"][0]["real"]);
    for run in [simulated, real] {
        assert_eq!((run["clients"].as_u64(), run["killed"].as_u64()), (Some(4), Some(1)), "{run}");
    }
    let of = |key: &str| real[key].as_f64().unwrap_or_else(|| panic!("no {key} in {real}"));
    // Twelve seconds of 500 kbit/s, whatever became of them.
    assert!((of("source_bytes") - 750_000.0).abs() < 5000.0, "{real}");
    let warnings = json["warnings"].as_array().unwrap();
    if !warnings.is_empty() {
        eprintln!("skipped: the machine was too busy: {warnings:?}");
        return;
    }
    assert_eq!(of("started"), 4.0);
    assert!(of("delivered_percent") > 90.0, "{real}");
    // No packet goes to a player before it has come, and none is waited for longer than the player holds.
    assert!(of("release_p50_s") > 0.005 && of("release_p95_s") < 4.0, "{real}");
    // Nobody but the server had it at first, and it sends no more than its line bears.
    assert!((750_000.0..1_500_000.0 * 12.0 / 8.0).contains(&of("server_bytes")), "{real}");
}

#[test]
fn viewers_are_gone_with_the_run_however_it_ends() {
    if is_testbed_missing() {
        return;
    }
    let before = devices();
    for (signal, code) in [(rustix::process::Signal::INT, Some(130)), (rustix::process::Signal::KILL, None)] {
        let place = Place::new(&SMALL.replace("seconds = 12", "seconds = 600"));
        let mut command = place.command(&["emulate", "s.toml", "--json"]);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let began = Instant::now();
        let mut viewers = BTreeSet::new();
        while viewers.len() < 4 {
            assert!(began.elapsed() < LONG, "they never came");
            viewers = children(child.id());
            std::thread::sleep(Duration::from_millis(20));
        }
        // Namespaces of their own.
        let network = |process: u32| std::fs::read_link(format!("/proc/{process}/ns/net")).unwrap();
        let networks: BTreeSet<_> = viewers.iter().copied().chain([std::process::id()]).map(network).collect();
        assert_eq!(networks.len(), 5);
        std::thread::sleep(Duration::from_millis(1500));
        let pid = rustix::process::Pid::from_raw(child.id() as i32).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
        let said = said(child.wait_with_output().unwrap());
        assert_eq!(said.code, code, "{said:?}");
        let killed = Instant::now();
        while viewers.iter().any(|viewer| is_alive(*viewer)) {
            assert!(killed.elapsed() < LONG, "viewers outlive {signal:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(devices(), before, "after {signal:?}");
    }
}

#[test]
fn what_real_viewers_do_not_do_is_refused() {
    if is_testbed_missing() {
        return;
    }
    for (change, expected) in [
        ("liars.droppers=0.5", "[liars]: on real packets"),
        ("audience.clients=500", "expected at most 200 on real packets"),
        ("stream.exploration=0.05", "expected stream.exploration = 0"),
        ("stream.mode=\"trees\"", "expected stream.exploration = 0"),
    ] {
        let place = Place::new(SMALL);
        place.say(&["emulate", "s.toml", "--set", change]).refuses(expected);
    }
    let place = Place::new(&SMALL.replace("slices = 5", "controller = \"cubic\"\nparameters = { beta = 0.8 }"));
    place.say(&["emulate", "s.toml"]).refuses("stream.parameters: a viewer's controller has its own defaults");
    let helped = SMALL.replace("slices = 5", "mode = \"mesh\"") + "[helper]\nmost = \"1 Mbit/s\"\n";
    Place::new(&helped).say(&["compare", "s.toml"]).refuses("[helper]: a real server has none yet");
}
