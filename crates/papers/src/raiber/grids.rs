//! [Raiber 2010] figures 7.2 and 7.3, tables 7.2 and 7.3: throughput and drops over
//! the parameters of a controller.

use anabranch_control::path::registry;

use super::parameter::{drops, received};
use crate::runs::{Estimate, OfRuns};
use crate::{ExperimentError, Findings, Lab, Row};
use anabranch_lab::overlay::summary::Summary;
use anabranch_report::{Axis, Figure, HeatMap, Report, Series, XyChart};
use anabranch_scenario::overlay::Scenario;

/// The scenario with parameters `keys` of `controller` at `values`.
fn scenario(lab: &Lab, controller: &'static str, set: &[(&str, f64)], seconds: u64) -> Scenario {
    let entry = registry::find(controller).expect("a registered controller");
    let mut scenario = Scenario { seconds, ..lab.with_controller(entry) };
    for (key, value) in set {
        scenario.overlay.parameters.insert((*key).to_owned(), toml::Value::Float(*value));
    }
    scenario
}

/// Seeds of a full run and of a quick one. The thesis has one run a point, and differences
/// between neighbouring points are as large as those between seeds.
const SEEDS: (u64, u64) = (5, 2);

/// The runs of one point, one a seed.
type Runs = Vec<Summary>;

fn run_seeds(lab: &Lab, scenarios: &[Scenario]) -> Result<Vec<Runs>, ExperimentError> {
    let runs = lab.run_seeds(scenarios, lab.seconds(SEEDS.0, SEEDS.1))?;
    Ok(runs.iter().map(|runs| runs.iter().map(Summary::of).collect()).collect())
}

/// The point over that of the highest mean, seed by seed.
fn over_best<'r>(point: Option<&Runs>, all: impl Iterator<Item = &'r Runs>) -> OfRuns {
    let mean = |runs: &Runs| OfRuns::of(runs, received).mean();
    let best = all.max_by(|one, other| mean(one).total_cmp(&mean(other)));
    point
        .zip(best)
        .map_or_else(OfRuns::default, |(point, best)| OfRuns::of(point, received).over(&OfRuns::of(best, received)))
}

/// `of` at one point over that at another, seed by seed.
fn between(one: Option<&Runs>, other: Option<&Runs>, of: fn(&Summary) -> Option<f64>) -> OfRuns {
    one.zip(other).map_or_else(OfRuns::default, |(one, other)| OfRuns::of(one, of).over(&OfRuns::of(other, of)))
}

