//! A sweep as a page: each number over the grid, with intervals over the seeds.
//!
//! One key is an axis; of two keys with numbers, both are, in a heat map; a key with
//! words becomes a line for each word, or a group of bars. Each combination of further
//! keys has figures of its own.

use super::{Combination, Metric, Outcome, Sweep, as_number};
use anabranch_report::{Axis, BarChart, BarSeries, Cell, Chart, Figure, HeatMap, Report, Series, Table, XyChart};

/// The numbers that have figures.
const DRAWN: usize = 3;

impl Sweep {
    /// The sweep as a page. Equal outcomes make equal pages.
    pub fn report(&self, outcomes: &[Outcome]) -> Report {
        let combinations = self.combinations(outcomes);
        let seeds = combinations.first().map_or(0, |combination| combination.outcomes.len());
        let keys: Vec<&str> = self.grid.iter().map(|key| key.key.as_str()).collect();
        let mut report = Report::new(if keys.is_empty() {
            format!("{} over {seeds} seeds", self.name)
        } else {
            format!("{} over {}", self.name, keys.join(", "))
        })
        .meta("scenario", &self.name)
        .meta("points", self.points.len().to_string())
        .meta("seeds for each", seeds.to_string())
        .meta("version", env!("CARGO_PKG_VERSION"));
        if seeds < 2 {
            report = report.paragraph("One seed has no interval; give --seeds to see how far chance reaches.");
        }
        let failures = self.failures(outcomes);
        if !failures.is_empty() {
            report = report.paragraph(format!(
                "{} of {} points have no run, and no part in what follows: {}.",
                failures.len(),
                self.points.len(),
                failures.join("; ")
            ));
        }
        report = report.table(self.means(&combinations));
        if !keys.is_empty() {
            report = report.section("Over the grid");
            for group in groups(&combinations) {
                let figures = self.metrics()[..DRAWN].iter().map(|metric| self.figure(metric, &group)).collect();
                report = report.figures_side_by_side(figures);
            }
        }
        match self.points.first() {
            Some(point) => report.listing("The whole scenario of the first point", &point.text),
            None => report,
        }
    }

