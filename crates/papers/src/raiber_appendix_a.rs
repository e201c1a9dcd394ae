//! [Raiber 2010] appendix A: are the means over batches normal, and not autocorrelated?

use anabranch_control::path::registry::Entry;

use super::{ExperimentError, Findings, Lab};
use anabranch_lab::overlay::Measured;
use anabranch_report::{Axis, Chart, Figure, Report, Series, XyChart};
use anabranch_scenario::overlay::Scenario;
use anabranch_stats::{autocorrelation, batch_means, normality};

/// Lags that the thesis's plots show.
const LAGS: usize = 15;

/// Run and batch lengths in seconds (captions of tables A.1 to A.4).
fn lengths(lab: &Lab, controller: &Entry) -> (u64, usize) {
    match controller.name {
        "q-learning" => (lab.seconds(300_000, 5_000), lab.seconds(10_000, 100) as usize),
        "aimd" => (lab.seconds(20_000, 1_000), lab.seconds(200, 20) as usize),
        "perfect" | "random" => (lab.seconds(1_000, 350), lab.seconds(30, 10) as usize),
        _ => (lab.seconds(200_000, 5_000), lab.seconds(2_000, 100) as usize),
    }
}

pub fn run(lab: &Lab) -> Result<Findings, ExperimentError> {
    let scenarios: Vec<Scenario> = lab
        .controllers()?
        .into_iter()
        .map(|entry| Scenario { seconds: lengths(lab, entry).0, ..lab.with_controller(entry) })
        .collect();
    let measured = lab.run_all(&scenarios)?;
    let mut rows = Vec::new();
    let mut report = Report::new("Raiber 2010, appendix A");
    for (entry, run) in lab.controllers()?.into_iter().zip(&measured) {
        let batch = lengths(lab, entry).1;
        let means = steady_batches(run, batch);
        report = report.section(run.controller).paragraph(format!(
            "{} s, means over batches of {batch} s; the first two are left out as in table A.1.",
            run.seconds.len()
        ));
        let points = means.iter().enumerate().map(|(i, mean)| ((i + 2) as f64 * batch as f64, *mean)).collect();
        let over_time = XyChart::new(Axis::new("time", "s"), Axis::new("received", "B/s per peer"))
            .series(Series::line(run.controller, points).markers());
        report = report.figure(Figure::chart("Batch means.", over_time));
        let mut figures = Vec::new();
        if let Some(check) = normality(&means) {
            rows.push(lab.row(run.controller, "normality_p", "", Some(check.p_value)));
            let chart = Chart::quantile_quantile(&check, "batch mean", "B/s");
            figures.push(Figure::chart("Quantiles against the normal distribution's.", chart));
        }
        if let Some(acf) = autocorrelation(&means, LAGS.min(means.len().saturating_sub(1))) {
            let outside = acf.lags_outside_band().len() as f64;
            rows.push(lab.row(run.controller, "lags_outside_band", "", Some(outside)));
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
