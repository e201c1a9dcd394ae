//! Values that know where they were said, and the shapes that they may have. Whatever has
//! another shape is refused with what was expected, by the same words for every key.
//!
//! The tree of values is the `toml` crate's, with its spans, and serde writes it. Readers that serde derives were there
//! before: each type was compiled for each form that it may be read from, which was a third of this crate's code.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;

use serde::Serialize;
use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};
use toml::ser::ValueSerializer;

use super::error::{Problem, Span, is_option};

/// A value of a shape, and where it was said.
pub struct Said<T: Shape> {
    value: T::Holds,
    span: Span,
}

/// A value that may be left out.
pub type Optional<T> = Option<Said<T>>;
/// A table.
pub type Section<T> = Said<Table<T>>;
/// A table for each of many, written with double brackets.
pub type Sections<T> = Option<Said<Many<Table<T>>>>;

impl<T: Shape<Holds: Clone>> Clone for Said<T> {
    fn clone(&self) -> Said<T> {
        Said { value: self.value.clone(), span: self.span() }
    }
}

impl<T: Shape> Said<T> {
    /// A value that was said at `span`.
    pub fn new(value: T::Holds, span: Span) -> Said<T> {
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

impl<T: Shape> Deref for Said<T> {
    type Target = T::Holds;

    fn deref(&self) -> &T::Holds {
        &self.value
    }
}

/// A value that is going to be written, which has not been said anywhere.
pub fn said<T: Shape>(value: T::Holds) -> Said<T> {
    Said { value, span: 0..0 }
}

/// The same where it may be left out.
pub fn some<T: Shape>(value: T::Holds) -> Optional<T> {
    Some(said(value))
}

/// Where an optional value was said, if it was.
pub fn span<T: Shape>(said: &Optional<T>) -> Option<Span> {
    said.as_ref().map(Said::span)
}

/// What is said, or what is standard.
pub trait OrStandard<V> {
    fn or_standard(&self, standard: V) -> V;
}

impl<T: Shape<Holds: Clone>> OrStandard<T::Holds> for Optional<T> {
    fn or_standard(&self, standard: T::Holds) -> T::Holds {
        self.as_ref().map_or(standard, |said| said.value.clone())
    }
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

/// What TOML says, and where.
pub struct Value<'a> {
    pub part: Part<'a>,
    pub span: Span,
}

/// What TOML can say.
#[derive(Clone, Copy)]
pub enum Part<'a> {
    Text(&'a str),
    Whole(i128),
    Number(f64),
    Flag(bool),
    Date,
    List(&'a DeArray<'a>),
    Table(&'a DeTable<'a>),
}

/// What is wrong with a number that is too large to be one.
pub const TOO_LARGE: &str = "number does not fit in 64 bits";

impl<'a> Value<'a> {
    fn of(said: &'a Spanned<DeValue<'a>>) -> Result<Value<'a>, Problem> {
        let too_large = |kind: &str| Problem::at(said.span(), format!("{kind} {TOO_LARGE}"));
        let part = match said.get_ref() {
            DeValue::String(text) => Part::Text(text),
            DeValue::Integer(whole) => {
                let (digits, radix) = (whole.as_str(), whole.radix());
                let positive = || u128::from_str_radix(digits, radix).map(|_| i128::MAX);
                let number = i128::from_str_radix(digits, radix).or_else(|_| positive());
                Part::Whole(number.map_err(|_| too_large("integer"))?)
            }
            DeValue::Float(number) => {
                let digits = number.as_str();
                let number = digits.parse().ok().filter(|number: &f64| !number.is_infinite() || digits.contains("inf"));
                Part::Number(number.ok_or_else(|| too_large("floating-point"))?)
            }
            DeValue::Boolean(flag) => Part::Flag(*flag),
            DeValue::Datetime(_) => Part::Date,
            DeValue::Array(list) => Part::List(list),
            DeValue::Table(table) => Part::Table(table),
        };
        Ok(Value { part, span: said.span() })
    }

    /// An error about this value.
    pub fn wrong(&self, problem: impl Into<String>) -> Problem {
        Problem::at(self.span.clone(), problem)
    }

    /// That it is of another type than what is expected.
    pub fn instead_of(&self, expected: &str) -> Problem {
        let found = match self.part {
            Part::Text(_) => "text in quotes",
            Part::Whole(_) => "a whole number",
            Part::Number(number) if number.fract() == 0.0 => "a number with a point or an exponent",
            Part::Number(_) => "a number with a fraction",
            Part::Flag(_) => "true or false",
            Part::Date => "a date or a time",
            Part::List(_) => "a list",
            Part::Table(_) => "a table",
        };
        self.wrong(format!("expected {expected}; found {found}"))
    }

    /// The text in quotes, which is what is expected.
    pub fn text(&self, expected: fn() -> String) -> Result<&'a str, Problem> {
        match self.part {
            Part::Text(text) => Ok(text),
            _ => Err(self.instead_of(&expected())),
        }
    }
}

