//! Values that change, and what a link loses.

use anabranch_control::time::{Duration, Time};
use anabranch_control::units::Rate;
use anabranch_sim::loss::{GilbertElliott, LossModel};
use anabranch_sim::varying::{Change, Course};

use super::super::error::ScenarioError;
use super::super::section::{Entry, Section};
use super::LONGEST_RUN_S;

const COURSE: &[&str] = &["at_s", "values", "uniform", "every_s"];
const LOSS: &[&str] = &["at_s", "values", "uniform", "every_s", "to_bad", "to_good", "loss_good", "loss_bad"];

/// A value that changes at random changes at most so often, in seconds: a millisecond.
const SHORTEST_PERIOD_S: f64 = 0.001;

/// A rate, or none if a packet takes no time.
pub fn rate(entry: &Entry<'_>) -> Result<Option<Course<Rate>>, ScenarioError> {
    if entry.words() == Some("unlimited") {
        return Ok(None);
    }
    course(entry, Entry::rate).map(Some)
}

/// A delay in milliseconds.
pub fn delay(entry: &Entry<'_>) -> Result<Course<Duration>, ScenarioError> {
    course(entry, Entry::millis)
}

/// One value, or a table that says how it changes; `read` reads each value.
fn course<'t, T: Copy + PartialOrd>(
    entry: &Entry<'t>,
    read: impl Fn(&Entry<'t>) -> Result<T, ScenarioError>,
) -> Result<Course<T>, ScenarioError> {
    if entry.is_table() { table(&entry.open(COURSE)?, read) } else { read(entry).map(Course::constant) }
}

fn table<'t, T: Copy + PartialOrd>(
    section: &Section<'t>,
    read: impl Fn(&Entry<'t>) -> Result<T, ScenarioError>,
) -> Result<Course<T>, ScenarioError> {
    let (key, entry) = section.one_of(&["values", "uniform"], "how the value changes")?;
    let what = "a list of values";
    let values = entry.list(what)?.iter().map(read).collect::<Result<Vec<T>, _>>()?;
    if key == "uniform" {
        let [low, high] = values[..] else {
            return Err(entry.wrong("expected two values, the least and the highest"));
        };
        if low > high {
            return Err(entry.wrong("the first value is above the second; expected the least and the highest"));
        }
        unused(section, "at_s", "values")?;
        let every = section.required("every_s", "the seconds from one draw to the next")?;
        let every = every.seconds_in(SHORTEST_PERIOD_S..=LONGEST_RUN_S)?;
        return Ok(Course { first: low, change: Change::Uniform { every, low, high } });
    }
    unused(section, "every_s", "uniform")?;
    let at = section.required("at_s", "the seconds at which the values begin, the first one 0")?;
    let times = at.list("a list of seconds")?;
    if times.len() != values.len() || times.is_empty() {
        return Err(at.wrong(format!("{} times for {} values; expected as many", times.len(), values.len())));
    }
    let mut changes = Vec::new();
    for (time, value) in times.iter().zip(values) {
        let when = Time::ZERO + time.seconds_in(0.0..=LONGEST_RUN_S)?;
        match changes.last() {
            None if when > Time::ZERO => return Err(time.wrong("the first value begins with the run; expected 0")),
            Some((before, _)) if when <= *before => return Err(time.wrong("expected times that rise")),
            _ => changes.push((when, value)),
        }
    }
    let (_, first) = changes.remove(0);
    Ok(match changes.is_empty() {
        true => Course::constant(first),
        false => Course { first, change: Change::At(changes) },
    })
}

/// Refuses `key`, which belongs to `other`.
fn unused(section: &Section<'_>, key: &str, other: &str) -> Result<(), ScenarioError> {
    match section.get(key) {
        Some(entry) => Err(entry.wrong(format!("this belongs to \"{other}\", which is not there"))),
        None => Ok(()),
    }
}

/// What a link loses at its far end.
pub fn loss(entry: &Entry<'_>) -> Result<LossModel, ScenarioError> {
    let share = |entry: &Entry<'_>| entry.number(0.0..=1.0);
    let random = |share: Course<f64>| match (&share.change, share.first) {
        (Change::Never, 0.0) => Ok(LossModel::None),
        (Change::Never, 1.0) => Err(entry.wrong("no packet would ever arrive; expected less than 1")),
        _ => Ok(LossModel::Random(share)),
    };
    if !entry.is_table() {
        return random(Course::constant(share(entry)?));
    }
    let section = entry.open(LOSS)?;
    let bursts = LOSS.iter().any(|key| !COURSE.contains(key) && section.get(key).is_some());
    if !bursts {
        return random(table(&section, share)?);
    }
    for key in COURSE {
        unused(&section, key, "values or uniform")?;
    }
    let to_good = section.required("to_good", "the probability that a bad state ends with a packet")?;
    let model = GilbertElliott {
        to_bad: share(&section.required("to_bad", "the probability that the good state ends with a packet")?)?,
        to_good: share(&to_good)?,
        loss_good: section.get("loss_good").map_or(Ok(0.0), |entry| share(&entry))?,
        loss_bad: section.get("loss_bad").map_or(Ok(1.0), |entry| share(&entry))?,
    };
    if model.to_good == 0.0 {
        return Err(to_good.wrong("a bad state would never end; expected more than 0"));
    }
    Ok(LossModel::GilbertElliott(model))
}
