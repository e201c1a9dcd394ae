//! What a figure's expectation is worth, and what the figure says to it.
//!
//! A figure agrees where its whole 95 % interval lies in the expected range and disagrees
//! where all of it lies outside; between the two nothing is decided. A range that was written
//! down before anything had been measured can be failed; one that was set with a result in
//! sight, and all the more a constant that was chosen to give that result, can hardly be. So
//! only the first kind is counted.

use std::fmt;

use serde::{Deserialize, Serialize};

/// How a range came to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// It was committed before the first result. Only such rows are counted.
    Predeclared,
    /// It was set after a result had been seen, or it cannot be shown that it was not.
    After,
    /// A constant of the model was inferred from this very figure.
    Fitted,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 3] = [Kind::Predeclared, Kind::After, Kind::Fitted];

    /// As `expected.csv` has it.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Predeclared => "predeclared",
            Kind::After => "after",
            Kind::Fitted => "fitted",
        }
    }
}

/// What a figure says to the range that was expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Its whole interval lies inside.
    Agrees,
    /// Its whole interval lies outside.
    Disagrees,
    /// Its interval holds an end of the range, or it has none: more runs are needed.
    Open,
}

impl Verdict {
    /// In one word.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Agrees => "agrees",
            Verdict::Disagrees => "disagrees",
            Verdict::Open => "open",
        }
    }

    /// What the interval from `ours.0` to `ours.1` says to the range from `range.0` to `range.1`.
    pub(super) fn of(ours: (f64, f64), range: (f64, f64)) -> Verdict {
        if ours.0 >= range.0 && ours.1 <= range.1 {
            Verdict::Agrees
        } else if ours.1 < range.0 || ours.0 > range.1 {
            Verdict::Disagrees
        } else {
            Verdict::Open
        }
    }
}

/// How many rows say what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    /// Rows that agree.
    pub agree: usize,
    /// Rows that disagree.
    pub disagree: usize,
    /// Rows that decide nothing.
    pub open: usize,
}

impl Tally {
    /// How many rows there are.
    pub fn all(self) -> usize {
        self.agree + self.disagree + self.open
    }

    fn is_empty(self) -> bool {
        self == Tally::default()
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} agree, {} disagree, {} open", self.agree, self.disagree, self.open)
    }
}

/// The rows of each kind. What an experiment shows is `predeclared`; the others are reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Totals {
    /// Of ranges that were there first.
    pub predeclared: Tally,
    /// Of ranges that were set later.
    pub after: Tally,
    /// Of what was fitted.
    pub fitted: Tally,
}

impl Totals {
    /// Those of `judged`, each a kind and a verdict.
    pub fn of(judged: impl IntoIterator<Item = (Kind, Verdict)>) -> Totals {
        let mut totals = Totals::default();
        for (kind, verdict) in judged {
            let tally = totals.of_kind_mut(kind);
            *match verdict {
                Verdict::Agrees => &mut tally.agree,
                Verdict::Disagrees => &mut tally.disagree,
                Verdict::Open => &mut tally.open,
            } += 1;
        }
        totals
    }

    /// The rows of one kind.
    pub fn of_kind(self, kind: Kind) -> Tally {
        match kind {
            Kind::Predeclared => self.predeclared,
            Kind::After => self.after,
            Kind::Fitted => self.fitted,
        }
    }

    fn of_kind_mut(&mut self, kind: Kind) -> &mut Tally {
        match kind {
            Kind::Predeclared => &mut self.predeclared,
            Kind::After => &mut self.after,
            Kind::Fitted => &mut self.fitted,
        }
    }
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "predeclared: {}", self.predeclared)?;
        let others = [(Kind::After, self.after), (Kind::Fitted, self.fitted)];
        for (i, (kind, tally)) in others.into_iter().filter(|(_, tally)| !tally.is_empty()).enumerate() {
            write!(f, "{}{}: {tally}", if i == 0 { "; not counted, " } else { ", " }, kind.name())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_interval_decides_not_its_middle() {
        let range = (1.0, 2.0);
        assert_eq!(Verdict::of((1.0, 2.0), range), Verdict::Agrees);
        assert_eq!(Verdict::of((0.9, 1.9), range), Verdict::Open);
        assert_eq!(Verdict::of((1.4, 2.1), range), Verdict::Open);
        assert_eq!(Verdict::of((0.0, 3.0), range), Verdict::Open);
        assert_eq!(Verdict::of((2.1, 3.0), range), Verdict::Disagrees);
        assert_eq!(Verdict::of((0.0, 0.9), range), Verdict::Disagrees);
        assert_eq!(Verdict::of((5.0, 6.0), (f64::NEG_INFINITY, 6.0)), Verdict::Agrees);
    }

    #[test]
    fn only_predeclared_rows_are_counted_and_the_others_are_reported_as_such() {
        use {Kind::*, Verdict::*};
        let all = [(Predeclared, Agrees), (Predeclared, Open), (After, Agrees), (After, Disagrees), (Fitted, Agrees)];
        assert_eq!(
            Totals::of(all).to_string(),
            "predeclared: 1 agree, 0 disagree, 1 open; not counted, after: 1 agree, 1 disagree, 0 open, \
             fitted: 1 agree, 0 disagree, 0 open"
        );
        assert_eq!(Totals::of([(Fitted, Agrees)]).predeclared, Tally::default());
        assert_eq!(Totals::of([]).to_string(), "predeclared: 0 agree, 0 disagree, 0 open");
    }
}
