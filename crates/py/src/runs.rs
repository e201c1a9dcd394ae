//! What the command gives, as JSON: the package makes dicts of it.

use std::fs;
use std::path::PathBuf;
use std::time::Instant;

use anabranch_control::flow::registry as flow;
use anabranch_control::path::registry::{self as path, Build};
use anabranch_lab::flows::run_files::FlowsFinished;
use anabranch_lab::flows::summary::FlowsSummary;
use anabranch_lab::overlay::run_files::Finished;
use anabranch_lab::overlay::summary::Summary;
use anabranch_lab::parallel::{Progress, run_one};
use anabranch_lab::stream::run_files::StreamFinished;
use anabranch_lab::sweep::{GridKey, Options, Outcome, Seeds, Sweep, points};
use anabranch_report::output::create_dir;
use anabranch_scenario::file::{AnyScenario, Override, parse_any};
use pyo3::exceptions::{PyFileNotFoundError, PyOSError, PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use serde_json::{Map, Value, json};

use crate::apart::interruptible;
use crate::errors;
use crate::text;

/// What Python's object says, as JSON. Keys must be texts, and there is no number that is none.
fn as_json(object: &Bound<'_, PyAny>) -> PyResult<Value> {
    let options = PyDict::new(object.py());
    options.set_item("allow_nan", false)?;
    let dumped = object.py().import("json")?.call_method("dumps", (object,), Some(&options))?;
    serde_json::from_str(dumped.extract()?).map_err(errors::value)
}

/// A scenario's text, and what errors call it.
pub fn scenario(object: &Bound<'_, PyAny>) -> PyResult<(String, String)> {
    if object.is_instance_of::<PyDict>() {
        return Ok((text::scenario(as_json(object)?).map_err(errors::scenario)?, "the dict".to_owned()));
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
        let value = text::value(&key, value).map_err(errors::scenario)?.to_string();
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

/// Runs a scenario; what `anabranch run --json` prints.
#[pyfunction]
#[pyo3(signature = (scenario, overrides=None, seed=None, out=None))]
pub fn run(
    py: Python<'_>,
    scenario: &Bound<'_, PyAny>,
    overrides: Option<&Bound<'_, PyDict>>,
    seed: Option<u64>,
    out: Option<PathBuf>,
) -> PyResult<String> {
    let (text, name) = self::scenario(scenario)?;
    let mut overrides = self::overrides(overrides)?;
    overrides.extend(seed.map(|seed| Override::new(format!("seed={seed}"), "run.seed", seed.to_string())));
    let scenario = parse_any(&text, &name, &overrides).map_err(errors::scenario)?;
    if let Some(out) = &out {
        create_dir(out).map_err(|error| PyOSError::new_err(error.to_string()))?;
    }
    interruptible(py, |progress| measured(scenario, &name, out.as_deref(), progress))?
}

fn measured(scenario: AnyScenario, name: &str, out: Option<&std::path::Path>, progress: &Progress) -> PyResult<String> {
    let started = Instant::now();
    let written = |error: anabranch_report::output::OutputError| PyOSError::new_err(error.to_string());
    let object = match scenario {
        AnyScenario::Overlay(scenario) => {
            let measured = run_one(&scenario, progress).map_err(errors::run)?;
            let (summary, wall_s) = (Summary::of(&measured), started.elapsed().as_secs_f64());
            let finished = Finished { scenario: &scenario, measured: &measured, summary: &summary, name, wall_s };
            out.map(|out| finished.write(out)).transpose().map_err(written)?;
            finished.to_json()
        }
        AnyScenario::Flows(mut scenario) => {
            if out.is_none() {
                // Only files show it.
                scenario.sample_every = None;
            }
            let measured = run_one(&scenario, progress).map_err(errors::run)?;
            let (summary, wall_s) = (FlowsSummary::of(&scenario, &measured), started.elapsed().as_secs_f64());
            let finished = FlowsFinished { scenario: &scenario, measured: &measured, summary: &summary, name, wall_s };
            out.map(|out| finished.write(out)).transpose().map_err(written)?;
            finished.to_json()
        }
        AnyScenario::Stream(scenario) => {
            let measured = run_one(&scenario, progress).map_err(errors::run)?;
            let wall_s = started.elapsed().as_secs_f64();
            let finished = StreamFinished { scenario: &scenario, measured: &measured, name, wall_s };
            out.map(|out| finished.write(out)).transpose().map_err(written)?;
            finished.to_json()
        }
    };
    Ok(object.to_string())
}

fn grid_keys(grid: &Bound<'_, PyDict>) -> PyResult<Vec<GridKey>> {
    let Value::Object(grid) = as_json(grid)? else { return Err(PyRuntimeError::new_err("a dict is an object")) };
    let one = |(key, values): (String, Value)| match values {
        Value::Array(list) if !list.is_empty() => {
            let values = list.into_iter().map(|value| match value {
                // As the command has them: quotes would stand in the table.
                Value::String(text) => Ok(text),
                value => Ok(text::value(&key, value).map_err(errors::scenario)?.to_string()),
            });
            let values = values.collect::<PyResult<Vec<String>>>()?;
            if let Some(twice) = values.iter().enumerate().find(|(at, value)| values[..*at].contains(value)) {
                return Err(PyValueError::new_err(format!("grid[\"{key}\"] has {} twice", twice.1)));
            }
            Ok(GridKey { key, values })
        }
        other => Err(PyValueError::new_err(format!("grid[\"{key}\"] is {other}, must be a list of values"))),
    };
    grid.into_iter().map(one).collect()
}

/// Runs a scenario over a grid of values and seeds; what `anabranch sweep --json` prints.
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
) -> PyResult<String> {
    let (text, name) = self::scenario(scenario)?;
    let seeds = seeds.map(|seeds| seeds.extract().map(Seeds)).transpose()?;
    let (grid, overrides) = (grid_keys(grid)?, self::overrides(overrides)?);
    if threads == Some(0) {
        return Err(PyValueError::new_err("threads is 0, must be 1 or more"));
    }
    let points = points(&text, &name, &overrides, &grid, seeds.as_ref()).map_err(errors::scenario)?;
    create_dir(&out).map_err(|error| PyOSError::new_err(error.to_string()))?;
    let sweep = Sweep { name, text, grid, points };
    interruptible(py, |progress| {
        let started = Instant::now();
        let swept = sweep.run(&out, Options { threads, again }, progress).map_err(errors::run)?;
        let skipped = swept.skipped;
        let outcomes: Option<Vec<Outcome>> = swept.outcomes.into_iter().collect();
        // Who is interrupted gets the signal's exception instead.
        let outcomes = outcomes.unwrap_or_default();
        let mut object = Map::new();
        if outcomes.len() == sweep.points.len() {
            sweep.write(&out, &outcomes).map_err(|error| PyOSError::new_err(error.to_string()))?;
            let Value::Object(results) = sweep.to_json(&outcomes) else { unreachable!("results are an object") };
            object.extend(results);
        }
        object.insert("scenario".into(), json!(sweep.name));
        object.insert("finished".into(), json!(outcomes.len()));
        object.insert("skipped".into(), json!(skipped));
        object.insert("wall_s".into(), json!(started.elapsed().as_secs_f64()));
        Ok(Value::Object(object).to_string())
    })?
}
