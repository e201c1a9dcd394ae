//! A long file is read once for its hash before anything leaves: Ctrl-C does not wait for the end of
//! that, and nobody is disturbed.

use std::fs::{self, File};
use std::net::UdpSocket;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::running::{Running, SETTINGS};

const BINARY: &str = env!("CARGO_BIN_EXE_anabranch");

/// A file with a hole that takes nothing on the disk, and minutes to be hashed.
const LENGTH: u64 = 1 << 40;

#[test]
fn ctrl_c_while_a_file_is_hashed_ends_it_soon_and_sends_nothing() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("album")).unwrap();
    for name in ["long.bin", "album/long.bin"] {
        File::create(folder.path().join(name)).unwrap().set_len(LENGTH).unwrap();
    }
    // A relay that would hear whatever is sent.
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_nonblocking(true).unwrap();
    let at = socket.local_addr().unwrap().to_string();
    // The base point of Curve25519.
    let key = format!("09{}", "0".repeat(62));
    for arguments in [
        &["send", "long.bin", "--to", &at, "--key", &key, "--relays", "127.0.0.1:9"][..],
        &["send", "album", "--to", &at, "--key", &key, "--relays", "127.0.0.1:9"],
        &["quic", "send", "long.bin", "--to", &at, "--key", &key],
    ] {
        let mut command = Command::new(BINARY);
        command.args(arguments).current_dir(folder.path()).env("XDG_CONFIG_HOME", SETTINGS).stdin(Stdio::null());
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(1_500));
        assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
        let interrupted = Instant::now();
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(130), "{arguments:?}: {said}");
        assert!(said.contains("was not sent") && output.stdout.is_empty(), "{arguments:?}: {said}");
        assert!(interrupted.elapsed() < Duration::from_secs(10), "{arguments:?}: {:?}", interrupted.elapsed());
        assert!(socket.recv(&mut [0; 2000]).is_err(), "{arguments:?}: somebody was disturbed");
    }
}

#[test]
fn a_code_is_printed_before_a_long_file_is_hashed_and_what_comes_after_does_not_wait_for_that() {
    let folder = tempfile::tempdir().unwrap();
    File::create(folder.path().join("long.bin")).unwrap().set_len(LENGTH).unwrap();
    let mut relay = Running::start(&["relay", "--listen", "127.0.0.1:0"]);
    let at = relay.after(" on ");
    let mut command = Command::new(BINARY);
    command.args(["send", "long.bin", "--relays", &at]).current_dir(folder.path()).env("XDG_CONFIG_HOME", SETTINGS);
    let mut sender = Running::of(command.stdin(Stdio::null()));
    let begun = Instant::now();
    let code = sender.after("code: ");
    sender.after("on the other machine: ");
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    // It waits until what is offered is known.
    let mut command = Command::new(BINARY);
    command.args(["receive", &code, "--relays", &at]).current_dir(folder.path()).env("XDG_CONFIG_HOME", SETTINGS);
    let mut receiver = Running::of(command.stdin(Stdio::null()));
    receiver.after("waiting for the sender");
    std::thread::sleep(Duration::from_millis(500));
    sender.interrupt();
    let interrupted = Instant::now();
    let (code, _, err) = sender.end();
    assert!(code == Some(130) && err.contains("nothing was sent"), "{err}");
    assert!(interrupted.elapsed() < Duration::from_secs(10), "{:?}", interrupted.elapsed());
    let (code, _, err) = receiver.end();
    assert!(code == Some(2) && err.contains("nothing was received"), "{err}");
}