/// What a value may be: how it is read, and how it is written.
pub trait Shape: Sized {
    /// What a value of this shape is in the program.
    type Holds;

    /// What is right, in words, with an example where a range is none.
    fn expected() -> String;

    /// What a list of these is, in words.
    fn expected_list() -> String {
        format!("a list in brackets, each {}", Self::expected())
    }

    /// The value that TOML says.
    fn read(value: &Value<'_>) -> Result<Self::Holds, Problem>;

    /// Writes it as TOML on one line.
    fn write(value: &Self::Holds, out: &mut String);
}

/// Writes a value without parts, or with those that serde knows.
pub fn write(value: &(impl Serialize + ?Sized), out: &mut String) {
    value.serialize(ValueSerializer::new(out)).expect("every key is a name");
}

/// A table's value: one that must be said, or one that may be left out.
pub trait Field: Sized {
    fn read(value: &Spanned<DeValue<'_>>) -> Result<Self, Problem>;

    /// What stands for it if `key` of the table at `of` is not there.
    fn left_out(key: &str, of: &Span) -> Result<Self, Problem>;

    fn write(&self, key: &str, out: &mut String);
}

impl<T: Shape> Field for Said<T> {
    fn read(value: &Spanned<DeValue<'_>>) -> Result<Self, Problem> {
        let value = Value::of(value)?;
        Ok(Said { value: T::read(&value)?, span: value.span })
    }

    fn left_out(key: &str, of: &Span) -> Result<Self, Problem> {
        Err(Problem::missing(of.clone(), key, T::expected()))
    }

    fn write(&self, key: &str, out: &mut String) {
        write_key(key, out);
        T::write(&self.value, out);
    }
}

impl<T: Shape> Field for Optional<T> {
    fn read(value: &Spanned<DeValue<'_>>) -> Result<Self, Problem> {
        Ok(Some(Said::read(value)?))
    }

    fn left_out(_: &str, _: &Span) -> Result<Self, Problem> {
        Ok(None)
    }

    fn write(&self, key: &str, out: &mut String) {
        if let Some(said) = self {
            said.write(key, out);
        }
    }
}

fn write_key(key: &str, out: &mut String) {
    out.push_str(if out.ends_with('{') { " " } else { ", " });
    out.push_str(key);
    out.push_str(" = ");
}

/// The keys of a table, which [`keys!`] makes of a struct's fields.
pub trait Keys: Sized {
    /// Their names.
    const KEYS: &'static [&'static str];

