//! Arrays as they come from Python, or a word on what would be right.

use numpy::{Element, PyArrayDyn, PyArrayMethods, PyReadonlyArrayDyn, PyReadwriteArrayDyn, PyUntypedArrayMethods};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;

/// What an array must be.
#[derive(Clone, Copy)]
pub struct Wanted<'a> {
    pub name: &'a str,
    pub shape: &'a [usize],
}

/// A type of numbers, with numpy's name.
pub trait Number: Element + Copy {
    const NAME: &'static str;
}

impl Number for f32 {
    const NAME: &'static str = "float32";
}

impl Number for bool {
    const NAME: &'static str = "bool";
}

/// A shape as Python writes it.
fn tuple(shape: &[usize]) -> String {
    match shape {
        [one] => format!("({one},)"),
        _ => format!("({})", shape.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")),
    }
}

impl Wanted<'_> {
    fn array<'py, T: Number>(self, array: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyArrayDyn<T>>> {
        let Wanted { name, shape } = self;
        let Ok(found) = array.cast::<PyArrayDyn<T>>() else {
            let wanted = T::NAME;
            let kind = match array.getattr("dtype") {
                Ok(dtype) => format!("has the dtype {dtype}, must have {wanted}: {name}.astype(numpy.{wanted})"),
                Err(_) => {
                    let kind = array.get_type().name()?;
                    format!("is of type {kind}, must be a numpy array of {wanted} with the shape {}", tuple(shape))
                }
            };
            return Err(PyTypeError::new_err(format!("{name} {kind}")));
        };
        if found.shape() != shape {
            let (has, must) = (tuple(found.shape()), tuple(shape));
            return Err(PyValueError::new_err(format!("{name} has the shape {has}, must have {must}")));
        }
        // One that begins at an odd byte is contiguous, and can't be read as numbers either.
        if !found.is_c_contiguous() || !found.is_aligned() {
            return Err(PyValueError::new_err(format!(
                "{name} is not one run of numbers in C order: numpy.array({name}, order=\"C\") is"
            )));
        }
        Ok(found.clone())
    }

    /// To be read.
    pub fn read<'py, T: Number>(self, array: &Bound<'py, PyAny>) -> PyResult<PyReadonlyArrayDyn<'py, T>> {
        let found = self.array(array)?;
        found.try_readonly().map_err(|error| PyValueError::new_err(format!("{}: {error}", self.name)))
    }

    /// To be written to.
    pub fn write<'py, T: Number>(self, array: &Bound<'py, PyAny>) -> PyResult<PyReadwriteArrayDyn<'py, T>> {
        let found = self.array(array)?;
        found.try_readwrite().map_err(|error| {
            PyValueError::new_err(format!(
                "{}: {error}; results need arrays of their own that can be written",
                self.name
            ))
        })
    }
}

/// Refuses what is no number; what is one goes from 0 to `most`, if that is said.
pub fn finite(name: &str, values: &[f32], shape: &[usize], most: Option<f32>) -> PyResult<()> {
    let Some(at) = values.iter().position(|value| !value.is_finite()) else { return Ok(()) };
    let mut place = Vec::new();
    let mut rest = at;
    for &length in shape.iter().rev() {
        place.insert(0, (rest % length).to_string());
        rest /= length;
    }
    let (value, place) = (values[at], place.join(", "));
    let range = most.map_or(String::new(), |most| format!(" from 0 to {most}"));
    Err(PyValueError::new_err(format!("{name}[{place}] is {value}, must be a number{range}")))
}
