//! Hidden receivers with the real binary: an authority, relays, a receiver and senders as processes on loopback.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const BINARY: &str = env!("CARGO_BIN_EXE_anabranch");

/// What the parts have to say what is waited for: other tests run beside this one.
const PATIENCE: Duration = Duration::from_secs(120);

/// The network's first epoch lasts longer than the test.
const LONGEST: u64 = 600;

/// A process whose lines are read; it is killed when this is dropped.
struct Part {
    child: Child,
    lines: Receiver<String>,
}

impl Part {
    fn start(command: &mut Command) -> Part {
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
        let (sender, lines) = channel();
        let out: Box<dyn Read + Send> = Box::new(child.stdout.take().expect("it is piped"));
        let err: Box<dyn Read + Send> = Box::new(child.stderr.take().expect("it is piped"));
        for stream in [out, err] {
            let sender = sender.clone();
            std::thread::spawn(move || {
                for line in BufReader::new(stream).lines().map_while(Result::ok) {
                    if sender.send(line).is_err() {
                        return;
                    }
                }
            });
        }
        Part { child, lines }
    }

    /// The next line that contains `text`.
    fn line(&self, text: &str) -> String {
        let (begun, mut seen) = (Instant::now(), Vec::new());
        while begun.elapsed() < PATIENCE {
            match self.lines.recv_timeout(Duration::from_millis(200)) {
                Ok(line) if line.contains(text) => return line,
                Ok(line) => seen.push(line),
                Err(std::sync::mpsc::RecvTimeoutError::Timeout) => {}
                Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => break,
            }
        }
        panic!("it did not say {text:?}, but {seen:?}");
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id() as i32), signal).expect("it is there");
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A network on loopback.
struct Network {
    folder: tempfile::TempDir,
    file: PathBuf,
    _parts: Vec<Part>,
}

/// An epoch's length with which one begins in some seconds, and the next not before the test is over.
fn epoch() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is after 1970").as_secs();
    let begins = (now + 9..now + 20).flat_map(|at| (LONGEST..=3600).map(move |length| (at, length)));
    begins.into_iter().find(|(at, length)| at % length == 0).map_or(LONGEST, |(_, length)| length)
}

