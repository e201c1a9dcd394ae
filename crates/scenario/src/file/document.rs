//! A scenario's text with what the command line sets in it, as one tree. Every value has a span, so that a check that fails late can still name the line: spans of options
//! lie behind those of any text.

use std::borrow::Cow;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

use super::error::{OPTIONS_AT, Place, Problem, ScenarioError, Source, Span};
use super::shape::{KEY, Keys, Said, Section};

/// The span of the whole: no key and no value has it.
const NOWHERE: Span = 0..0;

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

    /// How much space its spans take: its value, then one for each step of its key.
    fn width(&self) -> usize {
        self.value.len() + self.key.len() + 2
    }

    /// The value as TOML, or, where it is none, as words: `400000 B/s` needs no quotes.
    fn parsed(&self, at: usize) -> Result<Spanned<DeValue<'_>>, ScenarioError> {
        match DeValue::parse(&self.value) {
            Ok(value) => Ok(shifted(value, at)),
            Err(error) if self.value.starts_with(['"', '\'', '[', '{']) => {
                Err(self.wrong(format!("the value is not TOML: {}", one_line(error.message()))))
            }
            Err(_) => Ok(Spanned::new(at..at + self.value.len(), DeValue::String(Cow::Borrowed(self.value.as_str())))),
        }
    }
}

/// A value that stands `by` further.
fn shifted(value: Spanned<DeValue<'_>>, by: usize) -> Spanned<DeValue<'_>> {
    let moved = |span: Range<usize>| span.start + by..span.end + by;
    let span = moved(value.span());
    let value = match value.into_inner() {
        DeValue::Array(list) => {
            let mut out = DeArray::new();
            list.into_iter().for_each(|item| out.push(shifted(item, by)));
            DeValue::Array(out)
        }
        DeValue::Table(table) => {
            let moved = table
                .into_iter()
                .map(|(key, value)| (Spanned::new(moved(key.span()), key.into_inner()), shifted(value, by)));
            DeValue::Table(moved.collect())
        }
        scalar => scalar,
    };
    Spanned::new(span, value)
}

/// A text, and what the command line sets in it.
#[derive(Clone, Debug)]
pub struct Document<'o> {
    source: Arc<Source>,
    options: &'o [Override],
}

/// What has a span: its whole key, where that key or the item of a list begins, its value.
struct Found<'t, 'd> {
    key: String,
    place: Span,
    value: &'t Spanned<DeValue<'d>>,
}

impl<'o> Document<'o> {
    /// The text, which errors call `file`.
    pub fn new(text: &str, file: &str, options: &'o [Override]) -> Document<'o> {
        Document { source: Arc::new(Source { file: file.to_owned(), text: text.to_owned() }), options }
    }

    /// All that is said.
    pub fn tree(&self) -> Result<DeTable<'_>, ScenarioError> {
        let not_toml = |place, message: &str| {
            ScenarioError::wrong(place, "", None, format!("this is not TOML: {}", one_line(message)))
        };
        if self.source.text.len() >= OPTIONS_AT {
            return Err(not_toml(Place::File(self.source.clone()), "it is longer than 2 GiB"));
        }
        let mut tree = match DeTable::parse(&self.source.text) {
            Ok(table) => table.into_inner(),
            Err(error) => {
                let file = Place::File(self.source.clone());
                let place = error.span().map_or(file, |span| Place::At(self.source.clone(), span.start));
                return Err(not_toml(place, error.message()));
            }
        };
        // Another controller leaves out the old one's parameters, so it comes first.
        let (choosing, others): (Vec<_>, Vec<_>) =
            self.placed_options().partition(|(_, option)| option.key.ends_with(".controller"));
        for (at, option) in choosing.into_iter().chain(others) {
            let steps: Vec<&str> = option.key.split('.').collect();
            if steps.contains(&"") {
                let problem = format!("\"{}\" is not a key; expected one such as overlay.relays", option.key);
                return Err(option.wrong(problem));
            }
            let value = option.parsed(at)?;
            put_in_table(&mut tree, &steps, &value, option, at + option.value.len() + 1)?;
        }
        Ok(tree)
    }

    fn placed_options(&self) -> impl Iterator<Item = (usize, &'o Override)> {
        self.options.iter().scan(OPTIONS_AT, |next, option| {
            let at = *next;
            *next += option.width();
            Some((at, option))
        })
    }

    /// Where relative paths in the text begin: beside it. Those of options begin where the
    /// program runs.
    pub fn directory(&self) -> PathBuf {
        Path::new(&self.source.file).parent().unwrap_or(Path::new("")).to_owned()
    }

    /// What `resolve` makes of the tables and keys that `F` has.
    pub fn read<F: Keys, S>(
        &self,
        tree: &DeTable<'_>,
        resolve: impl FnOnce(&Section<F>) -> Result<S, Problem>,
    ) -> Result<S, ScenarioError> {
        let file = F::read(tree, &NOWHERE).map(|file| Said::new(file, NOWHERE));
        file.and_then(|file| resolve(&file)).map_err(|problem| self.error(&problem))
    }

