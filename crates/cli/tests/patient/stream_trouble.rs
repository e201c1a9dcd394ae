//! `anabranch stream` where something goes wrong on the user's machine: real processes over loopback.
use std::fs::{File, OpenOptions, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::common::{Place, Said, said};

/// A demo that is over soon.
const DEMO: [&str; 9] = ["stream", "demo", "--clients", "2", "--kill", "0", "--seconds", "10", "--json"];

/// A program that stands in for a browser.
fn browser(place: &Place, script: &str) -> String {
    let path = place.path("browser");
    std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&path, Permissions::from_mode(0o700)).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn a_browser_that_dies_is_reported_and_the_demo_goes_on() {
    let place = Place::new("");
    let program = browser(&place, "exit 1");
    let said = said(place.command(&DEMO).env("CHROMIUM", program).output().unwrap());
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(said.stderr.contains("the browser cannot be driven"), "{said:?}");
    assert_eq!(said.json()["browser_frames"], serde_json::Value::Null);
}

#[test]
fn ctrl_c_while_a_browser_opens_leaves_no_process_and_no_profile() {
    let place = Place::new("");
    // It never answers.
    let program = browser(&place, "echo $$ > pid\nexec sleep 600");
    let profiles = place.path("profiles");
    std::fs::create_dir(&profiles).unwrap();
    let mut command = place.command(&DEMO);
    let child = command.env("CHROMIUM", program).env("TMPDIR", &profiles).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = child.spawn().unwrap();
    let mut pid = String::new();
    while !pid.ends_with('\n') {
        std::thread::sleep(Duration::from_millis(20));
        pid = std::fs::read_to_string(place.path("pid")).unwrap_or_default();
    }
    assert_eq!(std::fs::read_dir(&profiles).unwrap().count(), 1, "the browser has a profile");
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let said = said(child.wait_with_output().unwrap());
    assert_eq!(said.code, Some(130), "{said:?}");
    assert!(said.stderr.contains("interrupted"), "{said:?}");
    let is_there = Command::new("kill").args(["-0", pid.trim()]).stderr(Stdio::null()).status().unwrap().success();
    assert!(!is_there, "the browser has been left");
    assert_eq!(std::fs::read_dir(&profiles).unwrap().count(), 0, "its profile has been left");
}

/// Serves `source`, with `input` as standard input.
fn serve(place: &Place, source: &str, input: &[u8]) -> Said {
    std::fs::write(place.path("input"), input).unwrap();
    let arguments = ["stream", "serve", source, "--listen", "127.0.0.1:0", "--key", "key", "--http", "127.0.0.1:0"];
    said(place.command(&arguments).stdin(File::open(place.path("input")).unwrap()).output().unwrap())
}

#[test]
fn a_source_without_a_stream_in_it_is_an_error_that_is_said_once() {
    let place = Place::new("");
    for (input, words) in [
        (vec![], "no MPEG transport stream"),
        (b"hello".to_vec(), "no MPEG transport stream"),
        (vec![b'x'; 100_000], "no MPEG transport stream"),
    ] {
        for source in ["-", "input"] {
            let said = serve(&place, source, &input);
            assert_eq!(said.code, Some(2), "{source}: {said:?}");
            let about = said.stderr.lines().filter(|line| line.contains(words)).count();
            assert_eq!(about, 1, "{source}: {said:?}");
            assert!(said.stderr.contains("ffmpeg"), "what to do: {said:?}");
        }
    }
}

#[cfg(target_os = "linux")]
#[test]
fn an_output_that_cannot_be_written_is_said_in_words() {
    let place = Place::new("");
    let full = || OpenOptions::new().write(true).open("/dev/full").unwrap();
    let refuses = |arguments: &[&str]| {
        let mut command = place.command(arguments);
        let said = said(command.stdin(Stdio::null()).stdout(full()).output().unwrap());
        assert_eq!(said.code, Some(2), "{arguments:?}: {said:?}");
        let is_said = said.stderr.contains("standard output cannot be written: No space left on device");
        assert!(is_said && !said.stderr.contains("panicked"), "{arguments:?}: {said:?}");
    };
    let serve = ["stream", "serve", "pattern:", "--listen", "127.0.0.1:0", "--key", "key", "--http", "127.0.0.1:0"];
    refuses(&serve);
    refuses(&[&serve[..], &["--json"]].concat());
    let mut command = place.command(&[&serve[..], &["--json"]].concat());
    let mut server = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut first = String::new();
    let mut lines = std::io::BufReader::new(server.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut lines, &mut first).unwrap();
    let first: serde_json::Value = serde_json::from_str(&first).unwrap();
    let link = first["link"].as_str().unwrap();
    let watch = ["stream", "watch", link, "--listen", "127.0.0.1:0", "--no-http"];
    refuses(&[&watch[..], &["--json"]].concat());
    refuses(&[&watch[..], &["--output", "-"]].concat());
    server.kill().unwrap();
    server.wait().unwrap();
}
