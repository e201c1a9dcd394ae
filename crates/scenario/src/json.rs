//! Scenarios that are JSON, as Python has them, in the words of a file.

use std::fmt;

use serde_json::Value;

/// Why a value can't stand in a scenario.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotToml {
    /// Where it stands.
    key: String,
    what: String,
}

impl fmt::Display for NotToml {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = if self.key.is_empty() { "the scenario" } else { &self.key };
        write!(f, "{key} is {}; a scenario has texts, numbers, booleans, lists and dicts", self.what)
    }
}

impl std::error::Error for NotToml {}

/// A value of a scenario.
///
/// # Errors
///
/// When there is no such value in TOML.
pub fn value(key: &str, value: Value) -> Result<toml::Value, NotToml> {
    let refused = |what: String| NotToml { key: key.to_owned(), what };
    Ok(match value {
        Value::Null => return Err(refused("None".into())),
        Value::Bool(value) => toml::Value::Boolean(value),
        Value::String(value) => toml::Value::String(value),
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(number), _) => toml::Value::Integer(number),
            // More than an integer of TOML holds, which must not become less exact.
            (None, _) if number.is_u64() => return Err(refused(number.to_string())),
            (None, Some(number)) => toml::Value::Float(number),
            (None, None) => return Err(refused(number.to_string())),
        },
        Value::Array(values) => {
            let values = values.into_iter().enumerate();
            toml::Value::Array(
                values.map(|(at, one)| self::value(&format!("{key}[{at}]"), one)).collect::<Result<_, _>>()?,
            )
        }
        Value::Object(values) => {
            let inner = |name: &str| if key.is_empty() { name.to_owned() } else { format!("{key}.{name}") };
            let values = values.into_iter().map(|(name, one)| Ok((name.clone(), self::value(&inner(&name), one)?)));
            toml::Value::Table(values.collect::<Result<_, NotToml>>()?)
        }
    })
}

/// A scenario's text.
///
/// # Errors
///
/// When something in it can't stand in one.
pub fn scenario(json: Value) -> Result<String, NotToml> {
    let table = value("", json)?;
    toml::to_string(&table).map_err(|error| NotToml { key: String::new(), what: error.to_string() })
}

#[cfg(test)]
mod tests {
    use crate::file::{AnyScenario, parse_any};
    use serde_json::json;

    use super::*;

    #[test]
    fn a_dict_is_read_as_the_file_that_says_the_same() {
        let dict = json!({
            "flow": [{ "controller": "cubic", "workload": { "once_bytes": 5000 } }, { "controller": "reno" }],
            "dumbbell": { "rate": "5 Mbit/s", "delay_ms": 5 },
            "run": { "seconds": 2.5 },
        });
        let file = r#"
            [run]
            seconds = 2.5
            [dumbbell]
            rate = "5 Mbit/s"
            delay_ms = 5
            [[flow]]
            controller = "cubic"
            workload = { once_bytes = 5000 }
            [[flow]]
            controller = "reno"
        "#;
        let read = |text: &str| -> AnyScenario { parse_any(text, "a", &[]).unwrap() };
        assert_eq!(read(&scenario(dict).unwrap()).to_toml(), read(file).to_toml());
    }

    #[test]
    fn what_a_scenario_can_not_hold_is_named() {
        let error = |json: Value| scenario(json).unwrap_err().to_string();
        assert!(error(json!({ "run": { "seed": null } })).starts_with("run.seed is None; a scenario has texts"));
        assert!(error(json!({ "flow": [{ "rates": [1, null] }] })).starts_with("flow[0].rates[1] is None"));
        assert!(error(json!({ "a": u64::MAX })).starts_with("a is 18446744073709551615"));
        assert!(error(json!(null)).starts_with("the scenario is None"));
    }
}
