//! A scenario's text as a tree in which every value knows where it was said, so
//! that a check that fails late can still name the line.

use std::collections::BTreeMap;
use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::{Place, ScenarioError, Source};

/// A value and where it was said: its key's place, or its own in a list.
#[derive(Clone, Debug)]
pub struct Node {
    /// Where it was said.
    pub place: Place,
    /// What was said.
    pub value: Value,
}

/// What TOML can say.
#[derive(Clone, Debug)]
pub enum Value {
    /// Words.
    Text(String),
    /// A whole number.
    Integer(i64),
    /// A number with a fraction or an exponent.
    Float(f64),
    /// Yes or no.
    Boolean(bool),
    /// A date or a time, which no scenario wants.
    Datetime(toml::value::Datetime),
    /// Values in order.
    List(Vec<Node>),
    /// Values by name.
    Table(BTreeMap<String, Node>),
}

/// A value that the command line gives instead of the file's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Override {
    option: Arc<str>,
    key: Arc<str>,
    value: String,
}

impl Override {
    /// From `KEY=VALUE`, the argument of `--set`.
    ///
    /// # Errors
    ///
    /// When there is no key or no `=`.
    pub fn set(argument: &str) -> Result<Override, ScenarioError> {
        let option = format!("--set {argument}");
        match argument.split_once('=') {
            Some((key, value)) if !key.trim().is_empty() => Ok(Override::new(option, key.trim(), value.trim())),
            _ => {
                let place = Place::Option(option.into(), "".into());
                Err(ScenarioError::wrong(place, "", None, "expected KEY=VALUE, such as overlay.relays=4"))
            }
        }
    }

    /// Sets `key` to `value`; errors name `option`, which is how the user said it.
    pub fn new(option: impl Into<Arc<str>>, key: impl Into<Arc<str>>, value: impl Into<String>) -> Override {
        Override { option: option.into(), key: key.into(), value: value.into() }
    }

    /// The key that is set, such as `overlay.relays`.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The value as the option gives it.
    pub fn value(&self) -> &str {
        &self.value
    }

    fn place(&self) -> Place {
        Place::Option(self.option.clone(), self.key.clone())
    }

    fn wrong(&self, problem: impl Into<String>) -> ScenarioError {
        ScenarioError::wrong(self.place(), &self.key, None, problem)
    }
}

impl Node {
    /// Reads `text`; `file` is how errors call it.
    pub fn parse(text: &str, file: &str) -> Result<Node, ScenarioError> {
        let source = Arc::new(Source { file: file.to_owned(), text: text.to_owned() });
        match DeTable::parse(text) {
            Ok(table) => {
                let value = read_table(table.into_inner(), "", &|offset| Place::At(source.clone(), offset))?;
                Ok(Node { place: Place::File(source), value })
            }
            Err(error) => {
                let place = match error.span() {
                    Some(span) => Place::At(source, span.start),
                    None => Place::File(source),
                };
                Err(ScenarioError::wrong(place, "", None, format!("this is not TOML: {}", one_line(error.message()))))
            }
        }
    }

    /// Puts the values of all `changes` where their keys say. One that chooses another
    /// controller leaves out the parameters beside it, which are the old one's.
    pub fn apply_all(&mut self, changes: &[Override]) -> Result<(), ScenarioError> {
        let (choosing, others): (Vec<_>, Vec<_>) =
            changes.iter().partition(|change| change.key.ends_with(".controller"));
        choosing.into_iter().chain(others).try_for_each(|change| self.apply(change))
    }

    /// Puts the value of `change` where its key says. A step of the key is a name, or the
    /// place in a list, counted from 0, or `all` places of a list.
    fn apply(&mut self, change: &Override) -> Result<(), ScenarioError> {
        let steps: Vec<&str> = change.key.split('.').collect();
        self.put(&steps, &change.node()?, change)
    }

    fn put(&mut self, steps: &[&str], new: &Node, change: &Override) -> Result<(), ScenarioError> {
        let Some((&step, rest)) = steps.split_first() else {
            *self = new.clone();
            return Ok(());
        };
        if step.is_empty() {
            return Err(change.wrong(format!("\"{}\" is not a key; expected one such as overlay.relays", change.key)));
        }
        match &mut self.value {
            Value::Table(table) => {
                if rest.is_empty() && step == "controller" && table.get(step).and_then(Node::text) != new.text() {
                    table.remove("parameters");
                }
                let node = table
                    .entry(step.to_owned())
                    .or_insert_with(|| Node { place: change.place(), value: Value::Table(BTreeMap::new()) });
                node.put(rest, new, change)
            }
            Value::List(list) if step == "all" => list.iter_mut().try_for_each(|node| node.put(rest, new, change)),
            Value::List(list) => {
                let length = list.len();
                let node = step.parse().ok().and_then(|index: usize| list.get_mut(index)).ok_or_else(|| {
                    change.wrong(format!("\"{step}\" is not a place in a list of {length}, which counts from 0"))
                })?;
                node.put(rest, new, change)
            }
            _ => Err(change.wrong(format!("\"{step}\" is a part of a value that has no parts"))),
        }
    }

