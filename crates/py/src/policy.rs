//! A policy whose weights come as arrays.

use anabranch_env::policy::{Activation, Layer, Policy as Network, Scratch};
use numpy::{PyUntypedArray, PyUntypedArrayMethods};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;

use crate::arrays::Wanted;
use crate::errors;

/// A network of fully connected layers that says rates; its answers are the same bits on every machine.
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
    fn new(
        layers: Vec<(Bound<'_, PyAny>, Bound<'_, PyAny>)>,
        activation: &str,
        mean: &Bound<'_, PyAny>,
        deviation: &Bound<'_, PyAny>,
    ) -> PyResult<Policy> {
        let known = Activation::named(activation);
        let known = known.ok_or_else(|| {
            let names = Activation::ALL.map(|(name, _)| name).join(", ");
            PyValueError::new_err(format!("there is no activation \"{activation}\"; there are: {names}"))
        })?;
        let layer = |(number, (weights, biases)): (usize, &(Bound<'_, PyAny>, Bound<'_, PyAny>))| {
            let (weights, shape) = numbers(&format!("layers[{number}][0]"), weights, 2)?;
            let (biases, _) = numbers(&format!("layers[{number}][1]"), biases, 1)?;
            if shape[1] != biases.len() {
                let (outputs, has) = (shape[1], biases.len());
                let text = format!(
                    "layers[{number}] has weights for {outputs} outputs and {has} biases, must have one for each"
                );
                return Err(PyValueError::new_err(text));
            }
            Ok(Layer { weights, biases })
        };
        let layers = layers.iter().enumerate().map(layer).collect::<PyResult<Vec<_>>>()?;
        let (mean, deviation) = (numbers("mean", mean, 1)?.0, numbers("deviation", deviation, 1)?.0);
        Network::new(layers, known, mean, deviation).map(Policy).map_err(errors::value)
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

    /// The rates for an observation of so many hosts with so many features.
    fn rates(
        &self,
        observation: &Bound<'_, PyAny>,
        hosts: usize,
        features: usize,
        history: usize,
        into: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let reading = self.0.reading(hosts, features, history).map_err(errors::value)?;
        let (seen, told) = ([hosts * features * history], [hosts]);
        let observation = Wanted { name: "observation", shape: &seen }.read::<f32>(observation)?;
        let mut rates = Wanted { name: "rates", shape: &told }.write::<f32>(into)?;
        let (observation, rates) =
            (observation.as_slice().map_err(errors::value)?, rates.as_slice_mut().map_err(errors::value)?);
        self.0.rates(reading, observation, &mut Scratch::default(), rates);
        Ok(())
    }
}
