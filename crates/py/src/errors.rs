//! What is raised.

use anabranch_env::VectorError;
use pyo3::create_exception;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;

create_exception!(
    anabranch,
    ScenarioError,
    PyValueError,
    "A scenario can't be read: its file, line and key, and what is expected there."
);
create_exception!(anabranch, RunError, PyRuntimeError, "A run can't go on: which flow or environment, and why.");

/// A value that can't be.
pub fn value(error: impl std::fmt::Display) -> PyErr {
    PyValueError::new_err(error.to_string())
}

/// Environments that can't be made together.
pub fn vector(error: VectorError<impl std::fmt::Display>) -> PyErr {
    match error {
        VectorError::Environment(error) => value(error),
        threads @ VectorError::Threads { .. } => PyRuntimeError::new_err(threads.to_string()),
    }
}

/// A scenario that can't be read.
pub fn scenario(error: impl std::fmt::Display) -> PyErr {
    ScenarioError::new_err(error.to_string())
}

/// A run that can't go on.
pub fn run(error: impl std::fmt::Display) -> PyErr {
    RunError::new_err(error.to_string())
}
