//! What an experiment found: its figures beside the paper's, and its sections of a report.

use serde::Serialize;

use anabranch_report::Report;

use crate::verdict::{Kind, Totals, Verdict};

/// What an experiment found.
#[derive(Debug)]
pub struct Findings {
    /// Its figures beside the paper's.
    pub rows: Vec<Row>,
    /// Its sections of the report: charts and words.
    pub report: Report,
}

/// What a run of an experiment gives to other programs, in one object.
#[derive(Debug, Serialize)]
pub struct Summary<'a> {
    /// The experiment's name.
    pub id: &'a str,
    /// The seed of its random streams.
    pub seed: u64,
    /// Whether it was a short run.
    pub quick: bool,
    /// How long it took on the clock, in seconds.
    pub wall_s: f64,
    /// How many rows of each kind agree, disagree and decide nothing.
    pub totals: Totals,
    /// Its figures beside the paper's.
    pub rows: &'a [Row],
}

/// One figure of ours beside the paper's.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The registered name of the controller that ran.
    pub subject: String,
    /// What was measured.
    pub metric: String,
    /// Its unit.
    pub unit: String,
    /// What we measured; none if the run can't say.
    pub ours: Option<f64>,
    /// Half the width of its 95 % confidence interval, if there is one.
    pub ci95: Option<f64>,
    /// What the paper says, if it gives a number.
    pub paper: Option<f64>,
    /// From where to where the expectation wants ours; no bound is infinity.
    #[serde(skip)]
    pub range: (f64, f64),
    /// How that range came to be; none without a range.
    pub kind: Option<Kind>,
    /// What ours says to that range; none where it is not judged.
    pub verdict: Option<Verdict>,
    /// What the expectation rests on, or why there is no interval.
    pub note: String,
}

impl Row {
    /// The figure reported and not judged, since it is outside of what its expectation assumes.
    #[must_use]
    pub fn outside(self, why: &str) -> Row {
        Row { verdict: None, note: format!("outside: {why}"), ..self }
    }

    /// The figure with another sentence behind what its note says.
    #[must_use]
    pub(crate) fn with_caveat(self, caveat: &str) -> Row {
        let note = if self.note.is_empty() { caveat.to_owned() } else { format!("{}; {caveat}", self.note) };
        Row { note, ..self }
    }

    /// Whether the figure was held against an expectation.
    pub fn is_judged(&self) -> bool {
        self.verdict.is_some()
    }

    /// Whether there is an expectation that the figure lies outside of.
    pub fn is_outside(&self) -> bool {
        let has_range = self.range.0.is_finite() || self.range.1.is_finite();
        self.ours.is_some() && has_range && self.verdict.is_none()
    }
}

impl Totals {
    /// Those of `rows`.
    pub fn of_rows(rows: &[Row]) -> Totals {
        Totals::of(rows.iter().filter_map(|row| row.kind.zip(row.verdict)))
    }
}
