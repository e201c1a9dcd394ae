//! Ctrl-C, and a terminate or hang-up signal: noted, and acted on between two turns, so
//! that leave is taken and nothing half-written stays. Where a turn lasts, as while a name is looked up that no
//! server answers for, or while one second of a simulation takes minutes, a second one ends the process at once; what it leaves is what a kill would leave.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crate::failure::Failure;
use crate::stderr::eprint_line;

/// What comes sooner after the first is that one again: a shell, and who waits for a process, may both pass it on.
const SAME: Duration = Duration::from_millis(500);

/// What a shell says of who was ended by Ctrl-C.
const INTERRUPTED: i32 = 130;

/// Whether somebody wants the run to end.
#[derive(Clone, Debug)]
pub struct Interrupt {
    raised: Arc<AtomicBool>,
    /// Somebody else's wish, of one part of the run.
    given_up: Arc<AtomicBool>,
}

impl Interrupt {
    /// Listens from now on; once in a process.
    pub fn listen() -> Result<Interrupt, Failure> {
        let flag = Arc::new(AtomicBool::new(false));
        let raised = Arc::clone(&flag);
        when_it_comes(move || raised.store(true, Ordering::Relaxed))?;
        Ok(Interrupt { raised: flag, given_up: Arc::default() })
    }

    /// Whether it has come.
    pub fn is_raised(&self) -> bool {
        self.raised.load(Ordering::Relaxed) || self.given_up.load(Ordering::Relaxed)
    }

    /// One for a part of the run, which may be given up though the run is not.
    pub fn of_part(&self) -> Interrupt {
        Interrupt { raised: Arc::clone(&self.raised), given_up: Arc::default() }
    }

    /// Gives that part up.
    pub fn raise(&self) {
        self.given_up.store(true, Ordering::Relaxed);
    }
}

/// Has `note` called whenever it comes; once in a process. Where that does not help, a second one ends the process.
pub fn when_it_comes(note: impl Fn() + Send + 'static) -> Result<(), Failure> {
    let first = OnceLock::new();
    let handler = move || {
        note();
        if first.get_or_init(Instant::now).elapsed() >= SAME {
            eprint_line!("anabranch: interrupted twice: ended at once");
            std::process::exit(INTERRUPTED);
        }
    };
    ctrlc::set_handler(handler).map_err(|error| Failure::new(format!("cannot listen for Ctrl-C: {error}")))
}
