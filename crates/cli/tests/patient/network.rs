//! The real binary on 127.0.0.1: relays, a receiver and a sender as processes, and what
//! wrong input gets.

use std::fs;
use std::net::UdpSocket;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use crate::common::running::{Running, SETTINGS};

const BINARY: &str = env!("CARGO_BIN_EXE_anabranch");

/// Well formed, and nobody's.
const KEY: &str = "0101010101010101010101010101010101010101010101010101010101010101";

fn relays(count: usize) -> (Vec<Running>, String) {
    let mut list = String::new();
    let relays = (0..count).map(|_| {
        let mut relay = Running::start(&["relay", "--listen", "127.0.0.1:0", "--limit", "4 MB/s"]);
        list += &format!("[[relay]]\naddress = \"{}\"\n", relay.after(" on "));
        relay
    });
    (relays.collect(), list)
}

/// Runs to the end; nothing was half-written.
fn run(arguments: &[&str], folder: &Path) -> Output {
    Command::new(BINARY).args(arguments).current_dir(folder).env("XDG_CONFIG_HOME", SETTINGS).output().unwrap()
}

/// The one message on standard error of a run that must fail with exit code 2.
fn refusal(arguments: &[&str], folder: &Path) -> String {
    let output = run(arguments, folder);
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {message}");
    assert!(output.stdout.is_empty(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stdout));
    message
}

#[test]
fn a_file_goes_from_process_to_process() {
    let folder = tempfile::tempdir().unwrap();
    let file: Vec<u8> = (0..300_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    fs::write(folder.path().join("photo.jpg"), &file).unwrap();
    let (relays, list) = relays(4);
    fs::write(folder.path().join("RELAYS.toml"), list).unwrap();
    let into = folder.path().join("in");
    let mut receiver =
        Running::start(&["receive", "--listen", "127.0.0.1:0", "--out", into.to_str().unwrap(), "--once"]);
    let address = receiver.after("receiving on ");
    let key = receiver.after("public key ");
    let send = ["send", "photo.jpg", "--to", &address, "--relays", "RELAYS.toml", "--hops", "2", "--key", &key];
    let sent = run(&[&send[..], &["--controller", "aimd", "--pacing", "paced"]].concat(), folder.path());
    let out = String::from_utf8(sent.stdout).unwrap();
    assert_eq!(sent.status.code(), Some(0), "{out} {}", String::from_utf8_lossy(&sent.stderr));
    assert!(out.contains("300000 bytes") && out.contains("0 forged ACKs"), "{out}");
    assert!(sent.stderr.is_empty(), "progress is for terminals: {}", String::from_utf8_lossy(&sent.stderr));
    let (code, out, _) = receiver.end();
    assert_eq!(code, Some(0));
    assert!(out.contains("photo.jpg, 300000 bytes, hash right"), "{out}");
    assert_eq!(fs::read(into.join("photo.jpg")).unwrap(), file);
    assert_eq!(fs::read_dir(&into).unwrap().count(), 1, "nothing else is left");
    for relay in relays {
        relay.interrupt();
        let (code, out, _) = relay.end();
        assert_eq!(code, Some(0));
        assert!(out.contains("forwarded ") && out.contains("nothing discarded"), "{out}");
    }
}

#[test]
fn an_interrupted_sender_leaves_nothing_at_the_receiver() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("long.bin"), vec![7; 20_000_000]).unwrap();
    let (_relays, list) = relays(3);
    fs::write(folder.path().join("RELAYS.toml"), list).unwrap();
    let into = folder.path().join("in");
    let mut receiver =
        Running::start(&["receive", "--listen", "127.0.0.1:0", "--out", into.to_str().unwrap(), "--once"]);
    let address = receiver.after("receiving on ");
    receiver.after("public key ");
    let (file, list) = (folder.path().join("long.bin"), folder.path().join("RELAYS.toml"));
    let (file, list) = (file.to_str().unwrap(), list.to_str().unwrap());
    let sender = Running::start(&["send", file, "--to", &address, "--relays", list, "--hops", "2", "--insecure"]);
    assert_eq!(receiver.after("receiving "), "long.bin, 20.00 MB");
    sender.interrupt();
    let (code, out, err) = sender.end();
    assert_eq!(code, Some(130), "{out} {err}");
    assert!(err.contains("interrupted"), "{err}");
    let (code, _, err) = receiver.end();
    assert_eq!(code, Some(2), "{err}");
    assert_eq!(fs::read_dir(&into).unwrap().count(), 0, "nothing half-written stays");
}

