//! What the keys of scenarios hold: each type reads itself, checks its range and says what
//! would be right.

use anabranch_control::time::{Duration, Time};
use anabranch_control::units::Rate;
use serde::{Serialize, Serializer};

use super::shape::{Scalar, Shape, nearest};

/// No rate in a scenario is higher: 100 Gbit/s.
pub const HIGHEST_RATE: Rate = Rate::from_bits_per_sec(100_000_000_000);

/// What is wrong with a rate of 0.
pub const NOTHING_PASSES: &str = "nothing would ever pass; expected more than 0";

/// What a scenario's seed may be: whatever TOML can write.
pub type Seed = Whole<0, { i64::MAX as u64 }>;

/// A part of all, or a probability.
pub type Share = Number<0, 1>;

/// The longest name of a node, a link or a flow, in characters.
const LONGEST_NAME: usize = 60;

const NANO: f64 = 1e9;

/// A whole number in a range.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Whole<const LEAST: u64, const MOST: u64>(pub u64);

impl<const LEAST: u64, const MOST: u64> Shape for Whole<LEAST, MOST> {
    fn expected() -> String {
        format!("a whole number from {LEAST} to {MOST}")
    }

    fn scalar(value: Scalar<'_>) -> Result<Self, String> {
        match value {
            Scalar::Whole(number) => match u64::try_from(number) {
                Ok(number) if (LEAST..=MOST).contains(&number) => Ok(Whole(number)),
                _ => Err(format!("expected {}", Self::expected())),
            },
            other => Err(other.instead_of(&Self::expected())),
        }
    }
}

/// A number in a range whose lower end is written in billionths.
#[derive(Clone, Copy, Debug)]
pub struct Number<const LEAST_NANO: u64, const MOST: u64>(pub f64);

impl<const LEAST_NANO: u64, const MOST: u64> Shape for Number<LEAST_NANO, MOST> {
    fn expected() -> String {
        format!("a number from {} to {MOST}", LEAST_NANO as f64 / NANO)
    }

    fn scalar(value: Scalar<'_>) -> Result<Self, String> {
        number_in(value, LEAST_NANO, MOST, Self::expected).map(Number)
    }
}

/// The number, if it is in the range; otherwise what was `expected`.
fn number_in(value: Scalar<'_>, least_nano: u64, most: u64, expected: fn() -> String) -> Result<f64, String> {
    let number = match value {
        Scalar::Whole(number) => number as f64,
        Scalar::Number(number) => number,
        other => return Err(other.instead_of(&expected())),
    };
    // Nothing below 0: -0 is written as a whole number, which has no sign.
    match (least_nano as f64 / NANO..=most as f64).contains(&number) {
        true => Ok(number + 0.0),
        false => Err(format!("expected {}", expected())),
    }
}

/// As a whole number where it is one.
impl<const LEAST_NANO: u64, const MOST: u64> Serialize for Number<LEAST_NANO, MOST> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            whole if whole.fract() == 0.0 && whole.abs() < 1e15 => to.serialize_i64(whole as i64),
            other => to.serialize_f64(other),
        }
    }
}

/// A span written in seconds, in a range whose lower end is written in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Seconds<const LEAST_NANO: u64, const MOST: u64>(pub Duration);

impl<const LEAST_NANO: u64, const MOST: u64> Seconds<LEAST_NANO, MOST> {
    /// So long after the beginning.
    pub fn after_start(self) -> Time {
        Time::ZERO + self.0
    }

    /// When something happens.
    pub fn until(time: Time) -> Self {
        Seconds(time.since(Time::ZERO))
    }
}

impl<const LEAST_NANO: u64, const MOST: u64> Shape for Seconds<LEAST_NANO, MOST> {
    fn expected() -> String {
        Number::<LEAST_NANO, MOST>::expected().replace("a number", "a number of seconds")
    }

    fn scalar(value: Scalar<'_>) -> Result<Self, String> {
        let number = number_in(value, LEAST_NANO, MOST, Self::expected)?;
        Ok(Seconds(nanos(number, NANO)))
    }
}

impl<const LEAST_NANO: u64, const MOST: u64> Serialize for Seconds<LEAST_NANO, MOST> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        Number::<LEAST_NANO, MOST>(self.0.as_secs_f64()).serialize(to)
    }
}

/// A span written in milliseconds, an hour at most.
#[derive(Clone, Copy, Debug)]
pub struct Millis(pub Duration);

/// No time that is written in milliseconds is longer: an hour.
const LONGEST_MS: u64 = 3_600_000;

impl Shape for Millis {
    fn expected() -> String {
        format!("a number of milliseconds from 0 to {LONGEST_MS}")
    }

