//! `anabranch quic` end to end: a receiver and a sender as processes on 127.0.0.1.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::UdpSocket;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};

use anabranch_control::policy::{Activation, Layer, Policy};
use anabranch_scenario::policy::flow::{FlowPurpose, SavedFlow};

use crate::common::running::{Running, SETTINGS};

const BINARY: &str = env!("CARGO_BIN_EXE_anabranch");

/// The base point of Curve25519: a key, and nobody's here.
const OTHER_KEY: &str = "0900000000000000000000000000000000000000000000000000000000000000";

/// A receiver that ends with this value.
struct Receiver {
    child: Child,
    lines: BufReader<ChildStdout>,
    address: String,
    key: String,
}

impl Receiver {
    fn start(folder: &Path, more: &[&str]) -> Receiver {
        let mut child = Command::new(BINARY)
            .args(["quic", "receive", "--listen", "127.0.0.1:0", "--out", "in"])
            .args(more)
            .current_dir(folder)
            .env("XDG_CONFIG_HOME", SETTINGS)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary was built for this test");
        let lines = BufReader::new(child.stdout.take().expect("its standard output is a pipe"));
        let mut receiver = Receiver { child, lines, address: String::new(), key: String::new() };
        receiver.address = receiver.after("receiving on ");
        receiver.key = receiver.after("public key ");
        receiver
    }

    /// What follows `before` on the next line.
    fn after(&mut self, before: &str) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        line.strip_prefix(before).unwrap_or_else(|| panic!("no {before:?} in {line:?}")).trim().to_owned()
    }

    /// Its exit code, and the rest of what it said.
    fn end(mut self) -> (Option<i32>, String, String) {
        let code = ended(&mut self.child);
        let (mut out, mut err) = (String::new(), String::new());
        self.lines.read_to_string(&mut out).unwrap();
        self.child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
        (code, out, err)
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        // It has ended already where the test got that far.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn ended(child: &mut Child) -> Option<i32> {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code();
        }
        assert!(Instant::now() < deadline, "it does not end");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Sends an interrupt, as Ctrl-C does.
fn interrupt(child: &Child) {
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
}

fn send(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(BINARY);
    command.args(["quic", "send"]).args(arguments).current_dir(folder).env("XDG_CONFIG_HOME", SETTINGS);
    command.output().unwrap()
}

/// Refused with code 2 and this message.
fn refused(folder: &Path, arguments: &[&str]) -> String {
    let output = send(folder, arguments);
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {message}");
    assert!(output.stdout.is_empty() && !message.contains("panicked"), "{message}");
    message
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// A network that goes by one round trip of ten: `p.safetensors` and `p.json`, as training writes them.
fn write_policy(folder: &Path) {
    let mut weights = vec![0.0; 30];
    weights[1] = -10.0;
    let layers = vec![Layer { weights, biases: vec![11.0] }];
    let policy = Policy::new(layers, Activation::Tanh, vec![0.0; 30], vec![1.0; 30]).unwrap();
    let policy = policy.with_known(vec![-1.0; 30], vec![10.0; 30]).unwrap();
    let saved = SavedFlow { policy, purpose: FlowPurpose::aurora(), trained: serde_json::Value::Null };
    saved.save(&folder.join("p.safetensors")).unwrap();
}

fn content(length: usize) -> Vec<u8> {
    (0..length).map(|i| (i * i / 7 + i / 251) as u8).collect()
}

#[test]
fn a_file_arrives_whole_under_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let file = content(3_000_000);
    fs::write(path.join("photo.jpg"), &file).unwrap();
    let receiver = Receiver::start(path, &["--once"]);
    let (to, key) = (receiver.address.clone(), receiver.key.clone());
    let arguments = ["photo.jpg", "--to", &to, "--key", &key, "--controller", "copa"];
    let sent = send(path, &[&arguments[..], &["--set", "delta=0.4", "--max-window", "2000000"]].concat());
    let (out, err) = (String::from_utf8_lossy(&sent.stdout), String::from_utf8_lossy(&sent.stderr));
    if sent.status.code() != Some(0) {
        interrupt(&receiver.child);
        panic!("{out} {err}, and the receiver: {:?}", receiver.end());
    }
    assert!(err.is_empty(), "progress is for terminals: {err}");
    for says in ["as photo.jpg: 3000000 bytes", "Mbit/s with copa", "lost; round trip"] {
        assert!(out.contains(says), "no {says:?} in {out}");
    }
    let (code, out, err) = receiver.end();
    assert_eq!((code, err.as_str()), (Some(0), ""), "{out}");
    assert!(out.contains("in/photo.jpg, 3000000 bytes, hash right"), "{out}");
    assert!(fs::read(path.join("in/photo.jpg")).unwrap() == file, "the file differs");
    assert_eq!(names(&path.join("in")), ["photo.jpg"]);
}

