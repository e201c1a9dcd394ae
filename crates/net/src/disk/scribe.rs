//! The thread that writes journals: whoever writes blocks need not wait until they are on the disk.

use std::fs::{self, File};
use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anabranch_proto::transfer::{Extents, Partial};

use super::journal::{Journal, MAX_RANGES};

/// A journal is written so often at most: what came since the last one comes again if the receiver is
/// killed.
const INTERVAL: Duration = Duration::from_secs(1);

/// A file that arrives.
#[derive(Debug)]
pub struct Coming {
    /// Locked, so that no other process takes it for one that nobody works at.
    pub file: File,
    pub path: PathBuf,
    /// Bytes that it will have.
    pub length: u64,
    /// What it is known by, if its sender may go on with it.
    pub partial: Option<Partial>,
    state: Mutex<State>,
    /// Held while its journal is written or removed: who writes blocks does not wait for that.
    journaling: Mutex<()>,
}

#[derive(Debug)]
struct State {
    /// What is written of it.
    extents: Extents,
    journaled: Instant,
    is_queued: bool,
    /// No journal of it is wanted any more.
    is_over: bool,
}

impl Coming {
    pub fn new(file: File, path: PathBuf, length: u64, partial: Option<Partial>, extents: Extents) -> Coming {
        let state = State { extents, journaled: Instant::now(), is_queued: false, is_over: false };
        Coming { file, path, length, partial, state: Mutex::new(state), journaling: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn journaling(&self) -> MutexGuard<'_, ()> {
        self.journaling.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where its journal is.
    pub fn journal(&self) -> PathBuf {
        self.path.with_extension("journal")
    }

    /// These bytes of it were written; whether a journal should be.
    pub fn wrote(&self, offset: u64, length: usize) -> bool {
        if self.partial.is_none() {
            return false;
        }
        let mut state = self.state();
        state.extents.insert(offset..offset + length as u64);
        // Whoever scatters what it sends finds less of it later.
        if state.extents.len() > 2 * MAX_RANGES {
            state.extents = state.extents.longest(MAX_RANGES);
        }
        let is_due = !state.is_over && !state.is_queued && state.journaled.elapsed() >= INTERVAL;
        state.is_queued |= is_due;
        is_due
    }

    /// Writes a journal of what is on the disk, unless none is wanted any more.
    fn write_journal(&self) -> io::Result<()> {
        let Some(partial) = self.partial else { return Ok(()) };
        let _journaling = self.journaling();
        let extents = {
            let mut state = self.state();
            if state.is_over {
                return Ok(());
            }
            (state.is_queued, state.journaled) = (false, Instant::now());
            state.extents.clone()
        };
        // Blocks that are written meanwhile are not told of.
        self.file.sync_data()?;
        Journal { partial, length: self.length, extents }.write(&self.journal())
    }

    /// All of it is there.
    pub fn is_whole(&self) {
        if self.partial.is_some() {
            self.state().extents.insert(0..self.length);
        }
    }

    /// Its sender may go on with it later; whether there is something to go on with.
    pub fn keep(&self) -> bool {
        let is_kept = self.partial.is_some() && !self.state().extents.is_empty();
        let is_kept = is_kept && self.write_journal().is_ok();
        self.state().is_over = true;
        is_kept
    }

    /// Nothing of it is kept beside the file itself.
    pub fn forget_journal(&self) {
        self.state().is_over = true;
        let _journaling = self.journaling();
        if self.partial.is_some() {
            // It may never have been written.
            let _ = fs::remove_file(self.journal());
        }
    }

    /// Nothing of it is kept.
    pub fn remove(&self) {
        self.forget_journal();
        // It is of no use to anybody, and its name is never looked at.
        let _ = fs::remove_file(&self.path);
    }
}

/// The thread; it starts with the first journal, and ends with this value.
#[derive(Debug, Default)]
pub struct Scribe(OnceLock<Sender<Arc<Coming>>>);

impl Scribe {
    /// Writes a journal of `coming` soon.
    pub fn write(&self, coming: Arc<Coming>) {
        // A file is in this channel once at most (`is_queued`), and who receives bounds the files that arrive.
        let due = self.0.get_or_init(|| {
            let (due, queue) = channel::<Arc<Coming>>();
            thread::spawn(move || {
                for coming in queue {
                    // A disk that is full has said so to who writes blocks.
                    let _ = coming.write_journal();
                }
            });
            due
        });
        // It reads until this value ends.
        let _ = due.send(coming);
    }
}