#[test]
fn once_outlasts_strangers_offers_before_and_while_its_file_comes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    fs::write(path.join("long.bin"), vec![7; 1_000_001]).unwrap();
    fs::write(path.join("short.bin"), vec![7; 1_000_000]).unwrap();
    let (_relays, list) = relays(2);
    fs::write(path.join("RELAYS.toml"), list).unwrap();
    let into = path.join("in");
    let receive = ["receive", "--listen", "127.0.0.1:0", "--out", into.to_str().unwrap(), "--once"];
    let mut receiver = Running::start(&[&receive[..], &["--max-bytes", "1000000"]].concat());
    let address = receiver.after("receiving on ");
    let key = receiver.after("public key ");
    let list = path.join("RELAYS.toml");
    let to = ["--to", &address, "--relays", list.to_str().unwrap(), "--hops", "1", "--controller", "aimd"];
    let stranger = || {
        let refused = refusal(&[&["send", "long.bin", "--key", &key], &to[..]].concat(), path);
        assert!(refused.contains("1000001 bytes; 1000000 are taken"), "{refused}");
    };
    stranger();
    // Five seconds at least.
    let file = path.join("short.bin");
    let send = ["send", file.to_str().unwrap(), "--key", &key, "--upload", "200 kB/s", "--pacing", "paced"];
    let mut friend = Running::start(&[&send[..], &to[..]].concat());
    assert_eq!(receiver.after("receiving "), "short.bin, 1.00 MB");
    stranger();
    assert!(friend.is_running(), "it is on its way still");
    let (code, out, err) = friend.end();
    assert_eq!(code, Some(0), "{out} {err}");
    let (code, out, err) = receiver.end();
    assert_eq!(code, Some(0), "{out} {err}");
    assert!(out.contains("short.bin, 1000000 bytes, hash right"), "{out}");
    assert_eq!(err.matches("1000001 bytes; 1000000 are taken").count(), 2, "it is said all the same: {err}");
    assert_eq!(fs::read_dir(&into).unwrap().count(), 1);
}

#[test]
fn a_receiver_has_the_same_key_after_each_start_and_key_prints_it() {
    let folder = tempfile::tempdir().unwrap();
    let settings = folder.path().join("settings");
    let with = |arguments: &[&str]| {
        let mut command = Command::new(BINARY);
        command.args(arguments).current_dir(folder.path()).env("XDG_CONFIG_HOME", &settings);
        command
    };
    let said = |arguments: &[&str]| {
        let output = with(arguments).output().unwrap();
        let (out, err) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
        (output.status.code(), out, err)
    };
    let (code, key, err) = said(&["key"]);
    assert_eq!((code, err.as_str(), key.trim().len()), (Some(0), "", 64), "made when it was missing");
    assert!(settings.join("anabranch/key").is_file());
    assert_eq!(said(&["key"]).1, key);
    for _ in 0..2 {
        let receive = ["receive", "--listen", "127.0.0.1:0", "--out", "in"];
        let mut receiver = Running::of(&mut with(&receive));
        receiver.after("receiving on ");
        assert_eq!(receiver.after("public key "), key.trim());
    }
    let (_, other, _) = said(&["key", "--identity", "elsewhere/own.key"]);
    assert!(other.trim().len() == 64 && other != key);
    assert_eq!(said(&["key", "--identity", "elsewhere/own.key"]).1, other);

    fs::write(folder.path().join("elsewhere/own.key"), "no key\n").unwrap();
    let receive = ["receive", "--listen", "127.0.0.1:0", "--out", "in", "--identity", "elsewhere/own.key"];
    for verb in [&["key", "--identity", "elsewhere/own.key"][..], &receive] {
        let (code, out, err) = said(verb);
        assert_eq!((code, out.as_str()), (Some(2), ""), "{err}");
        assert!(err.contains("elsewhere/own.key holds no key: expected 64 hexadecimal digits"), "{err}");
    }
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(settings.join("anabranch/key"), fs::Permissions::from_mode(0o644)).unwrap();
        let (code, out, err) = said(&["key"]);
        assert_eq!((code, out.as_str()), (Some(2), ""));
        assert!(err.contains("chmod 600") && err.contains("settings/anabranch/key"), "{err}");
    }
}

