//! The real binary: two people who share a code, over relays on loopback.

use std::fs;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::running::{Running, SETTINGS};

const BINARY: &str = env!("CARGO_BIN_EXE_anabranch");

/// A relay, and its address.
fn relay() -> (Running, String) {
    let mut relay = Running::start(&["relay", "--listen", "127.0.0.1:0"]);
    let at = relay.after(" on ");
    (relay, at)
}

/// A process in `folder`, without a terminal.
fn start(arguments: &[&str], folder: &Path) -> Running {
    let mut command = Command::new(BINARY);
    command.args(arguments).current_dir(folder).env("XDG_CONFIG_HOME", SETTINGS).stdin(Stdio::null());
    Running::of(&mut command)
}

/// It has ended well: what it said.
fn ended(process: Running) -> String {
    let (code, out, err) = process.end();
    assert_eq!(code, Some(0), "{out} {err}");
    out
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_file_goes_to_who_types_the_code_and_nothing_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let file: Vec<u8> = (0..300_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    fs::write(path.join("photo.jpg"), &file).unwrap();
    fs::create_dir(path.join("in")).unwrap();
    fs::write(path.join("in/photo.jpg"), "mine").unwrap();
    let (relay, at) = relay();
    let mut sender = start(&["send", "photo.jpg", "--relays", &at], path);
    let code = sender.after("code: ");
    assert_eq!(code.split('-').count(), 3, "{code}");
    // What is printed is what is to be typed.
    let typed = sender.after("on the other machine: anabranch ");
    assert_eq!(typed, format!("receive {code} --relays {at}"));
    let typed: Vec<&str> = typed.split(' ').chain(["--out", "in"]).collect();
    let mut receiver = start(&typed, path);
    receiver.after("waiting for the sender");
    assert_eq!(receiver.after("offered: "), "photo.jpg, 1 file, 300.0 kB");
    assert!(ended(receiver).contains("received in/photo (1).jpg, 300000 bytes, hash right"));
    assert!(ended(sender).contains("as photo (1).jpg: 300000 bytes"));
    assert_eq!(fs::read(path.join("in/photo (1).jpg")).unwrap(), file);
    assert_eq!(fs::read(path.join("in/photo.jpg")).unwrap(), b"mine");
    assert_eq!(names(&path.join("in")), ["photo (1).jpg", "photo.jpg"]);
    relay.interrupt();
    let out = ended(relay);
    assert!(out.contains("nothing discarded"), "QUIC and what keeps NATs open are not foreign: {out}");
}

#[test]
fn a_receiver_may_come_first_and_print_the_code_and_relays_may_be_named_once_for_all() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let (_relay, at) = relay();
    let settings = path.join("settings/anabranch");
    fs::create_dir_all(&settings).unwrap();
    fs::write(settings.join("config.toml"), format!("relays = [\"{at}\"]\n")).unwrap();
    let mut command = Command::new(BINARY);
    command.args(["receive", "--out", "in"]).env("XDG_CONFIG_HOME", path.join("settings"));
    let mut receiver = Running::of(command.current_dir(path).stdin(Stdio::null()));
    let code = receiver.after("code: ");
    assert_eq!(receiver.after("anabranch "), format!("send FILE --code {code}"), "the relays need no word");
    let mut command = Command::new(BINARY);
    command.args(["send", "-", "--name", "notes.txt", "--code", &code]).env("ANABRANCH_RELAYS", &at);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"from a pipe").unwrap();
    let sent = child.wait_with_output().unwrap();
    assert!(String::from_utf8(sent.stdout).unwrap().contains("as notes.txt: 11 bytes"));
    ended(receiver);
    assert_eq!(fs::read(path.join("in/notes.txt")).unwrap(), b"from a pipe");
}