    /// Its words, if it is words.
    pub fn text(&self) -> Option<&str> {
        match &self.value {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The value at `path` from here.
    pub fn get(&self, path: &[&str]) -> Option<&Node> {
        path.iter().try_fold(self, |node, step| match &node.value {
            Value::Table(table) => table.get(*step),
            _ => None,
        })
    }

    /// The value without its places.
    pub fn to_toml(&self) -> toml::Value {
        match &self.value {
            Value::Text(text) => toml::Value::String(text.clone()),
            Value::Integer(number) => toml::Value::Integer(*number),
            Value::Float(number) => toml::Value::Float(*number),
            Value::Boolean(yes) => toml::Value::Boolean(*yes),
            Value::Datetime(instant) => toml::Value::Datetime(*instant),
            Value::List(list) => toml::Value::Array(list.iter().map(Node::to_toml).collect()),
            Value::Table(table) => {
                toml::Value::Table(table.iter().map(|(key, node)| (key.clone(), node.to_toml())).collect())
            }
        }
    }

    /// The value as TOML writes it, shortened to a few words; none for a table.
    pub fn shown(&self) -> Option<String> {
        const LONGEST: usize = 40;
        if let Value::Table(_) = self.value {
            return None;
        }
        let text = one_line(&self.to_toml().to_string());
        Some(match text.char_indices().nth(LONGEST) {
            Some((end, _)) => format!("{}...", &text[..end]),
            None => text,
        })
    }
}

impl Override {
    /// The value as TOML, or, where it is none, as words: `400000 B/s` needs no quotes.
    fn node(&self) -> Result<Node, ScenarioError> {
        let place = || self.place();
        let parsed = match DeValue::parse(&self.value) {
            Ok(value) => value.into_inner(),
            Err(error) if self.value.starts_with(['"', '\'', '[', '{']) => {
                return Err(self.wrong(format!("the value is not TOML: {}", one_line(error.message()))));
            }
            Err(_) => DeValue::String(self.value.as_str().into()),
        };
        Ok(Node { place: place(), value: read_value(parsed, &place(), &self.key, &|_| place())? })
    }
}

/// The table called `name`; `at` finds the place of what stands so many bytes after the
/// beginning.
fn read_table(table: DeTable<'_>, name: &str, at: &dyn Fn(usize) -> Place) -> Result<Value, ScenarioError> {
    let mut out = BTreeMap::new();
    for (key, value) in table {
        let place = at(key.span().start);
        let key = key.into_inner().into_owned();
        let whole = if name.is_empty() { key.clone() } else { format!("{name}.{key}") };
        let value = read_value(value.into_inner(), &place, &whole, at)?;
        out.insert(key, Node { place, value });
    }
    Ok(Value::Table(out))
}

/// The value of `key`, which stands at `place`.
fn read_value(
    value: DeValue<'_>,
    place: &Place,
    key: &str,
    at: &dyn Fn(usize) -> Place,
) -> Result<Value, ScenarioError> {
    let wrong = |number: String, problem: &str| ScenarioError::wrong(place.clone(), key, Some(number), problem);
    Ok(match value {
        DeValue::String(text) => Value::Text(text.into_owned()),
        DeValue::Boolean(yes) => Value::Boolean(yes),
        DeValue::Datetime(instant) => Value::Datetime(instant),
        DeValue::Integer(number) => {
            let read = i64::from_str_radix(number.as_str(), number.radix());
            Value::Integer(read.map_err(|_| wrong(number.to_string(), "expected a number that fits in 64 bits"))?)
        }
        DeValue::Float(number) => {
            let read = number.as_str().parse();
            Value::Float(read.map_err(|_| wrong(number.to_string(), "expected a number"))?)
        }
        DeValue::Array(list) => {
            let node = |item: Spanned<DeValue<'_>>| {
                let place = at(item.span().start);
                Ok(Node { value: read_value(item.into_inner(), &place, key, at)?, place })
            };
            Value::List(list.into_iter().map(node).collect::<Result<_, ScenarioError>>()?)
        }
        DeValue::Table(table) => read_table(table, key, at)?,
    })
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
