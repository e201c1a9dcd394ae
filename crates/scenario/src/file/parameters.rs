//! A controller's own parameters: the controller knows what is wrong, we know the line.

use anabranch_control::registry::ParameterError;

use super::error::ScenarioError;
use super::section::{Entry, nearest};

/// The table under `entry`, if `check`, which makes the controller, takes it.
pub fn read(
    entry: &Entry<'_>,
    check: impl Fn(&toml::Table) -> Result<(), ParameterError>,
) -> Result<toml::Table, ScenarioError> {
    let (table, entries) = entry.table()?;
    let Err(error) = check(&table) else {
        return Ok(table);
    };
    // The controller names the key, not the line: the line is that of the first key
    // that is wrong by itself, or else of the first one that the message names.
    let alone = |entry: &&Entry<'_>| {
        let value = table[entry.name()].clone();
        check(&toml::Table::from_iter([(entry.name().to_owned(), value)])).is_err()
    };
    let named = |entry: &&Entry<'_>| error.0.contains(entry.name());
    let blamed = entries.iter().filter(named).find(alone).or_else(|| entries.iter().find(named)).unwrap_or(entry);
    Err(blamed.wrong(with_suggestion(&error.0)))
}

/// Adds the nearest known name to serde's "unknown field `a`, expected one of `b`, `c`".
fn with_suggestion(message: &str) -> String {
    let mut names = message.split('`').skip(1).step_by(2);
    match (message.starts_with("unknown field"), names.next()) {
        (true, Some(word)) => match nearest(word, &names.collect::<Vec<_>>()) {
            Some(near) => format!("{message}; did you mean `{near}`?"),
            None => message.to_owned(),
        },
        _ => message.to_owned(),
    }
}
