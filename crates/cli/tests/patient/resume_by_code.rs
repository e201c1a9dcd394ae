//! What is sent by a code goes on where it was when either side or both are killed, without a chance to
//! tidy up, and the same things are sent again by another code.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::common::running::{Running, SETTINGS};
use crate::journal::{Had, SLOWLY};

const BINARY: &str = env!("CARGO_BIN_EXE_anabranch");

/// Bytes of the file.
const LENGTH: u64 = 4_000_000;

/// Bytes of it that a journal tells of before anybody is killed.
const ENOUGH: u64 = 250_000;

struct Setting {
    folder: tempfile::TempDir,
    _relay: Running,
    at: String,
    codes: u32,
}

impl Setting {
    fn new() -> Setting {
        let folder = tempfile::tempdir().unwrap();
        let file: Vec<u8> = (0..LENGTH as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        fs::create_dir_all(folder.path().join("album/sub")).unwrap();
        fs::write(folder.path().join("film.bin"), &file).unwrap();
        fs::write(folder.path().join("album/film.bin"), &file).unwrap();
        fs::write(folder.path().join("album/sub/notes"), "notes").unwrap();
        let mut relay = Running::start(&["relay", "--listen", "127.0.0.1:0", "--limit", "4 MB/s"]);
        let at = relay.after(" on ");
        Setting { folder, _relay: relay, at, codes: 0 }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn start(&self, arguments: &[&str]) -> Running {
        let mut command = Command::new(BINARY);
        command.args(arguments).args(["--relays", &self.at]).current_dir(self.folder.path());
        command.env("XDG_STATE_HOME", self.path("state"));
        Running::of(command.env("XDG_CONFIG_HOME", SETTINGS).stdin(Stdio::null()))
    }

    /// A sender of `what` and a receiver, by a code that was not used before.
    fn start_both(&mut self, what: &str) -> (Running, Running) {
        self.start_both_at("2 MB/s", what)
    }

    /// The same, so slowly that either can be killed while the file comes.
    fn start_both_slowly(&mut self, what: &str) -> (Running, Running) {
        self.start_both_at(SLOWLY, what)
    }

    fn start_both_at(&mut self, upload: &str, what: &str) -> (Running, Running) {
        self.codes += 1;
        let code = format!("{}-crowfoot-orlando", self.codes);
        let how = ["--controller", "aimd", "--pacing", "paced", "--upload", upload];
        let sender = self.start(&[&["send", what, "--code", &code][..], &how].concat());
        (sender, self.start(&["receive", &code, "--out", "in"]))
    }

    /// What is in the receiver's folder, with lengths.
    fn kept(&self) -> Vec<(String, u64)> {
        let Ok(folder) = fs::read_dir(self.path("in")) else { return Vec::new() };
        let entries = folder.filter_map(Result::ok).filter_map(|entry| {
            // It may have gone meanwhile.
            Some((entry.file_name().into_string().ok()?, entry.metadata().ok()?.len()))
        });
        let mut kept: Vec<_> = entries.collect();
        kept.sort();
        kept
    }

    fn names(&self) -> Vec<String> {
        self.kept().into_iter().map(|(name, _)| name).collect()
    }

    /// How many receivers remember what they have agreed on.
    fn remembered(&self) -> usize {
        fs::read_dir(self.path("state/anabranch/receive")).map_or(0, Iterator::count)
    }

    /// Waits until a journal tells of enough.
    fn wait_for_some(&self) -> Had {
        Had::wait(&self.path("in"), ENOUGH)
    }
}

fn same(one: &Path, other: &Path) -> bool {
    fs::read(one).unwrap() == fs::read(other).unwrap()
}

/// It has ended well: what it said.
fn ended(process: Running) -> String {
    let (code, out, err) = process.end();
    assert_eq!(code, Some(0), "{out} {err}");
    out
}

/// Bytes that a sender says had come before.
fn resumed(sent: &str) -> Option<u64> {
    let end = sent.find(" bytes of it had come before")?;
    sent[..end].rsplit(|c: char| !c.is_ascii_digit()).next().unwrap().parse().ok()
}

#[test]
fn a_file_goes_on_by_another_code_after_both_ends_were_killed() {
    let mut setting = Setting::new();
    let both = setting.start_both_slowly("film.bin");
    let had = setting.wait_for_some();
    drop(both); // SIGKILL
    let mut names = setting.names();
    // Its journal may just have been written anew.
    names.retain(|name| !name.ends_with(".journal.new"));
    assert!(names.len() == 2 && names.iter().all(|name| name.starts_with(".anabranch-")), "{names:?}");
    let (sender, receiver) = setting.start_both("film.bin");
    let (received, sent) = (ended(receiver), ended(sender));
    assert!(resumed(&sent) >= Some(had.journaled), "{had:?}: {sent}");
    assert!(received.contains("received in/film.bin, 4000000 bytes, hash right"), "{received}");
    assert_eq!(setting.kept(), [("film.bin".to_owned(), LENGTH)]);
    assert!(same(&setting.path("film.bin"), &setting.path("in/film.bin")));
}

/// Who was killed is started again as before: the code itself has been used.
fn the_same_receiver_goes_on(what: &str, film: &str) {
    let mut setting = Setting::new();
    let (sender, receiver) = setting.start_both_slowly(what);
    let had = setting.wait_for_some();
    // Another one by the same code finds a receiver that lives, and takes nothing from it.
    let other = setting.start(&["receive", "1-crowfoot-orlando", "--out", "in"]);
    sleep(Duration::from_secs(1));
    drop(other); // SIGKILL
    assert_eq!(setting.remembered(), 1);
    drop(receiver); // SIGKILL
    let receiver = setting.start(&["receive", "1-crowfoot-orlando", "--out", "in"]);
    let (received, sent) = (ended(receiver), ended(sender));
    let goes_on = format!("a receiver with this code was killed; this one goes on: {what}, ");
    assert!(received.contains(&goes_on) && received.contains("hash right"), "{received}");
    assert!(resumed(&sent) >= Some(had.journaled), "{had:?}: {sent}");
    assert_eq!((setting.names(), setting.remembered()), (vec![what.to_owned()], 0));
    assert!(same(&setting.path(film), &setting.path("in").join(film)));
}

#[test]
fn the_same_receiver_goes_on_with_a_file_while_its_sender_tries_on() {
    the_same_receiver_goes_on("film.bin", "film.bin");
}

#[test]
fn the_same_receiver_goes_on_with_a_folder_while_its_sender_tries_on() {
    the_same_receiver_goes_on("album", "album/film.bin");
}

/// A sender of a folder that takes a while to unpack, and a receiver that was killed while it did.
fn killed_while_it_unpacks(setting: &mut Setting) -> Running {
    for number in 0..10_000 {
        fs::write(setting.path("album/sub").join(number.to_string()), "").unwrap();
    }
    setting.codes += 1;
    let sender = setting.start(&["send", "album", "--code", "1-crowfoot-orlando"]);
    let mut receiver = setting.start(&["receive", "1-crowfoot-orlando", "--out", "in"]);
    receiver.after("waiting for the sender");
    receiver.after("offered: ");
    receiver.after("all of it has come; unpacking");
    drop(receiver); // SIGKILL
    assert!(!setting.names().contains(&"album".to_owned()), "too late");
    sender
}

#[test]
fn a_receiver_that_was_killed_while_it_unpacked_tells_its_sender_when_the_next_has() {
    let mut setting = Setting::new();
    let sender = killed_while_it_unpacks(&mut setting);
    let received = ended(setting.start(&["receive", "1-crowfoot-orlando", "--out", "in"]));
    assert!(received.contains("received in/album: 10002 files"), "{received}");
    assert!(ended(sender).contains("as album.tar: "));
    assert_eq!((setting.names(), setting.remembered()), (vec!["album".to_owned()], 0));
}

#[test]
fn a_receiver_that_was_killed_while_it_unpacked_needs_no_sender_to_go_on() {
    let mut setting = Setting::new();
    drop(killed_while_it_unpacks(&mut setting)); // SIGKILL
    let received = ended(setting.start(&["receive", "1-crowfoot-orlando", "--out", "in"]));
    assert!(received.contains("received in/album: 10002 files"), "{received}");
    assert_eq!((setting.names(), setting.remembered()), (vec!["album".to_owned()], 0));
    assert!(same(&setting.path("album/film.bin"), &setting.path("in/album/film.bin")));
}

/// A receiver whose code was drawn, and its sender, while the file comes; how it was started.
fn receiving_by_a_drawn_code(setting: &Setting) -> (Running, Running) {
    let mut receiver = setting.start(&["receive", "--out", "in"]);
    let code = receiver.after("code: ");
    receiver.after("on the other machine: ");
    let how = ["--controller", "aimd", "--pacing", "paced", "--upload", SLOWLY];
    (setting.start(&[&["send", "film.bin", "--code", &code][..], &how].concat()), receiver)
}

#[test]
fn a_receiver_that_drew_its_code_goes_on_by_the_same_command_while_its_sender_tries_on() {
    let setting = Setting::new();
    let (sender, receiver) = receiving_by_a_drawn_code(&setting);
    let had = setting.wait_for_some();
    // Another one of this folder draws its own code, for the first lives.
    let mut other = setting.start(&["receive", "--out", "in"]);
    other.after("code: ");
    drop(other); // SIGKILL
    assert_eq!(setting.remembered(), 1);
    drop(receiver); // SIGKILL
    let (received, sent) = (ended(setting.start(&["receive", "--out", "in"])), ended(sender));
    assert!(received.contains("a receiver of this folder was killed; this one goes on: film.bin, "), "{received}");
    assert!(!received.contains("code: ") && received.contains("hash right"), "{received}");
    assert!(resumed(&sent) >= Some(had.journaled), "{had:?}: {sent}");
    assert_eq!((setting.names(), setting.remembered()), (vec!["film.bin".to_owned()], 0));
    assert!(same(&setting.path("film.bin"), &setting.path("in/film.bin")));
}

#[test]
fn a_receiver_that_drew_its_code_draws_another_once_its_sender_has_gone() {
    let setting = Setting::new();
    let both = receiving_by_a_drawn_code(&setting);
    let had = setting.wait_for_some();
    drop(both); // SIGKILL
    let mut receiver = setting.start(&["receive", "--out", "in"]);
    receiver.after("a receiver of this folder was killed; this one goes on");
    receiver.after("its sender is not there any more; here is a new code");
    let code = receiver.after("code: ");
    let sent = ended(setting.start(&["send", "film.bin", "--code", &code]));
    ended(receiver);
    assert!(resumed(&sent) >= Some(had.journaled), "{had:?}: {sent}");
    assert_eq!((setting.names(), setting.remembered()), (vec!["film.bin".to_owned()], 0));
}

#[test]
fn a_receiver_whose_sender_was_killed_too_waits_for_one_that_comes_with_the_same_code() {
    let mut setting = Setting::new();
    let both = setting.start_both_slowly("film.bin");
    let had = setting.wait_for_some();
    drop(both); // SIGKILL
    let receiver = setting.start(&["receive", "1-crowfoot-orlando", "--out", "in"]);
    let sender = setting.start(&["send", "film.bin", "--code", "1-crowfoot-orlando"]);
    let (received, sent) = (ended(receiver), ended(sender));
    assert!(received.contains("its sender is not there any more; waiting for one"), "{received}");
    assert!(resumed(&sent) >= Some(had.journaled), "{had:?}: {sent}");
    assert_eq!((setting.names(), setting.remembered()), (vec!["film.bin".to_owned()], 0));
    assert!(same(&setting.path("film.bin"), &setting.path("in/film.bin")));
}

#[test]
fn a_receiver_that_can_remember_nothing_says_so_and_receives() {
    let mut setting = Setting::new();
    fs::write(setting.path("state"), "a file where a folder should be").unwrap();
    let (sender, receiver) = setting.start_both("film.bin");
    ended(sender);
    let (code, _, err) = receiver.end();
    assert!(code == Some(0) && err.contains("will not go on by this code: cannot make the folder"), "{err}");
    assert!(same(&setting.path("film.bin"), &setting.path("in/film.bin")));
}

/// The receiver has no way to know that its sender was killed, and its user does not wait for that.
#[test]
fn a_file_goes_on_after_its_sender_was_killed_and_its_receiver_interrupted() {
    let mut setting = Setting::new();
    let (sender, receiver) = setting.start_both_slowly("film.bin");
    let had = setting.wait_for_some();
    drop(sender); // SIGKILL
    sleep(Duration::from_secs(5));
    receiver.interrupt();
    assert_eq!(receiver.end().0, Some(130));
    let (sender, receiver) = setting.start_both("film.bin");
    ended(receiver);
    let sent = ended(sender);
    // It was closed in order: all that was written is in the journal.
    assert!(resumed(&sent) >= Some(had.written * 9 / 10), "{had:?}: {sent}");
    assert_eq!(setting.kept(), [("film.bin".to_owned(), LENGTH)]);
    assert!(same(&setting.path("film.bin"), &setting.path("in/film.bin")));
}

#[test]
fn a_folder_goes_on_as_the_archive_that_it_was_and_leaves_nothing_but_itself() {
    let mut setting = Setting::new();
    let both = setting.start_both_slowly("album");
    let had = setting.wait_for_some();
    drop(both); // SIGKILL
    // What an unpacking that was killed has left.
    let part = setting.names().into_iter().find(|name| name.ends_with(".part")).unwrap();
    let left = setting.path("in").join(part).with_extension("unpacked");
    fs::create_dir_all(left.join("album")).unwrap();
    fs::write(left.join("album/film.bin"), "half").unwrap();
    let (sender, receiver) = setting.start_both("album");
    let (received, sent) = (ended(receiver), ended(sender));
    assert!(resumed(&sent) >= Some(had.journaled), "{had:?}: {sent}");
    assert!(received.contains("received in/album: 2 files") && sent.contains("as album.tar"), "{received} {sent}");
    assert_eq!(setting.names(), ["album"]);
    for name in ["film.bin", "sub/notes"] {
        assert!(same(&setting.path("album").join(name), &setting.path("in/album").join(name)), "{name}");
    }
}

#[test]
fn a_folder_of_which_anything_has_changed_begins_anew_and_is_not_mixed() {
    let mut setting = Setting::new();
    let both = setting.start_both_slowly("album");
    setting.wait_for_some();
    drop(both); // SIGKILL
    fs::write(setting.path("album/sub/notes"), "other").unwrap();
    let (sender, receiver) = setting.start_both("album");
    ended(receiver);
    let sent = ended(sender);
    assert_eq!(resumed(&sent), None, "{sent}");
    assert_eq!(fs::read(setting.path("in/album/sub/notes")).unwrap(), b"other");
    // What has come of the other is kept for a week.
    assert_eq!(setting.names().len(), 3, "{:?}", setting.names());
}

#[test]
fn a_part_that_was_damaged_on_the_disk_makes_the_file_come_anew_and_not_wrong() {
    let mut setting = Setting::new();
    let both = setting.start_both_slowly("film.bin");
    setting.wait_for_some();
    drop(both); // SIGKILL
    let part = setting.names().into_iter().find(|name| name.ends_with(".part")).unwrap();
    let part = setting.path("in").join(part);
    let mut bytes = fs::read(&part).unwrap();
    bytes[1000] ^= 1;
    fs::write(&part, bytes).unwrap();
    let (sender, receiver) = setting.start_both("film.bin");
    ended(receiver);
    let sent = ended(sender);
    assert_eq!(resumed(&sent), None, "{sent}");
    assert_eq!(setting.kept(), [("film.bin".to_owned(), LENGTH)]);
    assert!(same(&setting.path("film.bin"), &setting.path("in/film.bin")));
}

/// The folder may have no more than the file: the part is of it, and others' parts make room.
#[test]
fn what_is_there_of_a_file_counts_once_and_the_parts_of_others_make_room_for_it() {
    let mut setting = Setting::new();
    for what in ["film.bin", "album"] {
        let both = setting.start_both_slowly(what);
        setting.wait_for_some();
        if what == "album" {
            let deadline = Instant::now() + Duration::from_secs(30);
            while setting.names().iter().filter(|name| name.ends_with(".journal")).count() < 2 {
                assert!(Instant::now() < deadline, "{:?}", setting.names());
                sleep(Duration::from_millis(50));
            }
        }
        drop(both); // SIGKILL
    }
    assert_eq!(setting.names().len(), 4);
    let most = (LENGTH + 100).to_string();
    let sender = setting.start(&["send", "film.bin", "--code", "9-crowfoot-orlando"]);
    let receiver = setting.start(&["receive", "9-crowfoot-orlando", "--out", "in", "--max-total", &most]);
    ended(receiver);
    let sent = ended(sender);
    assert!(resumed(&sent) > Some(0), "{sent}");
    assert_eq!(setting.kept(), [("film.bin".to_owned(), LENGTH)]);
}
