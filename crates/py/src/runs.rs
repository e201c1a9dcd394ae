//! What the command gives, as JSON: the package makes dicts of it.

use std::fmt::Display;
use std::fs;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anabranch_control::flow::registry as flow;
use anabranch_control::path::registry::{self as path, Build};
use anabranch_lab::finished::{Application, FinishedRun};
use anabranch_lab::flows::run_files::FlowsFinished;
use anabranch_lab::flows::summary::FlowsSummary;
use anabranch_lab::overlay::run_files::Finished;
use anabranch_lab::overlay::summary::Summary;
use anabranch_lab::parallel::{Progress, run_alone, run_one};
use anabranch_report::output::{Column, OutputError, Table as Columns, create_dir};
use anabranch_scenario::file::{AnyScenario, Override, parse_any};
use anabranch_scenario::json;
use pyo3::exceptions::{PyFileNotFoundError, PyOSError, PyRuntimeError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use serde_json::{Map, Value, json};

use crate::apart::interruptible;
use crate::errors;
use crate::plain::as_json;
use crate::tables::Table;

/// A scenario's text, and what errors call it.
pub fn scenario(object: &Bound<'_, PyAny>) -> PyResult<(String, String)> {
    if object.is_instance_of::<PyDict>() {
        return Ok((json::scenario(as_json(object)?).map_err(errors::scenario)?, "the dict".to_owned()));
    }
    let Ok(path) = object.extract::<PathBuf>() else {
        let kind = object.get_type().name()?;
        return Err(PyTypeError::new_err(format!("a scenario is the path of a file or a dict, not of type {kind}")));
    };
    let text = fs::read_to_string(&path).map_err(|error| {
        let text = format!("{}: {error}", path.display());
        if error.kind() == std::io::ErrorKind::NotFound {
            PyFileNotFoundError::new_err(text)
        } else {
            PyOSError::new_err(text)
        }
    })?;
    Ok((text, path.display().to_string()))
}

/// What is said in place of a scenario's own: values by their keys.
pub fn overrides(object: Option<&Bound<'_, PyDict>>) -> PyResult<Vec<Override>> {
    let Some(object) = object else { return Ok(Vec::new()) };
    let Value::Object(values) = as_json(object)? else { return Err(PyRuntimeError::new_err("a dict is an object")) };
    let one = |(key, value): (String, Value)| {
        let value = json::value(&key, value).map_err(errors::scenario)?.to_string();
        Ok(Override::new(format!("overrides[\"{key}\"]"), key, value))
    };
    values.into_iter().map(one).collect()
}

/// What can be asked for by name, as JSON.
#[pyfunction]
pub fn controllers() -> String {
    let paths = path::CONTROLLERS.iter().map(|entry| {
        let is_real = !matches!(entry.build, Build::Omniscient);
        json!({ "name": entry.name, "kind": "path", "summary": entry.summary, "source": entry.source,
                "real_network": is_real, "needs": null })
    });
    let flows = flow::CONTROLLERS.iter().map(|entry| {
        json!({ "name": entry.name, "kind": "flow", "summary": entry.summary, "source": entry.source,
                "real_network": true, "needs": entry.needs() })
    });
    Value::Array(paths.chain(flows).collect()).to_string()
}

/// What is a result: JSON, and tables by their names.
pub type RunResult = (String, Vec<(&'static str, Table)>);

/// Runs a scenario; what `anabranch run --json` prints, and its series.
#[pyfunction]
#[pyo3(signature = (scenario, overrides=None, seed=None, out=None, threads=None))]
pub fn run(
    py: Python<'_>,
    scenario: &Bound<'_, PyAny>,
    overrides: Option<&Bound<'_, PyDict>>,
    seed: Option<u64>,
    out: Option<PathBuf>,
    threads: Option<NonZeroUsize>,
) -> PyResult<RunResult> {
    let (text, name) = self::scenario(scenario)?;
    let mut overrides = self::overrides(overrides)?;
    overrides.extend(seed.map(|seed| Override::new(format!("seed={seed}"), "run.seed", seed.to_string())));
    let scenario = parse_any(&text, &name, &overrides).map_err(errors::scenario)?;
    if let Some(out) = &out {
        create_dir(out).map_err(|error| PyOSError::new_err(error.to_string()))?;
    }
    interruptible(py, |progress| measured(scenario, &name, out.as_deref(), threads, progress))?
}

fn written(error: OutputError) -> PyErr {
    PyOSError::new_err(error.to_string())
}

/// The summary and the series of an application's run.
fn application<S: Application>(
    scenario: &S,
    name: &str,
    out: Option<&Path>,
    progress: &Progress,
) -> PyResult<(Value, Columns)>
where
    S::Error: Display,
{
    let started = Instant::now();
    let measured = run_one(scenario, progress).map_err(errors::run)?;
    let wall_s = started.elapsed().as_secs_f64();
    let finished = FinishedRun { scenario, measured: &measured, name, wall_s };
    out.map(|out| finished.write(out)).transpose().map_err(written)?;
    Ok((finished.to_json(), finished.series()))
}

fn measured(
    scenario: AnyScenario,
    name: &str,
    out: Option<&Path>,
    threads: Option<NonZeroUsize>,
    progress: &Progress,
) -> PyResult<RunResult> {
    let started = Instant::now();
    let (object, series) = match scenario {
        AnyScenario::Overlay(scenario) => {
            let measured = run_alone(&scenario, threads, progress).map_err(errors::run)?;
            let (summary, wall_s) = (Summary::of(&measured), started.elapsed().as_secs_f64());
            let finished = Finished { scenario: &scenario, measured: &measured, summary: &summary, name, wall_s };
            out.map(|out| finished.write(out)).transpose().map_err(written)?;
            (finished.to_json(), finished.series())
        }
        AnyScenario::Flows(scenario) => {
            let measured = run_one(&scenario, progress).map_err(errors::run)?;
            let (summary, wall_s) = (FlowsSummary::of(&scenario, &measured), started.elapsed().as_secs_f64());
            let finished = FlowsFinished { scenario: &scenario, measured: &measured, summary: &summary, name, wall_s };
            out.map(|out| finished.write(out)).transpose().map_err(written)?;
            (finished.to_json(), finished.series())
        }
        AnyScenario::Stream(scenario) => application(&scenario, name, out, progress)?,
        AnyScenario::Onion(scenario) => application(&scenario, name, out, progress)?,
    };
    let metrics = one_row(object["metrics"].as_object());
    Ok((object.to_string(), vec![("series", Table::of(series)?), ("metrics", Table::of(metrics)?)]))
}

/// Numbers as a table of one row.
fn one_row(numbers: Option<&Map<String, Value>>) -> Columns {
    let numbers = numbers.into_iter().flatten();
    numbers.fold(Columns::new(), |table, (name, value)| {
        table.column(name, Column::F64(vec![value.as_f64().unwrap_or(f64::NAN)]))
    })
}
