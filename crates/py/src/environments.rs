//! Environments that are stepped together, over arrays of Python's.

use std::collections::BTreeMap;
use std::sync::Arc;

use anabranch_env::feature::Feature;
use anabranch_env::options::{About, Options};
use anabranch_env::rollout::{Rollout, RolloutError};
use anabranch_env::vector::MOST_ENVIRONMENTS;
use anabranch_env::{Autoreset, Session, Spec, Terms, Vector, action, catalogue, oracle};
use anabranch_scenario::file::parse_flows;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::apart::apart;
use crate::arrays::{Wanted, finite};
use crate::policy::Policy;
use crate::stepping::{Room, Stepping, step_error};
use crate::{errors, runs};

/// Steps of a rollout between two questions whether somebody has pressed Ctrl-C.
const STEPS_BETWEEN_SIGNALS: usize = 2048;

/// The most threads: more only wait for one another.
const MOST_THREADS: usize = 1024;

/// Environments by name: a line on each.
#[pyfunction]
pub fn environments() -> Vec<(&'static str, &'static str)> {
    catalogue::ALL.iter().map(|environment| (environment.name, environment.about)).collect()
}

/// What can be observed: name, what it measures, least, most, and whether a coordinator of real hosts can know it.
#[pyfunction]
pub fn features() -> Vec<(&'static str, &'static str, f32, f32, bool)> {
    Feature::ALL.into_iter().map(row).collect()
}

fn row(feature: Feature) -> (&'static str, &'static str, f32, f32, bool) {
    let (least, most) = feature.range();
    (feature.name(), feature.unit(), least, most, feature.is_deployable())
}

/// Whether `count` environments on `threads` threads are within the bounds.
pub fn check_counts(count: usize, threads: usize) -> PyResult<()> {
    for (name, value, most) in [("num_envs", count, MOST_ENVIRONMENTS), ("threads", threads, MOST_THREADS)] {
        if !(1..=most).contains(&value) {
            return Err(PyValueError::new_err(format!("{name} is {value}, must be from 1 to {most}")));
        }
    }
    Ok(())
}

pub fn autoreset_named(name: &str) -> PyResult<Autoreset> {
    match name {
        "NextStep" => Ok(Autoreset::NextStep),
        "SameStep" => Ok(Autoreset::SameStep),
        "Disabled" => Ok(Autoreset::Disabled),
        _ => Err(errors::value(format!("autoreset is \"{name}\", must be NextStep, SameStep or Disabled"))),
    }
}

/// What is reported of a link at an instant, and of each host.
type Seen = ((f64, f64, f64), Vec<(f64, f64, f64, f64)>);

/// Environments of one kind, which are stepped together; what is seen of each does not depend on how many there are.
#[pyclass(frozen, module = "anabranch._native")]
pub struct Environments {
    stepping: Stepping<Session>,
    spec: Arc<Spec>,
}

impl Environments {
    /// What each of them is.
    pub fn spec(&self) -> &Spec {
        &self.spec
    }
}

