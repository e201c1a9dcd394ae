//! Which points a sweep has: every combination of the grid's values, with every seed.

use std::str::FromStr;

use anabranch_control::units::Rate;

use anabranch_scenario::file::{self, AnyScenario, Override, ScenarioError};
use anabranch_scenario::onion_run::OnionRunScenario;
use anabranch_scenario::overlay::Scenario;
use anabranch_scenario::stream::StreamScenario;

/// One key and the values that it takes in turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GridKey {
    /// The key, such as `overlay.relays`.
    pub key: String,
    /// Its values as they were written.
    pub values: Vec<String>,
}

/// The seeds of a sweep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seeds(pub Vec<u64>);

/// One combination with one seed.
#[derive(Clone, Debug)]
pub struct Point {
    /// The values, in the order of the keys.
    pub values: Vec<String>,
    /// The seed.
    pub seed: u64,
    /// What is to be run.
    pub scenario: AnyScenario,
    /// The whole scenario as text, which tells this point from any other.
    pub text: String,
}

/// No sweep has more points.
const MOST_POINTS: usize = 1_000_000;

/// Every point of the grid over the scenario in `text`, seeds innermost; errors call
/// the text `file`. Without `seeds`, the scenario's own.
///
/// # Errors
///
/// What is wrong with the scenario, with an override or with any value of the grid.
pub fn points(
    text: &str,
    file: &str,
    overrides: &[Override],
    grid: &[GridKey],
    seeds: Option<&Seeds>,
) -> Result<Vec<Point>, GridError> {
    for (index, key) in grid.iter().enumerate() {
        if grid[..index].iter().any(|other| other.key == key.key) {
            return Err(GridError::Twice(key.key.clone()));
        }
        if key.key == "run.seed" && seeds.is_some() {
            return Err(GridError::SeedsTwice);
        }
    }
    let combinations = grid.iter().try_fold(1usize, |count, key| count.checked_mul(key.values.len()));
    let count = combinations.and_then(|count| count.checked_mul(seeds.map_or(1, |seeds| seeds.0.len())));
    let combinations = match (combinations, count) {
        (Some(combinations), Some(1..=MOST_POINTS)) => combinations,
        _ => return Err(GridError::Size),
    };
    let mut points = Vec::new();
    for combination in 0..combinations {
        let values = values_of(grid, combination);
        let mut changes = overrides.to_vec();
        changes.extend(grid.iter().zip(&values).map(|(key, value)| {
            Override::new(format!("--grid {}={value}", key.key), key.key.as_str(), value.as_str())
        }));
        let base = file::parse_any(text, file, &changes)?;
        let own = Seeds(vec![base.seed()]);
        for &seed in &seeds.unwrap_or(&own).0 {
            let scenario = match &base {
                AnyScenario::Overlay(base) => AnyScenario::Overlay(Scenario { seed, ..base.clone() }),
                AnyScenario::Stream(base) => AnyScenario::Stream(StreamScenario { seed, ..base.clone() }),
                AnyScenario::Onion(base) => AnyScenario::Onion(OnionRunScenario { seed, ..base.clone() }),
                // Starts are drawn from the seed as the text is read.
                AnyScenario::Flows(_) => {
                    let seed = Override::new(format!("--seeds {seed}"), "run.seed", seed.to_string());
                    let changes: Vec<Override> = changes.iter().cloned().chain([seed]).collect();
                    let mut scenario = file::parse_flows(text, file, &changes)?;
                    // Nobody would see it.
                    scenario.sample_every = None;
                    AnyScenario::Flows(scenario)
                }
            };
            points.push(Point { values: values.clone(), seed, text: scenario.to_toml(), scenario });
        }
    }
    Ok(points)
}

/// The values of a combination: the last key changes fastest.
fn values_of(grid: &[GridKey], mut combination: usize) -> Vec<String> {
    let mut values: Vec<String> = grid
        .iter()
        .rev()
        .map(|key| {
            let value = key.values[combination % key.values.len()].clone();
            combination /= key.values.len();
            value
        })
        .collect();
    values.reverse();
    values
}

/// Why a grid has no points.
#[derive(Debug, thiserror::Error)]
pub enum GridError {
    /// A value does not belong into the scenario.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    /// A key has two lists of values.
    #[error("--grid {0}: this key has a list already; give all its values in one, as in {0}=1,2,3")]
    Twice(String),
    /// Both the grid and the seeds give seeds.
    #[error("--grid run.seed: --seeds gives seeds too; expected one of them")]
    SeedsTwice,
    /// It has no points or too many.
    #[error("this grid has no point or more than {MOST_POINTS}")]
    Size,
}

impl FromStr for GridKey {
    type Err = String;

    /// Reads `key=v1,v2,...`; a comma within brackets or quotes belongs to its value.
    fn from_str(text: &str) -> Result<GridKey, String> {
        let expected = || "expected KEY=VALUE,VALUE,... such as overlay.relays=1,2,3".to_owned();
        let (key, list) = text.split_once('=').ok_or_else(expected)?;
        let (mut values, mut depth, mut quoted) = (vec![String::new()], 0usize, false);
        for letter in list.chars() {
            match letter {
                '"' => quoted = !quoted,
                '[' | '{' if !quoted => depth += 1,
                ']' | '}' if !quoted => depth = depth.saturating_sub(1),
                ',' if !quoted && depth == 0 => {
                    values.push(String::new());
                    continue;
                }
                _ => {}
            }
            values.last_mut().expect("there is always one").push(letter);
        }
        let values: Vec<String> = values.iter().map(|value| value.trim().to_owned()).collect();
        if key.trim().is_empty() || values.iter().any(String::is_empty) {
            return Err(expected());
        }
        let twice = values.iter().enumerate().find_map(|(index, value)| {
            values[..index].iter().find(|before| are_one(before, value)).map(|before| (before, value))
        });
        match twice {
            Some((before, value)) if before == value => Err(format!("the value {value} stands there twice")),
            Some((before, value)) => Err(format!("the values {before} and {value} are one")),
            None => Ok(GridKey { key: key.trim().to_owned(), values }),
        }
    }
}

