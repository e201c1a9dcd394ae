//! Environments of any kind that are stepped together, over arrays of Python's.

use std::process;
use std::sync::{Mutex, MutexGuard, TryLockError};

use anabranch_env::vector::{Results, StepError};
use anabranch_env::{Seeds, Steps, Vector};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;

use crate::apart::apart;
use crate::arrays::{Wanted, finite};
use crate::errors;

/// A step that could not be taken, as Python's exception.
pub fn step_error(error: StepError) -> PyErr {
    errors::run(error)
}

/// Environments, and the lengths of what goes in and out.
pub struct Stepping<S> {
    vector: Mutex<Vector<S>>,
    /// How many.
    pub count: usize,
    /// Numbers in an action of one.
    pub numbers: usize,
    /// Numbers in an observation of one.
    pub row: usize,
    /// Terms of a reward.
    terms: usize,
    /// Threads that step them.
    pub threads: usize,
    /// Whose threads these are.
    process: u32,
}

/// Where a step's results go.
pub struct Room<'a, 'py> {
    /// float32, `(count, row)`.
    pub observations: &'a Bound<'py, PyAny>,
    /// float32, `(count,)`.
    pub rewards: &'a Bound<'py, PyAny>,
    /// float32, `(count, terms)`.
    pub terms: &'a Bound<'py, PyAny>,
    /// bool, `(count,)`.
    pub terminated: &'a Bound<'py, PyAny>,
    /// bool, `(count,)`.
    pub truncated: &'a Bound<'py, PyAny>,
    /// float32, `(count, row)`.
    pub last: Option<&'a Bound<'py, PyAny>>,
}

impl<S: Steps> Stepping<S> {
    /// Those of the vector, on this many threads.
    pub fn new(vector: Vector<S>, threads: usize) -> Stepping<S> {
        let first = &vector.sessions()[0];
        Stepping {
            count: vector.sessions().len(),
            numbers: first.action_len(),
            row: first.observation_len(),
            terms: first.terms_len(),
            threads: threads.min(vector.sessions().len()),
            process: process::id(),
            vector: Mutex::new(vector),
        }
    }

    /// The environments, for whoever may step them now.
    pub fn vector(&self) -> PyResult<MutexGuard<'_, Vector<S>>> {
        if self.threads > 1 && process::id() != self.process {
            return Err(PyRuntimeError::new_err(
                "this process was forked after the environments were made, and their threads are not in it: \
                 make them after the fork, start processes by \"spawn\", or use threads=1",
            ));
        }
        match self.vector.try_lock() {
            Ok(vector) => Ok(vector),
            Err(TryLockError::WouldBlock) => {
                Err(PyRuntimeError::new_err("another thread is stepping these environments; make some for each thread"))
            }
            Err(TryLockError::Poisoned(_)) => {
                Err(PyRuntimeError::new_err("these environments have failed before: make new ones"))
            }
        }
    }

    /// The shape of all observations.
    pub fn observations(&self) -> [usize; 2] {
        [self.count, self.row]
    }

    /// Begins episodes: with `seed + i`, with `seeds[i]`, or with the next of the seed before, where `mask` is true.
    pub fn reset(
        &self,
        py: Python<'_>,
        observations: &Bound<'_, PyAny>,
        seed: Option<u64>,
        seeds: Option<Vec<Option<u64>>>,
        mask: Option<Vec<bool>>,
    ) -> PyResult<()> {
        let shape = self.observations();
        let mut observations = Wanted { name: "observations", shape: &shape }.write::<f32>(observations)?;
        let observations = observations.as_slice_mut().map_err(errors::value)?;
        let lengths = [("seeds", seeds.as_ref().map(Vec::len)), ("reset_mask", mask.as_ref().map(Vec::len))];
        for (name, length) in lengths {
            if length.is_some_and(|length| length != self.count) {
                let (has, count) = (length.unwrap_or(0), self.count);
                return Err(PyValueError::new_err(format!("{name} has {has} entries, must have {count}")));
            }
        }
        let seeds = match (seed, &seeds) {
            (Some(seed), None) => Seeds::From(seed),
            (None, Some(seeds)) => Seeds::Each(seeds),
            (None, None) => Seeds::Next,
            (Some(_), Some(_)) => return Err(PyValueError::new_err("give one seed or a seed for each, and not both")),
        };
        let mut vector = self.vector()?;
        let vector = &mut *vector;
        apart(py, || vector.reset(seeds, mask.as_deref(), observations))?.map_err(step_error)
    }

    /// Takes a step in each; results are written into the arrays. Actions go from 0 to `most`, if that is said.
    pub fn step(
        &self,
        py: Python<'_>,
        actions: &Bound<'_, PyAny>,
        most: Option<f32>,
        room: Room<'_, '_>,
    ) -> PyResult<()> {
        let Room { observations, rewards, terms, terminated, truncated, last } = room;
        let (rows, each) = (self.observations(), [self.count]);
        let (action_shape, of_terms) = ([self.count, self.numbers], [self.count, self.terms]);
        let actions = Wanted { name: "actions", shape: &action_shape }.read::<f32>(actions)?;
        let actions = actions.as_slice().map_err(errors::value)?;
        finite("actions", actions, &action_shape, most)?;
        let wanted = |name, shape| Wanted { name, shape };
        let mut observations = wanted("observations", &rows).write::<f32>(observations)?;
        let mut rewards = wanted("rewards", &each).write::<f32>(rewards)?;
        let mut terms = wanted("terms", &of_terms).write::<f32>(terms)?;
        let mut terminated = wanted("terminated", &each).write::<bool>(terminated)?;
        let mut truncated = wanted("truncated", &each).write::<bool>(truncated)?;
        let mut last = last.map(|last| wanted("last", &rows).write::<f32>(last)).transpose()?;
        let results = Results {
            observations: observations.as_slice_mut().map_err(errors::value)?,
            rewards: rewards.as_slice_mut().map_err(errors::value)?,
            terms: terms.as_slice_mut().map_err(errors::value)?,
            terminated: terminated.as_slice_mut().map_err(errors::value)?,
            truncated: truncated.as_slice_mut().map_err(errors::value)?,
            last: last.as_mut().map(|last| last.as_slice_mut()).transpose().map_err(errors::value)?,
        };
        let mut vector = self.vector()?;
        let vector = &mut *vector;
        apart(py, || vector.step(actions, results))?.map_err(step_error)
    }

    /// Seconds of the present episode of an environment that have passed, which `now` says.
    pub fn now(&self, environment: usize, now: impl Fn(&S) -> anabranch_control::time::Time) -> PyResult<f64> {
        let vector = self.vector()?;
        let missing =
            || PyValueError::new_err(format!("there is no environment {environment}; there are {}", self.count));
        vector.sessions().get(environment).map(|session| now(session).as_secs_f64()).ok_or_else(missing)
    }
}