#[pymethods]
impl Environments {
    #[new]
    #[pyo3(signature = (
        environment=None, *, scenario=None, overrides=None, count=1, seed=0, threads=1, autoreset="Disabled", link=None,
        interval=None, actuator=None, features=None, deployable=false, history=None, delay=None, agents=None, weights=None
    ))]
    #[expect(clippy::too_many_arguments, reason = "they have names where they are called")]
    fn new(
        py: Python<'_>,
        environment: Option<String>,
        scenario: Option<&Bound<'_, PyAny>>,
        overrides: Option<&Bound<'_, PyDict>>,
        count: usize,
        seed: u64,
        threads: usize,
        autoreset: &str,
        link: Option<String>,
        interval: Option<f64>,
        actuator: Option<String>,
        features: Option<Vec<String>>,
        deployable: bool,
        history: Option<usize>,
        delay: Option<usize>,
        agents: Option<String>,
        weights: Option<BTreeMap<String, f64>>,
    ) -> PyResult<Environments> {
        let about = match (environment, scenario) {
            (Some(name), None) => About::Named(name),
            (None, Some(scenario)) => {
                let (text, name) = runs::scenario(scenario)?;
                let scenario = parse_flows(&text, &name, &runs::overrides(overrides)?).map_err(errors::scenario)?;
                About::Scenario(Arc::new(scenario))
            }
            _ => return Err(PyValueError::new_err("give the name of an environment or a scenario, and not both")),
        };
        check_counts(count, threads)?;
        let options = Options {
            link,
            interval_s: interval,
            actuator,
            agents,
            features,
            deployable,
            history,
            delay,
            weights: weights.unwrap_or_default().into_iter().collect(),
        };
        let spec = Arc::new(options.spec(&about).map_err(errors::value)?);
        let autoreset = autoreset_named(autoreset)?;
        let vector = apart(py, || Vector::new(&spec, count, seed, threads, autoreset))?.map_err(errors::vector)?;
        Ok(Environments { stepping: Stepping::new(vector, threads), spec })
    }

    /// How many.
    #[getter]
    fn count(&self) -> usize {
        self.stepping.count
    }

    /// Numbers in an action.
    #[getter]
    pub fn hosts(&self) -> usize {
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

    /// The highest number of an action.
    #[getter]
    fn most(&self) -> f32 {
        self.spec.actuator.most()
    }

    /// Seconds between two actions.
    #[getter]
    fn interval(&self) -> f64 {
        self.spec.interval.as_secs_f64()
    }

    /// Observations in one.
    #[getter]
    fn history(&self) -> usize {
        self.spec.history
    }

    /// Steps that an observation is late.
    #[getter]
    fn delay(&self) -> usize {
        self.spec.delay
    }

    /// How a rate becomes a window.
    #[getter]
    fn actuator(&self) -> &'static str {
        let of = self.spec.actuator;
        action::Actuator::ALL.iter().find(|(_, actuator)| *actuator == of).map_or("", |(name, _)| name)
    }

    /// A host's row of an observation, as `features` has them.
    #[getter]
    fn features(&self) -> Vec<(&'static str, &'static str, f32, f32, bool)> {
        self.spec.features.iter().copied().map(row).collect()
    }

    /// The terms of a reward, in the order of an array of them.
    #[getter]
    fn terms(&self) -> [&'static str; Terms::NAMES.len()] {
        Terms::NAMES
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
        self.stepping.step(py, actions, Some(self.spec.actuator.most()), room)
    }

    /// A policy acts for many steps; what is seen, directed and paid is written into the arrays, environment by
    /// environment.
    #[pyo3(signature = (policy, steps, observations, actions, rewards, terminated, truncated, next, deviations))]
    #[expect(clippy::too_many_arguments, reason = "a rollout has as many results")]
    fn rollout(
        &self,
        py: Python<'_>,
        policy: &Policy,
        steps: usize,
        observations: &Bound<'_, PyAny>,
        actions: &Bound<'_, PyAny>,
        rewards: &Bound<'_, PyAny>,
        terminated: &Bound<'_, PyAny>,
        truncated: &Bound<'_, PyAny>,
        next: &Bound<'_, PyAny>,
        deviations: Vec<f32>,
    ) -> PyResult<()> {
        if steps == 0 {
            return Err(PyValueError::new_err("steps is 0, must be 1 or more"));
        }
        finite("deviations", &deviations, &[deviations.len()], None)?;
        let (seen, action_shape, each) = (
            [self.stepping.count, steps, self.stepping.row],
            [self.stepping.count, steps, self.stepping.numbers],
            [self.stepping.count, steps],
        );
        let rows = self.stepping.observations();
        let wanted = |name, shape| Wanted { name, shape };
        let mut observations = wanted("observations", &seen).write::<f32>(observations)?;
        let mut actions = wanted("actions", &action_shape).write::<f32>(actions)?;
        let mut rewards = wanted("rewards", &each).write::<f32>(rewards)?;
        let mut terminated = wanted("terminated", &each).write::<bool>(terminated)?;
        let mut truncated = wanted("truncated", &each).write::<bool>(truncated)?;
        let mut next = wanted("next", &rows).write::<f32>(next)?;
        let mut vector = self.stepping.vector()?;
        let vector = &mut *vector;
        let piece = (STEPS_BETWEEN_SIGNALS / self.stepping.count).max(1);
        for begin in (0..steps).step_by(piece) {
            let room = Rollout {
                observations: observations.as_slice_mut().map_err(errors::value)?,
                actions: actions.as_slice_mut().map_err(errors::value)?,
                rewards: rewards.as_slice_mut().map_err(errors::value)?,
                terminated: terminated.as_slice_mut().map_err(errors::value)?,
                truncated: truncated.as_slice_mut().map_err(errors::value)?,
                next: next.as_slice_mut().map_err(errors::value)?,
            };
            let range = begin..(begin + piece).min(steps);
            let done = apart(py, || vector.rollout(&policy.0, &deviations, steps, range, room))?;
            done.map_err(|error| match error {
                RolloutError::Step(error) => step_error(error),
                other => errors::value(other),
            })?;
            py.check_signals()?;
        }
        Ok(())
    }

    /// What the rule, one that expects the last period, or the oracle would tell each host now.
    fn directed_by(&self, py: Python<'_>, who: &str, actions: &Bound<'_, PyAny>) -> PyResult<()> {
        let direct: fn(&mut Session, &mut [f32]) = match who {
            "rule" => |session, rates| oracle::rule(session, rates),
            "period" => |session, rates| oracle::period(session, 0, rates),
            "oracle" => oracle::oracle,
            _ => return Err(errors::value(format!("there is no baseline \"{who}\"; there are: rule, period, oracle"))),
        };
        let shape = [self.stepping.count, self.stepping.numbers];
        let mut actions = Wanted { name: "actions", shape: &shape }.write::<f32>(actions)?;
        let actions = actions.as_slice_mut().map_err(errors::value)?;
        let mut vector = self.stepping.vector()?;
        let (vector, hosts) = (&mut *vector, self.stepping.numbers);
        apart(py, || {
            let sessions = vector.sessions_mut().iter_mut().zip(actions.chunks_exact_mut(hosts));
            sessions.for_each(|(session, rates)| direct(session, rates));
        })
    }

    /// What was seen of an environment last, without delay: of the link the queue, what was dropped, and cross traffic; of each
    /// host the rate that it was directed, what it carried, its round trip over its least, and what it lost.
    fn seen(&self, environment: usize) -> PyResult<Seen> {
        let vector = self.stepping.vector()?;
        let missing =
            || errors::value(format!("there is no environment {environment}; there are {}", self.stepping.count));
        let session = vector.sessions().get(environment).ok_or_else(missing)?;
        let (link, hosts) = (session.link(), session.of_agents().iter());
        let hosts = hosts.map(|host| (host.rate, host.throughput, host.round_trip, host.loss)).collect();
        Ok(((link.queue, link.dropped, link.cross), hosts))
    }

    /// Seconds of the present episode of an environment that have passed.
    fn now(&self, environment: usize) -> PyResult<f64> {
        self.stepping.now(environment, Session::now)
    }
}
