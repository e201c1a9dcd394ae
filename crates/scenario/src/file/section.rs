//! Reads values out of one table: each by its key, with its type and range, and
//! nothing that is not known.

use std::ops::RangeInclusive;
use std::path::Path;

use anabranch_control::time::Duration;
use anabranch_control::units::Rate;

use super::error::{Place, ScenarioError};
use super::tree::{Node, Value};

/// A table whose keys are all known ones.
#[derive(Clone, Debug)]
pub struct Section<'t> {
    name: String,
    node: &'t Node,
}

/// One value under its whole key.
#[derive(Clone, Debug)]
pub struct Entry<'t> {
    key: String,
    node: &'t Node,
}

/// No rate in a scenario is higher: 100 Gbit/s.
const HIGHEST_RATE: Rate = Rate::from_bits_per_sec(100_000_000_000);

/// No time in a scenario is longer, in milliseconds: an hour.
const LONGEST_MS: f64 = 3_600_000.0;

impl<'t> Section<'t> {
    /// The table `node`, which errors call `name`; all that it may hold is in `known`.
    pub fn open(name: &str, node: &'t Node, known: &[&str]) -> Result<Section<'t>, ScenarioError> {
        let Value::Table(table) = &node.value else {
            let problem = format!("expected a table, written [{name}]");
            return Err(ScenarioError::wrong(node.place.clone(), name, node.shown(), problem));
        };
        let section = Section { name: name.to_owned(), node };
        if let Some((key, node)) = table.iter().find(|(key, _)| !known.contains(&key.as_str())) {
            let problem = match nearest(key, known) {
                Some(near) => format!("unknown key; did you mean \"{near}\"? (known: {})", known.join(", ")),
                None => format!("unknown key (known: {})", known.join(", ")),
            };
            return Err(ScenarioError::wrong(node.place.clone(), &section.path(key), node.shown(), problem));
        }
        Ok(section)
    }

    /// What stands under `key`.
    pub fn get(&self, key: &str) -> Option<Entry<'t>> {
        self.node.get(&[key]).map(|node| Entry { key: self.path(key), node })
    }

    /// What stands under `key`, which must be there; `what` says what it means.
    pub fn required(&self, key: &str, what: &str) -> Result<Entry<'t>, ScenarioError> {
        self.get(key).ok_or_else(|| self.missing(key, what))
    }

    /// The table under `key`, if there is one.
    pub fn section(&self, key: &str, known: &[&str]) -> Result<Option<Section<'t>>, ScenarioError> {
        self.get(key).map(|entry| Section::open(&entry.key, entry.node, known)).transpose()
    }

    /// Which one of `keys` is there; `what` says what they mean.
    pub fn one_of(&self, keys: &[&'static str], what: &str) -> Result<(&'static str, Entry<'t>), ScenarioError> {
        let mut found: Vec<_> = keys.iter().filter_map(|key| self.get(key).map(|entry| (*key, entry))).collect();
        // What the command line says takes the place of what the file says.
        if found.iter().any(|(_, entry)| entry.node.place.is_option()) {
            found.retain(|(_, entry)| entry.node.place.is_option());
        }
        let mut found = found.into_iter();
        match (found.next(), found.next()) {
            (None, _) => Err(self.wrong(format!("expected {what}: one of {}", keys.join(", ")))),
            (Some(only), None) => Ok(only),
            (Some((first, _)), Some((_, second))) => {
                Err(second.wrong(format!("there is \"{first}\" already; expected one of {}", keys.join(", "))))
            }
        }
    }

    /// The tables under `key`, each written with double brackets.
    pub fn sections(&self, key: &str, known: &[&str]) -> Result<Vec<Section<'t>>, ScenarioError> {
        let Some(entry) = self.get(key) else {
            return Ok(Vec::new());
        };
        let Value::List(list) = &entry.node.value else {
            return Err(entry.wrong(format!("expected a list of tables, each written [[{}]]", entry.key)));
        };
        list.iter().map(|node| Section::open(&entry.key, node, known)).collect()
    }

    /// Refuses `key` where `chosen` was chosen, unless the choice itself came from the
    /// command line and the key from the file: then the file's key has lost its use.
    pub fn refuse(&self, key: &str, chooser: &str, chosen: &str, belongs: &str) -> Result<(), ScenarioError> {
        let by_option = |entry: &Entry<'_>| entry.node.place.is_option();
        match self.get(key) {
            Some(entry) if by_option(&entry) || !self.get(chooser).is_some_and(|entry| by_option(&entry)) => {
                let chooser = self.path(chooser);
                Err(entry.wrong(format!("this belongs to {chooser} = \"{belongs}\", which is \"{chosen}\"")))
            }
            _ => Ok(()),
        }
    }

    /// That `key` is missing; `what` says what it means.
    pub fn missing(&self, key: &str, what: &str) -> ScenarioError {
        ScenarioError::wrong(self.node.place.clone(), &self.path(key), None, format!("missing; expected {what}"))
    }

    /// An error about several values together, said at the first of `keys` that is there.
    pub fn blame(&self, keys: &[&str], problem: impl Into<String>) -> ScenarioError {
        match keys.iter().find_map(|key| self.get(key)) {
            Some(entry) => entry.wrong(problem),
            None => self.wrong(problem),
        }
    }

    /// An error about the table as a whole.
    pub fn wrong(&self, problem: impl Into<String>) -> ScenarioError {
        ScenarioError::wrong(self.node.place.clone(), &self.name, None, problem)
    }

    fn path(&self, key: &str) -> String {
        if self.name.is_empty() { key.to_owned() } else { format!("{}.{key}", self.name) }
    }
}

