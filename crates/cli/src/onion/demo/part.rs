//! A demo's parts: processes of this machine, the lines that they print, and the processor time that they take.

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::failure::Failure;
use crate::interrupt::Interrupt;

/// What the parts have to be there.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The last lines that a part has printed are shown when it does not come up: this many.
const LAST_LINES: usize = 12;

/// A process, and the lines that it prints.
pub struct Part {
    child: Child,
    pub lines: Receiver<String>,
}

impl Part {
    /// Starts this program with `arguments`.
    pub fn start(arguments: &[&str]) -> Result<Part, Failure> {
        Part::of(Command::new(std::env::current_exe()?).args(arguments).stdin(Stdio::null()))
    }

    /// Starts what `command` says.
    pub fn of(command: &mut Command) -> Result<Part, Failure> {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        // Not bounded: these programs print a few lines each, and one that waited for a reader would stand still.
        let (sender, lines) = channel();
        let streams: [Option<Box<dyn Read + Send>>; 2] =
            [child.stdout.take().map(|out| Box::new(out) as _), child.stderr.take().map(|err| Box::new(err) as _)];
        for stream in streams.into_iter().flatten() {
            let sender = sender.clone();
            thread::spawn(move || {
                for line in BufReader::new(stream).lines().map_while(Result::ok) {
                    if sender.send(line).is_err() {
                        return;
                    }
                }
            });
        }
        Ok(Part { child, lines })
    }

    /// Waits for a line that contains `text`.
    pub fn await_line(&self, text: &str, interrupt: &Interrupt) -> Result<String, Failure> {
        self.await_line_where(|line| line.contains(text), text, PATIENCE, interrupt)
    }

    /// Waits for so long at most for a line that `fits`, which is called `what`.
    pub fn await_line_where(
        &self,
        fits: impl Fn(&str) -> bool,
        what: &str,
        patience: Duration,
        interrupt: &Interrupt,
    ) -> Result<String, Failure> {
        let (begun, mut seen) = (Instant::now(), Vec::new());
        loop {
            if interrupt.is_raised() {
                return Err(Failure::interrupted("nothing is left"));
            }
            // What was said already counts, even if there is no time left.
            let left = patience.saturating_sub(begun.elapsed());
            match self.lines.recv_timeout(left.min(Duration::from_millis(100))) {
                Ok(line) if fits(&line) => return Ok(line),
                Ok(line) => seen.push(line),
                Err(std::sync::mpsc::RecvTimeoutError::Timeout) if begun.elapsed() < patience => {}
                Err(_) => break,
            }
        }
        let last = seen.split_off(seen.len().saturating_sub(LAST_LINES)).join(" | ");
        Err(Failure::new(format!("a part of the demo did not come to say \"{what}\"; it said: {last}")))
    }

    /// Sends it a signal. One that has ended already is no matter.
    pub fn signal(&self, signal: Signal) {
        let _ = kill(Pid::from_raw(self.child.id() as i32), signal);
    }

    /// Waits until it, which is `what`, has ended, and well.
    pub fn finish(mut self, what: &str, interrupt: &Interrupt) -> Result<(), Failure> {
        let begun = Instant::now();
        let why = loop {
            match self.child.try_wait()? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => break status.to_string(),
                None if interrupt.is_raised() => return Err(Failure::interrupted("nothing is left")),
                None if begun.elapsed() > PATIENCE => break format!("it takes longer than {} s", PATIENCE.as_secs()),
                None => thread::sleep(Duration::from_millis(20)),
            }
        };
        // Its last lines are still on their way.
        let lines = std::iter::from_fn(|| self.lines.recv_timeout(Duration::from_millis(100)).ok());
        Err(Failure::new(format!("{what}: {why}; it said: {}", lines.collect::<Vec<_>>().join(" | "))))
    }

    /// Asks it to end, and gives the object that it prints then.
    pub fn end(mut self) -> serde_json::Value {
        self.signal(Signal::SIGINT);
        let begun = Instant::now();
        let mut last = serde_json::Value::Null;
        while begun.elapsed() < Duration::from_secs(10) {
            match self.lines.recv_timeout(Duration::from_millis(100)) {
                Ok(line) => {
                    if let Ok(value @ serde_json::Value::Object(_)) = serde_json::from_str(&line) {
                        last = value;
                    }
                }
                Err(std::sync::mpsc::RecvTimeoutError::Timeout) => {}
                Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => break,
            }
        }
        let _ = self.child.wait_timeout_or_kill();
        last
    }
}

trait WaitOrKill {
    fn wait_timeout_or_kill(&mut self) -> std::io::Result<()>;
}

impl WaitOrKill for Child {
    fn wait_timeout_or_kill(&mut self) -> std::io::Result<()> {
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(2) {
            if self.try_wait()?.is_some() {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(10));
        }
        self.kill()?;
        self.wait().map(|_| ())
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // One that has ended already is no matter.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Processor time that `parts` have taken so far.
#[cfg(target_os = "linux")]
pub fn processor_s<'a>(parts: impl Iterator<Item = &'a Part>) -> Option<f64> {
    use nix::time::{clock_getcpuclockid, clock_gettime};

    let of = |part: &Part| {
        let clock = clock_getcpuclockid(Pid::from_raw(part.child.id() as i32)).ok()?;
        let time = clock_gettime(clock).ok()?;
        Some(time.tv_sec() as f64 + time.tv_nsec() as f64 / 1e9)
    };
    parts.map(of).sum()
}

#[cfg(not(target_os = "linux"))]
pub fn processor_s<'a>(_: impl Iterator<Item = &'a Part>) -> Option<f64> {
    None
}

/// Processor time of processes that have ended, and of theirs.
pub fn processor_s_of_ended() -> Result<f64, Failure> {
    let ended = getrusage(UsageWho::RUSAGE_CHILDREN).map_err(std::io::Error::from)?;
    Ok([ended.user_time(), ended.system_time()]
        .iter()
        .map(|time| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6)
        .sum())
}

/// An address in a loopback network of its own that nobody uses now.
pub fn free(bind: impl Fn(SocketAddr) -> std::io::Result<SocketAddr>, network: u8) -> Result<SocketAddr, Failure> {
    let host = SocketAddr::from(([127, 1, network, 1], 0));
    bind(host).map_err(|why| Failure::new(format!("cannot listen at {host}, a loopback address: {why}")))
}
