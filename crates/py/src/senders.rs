//! Environments whose agent is one flow's sender, over arrays of Python's.

use std::sync::Arc;

use anabranch_env::sender::{Actions, Preset, Setting};
use anabranch_env::spec::Source;
use anabranch_env::{Sender, Vector};
use anabranch_scenario::file::parse_flows;
use anabranch_scenario::policy::flow::FlowPurpose;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::apart::apart;
use crate::environments::{autoreset_named, check_counts};
use crate::stepping::{Room, Stepping};
use crate::{errors, runs};

/// Environments of one preset, which are stepped together; what is seen of each does not depend on how many there are.
#[pyclass(frozen, module = "anabranch._native")]
pub struct Senders {
    stepping: Stepping<Sender>,
    setting: &'static Setting,
    preset: Preset,
}

impl Senders {
    /// What a policy is for that controls a flow as here.
    ///
    /// # Errors
    ///
    /// When an action is a choice.
    pub fn purpose(&self) -> PyResult<FlowPurpose> {
        self.preset.purpose().ok_or_else(|| {
            errors::value(format!(
                "an action of the preset \"{}\" is a choice, and the controller \"policy\" takes a number that changes a rate: expected \
                 the preset \"aurora\"",
                self.preset.name()
            ))
        })
    }
}

#[pymethods]
impl Senders {
    #[new]
    #[pyo3(signature = (preset, *, scenario=None, overrides=None, count=1, seed=0, threads=1, autoreset="Disabled"))]
    #[expect(clippy::too_many_arguments, reason = "they have names where they are called")]
    fn new(
        py: Python<'_>,
        preset: &str,
        scenario: Option<&Bound<'_, PyAny>>,
        overrides: Option<&Bound<'_, PyDict>>,
        count: usize,
        seed: u64,
        threads: usize,
        autoreset: &str,
    ) -> PyResult<Senders> {
        let preset = Preset::named(preset).ok_or_else(|| {
            let known = Preset::ALL.map(|(name, _)| name).join(", ");
            errors::value(format!("there is no preset \"{preset}\"; there are: {known}"))
        })?;
        check_counts(count, threads)?;
        let source = match scenario {
            None => preset.source(),
            Some(scenario) => {
                let (text, name) = runs::scenario(scenario)?;
                let scenario = parse_flows(&text, &name, &runs::overrides(overrides)?).map_err(errors::scenario)?;
                Source::Fixed(Arc::new(scenario))
            }
        };
        let autoreset = autoreset_named(autoreset)?;
        let make = |seed| Sender::new(preset, source.clone(), seed);
        let vector = apart(py, || Vector::making(make, count, seed, threads, autoreset))?.map_err(errors::vector)?;
        Ok(Senders { stepping: Stepping::new(vector, threads), setting: preset.setting(), preset })
    }

    /// How many.
    #[getter]
    fn count(&self) -> usize {
        self.stepping.count
    }

    /// Numbers in an action: the agent is one.
    #[getter]
    fn hosts(&self) -> usize {
        self.stepping.numbers
    }

    /// Numbers in an observation.
    #[getter]
    fn observation_len(&self) -> usize {
        self.stepping.row
    }

    /// Threads that step them.
    #[getter]
    fn threads(&self) -> usize {
        self.stepping.threads
    }

    /// The least and the most of an action; none where one is chosen by its number.
    #[getter]
    fn range(&self) -> Option<(f32, f32)> {
        match self.setting.actions {
            Actions::Range(low, high) => Some((low, high)),
            Actions::Choice(_) => None,
        }
    }

    /// How many actions there are; none where they are a range.
    #[getter]
    fn choices(&self) -> Option<usize> {
        match self.setting.actions {
            Actions::Range(..) => None,
            Actions::Choice(count) => Some(count),
        }
    }

    /// Steps in an observation, the newest first.
    #[getter]
    fn history(&self) -> usize {
        self.setting.history
    }

    /// What is seen of a step: name, what it measures, least, most, and whether a sender can know it.
    #[getter]
    fn features(&self) -> Vec<(&'static str, &'static str, f32, f32, bool)> {
        self.setting.seen.iter().map(|seen| (seen.name, seen.unit, seen.low, seen.high, true)).collect()
    }

    /// The terms of a reward, in the order of an array of them.
    #[getter]
    fn terms(&self) -> &'static [&'static str] {
        self.setting.terms
    }

    /// Begins episodes: with `seed + i`, with `seeds[i]`, or with the next of the seed before, where `mask` is true.
    #[pyo3(signature = (observations, seed=None, seeds=None, mask=None))]
    fn reset(
        &self,
        py: Python<'_>,
        observations: &Bound<'_, PyAny>,
        seed: Option<u64>,
        seeds: Option<Vec<Option<u64>>>,
        mask: Option<Vec<bool>>,
    ) -> PyResult<()> {
        self.stepping.reset(py, observations, seed, seeds, mask)
    }

    /// Takes a step in each; results are written into the arrays.
    #[pyo3(signature = (actions, observations, rewards, terms, terminated, truncated, last=None))]
    #[expect(clippy::too_many_arguments, reason = "a step has as many results")]
    fn step(
        &self,
        py: Python<'_>,
        actions: &Bound<'_, PyAny>,
        observations: &Bound<'_, PyAny>,
        rewards: &Bound<'_, PyAny>,
        terms: &Bound<'_, PyAny>,
        terminated: &Bound<'_, PyAny>,
        truncated: &Bound<'_, PyAny>,
        last: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let room = Room { observations, rewards, terms, terminated, truncated, last };
        self.stepping.step(py, actions, None, room)
    }

    /// Seconds of the present episode of an environment that have passed.
    fn now(&self, environment: usize) -> PyResult<f64> {
        self.stepping.now(environment, Sender::now)
    }

    /// What the flow of an environment may have in flight, in packets, and its pace in packets a second, if it has one.
    fn limits(&self, environment: usize) -> PyResult<(f64, Option<f64>)> {
        let vector = self.stepping.vector()?;
        let missing =
            || errors::value(format!("there is no environment {environment}; there are {}", self.stepping.count));
        vector.sessions().get(environment).map(Sender::limits).ok_or_else(missing)
    }
}
