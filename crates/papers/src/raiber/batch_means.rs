//! [Raiber 2010] appendix A: are the means over batches normal, and not autocorrelated?

use anabranch_control::path::registry::Entry;

use crate::runs::OfRuns;
use crate::{ExperimentError, Findings, Lab};
use anabranch_lab::overlay::Measured;
use anabranch_report::{Axis, Chart, Figure, Report, Series, XyChart};
use anabranch_scenario::overlay::Scenario;
use anabranch_stats::{autocorrelation, batch_means, combined_p, normality};

/// Lags that the thesis's plots show.
const LAGS: usize = 15;

/// Seeds of a full run and of a quick one. The charts show the first.
const SEEDS: (u64, u64) = (3, 2);

/// Run and batch lengths in seconds (captions of tables A.1 to A.4).
fn lengths(lab: &Lab, controller: &Entry) -> (u64, usize) {
    match controller.name {
        "q-learning" => (lab.seconds(300_000, 3_000), lab.seconds(10_000, 100) as usize),
        "aimd" => (lab.seconds(20_000, 400), lab.seconds(200, 10) as usize),
        "perfect" | "random" => (lab.seconds(1_000, 350), lab.seconds(30, 10) as usize),
        _ => (lab.seconds(200_000, 3_000), lab.seconds(2_000, 100) as usize),
    }
}

/// Whether more exploration gives Q-learning's means a shorter memory: ten times our ε. Set after the means of the
/// other had been seen.
const EXPLORING: (&str, f64) = ("q-learning[epsilon = 0.1]", 0.1);

/// A controller as it is run, and what it is called.
struct Subject {
    name: &'static str,
    entry: &'static Entry,
    scenario: Scenario,
}

/// The controllers that are asked for, and Q-learning that explores more.
fn subjects(lab: &Lab) -> Result<Vec<Subject>, ExperimentError> {
    let mut subjects = Vec::new();
    for entry in lab.controllers()? {
        let scenario = Scenario { seconds: lengths(lab, entry).0, ..lab.with_controller(entry) };
        subjects.push(Subject { name: entry.name, entry, scenario: scenario.clone() });
        if entry.name == "q-learning" {
            let (name, epsilon) = EXPLORING;
            let mut scenario = scenario;
            scenario.overlay.parameters.insert("epsilon".to_owned(), epsilon.into());
            subjects.push(Subject { name, entry, scenario });
        }
    }
    Ok(subjects)
}

pub fn run(lab: &Lab) -> Result<Findings, ExperimentError> {
    let subjects = subjects(lab)?;
    let scenarios: Vec<Scenario> = subjects.iter().map(|subject| subject.scenario.clone()).collect();
    let measured = lab.run_seeds(&scenarios, lab.seconds(SEEDS.0, SEEDS.1))?;
    let mut rows = Vec::new();
    let mut report = Report::new("Raiber 2010, appendix A");
    for (Subject { name, entry, .. }, runs) in subjects.iter().zip(&measured) {
        let (batch, run) = (lengths(lab, entry).1, &runs[0]);
        let of_seeds: Vec<Vec<f64>> = runs.iter().map(|run| steady_batches(run, batch)).collect();
        let means = &of_seeds[0];
        report = report.section(*name).paragraph(format!(
            "{} s, means over batches of {batch} s; the first two are left out as in table A.1.",
            run.seconds.len()
        ));
        let points = means.iter().enumerate().map(|(i, mean)| ((i + 2) as f64 * batch as f64, *mean)).collect();
        let over_time = XyChart::new(Axis::new("time", "s"), Axis::new("received", "B/s per peer"))
            .series(Series::line(*name, points).markers());
        report = report.figure(Figure::chart("Batch means.", over_time));
        let mut figures = Vec::new();
        let p_values: Option<Vec<f64>> =
            of_seeds.iter().map(|means| normality(means).map(|check| check.p_value)).collect();
        let combined = p_values.and_then(|p_values| combined_p(&p_values));
        rows.push(lab.row(name, "normality_p", "", combined));
        if let Some(check) = normality(means) {
            let chart = Chart::quantile_quantile(&check, "batch mean", "B/s");
            figures.push(Figure::chart("Quantiles against the normal distribution's.", chart));
        }
        let acf = |means: &Vec<f64>| autocorrelation(means, LAGS.min(means.len().saturating_sub(1)));
        let outside = OfRuns::of(&of_seeds, |means| Some(acf(means)?.lags_outside_band().len() as f64));
        rows.push(lab.mean_row(name, "lags_outside_band", "", outside.values()));
        if let Some(acf) = acf(means) {
            figures.push(Figure::chart("Autocorrelation.", Chart::autocorrelation(&acf, "batches")));
        }
        report = report.figures_side_by_side(figures);
    }
    Ok(Findings { rows, report })
}

fn steady_batches(run: &Measured, batch: usize) -> Vec<f64> {
    let received: Vec<f64> = run.received_bytes_per_s().collect();
    let means = batch_means(&received, batch);
    means.into_iter().skip(2).collect()
}
