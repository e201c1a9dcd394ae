//! Values that change, and what a link loses.

use anabranch_control::time::{Duration, Time};
use anabranch_control::units::Rate;
use anabranch_sim::loss::{GilbertElliott, LossModel};
use anabranch_sim::varying::{Change, Course};

use super::super::error::Problem;
use super::super::shape::{Either, Many, Optional, Said, Shape, Span, Table, Value, keys, one_of, some, span, write};
use super::super::values::{BitRate, Millis, Number, Seconds, Share};
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
pub struct MaybeUnlimited(Option<BitRate>);

const UNLIMITED: &str = "unlimited";

impl Shape for MaybeUnlimited {
    fn expected() -> String {
        "a rate with its unit, such as \"10 Mbit/s\", or \"unlimited\"".to_owned()
    }

    fn read(value: &Value<'_>) -> Result<Self, Problem> {
        match value.text(Self::expected)? {
            UNLIMITED => Ok(MaybeUnlimited(None)),
            _ => BitRate::read(value).map(|rate| MaybeUnlimited(Some(rate))),
        }
    }

    fn write(&self, out: &mut String) {
        match self.0 {
            Some(rate) => rate.write(out),
            None => write(UNLIMITED, out),
        }
    }
}

/// The rate, which stands at `span`.
pub fn rate(rate: &LinkRate, span: Span) -> Result<Option<Course<Rate>>, Problem> {
    match rate {
        Either::Plain(rate) => Ok(rate.0.map(|rate| Course::constant(rate.0))),
        Either::Table(changes) => changes.course(span, |rate| rate.0).map(Some),
    }
}

/// The delay, which stands at `span`.
pub fn delay(delay: &Varying<Millis>, span: Span) -> Result<Course<Duration>, Problem> {
    match delay {
        Either::Plain(delay) => Ok(Course::constant(delay.0)),
        Either::Table(changes) => changes.course(span, |delay| delay.0),
    }
}

impl<T> Changes<T> {
    /// The course of the values that `get` takes from what was said; the table stands at `at`.
    fn course<V: Copy + PartialOrd>(&self, at: Span, get: impl Fn(&T) -> V) -> Result<Course<V>, Problem> {
        let keys = [("values", span(&self.values)), ("uniform", span(&self.uniform))];
        let missing = |key: &str, what: &str| Problem::missing(at.clone(), key, what);
        let unused = |span: Option<Span>, other: &str| match span {
            Some(span) => Err(Problem::at(span, format!("this belongs to \"{other}\", which is not there"))),
            None => Ok(()),
        };
        let is_random = one_of(&keys, at.clone(), "how the value changes")? == 1;
        let said = if is_random { &self.uniform } else { &self.values };
        let Some(said) = said else { return Err(missing("values", "a list of values")) };
        let values: Vec<V> = said.iter().map(|value| get(value)).collect();
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
            return Ok(Course { first: low, change: Change::Uniform { every: every.0, low, high } });
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
            let when = time.after_start();
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

    /// The keys of a course that changes, with each value as `put` makes it.
    fn written<V: Copy>(course: &Course<V>, put: impl Fn(V) -> T) -> Option<Changes<T>> {
        match &course.change {
            Change::Never => None,
            Change::At(changes) => {
                let times = [Time::ZERO].into_iter().chain(changes.iter().map(|(at, _)| *at));
                let values = [course.first].into_iter().chain(changes.iter().map(|(_, value)| *value));
                Some(Changes {
                    at_s: some(times.map(Seconds::until).collect()),
                    values: some(values.map(put).collect()),
                    uniform: None,
                    every_s: None,
                })
            }
            &Change::Uniform { every, low, high } => Some(Changes {
                at_s: None,
                values: None,
                uniform: some([low, high].into_iter().map(put).collect()),
                every_s: some(Seconds(every)),
            }),
        }
    }
}

/// A rate as it is written.
pub fn written_rate(rate: &Option<Course<Rate>>) -> LinkRate {
    match rate.as_ref().map(|rate| (rate.first, Changes::written(rate, BitRate))) {
        Some((_, Some(changes))) => Either::Table(Table(changes)),
        Some((rate, None)) => Either::Plain(MaybeUnlimited(Some(BitRate(rate)))),
        None => Either::Plain(MaybeUnlimited(None)),
    }
}

/// A delay as it is written.
pub fn written_delay(delay: &Course<Duration>) -> Varying<Millis> {
    let changes = Changes::written(delay, Millis);
    changes.map_or(Either::Plain(Millis(delay.first)), |changes| Either::Table(Table(changes)))
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
            Either::Plain(share) => return random(Course::constant(share.0)),
            Either::Table(keys) => keys,
        };
        let LossKeys { at_s, values, uniform, every_s, to_bad, to_good, loss_good, loss_bad } = &**keys;
        if [to_bad, to_good, loss_good, loss_bad].iter().all(|key| key.is_none()) {
            let (at_s, values, uniform) = (at_s.clone(), values.clone(), uniform.clone());
            let changes = Changes { at_s, values, uniform, every_s: every_s.clone() };
            return random(changes.course(self.span(), |share| share.0)?);
        }
        if let Some(span) = span(at_s).or(span(values)).or(span(uniform)).or(span(every_s)) {
            return Err(Problem::at(span, "this belongs to \"values or uniform\", which is not there"));
        }
        let needed = |share: &Optional<Share>, key, what| share.clone().ok_or_else(|| self.missing(key, what));
        let to_good = needed(to_good, "to_good", "the probability that a bad state ends with a packet")?;
        let to_bad = needed(to_bad, "to_bad", "the probability that the good state ends with a packet")?;
        if to_good.0 == 0.0 {
            return Err(to_good.wrong("a bad state would never end; expected more than 0"));
        }
        Ok(LossModel::GilbertElliott(GilbertElliott {
            to_bad: to_bad.0,
            to_good: to_good.0,
            loss_good: loss_good.as_ref().map_or(0.0, |share| share.0),
            loss_bad: loss_bad.as_ref().map_or(1.0, |share| share.0),
        }))
    }
}

/// Losses as they are written; nothing if there are none.
pub fn written_loss(loss: &LossModel) -> Optional<Losses> {
    let keys = match loss {
        LossModel::None => return None,
        LossModel::Random(share) => match Changes::written(share, Number) {
            None => return some(Either::Plain(Number(share.first))),
            Some(Changes { at_s, values, uniform, every_s }) => {
                LossKeys { at_s, values, uniform, every_s, ..LossKeys::default() }
            }
        },
        LossModel::GilbertElliott(model) => LossKeys {
            to_bad: some(Number(model.to_bad)),
            to_good: some(Number(model.to_good)),
            loss_good: some(Number(model.loss_good)),
            loss_bad: some(Number(model.loss_bad)),
            ..LossKeys::default()
        },
    };
    some(Either::Table(Table(keys)))
}