#[test]
fn a_sender_that_prefers_the_other_family_goes_over_the_receivers() {
    let found: Vec<SocketAddr> = "localhost:1".to_socket_addrs().map(Iterator::collect).unwrap_or_default();
    let Some(other) = found.iter().find(|address| address.is_ipv4() != found[0].is_ipv4()) else {
        println!("skipped: localhost has no addresses of both families here");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    fs::write(path.join("a"), vec![1; 5_000]).unwrap();
    let mut relay = Running::start(&["relay", "--listen", "[::]:0"]);
    let port: u16 = relay.after(" on [::]:").parse().unwrap();
    let code = "7-crowfoot-orlando";
    let sender = start(&["send", "a", "--code", code, "--relays", &format!("localhost:{port}")], path);
    let at = SocketAddr::new(other.ip(), port).to_string();
    let receiver = start(&["receive", code, "--relays", &at, "--out", "in"], path);
    ended(receiver);
    assert!(
        ended(sender)
            .contains(&format!("sent a to {}", SocketAddr::new(other.ip(), 1).to_string().trim_end_matches('1')))
    );
    assert_eq!(fs::read(path.join("in/a")).unwrap(), vec![1; 5_000]);
}

#[test]
fn a_receiver_that_has_the_code_may_wait_for_its_sender() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    fs::write(path.join("a"), "a").unwrap();
    let (_relay, at) = relay();
    let mut receiver = start(&["receive", "7-crowfoot-orlando", "--relays", &at, "--out", "in"], path);
    receiver.after("waiting for the sender");
    std::thread::sleep(Duration::from_millis(300));
    let sender = start(&["send", "a", "--code", "7 Crowfoot Orlando", "--relays", &at], path);
    ended(sender);
    ended(receiver);
    assert_eq!(names(&path.join("in")), ["a"]);
}

#[test]
fn a_receiver_that_waited_and_was_interrupted_may_wait_again_by_the_same_code() {
    let (_relay, at) = relay();
    let folder = tempfile::tempdir().unwrap();
    let wait = || {
        let mut receiver = start(&["receive", "4-crowfoot-orlando", "--out", "in", "--relays", &at], folder.path());
        receiver.after("waiting for the sender");
        receiver
    };
    for _ in 0..2 {
        let receiver = wait();
        receiver.interrupt();
        let (code, out, err) = receiver.end();
        assert_eq!(code, Some(130), "{out} {err}");
    }
    wait();
}

#[test]
fn a_wrong_guess_burns_the_code_and_the_sender_has_another() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    fs::write(path.join("a"), "a").unwrap();
    let (_relay, at) = relay();
    let mut sender = start(&["send", "a", "--relays", &at], path);
    let code = sender.after("code: ");
    sender.after("on the other machine: ");
    let number = code.split('-').next().unwrap();
    let guess = if code.ends_with("-orlando") { "crowfoot-pandora" } else { "crowfoot-orlando" };
    let guessed = start(&["receive", &format!("{number}-{guess}"), "--relays", &at, "--out", "in"], path);
    let (status, _, err) = guessed.end();
    assert_eq!(status, Some(2));
    assert!(err.contains("the words are not those of the other side"), "{err}");
    assert!(!path.join("in").exists(), "nothing is made for nobody");
    sender.after("that code is burnt, here is a new one");
    let second = sender.after("code: ");
    assert_ne!(second, code);
    // The old one is of no use any more, even with the right words.
    let late = start(&["receive", &second, "--relays", &at, "--out", "in"], path);
    ended(late);
    ended(sender);
    assert_eq!(fs::read(path.join("in/a")).unwrap(), b"a");

    // A code that somebody has chosen is not replaced.
    let sender = start(&["send", "a", "--code", "7-crowfoot-orlando", "--relays", &at], path);
    let guess = start(&["receive", "7-crowfoot-pandora", "--relays", &at, "--out", "in"], path);
    assert_eq!(guess.end().0, Some(2));
    let (status, _, err) = sender.end();
    assert!(status == Some(2) && err.contains("a was not sent: the words are not those"), "{err}");
}

