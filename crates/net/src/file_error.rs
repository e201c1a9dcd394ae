//! What is wrong in a TOML file, and where.

use std::fmt;

use serde::de::DeserializeOwned;

/// What is wrong in a file, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileError {
    /// Counted from 1.
    pub line: usize,
    /// In characters, counted from 1.
    pub column: usize,
    /// What is wrong, with the key and what would be right.
    pub message: String,
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.line, self.column, self.message)
    }
}

impl std::error::Error for FileError {}

impl FileError {
    /// What is wrong with what begins at byte `offset` of `text`.
    pub fn at(text: &str, offset: usize, message: String) -> FileError {
        let before = text.get(..offset).unwrap_or(text);
        let start = before.rfind('\n').map_or(0, |end| end + 1);
        let line = 1 + before.bytes().filter(|&byte| byte == b'\n').count();
        FileError { line, column: 1 + before[start..].chars().count(), message }
    }
}

/// What is wrong, and at which byte.
pub type Problem = (usize, String);

/// Reads `text` as TOML of the form `F`, and makes of it what `make` does.
///
/// # Errors
///
/// What is wrong, and where.
pub fn parse<F: DeserializeOwned, T>(text: &str, make: impl FnOnce(F) -> Result<T, Problem>) -> Result<T, FileError> {
    let at = |(offset, message)| FileError::at(text, offset, message);
    let file = toml::from_str(text).map_err(|error| {
        let offset = error.span().map_or(0, |span| span.start);
        let message = in_words(&error.message().trim_end().replace('\n', " "));
        at((offset, key_before(text, offset).map_or(message.clone(), |key| format!("{key}: {message}"))))
    })?;
    make(file).map_err(at)
}

/// What was expected, as serde says it, in the words of whoever writes the file.
fn in_words(message: &str) -> String {
    let Some((said, expected)) = message.rsplit_once("expected ") else { return message.to_owned() };
    let expected = match expected {
        "usize" | "u64" | "u32" => "a whole number",
        "u16" => "a whole number up to 65535",
        "f64" => "a number",
        table if table.starts_with("struct ") => "a table",
        other => other,
    };
    format!("{said}expected {expected}")
}

/// The key whose value begins at byte `offset`, where both are in one line: serde names the value alone.
fn key_before(text: &str, offset: usize) -> Option<&str> {
    let (key, between) = text.get(..offset)?.rsplit('\n').next()?.rsplit_once('=')?;
    let key = key.rsplit(['{', ',']).next().unwrap_or(key).trim();
    (between.trim().is_empty() && !key.is_empty()).then_some(key)
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only what is wrong is looked at")]
    struct File {
        capacity: String,
        most: Option<Most>,
    }

    #[derive(Debug, Deserialize)]
    #[expect(dead_code, reason = "only what is wrong is looked at")]
    struct Most {
        flows: u32,
    }

    #[test]
    fn a_value_of_another_type_is_named_by_its_key_and_line() {
        let said = |text: &str| parse(text, |file: File| Ok(file)).unwrap_err().to_string();
        assert_eq!(said("# a\ncapacity = 3"), "2:12: capacity: invalid type: integer `3`, expected a string");
        let nested = "capacity = \"1\"\nmost = { flows = \"x\" }";
        assert_eq!(said(nested), "2:18: flows: invalid type: string \"x\", expected a whole number");
        assert_eq!(said("capacity = \"1\"\nmost = 3"), "2:8: most: invalid type: integer `3`, expected a table");
        assert!(said("capacity = \"1\"\ncapacities = 3").starts_with("2:1: unknown field `capacities`"));
        assert!(said("capacity").starts_with("1:"), "no value");
        assert!(said("capacity = \"\u{e9}\"; ").starts_with("1:15: "), "columns count characters");
    }
}