#[test]
fn a_receiver_that_says_who_may_send_takes_files_from_nobody_else() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    fs::write(path.join("photo.jpg"), vec![7; 50_000]).unwrap();
    let (_relays, list) = relays(2);
    fs::write(path.join("RELAYS.toml"), list).unwrap();
    let key_in = |file: &str| {
        let key = run(&["key", "--identity", file], path);
        String::from_utf8(key.stdout).unwrap().trim().to_owned()
    };
    let (friend, other, stranger) = (key_in("friend.key"), key_in("other.key"), key_in("stranger.key"));
    let into = path.join("in");
    let receive = ["receive", "--listen", "127.0.0.1:0", "--out", into.to_str().unwrap(), "--once"];
    let mut receiver = Running::start(&[&receive[..], &["--allow", &other, "--allow", &friend]].concat());
    let address = receiver.after("receiving on ");
    let key = receiver.after("public key ");
    let send = ["send", "photo.jpg", "--to", &address, "--relays", "RELAYS.toml", "--hops", "1"];
    let send = [&send[..], &["--controller", "aimd"]].concat();
    let nobody = refusal(&[&send[..], &["--insecure"]].concat(), path);
    assert!(nobody.contains("refuses the file") && nobody.contains("has shown none"), "{nobody}");
    let wrong = refusal(&[&send[..], &["--key", &key, "--identity", "stranger.key"]].concat(), path);
    assert!(wrong.contains(&format!("{stranger} is not")), "{wrong}");
    let sent = run(&[&send[..], &["--key", &key, "--identity", "friend.key"]].concat(), path);
    assert_eq!(sent.status.code(), Some(0), "{}", String::from_utf8_lossy(&sent.stderr));
    let (code, out, err) = receiver.end();
    assert_eq!(code, Some(0), "{out} {err}");
    assert_eq!(fs::read(into.join("photo.jpg")).unwrap().len(), 50_000);
}

#[test]
fn a_folder_with_a_quota_takes_what_fits_and_refuses_what_does_not() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    fs::write(path.join("a.bin"), vec![7; 60_000]).unwrap();
    fs::write(path.join("b.bin"), vec![7; 60_001]).unwrap();
    fs::create_dir(path.join("in")).unwrap();
    fs::write(path.join("in/before"), vec![7; 40_000]).unwrap();
    let (_relays, list) = relays(2);
    fs::write(path.join("RELAYS.toml"), list).unwrap();
    let into = path.join("in");
    let receive = ["receive", "--listen", "127.0.0.1:0", "--out", into.to_str().unwrap(), "--once"];
    let mut receiver = Running::start(&[&receive[..], &["--max-total", "100000"]].concat());
    let address = receiver.after("receiving on ");
    let key = receiver.after("public key ");
    let send = ["--to", &address, "--relays", "RELAYS.toml", "--hops", "1", "--key", &key, "--controller", "aimd"];
    let refused = refusal(&[&["send", "b.bin"], &send[..]].concat(), path);
    assert!(refused.contains("refuses the file") && refused.contains("at most 100000 bytes"), "{refused}");
    let sent = run(&[&["send", "a.bin"], &send[..]].concat(), path);
    assert_eq!(sent.status.code(), Some(0), "{}", String::from_utf8_lossy(&sent.stderr));
    assert_eq!(receiver.end().0, Some(0));
    assert_eq!(fs::read_dir(&into).unwrap().count(), 2);
}

#[cfg(unix)]
#[test]
fn ctrl_c_ends_a_sender_that_still_hashes_its_file() {
    let folder = tempfile::tempdir().unwrap();
    // A hole: nothing is on the disk, and to hash it takes minutes.
    fs::File::create(folder.path().join("long.bin")).unwrap().set_len(1 << 40).unwrap();
    fs::write(folder.path().join("RELAYS.toml"), "[[relay]]\naddress = \"127.0.0.1:4001\"\n").unwrap();
    let (file, list) = (folder.path().join("long.bin"), folder.path().join("RELAYS.toml"));
    let arguments = ["--to", "127.0.0.1:4009", "--relays", list.to_str().unwrap(), "--hops", "1", "--key", KEY];
    let sender = Running::start(&[&["send", file.to_str().unwrap()], &arguments[..]].concat());
    std::thread::sleep(Duration::from_secs(1));
    let began = Instant::now();
    sender.interrupt();
    let (code, out, err) = sender.end();
    assert_eq!(code, Some(130), "{out} {err}");
    assert!(err.contains("interrupted") && err.contains("long.bin was not sent"), "{err}");
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
}

