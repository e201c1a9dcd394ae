//! A policy whose weights come as arrays.

use std::sync::{Mutex, PoisonError};

use anabranch_env::policy::{Activation, Cell, Layer, Policy as Network, Scratch};
use numpy::{PyUntypedArray, PyUntypedArrayMethods};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;

use crate::arrays::Wanted;
use crate::errors;

/// What a policy with memory remembers of one course of observations.
#[pyclass(frozen, module = "anabranch._native")]
#[derive(Default)]
pub struct Memory(Mutex<Scratch>);

#[pymethods]
impl Memory {
    #[new]
    fn new() -> Memory {
        Memory::default()
    }

    /// Another course begins.
    fn forget(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).forget();
    }
}

/// A layer of Python's: weights and biases.
type Pair<'py> = (Bound<'py, PyAny>, Bound<'py, PyAny>);

fn layer(name: &str, (weights, biases): &Pair<'_>) -> PyResult<Layer> {
    let (weights, shape) = numbers(&format!("{name}[0]"), weights, 2)?;
    let (biases, _) = numbers(&format!("{name}[1]"), biases, 1)?;
    if shape[1] != biases.len() {
        let (outputs, has) = (shape[1], biases.len());
        let text = format!("{name} has weights for {outputs} outputs and {has} biases, must have one for each");
        return Err(PyValueError::new_err(text));
    }
    Ok(Layer { weights, biases })
}

/// A network of fully connected layers that says rates, with or without memory; its answers are the same bits on every machine.
#[pyclass(frozen, module = "anabranch._native")]
pub struct Policy(pub Network);

fn numbers(name: &str, array: &Bound<'_, PyAny>, dimensions: usize) -> PyResult<(Vec<f32>, Vec<usize>)> {
    let shape = match array.cast::<PyUntypedArray>() {
        Ok(array) => array.shape().to_vec(),
        Err(_) => {
            let kind = array.get_type().name()?;
            return Err(PyTypeError::new_err(format!("{name} is of type {kind}, must be a numpy array of float32")));
        }
    };
    if shape.len() != dimensions {
        let has = shape.len();
        return Err(PyValueError::new_err(format!("{name} has {has} dimensions, must have {dimensions}")));
    }
    let values = Wanted { name, shape: &shape }.read::<f32>(array)?;
    Ok((values.as_slice().map_err(errors::value)?.to_vec(), shape))
}

#[pymethods]
impl Policy {
    #[new]
    #[pyo3(signature = (layers, activation, mean, deviation, known=None, cell=None))]
    fn new(
        layers: Vec<Pair<'_>>,
        activation: &str,
        mean: &Bound<'_, PyAny>,
        deviation: &Bound<'_, PyAny>,
        known: Option<Pair<'_>>,
        cell: Option<(Pair<'_>, Pair<'_>)>,
    ) -> PyResult<Policy> {
        let between = Activation::named(activation);
        let between = between.ok_or_else(|| {
            let names = Activation::ALL.map(|(name, _)| name).join(", ");
            PyValueError::new_err(format!("there is no activation \"{activation}\"; there are: {names}"))
        })?;
        let named = |(number, pair): (usize, &Pair<'_>)| layer(&format!("layers[{number}]"), pair);
        let layers = layers.iter().enumerate().map(named).collect::<PyResult<Vec<_>>>()?;
        let (mean, deviation) = (numbers("mean", mean, 1)?.0, numbers("deviation", deviation, 1)?.0);
        let network = match &cell {
            None => Network::new(layers, between, mean, deviation),
            Some((inputs, state)) => {
                let cell = Cell { inputs: layer("cell[0]", inputs)?, state: layer("cell[1]", state)? };
                Network::recurrent(cell, layers, between, mean, deviation)
            }
        };
        let mut network = network.map_err(errors::value)?;
        if let Some((least, most)) = &known {
            let (least, most) = (numbers("least", least, 1)?.0, numbers("most", most, 1)?.0);
            network = network.with_known(least, most).map_err(errors::value)?;
        }
        Ok(Policy(network))
    }

    /// Numbers that it sees.
    #[getter]
    fn inputs(&self) -> usize {
        self.0.inputs()
    }

    /// Numbers that it says.
    #[getter]
    fn outputs(&self) -> usize {
        self.0.outputs()
    }

    /// Whether it remembers.
    #[getter]
    fn remembers(&self) -> bool {
        self.0.cell().is_some()
    }

    /// The rates for an observation of this many hosts with this many features; one that remembers goes on from what `memory`
    /// was shown.
    fn rates(
        &self,
        observation: &Bound<'_, PyAny>,
        hosts: usize,
        features: usize,
        history: usize,
        into: &Bound<'_, PyAny>,
        memory: &Memory,
    ) -> PyResult<()> {
        let reading = self.0.reading(hosts, features, history).map_err(errors::value)?;
        let (seen, rates_shape) = ([hosts * features * history], [hosts]);
        let observation = Wanted { name: "observation", shape: &seen }.read::<f32>(observation)?;
        let mut rates = Wanted { name: "rates", shape: &rates_shape }.write::<f32>(into)?;
        let (observation, rates) =
            (observation.as_slice().map_err(errors::value)?, rates.as_slice_mut().map_err(errors::value)?);
        let mut scratch = memory.0.lock().unwrap_or_else(PoisonError::into_inner);
        self.0.rates(reading, observation, &mut scratch, rates);
        Ok(())
    }
}
