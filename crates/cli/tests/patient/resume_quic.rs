//! A file over QUIC goes on where it was when its sender or its receiver is killed, without a chance to
//! tidy up, and the same command is given again.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::common::running::Running;
use crate::journal::Had;

const BINARY: &str = env!("CARGO_BIN_EXE_anabranch");

/// Bytes of the file; a packet at a time, it takes longer than anybody waits.
const LENGTH: u64 = 80_000_000;

/// Bytes of it that a journal tells of before anybody is killed.
const ENOUGH: u64 = 1_500_000;

struct Setting {
    folder: tempfile::TempDir,
    receiver: Option<Running>,
    address: String,
    key: String,
}

impl Setting {
    fn new() -> Setting {
        let folder = tempfile::tempdir().unwrap();
        let file: Vec<u8> = (0..LENGTH as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        fs::write(folder.path().join("film.bin"), file).unwrap();
        let (address, key) = (String::new(), String::new());
        let mut setting = Setting { folder, receiver: None, address, key };
        setting.start_receiver();
        setting
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// With the key that is in `settings`, if there is one.
    fn command(&self, settings: &str, arguments: &[&str]) -> Running {
        let mut command = Command::new(BINARY);
        command.args(arguments).current_dir(self.folder.path()).env("XDG_CONFIG_HOME", self.path(settings));
        Running::of(&mut command)
    }

    fn receive(&self, more: &[&str]) -> Running {
        let receive = ["quic", "receive", "--listen", "127.0.0.1:0", "--out", "in"];
        self.command("receiver", &[&receive[..], more].concat())
    }

    fn start_receiver(&mut self) {
        let mut receiver = self.receive(&["--once"]);
        (self.address, self.key) = (receiver.after("receiving on "), receiver.after("public key "));
        self.receiver = Some(receiver);
    }

    fn send(&self, more: &[&str]) -> Running {
        let to = ["quic", "send", "film.bin", "--to", &self.address, "--key", &self.key];
        self.command("nobody", &[&to[..], more].concat())
    }

    fn send_slowly(&self) -> Running {
        self.send(&["--fixed-window", "1500"])
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

    fn part(&self) -> PathBuf {
        let part = self.kept().into_iter().find(|(name, _)| name.ends_with(".part"));
        self.path("in").join(part.expect("there is one").0)
    }

    /// Waits until a journal tells of enough.
    fn wait_for_some(&self) -> Had {
        let had = Had::wait(&self.path("in"), ENOUGH);
        assert!(had.written < LENGTH, "it was too fast to be killed");
        had
    }

    /// The file is there, and this many hidden ones beside it.
    fn check(mut self, hidden: usize) {
        let (code, out, err) = self.receiver.take().unwrap().end();
        assert_eq!(code, Some(0), "{out} {err}");
        assert!(out.contains(&format!("film.bin, {LENGTH} bytes, hash right")), "{out}");
        assert!(fs::read(self.path("film.bin")).unwrap() == fs::read(self.path("in/film.bin")).unwrap());
        assert_eq!(self.kept().len(), 1 + hidden, "{:?}", self.kept());
    }
}

/// Bytes that a sender says had come before; it has ended well.
fn resumed(sender: Running) -> Option<u64> {
    let (code, out, err) = sender.end();
    assert_eq!(code, Some(0), "{out} {err}");
    let end = out.find(" bytes of it had come before")?;
    out[..end].rsplit(|c: char| !c.is_ascii_digit()).next().unwrap().parse().ok()
}

#[test]
fn a_sender_that_is_killed_goes_on_where_it_was() {
    let setting = Setting::new();
    let mut sender = setting.send_slowly();
    let Had { written, .. } = setting.wait_for_some();
    assert!(sender.is_running());
    drop(sender); // SIGKILL
    // The connection before was closed in order: all that was written is in the journal, in whole pieces.
    let before = resumed(setting.send(&[]));
    assert!(before >= Some(written.saturating_sub(1 << 16)), "{before:?} of {written}");
    setting.check(0);
}

#[test]
fn both_ends_that_are_killed_go_on_where_they_were() {
    let mut setting = Setting::new();
    let sender = setting.send_slowly();
    let had = setting.wait_for_some();
    drop((setting.receiver.take(), sender)); // SIGKILL
    // It may have died while it wrote the next journal.
    let kept = setting.kept().into_iter().filter(|(name, _)| !name.ends_with(".journal.new"));
    assert_eq!(kept.count(), 2, "a part and a journal: {:?}", setting.kept());
    setting.start_receiver();
    // All that the journal listed, in whole pieces.
    let before = resumed(setting.send(&[]));
    assert!(before >= Some(had.journaled.saturating_sub(1 << 16)), "{before:?} of {had:?}");
    setting.check(0);
}

#[test]
fn a_part_that_was_damaged_on_the_disk_makes_the_file_come_anew_and_not_wrong() {
    let mut setting = Setting::new();
    let sender = setting.send_slowly();
    setting.wait_for_some();
    drop((setting.receiver.take(), sender)); // SIGKILL
    let part = setting.part();
    let mut bytes = fs::read(&part).unwrap();
    bytes[1000] ^= 1;
    fs::write(&part, bytes).unwrap();
    setting.start_receiver();
    assert_eq!(resumed(setting.send(&[])), None);
    setting.check(0);
}

#[test]
fn another_file_of_the_same_name_begins_anew() {
    let mut setting = Setting::new();
    let sender = setting.send_slowly();
    setting.wait_for_some();
    drop((setting.receiver.take(), sender)); // SIGKILL
    let mut bytes = fs::read(setting.path("film.bin")).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(setting.path("film.bin"), bytes).unwrap();
    setting.start_receiver();
    assert_eq!(resumed(setting.send(&[])), None);
    // What has come of the other is kept for a week.
    setting.check(2);
}

/// Nobody is driven out who is there: two that send the same at once both arrive.
#[test]
fn a_sender_that_is_there_keeps_its_file() {
    let mut setting = Setting::new();
    setting.receiver = None;
    let mut receiver = setting.receive(&[]);
    (setting.address, setting.key) = (receiver.after("receiving on "), receiver.after("public key "));
    let mut slow = setting.send_slowly();
    setting.wait_for_some();
    assert_eq!(resumed(setting.send(&[])), None);
    assert!(slow.is_running(), "its file comes still");
    assert!(fs::read(setting.path("film.bin")).unwrap() == fs::read(setting.path("in/film.bin")).unwrap());
}

/// A key proves that it is the same sender, which need not be silent first.
#[test]
fn a_sender_with_a_key_that_begins_anew_goes_on_with_its_file_at_once() {
    let mut setting = Setting::new();
    let key = setting.path("own.key");
    let key = ["--identity", key.to_str().unwrap()];
    assert_eq!(setting.command("nobody", &[&["key"], &key[..]].concat()).end().0, Some(0));
    let slow = setting.send(&[&key[..], &["--fixed-window", "1500"]].concat());
    setting.wait_for_some();
    assert!(resumed(setting.send(&key)).is_some_and(|bytes| bytes > 0), "it is told what is there");
    let (code, _, said) = slow.end();
    assert!(code == Some(2) && said.contains("begun to send this file again"), "{said}");
    assert_eq!(setting.receiver.take().unwrap().end().0, Some(0));
    assert!(fs::read(setting.path("film.bin")).unwrap() == fs::read(setting.path("in/film.bin")).unwrap());
}
