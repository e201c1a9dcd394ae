//! `onion demo --beside-tor`: a private Tor network beside ours, where there is a `tor`; and nothing is left of it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread;
use std::time::{Duration, Instant};

use super::{BINARY, PATIENCE, Process};

/// Whether this machine can run a Tor network; it is said where it cannot.
fn has_tor() -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let has = |name: &&str| std::env::split_paths(&path).any(|at| at.join(name).is_file());
    let missing = ["tor", "tor-gencert"].into_iter().find(|name| !has(name));
    if let Some(program) = missing {
        println!("skipped: {program} is not installed");
    }
    missing.is_none()
}

/// A demo of a few relays whose folders are in `temporary`.
fn demo(temporary: &Path) -> Command {
    let mut command = Command::new(BINARY);
    command.args(["onion", "demo", "--beside-tor", "--relays", "8", "--megabytes", "1", "--no-browser", "--json"]);
    command.env("TMPDIR", temporary);
    command
}

fn words(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn value(output: &Output) -> serde_json::Value {
    assert_eq!(output.status.code(), Some(0), "{}", words(output));
    serde_json::from_slice(&output.stdout).expect("an object")
}

/// No file in `temporary` is left, and no process that was told of it.
fn assert_nothing_is_left(temporary: &Path) {
    let files: Vec<PathBuf> = fs::read_dir(temporary).expect("a folder").flatten().map(|entry| entry.path()).collect();
    assert!(files.is_empty(), "{files:?}");
    let shown = temporary.display().to_string();
    let names_it =
        |at: &Path| fs::read(at.join("cmdline")).is_ok_and(|line| String::from_utf8_lossy(&line).contains(&shown));
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten().map(|entry| entry.path());
    let left: Vec<PathBuf> = processes.filter(|at| names_it(at)).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn tor_carries_the_same_pages_beside_ours() {
    if !has_tor() {
        return;
    }
    let (temporary, out) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let output = demo(temporary.path()).arg("--out").arg(out.path()).output().unwrap();
    let measured = value(&output);
    let tor = &measured["tor"];
    assert!(tor["authorities"] == 3 && tor["relays"] == 8 && tor["exits"] == 1, "{tor}\n{}", words(&output));
    let number = |of: &serde_json::Value, key: &str| of[key].as_f64().unwrap_or_else(|| panic!("{key} of {of}"));
    let mut in_files = 0.0;
    for (way, enabled) in [("one_circuit", 0), ("two_legs", 1)] {
        let way = &tor[way];
        assert!(way["conflux_enabled"] == enabled && way["large_bytes"] == measured["large_bytes"], "{tor}");
        assert!(number(way, "mb_per_s") > 0.0 && number(way, "small_page_s") > 0.0, "{tor}");
        assert!(number(way, "large_processor_s") > 0.0, "{tor}");
        in_files += number(way, "large_processor_s");
        // All of the file came by them, and six pages; what else a client reads is not this much.
        let bytes: Vec<u64> = way["circuit_bytes"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).collect();
        assert!((1_000_000..2_600_000).contains(&bytes.iter().sum::<u64>()), "{tor}");
        assert!(enabled == 1 || bytes.len() == 1, "without legs a circuit carries it all: {tor}");
    }
    assert!(number(tor, "processor_s") > number(tor, "ready_processor_s") + in_files, "{tor}");
    // Ours is as without it, and none of Tor's time is taken for ours.
    assert!(number(&measured, "mb_per_s") > 0.0, "{measured}");
    assert!(number(&measured, "processor_s") > number(&measured, "large_processor_s"), "{measured}");
    let report = fs::read_to_string(out.path().join("report.html")).unwrap();
    assert!(report.contains("Tor beside it") && report.contains("two legs (ConfluxEnabled 1)"), "{report}");
    assert_nothing_is_left(temporary.path());
}

#[test]
fn nothing_is_left_of_a_tor_network_after_ctrl_c() {
    if !has_tor() {
        return;
    }
    let temporary = tempfile::tempdir().unwrap();
    let mut process = Process::of(&mut demo(temporary.path()));
    let begun = Instant::now();
    // Its relays are told of themselves just before each is started.
    let has_begun = || {
        let folders = fs::read_dir(temporary.path()).into_iter().flatten().flatten();
        folders.map(|folder| folder.path().join("r7/lock")).any(|lock| lock.is_file())
    };
    while !has_begun() {
        assert!(begun.elapsed() < PATIENCE, "no relay of Tor's begins: {:?}", process.lines());
        thread::sleep(Duration::from_millis(20));
    }
    let id = process.child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    assert_eq!(process.code(), Some(130), "{:?}", process.lines());
    process.line_where(|line| line.contains("interrupted: nothing is left"));
    assert_nothing_is_left(temporary.path());
}

/// Puts a shell's script into `folder` that is called `name`.
fn program(folder: &Path, name: &str, script: &str) {
    let at = folder.join(name);
    fs::write(&at, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&at, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn without_tor_nothing_begins_and_what_to_install_is_said() {
    let (path, temporary) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let out = temporary.path().join("out");
    let run = || demo(temporary.path()).env("PATH", path.path()).arg("--out").arg(&out).output().unwrap();
    let is_refused = |words_of_it: &str| {
        let output = run();
        assert_eq!(output.status.code(), Some(2), "{}", words(&output));
        assert!(words(&output).contains(words_of_it) && output.stdout.is_empty(), "{}", words(&output));
        assert_nothing_is_left(temporary.path());
    };
    is_refused("--beside-tor: there is no program tor in PATH: install Tor (Debian, Ubuntu: apt install tor)");
    program(path.path(), "tor", "echo 'torsocks 2.4'");
    is_refused("there is no program tor-gencert in PATH");
    program(path.path(), "tor-gencert", "exit 1");
    is_refused("expected \"Tor version 0.4.8.1.\" or the like of its --version, and it says \"torsocks 2.4\"");
}

#[test]
fn a_tor_that_does_not_begin_is_said_and_ours_is_measured() {
    let (folder, temporary) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let script = "[ \"$1\" = --version ] && { echo 'Tor version 0.4.9.11.'; exit 0; }\necho 'no keys today'; exit 3";
    program(folder.path(), "tor", script);
    program(folder.path(), "tor-gencert", "exit 0");
    let beside = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths([folder.path().to_owned()].into_iter().chain(std::env::split_paths(&beside)));
    let output = demo(temporary.path()).env("PATH", path.unwrap()).output().unwrap();
    let measured = value(&output);
    assert!(measured["tor"].is_null() && measured["mb_per_s"].as_f64().unwrap() > 0.0, "{measured}");
    let said = words(&output);
    assert!(said.contains("Tor beside it was not measured: tor --list-fingerprint for a0: exit status: 3"), "{said}");
    assert!(said.contains("it said: no keys today"), "{said}");
    assert_nothing_is_left(temporary.path());
}
