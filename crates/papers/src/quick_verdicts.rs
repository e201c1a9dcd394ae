//! What quick runs said when they were last looked at: `experiments/quick-verdicts.csv`, which the
//! test `quick_verdicts` holds them to and writes anew.

use serde::Deserialize;

use super::{Kind, Verdict};

const TEXT: &str = include_str!("../../../experiments/quick-verdicts.csv");

/// A line of the table: what a judged figure of an experiment said.
#[derive(Deserialize)]
struct Line {
    experiment: String,
    range: Kind,
    verdict: Verdict,
}

/// The kind and the verdict of every figure that the quick run of `experiment` judged; none where it
/// judged none.
pub(super) fn of(experiment: &str) -> Vec<(Kind, Verdict)> {
    let lines = csv::Reader::from_reader(TEXT.as_bytes()).into_deserialize::<Line>();
    lines
        .map(|line| line.expect("a test reads every line of this table, which is part of the program"))
        .filter(|line| line.experiment == experiment)
        .map(|line| (line.range, line.verdict))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{EXPERIMENTS, Totals};

    #[test]
    fn every_line_belongs_to_an_experiment() {
        let lines = TEXT.lines().skip(1).count();
        assert!(lines > 0);
        let of_all: usize = EXPERIMENTS.iter().map(|experiment| of(experiment.id).len()).sum();
        assert_eq!(of_all, lines);
    }

    #[test]
    fn no_experiment_judges_more_quickly_than_it_expects() {
        for experiment in EXPERIMENTS {
            let (expected, said) = (experiment.judged().unwrap(), Totals::of(of(experiment.id)));
            for kind in Kind::ALL {
                let all = expected.iter().filter(|&&of| of == kind).count();
                let quick = said.of_kind(kind).all();
                assert!(quick <= all, "{}: {quick} of {all} {}", experiment.id, kind.name());
            }
        }
    }
}