#[test]
fn wrong_input_gets_one_message_and_exit_code_2() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let list = "[[relay]]\naddress = \"127.0.0.1:4001\"\n[[relay]]\naddress = \"127.0.0.1:4002\"\n";
    fs::write(path.join("RELAYS.toml"), list).unwrap();
    fs::write(path.join("mixed.toml"), "[[relay]]\naddress = \"127.0.0.1:4001\"\n[[relay]]\naddress = \"[::1]:1\"\n")
        .unwrap();
    fs::write(path.join("bad-key.toml"), "[[relay]]\nadress = \"127.0.0.1:4001\"\n").unwrap();
    fs::write(path.join("bad-address.toml"), "[[relay]]\n\naddress = \"nowhere\"\n").unwrap();
    fs::write(path.join("file"), "content").unwrap();
    let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();

    let send = |more: &[&'static str]| -> String {
        let to = if more.contains(&"--to") { &[][..] } else { &["--to", "127.0.0.1:4009"] };
        let relays = if more.contains(&"--relays") { &[][..] } else { &["--relays", "RELAYS.toml"] };
        let key = if more.contains(&"--key") { &[][..] } else { &["--key", KEY] };
        refusal(&[&["send"], more, to, relays, key].concat(), path)
    };
    for (message, says) in [
        (send(&["missing", "--hops", "2"]), "cannot read missing"),
        (send(&["/dev/null", "--hops", "2"]), "neither a file nor a folder"),
        (send(&["file", "--hops", "3"]), "3 relays for each packet are asked for, but only 2 are known"),
        (send(&["file", "--hops", "0"]), "at least 1"),
        (send(&["file", "--hops", "2", "--controller", "q-lerning"]), "did you mean \"q-learning\"?"),
        (send(&["file", "--hops", "2", "--controller", "cubic"]), "as the rule for each relay it is \"flow:cubic\""),
        (send(&["file", "--hops", "2", "--controller", "perfect"]), "only in simulation"),
        (send(&["file", "--hops", "2", "--controller", "random"]), "upload limit"),
        (send(&["file", "--hops", "2", "--set", "tolerated_loss=2"]), "between 0.01 and 0.9"),
        (send(&["file", "--hops", "2", "--set", "epsilom=0.1"]), "epsilom"),
        (send(&["file", "--hops", "2", "--set", "epsilon"]), "key=value"),
        (send(&["file", "--hops", "2", "--key", "12"]), "64 hexadecimal digits"),
        (send(&["file", "--to", "127.0.0.1"]), "127.0.0.1"),
        (send(&["file", "--to", "0.0.0.0:9", "--hops", "2"]), "unspecified"),
        (send(&["file", "--relays", "missing.toml"]), "cannot read missing.toml"),
        (send(&["file", "--relays", "mixed.toml"]), "mixed.toml:4:11: key `address`: \"[::1]:1\" is IPv6"),
        (send(&["file", "--to", "[::1]:9", "--hops", "2"]), "the relays of RELAYS.toml are IPv4"),
        (
            send(&["file", "--relays", "bad-key.toml"]),
            "bad-key.toml:2:1: key `adress`: unknown key; did you mean `address`?",
        ),
        (send(&["file", "--relays", "bad-address.toml"]), "bad-address.toml:3:11: key `address`"),
        (
            refusal(&["send", "file", "--hops", "2", "--to", "127.0.0.1:4009", "--relays", "RELAYS.toml"], path),
            "give the public key that it prints with --key (or --insecure",
        ),
        (send(&["file", "--hops", "2", "--insecure"]), "cannot be used with"),
        (send(&["file", "--hops", "2", "--identity", "missing"]), "there is no key missing"),
        (refusal(&["relay", "--listen", "127.0.0.1:0", "--limit", "0 B/s"], path), "at least one packet a second"),
        (refusal(&["relay", "--listen", "127.0.0.1:0", "--limit", "fast"], path), "expected a number and a unit"),
        (refusal(&["relay", "--listen", &taken, "--limit", "1 MB/s"], path), "cannot listen on"),
        (refusal(&["receive", "--listen", &taken, "--out", "in"], path), "cannot listen on"),
        (refusal(&["receive", "--listen", "127.0.0.1:0", "--out", "file"], path), "cannot keep files in file"),
        (
            refusal(&["receive", "--listen", "127.0.0.1:0", "--out", "in", "--allow", "12"], path),
            "64 hexadecimal digits",
        ),
        (
            send(&["file", "--to", "127.0.0.1:4009", "--hops", "2", "--key", KEY, "--identity", "RELAYS.toml"]),
            "RELAYS.toml",
        ),
        (refusal(&["demo", "--set", "tolerated_loss=5", "--out", "wrong"], path), "between 0.01 and 0.9"),
        (refusal(&["demo", "--controller", "perfect"], path), "only in simulation"),
        (refusal(&["demo", "--senders", "4"], path), "--senders 4: expected 5 to 200 peers"),
        (refusal(&["demo", "--hops", "9"], path), "at most 8"),
        (refusal(&["demo", "missing"], path), "cannot read missing"),
        (refusal(&["demo", "--out", "file"], path), "cannot keep files in file"),
    ] {
        assert!(message.contains(says), "no {says:?} in {message:?}");
    }
    let mut left: Vec<String> =
        fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    left.sort();
    left.retain(|name| name != "in" && name != "out");
    assert_eq!(left, ["RELAYS.toml", "bad-address.toml", "bad-key.toml", "file", "mixed.toml"]);
}

