//! How a verb fails: one clear message on standard error, and exit code 2.

use std::fmt;
use std::process::ExitCode;

/// Why a verb could not do what it was asked.
#[derive(Debug)]
pub struct Failure(String);

impl Failure {
    /// A failure that says `message`: what is wrong, where, and what to do.
    pub fn new(message: impl Into<String>) -> Failure {
        Failure(message.into())
    }

    /// Says it on standard error.
    pub fn report(self) -> ExitCode {
        eprintln!("anabranch: {}", self.0);
        ExitCode::from(2)
    }
}

impl<E: fmt::Display> From<E> for Failure {
    fn from(error: E) -> Failure {
        Failure(error.to_string())
    }
}
