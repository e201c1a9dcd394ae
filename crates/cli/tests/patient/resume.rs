//! A file goes on where it was when the sender, the receiver or all relays are killed, without a
//! chance to tidy up, and the same commands are given again.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use crate::common::running::Running;
use crate::journal::{Had, SLOWLY};

const BINARY: &str = env!("CARGO_BIN_EXE_anabranch");

/// Bytes of the file.
const LENGTH: u64 = 4_000_000;

/// Bytes of it that a journal tells of before anybody is killed.
const ENOUGH: u64 = 250_000;

/// A block over two IPv4 relays of one packet of 1400 bytes is longer than that.
const LEAST_BLOCK: u64 = 1250;

struct Setting {
    folder: tempfile::TempDir,
    relays: Vec<(String, Option<Running>)>,
    receiver: Option<Running>,
    address: String,
    key: String,
}

impl Setting {
    fn new() -> Setting {
        let folder = tempfile::tempdir().unwrap();
        let file: Vec<u8> = (0..LENGTH as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        fs::write(folder.path().join("film.bin"), file).unwrap();
        let (relays, address, key) = (Vec::new(), "127.0.0.1:0".into(), String::new());
        let mut setting = Setting { folder, relays, receiver: None, address, key };
        setting.relays = (0..3).map(|_| ("127.0.0.1:0".to_owned(), None)).collect();
        setting.start_relays();
        let list = setting.relays.iter().map(|(address, _)| format!("[[relay]]\naddress = \"{address}\"\n"));
        fs::write(setting.path("RELAYS.toml"), list.collect::<String>()).unwrap();
        setting.start_receiver();
        setting
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(BINARY);
        command.args(arguments).current_dir(self.folder.path()).env("XDG_CONFIG_HOME", self.path("settings"));
        command
    }

    /// At the addresses where they were before.
    fn start_relays(&mut self) {
        for (address, relay) in &mut self.relays {
            let mut started = Running::start(&["relay", "--listen", address, "--limit", "4 MB/s"]);
            *address = started.after(" on ");
            *relay = Some(started);
        }
    }

    fn start_receiver(&mut self) {
        let receive = ["receive", "--listen", &self.address, "--out", "in", "--once"];
        let mut receiver = Running::of(&mut self.command(&receive));
        (self.address, self.key) = (receiver.after("receiving on "), receiver.after("public key "));
        self.receiver = Some(receiver);
    }

    fn send(&self, more: &[&str]) -> Running {
        self.send_at("500 kB/s", more)
    }

    /// So slowly that it can be killed meanwhile.
    fn send_slowly(&self, more: &[&str]) -> Running {
        self.send_at(SLOWLY, more)
    }

    fn send_at(&self, upload: &str, more: &[&str]) -> Running {
        let to = ["send", "film.bin", "--to", &self.address, "--relays", "RELAYS.toml", "--hops", "2"];
        let how = ["--key", &self.key, "--controller", "aimd", "--pacing", "paced", "--upload", upload];
        Running::of(&mut self.command(&[&to[..], &how, more].concat()))
    }

    /// Waits until a journal tells of enough.
    fn wait_for_some(&self) -> Had {
        Had::wait(&self.path("in"), ENOUGH)
    }

    /// What is in the receiver's folder, with lengths.
    fn kept(&self) -> Vec<(String, u64)> {
        let Ok(folder) = fs::read_dir(self.path("in")) else { return Vec::new() };
        let entries = folder.filter_map(Result::ok).filter_map(|entry| {
            // It may have gone meanwhile.
            Some((entry.file_name().into_string().ok()?, entry.metadata().ok()?.len()))
        });
        entries.collect()
    }

    /// The file is there, and nothing else; the last sender had to send no more than what was missing,
    /// of which at least `before` had come.
    fn check(mut self, sent: &str, before: u64) {
        let resumed = number(sent, " bytes of it had come before");
        assert!(resumed >= before, "{resumed} of {before}: {sent}");
        let packets = number(sent, " packets: ");
        let missing = (LENGTH - resumed).div_ceil(LEAST_BLOCK);
        // And some for greetings, and copies of what was lost or late.
        assert!(packets <= missing * 5 / 4 + 200, "{packets} packets for {missing} blocks: {sent}");
        let (code, out, err) = self.receiver.take().unwrap().end();
        assert_eq!(code, Some(0), "{out} {err}");
        assert!(out.contains("film.bin, 4000000 bytes, hash right"), "{out}");
        assert_eq!(self.kept(), [("film.bin".to_owned(), LENGTH)]);
        assert!(same(&self.path("film.bin"), &self.path("in/film.bin")));
    }
}

fn same(one: &Path, other: &Path) -> bool {
    fs::read(one).unwrap() == fs::read(other).unwrap()
}

/// The number before `what`.
fn number(text: &str, what: &str) -> u64 {
    let end = text.find(what).unwrap_or_else(|| panic!("no {what:?} in {text}"));
    let digits = text[..end].rsplit(|c: char| !c.is_ascii_digit()).next().unwrap();
    digits.parse().unwrap_or_else(|_| panic!("no number before {what:?} in {text}"))
}

#[test]
fn a_sender_that_is_killed_goes_on_where_it_was() {
    for named in [false, true] {
        let setting = Setting::new();
        let identity: &[&str] = if named { &["--identity", "own.key"] } else { &[] };
        if named {
            assert!(setting.command(&["key", "--identity", "own.key"]).output().unwrap().status.success());
        }
        let mut sender = setting.send_slowly(identity);
        let had = setting.wait_for_some();
        assert!(sender.is_running());
        drop(sender); // SIGKILL
        let (code, out, err) = setting.send(identity).end();
        assert_eq!(code, Some(0), "{out} {err}");
        // The session before was closed in order: all that was written is in the journal.
        setting.check(&out, had.written * 9 / 10);
    }
}

#[test]
fn a_receiver_that_is_killed_goes_on_and_its_sender_does_by_itself() {
    let mut setting = Setting::new();
    let sender = setting.send_slowly(&[]);
    let had = setting.wait_for_some();
    setting.receiver = None; // SIGKILL
    // It may have died while it wrote the next journal.
    let (half_written, kept): (Vec<_>, Vec<_>) =
        setting.kept().into_iter().partition(|(name, _)| name.ends_with(".journal.new"));
    assert!(kept.len() == 2 && half_written.len() <= 1, "a part and a journal: {:?}", setting.kept());
    setting.start_receiver();
    let (code, out, err) = sender.end();
    assert_eq!(code, Some(0), "{out} {err}");
    let resumed = number(&out, " bytes of it had come before");
    assert!(resumed >= had.journaled, "{resumed} of {had:?}: {out}");
    let (code, out, err) = setting.receiver.take().unwrap().end();
    assert_eq!((code, setting.kept()), (Some(0), vec![("film.bin".to_owned(), LENGTH)]), "{out} {err}");
    assert!(same(&setting.path("film.bin"), &setting.path("in/film.bin")));
}

#[test]
fn both_ends_that_are_killed_go_on_where_they_were() {
    let mut setting = Setting::new();
    let sender = setting.send_slowly(&[]);
    let had = setting.wait_for_some();
    drop((setting.receiver.take(), sender)); // SIGKILL
    setting.start_receiver();
    let (code, out, err) = setting.send(&[]).end();
    assert_eq!(code, Some(0), "{out} {err}");
    setting.check(&out, had.journaled);
}

#[test]
fn a_file_goes_on_after_all_relays_were_killed_whether_its_sender_has_given_up_or_not() {
    let mut setting = Setting::new();
    let sender = setting.send_slowly(&[]);
    let written = setting.wait_for_some().written;
    setting.relays.iter_mut().for_each(|(_, relay)| *relay = None); // SIGKILL
    let (code, _, err) = sender.end();
    assert_eq!(code, Some(2));
    assert!(err.contains("nothing was heard of the receiver for 30 s"), "{err}");
    setting.start_relays();
    let mut again = setting.send(&[]);
    while setting.kept().iter().all(|(_, length)| *length < written + 500_000) {
        assert!(again.is_running());
        sleep(Duration::from_millis(50));
    }
    // For a while only: this one goes on by itself.
    setting.relays.iter_mut().for_each(|(_, relay)| *relay = None); // SIGKILL
    sleep(Duration::from_secs(2));
    setting.start_relays();
    let (code, out, err) = again.end();
    assert_eq!(code, Some(0), "{out} {err}");
    let resumed = number(&out, " bytes of it had come before");
    assert!(resumed >= written * 9 / 10, "{resumed} of {written}: {out}");
    let (code, out, err) = setting.receiver.take().unwrap().end();
    assert_eq!((code, setting.kept()), (Some(0), vec![("film.bin".to_owned(), LENGTH)]), "{out} {err}");
    assert!(same(&setting.path("film.bin"), &setting.path("in/film.bin")));
}

#[test]
fn a_part_that_was_damaged_on_the_disk_makes_the_file_come_anew_and_not_wrong() {
    let mut setting = Setting::new();
    let sender = setting.send_slowly(&[]);
    setting.wait_for_some();
    drop((setting.receiver.take(), sender)); // SIGKILL
    let part = setting.kept().into_iter().find(|(name, _)| name.ends_with(".part")).unwrap().0;
    let part = setting.path("in").join(part);
    let mut bytes = fs::read(&part).unwrap();
    bytes[1000] ^= 1;
    fs::write(&part, bytes).unwrap();
    setting.start_receiver();
    let (code, out, err) = setting.send(&[]).end();
    assert_eq!(code, Some(0), "{out} {err}");
    assert!(!out.contains("had come before"), "{out}");
    assert!(number(&out, " packets: ") >= LENGTH / 1400 + (LENGTH - ENOUGH) / 1400 / 2, "all of it: {out}");
    let (code, out, err) = setting.receiver.take().unwrap().end();
    assert_eq!((code, setting.kept()), (Some(0), vec![("film.bin".to_owned(), LENGTH)]), "{out} {err}");
    assert!(same(&setting.path("film.bin"), &setting.path("in/film.bin")));
}

#[test]
fn another_file_of_the_same_name_begins_anew() {
    let mut setting = Setting::new();
    let sender = setting.send_slowly(&[]);
    setting.wait_for_some();
    drop((setting.receiver.take(), sender)); // SIGKILL
    let mut bytes = fs::read(setting.path("film.bin")).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(setting.path("film.bin"), bytes).unwrap();
    setting.start_receiver();
    let (code, out, err) = setting.send(&[]).end();
    assert_eq!((code, out.contains("had come before")), (Some(0), false), "{out} {err}");
    let (code, out, err) = setting.receiver.take().unwrap().end();
    assert_eq!(code, Some(0), "{out} {err}");
    assert!(same(&setting.path("film.bin"), &setting.path("in/film.bin")));
    // What has come of the other is kept for its sender, for a week.
    assert_eq!(setting.kept().len(), 3);
}