/// One value of each cell of a grid.
struct Grid {
    columns: (&'static str, Vec<f64>),
    rows: (&'static str, Vec<f64>),
    cells: Vec<Runs>,
}

impl Grid {
    fn measure(
        lab: &Lab,
        controller: &'static str,
        columns: (&'static str, &[f64]),
        rows: (&'static str, &[f64]),
        seconds: u64,
    ) -> Result<Grid, ExperimentError> {
        let mut scenarios = Vec::new();
        for &row in rows.1 {
            for &column in columns.1 {
                scenarios.push(scenario(lab, controller, &[(columns.0, column), (rows.0, row)], seconds));
            }
        }
        let cells = run_seeds(lab, &scenarios)?;
        Ok(Grid { columns: (columns.0, columns.1.to_vec()), rows: (rows.0, rows.1.to_vec()), cells })
    }

    fn at(&self, column: f64, row: f64) -> Option<&Runs> {
        let column = self.columns.1.iter().position(|value| *value == column)?;
        let row = self.rows.1.iter().position(|value| *value == row)?;
        self.cells.get(row * self.columns.1.len() + column)
    }

    fn values(&self, of: fn(&Summary) -> Option<f64>) -> Vec<Vec<Option<f64>>> {
        let mean = |runs: &Runs| Some(OfRuns::of(runs, of).mean()).filter(|mean| mean.is_finite());
        self.cells.chunks(self.columns.1.len()).map(|row| row.iter().map(mean).collect()).collect()
    }

    fn metric(&self, metric: &str, column: f64, row: f64) -> String {
        format!("{metric}[{}={column:.4},{}={row:.4}]", self.columns.0, self.rows.0)
    }

    fn rows_of(&self, lab: &Lab, subject: &str, metric: &str, unit: &str, of: fn(&Summary) -> Option<f64>) -> Vec<Row> {
        let mut all = Vec::new();
        for &row in &self.rows.1 {
            for &column in &self.columns.1 {
                let values = self.at(column, row).map_or_else(OfRuns::default, |runs| OfRuns::of(runs, of));
                all.push(lab.mean_row(subject, &self.metric(metric, column, row), unit, values.values()));
            }
        }
        all
    }

    fn map(&self, label: &str, unit: &str, of: fn(&Summary) -> Option<f64>) -> HeatMap {
        let axis = |(name, values): &(&'static str, Vec<f64>)| (Axis::new(*name, ""), values.clone());
        HeatMap::new(axis(&self.columns), axis(&self.rows), Axis::new(label, unit), self.values(of))
    }

    fn lines(&self, label: &str, unit: &str, of: fn(&Summary) -> Option<f64>) -> XyChart {
        let mut chart = XyChart::new(Axis::new(self.columns.0, ""), Axis::new(label, unit).from_zero());
        for (row, values) in self.rows.1.iter().zip(self.values(of)) {
            let points = self.columns.1.iter().zip(values).filter_map(|(x, y)| Some((*x, y?)));
            chart = chart.series(Series::line(format!("{} = {row:.3}", self.rows.0), points.collect()).markers());
        }
        chart
    }
}

/// The thesis's readings of AIMD, both of which are measured.
const AIMD: [&str; 2] = ["aimd-literal", "aimd"];

fn aimd(lab: &Lab) -> Result<Vec<(&'static str, Grid)>, ExperimentError> {
    let increases: &[f64] = lab.choose(&[0.5, 1.0, 1.5, 2.0, 3.0, 4.0], &[0.5, 1.5, 3.0]);
    let decreases: &[f64] = lab.choose(&[1.0 / 1.2, 1.0 / 1.4, 1.0 / 1.6, 1.0 / 2.0], &[1.0 / 1.2, 1.0 / 1.4, 0.5]);
    let grid = |name| {
        // With consistent units the rate settles in seconds, and a hundred times as much is sent.
        let seconds = if name == "aimd" { lab.seconds(200, 60) } else { lab.seconds(4_000, 450) };
        Grid::measure(lab, name, ("increase", increases), ("decrease", decreases), seconds)
    };
    AIMD.into_iter().map(|name| Ok((name, grid(name)?))).collect()
}

fn aimd_findings(
    lab: &Lab,
    metric: &'static str,
    unit: &'static str,
    of: fn(&Summary) -> Option<f64>,
) -> Result<Findings, ExperimentError> {
    let grids = aimd(lab)?;
    let mut rows = Vec::new();
    let mut report = Report::new("Raiber 2010, figures 7.2 and 7.3").paragraph(
        "The thesis settles on an increase of 1.5 and a division by 1.4: few drops for much throughput. A row \
         \"chosen_over_best\" holds what that choice receives against the best of the grid.",
    );
    for (name, grid) in &grids {
        rows.extend(grid.rows_of(lab, name, metric, unit, of));
        let chosen = over_best(grid.at(1.5, 1.0 / 1.4), grid.cells.iter());
        rows.push(lab.mean_row(name, "chosen_over_best", "", chosen.values()));
        let gentle = between(grid.at(1.5, 1.0 / 1.2), grid.at(1.5, 0.5), of);
        rows.push(lab.mean_row(name, &format!("{metric}_gentle_over_harsh"), "", gentle.values()));
        report = report.section(*name).figure(Figure::chart("Each line one decrease.", grid.lines(metric, unit, of)));
    }
    Ok(Findings { rows, report })
}

/// Figure 7.2: throughput over AIMD's increase and decrease.
pub fn aimd_throughput(lab: &Lab) -> Result<Findings, ExperimentError> {
    lab.no_other_controllers()?;
    aimd_findings(lab, "received_bytes_per_s", "B/s", received)
}

/// Figure 7.3: drops over AIMD's increase and decrease.
pub fn aimd_drops(lab: &Lab) -> Result<Findings, ExperimentError> {
    lab.no_other_controllers()?;
    aimd_findings(lab, "drops_per_s", "1/s", drops)
}

/// Table 7.2: throughput and drops over Q-learning's reward of an ACK.
pub fn reward(lab: &Lab) -> Result<Findings, ExperimentError> {
    lab.no_other_controllers()?;
    let full = [0.001, 0.0025, 0.005, 0.0075, 0.01, 0.0125, 0.015, 0.0175, 0.02, 0.025, 0.03, 0.1, 0.3, 1.0];
    let rewards: &[f64] = lab.choose(&full, &[0.001, 0.005, 0.01, 0.015, 0.03, 0.3]);
    let seconds = lab.seconds(4_000, 1_000);
    let scenarios: Vec<Scenario> =
        rewards.iter().map(|&reward| scenario(lab, "q-learning", &[("reward_ack", reward)], seconds)).collect();
    let points = run_seeds(lab, &scenarios)?;
    let mut rows = Vec::new();
    for (reward, runs) in rewards.iter().zip(&points) {
        let metric = |metric: &str| format!("{metric}[reward_ack={reward}]");
        let mut add = |name: &str, unit: &str, of| {
            rows.push(lab.mean_row("q-learning", &metric(name), unit, OfRuns::of(runs, of).values()));
        };
        add("received_bytes_per_s", "B/s", received as fn(&Summary) -> Option<f64>);
        add("drops_per_s", "1/s", drops);
    }
    let at = |reward: f64| rewards.iter().position(|value| *value == reward).map(|index| &points[index]);
    for reward in [0.01, 0.015] {
        // The thesis reads its optimum off the range up to 0.03.
        let shown = rewards.iter().zip(&points).filter(|(reward, _)| **reward <= 0.03).map(|(_, runs)| runs);
        let metric = format!("received_over_best[reward_ack={reward}]");
        rows.push(lab.mean_row("q-learning", &metric, "", over_best(at(reward), shown).values()));
    }
    let more = between(at(0.015), at(0.01), drops);
    rows.push(lab.mean_row("q-learning", "drops_at_0.015_over_0.01", "", more.values()));
    let line = |of: fn(&Summary) -> Option<f64>| {
        let points = rewards.iter().zip(&points).filter_map(|(x, runs)| {
            let Estimate { mean, half_width } = OfRuns::of(runs, of).estimate();
            mean.is_finite().then(|| (*x, mean, half_width.unwrap_or(0.0)))
        });
        Series::intervals("q-learning", points.collect()).markers()
    };
    let axis = || Axis::new("reward of an ACK", "").log();
    let report = Report::new("Raiber 2010, table 7.2")
        .paragraph("The thesis: about 0.015 is best if drops may be many, otherwise 0.01.")
        .figures_side_by_side(vec![
            Figure::chart(
                "Received.",
                XyChart::new(axis(), Axis::new("received", "B/s per peer")).series(line(received)),
            ),
            Figure::chart("Drops.", XyChart::new(axis(), Axis::new("drops", "1/s").log()).series(line(drops))),
        ]);
    Ok(Findings { rows, report })
}

/// Table 7.3: throughput and drops over Q-learning's learning rate and discount.
pub fn learning_rate_and_discount(lab: &Lab) -> Result<Findings, ExperimentError> {
    lab.no_other_controllers()?;
    let rates: &[f64] = lab.choose(&[0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5], &[0.1, 0.2, 0.25, 0.5]);
    let discounts: &[f64] = lab.choose(&[0.5, 0.7, 0.8, 0.9, 0.95], &[0.5, 0.9]);
    let seconds = lab.seconds(4_000, 500);
    let grid = Grid::measure(lab, "q-learning", ("learning_rate", rates), ("discount", discounts), seconds)?;
    let mut rows = grid.rows_of(lab, "q-learning", "received_bytes_per_s", "B/s", received);
    rows.extend(grid.rows_of(lab, "q-learning", "drops_per_s", "1/s", drops));
    let chosen = over_best(grid.at(0.25, 0.9), grid.cells.iter());
    rows.push(lab.mean_row("q-learning", "chosen_over_best", "", chosen.values()));
    let fewer = between(grid.at(0.2, 0.9), grid.at(0.25, 0.9), drops);
    rows.push(lab.mean_row("q-learning", "drops_at_0.2_over_0.25", "", fewer.values()));
    let report = Report::new("Raiber 2010, table 7.3")
        .paragraph("The thesis: a learning rate of 0.25 and a discount of 0.9 are reasonable, 0.2 for few drops.")
        .figures_side_by_side(vec![
            Figure::chart("Received.", grid.map("received", "B/s per peer", received)),
            Figure::chart("Drops.", grid.map("drops", "1/s", drops)),
        ]);
    Ok(Findings { rows, report })
}