#[test]
fn json_says_what_came_and_all_else_is_said_on_standard_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    fs::write(path.join("a.bin"), content(100_000)).unwrap();
    let listen = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let arguments = ["quic", "receive", "--listen", &listen, "--out", "in", "--once", "--json"];
    let mut command = Command::new(BINARY);
    let receiver = Running::of(command.args(arguments).current_dir(path).env("XDG_CONFIG_HOME", SETTINGS));
    let sent = send(path, &["a.bin", "--to", &listen, "--insecure", "--json"]);
    let err = String::from_utf8_lossy(&sent.stderr).into_owned();
    assert_eq!(sent.status.code(), Some(0), "{err}");
    let sent: serde_json::Value = serde_json::from_slice(&sent.stdout).expect("one object and nothing else");
    let whole = serde_json::json!({ "outcome": "sent", "names": ["a.bin"], "files": 1, "bytes": 100_000,
        "travelled_bytes": 100_000, "resumed_bytes": 0, "name": "a.bin", "to": listen, "controller": "cubic" });
    for (key, value) in whole.as_object().unwrap() {
        assert_eq!(sent[key], *value, "{key}: {sent}");
    }
    for key in ["seconds", "bytes_per_second", "packets", "round_trip_ms", "least_round_trip_ms"] {
        assert!(sent[key].as_f64() > Some(0.0), "{key}: {sent}");
    }
    assert!(sent["lost_packets"].is_u64(), "{sent}");
    let (code, out, err) = receiver.end();
    assert_eq!(code, Some(0), "{err}");
    assert!(err.contains("receiving on ") && err.contains("received in/a.bin, 100000 bytes"), "{err}");
    let mut got: serde_json::Value = serde_json::from_str(&out).expect("one object and nothing else");
    assert!(got["seconds"].take().as_f64() >= Some(0.0), "{out}");
    let received = [serde_json::json!({ "path": "in/a.bin", "bytes": 100_000 })];
    let whole = serde_json::json!({
        "outcome": "received", "received": received, "files": 1, "bytes": 100_000, "seconds": null,
    });
    assert_eq!(got, whole);
}

#[test]
fn who_finds_no_place_waits_and_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    fs::write(path.join("long.bin"), content(20_000_000)).unwrap();
    fs::write(path.join("a"), content(1000)).unwrap();
    let receiver = Receiver::start(path, &[]);
    let (to, key) = (receiver.address.clone(), receiver.key.clone());
    let start = |arguments: &[&str]| {
        let mut command = Command::new(BINARY);
        command.args(["quic", "send"]).args(arguments).args(["--to", &to, "--key", &key]).current_dir(path);
        Running::of(command.env("XDG_CONFIG_HOME", path.join("nobody")))
    };
    // One address has four places.
    let slow: Vec<Running> = (0..4).map(|_| start(&["long.bin", "--fixed-window", "1500"])).collect();
    let begun = || names(&path.join("in")).iter().filter(|name| name.ends_with(".part")).count();
    let deadline = Instant::now() + Duration::from_secs(30);
    while begun() < 4 {
        assert!(Instant::now() < deadline, "{:?}", names(&path.join("in")));
        std::thread::sleep(Duration::from_millis(20));
    }
    let mut waiting = start(&["a"]);
    assert_eq!(waiting.after("waiting, place "), "1: the receiver takes others' files first");
    slow[0].interrupt();
    let (code, out, err) = waiting.end();
    assert!(code == Some(0) && out.contains("sent a to "), "{out} {err}");
    drop((slow, receiver));
}