    fn scalar(value: Scalar<'_>) -> Result<Self, String> {
        let number = number_in(value, 0, LONGEST_MS, Self::expected)?;
        Ok(Millis(nanos(number, 1e6)))
    }
}

impl Serialize for Millis {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        Number::<0, LONGEST_MS>(self.0.as_millis_f64()).serialize(to)
    }
}

/// Rounded, so that a span of whole nanoseconds that was written as a decimal comes
/// back as it was.
fn nanos(number: f64, unit: f64) -> Duration {
    Duration::from_nanos((number * unit).round() as u64)
}

/// A rate with its unit, more than nothing.
#[derive(Clone, Copy, Debug)]
pub struct BitRate(pub Rate);

impl Shape for BitRate {
    fn expected() -> String {
        "a rate with its unit, such as \"400000 B/s\" or \"3.2 Mbit/s\"".to_owned()
    }

    fn scalar(value: Scalar<'_>) -> Result<Self, String> {
        let Scalar::Text(text) = value else { return Err(value.instead_of(&Self::expected())) };
        match text.parse()? {
            Rate::ZERO => Err(NOTHING_PASSES.to_owned()),
            rate if rate > HIGHEST_RATE => Err("expected at most \"100 Gbit/s\"".to_owned()),
            rate => Ok(BitRate(rate)),
        }
    }
}

/// In the largest unit that leaves no fraction.
impl Serialize for BitRate {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let bits = self.0.bits_per_sec();
        let units = [("Gbit/s", 1_000_000_000), ("Mbit/s", 1_000_000), ("kbit/s", 1000), ("bit/s", 1)];
        let (name, unit) = units.into_iter().find(|(_, unit)| bits.is_multiple_of(*unit)).unwrap_or(("bit/s", 1));
        to.collect_str(&format_args!("{} {name}", bits / unit))
    }
}

impl Shape for bool {
    fn expected() -> String {
        "true or false".to_owned()
    }

    fn scalar(value: Scalar<'_>) -> Result<Self, String> {
        match value {
            Scalar::Flag(yes) => Ok(yes),
            other => Err(other.instead_of(&Self::expected())),
        }
    }
}

/// Words in quotes.
impl Shape for String {
    fn expected() -> String {
        "a name in quotes".to_owned()
    }

    fn scalar(value: Scalar<'_>) -> Result<Self, String> {
        match value {
            Scalar::Text(text) => Ok(text.to_owned()),
            other => Err(other.instead_of(&Self::expected())),
        }
    }
}

/// A name that fits into tables.
#[derive(Clone, Debug, Serialize)]
pub struct Name(pub String);

impl Shape for Name {
    fn expected() -> String {
        format!("a name of 1 to {LONGEST_NAME} characters in quotes")
    }

    fn scalar(value: Scalar<'_>) -> Result<Self, String> {
        let Scalar::Text(text) = value else { return Err(value.instead_of(&Self::expected())) };
        let fits = (1..=LONGEST_NAME).contains(&text.chars().count()) && !text.chars().any(char::is_control);
        if fits { Ok(Name(text.to_owned())) } else { Err(format!("expected {}", Self::expected())) }
    }
}

/// What one word of a few stands for.
pub trait Words: Copy + PartialEq + 'static {
    /// Each word, and what it stands for.
    const WORDS: &'static [(&'static str, Self)];

    /// What is right, in words.
    fn expected() -> String {
        let words: Vec<String> = Self::WORDS.iter().map(|(word, _)| format!("\"{word}\"")).collect();
        format!("one of {}", words.join(", "))
    }
}

/// One word of a few.
#[derive(Clone, Copy, Debug)]
pub struct Word<T>(pub T);

impl<T: Words> Word<T> {
    /// The word.
    pub fn name(&self) -> &'static str {
        T::WORDS.iter().find(|(_, meaning)| *meaning == self.0).map_or("", |(word, _)| word)
    }
}

impl<T: Words> Shape for Word<T> {
    fn expected() -> String {
        T::expected()
    }

    fn scalar(value: Scalar<'_>) -> Result<Self, String> {
        let Scalar::Text(text) = value else { return Err(value.instead_of(&Self::expected())) };
        if let Some((_, meaning)) = T::WORDS.iter().find(|(word, _)| *word == text) {
            return Ok(Word(*meaning));
        }
        let words: Vec<&str> = T::WORDS.iter().map(|(word, _)| *word).collect();
        Err(match nearest(text, &words) {
            Some(near) => format!("did you mean \"{near}\"? (expected {})", T::expected()),
            None => format!("expected {}", T::expected()),
        })
    }
}

impl<T: Words> Serialize for Word<T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.name())
    }
}
