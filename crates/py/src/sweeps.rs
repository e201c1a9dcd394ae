//! Sweeps: on threads of this process, or measured by other processes that Python starts.

use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Instant;

use anabranch_lab::VERSION;
use anabranch_lab::sweep::{
    Elsewhere, GridKey, KeepError, MeasureError, Options, Outcome, Seeds, Sweep, measure, points,
};
use anabranch_report::output::{Column, Table as Columns, create_dir};
use anabranch_scenario::json;
use pyo3::exceptions::{PyOSError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use serde_json::{Map, Value, json};

use crate::apart::{apart, interruptible};
use crate::errors;
use crate::plain::as_json;
use crate::runs::{RunResult, overrides, scenario};
use crate::tables::Table;

/// The keys of a grid, and those of them whose values are all numbers.
fn grid_keys(grid: &Bound<'_, PyDict>) -> PyResult<(Vec<GridKey>, Vec<String>)> {
    let Value::Object(grid) = as_json(grid)? else { return Err(PyRuntimeError::new_err("a dict is an object")) };
    let mut numbers = Vec::new();
    let one = |(key, values): (String, Value)| match values {
        Value::Array(list) if !list.is_empty() => {
            if list.iter().all(Value::is_number) {
                numbers.push(key.clone());
            }
            let values = list.into_iter().map(|value| match value {
                // As the command has them: quotes would stand in the table.
                Value::String(text) => Ok(text),
                value => Ok(json::value(&key, value).map_err(errors::scenario)?.to_string()),
            });
            let values = values.collect::<PyResult<Vec<String>>>()?;
            if let Some(twice) = values.iter().enumerate().find(|(at, value)| values[..*at].contains(value)) {
                return Err(PyValueError::new_err(format!("grid[\"{key}\"] has {} twice", twice.1)));
            }
            Ok(GridKey { key, values })
        }
        other => Err(PyValueError::new_err(format!("grid[\"{key}\"] is {other}, must be a list of values"))),
    };
    let keys = grid.into_iter().map(one).collect::<PyResult<Vec<GridKey>>>()?;
    Ok((keys, numbers))
}

/// Puts numbers, as Python gave them, in place of texts: the command's files have all values as they were written.
fn in_numbers(results: &mut Map<String, Value>, tables: &mut [(&str, Columns)], keys: &[String]) {
    for rows in ["points", "combinations"] {
        let rows = results.get_mut(rows).and_then(Value::as_array_mut).into_iter().flatten();
        for set in rows.filter_map(|row| row["set"].as_object_mut()) {
            for (_, value) in set.iter_mut().filter(|(key, _)| keys.contains(key)) {
                if let Some(number) = value.as_str().and_then(number) {
                    *value = number;
                }
            }
        }
    }
    for (name, column) in tables.iter_mut().flat_map(|(_, table)| &mut table.columns) {
        if let Column::Str(texts) = column
            && keys.contains(name)
        {
            if let Some(whole) = texts.iter().map(|text| text.parse().ok()).collect() {
                *column = Column::I64(whole);
            } else if let Some(found) = texts.iter().map(|text| text.parse().ok()).collect() {
                *column = Column::F64(found);
            }
        }
    }
}

fn number(text: &str) -> Option<Value> {
    text.parse::<i64>().map(Value::from).or_else(|_| text.parse::<f64>().map(Value::from)).ok()
}

/// What is to be measured, and which keys of its grid Python gave numbers for.
fn sweep_of(
    scenario: &Bound<'_, PyAny>,
    grid: &Bound<'_, PyDict>,
    seeds: Option<&Bound<'_, PyList>>,
    overrides: Option<&Bound<'_, PyDict>>,
) -> PyResult<(Sweep, Vec<String>)> {
    let (text, name) = self::scenario(scenario)?;
    let seeds = seeds.map(|seeds| seeds.extract().map(Seeds)).transpose()?;
    let ((grid, numbers), overrides) = (grid_keys(grid)?, self::overrides(overrides)?);
    let points = points(&text, &name, &overrides, &grid, seeds.as_ref()).map_err(errors::scenario)?;
    Ok((Sweep { name, text, grid, points }, numbers))
}

fn refused(error: impl std::fmt::Display) -> PyErr {
    PyOSError::new_err(error.to_string())
}

/// Writes the tables of a sweep that is whole, and says what the command says, with `numbers` in place of their texts.
fn summary(
    sweep: &Sweep,
    numbers: &[String],
    out: &std::path::Path,
    outcomes: &[Outcome],
    skipped: usize,
    wall_s: f64,
) -> PyResult<RunResult> {
    let (mut object, mut tables) = (Map::new(), Vec::new());
    if outcomes.len() == sweep.points.len() {
        sweep.write(out, outcomes).map_err(refused)?;
        let Value::Object(mut results) = sweep.to_json(outcomes) else { unreachable!("results are an object") };
        let mut all = [("points", sweep.table(outcomes)), ("combinations", sweep.means_table(outcomes))];
        in_numbers(&mut results, &mut all, numbers);
        object.extend(results);
        for (name, table) in all {
            tables.push((name, Table::of(table)?));
        }
    }
    object.insert("scenario".into(), json!(sweep.name));
    let finished = outcomes.iter().filter(|outcome| outcome.failed().is_none()).count();
    object.insert("finished".into(), json!(finished));
    object.insert("skipped".into(), json!(skipped));
    object.insert("wall_s".into(), json!(wall_s));
    Ok((Value::Object(object).to_string(), tables))
}

/// Runs a scenario over a grid of values and seeds; what `anabranch sweep --json` prints, and the same as tables.
#[pyfunction]
#[pyo3(signature = (scenario, grid, out, seeds=None, overrides=None, threads=None, again=false))]
#[expect(clippy::too_many_arguments, reason = "they have names where they are called")]
pub fn sweep(
    py: Python<'_>,
    scenario: &Bound<'_, PyAny>,
    grid: &Bound<'_, PyDict>,
    out: PathBuf,
    seeds: Option<&Bound<'_, PyList>>,
    overrides: Option<&Bound<'_, PyDict>>,
    threads: Option<usize>,
    again: bool,
) -> PyResult<RunResult> {
    if threads == Some(0) {
        return Err(PyValueError::new_err("threads is 0, must be 1 or more"));
    }
    let (sweep, numbers) = sweep_of(scenario, grid, seeds, overrides)?;
    create_dir(&out).map_err(refused)?;
    interruptible(py, |progress| {
        let started = Instant::now();
        let swept = sweep.run(&out, Options { threads, again }, progress).map_err(errors::run)?;
        let outcomes: Option<Vec<Outcome>> = swept.outcomes.into_iter().collect();
        // Who is interrupted gets the signal's exception instead.
        summary(&sweep, &numbers, &out, &outcomes.unwrap_or_default(), swept.skipped, started.elapsed().as_secs_f64())
    })?
}

/// The version that measures: the package's, and the hash of the sources that it was made from.
#[pyfunction]
pub fn measures() -> &'static str {
    VERSION
}

