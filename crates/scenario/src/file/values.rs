//! What the keys of scenarios hold: each type reads itself, checks its range and says what
//! would be right.

use std::marker::PhantomData;

use anabranch_control::time::{Duration, Time};
use anabranch_control::units::Rate;

use super::error::{Problem, nearest};
use super::shape::{Part, Shape, Value, write};

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
pub struct Whole<const LEAST: u64, const MOST: u64>;

impl<const LEAST: u64, const MOST: u64> Shape for Whole<LEAST, MOST> {
    type Holds = u64;

    fn expected() -> String {
        format!("a whole number from {LEAST} to {MOST}")
    }

    fn read(value: &Value<'_>) -> Result<u64, Problem> {
        match value.part {
            Part::Whole(number) => match u64::try_from(number) {
                Ok(number) if (LEAST..=MOST).contains(&number) => Ok(number),
                _ => Err(value.wrong(format!("expected {}", Self::expected()))),
            },
            _ => Err(value.instead_of(&Self::expected())),
        }
    }

    fn write(number: &u64, out: &mut String) {
        write(number, out);
    }
}

/// A number in a range whose lower end is written in billionths.
pub struct Number<const LEAST_NANO: u64, const MOST: u64>;

impl<const LEAST_NANO: u64, const MOST: u64> Shape for Number<LEAST_NANO, MOST> {
    type Holds = f64;

    fn expected() -> String {
        format!("a number from {} to {MOST}", LEAST_NANO as f64 / NANO)
    }

    fn read(value: &Value<'_>) -> Result<f64, Problem> {
        number_in(value, LEAST_NANO, MOST, Self::expected)
    }

    fn write(number: &f64, out: &mut String) {
        write_number(*number, out);
    }
}

/// The number, if it is in the range; otherwise what was `expected`.
fn number_in(value: &Value<'_>, least_nano: u64, most: u64, expected: fn() -> String) -> Result<f64, Problem> {
    let number = match value.part {
        Part::Whole(number) => number as f64,
        Part::Number(number) => number,
        _ => return Err(value.instead_of(&expected())),
    };
    // Nothing below 0: -0 is written as a whole number, which has no sign.
    match (least_nano as f64 / NANO..=most as f64).contains(&number) {
        true => Ok(number + 0.0),
        false => Err(value.wrong(format!("expected {}", expected()))),
    }
}

/// Writes a number, as a whole one where it is one.
fn write_number(number: f64, out: &mut String) {
    match number {
        whole if whole.fract() == 0.0 && whole.abs() < 1e15 => write(&(whole as i64), out),
        other => write(&other, out),
    }
}

/// A span written in seconds, in a range whose lower end is written in nanoseconds.
pub struct Seconds<const LEAST_NANO: u64, const MOST: u64>;

impl<const LEAST_NANO: u64, const MOST: u64> Shape for Seconds<LEAST_NANO, MOST> {
    type Holds = Duration;

    fn expected() -> String {
        Number::<LEAST_NANO, MOST>::expected().replace("a number", "a number of seconds")
    }

    fn read(value: &Value<'_>) -> Result<Duration, Problem> {
        let number = number_in(value, LEAST_NANO, MOST, Self::expected)?;
        Ok(nanos(number, NANO))
    }

    fn write(span: &Duration, out: &mut String) {
        write_number(span.as_secs_f64(), out);
    }
}

/// So long after the beginning.
pub fn after_start(span: Duration) -> Time {
    Time::ZERO + span
}

/// How long after the beginning.
pub fn since_start(time: Time) -> Duration {
    time.since(Time::ZERO)
}

/// A span written in milliseconds, an hour at most.
pub struct Millis;

/// No time that is written in milliseconds is longer: an hour.
const LONGEST_MS: u64 = 3_600_000;

impl Shape for Millis {
    type Holds = Duration;

    fn expected() -> String {
        format!("a number of milliseconds from 0 to {LONGEST_MS}")
    }

    fn read(value: &Value<'_>) -> Result<Duration, Problem> {
        let number = number_in(value, 0, LONGEST_MS, Self::expected)?;
        Ok(nanos(number, 1e6))
    }

