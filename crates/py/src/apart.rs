//! Work during which Python's other threads run.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use anabranch_lab::parallel::Progress;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

/// How often it is asked whether somebody has pressed Ctrl-C.
const BETWEEN_QUESTIONS: Duration = Duration::from_millis(50);

/// Does `work` on this thread. A fault of ours becomes an exception.
pub fn apart<T: Send>(py: Python<'_>, work: impl FnOnce() -> T + Send) -> PyResult<T> {
    py.detach(|| catch_unwind(AssertUnwindSafe(work))).map_err(|panic| fault(&*panic))
}

/// Does `work` on another thread, and stops it through its progress when Python has a signal to raise.
pub fn interruptible<T: Send>(py: Python<'_>, work: impl FnOnce(&Arc<Progress>) -> T + Send) -> PyResult<T> {
    let progress = Arc::new(Progress::default());
    thread::scope(|scope| {
        let (done, finished) = channel();
        let progress = &progress;
        let worker = scope.spawn(move || {
            let result = catch_unwind(AssertUnwindSafe(|| work(progress)));
            // Who waits may have gone.
            let _ = done.send(());
            result
        });
        let mut raised = None;
        let mut finished = finished;
        loop {
            let (waited, receiver) = py.detach(move || (finished.recv_timeout(BETWEEN_QUESTIONS), finished));
            finished = receiver;
            if waited != Err(RecvTimeoutError::Timeout) {
                break;
            }
            if raised.is_none()
                && let Err(error) = py.check_signals()
            {
                progress.interrupted.store(true, Ordering::Relaxed);
                raised = Some(error);
            }
        }
        let result = py.detach(|| worker.join()).expect("what it panics with is caught in it");
        match raised {
            Some(error) => Err(error),
            None => result.map_err(|panic| fault(&*panic)),
        }
    })
}

fn fault(panic: &(dyn Any + Send)) -> PyErr {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("it says nothing");
    PyRuntimeError::new_err(format!("a fault in anabranch, please report it: {text}"))
}