impl Network {
    fn start(relays: u8) -> Network {
        let folder = tempfile::tempdir().expect("a folder");
        let state = |name: String| folder.path().join(name);
        let file = folder.path().join("network.toml");
        let at = TcpListener::bind("127.2.0.1:0").and_then(|listener| listener.local_addr()).expect("a free port");
        let key = Command::new(BINARY)
            .args(["onion", "authority", "--state"])
            .arg(state("authority".into()))
            .output()
            .expect("it runs");
        let key = String::from_utf8_lossy(&key.stdout).trim().to_owned();
        let text = format!(
            "threshold = 1\nepoch_s = {}\nround_s = 0.5\n\n[[authority]]\nkey = \"{key}\"\naddress = \"{at}\"\n",
            epoch()
        );
        fs::write(&file, text).expect("it is written");
        let onion = |verb: &str, name: String| {
            let mut command = Command::new(BINARY);
            command.args(["onion", verb, "--network"]).arg(&file).arg("--state").arg(state(name));
            command
        };
        let mut parts = vec![Part::start(&mut onion("authority", "authority".into()))];
        for number in 0..relays {
            let host = SocketAddr::from(([127, 2, number + 1, 1], 0));
            let listen = UdpSocket::bind(host).and_then(|socket| socket.local_addr()).expect("a free port");
            let mut command = onion("relay", format!("relay-{number}"));
            command.arg("--listen").arg(listen.to_string()).args(["--limit", "100 MB/s"]);
            parts.push(Part::start(&mut command));
        }
        Network { folder, file, _parts: parts }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn onion(&self, verb: &str, state: &str) -> Command {
        let mut command = Command::new(BINARY);
        command.args(["onion", verb, "--network"]).arg(&self.file).arg("--state").arg(self.path(state));
        command
    }

    fn receive(&self, into: &Path, more: &[&str]) -> (Part, String) {
        let mut command = self.onion("receive", "receiver");
        let part = Part::start(command.arg("--dir").arg(into).args(more));
        let line = part.line("address ");
        let address = line.trim_start_matches("address ").to_owned();
        part.line("ready");
        (part, address)
    }

    fn send(&self, file: &Path, address: &str) -> Command {
        let mut command = self.onion("send", "sender");
        command.arg(file).arg(address).arg("--json");
        command
    }
}

fn content(length: usize) -> Vec<u8> {
    (0..length as u64).map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

/// Waits until this much has come of a file that is not whole.
fn wait_for_part(into: &Path, bytes: u64) {
    let part = || {
        let names = fs::read_dir(into).unwrap().flatten();
        let of = names.filter(|entry| entry.file_name().to_string_lossy().ends_with(".part"));
        of.filter_map(|entry| entry.metadata().ok()).map(|metadata| metadata.len()).sum::<u64>()
    };
    let begun = Instant::now();
    while part() < bytes {
        assert!(begun.elapsed() < PATIENCE, "{} bytes have come", part());
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn summary(output: &Output) -> serde_json::Value {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|why| panic!("{why}: {stderr}"))
}

#[test]
fn files_go_to_a_key_and_a_sender_that_was_killed_goes_on() {
    let network = Network::start(12);
    let into = network.path("received");
    let (receiver, address) = network.receive(&into, &[]);
    assert_eq!(address.len(), 68, "{address}");

    let small = network.path("note.txt");
    fs::write(&small, content(70_000)).unwrap();
    let sent = summary(&network.send(&small, &address).output().unwrap());
    assert!(sent["outcome"] == "sent" && sent["name"] == "note.txt" && sent["bytes"] == 70_000, "{sent}");
    assert!(receiver.line("received ").contains("note.txt, 70000 bytes, hash right"));
    assert_eq!(fs::read(into.join("note.txt")).unwrap(), content(70_000));

    // A folder comes as an archive, and what is there is not replaced.
    let album = network.path("album");
    fs::create_dir(&album).unwrap();
    fs::write(album.join("a"), content(1000)).unwrap();
    let sent = summary(&network.send(&album, &address).output().unwrap());
    assert!(sent["name"] == "album.tar" && sent["files"] == 1, "{sent}");
    let again = summary(&network.send(&small, &address).output().unwrap());
    assert_ne!(again["name"], "note.txt");
    assert_eq!(fs::read(into.join(again["name"].as_str().unwrap())).unwrap(), content(70_000));

    let large = network.path("film.mkv");
    fs::write(&large, content(12_000_000)).unwrap();
    let first = Part::start(&mut network.send(&large, &address));
    receiver.line("receiving film.mkv");
    // Some of it comes; then its sender is gone without a word.
    wait_for_part(&into, 2_000_000);
    first.signal(Signal::SIGKILL);
    drop(first);
    let sent = summary(&network.send(&large, &address).output().unwrap());
    assert!(sent["resumed_bytes"].as_u64().unwrap() >= 1_000_000, "{sent}");
    assert_eq!(fs::read(into.join("film.mkv")).unwrap(), content(12_000_000));

    // Nobody has this address, and the one who has the other goes.
    let nobody = network.onion("receive", "nobody").arg("--dir").arg(network.path("nothing")).output_of_start();
    let output = network.send(&small, &nobody).args(["--patience", "12"]).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("note.txt was not sent: nobody receives under this address now"), "{stderr}");
    receiver.signal(Signal::SIGINT);
    let mut receiver = receiver;
    assert_eq!(receiver.child.wait().unwrap().code(), Some(0));
    let left: Vec<_> = fs::read_dir(&into).unwrap().flatten().map(|entry| entry.file_name()).collect();
    assert_eq!(left.len(), 4, "nothing half-written is left: {left:?}");
}

#[test]
fn a_receiver_of_one_file_ends_as_one_over_relays_does() {
    let network = Network::start(12);
    let into = network.path("received");
    let (mut receiver, address) = network.receive(&into, &["--once", "--json"]);
    let small = network.path("note.txt");
    fs::write(&small, content(70_000)).unwrap();
    summary(&network.send(&small, &address).output().unwrap());
    let said: serde_json::Value = serde_json::from_str(&receiver.line("\"outcome\"")).unwrap();
    assert_eq!(receiver.child.wait().unwrap().code(), Some(0), "{said}");
    assert_eq!((&said["outcome"], &said["address"]), (&"received".into(), &address.into()), "{said}");
    assert_eq!((&said["files"], &said["bytes"]), (&1.into(), &70_000.into()), "{said}");
    let path = into.join("note.txt").display().to_string();
    assert_eq!(said["received"], serde_json::json!([{ "path": path, "bytes": 70_000 }]), "{said}");
    assert!(said["seconds"].as_f64().is_some_and(|seconds| seconds > 0.0), "{said}");

    // Its sender gives it up half-way.
    let (mut receiver, address) = network.receive(&into, &["--once", "--json"]);
    let large = network.path("film.mkv");
    fs::write(&large, content(12_000_000)).unwrap();
    let sender = Part::start(&mut network.send(&large, &address));
    receiver.line("receiving film.mkv");
    wait_for_part(&into, 500_000);
    sender.signal(Signal::SIGINT);
    receiver.line("the file did not arrive: the sender has given up");
    assert_eq!(receiver.child.wait().unwrap().code(), Some(2));
    let left: Vec<_> = fs::read_dir(&into).unwrap().flatten().map(|entry| entry.file_name()).collect();
    assert_eq!(left, ["note.txt"], "nothing half-written is left");
}

/// The address that a receiver prints, which is then killed.
trait AddressAlone {
    fn output_of_start(&mut self) -> String;
}

impl AddressAlone for Command {
    fn output_of_start(&mut self) -> String {
        let part = Part::start(self);
        part.line("address ").trim_start_matches("address ").to_owned()
    }
}

#[test]
fn what_is_wrong_is_reported_before_anything_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let (file, state) = (folder.path().join("network.toml"), folder.path().join("state"));
    let key = "07".repeat(32);
    fs::write(&file, format!("[[authority]]\nkey = \"{key}\"\naddress = \"127.0.0.1:7\"\n")).unwrap();
    let mistyped = format!("{}0000", "ab".repeat(32));
    let there = file.display().to_string();
    let wrong: [(&[&str], &str); 5] = [
        (&["send", &there, "abc"], "an address has 68 hexadecimal digits"),
        (&["send", &there, &mistyped], "mistyped"),
        (&["send", "nosuch-file", &"0".repeat(68)], "the address"),
        (&["receive", "--placement", "nosuch"], "--placement nosuch: "),
        (&["receive", "--guards", "99"], "--guards"),
    ];
    for (arguments, words) in wrong {
        let mut command = Command::new(BINARY);
        command.arg("onion").args(arguments).arg("--network").arg(&file).arg("--state").arg(&state);
        command.current_dir(folder.path());
        let output = command.output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains(words), "{arguments:?}: {stderr}");
        assert!(!state.exists(), "nothing is left of {arguments:?}");
    }
}