    fn write(span: &Duration, out: &mut String) {
        write_number(span.as_millis_f64(), out);
    }
}

/// Rounded, so that a span of whole nanoseconds that was written as a decimal comes
/// back as it was.
fn nanos(number: f64, unit: f64) -> Duration {
    Duration::from_nanos((number * unit).round() as u64)
}

/// A rate with its unit, more than nothing.
pub struct BitRate;

impl Shape for BitRate {
    type Holds = Rate;

    fn expected() -> String {
        "a rate with its unit, such as \"400000 B/s\" or \"3.2 Mbit/s\"".to_owned()
    }

    fn read(value: &Value<'_>) -> Result<Rate, Problem> {
        match value.text(Self::expected)?.parse::<Rate>() {
            Ok(Rate::ZERO) => Err(value.wrong(NOTHING_PASSES)),
            Ok(rate) if rate > HIGHEST_RATE => Err(value.wrong("expected at most \"100 Gbit/s\"")),
            Ok(rate) => Ok(rate),
            Err(problem) => Err(value.wrong(problem)),
        }
    }

    /// In the largest unit that leaves no fraction.
    fn write(rate: &Rate, out: &mut String) {
        let bits = rate.bits_per_sec();
        let units = [("Gbit/s", 1_000_000_000), ("Mbit/s", 1_000_000), ("kbit/s", 1000), ("bit/s", 1)];
        let (name, unit) = units.into_iter().find(|(_, unit)| bits.is_multiple_of(*unit)).unwrap_or(("bit/s", 1));
        write(&format!("{} {name}", bits / unit), out);
    }
}

impl Shape for bool {
    type Holds = bool;

    fn expected() -> String {
        "true or false".to_owned()
    }

    fn read(value: &Value<'_>) -> Result<Self, Problem> {
        match value.part {
            Part::Flag(yes) => Ok(yes),
            _ => Err(value.instead_of(&Self::expected())),
        }
    }

    fn write(flag: &bool, out: &mut String) {
        write(flag, out);
    }
}

/// Words in quotes.
impl Shape for String {
    type Holds = String;

    fn expected() -> String {
        "a name in quotes".to_owned()
    }

    fn read(value: &Value<'_>) -> Result<Self, Problem> {
        value.text(Self::expected).map(str::to_owned)
    }

    fn write(text: &String, out: &mut String) {
        write(text, out);
    }
}

/// A name that fits into tables.
pub struct Name;

impl Shape for Name {
    type Holds = String;

    fn expected() -> String {
        format!("a name of 1 to {LONGEST_NAME} characters in quotes")
    }

    fn read(value: &Value<'_>) -> Result<String, Problem> {
        let text = value.text(Self::expected)?;
        let fits = (1..=LONGEST_NAME).contains(&text.chars().count()) && !text.chars().any(char::is_control);
        if fits { Ok(text.to_owned()) } else { Err(value.wrong(format!("expected {}", Self::expected()))) }
    }

    fn write(name: &String, out: &mut String) {
        write(name, out);
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

    /// The word that stands for it.
    fn word(self) -> &'static str {
        Self::WORDS.iter().find(|(_, meaning)| *meaning == self).map_or("", |(word, _)| word)
    }
}

/// One word of a few.
pub struct Word<T>(PhantomData<T>);

impl<T: Words> Shape for Word<T> {
    type Holds = T;

    fn expected() -> String {
        T::expected()
    }

    fn read(value: &Value<'_>) -> Result<T, Problem> {
        let text = value.text(T::expected)?;
        if let Some((_, meaning)) = T::WORDS.iter().find(|(word, _)| *word == text) {
            return Ok(*meaning);
        }
        let words: Vec<&str> = T::WORDS.iter().map(|(word, _)| *word).collect();
        Err(value.wrong(match nearest(text, &words) {
            Some(near) => format!("did you mean \"{near}\"? (expected {})", T::expected()),
            None => format!("expected {}", T::expected()),
        }))
    }

    fn write(meaning: &T, out: &mut String) {
        write(meaning.word(), out);
    }
}
