//! What a paper says, and what counts as agreeing with it.
//!
//! `expected.csv` beside each scenario has a line for each figure: subject, metric,
//! unit, the paper's number (empty if it gives none), the range `low` to `high` in
//! which ours agrees (empty: no bound), and why.

use serde::Deserialize;

use super::Row;
use anabranch_stats::MeanEstimate;

/// One line of `expected.csv`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Line {
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
    /// What the range rests on.
    why: String,
}

/// All expectations of one experiment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Expected {
    lines: Vec<Line>,
}

/// An `expected.csv` does not read.
#[derive(Debug, thiserror::Error)]
#[error("expected.csv: {0}")]
pub struct ExpectedError(#[from] csv::Error);

impl Expected {
    /// Reads `expected.csv`.
    pub fn parse(text: &str) -> Result<Expected, ExpectedError> {
        let mut reader = csv::ReaderBuilder::new().comment(Some(b'#')).from_reader(text.as_bytes());
        Ok(Expected { lines: reader.deserialize().collect::<Result<_, _>>()? })
    }

    fn line(&self, subject: &str, metric: &str) -> Option<&Line> {
        self.lines.iter().find(|line| line.subject == subject && line.metric == metric)
    }

    /// The paper's number, if it gives one.
    pub fn paper(&self, subject: &str, metric: &str) -> Option<f64> {
        self.line(subject, metric)?.paper
    }

    /// Our figure beside the paper's, judged.
    pub fn row(&self, subject: &str, metric: &str, unit: &str, ours: Option<f64>) -> Row {
        let line = self.line(subject, metric);
        // A ratio to nothing is no figure.
        let ours = ours.filter(|ours| ours.is_finite());
        debug_assert!(line.is_none_or(|line| line.unit == unit), "{metric} is expected in another unit than {unit}");
        let agrees = line.filter(|line| line.low.is_some() || line.high.is_some()).and_then(|line| {
            let ours = ours?;
            Some(line.low.is_none_or(|low| ours >= low) && line.high.is_none_or(|high| ours <= high))
        });
        Row {
            subject: subject.to_owned(),
            metric: metric.to_owned(),
            unit: unit.to_owned(),
            ours,
            ci95: None,
            paper: line.and_then(|line| line.paper),
            range: (
                line.and_then(|line| line.low).unwrap_or(f64::NEG_INFINITY),
                line.and_then(|line| line.high).unwrap_or(f64::INFINITY),
            ),
            agrees,
            note: line.map(|line| line.why.clone()).unwrap_or_default(),
        }
    }

    /// A mean with its interval beside the paper's, judged by the mean.
    pub fn row_of_mean(&self, subject: &str, metric: &str, unit: &str, ours: &MeanEstimate) -> Row {
        let mut row = self.row(subject, metric, unit, ours.mean());
        row.ci95 = ours.interval().map(|interval| interval.half_width);
        let caveat = match ours {
            MeanEstimate::Interval(_) => return row,
            MeanEstimate::Correlated { .. } => "no interval: batch means are correlated",
            MeanEstimate::TooShort { .. } => "too short for an interval",
            MeanEstimate::NotFinite { .. } => "not a number in some batch",
        };
        row.note = if row.note.is_empty() { caveat.to_owned() } else { format!("{}; {caveat}", row.note) };
        row
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
# a comment
subject,metric,unit,paper,low,high,why
aimd,rate,B/s,100,90,110,within 10 %
random,rate,B/s,,,50,below half
perfect,rate,B/s,7,,,only told
";

    #[test]
    fn a_figure_agrees_inside_its_range() {
        let expected = Expected::parse(TEXT).unwrap();
        let agrees = |subject, ours| expected.row(subject, "rate", "B/s", Some(ours)).agrees;
        assert_eq!(agrees("aimd", 95.0), Some(true));
        assert_eq!(agrees("aimd", 89.0), Some(false));
        assert_eq!(agrees("aimd", 111.0), Some(false));
        assert_eq!(agrees("random", 51.0), Some(false));
        assert_eq!(agrees("perfect", 1.0), None);
        assert_eq!(agrees("unheard-of", 1.0), None);
        assert_eq!(expected.row("aimd", "rate", "B/s", None).agrees, None);
        assert_eq!(expected.row("aimd", "rate", "B/s", Some(f64::INFINITY)).agrees, None);
        assert_eq!(expected.paper("perfect", "rate"), Some(7.0));
    }

    #[test]
    fn an_unknown_column_is_refused() {
        assert!(Expected::parse("subject,metric,unit,paper,low,high,why,when\na,b,c,1,1,1,d,e\n").is_err());
    }
}
