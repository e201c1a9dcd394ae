//! What the lists of controllers share: names that are looked up, parameters that are read.

use core::fmt;
use core::ops::RangeInclusive;

use serde::de::DeserializeOwned;

/// A controller's parameter is unknown or outside its range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParameterError(pub String);

impl fmt::Display for ParameterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl core::error::Error for ParameterError {}

/// No controller has this name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownController {
    name: String,
    known: Vec<&'static str>,
}

impl UnknownController {
    /// Nothing among `known` is called `name`.
    pub fn new(name: &str, known: impl Iterator<Item = &'static str>) -> UnknownController {
        UnknownController { name: name.to_owned(), known: known.collect() }
    }
}

/// The one of `known` that `word` may have been meant for: most of its letters are right.
pub fn nearest<'k>(word: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    let distance = |name: &str| strsim::damerau_levenshtein(name, word);
    let near = known.into_iter().min_by_key(|name| distance(name))?;
    (2 * distance(near) < near.len()).then_some(near)
}

impl fmt::Display for UnknownController {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "there is no controller named \"{}\"", self.name)?;
        if let Some(nearest) = nearest(&self.name, self.known.iter().copied()) {
            write!(f, "; did you mean \"{nearest}\"?")?;
        }
        write!(f, " (known: {})", self.known.join(", "))
    }
}

impl core::error::Error for UnknownController {}

/// Reads a controller's parameters.
///
/// # Errors
///
/// A name that the controller does not have, or a value of another type.
pub fn parameters<C: DeserializeOwned>(table: &toml::Table) -> Result<C, ParameterError> {
    C::deserialize(table.clone()).map_err(|error| {
        // Serde says what is wrong with a value, and not of which: the key is that whose value is refused alone.
        let is_blamed = |key: &str, value: &toml::Value| {
            let alone = toml::Table::from_iter([(key.to_owned(), value.clone())]);
            C::deserialize(alone).err().is_some_and(|other| other.message() == error.message())
        };
        let blamed = table.iter().find(|(key, value)| is_blamed(key, value));
        let words = blamed.and_then(|(key, value)| wrong_value(key, value, error.message()));
        ParameterError(words.unwrap_or_else(|| error.message().to_owned()))
    })
}

/// What serde says of a value, in the words of a scenario's other refusals; nothing if it is not about the value.
fn wrong_value(key: &str, value: &toml::Value, message: &str) -> Option<String> {
    if let Some(known) = message.strip_prefix("unknown variant ").and_then(|rest| rest.split_once(", ")) {
        return Some(format!("{key} is {value}; {}", known.1));
    }
    let is_out_of_range = message.starts_with("invalid value: ");
    if !is_out_of_range && !message.starts_with("invalid type: ") {
        return None;
    }
    let found = match value {
        _ if is_out_of_range => value.to_string(),
        toml::Value::String(_) => "text in quotes".to_owned(),
        toml::Value::Integer(_) => "a whole number".to_owned(),
        toml::Value::Float(_) => "a number with a fraction".to_owned(),
        toml::Value::Boolean(_) => "true or false".to_owned(),
        toml::Value::Datetime(_) => "a date or a time".to_owned(),
        toml::Value::Array(_) => "a list".to_owned(),
        toml::Value::Table(_) => "a table".to_owned(),
    };
    let expected = match message.rsplit_once(", expected ")?.1 {
        "f64" | "f32" => "a number".to_owned(),
        "a boolean" | "bool" => "true or false".to_owned(),
        "u8" => whole_number(u8::MAX.into()),
        "u16" => whole_number(u16::MAX.into()),
        "u32" => whole_number(u32::MAX.into()),
        // TOML has none above.
        "u64" | "usize" => whole_number(i64::MAX.unsigned_abs()),
        other => other.to_owned(),
    };
    Some(format!("{key} is {found}; expected {expected}"))
}

fn whole_number(most: u64) -> String {
    format!("a whole number from 0 to {most}")
}

/// Refuses any parameter.
///
/// # Errors
///
/// Names the first.
pub fn no_parameters(table: &toml::Table) -> Result<(), ParameterError> {
    match table.keys().next() {
        Some(key) => Err(ParameterError(format!("unknown field `{key}`: this controller has no parameters"))),
        None => Ok(()),
    }
}

/// Refuses a parameter outside its range, naming both.
///
/// # Errors
///
/// When `range` does not contain `value`.
pub fn in_range(key: &str, value: f64, range: RangeInclusive<f64>) -> Result<(), ParameterError> {
    if range.contains(&value) {
        Ok(())
    } else {
        Err(ParameterError(format!("{key} = {} is not between {} and {}", short(value), range.start(), range.end())))
    }
}

/// In digits, or with an exponent where they would be too many to read.
fn short(value: f64) -> String {
    let is_short = value == 0.0 || !value.is_finite() || (1e-6..1e15).contains(&value.abs());
    if is_short { value.to_string() } else { format!("{value:e}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_out_of_its_range_is_said_in_a_few_digits() {
        for (value, said) in [
            (11.5, "alpha = 11.5 is not between 0.1 and 10"),
            (0.0, "alpha = 0 is not between 0.1 and 10"),
            (1e308, "alpha = 1e308 is not between 0.1 and 10"),
            (-5e-324, "alpha = -5e-324 is not between 0.1 and 10"),
            (f64::NAN, "alpha = NaN is not between 0.1 and 10"),
        ] {
            assert_eq!(in_range("alpha", value, 0.1..=10.0), Err(ParameterError(said.to_owned())));
        }
    }
}
