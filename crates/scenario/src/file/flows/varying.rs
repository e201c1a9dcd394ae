//! Values that change, and what a link loses.

use anabranch_control::time::{Duration, Time};
use anabranch_control::units::Rate;
use anabranch_sim::loss::{GilbertElliott, LossModel};
use anabranch_sim::varying::{Change, Course};

use super::super::error::{Problem, Span};
use super::super::shape::{
    Either, Many, Optional, OrStandard, Said, Shape, Value, keys, many, one_of, some, span, write,
};
use super::super::values::{BitRate, Millis, Seconds, Share, after_start, since_start};
use super::{LONGEST_RUN_S, RunSeconds};

/// A value that changes at random changes at most every millisecond.
type Period = Seconds<1_000_000, LONGEST_RUN_S>;

/// One value, or how it changes.
pub type Varying<T> = Either<T, Changes<T>>;
/// A link's rate.
pub type LinkRate = Either<MaybeUnlimited, Changes<BitRate>>;
/// What a link loses.
pub type Losses = Either<Share, LossKeys>;

keys! {
    /// How a value changes: at times, or at random.
    pub struct Changes<T> {
        at_s: Optional<Many<RunSeconds>>,
        values: Optional<Many<T>>,
        uniform: Optional<Many<T>>,
        every_s: Optional<Period>,
    }
}

keys! {
    /// How a link's losses change, or the model of Gilbert and Elliott.
    #[derive(Default)]
    pub struct LossKeys {
        at_s: Optional<Many<RunSeconds>>,
        values: Optional<Many<Share>>,
        uniform: Optional<Many<Share>>,
        every_s: Optional<Period>,
        to_bad: Optional<Share>,
        to_good: Optional<Share>,
        loss_good: Optional<Share>,
        loss_bad: Optional<Share>,
    }
}

/// A rate, or none if a packet takes no time.
pub struct MaybeUnlimited;

const UNLIMITED: &str = "unlimited";

impl Shape for MaybeUnlimited {
    type Holds = Option<Rate>;

    fn expected() -> String {
        "a rate with its unit, such as \"10 Mbit/s\", or \"unlimited\"".to_owned()
    }

    fn read(value: &Value<'_>) -> Result<Option<Rate>, Problem> {
        match value.text(Self::expected)? {
            UNLIMITED => Ok(None),
            _ => BitRate::read(value).map(Some),
        }
    }

    fn write(rate: &Option<Rate>, out: &mut String) {
        match rate {
            Some(rate) => BitRate::write(rate, out),
            None => write(UNLIMITED, out),
        }
    }
}

/// The rate, which stands at `span`.
pub fn rate(rate: &LinkRate, span: Span) -> Result<Option<Course<Rate>>, Problem> {
    match rate {
        Either::Plain(rate) => Ok(rate.map(Course::constant)),
        Either::Table(changes) => changes.course(span).map(Some),
    }
}

/// The delay, which stands at `span`.
pub fn delay(delay: &Varying<Millis>, span: Span) -> Result<Course<Duration>, Problem> {
    match delay {
        Either::Plain(delay) => Ok(Course::constant(*delay)),
        Either::Table(changes) => changes.course(span),
    }
}

