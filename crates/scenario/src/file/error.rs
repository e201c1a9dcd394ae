//! What is wrong with a scenario, where, and what would be right.

use std::fmt;
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

/// Where something was said: bytes after the beginning of the text, or of an option.
pub type Span = Range<usize>;

/// Where spans of options begin; no text is as long.
pub(super) const OPTIONS_AT: usize = 1 << 31;

/// Whether an option of the command line says what has this span.
pub fn is_option(span: &Span) -> bool {
    span.start >= OPTIONS_AT
}

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
    /// Somewhere in this text, or nowhere in it.
    File(Arc<Source>),
    /// In this text, this many bytes after its beginning.
    At(Arc<Source>, usize),
    /// In this option of the command line, which sets this key.
    Option(Arc<str>, Arc<str>),
}

/// A scenario's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// What errors call it.
    pub file: String,
    /// What it says.
    pub text: String,
}

impl Source {
    /// The line and the column, both from 1, of the character at `offset` bytes;
    /// columns count characters.
    fn line_and_column(&self, offset: usize) -> (usize, usize) {
        let mut offset = offset.min(self.text.len());
        while !self.text.is_char_boundary(offset) {
            offset -= 1;
        }
        let before = &self.text[..offset];
        let start = before.rfind('\n').map_or(0, |end| end + 1);
        (before.matches('\n').count() + 1, before[start..].chars().count() + 1)
    }
}

/// What is wrong with a value or a table; which key and which line that is gets looked up
/// when somebody is told.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Problem {
    /// Where the value or its key stands.
    pub span: Span,
    /// A key that this table lacks.
    pub missing: Option<String>,
    /// What is wrong, and what would be right.
    pub text: String,
}

impl Problem {
    pub fn at(span: Span, text: impl Into<String>) -> Problem {
        Problem { span, missing: None, text: text.into() }
    }

    /// That `key` of the table at `span` is missing; `what` says what it means.
    pub fn missing(span: Span, key: &str, what: impl fmt::Display) -> Problem {
        Problem { missing: Some(key.to_owned()), ..Problem::at(span, format!("missing; expected {what}")) }
    }

    /// That no key is called `key`; those that are there are `known`.
    pub fn unknown_key(span: Span, key: &str, known: &[&str]) -> Problem {
        let near = nearest(key, known).map_or(String::new(), |near| format!("; did you mean \"{near}\"?"));
        Problem::at(span, format!("unknown key{near} (known: {})", known.join(", ")))
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
            Place::File(source) => {
                write!(f, "{}: ", source.file)?;
                false
            }
            Place::At(source, offset) => {
                let (line, column) = source.line_and_column(*offset);
                write!(f, "{}:{line}:{column}: ", source.file)?;
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

/// The one of `known` that `word` most resembles, if it does at all; of those as near
/// as each other, the one that begins alike.
pub fn nearest<'k>(word: &str, known: &[&'k str]) -> Option<&'k str> {
    let distance = |name: &str| strsim::damerau_levenshtein(name, word);
    let alike = |name: &str| strsim::jaro_winkler(name, word);
    let order = |a: &&&str, b: &&&str| distance(a).cmp(&distance(b)).then(alike(b).total_cmp(&alike(a)));
    let near = known.iter().min_by(order)?;
    (distance(near) <= near.len() / 2).then_some(*near)
}