#[test]
fn files_follow_each_other_and_replace_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    fs::write(path.join("a"), content(100_000)).unwrap();
    fs::write(path.join("empty"), "").unwrap();
    let receiver = Receiver::start(path, &[]);
    let (to, key) = (receiver.address.clone(), receiver.key.clone());
    for (file, name) in [("a", "a"), ("a", "a (1)"), ("empty", "empty")] {
        let sent = send(path, &[file, "--to", &to, "--key", &key]);
        let out = String::from_utf8_lossy(&sent.stdout);
        assert!(out.contains(&format!("as {name}: ")), "{out} {}", String::from_utf8_lossy(&sent.stderr));
    }
    let sent = send(path, &["a", "--to", &to, "--insecure"]);
    assert_eq!(sent.status.code(), Some(0));
    assert!(String::from_utf8_lossy(&sent.stderr).contains("whoever answers"));
    interrupt(&receiver.child);
    assert_eq!(receiver.end().0, Some(0));
    assert_eq!(names(&path.join("in")), ["a", "a (1)", "a (2)", "empty"]);
}

#[test]
fn a_stranger_gets_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    fs::write(path.join("a"), "secret").unwrap();
    let receiver = Receiver::start(path, &[]);
    let to = receiver.address.clone();
    let message = refused(path, &["a", "--to", &to, "--key", OTHER_KEY]);
    assert!(message.contains(&receiver.key) && message.contains("not the expected one"), "{message}");
    let message = refused(path, &["a", "--to", &to]);
    assert!(message.contains("--key"), "{message}");
    assert!(names(&path.join("in")).is_empty());
}

#[test]
fn a_receiver_is_known_by_the_key_that_it_has_over_relays_and_takes_files_of_whom_it_knows() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    fs::write(path.join("a"), "content").unwrap();
    let key_in = |file: &str| {
        let output = Command::new(BINARY).args(["key", "--identity", file]).current_dir(path).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    let (own, friend, stranger) = (key_in("own.key"), key_in("friend.key"), key_in("stranger.key"));
    let receiver = Receiver::start(path, &["--identity", "own.key", "--allow", &friend, "--max-total", "7"]);
    assert_eq!(receiver.key, own, "and `receive --listen` prints the same");
    let to = receiver.address.clone();
    let file = ["a", "--to", &to];
    let unknown = refused(path, &[&file, &["--key", &own, "--identity", "stranger.key"][..]].concat());
    assert!(unknown.contains("refuses the file") && unknown.contains(&format!("{stranger} is not")), "{unknown}");
    // Nobody else learns who sends.
    let nobody = refused(path, &[&file, &["--insecure"][..]].concat());
    assert!(nobody.contains("this one has shown none"), "{nobody}");
    let both = refused(path, &[&file, &["--insecure", "--identity", "friend.key"][..]].concat());
    assert!(both.contains("shown to nobody but the holder of the key"), "{both}");
    let by_friend = [&file, &["--key", &own, "--identity", "friend.key"][..]].concat();
    let sent = send(path, &by_friend);
    assert_eq!(sent.status.code(), Some(0), "{}", String::from_utf8_lossy(&sent.stderr));
    let full = refused(path, &by_friend);
    assert!(full.contains("at most 7 bytes"), "{full}");
    assert_eq!(names(&path.join("in")), ["a"]);
}

