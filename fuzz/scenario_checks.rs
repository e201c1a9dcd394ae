//! What must hold for any input of the laboratory's readers: scenario files and tables of
//! Remy's rules. Fuzz targets and an ordinary test include this file, as they do `checks.rs`.

use anabranch_control::flow::registry::{Setup, find};
use anabranch_control::time::Time;
use anabranch_control::units::Bytes;
use anabranch_scenario::file::{ScenarioError, parse_any};
use anabranch_scenario::remy_table;

/// What errors call the input.
const FILE: &str = "input.toml";

/// A scenario that is read says everything when it is written, and reads as the same one;
/// one that is refused is refused at a place of the text.
pub fn scenario(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    match parse_any(text, FILE, &[]) {
        Ok(scenario) => {
            let written = scenario.to_toml();
            let again = parse_any(&written, FILE, &[]).unwrap_or_else(|error| panic!("{error}\n{written}"));
            // NaN equals nothing, so that what is compared is what is written.
            assert_eq!(again.to_toml(), written);
        }
        Err(error) => {
            assert!(matches!(error, ScenarioError::Wrong(_)), "{error}");
            assert!(error.to_string().starts_with(FILE), "{error}");
        }
    }
}

/// Rules that are read make a controller, unless no rule holds the beginning.
pub fn remy_table(input: &[u8]) {
    let Ok(rules) = remy_table::decode(input) else { return };
    let setup = Setup::new(Bytes::new(1448), Time::ZERO);
    let entry = find("remy").expect("it is registered");
    let parameters = toml::Table::from_iter([("rules".to_owned(), toml::Value::Array(rules))]);
    if let Err(error) = entry.make(&setup, &parameters) {
        let allowed = ["no rule holds the beginning", "0 rules"];
        assert!(allowed.iter().any(|words| error.0.contains(words)), "{}", error.0);
    }
}