/// Whether two values are the same, however they are written.
fn are_one(one: &str, other: &str) -> bool {
    one == other || as_number(one).is_some_and(|number| as_number(other) == Some(number))
}

impl FromStr for Seeds {
    type Err = String;

    /// Reads `1..10`, from 1 to 10, or `10`, which is the same.
    fn from_str(text: &str) -> Result<Seeds, String> {
        let expected = || "expected how many seeds, such as 10, or the first and the last, such as 1..10".to_owned();
        let (first, last) = text.split_once("..").unwrap_or(("1", text));
        let first: u64 = first.trim().parse().map_err(|_| expected())?;
        let last: u64 = last.trim().parse().map_err(|_| expected())?;
        if first > last || last - first >= MOST_POINTS as u64 || last > i64::MAX as u64 {
            return Err(expected());
        }
        Ok(Seeds((first..=last).collect()))
    }
}

/// What a value is as a number, if it is one: a rate is its bytes a second.
pub fn as_number(value: &str) -> Option<f64> {
    let value = value.trim_matches(['"', '\'']);
    let plain: Option<f64> = value.replace('_', "").parse().ok();
    plain.or_else(|| value.parse().ok().map(Rate::bytes_per_sec)).filter(|number| number.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "[overlay]\npeers = 20\nrelays = 3\ncontroller = \"aimd\"\n";

    fn grid(keys: &[&str]) -> Vec<GridKey> {
        keys.iter().map(|key| key.parse().unwrap()).collect()
    }

    #[test]
    fn every_combination_comes_once_with_every_seed() {
        let keys = grid(&["overlay.relays=1,2", "overlay.controller=aimd,q-learning,random"]);
        let points = points(TEXT, "s.toml", &[], &keys, Some(&"4..5".parse().unwrap())).unwrap();
        assert_eq!(points.len(), 12);
        assert_eq!((points[0].values.join(" "), points[0].seed), ("1 aimd".to_owned(), 4));
        assert_eq!((points[1].values.join(" "), points[1].seed), ("1 aimd".to_owned(), 5));
        assert_eq!(points[2].values.join(" "), "1 q-learning");
        assert_eq!(points[11].values.join(" "), "2 random");
        let last = &points[11].scenario;
        let AnyScenario::Overlay(last) = last else { panic!("an overlay") };
        assert_eq!((last.overlay.relays, last.overlay.controller.name, last.seed), (2, "random", 5));
        let mut texts: Vec<&str> = points.iter().map(|point| point.text.as_str()).collect();
        texts.sort_unstable();
        texts.dedup();
        assert_eq!(texts.len(), 12);
    }

    #[test]
    fn without_grid_and_seeds_there_is_the_scenario_itself() {
        let points = points(TEXT, "s.toml", &[Override::set("run.seed=7").unwrap()], &[], None).unwrap();
        assert_eq!((points.len(), points[0].seed), (1, 7));
    }

    #[test]
    fn what_is_wrong_with_a_grid_is_said() {
        let wrong = |keys: &[&str], seeds: Option<&str>| {
            let seeds: Option<Seeds> = seeds.map(|seeds| seeds.parse().unwrap());
            points(TEXT, "s.toml", &[], &grid(keys), seeds.as_ref()).unwrap_err().to_string()
        };
        assert!(wrong(&["overlay.relays=3,30"], None).starts_with("--grid overlay.relays=30: expected a whole number"));
        assert!(wrong(&["overlay.relay=3"], None).contains("did you mean \"relays\"?"));
        assert!(wrong(&["overlay.relays=1", "overlay.relays=2"], None).contains("has a list already"));
        assert!(wrong(&["run.seed=1,2"], Some("3")).contains("--seeds"));
        assert!(wrong(&["overlay.relays=1,2,3"], Some("500000")).contains("more than"));
        for text in ["overlay.relays", "=1", "a=1,,2", "a=", "a=1,1"] {
            assert!(text.parse::<GridKey>().is_err(), "{text}");
        }
        let one = |text: &str| text.parse::<GridKey>().unwrap_err();
        assert_eq!(one("a=2,11,3,11.0"), "the values 11 and 11.0 are one");
        assert_eq!(one("a=\"8 kbit/s\",\"1 kB/s\""), "the values \"8 kbit/s\" and \"1 kB/s\" are one");
        for text in ["0x", "5..4", "", "..", "1..2..3", "0..99999999"] {
            assert!(text.parse::<Seeds>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_comma_in_brackets_or_quotes_does_not_end_a_value() {
        let key: GridKey = "a.b=[[0,1],[2,0]], \"x,y\",{p=1,q=2}".parse().unwrap();
        assert_eq!(key.values, ["[[0,1],[2,0]]", "\"x,y\"", "{p=1,q=2}"]);
        assert_eq!("3".parse(), Ok(Seeds(vec![1, 2, 3])));
    }

    #[test]
    fn rates_are_numbers_too() {
        assert_eq!(as_number("8 kbit/s"), Some(1000.0));
        assert_eq!(as_number("\"2 kB/s\""), Some(2000.0));
        assert_eq!(as_number("1e3"), Some(1000.0));
        assert_eq!(as_number("aimd"), None);
        assert_eq!(as_number("nan"), None);
    }
}
