//! A headless Chromium, where there is one, that shows a page of a demo's.
//!
//! It is driven by its DevTools protocol over two pipes (`--remote-debugging-pipe`): JSON messages, each with a zero
//! behind it.

use std::io::{BufRead, BufReader, PipeReader, PipeWriter, Write};
#[cfg(unix)]
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::failure::Failure;
use crate::interrupt::Interrupt;

/// Where a browser is looked for that no environment variable names.
const PLACES: [&str; 4] =
    ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome", "/usr/bin/google-chrome-stable"];

/// The variable.
const VARIABLE: &str = "CHROMIUM";

/// How long the browser may take for an answer.
const PATIENCE: Duration = Duration::from_secs(20);

/// While an answer is awaited, it is looked so often whether the user has had enough.
const LOOK: Duration = Duration::from_millis(100);

/// What the page's window is as large as.
const WINDOW: (u32, u32) = (1440, 2250);

/// The browser on this machine, if any.
pub fn find() -> Option<PathBuf> {
    let named = std::env::var_os(VARIABLE).map(PathBuf::from);
    named.into_iter().chain(PLACES.map(PathBuf::from)).find(|place| place.is_file())
}

/// A browser that shows a page. It is ended when this is dropped.
#[derive(Debug)]
pub struct Browser {
    child: Child,
    requests: PipeWriter,
    /// The other end of `requests`, held open: with nobody left to read, a write would end this process by SIGPIPE.
    _read: PipeReader,
    answers: Receiver<Value>,
    interrupt: Interrupt,
    next: u64,
    session: Option<String>,
    _profile: tempfile::TempDir,
}

impl Drop for Browser {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.call("Browser.close", &json!({}));
        let end = Instant::now() + Duration::from_secs(3);
        while Instant::now() < end && self.child.try_wait().is_ok_and(|status| status.is_none()) {
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn failed(why: impl std::fmt::Display) -> Failure {
    Failure::new(format!("the browser cannot be driven: {why}"))
}

/// Reads its messages until it ends.
fn read(stdout: ChildStdout, to: &mpsc::Sender<Value>) {
    let mut output = BufReader::new(stdout);
    let mut message = Vec::new();
    while output.read_until(0, &mut message).is_ok_and(|length| length > 0) {
        message.pop();
        if let Ok(value) = serde_json::from_slice(&message)
            && to.send(value).is_err()
        {
            return;
        }
        message.clear();
    }
}

impl Browser {
    /// Shows `page` in the browser at `path`, which gets `arguments` besides.
    ///
    /// # Errors
    ///
    /// When it does not run, or not as expected, or the user has had enough.
    pub fn open(path: &Path, page: &str, arguments: &[String], interrupt: &Interrupt) -> Result<Browser, Failure> {
        let profile = tempfile::tempdir()?;
        let (read_end, requests) = std::io::pipe()?;
        // The protocol's pipes are descriptors 3 and 4, which a shell puts in their places.
        let mut command = Command::new("/bin/sh");
        command
            .args(["-c", "exec \"$0\" \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>&1"])
            .arg(path)
            // Containers run as root without user namespaces; the page that is opened is our own.
            .args(["--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--no-first-run"])
            .arg("--disable-background-networking")
            .args(arguments)
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg(format!("--window-size={},{}", WINDOW.0, WINDOW.1))
            .arg("about:blank")
            .stdin(read_end.try_clone()?)
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        // Ctrl-C is for us: the browser is closed, and not killed in the midst of its writing.
        #[cfg(unix)]
        command.process_group(0);
        let mut child = command.spawn().map_err(failed)?;
        let stdout = child.stdout.take().ok_or_else(|| failed("it has no output"))?;
        let (sender, answers) = mpsc::channel();
        std::thread::Builder::new().name("browser".into()).spawn(move || read(stdout, &sender))?;
        let mut browser = Browser {
            child,
            requests,
            _read: read_end,
            answers,
            interrupt: interrupt.clone(),
            next: 0,
            session: None,
            _profile: profile,
        };
        let made = browser.call("Target.createTarget", &json!({ "url": page }))?;
        let attach = json!({ "targetId": made["targetId"], "flatten": true });
        let attached = browser.call("Target.attachToTarget", &attach)?;
        browser.session = attached["sessionId"].as_str().map(str::to_owned);
        Ok(browser)
    }

    /// What `script` gives on its page.
    ///
    /// # Errors
    ///
    /// When it does not answer.
    pub fn evaluate(&mut self, script: &str) -> Result<Value, Failure> {
        let answer = self.call("Runtime.evaluate", &json!({ "expression": script, "returnByValue": true }))?;
        Ok(answer["result"]["value"].clone())
    }

    /// Evaluates `script` until `is_enough` says so of what it gives, and gives that; or `missing` is said as what is
    /// wrong with the page.
    ///
    /// # Errors
    ///
    /// When it does not answer, or the page does not come to it.
    pub fn await_value(
        &mut self,
        script: &str,
        is_enough: impl Fn(&Value) -> bool,
        missing: &str,
    ) -> Result<Value, Failure> {
        let end = Instant::now() + PATIENCE;
        loop {
            let value = self.evaluate(script)?;
            if is_enough(&value) {
                return Ok(value);
            }
            if Instant::now() >= end {
                return Err(failed(missing));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// A PNG of its page, in Base64.
    ///
    /// # Errors
    ///
    /// When it does not answer.
    pub fn picture(&mut self) -> Result<Option<String>, Failure> {
        let shot = self.call("Page.captureScreenshot", &json!({ "format": "png" }))?;
        Ok(shot["data"].as_str().map(str::to_owned))
    }

    fn call(&mut self, method: &str, params: &Value) -> Result<Value, Failure> {
        self.next += 1;
        let mut request = json!({ "id": self.next, "method": method, "params": params });
        if let Some(session) = &self.session {
            request["sessionId"] = json!(session);
        }
        let mut bytes = serde_json::to_vec(&request)?;
        bytes.push(0);
        self.requests.write_all(&bytes).map_err(failed)?;
        let end = Instant::now() + PATIENCE;
        loop {
            if self.interrupt.is_raised() {
                return Err(failed("it was closed before it answered"));
            }
            match self.answers.recv_timeout(LOOK) {
                Ok(answer) if answer["id"] == json!(self.next) => {
                    let error = answer["error"]["message"].as_str();
                    return error.map_or_else(|| Ok(answer["result"].clone()), |error| Err(failed(error)));
                }
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout) if Instant::now() < end => {}
                Err(RecvTimeoutError::Timeout) => return Err(failed(format!("no answer to {method}"))),
                Err(RecvTimeoutError::Disconnected) => return Err(failed("it has ended")),
            }
        }
    }
}