/// Measures a point of a sweep, of which `point` is the whole scenario, for whoever drives it.
#[pyfunction]
pub fn measure_point(py: Python<'_>, point: &str) -> PyResult<String> {
    interruptible(py, |progress| measure(point, progress))?.map_err(|error| match error {
        MeasureError::Scenario(error) => errors::scenario(error),
        error @ MeasureError::Interrupted => errors::run(error),
    })
}

/// A sweep whose points other processes measure; what they say is checked and kept here.
#[pyclass(frozen, module = "anabranch._native")]
pub struct Driver {
    standing: Mutex<Elsewhere>,
    numbers: Vec<String>,
    out: PathBuf,
    started: Instant,
}

impl Driver {
    fn with<T: Send>(&self, py: Python<'_>, work: impl FnOnce(&mut Elsewhere) -> T + Send) -> PyResult<T> {
        apart(py, || self.standing.lock().ok().map(|mut standing| work(&mut standing)))?
            .ok_or_else(|| PyRuntimeError::new_err("this sweep has failed before: begin it anew"))
    }
}

#[pymethods]
impl Driver {
    #[new]
    #[pyo3(signature = (scenario, grid, out, seeds=None, overrides=None, again=false))]
    fn new(
        scenario: &Bound<'_, PyAny>,
        grid: &Bound<'_, PyDict>,
        out: PathBuf,
        seeds: Option<&Bound<'_, PyList>>,
        overrides: Option<&Bound<'_, PyDict>>,
        again: bool,
    ) -> PyResult<Driver> {
        let started = Instant::now();
        let (sweep, numbers) = sweep_of(scenario, grid, seeds, overrides)?;
        create_dir(&out).map_err(refused)?;
        let standing = Mutex::new(Elsewhere::begin(sweep, &out, again).map_err(refused)?);
        Ok(Driver { standing, numbers, out, started })
    }

    /// The points that are not there: their places, and what is to be measured.
    fn missing(&self, py: Python<'_>) -> PyResult<Vec<(usize, String)>> {
        self.with(py, |standing| standing.missing().map(|(place, text)| (place, text.to_owned())).collect())
    }

    /// How many points are there, of how many.
    fn finished(&self, py: Python<'_>) -> PyResult<(usize, usize)> {
        self.with(py, |standing| (standing.finished(), standing.sweep().points.len()))
    }

    /// Keeps what was measured of the point at `place`.
    fn keep(&self, py: Python<'_>, place: usize, outcome: &str) -> PyResult<()> {
        let kept =
            self.with(py, |standing| (place < standing.sweep().points.len()).then(|| standing.keep(place, outcome)))?;
        match kept {
            None => Err(PyValueError::new_err(format!("there is no point {place}"))),
            Some(Err(KeepError::Output(error))) => Err(refused(error)),
            Some(Err(KeepError::Strange(error))) => Err(errors::run(error)),
            Some(Ok(())) => Ok(()),
        }
    }

    /// Writes the tables once all points are there or have failed, and says what the command says.
    fn tell(&self, py: Python<'_>) -> PyResult<RunResult> {
        let wall_s = self.started.elapsed().as_secs_f64();
        self.with(py, |standing| {
            let outcomes = standing.outcomes().unwrap_or_default();
            summary(standing.sweep(), &self.numbers, &self.out, &outcomes, standing.skipped(), wall_s)
        })?
    }
}