#[test]
fn folders_and_files_arrive_as_they_were_and_json_says_what_came() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    fs::create_dir_all(path.join("album/sub/empty")).unwrap();
    fs::write(path.join("album/one"), vec![1; 70_000]).unwrap();
    fs::write(path.join("album/sub/.two"), "2").unwrap();
    fs::write(path.join("three"), "3").unwrap();
    std::os::unix::fs::symlink("/etc/passwd", path.join("album/link")).unwrap();
    fs::create_dir_all(path.join("in/album")).unwrap();
    let (relay, at) = relay();
    let send = ["send", "album", "three", "--code", "7-crowfoot-orlando", "--relays", &at, "--json"];
    let sender = start(&send, path);
    let receive = ["receive", "7-crowfoot-orlando", "--relays", &at, "--out", "in", "--json", "--yes"];
    let receiver = start(&receive, path);
    let (status, out, err) = receiver.end();
    assert_eq!(status, Some(0), "{err}");
    let got: serde_json::Value = serde_json::from_str(&out).expect("one object and nothing else");
    assert_eq!(got["outcome"], "received");
    assert_eq!(got["paths"], serde_json::json!(["in/album (1)", "in/three"]));
    assert_eq!((got["files"].as_u64(), got["bytes"].as_u64()), (Some(3), Some(70_002)));
    assert!(got["travelled_bytes"].as_u64() > Some(70_002) && got["seconds"].as_f64() >= Some(0.0));
    assert!(err.contains("offered: album, three, 3 files, 70.0 kB"), "{err}");
    let (status, out, err) = sender.end();
    assert_eq!(status, Some(0), "{err}");
    let sent: serde_json::Value = serde_json::from_str(&out).expect("one object and nothing else");
    assert_eq!(sent["outcome"], "sent");
    assert_eq!(sent["names"], serde_json::json!(["album", "three"]));
    assert_eq!(sent["bytes"], got["bytes"]);
    assert!(sent["packets"].as_u64() >= Some(54) && sent["bytes_per_second"].as_f64() > Some(0.0));
    assert!(err.contains("1 are left out") && err.contains("code: 7-crowfoot-orlando"), "{err}");
    assert_eq!(names(&path.join("in")), ["album", "album (1)", "three"]);
    assert_eq!(names(&path.join("in/album (1)")), ["one", "sub"]);
    assert_eq!(names(&path.join("in/album (1)/sub")), [".two", "empty"]);
    assert_eq!(fs::read(path.join("in/album (1)/one")).unwrap(), vec![1; 70_000]);
    drop(relay);
    let relay = start(&["relay", "--listen", "127.0.0.1:0", "--json", "--log", "off"], path);
    std::thread::sleep(Duration::from_millis(500));
    relay.interrupt();
    let (_, out, _) = relay.end();
    let did: serde_json::Value = serde_json::from_str(&out).expect("one object and nothing else");
    assert_eq!((did["outcome"].as_str(), did["forwarded_datagrams"].as_u64()), (Some("relayed"), Some(0)));
    assert_eq!(did["discarded_datagrams"]["foreign"], 0);
}

#[test]
fn at_an_address_json_says_what_came_and_an_archive_stays_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    fs::create_dir(path.join("album")).unwrap();
    fs::write(path.join("album/one"), "1").unwrap();
    let (_relay, at) = relay();
    let listen = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let receiver = start(&["receive", "--listen", &listen, "--out", "in", "--once", "--json"], path);
    let sender = start(&["send", "album", "--to", &listen, "--relays", &at, "--insecure", "--json"], path);
    let (status, out, err) = receiver.end();
    assert!(status == Some(0) && err.contains("public key "), "{err}");
    let got: serde_json::Value = serde_json::from_str(&out).expect("one object and nothing else");
    assert_eq!((got["outcome"].as_str(), got["files"].as_u64()), (Some("received"), Some(1)));
    assert_eq!(got["received"][0]["path"], "in/album.tar");
    let sent: serde_json::Value = serde_json::from_str(&ended(sender)).expect("one object and nothing else");
    assert_eq!((sent["name"].as_str(), sent["to"].as_str()), (Some("album.tar"), Some(&listen[..])));
    assert_eq!((sent["bytes"].as_u64(), &sent["travelled_bytes"]), (Some(1), &got["bytes"]));
}

#[test]
fn a_transfer_that_is_interrupted_or_refused_leaves_the_folder_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    fs::create_dir(path.join("album")).unwrap();
    fs::write(path.join("album/long"), vec![7; 20_000_000]).unwrap();
    fs::create_dir(path.join("in")).unwrap();
    fs::write(path.join("in/before"), "b").unwrap();
    let (_relay, at) = relay();
    let slow = ["--upload", "1 MB/s"];
    for (what, interrupted) in
        [("album", "sender"), ("album", "receiver"), ("album/long", "sender"), ("album/long", "receiver")]
    {
        let send = ["send", what, "--code", "7-crowfoot-orlando", "--relays", &at];
        let sender = start(&[&send[..], &slow].concat(), path);
        let mut receiver = start(&["receive", "7-crowfoot-orlando", "--relays", &at, "--out", "in"], path);
        receiver.after("waiting for the sender");
        receiver.after("offered: ");
        // It is on its way, hidden, for twenty seconds from when a busy machine has made the session.
        let patience = Instant::now() + Duration::from_secs(60);
        while names(&path.join("in")).len() < 2 && Instant::now() < patience {
            std::thread::sleep(Duration::from_millis(50));
        }
        std::thread::sleep(Duration::from_millis(500));
        // With or without journals: the next is written beside the one that is there.
        let there = names(&path.join("in"));
        let files = there.iter().filter(|name| !name.contains(".journal")).count();
        assert!(files == 2 && there.len() <= 4, "it is on its way, hidden: {there:?}");
        if interrupted == "sender" {
            sender.interrupt()
        } else {
            receiver.interrupt()
        }
        let (code, _, err) = receiver.end();
        assert_ne!(code, Some(0), "{err}");
        let (code, _, err) = sender.end();
        assert_ne!(code, Some(0), "{err}");
        // Not that nothing was heard of it for half a minute.
        let is_told = err.contains("the receiver refuses the file: it was interrupted");
        assert_eq!(is_told, interrupted == "receiver", "{err}");
        assert_eq!(names(&path.join("in")), ["before"], "{what}: {interrupted}");
    }
    for (more, says) in [
        (["--max-bytes", "1000000"], "1000000 are taken (--max-bytes)"),
        (["--max-total", "20000000"], "the folder is full: at most 20000000 bytes are kept"),
    ] {
        let sender = start(&["send", "album", "--code", "8-crowfoot-orlando", "--relays", &at], path);
        let receive = ["receive", "8-crowfoot-orlando", "--relays", &at, "--out", "in"];
        let (code, _, err) = start(&[&receive[..], &more].concat(), path).end();
        assert!(code == Some(2) && err.contains(says), "{err}");
        let (code, _, err) = sender.end();
        assert!(code == Some(2) && err.contains("the receiver says no") && err.contains(says), "{err}");
        assert_eq!(names(&path.join("in")), ["before"]);
    }
}

