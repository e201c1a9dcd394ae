//! What is wrong in a TOML file, and in which line.

use std::fmt;

use serde::de::DeserializeOwned;

/// What is wrong in a file, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileError {
    /// Counted from 1.
    pub line: usize,
    /// What is wrong, with the key and what would be right.
    pub message: String,
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.message)
    }
}

impl std::error::Error for FileError {}

/// What is wrong, and at which byte.
pub(crate) type Problem = (usize, String);

/// Reads `text` as TOML of the form `F`, and makes of it what `make` does.
///
/// # Errors
///
/// What is wrong, and in which line.
pub(crate) fn parse<F: DeserializeOwned, T>(
    text: &str,
    make: impl FnOnce(F) -> Result<T, Problem>,
) -> Result<T, FileError> {
    let at = |(offset, message): Problem| {
        let before = text.as_bytes().get(..offset).unwrap_or(text.as_bytes());
        FileError { line: 1 + before.iter().filter(|&&byte| byte == b'\n').count(), message }
    };
    let file = toml::from_str(text).map_err(|error| {
        let offset = error.span().map_or(0, |span| span.start);
        at((offset, error.message().trim_end().replace('\n', " ")))
    })?;
    make(file).map_err(at)
}
