//! A process of the real binary that runs beside the test.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

const BINARY: &str = env!("CARGO_BIN_EXE_anabranch");

/// Where the key of these tests is, and what they have to remember, and not the user's own.
pub const SETTINGS: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/settings");

/// A process that ends with this value.
pub struct Running {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Running {
    pub fn start(arguments: &[&str]) -> Running {
        Running::of(Command::new(BINARY).args(arguments).env("XDG_CONFIG_HOME", SETTINGS))
    }

    /// What `command` starts.
    pub fn of(command: &mut Command) -> Running {
        if command.get_envs().all(|(name, _)| name != "XDG_STATE_HOME") {
            command.env("XDG_STATE_HOME", SETTINGS);
        }
        let spawned = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = spawned.expect("the binary was built for this test");
        let lines = BufReader::new(child.stdout.take().expect("its standard output is a pipe"));
        Running { child, lines }
    }

    /// What follows `before` on the next line.
    pub fn after(&mut self, before: &str) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        let found = line.find(before).unwrap_or_else(|| panic!("no {before:?} in {line:?}"));
        line[found + before.len()..].trim().to_owned()
    }

    /// The next line, as JSON; null where there is none.
    pub fn json(&mut self) -> serde_json::Value {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        if line.is_empty() { serde_json::Value::Null } else { serde_json::from_str(&line).unwrap() }
    }

    /// The first of the next lines, as JSON, that `fits`.
    pub fn json_where(&mut self, fits: impl Fn(&serde_json::Value) -> bool) -> serde_json::Value {
        loop {
            let line = self.json();
            assert!(!line.is_null(), "it has ended");
            if fits(&line) {
                return line;
            }
        }
    }

    /// Whether it has not ended yet.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Sends an interrupt, as Ctrl-C does.
    #[cfg(unix)]
    pub fn interrupt(&self) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    }

    /// Its exit code, and the rest of what it said.
    pub fn end(mut self) -> (Option<i32>, String, String) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while self.child.try_wait().unwrap().is_none() {
            assert!(Instant::now() < deadline, "it does not end");
            std::thread::sleep(Duration::from_millis(20));
        }
        let (mut out, mut err) = (String::new(), String::new());
        self.lines.read_to_string(&mut out).unwrap();
        self.child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
        (self.child.wait().unwrap().code(), out, err)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