impl<'t> Entry<'t> {
    /// A whole number in `range`.
    pub fn whole(&self, range: RangeInclusive<u64>) -> Result<u64, ScenarioError> {
        let expected = || self.wrong(format!("expected a whole number from {} to {}", range.start(), range.end()));
        match self.node.value {
            Value::Integer(number) => u64::try_from(number).ok().filter(|n| range.contains(n)).ok_or_else(expected),
            _ => Err(expected()),
        }
    }

    /// A number in `range`, whole or not.
    pub fn number(&self, range: RangeInclusive<f64>) -> Result<f64, ScenarioError> {
        let expected = || self.wrong(format!("expected a number from {} to {}", range.start(), range.end()));
        let number = match self.node.value {
            Value::Integer(number) => number as f64,
            Value::Float(number) => number,
            _ => return Err(expected()),
        };
        // Nothing below 0: -0 is written as a whole number, which has no sign.
        if range.contains(&number) { Ok(number + 0.0) } else { Err(expected()) }
    }

    /// A span written in milliseconds, an hour at most.
    pub fn millis(&self) -> Result<Duration, ScenarioError> {
        Ok(nanos(self.number(0.0..=LONGEST_MS)?, 1e6))
    }

    /// A span written in seconds, `longest` at most.
    pub fn seconds(&self, longest: u64) -> Result<Duration, ScenarioError> {
        Ok(nanos(self.number(0.0..=longest as f64)?, 1e9))
    }

    /// A span written in seconds, within `range`.
    pub fn seconds_in(&self, range: RangeInclusive<f64>) -> Result<Duration, ScenarioError> {
        Ok(nanos(self.number(range)?, 1e9))
    }

    /// A rate with its unit, more than nothing.
    pub fn rate(&self) -> Result<Rate, ScenarioError> {
        let Value::Text(text) = &self.node.value else {
            return Err(self.wrong("expected a rate with its unit, such as \"400000 B/s\" or \"3.2 Mbit/s\""));
        };
        let rate: Rate = text.parse().map_err(|problem: String| self.wrong(problem))?;
        if rate == Rate::ZERO {
            let relay = " (a relay that passes nothing on is [[overlay.misbehave]] with drop = 1)";
            let hint = if self.key.starts_with("overlay.") { relay } else { "" };
            return Err(self.wrong(format!("nothing would ever pass; expected more than 0{hint}")));
        }
        if rate > HIGHEST_RATE {
            return Err(self.wrong("expected at most \"100 Gbit/s\""));
        }
        Ok(rate)
    }

