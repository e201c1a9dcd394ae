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

impl fmt::Display for UnknownController {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let distance = |name: &&&str| strsim::damerau_levenshtein(name, &self.name);
        write!(f, "there is no controller named \"{}\"", self.name)?;
        match self.known.iter().min_by_key(distance) {
            Some(nearest) if distance(&nearest) <= nearest.len() / 2 => write!(f, "; did you mean \"{nearest}\"?")?,
            _ => {}
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
    C::deserialize(table.clone()).map_err(|error| ParameterError(error.message().to_owned()))
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
        Err(ParameterError(format!("{key} = {value} is not between {} and {}", range.start(), range.end())))
    }
}