    fn means(&self, combinations: &[Combination<'_>]) -> Table {
        let keys = self.grid.iter().map(|key| key.key.clone());
        let metrics = self.metrics().iter().map(|(_, label, unit)| match *unit {
            "" => (*label).to_owned(),
            unit => format!("{label} ({unit})"),
        });
        let table = Table::new("Means over the seeds with 95 % intervals", keys.chain(metrics));
        combinations.iter().fold(table, |table, combination| {
            let values = combination.values.iter().map(Cell::text);
            let means = self.metrics().iter().map(|(metric, ..)| match combination.mean(metric) {
                Some((mean, Some(half))) => Cell::interval(mean, half),
                Some((mean, None)) => Cell::number(mean, if mean.abs() < 100.0 { 3 } else { 0 }),
                None => Cell::text("–"),
            });
            table.row(values.chain(means))
        })
    }

    /// One number over the first two keys; the values of further keys are the same in
    /// the whole `group`.
    fn figure(&self, metric: &Metric, group: &[Combination<'_>]) -> Figure {
        let &(name, label, unit) = metric;
        let further: Vec<String> = self
            .grid
            .iter()
            .zip(group[0].values)
            .skip(2)
            .map(|(key, value)| format!("{} = {value}", key.key))
            .collect();
        let caption = if further.is_empty() { label.to_owned() } else { format!("{label}, {}", further.join(", ")) };
        let y = Axis::new(label, unit);
        let numeric = |key: usize| self.grid[key].values.iter().all(|value| as_number(value).is_some());
        let chart: Chart = match (self.grid.len(), numeric(0)) {
            (1, true) => self.lines(name, y, group, 0, None).into(),
            (1, false) => self.bars(name, y, group, 0, None).into(),
            (_, true) if numeric(1) => self.heat(name, y, group).into(),
            (_, true) => self.lines(name, y, group, 0, Some(1)).into(),
            (_, false) if numeric(1) => self.lines(name, y, group, 1, Some(0)).into(),
            (_, false) => self.bars(name, y, group, 0, Some(1)).into(),
        };
        Figure::chart(caption, chart)
    }

    fn axis(&self, key: usize) -> Axis {
        let axis = Axis::new(&self.grid[key].key, "");
        let whole = |value: &String| as_number(value).is_some_and(|number| number.fract() == 0.0);
        if self.grid[key].values.iter().all(whole) { axis.whole_numbers() } else { axis }
    }

    /// The words of `key`, or one word for everything.
    fn words(&self, key: Option<usize>) -> Vec<(Option<usize>, &str)> {
        match key {
            Some(key) => self.grid[key].values.iter().map(|value| (Some(key), value.as_str())).collect(),
            None => vec![(None, "mean over the seeds")],
        }
    }

    fn lines(&self, metric: &str, y: Axis, group: &[Combination<'_>], x: usize, by: Option<usize>) -> XyChart {
        let chart = XyChart::new(self.axis(x), y.from_zero());
        self.words(by).into_iter().fold(chart, |chart, (by, word)| {
            let with_word = group.iter().filter(|one| by.is_none_or(|by| one.values[by] == word));
            let mut points: Vec<(f64, f64, f64)> = with_word
                .filter_map(|one| {
                    let (mean, half) = one.mean(metric)?;
                    Some((as_number(&one.values[x])?, mean, half.unwrap_or(f64::NAN)))
                })
                .collect();
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            chart.series(Series::intervals(word, points))
        })
    }

    fn bars(&self, metric: &str, y: Axis, group: &[Combination<'_>], x: usize, by: Option<usize>) -> BarChart {
        let chart = BarChart::new(&self.grid[x].key, y, self.grid[x].values.clone());
        self.words(by).into_iter().fold(chart, |chart, (by, word)| {
            let found: Vec<Option<(f64, Option<f64>)>> = self.grid[x]
                .values
                .iter()
                .map(|value| {
                    let here =
                        |one: &&Combination<'_>| one.values[x] == *value && by.is_none_or(|by| one.values[by] == word);
                    group.iter().find(here)?.mean(metric)
                })
                .collect();
            let halves = found.iter().map(|found| found.and_then(|found| found.1).unwrap_or(f64::NAN)).collect();
            let means = found.iter().map(|found| found.map(|found| found.0)).collect();
            chart.series(BarSeries::new(word, means).intervals(halves))
        })
    }

    fn heat(&self, metric: &str, value: Axis, group: &[Combination<'_>]) -> HeatMap {
        let sorted = |key: usize| -> Vec<(f64, &String)> {
            let numbers = self.grid[key].values.iter().filter_map(|value| Some((as_number(value)?, value)));
            let mut numbers: Vec<_> = numbers.collect();
            numbers.sort_by(|a, b| a.0.total_cmp(&b.0));
            numbers
        };
        let (columns, rows) = (sorted(0), sorted(1));
        let at = |column: &String, row: &String| {
            let here = group.iter().find(|one| one.values[0] == *column && one.values[1] == *row);
            here.and_then(|one| one.mean(metric)).map(|found| found.0)
        };
        let cells = rows.iter().map(|(_, row)| columns.iter().map(|(_, column)| at(column, row)).collect()).collect();
        let axis =
            |key: usize, values: &[(f64, &String)]| (self.axis(key), values.iter().map(|value| value.0).collect());
        HeatMap::new(axis(0, &columns), axis(1, &rows), value, cells)
    }
}

/// The combinations by the values of the third key and those after it, in the order in
/// which these first come.
fn groups<'s>(combinations: &[Combination<'s>]) -> Vec<Vec<Combination<'s>>> {
    let mut groups: Vec<Vec<Combination<'s>>> = Vec::new();
    for combination in combinations {
        let further =
            |group: &&mut Vec<Combination<'_>>| group[0].values.iter().skip(2).eq(combination.values.iter().skip(2));
        match groups.iter_mut().find(further) {
            Some(group) => group.push(*combination),
            None => groups.push(vec![*combination]),
        }
    }
    groups
}