    /// Words.
    pub fn text(&self, what: &str) -> Result<&'t str, ScenarioError> {
        match &self.node.value {
            Value::Text(text) => Ok(text),
            _ => Err(self.wrong(format!("expected {what} in quotes"))),
        }
    }

    /// One of `choices`, with its name.
    pub fn choice<T: Copy>(&self, choices: &[(&'static str, T)]) -> Result<(&'static str, T), ScenarioError> {
        let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
        let expected = names.iter().map(|name| format!("\"{name}\"")).collect::<Vec<_>>().join(", ");
        let Value::Text(text) = &self.node.value else {
            return Err(self.wrong(format!("expected one of {expected}")));
        };
        if let Some(chosen) = choices.iter().find(|(name, _)| name == text) {
            return Ok(*chosen);
        }
        Err(self.wrong(match nearest(text, &names) {
            Some(near) => format!("did you mean \"{near}\"? (expected one of {expected})"),
            None => format!("expected one of {expected}"),
        }))
    }

    /// Whether it is a table.
    pub fn is_table(&self) -> bool {
        matches!(self.node.value, Value::Table(_))
    }

    /// Whether it is a list.
    pub fn is_list(&self) -> bool {
        matches!(self.node.value, Value::List(_))
    }

    /// The table that it is; all that it may hold is in `known`.
    pub fn open(&self, known: &[&str]) -> Result<Section<'t>, ScenarioError> {
        Section::open(&self.key, self.node, known)
    }

    /// Its words, if it is words.
    pub fn words(&self) -> Option<&'t str> {
        self.node.text()
    }

    /// Yes or no.
    pub fn flag(&self) -> Result<bool, ScenarioError> {
        match self.node.value {
            Value::Boolean(yes) => Ok(yes),
            _ => Err(self.wrong("expected true or false")),
        }
    }

    /// The values of a list; `what` says of what.
    pub fn list(&self, what: &str) -> Result<Vec<Entry<'t>>, ScenarioError> {
        match &self.node.value {
            Value::List(list) => Ok(list.iter().map(|node| Entry { key: self.key.clone(), node }).collect()),
            _ => Err(self.wrong(format!("expected {what}"))),
        }
    }

    /// Peers by number, all below `peers`: a list, a range such as "0-9", or several
    /// with commas between.
    pub fn peers(&self, peers: usize) -> Result<Vec<u32>, ScenarioError> {
        let last = peers - 1;
        let what = format!("peers from 0 to {last}, as [0, 3] or \"0-{last}\"");
        let mut out = Vec::new();
        if let Value::Text(text) = &self.node.value {
            for part in text.split(',') {
                let (first, end) = part.split_once('-').unwrap_or((part, part));
                match (first.trim().parse::<usize>(), end.trim().parse::<usize>()) {
                    (Ok(first), Ok(end)) if first <= end && end <= last => out.extend(first as u32..=end as u32),
                    _ => return Err(self.wrong(format!("expected {what}"))),
                }
            }
        } else {
            for entry in self.list(&what)? {
                out.push(entry.whole(0..=last as u64)? as u32);
            }
        }
        if out.is_empty() { Err(self.wrong(format!("this names no peer; expected {what}"))) } else { Ok(out) }
    }

    /// The value as TOML, if it is a table, with the keys as entries.
    pub fn table(&self) -> Result<(toml::Table, Vec<Entry<'t>>), ScenarioError> {
        let (Value::Table(inner), toml::Value::Table(table)) = (&self.node.value, self.node.to_toml()) else {
            return Err(self.wrong(format!("expected a table, written [{}]", self.key)));
        };
        let entries = inner.iter().map(|(key, node)| Entry { key: format!("{}.{key}", self.key), node });
        Ok((table, entries.collect()))
    }

    /// Where a relative path in it begins: beside the file that says it; for an option of
    /// the command line, where the program runs.
    pub fn directory(&self) -> &'t Path {
        match &self.node.place {
            Place::File(source) | Place::At(source, _) => Path::new(&source.file).parent().unwrap_or(Path::new("")),
            Place::Option(..) => Path::new(""),
        }
    }

    /// The last step of the key.
    pub fn name(&self) -> &str {
        self.key.rsplit('.').next().unwrap_or(&self.key)
    }

    /// An error about this value.
    pub fn wrong(&self, problem: impl Into<String>) -> ScenarioError {
        ScenarioError::wrong(self.node.place.clone(), &self.key, self.node.shown(), problem)
    }
}

/// Rounded, so that a span of whole nanoseconds that was written as a decimal comes
/// back as it was.
fn nanos(number: f64, unit: f64) -> Duration {
    Duration::from_nanos((number * unit).round() as u64)
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
