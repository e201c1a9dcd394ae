//! Values that know where they were said, and the shapes that they may have. Whatever has
//! another shape is refused with what was expected, by the same words for every key.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, Range};

use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{DeserializeOwned, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use toml::Spanned;

use super::document::is_option;
use super::error::Problem;

/// Where something was said: bytes after the beginning of the text, or of an option.
pub type Span = Range<usize>;

/// A value and where it was said.
#[derive(Clone, Debug, Serialize)]
#[serde(transparent)]
pub struct Said<T> {
    value: T,
    #[serde(skip)]
    span: Span,
}

/// A value that may be left out.
pub type Optional<T> = Option<Said<T>>;
/// A table.
pub type Section<T> = Said<Table<T>>;
/// A table for each of many, written with double brackets.
pub type Sections<T> = Option<Said<Many<Table<T>>>>;

impl<T> Said<T> {
    /// A value that was said at `span`.
    pub fn new(value: T, span: Span) -> Said<T> {
        Said { value, span }
    }

    /// Where it was said.
    pub fn span(&self) -> Span {
        self.span.clone()
    }

    /// An error about this value.
    pub fn wrong(&self, problem: impl Into<String>) -> Problem {
        Problem::at(self.span(), problem)
    }

    /// That `key` of this table is missing; `what` says what it means.
    pub fn missing(&self, key: &str, what: impl fmt::Display) -> Problem {
        Problem::missing(self.span(), key, what)
    }
}

impl<T> Deref for Said<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

/// A value that is going to be written, which has not been said anywhere.
impl<T> From<T> for Said<T> {
    fn from(value: T) -> Said<T> {
        Said { value, span: 0..0 }
    }
}

/// A value that is going to be written.
pub fn some<T>(value: T) -> Optional<T> {
    Some(value.into())
}

/// Where an optional value was said, if it was.
pub fn span<T>(said: &Optional<T>) -> Option<Span> {
    said.as_ref().map(Said::span)
}

/// Which one of several keys is there; `what` says what they are, `of` where their table
/// stands. What the command line says takes the place of what the file says.
pub fn one_of(keys: &[(&str, Option<Span>)], of: Span, what: &str) -> Result<usize, Problem> {
    let mut found: Vec<(usize, &Span)> =
        keys.iter().enumerate().filter_map(|(i, (_, span))| Some((i, span.as_ref()?))).collect();
    if found.iter().any(|(_, span)| is_option(span)) {
        found.retain(|(_, span)| is_option(span));
    }
    let names = || keys.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    match found[..] {
        [(only, _)] => Ok(only),
        [] => Err(Problem::at(of, format!("expected {what}: one of {}", names()))),
        [(first, _), (_, second), ..] => {
            let problem = format!("there is \"{}\" already; expected one of {}", keys[first].0, names());
            Err(Problem::at(second.clone(), problem))
        }
    }
}

/// What TOML can say that has no parts.
#[derive(Clone, Copy, Debug)]
pub enum Scalar<'a> {
    Text(&'a str),
    Whole(i128),
    Number(f64),
    Flag(bool),
}

impl Scalar<'_> {
    /// That it is of another type than what is expected.
    pub fn instead_of(self, expected: &str) -> String {
        mismatch(
            expected,
            match self {
                Scalar::Text(_) => "text in quotes",
                Scalar::Whole(_) => "a whole number",
                Scalar::Number(_) => "a number with a fraction",
                Scalar::Flag(_) => "true or false",
            },
        )
    }
}

/// How a value is read from a scalar, a list or a table; what it is not is refused.
pub trait Shape: Sized {
    /// What is right, in words, with an example where a range is none.
    fn expected() -> String;

    /// What a list of these is, in words.
    fn expected_list() -> String {
        format!("a list in brackets, each {}", Self::expected())
    }

    fn scalar(value: Scalar<'_>) -> Result<Self, String> {
        Err(value.instead_of(&Self::expected()))
    }

    fn list<'de, A: SeqAccess<'de>>(_: A) -> Result<Self, A::Error> {
        Err(A::Error::custom(mismatch(&Self::expected(), "a list")))
    }

    fn table<'de, A: MapAccess<'de>>(_: A) -> Result<Self, A::Error> {
        Err(A::Error::custom(mismatch(&Self::expected(), "a table")))
    }
}

fn mismatch(expected: &str, found: &str) -> String {
    format!("expected {expected}; found {found}")
}

/// Reads a [`Shape`] with serde.
struct Shaped<T>(T);

struct ShapeVisitor<T>(PhantomData<T>);