#[test]
fn an_interrupt_on_either_side_leaves_nothing_half_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    fs::write(path.join("long.bin"), content(50_000_000)).unwrap();
    for sender_ends in [true, false] {
        let mut receiver = Receiver::start(path, &["--once"]);
        let (to, key) = (receiver.address.clone(), receiver.key.clone());
        // A packet at a time: it takes longer than anybody waits.
        let mut sender = Command::new(BINARY)
            .args(["quic", "send", "long.bin", "--to", &to, "--key", &key])
            .args(["--fixed-window", "1500"])
            .current_dir(path)
            .env("XDG_CONFIG_HOME", SETTINGS)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        assert_eq!(receiver.after("receiving "), "long.bin, 50.00 MB");
        // `--once` is about it when something of it has come.
        let has_come = || {
            let entries = fs::read_dir(path.join("in")).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len());
            entries.sum::<u64>() > 0
        };
        while !has_come() {
            std::thread::sleep(Duration::from_millis(10));
        }
        interrupt(if sender_ends { &sender } else { &receiver.child });
        let mut said = String::new();
        sender.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert_eq!(ended(&mut sender), Some(if sender_ends { 130 } else { 2 }), "{said}");
        assert!(said.contains("was not sent"), "{said}");
        assert!(sender_ends || said.contains("the other side has closed it: given up by the receiver"), "{said}");
        let (code, out, err) = receiver.end();
        assert_eq!(code, Some(if sender_ends { 2 } else { 130 }), "{err}");
        assert!(!sender_ends || (out + &err).contains("the other side has closed it: given up by the sender"), "{err}");
        assert!(names(&path.join("in")).is_empty(), "nothing half-written stays");
    }
}

/// Who breaks off the handshake, and whose file is refused, are strangers to it.
#[test]
fn once_outlasts_strangers() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    fs::write(path.join("long"), content(1001)).unwrap();
    fs::write(path.join("short"), content(1000)).unwrap();
    let receiver = Receiver::start(path, &["--once", "--max-bytes", "1000"]);
    let (to, key) = (receiver.address.clone(), receiver.key.clone());
    let stranger = refused(path, &["short", "--to", &to, "--key", OTHER_KEY]);
    assert!(stranger.contains("not the expected one"), "{stranger}");
    let refused = refused(path, &["long", "--to", &to, "--key", &key]);
    assert!(refused.contains("1000 are taken"), "{refused}");
    let sent = send(path, &["short", "--to", &to, "--key", &key]);
    assert_eq!(sent.status.code(), Some(0), "{}", String::from_utf8_lossy(&sent.stderr));
    let (code, out, err) = receiver.end();
    assert_eq!(code, Some(0), "{out} {err}");
    assert!(out.contains("in/short, 1000 bytes, hash right"), "{out}");
    assert_eq!(names(&path.join("in")), ["short"]);
}

#[test]
fn a_file_that_is_too_long_is_refused_with_the_receivers_words() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    fs::write(path.join("a"), content(1001)).unwrap();
    let receiver = Receiver::start(path, &["--max-bytes", "1000"]);
    let (to, key) = (receiver.address.clone(), receiver.key.clone());
    let message = refused(path, &["a", "--to", &to, "--key", &key]);
    assert!(message.contains("1001 bytes; 1000 are taken"), "{message}");
}

#[test]
fn wrong_input_gets_one_message_and_exit_code_2() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    fs::write(path.join("file"), "content").unwrap();
    let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let key = OTHER_KEY.to_owned();
    let sends = |more: &[&str]| refused(path, &[&["--to", "127.0.0.1:9", "--key", &key][..], more].concat());
    for (message, says) in [
        (sends(&["missing"]), "cannot read missing"),
        (sends(&["."]), "not a plain file"),
        (sends(&["file", "--controller", "cobic"]), "did you mean \"cubic\"?"),
        (sends(&["file", "--controller", "remy"]), "--set file=FILE"),
        (sends(&["file", "--set", "beta=3"]), "controller \"cubic\": beta = 3 is not between"),
        (sends(&["file", "--set", "beta"]), "key=value"),
        (sends(&["file", "--max-window", "0"]), "--max-window 0"),
        (sends(&["file", "--min-window", "9000", "--fixed-window", "8000"]), "'--min-window <BYTES>'"),
        (sends(&["file", "--min-window", "9000", "--max-window", "8000"]), "more than --max-window 8000"),
        (sends(&["file", "--insecure"]), "cannot be used with"),
        (refused(path, &["file", "--to", "127.0.0.1:9", "--key", "12"]), "64 hexadecimal digits"),
        (refused(path, &["file", "--to", "127.0.0.1:9", "--key", &"0".repeat(64)]), "nobody can have it"),
        (sends(&["file", "--identity", "missing.key"]), "there is no key missing.key"),
        (refused(path, &["file", "--to", "127.0.0.1", "--insecure"]), "127.0.0.1"),
        (refused(path, &["file", "--to", "127.0.0.1:0", "--key", &key]), "has port 0"),
    ] {
        assert!(message.contains(says), "no {says:?} in {message:?}");
    }
    for (arguments, says) in [
        (["--listen", taken.as_str(), "--out", "in"], "cannot use"),
        (["--listen", "127.0.0.1:0", "--out", "file"], "cannot keep files in file"),
    ] {
        let mut command = Command::new(BINARY);
        command.args(["quic", "receive"]).args(arguments).current_dir(path).env("XDG_CONFIG_HOME", SETTINGS);
        let output = command.output().unwrap();
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(message.contains(says), "no {says:?} in {message:?}");
    }
}

