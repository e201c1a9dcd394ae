//! How a verb fails: one clear message on standard error, and exit code 2, or 130
//! after Ctrl-C as a shell expects.

use crate::stderr::eprint_line;
use std::fmt;
use std::process::ExitCode;

/// What a shell says of who was ended by SIGPIPE.
const UNREAD: u8 = 141;

/// Why a verb could not do what it was asked.
#[derive(Debug)]
pub struct Failure {
    message: String,
    code: u8,
}

impl Failure {
    /// A failure that says `message`: what is wrong, where, and what to do.
    pub fn new(message: impl Into<String>) -> Failure {
        Failure { message: message.into(), code: 2 }
    }

    /// Ctrl-C ended the verb; `what` says what became of its work.
    pub fn interrupted(what: impl fmt::Display) -> Failure {
        Failure { message: format!("interrupted: {what}"), code: 130 }
    }

    /// Who reads standard output has seen enough, as `head`: nothing is said, and a shell is told what it is told of
    /// programs that SIGPIPE ends.
    pub fn unread() -> Failure {
        Failure { message: String::new(), code: UNREAD }
    }

    /// The same, which also says `more`.
    pub fn with(self, more: impl fmt::Display) -> Failure {
        if self.code == UNREAD {
            return self;
        }
        Failure { message: format!("{}{more}", self.message), code: self.code }
    }

    /// What it says.
    pub fn words(&self) -> &str {
        &self.message
    }

    /// Says it on standard error.
    pub fn report(self) -> ExitCode {
        if self.code != UNREAD {
            eprint_line!("anabranch: {}", self.message);
        }
        ExitCode::from(self.code)
    }
}

impl<E: fmt::Display> From<E> for Failure {
    fn from(error: E) -> Failure {
        Failure::new(error.to_string())
    }
}