    /// The problem as users are told it.
    pub fn error(&self, problem: &Problem) -> ScenarioError {
        let tree = match self.tree() {
            Ok(tree) => tree,
            Err(error) => return error,
        };
        let found = find_in_table(&tree, "", &problem.span);
        let (key, place, value) = match &found {
            Some(found) => (found.key.as_str(), Some(&found.place), self.shown(found.value)),
            None => ("", None, None),
        };
        let place = match place.map(|place| place.start) {
            None => Place::File(self.source.clone()),
            Some(at) => match self.placed_options().take_while(|(from, _)| *from <= at).last() {
                Some((_, option)) => option.place(),
                None => Place::At(self.source.clone(), at),
            },
        };
        let (key, value) = match &problem.missing {
            Some(missing) => (joined(key, missing), None),
            None => (key.to_owned(), value),
        };
        ScenarioError::wrong(place, &key, value, problem.text.replace(KEY, &key))
    }

    /// The value as it was written, shortened to a few words; none for tables.
    fn shown(&self, value: &Spanned<DeValue<'_>>) -> Option<String> {
        const LONGEST: usize = 40;
        let is_table = |value: &DeValue<'_>| {
            value.is_table() || value.as_array().is_some_and(|list| list.iter().any(|item| item.get_ref().is_table()))
        };
        if is_table(value.get_ref()) {
            return None;
        }
        let span = value.span();
        let text = match self.placed_options().take_while(|(from, _)| *from <= span.start).last() {
            Some((from, option)) => option.value.get(span.start - from..span.end - from)?,
            None => self.source.text.get(span)?,
        };
        let text = one_line(text);
        Some(match text.char_indices().nth(LONGEST) {
            Some((end, _)) => format!("{}...", &text[..end]),
            None => text,
        })
    }
}

fn joined(table: &str, key: &str) -> String {
    if table.is_empty() { key.to_owned() } else { format!("{table}.{key}") }
}

/// Puts `new` where `steps` lead: names, or places in a list, counted from 0, or `all`
/// places of a list. Tables on the way that are new stand at `at` and behind.
fn put<'o>(
    node: &mut Spanned<DeValue<'o>>,
    steps: &[&'o str],
    new: &Spanned<DeValue<'o>>,
    option: &'o Override,
    at: usize,
) -> Result<(), ScenarioError> {
    let Some((&step, rest)) = steps.split_first() else {
        *node = new.clone();
        return Ok(());
    };
    match node.get_mut() {
        DeValue::Table(table) => put_in_table(table, steps, new, option, at),
        DeValue::Array(list) if step == "all" => list.iter_mut().try_for_each(|item| put(item, rest, new, option, at)),
        DeValue::Array(list) => {
            let length = list.len();
            let item = step.parse().ok().and_then(|index: usize| list.get_mut(index)).ok_or_else(|| {
                option.wrong(format!("\"{step}\" is not a place in a list of {length}, which counts from 0"))
            })?;
            put(item, rest, new, option, at)
        }
        _ => Err(option.wrong(format!("\"{step}\" is a part of a value that has no parts"))),
    }
}

fn put_in_table<'o>(
    table: &mut DeTable<'o>,
    steps: &[&'o str],
    new: &Spanned<DeValue<'o>>,
    option: &'o Override,
    at: usize,
) -> Result<(), ScenarioError> {
    let Some((&step, rest)) = steps.split_first() else { return Ok(()) };
    let said_before = table.get_mut(step);
    if let (Some(node), false) = (said_before, rest.is_empty()) {
        return put(node, rest, new, option, at + 1);
    }
    if step == "controller" && table.get(step).and_then(|old| old.get_ref().as_str()) != new.get_ref().as_str() {
        table.remove("parameters");
    }
    table.remove(step);
    let (span, value) = if rest.is_empty() {
        (new.span(), new.clone())
    } else {
        let mut between = Spanned::new(at..at, DeValue::Table(DeTable::new()));
        put(&mut between, rest, new, option, at + 1)?;
        (at..at, between)
    };
    table.insert(Spanned::new(span, Cow::Borrowed(step)), value);
    Ok(())
}

/// What stands in `table`, which is called `name`, at `span`, the innermost.
fn find_in_table<'t, 'd>(table: &'t DeTable<'d>, name: &str, span: &Span) -> Option<Found<'t, 'd>> {
    table.iter().find_map(|(key, value)| {
        let name = joined(name, key.get_ref());
        let is_it = key.span() == *span || value.span() == *span;
        find_within(value, &name, span).or_else(|| is_it.then(|| Found { key: name, place: key.span(), value }))
    })
}

fn find_within<'t, 'd>(value: &'t Spanned<DeValue<'d>>, name: &str, span: &Span) -> Option<Found<'t, 'd>> {
    match value.get_ref() {
        DeValue::Table(table) => find_in_table(table, name, span),
        DeValue::Array(list) => list.iter().find_map(|item| {
            let found = || Found { key: name.to_owned(), place: item.span(), value: item };
            find_within(item, name, span).or_else(|| (item.span() == *span).then(found))
        }),
        _ => None,
    }
}

pub fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