#[test]
fn a_file_that_becomes_shorter_is_said_to_have_changed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    fs::write(path.join("log"), vec![7; 20_000_000]).unwrap();
    let (_relay, at) = relay();
    let slow = ["--upload", "1 MB/s"];
    let send = ["send", "log", "--code", "7-crowfoot-orlando", "--relays", &at];
    let sender = start(&[&send[..], &slow].concat(), path);
    let mut receiver = start(&["receive", "7-crowfoot-orlando", "--relays", &at, "--out", "in"], path);
    receiver.after("waiting for the sender");
    receiver.after("offered: ");
    receiver.after("receiving log");
    fs::write(path.join("log"), "rotated").unwrap();
    let (code, _, err) = sender.end();
    assert!(code == Some(2) && err.contains("the file has become shorter while it was sent"), "{err}");
    let (code, _, err) = receiver.end();
    assert!(code == Some(2) && err.contains("the sender has given up"), "{err}");
    assert!(names(&path.join("in")).is_empty());
}

#[test]
fn a_receiver_whose_disk_is_full_says_that_and_nothing_of_the_network() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    fs::write(path.join("long"), vec![7; 200_000]).unwrap();
    fs::create_dir(path.join("in")).unwrap();
    let (_relay, at) = relay();
    let script = "mount -t tmpfs -o size=100k none in && exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script, "sh", BINARY]);
    command.args(["receive", "7-crowfoot-orlando", "--relays", &at, "--out", "in"]);
    command.current_dir(path).env("XDG_CONFIG_HOME", SETTINGS).stdin(Stdio::null());
    let sender = start(&["send", "long", "--code", "7-crowfoot-orlando", "--relays", &at], path);
    let begun = Instant::now();
    let (code, _, err) = Running::of(&mut command).end();
    if err.contains("unshare") || err.contains("mount:") {
        println!("skipped: a small disk needs root, unshare and mount: {err}");
        return;
    }
    assert!(code == Some(2) && err.contains("the file did not arrive: no space left for it"), "{err}");
    assert!(!err.contains("NAT") && err.matches("no space left").count() == 1, "{err}");
    assert!(begun.elapsed() < Duration::from_secs(20), "nobody else comes with this code: {:?}", begun.elapsed());
    let (code, _, err) = sender.end();
    assert!(code == Some(2) && err.contains("the receiver refuses the file: no space left for it"), "{err}");
}

/// Runs `script`, whose arguments are those of a receiver by the code, in `path` with a small disk at `in`; none where
/// that can't be.
fn on_a_small_disk(path: &Path, at: &str, options: &str, script: &str) -> Option<Running> {
    let may_mount = Command::new("unshare").args(["--mount", "mount", "-t", "tmpfs", "none", "/mnt"]).output();
    if !may_mount.is_ok_and(|output| output.status.success()) {
        println!("skipped: a small disk needs root, unshare and mount");
        return None;
    }
    fs::create_dir(path.join("in")).unwrap();
    let script = format!("mount -t tmpfs -o {options} none in && {script}");
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", &script, "sh", BINARY]);
    command.args(["receive", "7-crowfoot-orlando", "--relays", at, "--out", "in"]);
    command.current_dir(path).env("XDG_CONFIG_HOME", SETTINGS).env("XDG_STATE_HOME", path.join("state"));
    Some(Running::of(command.stdin(Stdio::null())))
}

