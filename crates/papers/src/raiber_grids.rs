//! [Raiber 2010] figures 7.2 and 7.3, tables 7.2 and 7.3: throughput and drops over
//! the parameters of a controller.

use anabranch_control::path::registry;

use super::parameter::{drops, received};
use super::{ExperimentError, Findings, Lab, Row};
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

/// One value of each cell of a grid.
struct Grid {
    columns: (&'static str, Vec<f64>),
    rows: (&'static str, Vec<f64>),
    cells: Vec<Summary>,
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
        let cells = lab.run_all(&scenarios)?.iter().map(Summary::of).collect();
        Ok(Grid { columns: (columns.0, columns.1.to_vec()), rows: (rows.0, rows.1.to_vec()), cells })
    }

    fn at(&self, column: f64, row: f64) -> Option<&Summary> {
        let column = self.columns.1.iter().position(|value| *value == column)?;
        let row = self.rows.1.iter().position(|value| *value == row)?;
        self.cells.get(row * self.columns.1.len() + column)
    }

    fn values(&self, of: fn(&Summary) -> Option<f64>) -> Vec<Vec<Option<f64>>> {
        self.cells.chunks(self.columns.1.len()).map(|row| row.iter().map(of).collect()).collect()
    }

    fn metric(&self, metric: &str, column: f64, row: f64) -> String {
        format!("{metric}[{}={column:.4},{}={row:.4}]", self.columns.0, self.rows.0)
    }

    fn rows_of(&self, lab: &Lab, subject: &str, metric: &str, unit: &str, of: fn(&Summary) -> Option<f64>) -> Vec<Row> {
        let mut all = Vec::new();
        for &row in &self.rows.1 {
            for &column in &self.columns.1 {
                let value = self.at(column, row).and_then(of);
                all.push(lab.row(subject, &self.metric(metric, column, row), unit, value));
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
        let seconds = if name == "aimd" { lab.seconds(1_000, 200) } else { lab.seconds(10_000, 600) };
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
        let best = grid.cells.iter().filter_map(received).fold(0.0, f64::max);
        let chosen = grid.at(1.5, 1.0 / 1.4).and_then(received);
        rows.push(lab.row(name, "chosen_over_best", "", chosen.map(|chosen| chosen / best)));
        let gentle = grid.at(1.5, 1.0 / 1.2).and_then(of);
        let harsh = grid.at(1.5, 0.5).and_then(of);
        rows.push(lab.row(name, &format!("{metric}_gentle_over_harsh"), "", gentle.zip(harsh).map(|(g, h)| g / h)));
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
    let seconds = lab.seconds(10_000, 1_500);
    let scenarios: Vec<Scenario> =
        rewards.iter().map(|&reward| scenario(lab, "q-learning", &[("reward_ack", reward)], seconds)).collect();
    let summaries: Vec<Summary> = lab.run_all(&scenarios)?.iter().map(Summary::of).collect();
    let mut rows = Vec::new();
    for (reward, summary) in rewards.iter().zip(&summaries) {
        let metric = |metric: &str| format!("{metric}[reward_ack={reward}]");
        let estimate = &summary.received.estimate;
        rows.push(lab.expected.row_of_mean("q-learning", &metric("received_bytes_per_s"), "B/s", estimate));
        rows.push(lab.row("q-learning", &metric("drops_per_s"), "1/s", drops(summary)));
    }
    let at = |reward: f64| rewards.iter().position(|value| *value == reward).map(|index| &summaries[index]);
    // The thesis reads its optimum off the range up to 0.03.
    let shown = rewards.iter().zip(&summaries).filter(|(reward, _)| **reward <= 0.03);
    let best = shown.filter_map(|(_, summary)| received(summary)).fold(0.0, f64::max);
    for reward in [0.01, 0.015] {
        let share = at(reward).and_then(received).map(|received| received / best);
        rows.push(lab.row("q-learning", &format!("received_over_best[reward_ack={reward}]"), "", share));
    }
    let more = at(0.015).and_then(drops).zip(at(0.01).and_then(drops)).map(|(high, low)| high / low);
    rows.push(lab.row("q-learning", "drops_at_0.015_over_0.01", "", more));
    let line = |of: fn(&Summary) -> Option<f64>| {
        let points = rewards.iter().zip(&summaries).filter_map(|(x, summary)| Some((*x, of(summary)?)));
        Series::line("q-learning", points.collect()).markers()
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
    let seconds = lab.seconds(10_000, 1_000);
    let grid = Grid::measure(lab, "q-learning", ("learning_rate", rates), ("discount", discounts), seconds)?;
    let mut rows = grid.rows_of(lab, "q-learning", "received_bytes_per_s", "B/s", received);
    rows.extend(grid.rows_of(lab, "q-learning", "drops_per_s", "1/s", drops));
    let best = grid.cells.iter().filter_map(received).fold(0.0, f64::max);
    let chosen = grid.at(0.25, 0.9).and_then(received).map(|received| received / best);
    rows.push(lab.row("q-learning", "chosen_over_best", "", chosen));
    let fewer = grid.at(0.2, 0.9).and_then(drops).zip(grid.at(0.25, 0.9).and_then(drops)).map(|(a, b)| a / b);
    rows.push(lab.row("q-learning", "drops_at_0.2_over_0.25", "", fewer));
    let report = Report::new("Raiber 2010, table 7.3")
        .paragraph("The thesis: a learning rate of 0.25 and a discount of 0.9 are reasonable, 0.2 for few drops.")
        .figures_side_by_side(vec![
            Figure::chart("Received.", grid.map("received", "B/s per peer", received)),
            Figure::chart("Drops.", grid.map("drops", "1/s", drops)),
        ]);
    Ok(Findings { rows, report })
}