    /// Reads the table that stands at `at`.
    fn read(table: &DeTable<'_>, at: &Span) -> Result<Self, Problem>;

    /// Writes each key that is said.
    fn write(&self, out: &mut String);
}

/// A struct whose fields are the keys of a table: [`Said`] where they must be there,
/// [`Optional`] where they may be left out. Of several mistakes, the first one by its key's name
/// is told.
macro_rules! keys {
    (
        $(#[$attribute:meta])*
        $visible:vis struct $name:ident $(<$value:ident>)? {
            $($(#[$doc:meta])* $field_visible:vis $key:ident: $type:ty,)*
        }
    ) => {
        $(#[$attribute])*
        $visible struct $name $(<$value: $crate::file::shape::Shape>)? {
            $($(#[$doc])* $field_visible $key: $type,)*
        }

        impl $(<$value: $crate::file::shape::Shape>)? $crate::file::shape::Keys for $name $(<$value>)? {
            const KEYS: &'static [&'static str] = &[$(stringify!($key)),*];

            fn read(
                table: &toml::de::DeTable<'_>,
                at: &$crate::file::error::Span,
            ) -> Result<Self, $crate::file::error::Problem> {
                use $crate::file::shape::Field;
                $(let mut $key: Option<$type> = None;)*
                for (key, value) in table {
                    match &**key.get_ref() {
                        $(stringify!($key) => $key = Some(Field::read(value)?),)*
                        stray => return Err($crate::file::error::Problem::unknown_key(key.span(), stray, Self::KEYS)),
                    }
                }
                Ok(Self {
                    $($key: match $key {
                        Some(said) => said,
                        None => Field::left_out(stringify!($key), at)?,
                    },)*
                })
            }

            fn write(&self, out: &mut String) {
                $($crate::file::shape::Field::write(&self.$key, stringify!($key), out);)*
            }
        }
    };
}
pub(super) use keys;

/// What stands for the key of the value in what is expected of it.
pub const KEY: &str = "<key>";

/// What a table is, in words.
pub fn a_table() -> String {
    format!("a table, written [{KEY}]")
}

/// A table whose keys are the fields of a struct.
pub struct Table<T>(PhantomData<T>);

impl<T: Keys> Shape for Table<T> {
    type Holds = T;

    fn expected() -> String {
        a_table()
    }

    fn expected_list() -> String {
        format!("a list of tables, each written [[{KEY}]]")
    }

    fn read(value: &Value<'_>) -> Result<T, Problem> {
        match value.part {
            Part::Table(table) => T::read(table, &value.span),
            _ => Err(value.instead_of(&a_table())),
        }
    }

    fn write(keys: &T, out: &mut String) {
        out.push('{');
        keys.write(out);
        out.push_str(if out.ends_with('{') { "}" } else { " }" });
    }
}

/// A list.
pub struct Many<T>(PhantomData<T>);

impl<T: Shape> Shape for Many<T> {
    type Holds = Vec<Said<T>>;

    fn expected() -> String {
        T::expected_list()
    }

    fn read(value: &Value<'_>) -> Result<Vec<Said<T>>, Problem> {
        match value.part {
            // A loop: it compiles to a fraction of what an iterator would for each type of item.
            Part::List(list) => {
                let mut items = Vec::with_capacity(list.len());
                for item in list {
                    items.push(Said::read(item)?);
                }
                Ok(items)
            }
            _ => Err(value.instead_of(&T::expected_list())),
        }
    }

    fn write(items: &Vec<Said<T>>, out: &mut String) {
        out.push('[');
        for item in items {
            if !out.ends_with('[') {
                out.push_str(", ");
            }
            T::write(&item.value, out);
        }
        out.push(']');
    }
}

/// A list that is going to be written.
pub fn many<T: Shape>(values: impl IntoIterator<Item = T::Holds>) -> Said<Many<T>> {
    said(values.into_iter().map(said).collect())
}

/// Tables that are going to be written, if there are any.
pub fn sections<T: Keys>(tables: impl Iterator<Item = T>) -> Sections<T> {
    Some(many(tables)).filter(|tables| !tables.is_empty())
}

/// A value by itself, or a table that says more.
pub enum Either<P: Shape, T> {
    Plain(P::Holds),
    Table(T),
}

impl<P: Shape, T: Keys> Shape for Either<P, T> {
    type Holds = Self;

    fn expected() -> String {
        P::expected()
    }

    fn read(value: &Value<'_>) -> Result<Self, Problem> {
        match value.part {
            Part::Table(_) => Table::read(value).map(Either::Table),
            _ => P::read(value).map(Either::Plain),
        }
    }

    fn write(value: &Self, out: &mut String) {
        match value {
            Either::Plain(plain) => P::write(plain, out),
            Either::Table(table) => Table::write(table, out),
        }
    }
}

/// One value for all, or a list with one for each.
pub enum Each<T: Shape> {
    All(T::Holds),
    Each(Vec<Said<T>>),
}

impl<T: Shape> Shape for Each<T> {
    type Holds = Self;

    fn expected() -> String {
        T::expected()
    }

    fn read(value: &Value<'_>) -> Result<Self, Problem> {
        match value.part {
            Part::List(_) => Many::read(value).map(Each::Each),
            _ => T::read(value).map(Each::All),
        }
    }

    fn write(value: &Self, out: &mut String) {
        match value {
            Each::All(one) => T::write(one, out),
            Each::Each(list) => Many::write(list, out),
        }
    }
}
