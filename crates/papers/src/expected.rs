//! What a paper says, and what counts as agreeing with it.
//!
//! `expected.csv` beside each scenario has a line for each figure: subject, metric,
//! unit, the paper's number (empty if it gives none), the range `low` to `high` in
//! which ours agrees (empty: no bound), how that range came to be ([`Kind`]; empty
//! without a range), and why.

use serde::Deserialize;

use super::findings::Row;
use super::verdict::{Kind, Verdict};
use anabranch_stats::MeanEstimate;

/// The column of [`Kind`], from 1.
const KIND_COLUMN: usize = 7;

/// One line of `expected.csv`.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    figure: Figure,
    /// How the range came to be; none without a range.
    kind: Option<Kind>,
}

/// A line as it is written.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Figure {
    /// A controller's registered name.
    subject: String,
    /// What is measured.
    metric: String,
    /// Its unit.
    unit: String,
    /// The paper's number.
    paper: Option<f64>,
    /// Ours agrees from here...
    low: Option<f64>,
    /// ...to here.
    high: Option<f64>,
    /// How the range came to be.
    kind: String,
    /// What the range rests on.
    why: String,
}

impl Figure {
    fn range(&self) -> (f64, f64) {
        (self.low.unwrap_or(f64::NEG_INFINITY), self.high.unwrap_or(f64::INFINITY))
    }

    fn has_range(&self) -> bool {
        self.low.is_some() || self.high.is_some()
    }
}

/// All expectations of one experiment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Expected {
    lines: Vec<Line>,
}

/// An `expected.csv` does not read.
#[derive(Debug, thiserror::Error)]
pub enum ExpectedError {
    /// It is no such table.
    #[error("{file}: {error}")]
    Table {
        /// Where it lies.
        file: String,
        /// What is wrong, with the line.
        error: csv::Error,
    },
    /// A line does not say how its range came to be, or says what is none.
    #[error("{file}:{line}: column {KIND_COLUMN} (kind): {found}")]
    Kind {
        /// Where it lies.
        file: String,
        /// The line, from 1.
        line: u64,
        /// What is there, and what was expected.
        found: String,
    },
}

impl Expected {
    /// Reads an `expected.csv`; `file` is what messages call it.
    ///
    /// # Errors
    ///
    /// When it is no such table, or a range does not say how it came to be.
    pub fn parse(text: &str, file: &str) -> Result<Expected, ExpectedError> {
        let table = |error| ExpectedError::Table { file: file.to_owned(), error };
        let mut reader = csv::ReaderBuilder::new().comment(Some(b'#')).from_reader(text.as_bytes());
        let headers = reader.headers().map_err(table)?.clone();
        let mut lines = Vec::new();
        for record in reader.records() {
            let record = record.map_err(table)?;
            let figure: Figure = record.deserialize(Some(&headers)).map_err(table)?;
            let line = record.position().map_or(0, csv::Position::line);
            let kind = kind(&figure).map_err(|found| ExpectedError::Kind { file: file.to_owned(), line, found })?;
            lines.push(Line { figure, kind });
        }
        Ok(Expected { lines })
    }

    /// How each range came to be.
    pub fn kinds(&self) -> impl Iterator<Item = Kind> {
        self.lines.iter().filter_map(|line| line.kind)
    }

    fn line(&self, subject: &str, metric: &str) -> Option<&Line> {
        self.lines.iter().find(|line| line.figure.subject == subject && line.figure.metric == metric)
    }

    /// The paper's number, if it gives one.
    pub fn paper(&self, subject: &str, metric: &str) -> Option<f64> {
        self.line(subject, metric)?.figure.paper
    }

    /// A figure in which nothing is left to chance, beside the paper's: of runs without any
    /// randomness, or about these runs and no others, such as the highest of all.
    pub fn row(&self, subject: &str, metric: &str, unit: &str, ours: Option<f64>) -> Row {
        self.judged(subject, metric, unit, ours, Some(0.0), false)
    }

    /// A mean with half the width of its 95 % interval beside the paper's, judged by the
    /// interval. Without one nothing is decided.
    pub fn row_of_estimate(
        &self,
        subject: &str,
        metric: &str,
        unit: &str,
        mean: Option<f64>,
        half_width: Option<f64>,
    ) -> Row {
        self.judged(subject, metric, unit, mean, half_width, true)
    }

    fn judged(
        &self,
        subject: &str,
        metric: &str,
        unit: &str,
        ours: Option<f64>,
        half_width: Option<f64>,
        is_estimate: bool,
    ) -> Row {
        let line = self.line(subject, metric);
        // A ratio to nothing is no figure.
        let ours = ours.filter(|ours| ours.is_finite());
        let half_width = half_width.filter(|half_width| half_width.is_finite());
        debug_assert!(line.is_none_or(|line| line.figure.unit == unit), "{metric} has another unit than {unit}");
        let range = line.map_or((f64::NEG_INFINITY, f64::INFINITY), |line| line.figure.range());
        let kind = line.and_then(|line| line.kind);
        let verdict = kind.zip(ours).map(|(_, ours)| match half_width {
            Some(half) => Verdict::of((ours - half, ours + half), range),
            None => Verdict::Open,
        });
        Row {
            subject: subject.to_owned(),
            metric: metric.to_owned(),
            unit: unit.to_owned(),
            ours,
            ci95: half_width.filter(|_| is_estimate && ours.is_some()),
            paper: line.and_then(|line| line.figure.paper),
            range,
            kind,
            verdict,
            note: line.map(|line| line.figure.why.clone()).unwrap_or_default(),
        }
    }