impl<'de, T: Shape> Visitor<'de> for ShapeVisitor<T> {
    type Value = Shaped<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&T::expected())
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Shaped<T>, E> {
        T::scalar(Scalar::Flag(value)).map(Shaped).map_err(E::custom)
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Shaped<T>, E> {
        self.visit_i128(value.into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Shaped<T>, E> {
        self.visit_i128(value.into())
    }

    fn visit_i128<E: Error>(self, value: i128) -> Result<Shaped<T>, E> {
        T::scalar(Scalar::Whole(value)).map(Shaped).map_err(E::custom)
    }

    fn visit_u128<E: Error>(self, _: u128) -> Result<Shaped<T>, E> {
        self.visit_i128(i128::MAX)
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Shaped<T>, E> {
        T::scalar(Scalar::Number(value)).map(Shaped).map_err(E::custom)
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Shaped<T>, E> {
        T::scalar(Scalar::Text(value)).map(Shaped).map_err(E::custom)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Shaped<T>, A::Error> {
        T::list(list).map(Shaped)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Shaped<T>, A::Error> {
        T::table(map).map(Shaped)
    }
}

impl<'de, T: Shape> Deserialize<'de> for Shaped<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Shaped<T>, D::Error> {
        from.deserialize_any(ShapeVisitor(PhantomData))
    }
}

impl<'de, T: Shape> Deserialize<'de> for Said<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Said<T>, D::Error> {
        let spanned = Spanned::<Shaped<T>>::deserialize(from)?;
        Ok(Said { span: spanned.span(), value: spanned.into_inner().0 })
    }
}

/// A table whose keys are the fields of a struct.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(transparent)]
pub struct Table<T>(pub T);

/// What stands for the key of the value in what is expected of it.
pub const KEY: &str = "<key>";

impl<T: DeserializeOwned> Shape for Table<T> {
    fn expected() -> String {
        format!("a table, written [{KEY}]")
    }

    fn expected_list() -> String {
        format!("a list of tables, each written [[{KEY}]]")
    }

    fn table<'de, A: MapAccess<'de>>(map: A) -> Result<Self, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(Table)
    }
}

impl<T> Deref for Table<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

/// A list.
#[derive(Clone, Debug, Serialize)]
#[serde(transparent)]
pub struct Many<T>(pub Vec<Said<T>>);

impl<T: Shape> Shape for Many<T> {
    fn expected() -> String {
        T::expected_list()
    }

    fn list<'de, A: SeqAccess<'de>>(list: A) -> Result<Self, A::Error> {
        Vec::deserialize(SeqAccessDeserializer::new(list)).map(Many)
    }
}

impl<T> Deref for Many<T> {
    type Target = [Said<T>];

    fn deref(&self) -> &[Said<T>] {
        &self.0
    }
}

impl<T> FromIterator<T> for Many<T> {
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> Many<T> {
        Many(values.into_iter().map(Said::from).collect())
    }
}

/// Tables that are going to be written, if there are any.
pub fn sections<T>(tables: impl Iterator<Item = T>) -> Sections<T> {
    let tables: Many<Table<T>> = tables.map(Table).collect();
    (!tables.is_empty()).then(|| tables.into())
}

/// A value by itself, or a table that says more.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum Either<P, T> {
    Plain(P),
    Table(Table<T>),
}

impl<P: Shape, T: DeserializeOwned> Shape for Either<P, T> {
    fn expected() -> String {
        P::expected()
    }

    fn scalar(value: Scalar<'_>) -> Result<Self, String> {
        P::scalar(value).map(Either::Plain)
    }

    fn list<'de, A: SeqAccess<'de>>(list: A) -> Result<Self, A::Error> {
        P::list(list).map(Either::Plain)
    }

    fn table<'de, A: MapAccess<'de>>(map: A) -> Result<Self, A::Error> {
        Table::table(map).map(Either::Table)
    }
}

/// One value for all, or a list with one for each.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum Each<T> {
    All(T),
    Each(Many<T>),
}

impl<T: Shape> Shape for Each<T> {
    fn expected() -> String {
        T::expected()
    }

    fn scalar(value: Scalar<'_>) -> Result<Self, String> {
        T::scalar(value).map(Each::All)
    }

    fn list<'de, A: SeqAccess<'de>>(list: A) -> Result<Self, A::Error> {
        Many::list(list).map(Each::Each)
    }

    fn table<'de, A: MapAccess<'de>>(map: A) -> Result<Self, A::Error> {
        T::table(map).map(Each::All)
    }
}

/// The parameters of a controller, which knows their names and checks them.
#[derive(Clone, Debug, Default)]
pub struct Parameters {
    pub table: toml::Table,
    keys: Vec<(String, Span)>,
}

impl Shape for Parameters {
    fn expected() -> String {
        Table::<()>::expected()
    }

    fn table<'de, A: MapAccess<'de>>(map: A) -> Result<Self, A::Error> {
        let said: BTreeMap<Spanned<String>, toml::Value> = Deserialize::deserialize(MapAccessDeserializer::new(map))?;
        let keys = said.keys().map(|key| (key.get_ref().clone(), key.span())).collect();
        Ok(Parameters { table: said.into_iter().map(|(key, value)| (key.into_inner(), value)).collect(), keys })
    }
}

impl Serialize for Parameters {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.table.serialize(to)
    }
}

impl Parameters {
    /// These, if there are any, as they are written.
    pub fn written(table: &toml::Table) -> Optional<Parameters> {
        (!table.is_empty()).then(|| Parameters { table: table.clone(), keys: Vec::new() }.into())
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
pub fn unknown_field(message: &str) -> Option<(&str, Vec<&str>)> {
    let mut names = message.strip_prefix("unknown field `")?.split('`').step_by(2);
    Some((names.next()?, names.filter(|name| !name.is_empty()).collect()))
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