/// Names have addresses of two families, of which the receiver listens at one.
#[test]
fn a_receiver_is_found_by_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    fs::write(path.join("a.bin"), content(10_000)).unwrap();
    let receiver = Receiver::start(path, &["--once"]);
    let port = receiver.address.rsplit_once(':').unwrap().1.to_owned();
    let sent = send(path, &["a.bin", "--to", &format!("localhost:{port}"), "--key", &receiver.key]);
    assert_eq!(sent.status.code(), Some(0), "{}", String::from_utf8_lossy(&sent.stderr));
    assert_eq!(fs::read(path.join("in/a.bin")).unwrap(), content(10_000));
    let unknown = send(path, &["a.bin", "--to", "nowhere.invalid:4433", "--insecure"]);
    let said = String::from_utf8_lossy(&unknown.stderr).into_owned();
    assert!(unknown.status.code() == Some(2) && said.contains("nowhere.invalid has no address"), "{said}");
}

#[test]
fn a_policy_from_its_file_sends_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    write_policy(path);
    let file = content(1_000_000);
    fs::write(path.join("a.bin"), &file).unwrap();
    let receiver = Receiver::start(path, &["--once"]);
    let (to, key) = (receiver.address.clone(), receiver.key.clone());
    let arguments = ["a.bin", "--to", &to, "--key", &key, "--controller", "policy", "--set"];
    let none = send(path, &[&arguments[..], &["file=none.safetensors"]].concat());
    let said = String::from_utf8_lossy(&none.stderr).into_owned();
    assert!(none.status.code() == Some(2) && said.contains("none.json"), "{said}");
    let sent = send(path, &[&arguments[..], &["file=p.safetensors"]].concat());
    let (out, err) = (String::from_utf8_lossy(&sent.stdout), String::from_utf8_lossy(&sent.stderr));
    assert_eq!(sent.status.code(), Some(0), "{out} {err}");
    assert!(out.contains("with policy"), "{out}");
    assert_eq!(fs::read(path.join("in/a.bin")).unwrap(), file);
}

#[test]
fn the_benchmark_measures_each_controller_beside_the_librarys_own() {
    let output = Command::new(BINARY)
        .args(["bench", "quic", "--megabytes", "2", "--repeat", "1", "--controllers", "reno", "--json"])
        .output()
        .unwrap();
    let rows: Vec<serde_json::Value> = serde_json::from_slice(&output.stdout).unwrap();
    let names: Vec<_> = rows.iter().map(|row| (row["library"].as_str(), row["controller"].as_str())).collect();
    let expected = [("quinn", "own-cubic"), ("quinn", "reno"), ("noq", "own-cubic"), ("noq", "reno")];
    assert_eq!(names, expected.map(|(library, name)| (Some(library), Some(name))));
    for row in &rows {
        assert!(row["goodput_mbit_per_s"].as_f64() > Some(0.0) && row["processor_s_per_gb"].as_f64() > Some(0.0));
    }
}
