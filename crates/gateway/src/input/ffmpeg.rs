//! Anything that the user's ffmpeg reads: it passes the streams on as they are, in a transport stream.
//!
//! It is a process, and not a library: whatever a source sends that it does not bear ends the process
//! alone, which is run again. SRT is read so too.

use std::collections::VecDeque;
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::backoff::Backoff;
use super::feed::{Ending, Feed};
use super::reading::Reading;
use super::source::redact;

/// Lines of what it says that are kept, and bytes of each; longer ones are dropped.
const LINES: usize = 5;
const LINE: u64 = 500;

/// When its output is over, it has so long to end; then what it said is waited for so long.
const FAREWELL: Duration = Duration::from_secs(1);

/// What it is to do.
pub enum Task {
    /// Read a source; one that gives nothing for `stall` is read anew. A file is played once, or again and again if
    /// `is_looped`.
    Read { source: String, stall: Duration, is_looped: bool },
    /// Wait for a caller by SRT, however long, and read it. It knows itself when the caller has gone.
    Await { url: String },
}

/// Runs it, again and again.
pub async fn run(mut feed: Feed, task: Task, program: PathBuf) {
    let (source, stall, is_looped, hint) = match task {
        Task::Read { source, stall, is_looped } => (source, stall, is_looped, "ffmpeg runs, and nothing has come yet"),
        Task::Await { url } => (url, Duration::MAX, false, "ffmpeg waits for somebody to send by SRT"),
    };
    let mut backoff = Backoff::default();
    while !feed.is_unwanted() {
        let began = Instant::now();
        let (words, has_failed) = match Ffmpeg::start(&program, &source, is_looped) {
            Ok((mut ffmpeg, mut reading)) => {
                feed.begin(hint);
                let ending = feed.pump(&mut reading, stall).await;
                let is_over = matches!(ending, Ending::Over);
                let (status, said) = ffmpeg.stop(is_over).await;
                let is_good = status.is_some_and(|status| status.success());
                if is_over && is_good && is_file(&source) {
                    return feed.note_waiting("the file is over");
                }
                match status {
                    Some(status) if is_over => (format!("ffmpeg ended ({status}){said}"), !is_good),
                    _ => (format!("ffmpeg was ended{said}: {ending}"), !matches!(ending, Ending::Stalled(_))),
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return feed.note_failed(format!("there is no program {}: install ffmpeg", program.display()));
            }
            Err(error) => (format!("{} does not run: {error}", program.display()), true),
        };
        let wait = backoff.on_failure(began.elapsed());
        let words = format!("{words}; it is run again in {} s", wait.as_secs_f64());
        if has_failed {
            feed.note_failed(words)
        } else {
            feed.note_waiting(words)
        }
        sleep(wait).await;
    }
}

/// Whether it has an end, and all of it is there. A device or a pipe is live.
fn is_file(source: &str) -> bool {
    Path::new(source).is_file()
}

/// A process; it is ended when this is dropped.
struct Ffmpeg {
    child: Child,
    /// The last that it said.
    lines: Arc<Mutex<VecDeque<String>>>,
    listener: Option<std::thread::JoinHandle<()>>,
}

impl Ffmpeg {
    fn start(program: &Path, source: &str, is_looped: bool) -> io::Result<(Ffmpeg, Reading)> {
        let mut command = Command::new(program);
        command.args(["-nostdin", "-hide_banner", "-loglevel", "error"]);
        if is_file(source) {
            // As fast as it is to be played.
            command.arg("-re");
            if is_looped {
                command.args(["-stream_loop", "-1"]);
            }
        }
        command.args(["-i", source, "-c", "copy", "-f", "mpegts", "pipe:1"]);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let (output, errors) = (child.stdout.take(), child.stderr.take());
        let lines = Arc::new(Mutex::new(VecDeque::new()));
        let mut ffmpeg = Ffmpeg { child, lines: Arc::clone(&lines), listener: None };
        let (output, errors) = output.zip(errors).expect("both are pipes");
        let source = source.to_owned();
        let listen = move || listen(BufReader::new(errors), &source, &lines);
        ffmpeg.listener = Some(std::thread::Builder::new().name("ffmpeg".into()).spawn(listen)?);
        Ok((ffmpeg, Reading::start(output)?))
    }

    /// Ends it, or awaits its end for a while if its output is over: how it ended, and its last words.
    async fn stop(&mut self, is_over: bool) -> (Option<ExitStatus>, String) {
        let began = Instant::now();
        while is_over && began.elapsed() < FAREWELL && matches!(self.child.try_wait(), Ok(None)) {
            sleep(FAREWELL / 20).await;
        }
        // It may have ended.
        let _ = self.child.kill();
        let status = self.child.wait().ok();
        // What it has started may hold its standard error open, and may run for good: the thread ends with that.
        let ended = Instant::now();
        while ended.elapsed() < FAREWELL && self.listener.as_ref().is_some_and(|listener| !listener.is_finished()) {
            sleep(FAREWELL / 20).await;
        }
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let said = lines.iter().fold(String::new(), |said, line| format!("{said}: {line}"));
        (status, said)
    }
}

impl Drop for Ffmpeg {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Keeps the last of what it says, without what is secret in the source's URL.
fn listen(mut errors: impl io::BufRead, source: &str, lines: &Mutex<VecDeque<String>>) {
    let mut is_inside = false;
    loop {
        let mut line = Vec::new();
        match errors.by_ref().take(LINE).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            // Where a secret is cut in two, it is not found.
            Ok(_) if !line.ends_with(b"\n") && line.len() as u64 == LINE => is_inside = true,
            Ok(_) if std::mem::take(&mut is_inside) => {}
            Ok(_) => {
                let mut lines = lines.lock().unwrap_or_else(PoisonError::into_inner);
                lines.push_back(redact(String::from_utf8_lossy(&line).trim(), source));
                if lines.len() > LINES {
                    lines.pop_front();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_kept_without_secrets_and_long_ones_are_not() {
        let lines = Mutex::default();
        let long = "x".repeat(LINE as usize - 3) + "secret and more";
        let said = format!("1\n2\n{long}\n3\n4\n5\nrtsp://me:secret@host: refused\n{long}");
        listen(said.as_bytes(), "rtsp://me:secret@host", &lines);
        let lines = lines.into_inner().unwrap();
        assert_eq!(lines, ["2", "3", "4", "5", "rtsp://***@host: refused"]);
    }
}
