//! A page of charts, as reports of the command are.

use std::path::PathBuf;

use anabranch_report::{Axis, Cell, Report, Series, Table, XyChart};
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;

/// A chart: its caption, what its axis shows and in what unit, and its lines.
type Chart = (String, (String, String), Vec<(String, Vec<(f64, f64)>)>);

/// Writes one whose charts have the same `x`, label and unit: all of it or nothing. Below them stands a table, folded.
#[pyfunction]
pub fn write_page(
    path: PathBuf,
    title: String,
    about: Vec<(String, String)>,
    x: (String, String),
    charts: Vec<Chart>,
    table: (String, Vec<String>, Vec<Vec<f64>>),
) -> PyResult<()> {
    let report = about.into_iter().fold(Report::new(title), |report, (key, value)| report.meta(key, value));
    let report = charts.into_iter().fold(report, |report, (caption, (label, unit), lines)| {
        let chart = XyChart::new(Axis::new(&x.0, &x.1).from_zero(), Axis::new(label, unit));
        let chart = lines.into_iter().fold(chart, |chart, (name, points)| chart.series(Series::line(name, points)));
        report.small_multiples(&caption, chart)
    });
    let (caption, headers, rows) = table;
    let cells = |row: Vec<f64>| row.into_iter().map(|value| Cell::number(value, 4)).collect::<Vec<_>>();
    let table = rows.into_iter().fold(Table::new(&caption, headers), |table, row| table.row(cells(row)));
    report.folded_table(caption, table).write(&path).map_err(|error| PyOSError::new_err(error.to_string()))
}