#[test]
fn the_demo_moves_a_file_and_checks_it() {
    let folder = tempfile::tempdir().unwrap();
    let output = run(&["demo", "--size", "100000", "--limit", "200 kB/s", "--controller", "aimd"], folder.path());
    let out = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{out} {}", String::from_utf8_lossy(&output.stderr));
    for says in ["goodput", "possible", "right", "0 forged ACKs"] {
        assert!(out.contains(says), "no {says:?} in {out}");
    }
    let sent = fs::read(folder.path().join("out/demo/sample-1.bin")).unwrap();
    assert_eq!(sent.len(), 100_000);
    assert_eq!(fs::read(folder.path().join("out/demo/received/sample-1.bin")).unwrap(), sent);
}

#[test]
fn the_demo_says_what_became_of_the_file_as_one_object() {
    let folder = tempfile::tempdir().unwrap();
    let output = run(&["demo", "--size", "100000", "--limit", "200 kB/s", "--json"], folder.path());
    let (out, err) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert_eq!(output.status.code(), Some(0), "{out} {err}");
    let said: serde_json::Value = serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}"));
    let number = |key: &str| said[key].as_f64().unwrap_or_else(|| panic!("{key} in {out}"));
    assert_eq!(number("bytes"), 100_000.0);
    assert!((number("bytes_per_second") - 100_000.0 / number("seconds")).abs() < 1.0, "{out}");
    // Twenty relays of 200 kB/s on average, three of them for each packet.
    assert!((1e6..20.0 * 200e3 / 3.0).contains(&number("possible_bytes_per_second")), "{out}");
    assert!(number("lost_packets") <= number("packets") && number("packets") >= 100_000.0 / 1302.0, "{out}");
    assert!(err.contains("right") && !out.contains("right"), "all else is said on standard error: {err}");
}

/// What a peer received, measured and simulated, B/s, and the difference in percent.
fn received_by_all() -> [f64; 3] {
    let folder = tempfile::tempdir().unwrap();
    let output = run(&["demo", "--senders", "20", "--seconds", "10", "--controller", "random"], folder.path());
    let out = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{out} {}", String::from_utf8_lossy(&output.stderr));
    let line = out.lines().find(|line| line.starts_with("received, B/s a peer")).unwrap();
    let figures: Vec<f64> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    figures.try_into().unwrap_or_else(|_| panic!("{line}"))
}

#[test]
fn all_senders_receive_about_what_the_simulator_predicts() {
    let mut tries = Vec::new();
    // A machine that is busy for ten seconds gets another ten.
    while tries.len() < 3 {
        let [measured, simulated, difference] = received_by_all();
        assert!(simulated > 10_000.0, "{simulated}");
        if measured > 10_000.0 && difference.abs() < 10.0 {
            return;
        }
        tries.push((measured, simulated, difference));
    }
    panic!("{tries:?}");
}
