//! What Python's plain objects say, as JSON.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};
use serde_json::{Map, Value};

use crate::errors;

/// A dict within a dict and so on, as deep as no scenario is: one that holds itself has no end.
const DEEPEST: u32 = 16;

/// What Python's object says, as JSON: dicts, lists, tuples, texts, numbers, None, and what numpy has of these. Errors
/// name the key.
pub fn as_json(object: &Bound<'_, PyAny>) -> PyResult<Value> {
    json_at(object, "", DEEPEST)
}

fn json_at(object: &Bound<'_, PyAny>, at: &str, deepest: u32) -> PyResult<Value> {
    let is = |what: &str| format!("{} is {what}", if at.is_empty() { "a value" } else { at });
    if object.is_none() {
        return Ok(Value::Null);
    }
    // A truth is an int, too.
    if let Ok(truth) = object.cast::<PyBool>() {
        return Ok(truth.is_true().into());
    }
    if object.is_instance_of::<PyInt>() {
        let number = object.extract::<i64>().map(Value::from).or_else(|_| object.extract::<u64>().map(Value::from));
        return number.map_err(|_| errors::scenario(is(&format!("{object}, must be from -2^63 to 2^64 - 1"))));
    }
    if let Ok(number) = object.cast::<PyFloat>() {
        let number = serde_json::Number::from_f64(number.value());
        return number
            .map(Value::from)
            .ok_or_else(|| errors::scenario(is(&format!("{object}, must be a finite number"))));
    }
    if object.is_instance_of::<PyString>() {
        return Ok(object.extract::<String>()?.into());
    }
    let Some(deeper) = deepest.checked_sub(1) else {
        return Err(errors::scenario(is(&format!("nested more than {DEEPEST} deep"))));
    };
    if let Ok(dict) = object.cast::<PyDict>() {
        let entry = |(key, value): (Bound<'_, PyAny>, Bound<'_, PyAny>)| {
            let Ok(name) = key.extract::<String>() else {
                let kind = key.get_type().name()?;
                return Err(PyTypeError::new_err(is(&format!("a dict with a key of type {kind}, must be a text"))));
            };
            let at = if at.is_empty() { name.clone() } else { format!("{at}.{name}") };
            let value = json_at(&value, &at, deeper)?;
            Ok((name, value))
        };
        return dict.iter().map(entry).collect::<PyResult<Map<_, _>>>().map(Value::from);
    }
    if object.is_instance_of::<PyList>() || object.is_instance_of::<PyTuple>() {
        let one =
            |(place, value): (usize, PyResult<Bound<'_, PyAny>>)| json_at(&value?, &format!("{at}[{place}]"), deeper);
        return object.try_iter()?.enumerate().map(one).collect::<PyResult<Vec<_>>>().map(Value::from);
    }
    // numpy's scalars and arrays, and whatever follows them.
    if let Ok(plain) = object.call_method0("tolist")
        && !plain.get_type().is(object.get_type())
    {
        return json_at(&plain, at, deeper);
    }
    let kind = object.get_type().name()?;
    Err(PyTypeError::new_err(is(&format!("of type {kind}, must be a number, a text, a list or a dict"))))
}