#[test]
fn a_folder_without_room_for_it_twice_is_refused_before_it_travels() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    fs::create_dir(path.join("album")).unwrap();
    fs::write(path.join("album/long"), vec![7; 2_000_000]).unwrap();
    let (_relay, at) = relay();
    let Some(receiver) = on_a_small_disk(path, &at, "size=3m", "exec \"$@\"") else { return };
    let sender = start(&["send", "album", "--code", "7-crowfoot-orlando", "--relays", &at], path);
    let (code, _, err) = receiver.end();
    assert!(code == Some(2) && err.contains("2000000 to be unpacked"), "{err}");
    let (code, _, err) = sender.end();
    assert!(code == Some(2) && err.contains("the receiver refuses the file: no space left for it"), "{err}");
}

#[test]
fn a_folder_is_sent_when_it_is_unpacked_and_one_that_cannot_be_is_kept_for_another_try() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    fs::create_dir(path.join("album")).unwrap();
    for number in 0..40 {
        fs::write(path.join(format!("album/{number}")), number.to_string()).unwrap();
    }
    let (_relay, at) = relay();
    // There is room for the bytes and not for the files; somebody makes room, and gives the same command again.
    let script =
        "{ \"$@\"; echo; ls -A in; mount -o remount,nr_inodes=1000 in && \"$@\"; ls -A in; ls -A in/album | wc -l; }";
    let Some(receiver) = on_a_small_disk(path, &at, "size=10m,nr_inodes=20", script) else { return };
    let sender = start(&["send", "album", "--code", "7-crowfoot-orlando", "--relays", &at], path);
    let (code, out, err) = sender.end();
    assert!(code == Some(2) && err.contains("the receiver could not keep the file: cannot unpack it: "), "{out} {err}");
    let (code, out, err) = receiver.end();
    assert!(err.contains("the file did not arrive: cannot unpack it: ") && err.contains("is kept in in"), "{err}");
    assert!(err.contains("the same command within 10 minutes unpacks it without its sender"), "{err}");
    let (first, second) = out.split_once("\n\n").unwrap();
    assert!(!first.contains("received"), "{out}");
    assert!(second.contains(".part\n") && second.contains("received in/album: 40 files"), "{out}");
    assert!(second.ends_with("hash right\nalbum\n40\n") && code == Some(0), "{out} {err}");
}

#[test]
fn what_is_wrong_with_a_code_or_a_relay_is_said_before_anything_is_tried() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    fs::write(path.join("a"), "a").unwrap();
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let silent = silent.local_addr().unwrap().to_string();
    let empty = path.join("settings");
    for (arguments, says) in [
        (&["receive", "7-crowfot-orlando"][..], "did you mean \"crowfoot\"?"),
        (&["receive", "7-orlando-crowfoot"], "does not stand at this place"),
        (&["receive", "crowfoot-orlando"], "no number"),
        (&["receive", "7-crowfoot-orlando"], "which relays?"),
        (&["send", "a"], "ANABRANCH_RELAYS"),
        (&["send", "a", "--relays", &silent], "a was not sent: no rendezvous answers"),
        (
            &["send", "a", "/etc/hostname", "--relays", &silent],
            "2 files and folders were not sent: no rendezvous answers",
        ),
        (&["receive", "7-crowfoot-orlando", "--relays", &silent], "no rendezvous answers"),
        (&["receive", "7-crowfoot-orlando", "--relays", &silent, "--out", "a"], "a is a file; expected a folder"),
        (&["receive", "7-crowfoot-orlando", "--relays", &silent, "--out", "a/b/c"], "a is a file; expected a folder"),
        (&["send", "a", "./a", "--relays", &silent], "cannot send two that are both called a"),
        (&["send", "a", "--relays", "no-such-host.invalid"], "no-such-host.invalid has no address"),
        (&["send", "missing", "--relays", "127.0.0.1"], "cannot read missing"),
        (&["send", "-", "a", "--relays", "127.0.0.1"], "standard input is sent alone"),
        (&["send", ".", "--name", "x", "--relays", "127.0.0.1"], "--name is for one file"),
        (&["send", "a", "--hops", "2", "--relays", "127.0.0.1"], "only 1 is known"),
        (&["send", "a", "--key", "12"], "64 hexadecimal digits"),
        (&["send"], "<FILE>"),
    ] {
        let mut command = Command::new(BINARY);
        command.args(arguments).current_dir(path).env("XDG_CONFIG_HOME", &empty).env_remove("ANABRANCH_RELAYS");
        let output = command.stdin(Stdio::null()).output().unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {err}");
        assert!(output.stdout.is_empty() && err.contains(says), "no {says:?} in {err:?}");
    }
    assert_eq!(names(path), ["a"], "nothing is made");
}
