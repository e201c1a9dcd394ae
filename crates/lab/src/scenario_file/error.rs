//! What is wrong with a scenario, where, and what would be right.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// Why a scenario could not be read.
#[derive(Debug)]
pub enum ScenarioError {
    /// The file could not be read.
    Unreadable {
        /// Its path.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// Something in it, or in an option that overrides it, is wrong.
    Wrong(Box<Wrong>),
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq)]
pub struct Wrong {
    /// Where it was said.
    pub place: Place,
    /// The whole key, such as `overlay.delay.jitter`; empty where there is none.
    pub key: String,
    /// The value as it was written, shortened.
    pub value: Option<String>,
    /// What is wrong with it and what would be right.
    pub problem: String,
}

/// Where something was said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// Somewhere in this file, or nowhere in it.
    File(Arc<str>),
    /// In this file, at this line and column, both from 1; columns count characters.
    Line(Arc<str>, usize, usize),
    /// In this option of the command line, which sets this key.
    Option(Arc<str>, Arc<str>),
}

impl Place {
    /// Whether an option of the command line says it.
    pub fn is_option(&self) -> bool {
        matches!(self, Place::Option(..))
    }
}

impl ScenarioError {
    pub(super) fn wrong(place: Place, key: &str, value: Option<String>, problem: impl Into<String>) -> ScenarioError {
        ScenarioError::Wrong(Box::new(Wrong { place, key: key.to_owned(), value, problem: problem.into() }))
    }
}

impl fmt::Display for ScenarioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ScenarioError::Unreadable { path, source } => {
                write!(f, "cannot read the scenario {}: {source}", path.display())
            }
            ScenarioError::Wrong(wrong) => wrong.fmt(f),
        }
    }
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let said_by_option = match &self.place {
            Place::File(file) => {
                write!(f, "{file}: ")?;
                false
            }
            Place::Line(file, line, column) => {
                write!(f, "{file}:{line}:{column}: ")?;
                false
            }
            Place::Option(option, key) => {
                write!(f, "{option}: ")?;
                **key == *self.key
            }
        };
        if !said_by_option && !self.key.is_empty() {
            match &self.value {
                Some(value) => write!(f, "{} = {value}: ", self.key)?,
                None => write!(f, "{}: ", self.key)?,
            }
        }
        f.write_str(&self.problem)
    }
}

impl std::error::Error for ScenarioError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ScenarioError::Unreadable { source, .. } => Some(source),
            ScenarioError::Wrong(_) => None,
        }
    }
}