impl<T: Shape<Holds: Copy + PartialOrd>> Changes<T> {
    /// The course of the values; the table stands at `at`.
    fn course(&self, at: Span) -> Result<Course<T::Holds>, Problem> {
        let keys = [("values", span(&self.values)), ("uniform", span(&self.uniform))];
        let missing = |key: &str, what: &str| Problem::missing(at.clone(), key, what);
        let unused = |span: Option<Span>, other: &str| match span {
            Some(span) => Err(Problem::at(span, format!("this belongs to \"{other}\", which is not there"))),
            None => Ok(()),
        };
        let is_random = one_of(&keys, at.clone(), "how the value changes")? == 1;
        let said = if is_random { &self.uniform } else { &self.values };
        let Some(said) = said else { return Err(missing("values", "a list of values")) };
        let values: Vec<T::Holds> = said.iter().map(|value| **value).collect();
        if is_random {
            let [low, high] = values[..] else {
                return Err(said.wrong("expected two values, the least and the highest"));
            };
            if low > high {
                return Err(said.wrong("the first value is above the second; expected the least and the highest"));
            }
            unused(span(&self.at_s), "values")?;
            let Some(every) = &self.every_s else {
                return Err(missing("every_s", "the seconds from one draw to the next"));
            };
            return Ok(Course { first: low, change: Change::Uniform { every: **every, low, high } });
        }
        unused(span(&self.every_s), "uniform")?;
        let Some(times) = &self.at_s else {
            return Err(missing("at_s", "the seconds at which the values begin, the first one 0"));
        };
        if times.len() != values.len() || times.is_empty() {
            return Err(times.wrong(format!("{} times for {} values; expected as many", times.len(), values.len())));
        }
        let mut changes = Vec::new();
        for (time, value) in times.iter().zip(values) {
            let when = after_start(**time);
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

    /// The keys of a course that changes.
    fn written(course: &Course<T::Holds>) -> Option<Changes<T>> {
        match &course.change {
            Change::Never => None,
            Change::At(changes) => {
                let times = [Time::ZERO].into_iter().chain(changes.iter().map(|(at, _)| *at));
                let values = [course.first].into_iter().chain(changes.iter().map(|(_, value)| *value));
                Some(Changes {
                    at_s: Some(many(times.map(since_start))),
                    values: Some(many(values)),
                    uniform: None,
                    every_s: None,
                })
            }
            &Change::Uniform { every, low, high } => {
                Some(Changes { at_s: None, values: None, uniform: Some(many([low, high])), every_s: some(every) })
            }
        }
    }
}

/// A rate as it is written.
pub fn written_rate(rate: &Option<Course<Rate>>) -> LinkRate {
    let changes = rate.as_ref().and_then(Changes::written);
    changes.map_or(Either::Plain(rate.as_ref().map(|rate| rate.first)), Either::Table)
}

/// A delay as it is written.
pub fn written_delay(delay: &Course<Duration>) -> Varying<Millis> {
    Changes::written(delay).map_or(Either::Plain(delay.first), Either::Table)
}

impl Said<Losses> {
    /// What a link loses at its far end.
    pub fn model(&self) -> Result<LossModel, Problem> {
        let random = |share: Course<f64>| match (&share.change, share.first) {
            (Change::Never, 0.0) => Ok(LossModel::None),
            (Change::Never, 1.0) => Err(self.wrong("no packet would ever arrive; expected less than 1")),
            _ => Ok(LossModel::Random(share)),
        };
        let keys = match &**self {
            Either::Plain(share) => return random(Course::constant(*share)),
            Either::Table(keys) => keys,
        };
        let LossKeys { at_s, values, uniform, every_s, to_bad, to_good, loss_good, loss_bad } = keys;
        if [to_bad, to_good, loss_good, loss_bad].iter().all(|key| key.is_none()) {
            let (at_s, values, uniform) = (at_s.clone(), values.clone(), uniform.clone());
            let changes: Changes<Share> = Changes { at_s, values, uniform, every_s: every_s.clone() };
            return random(changes.course(self.span())?);
        }
        if let Some(span) = span(at_s).or(span(values)).or(span(uniform)).or(span(every_s)) {
            return Err(Problem::at(span, "this belongs to \"values or uniform\", which is not there"));
        }
        let needed = |share: &Optional<Share>, key, what| share.clone().ok_or_else(|| self.missing(key, what));
        let to_good = needed(to_good, "to_good", "the probability that a bad state ends with a packet")?;
        let to_bad = needed(to_bad, "to_bad", "the probability that the good state ends with a packet")?;
        if *to_good == 0.0 {
            return Err(to_good.wrong("a bad state would never end; expected more than 0"));
        }
        Ok(LossModel::GilbertElliott(GilbertElliott {
            to_bad: *to_bad,
            to_good: *to_good,
            loss_good: loss_good.or_standard(0.0),
            loss_bad: loss_bad.or_standard(1.0),
        }))
    }
}

/// Losses as they are written; nothing if there are none.
pub fn written_loss(loss: &LossModel) -> Optional<Losses> {
    let keys = match loss {
        LossModel::None => return None,
        LossModel::Random(share) => match Changes::<Share>::written(share) {
            None => return some(Either::Plain(share.first)),
            Some(Changes { at_s, values, uniform, every_s }) => {
                LossKeys { at_s, values, uniform, every_s, ..LossKeys::default() }
            }
        },
        LossModel::GilbertElliott(model) => LossKeys {
            to_bad: some(model.to_bad),
            to_good: some(model.to_good),
            loss_good: some(model.loss_good),
            loss_bad: some(model.loss_bad),
            ..LossKeys::default()
        },
    };
    some(Either::Table(keys))
}
