//! A viewer of a demo: a process, and what it says.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use anabranch_net::stream::liar::Lie;

use super::Args;
use crate::failure::Failure;
use crate::stderr::eprint_line;
use crate::stream::status::Line;

/// What homes send: viewers have these in turn.
const UPLOADS: [&str; 4] = ["2 Mbit/s", "3 Mbit/s", "4 Mbit/s", "6 Mbit/s"];

/// What the first viewer says before the address of its page.
const PAGE: &str = "page: ";

/// A viewer's process; it is killed when this is dropped.
pub struct Viewer {
    child: Child,
    lines: Receiver<Line>,
    pages: Option<Receiver<String>>,
    page: Option<String>,
    /// When it began, on this process's clock.
    pub began: Instant,
    /// All that it said.
    pub said: Vec<Line>,
    pub is_killed: bool,
    pub lie: Option<Lie>,
}

impl Drop for Viewer {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Gives what `read` makes of each line of `output` to whoever holds the receiver, until either ends.
fn lines<T: Send + 'static>(
    output: impl Read + Send + 'static,
    read: impl Fn(&str) -> Option<T> + Send + 'static,
) -> Result<Receiver<T>, Failure> {
    let (sender, receiver) = mpsc::channel();
    std::thread::Builder::new().name("viewer".into()).spawn(move || {
        let lines = BufReader::new(output).lines().map_while(Result::ok);
        for one in lines.filter_map(|line| read(&line)) {
            if sender.send(one).is_err() {
                break;
            }
        }
    })?;
    Ok(receiver)
}

impl Viewer {
    /// Watches `link`; the first has a page.
    pub fn start(link: &str, number: usize, lie: Option<Lie>, args: &Args) -> Result<Viewer, Failure> {
        let upload = UPLOADS[number % UPLOADS.len()];
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["stream", "watch", link, "--json", "--limit", "--upload", upload, "--listen", "127.0.0.1:0"]);
        command.args(["--buffer", &args.buffer.as_secs_f64().to_string()]);
        command.args(["--controller", args.controller.name]);
        if let Some(lie) = lie {
            command.args(["--lie", lie.name()]);
        }
        if number == 0 {
            command.stderr(Stdio::piped());
        } else {
            command.arg("--no-http").stderr(Stdio::null());
        }
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let stdout = child.stdout.take().ok_or_else(|| Failure::new("a viewer has no output"))?;
        let pages = child.stderr.take().map(|stderr| lines(stderr, |line| Some(line.strip_prefix(PAGE)?.to_owned())));
        let pages = pages.transpose()?;
        let lines = lines(stdout, |line| serde_json::from_str(line).ok())?;
        let (began, said) = (Instant::now(), Vec::new());
        Ok(Viewer { child, lines, pages, page: None, began, said, is_killed: false, lie })
    }

    /// Takes what it has said since.
    pub fn hear(&mut self) {
        self.said.extend(self.lines.try_iter());
        if let Some(page) = self.pages.as_ref().and_then(|pages| pages.try_recv().ok()) {
            eprint_line!("{PAGE}{page}");
            self.page = Some(page);
        }
    }

    /// Where its page is, once it has said so.
    pub fn page(&self) -> Option<String> {
        self.page.clone()
    }

    /// Ends it without a word.
    pub fn kill(&mut self) -> Result<(), Failure> {
        self.is_killed = true;
        Ok(self.child.kill()?)
    }

    /// Whether its figures count: it tells the truth, and lives.
    pub fn counts(&self) -> bool {
        !self.is_killed && self.lie.is_none()
    }

    /// What it had said `after` the beginning of `demo`, the latest before.
    pub fn at(&self, demo: Instant, after: Duration) -> Option<&Line> {
        let own = |line: &&Line| (self.began - demo).as_secs_f64() + line.uptime_s <= after.as_secs_f64();
        self.said.iter().rev().find(own)
    }
}
