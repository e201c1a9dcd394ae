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
        ctrlc::set_handler(move || raised.store(true, Ordering::Relaxed))
            .map_err(|error| Failure::new(format!("cannot listen for Ctrl-C: {error}")))?;
        Ok(Interrupt(flag))
    }

    /// Whether it has come.
    pub fn is_raised(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
