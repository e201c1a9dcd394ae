//! Runs the real binary.

#![allow(dead_code, reason = "each test file uses a part of it")]

#[cfg(target_os = "linux")]
pub mod machines;
pub mod running;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// A folder that goes away, with the scenario `s.toml` in it.
pub struct Place {
    folder: tempfile::TempDir,
}

/// What was printed, and the exit code.
#[derive(Debug)]
pub struct Said {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

/// A scenario of a tenth of a second.
pub const SMALL: &str = "\
[run]
seconds = 150
watch = 1
[overlay]
peers = 6
relays = 2
controller = \"q-learning\"
";

impl Place {
    /// A file that a run has written into the folder `out`, but the time that it took.
    pub fn written(&self, out: &str, name: &str) -> Vec<u8> {
        without_wall_clock(std::fs::read(self.path(out).join(name)).unwrap())
    }

    pub fn new(scenario: &str) -> Place {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("s.toml"), scenario).unwrap();
        Place { folder }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The binary in this folder.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_anabranch"));
        command.args(arguments).current_dir(self.folder.path());
        command
    }

    pub fn say(&self, arguments: &[&str]) -> Said {
        said(self.command(arguments).output().unwrap())
    }

    /// Starts the binary, waits until `started` and until it handles signals, and sends `signal`.
    #[cfg(unix)]
    pub fn interrupt(&self, arguments: &[&str], started: impl Fn() -> bool, signal: &str) -> Said {
        let child = self.command(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        while !(started() && handles_signals(child.id())) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        let sent = Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap();
        assert!(sent.success());
        said(child.wait_with_output().unwrap())
    }

    /// Names in a folder, sorted.
    pub fn names(&self, folder: &str) -> Vec<String> {
        names(&self.path(folder))
    }
}

/// Whether a process has a handler for Ctrl-C.
#[cfg(target_os = "linux")]
fn handles_signals(id: u32) -> bool {
    const INTERRUPT: u64 = 1 << (2 - 1);
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    caught.is_some_and(|mask| u64::from_str_radix(mask.trim(), 16).unwrap() & INTERRUPT != 0)
}

/// The same where nobody can tell: a moment is enough.
#[cfg(all(unix, not(target_os = "linux")))]
fn handles_signals(_: u32) -> bool {
    std::thread::sleep(Duration::from_millis(300));
    true
}

pub fn said(output: Output) -> Said {
    Said {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

pub fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

impl Said {
    /// The one object on standard output.
    pub fn json(&self) -> serde_json::Value {
        assert_eq!(self.stdout.trim_end().lines().count(), 1, "{self:?}");
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Refused with code 2, with `expected` in the one message and nothing on standard output.
    pub fn refuses(&self, expected: &str) {
        assert_eq!(self.code, Some(2), "{self:?}");
        assert!(self.stdout.is_empty(), "{self:?}");
        assert!(self.stderr.contains(expected), "expected {expected} in {self:?}");
        assert!(!self.stderr.contains("panicked"), "{self:?}");
    }
}

/// A file without the one line that differs between equal runs: how long they took.
pub fn without_wall_clock(mut file: Vec<u8>) -> Vec<u8> {
    let label: &[u8] = b"<dt>wall clock</dt>";
    if let Some(at) = file.windows(label.len()).position(|window| window == label) {
        let line = file[at..].iter().position(|&byte| byte == b'\n').map_or(file.len(), |end| at + end);
        file.drain(at..line);
    }
    file
}

/// Asserts that a run of `scenario` writes the same for the same seed, and something else for another.
pub fn gives_what_its_seed_says(scenario: &str) {
    let place = Place::new(scenario);
    for (out, seed) in [("a", "5"), ("b", "5"), ("c", "6")] {
        assert_eq!(place.say(&["run", "s.toml", "--seed", seed, "--out", out]).code, Some(0));
    }
    for name in ["report.html", "series.parquet"] {
        let [a, b, c] = ["a", "b", "c"].map(|out| place.written(out, name));
        assert!(a == b, "{name} differs");
        assert!(a != c, "{name} does not depend on the seed");
    }
}

/// Whether there are no emulated links here; says that a test is skipped, and why.
pub fn is_testbed_missing() -> bool {
    match anabranch_testbed::emulator::testbed_available() {
        Ok(()) => false,
        Err(reason) => {
            eprintln!("skipped: {reason}");
            true
        }
    }
}
