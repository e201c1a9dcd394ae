//! How far simulations are, on a terminal only, and stopping them by Ctrl-C.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use anabranch_lab::parallel::Progress;
use indicatif::{ProgressBar, ProgressStyle};

use crate::failure::Failure;
use crate::interrupt;
use crate::stderr::eprint_line;

/// Progress that Ctrl-C interrupts from now on; once in a process.
pub fn until_interrupted() -> Result<Arc<Progress>, Failure> {
    let progress: Arc<Progress> = Arc::default();
    let flag = progress.clone();
    interrupt::when_it_comes(move || flag.interrupted.store(true, Ordering::Relaxed))?;
    Ok(progress)
}

/// A bar on standard error that follows a progress; nothing where that is no terminal.
#[must_use]
pub struct Bar {
    bar: ProgressBar,
    thread: JoinHandle<()>,
}

/// Shows what `progress` counts from now on under `name`.
pub fn show(progress: &Arc<Progress>, name: &str) -> Bar {
    let bar = ProgressBar::new(0);
    let style =
        ProgressStyle::with_template("{msg} {wide_bar} {percent} % {eta}").expect("the template is well-formed");
    bar.set_style(style);
    bar.set_message(name.to_owned());
    let (progress, shown) = (progress.clone(), bar.clone());
    let before = (progress.done.load(Ordering::Relaxed), progress.total.load(Ordering::Relaxed));
    let thread = std::thread::spawn(move || {
        while !shown.is_finished() {
            shown.set_length((progress.total.load(Ordering::Relaxed) - before.1).max(1));
            shown.set_position(progress.done.load(Ordering::Relaxed) - before.0);
            std::thread::park_timeout(Duration::from_millis(200));
        }
    });
    Bar { bar, thread }
}

/// Where lines go that are said while a bar is shown.
#[derive(Clone, Debug)]
pub struct Lines(ProgressBar);

impl Lines {
    /// Says a line on standard error without tearing the bar.
    pub fn say(&self, line: &str) {
        self.0.suspend(|| eprint_line!("{line}"));
    }
}

impl Bar {
    /// For lines that are said while it is shown.
    pub fn lines(&self) -> Lines {
        Lines(self.bar.clone())
    }

    /// Takes the bar away.
    pub fn end(self) {
        self.bar.finish_and_clear();
        self.thread.thread().unpark();
        // The thread only draws; if it panicked, nothing is lost.
        let _ = self.thread.join();
    }
}
