//! The parameters of a controller, which knows their names and checks them.

use std::fmt;

use serde::Deserialize;
use toml::de::ValueDeserializer;

use super::error::{Problem, Span, nearest};
use super::shape::{Optional, Part, Said, Shape, TOO_LARGE, Value, a_table, said, write};

/// What a table of parameters says, and where each begins.
#[derive(Default)]
pub struct Parameters {
    pub table: toml::Table,
    keys: Vec<(String, Span)>,
}

impl Shape for Parameters {
    type Holds = Self;

    fn expected() -> String {
        a_table()
    }

    fn read(value: &Value<'_>) -> Result<Self, Problem> {
        let Part::Table(table) = value.part else { return Err(value.instead_of(&a_table())) };
        let mut parameters = Parameters::default();
        for (key, said) in table {
            let value = toml::Value::deserialize(ValueDeserializer::from(said.clone())).map_err(|error| {
                let text = error.message().replace("number overflowed", TOO_LARGE);
                Problem::at(error.span().unwrap_or(said.span()), text)
            })?;
            parameters.keys.push((key.get_ref().to_string(), key.span()));
            parameters.table.insert(key.get_ref().to_string(), value);
        }
        Ok(parameters)
    }

    fn write(parameters: &Self, out: &mut String) {
        write(&parameters.table, out);
    }
}

impl Parameters {
    /// These, if there are any, as they are written.
    pub fn written(table: &toml::Table) -> Optional<Parameters> {
        (!table.is_empty()).then(|| said(Parameters { table: table.clone(), keys: Vec::new() }))
    }
}

impl Said<Parameters> {
    /// The table, if `check`, which makes the controller, takes it.
    pub fn checked<E: fmt::Display>(
        &self,
        check: impl Fn(&toml::Table) -> Result<(), E>,
    ) -> Result<toml::Table, Problem> {
        let Err(error) = check(&self.table) else { return Ok(self.table.clone()) };
        let error = error.to_string();
        // The controller names the key, not the line: the line is that of the first key
        // that is wrong by itself, or else of the first one that the message names.
        let alone = |key: &String| check(&toml::Table::from_iter([(key.clone(), self.table[key].clone())])).is_err();
        let named = || self.keys.iter().filter(|(key, _)| error.contains(key.as_str()));
        let blamed = named().find(|(key, _)| alone(key)).or_else(|| named().next());
        Err(Problem::at(blamed.map_or(self.span(), |(_, span)| span.clone()), with_suggestion(&error)))
    }
}

/// Adds the nearest known name to serde's "unknown field `a`, expected one of `b`, `c`".
fn with_suggestion(message: &str) -> String {
    match unknown_field(message).and_then(|(word, known)| nearest(word, &known)) {
        Some(near) => format!("{message}; did you mean `{near}`?"),
        None => message.to_owned(),
    }
}

/// The unknown name, and the known ones, in serde's words.
fn unknown_field(message: &str) -> Option<(&str, Vec<&str>)> {
    let mut names = message.strip_prefix("unknown field `")?.split('`').step_by(2);
    Some((names.next()?, names.filter(|name| !name.is_empty()).collect()))
}
