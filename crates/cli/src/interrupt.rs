//! Ctrl-C, and a terminate or hang-up signal: noted, and acted on between two turns, so
//! that leave is taken and nothing half-written stays.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::failure::Failure;

/// Whether somebody wants the run to end.
#[derive(Clone, Debug)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Listens from now on; once in a process.
    pub fn listen() -> Result<Interrupt, Failure> {
        let flag = Arc::new(AtomicBool::new(false));
        let raised = Arc::clone(&flag);
        when_it_comes(move || raised.store(true, Ordering::Relaxed))?;
        Ok(Interrupt(flag))
    }

    /// Whether it has come.
    pub fn is_raised(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Has `note` called whenever it comes; once in a process.
pub fn when_it_comes(note: impl Fn() + Send + 'static) -> Result<(), Failure> {
    ctrlc::set_handler(note).map_err(|error| Failure::new(format!("cannot listen for Ctrl-C: {error}")))
}