    /// A mean by batches beside the paper's.
    pub fn row_of_mean(&self, subject: &str, metric: &str, unit: &str, ours: &MeanEstimate) -> Row {
        let half_width = ours.interval().map(|interval| interval.half_width);
        let row = self.row_of_estimate(subject, metric, unit, ours.mean(), half_width);
        match ours {
            MeanEstimate::Interval(_) => row,
            MeanEstimate::Correlated { .. } => row.with_caveat("no interval: batch means are correlated"),
            MeanEstimate::TooShort { .. } => row.with_caveat("too short for an interval"),
            MeanEstimate::NotFinite { .. } => row.with_caveat("not a number in some batch"),
        }
    }
}

/// How the range of `figure` came to be; what is wrong, if it does not say so.
fn kind(figure: &Figure) -> Result<Option<Kind>, String> {
    let names = || Kind::ALL.map(Kind::name).join(", ");
    let known = Kind::ALL.into_iter().find(|kind| kind.name() == figure.kind);
    match (figure.has_range(), &*figure.kind, known) {
        (false, "", _) => Ok(None),
        (false, found, _) => Err(format!("\"{found}\" without low or high; a figure without a range has no kind")),
        (true, "", _) => Err(format!("missing; a range says how it came to be: {}", names())),
        (true, _, Some(kind)) => Ok(Some(kind)),
        (true, found, None) => Err(format!("\"{found}\" is none of {}", names())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
# a comment
subject,metric,unit,paper,low,high,kind,why
aimd,rate,B/s,100,90,110,predeclared,within 10 %
random,rate,B/s,,,50,after,below half
perfect,rate,B/s,7,,,,only told
";

    fn parsed() -> Expected {
        Expected::parse(TEXT, "e.csv").unwrap()
    }

    #[test]
    fn an_exact_figure_is_judged_by_itself() {
        let expected = parsed();
        let verdict = |subject, ours| expected.row(subject, "rate", "B/s", Some(ours)).verdict;
        assert_eq!(verdict("aimd", 95.0), Some(Verdict::Agrees));
        assert_eq!(verdict("aimd", 89.0), Some(Verdict::Disagrees));
        assert_eq!(verdict("aimd", 111.0), Some(Verdict::Disagrees));
        assert_eq!(verdict("random", 51.0), Some(Verdict::Disagrees));
        assert_eq!(verdict("perfect", 1.0), None);
        assert_eq!(verdict("unheard-of", 1.0), None);
        assert_eq!(expected.row("aimd", "rate", "B/s", None).verdict, None);
        assert_eq!(expected.row("aimd", "rate", "B/s", Some(f64::INFINITY)).verdict, None);
        assert_eq!(expected.paper("perfect", "rate"), Some(7.0));
        assert_eq!(expected.row("aimd", "rate", "B/s", Some(95.0)).ci95, None);
    }

    #[test]
    fn a_mean_is_judged_by_its_interval_and_without_one_nothing_is_decided() {
        let expected = parsed();
        let verdict = |mean, half| expected.row_of_estimate("aimd", "rate", "B/s", Some(mean), half).verdict.unwrap();
        assert_eq!(verdict(95.0, Some(5.0)), Verdict::Agrees);
        assert_eq!(verdict(95.0, Some(6.0)), Verdict::Open);
        assert_eq!(verdict(120.0, Some(11.0)), Verdict::Open);
        assert_eq!(verdict(120.0, Some(9.0)), Verdict::Disagrees);
        assert_eq!(verdict(100.0, None), Verdict::Open);
        let short = MeanEstimate::TooShort { mean: Some(100.0), batches: 3, needed: 10 };
        let row = expected.row_of_mean("aimd", "rate", "B/s", &short);
        assert_eq!((row.verdict, &*row.note), (Some(Verdict::Open), "within 10 %; too short for an interval"));
    }

    #[test]
    fn a_row_says_how_its_range_came_to_be() {
        let expected = parsed();
        let kind = |subject| expected.row(subject, "rate", "B/s", Some(1.0)).kind;
        assert_eq!(kind("aimd"), Some(Kind::Predeclared));
        assert_eq!(kind("random"), Some(Kind::After));
        assert_eq!(kind("perfect"), None);
    }

    #[test]
    fn a_missing_or_unknown_kind_is_refused_with_its_line_and_column() {
        let refused = |old: &str, new: &str| Expected::parse(&TEXT.replace(old, new), "e.csv").unwrap_err().to_string();
        assert_eq!(
            refused(",predeclared,", ",,"),
            "e.csv:3: column 7 (kind): missing; a range says how it came to be: predeclared, after, fitted"
        );
        assert_eq!(
            refused(",after,", ",later,"),
            "e.csv:4: column 7 (kind): \"later\" is none of predeclared, after, fitted"
        );
        assert_eq!(
            refused(",7,,,,", ",7,,,after,"),
            "e.csv:5: column 7 (kind): \"after\" without low or high; a figure without a range has no kind"
        );
        let column = refused(",kind,", ",");
        assert!(column.starts_with("e.csv: ") && column.contains("line"), "{column}");
    }

    #[test]
    fn an_unknown_column_is_refused() {
        let text = "subject,metric,unit,paper,low,high,kind,why,when\na,b,c,1,1,1,after,d,e\n";
        assert!(Expected::parse(text, "e.csv").is_err());
    }
}
