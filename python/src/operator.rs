//! Merge operators of Python's (see [`crate::calls`]).

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};
use ringdb::{MergeOperator, Options};

use crate::bytes::Given;
use crate::calls::within;
use crate::error::invalid;

/// A callable, or an object with methods `merge` and, if it likes, `partial_merge`.
struct Operator {
    name: String,
    merge: Py<PyAny>,
    partial: Option<Py<PyAny>>,
}

fn list<'py>(py: Python<'py>, operands: &[&[u8]]) -> PyResult<Bound<'py, PyList>> {
    PyList::new(py, operands.iter().map(|o| PyBytes::new(py, o)))
}

fn made(what: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    match what.extract::<Given>() {
        Ok(bytes) => Ok(bytes.to_vec()),
        Err(_) => {
            Err(PyTypeError::new_err(format!("it has returned {}, not bytes", what.get_type().name()?)))
        }
    }
}

impl MergeOperator for Operator {
    fn name(&self) -> &str {
        &self.name
    }

    fn merge(&self, key: &[u8], value: Option<&[u8]>, operands: &[&[u8]]) -> Result<Vec<u8>, String> {
        within(|py| {
            let value = value.map(|v| PyBytes::new(py, v));
            made(&self.merge.bind(py).call1((PyBytes::new(py, key), value, list(py, operands)?))?)
        })
    }

    fn partial_merge(&self, key: &[u8], operands: &[&[u8]]) -> Option<Vec<u8>> {
        let partial = self.partial.as_ref()?;
        // A failure is told by `merge`, when somebody reads the key.
        within(|py| {
            let operand = partial.bind(py).call1((PyBytes::new(py, key), list(py, operands)?))?;
            if operand.is_none() { Ok(None) } else { made(&operand).map(Some) }
        })
        .ok()?
    }
}

/// The options with operators by their names.
pub fn register(py: Python<'_>, mut options: Options, operators: &Bound<'_, PyDict>) -> PyResult<Options> {
    for (name, operator) in operators {
        let name: String = name.extract()?;
        if name.is_empty() || name.len() > 255 {
            return Err(invalid(py, "a merge operator's name has 1 to 255 bytes"));
        }
        let method = |of: &str| operator.getattr_opt(of).map(|m| m.map(Bound::unbind));
        let (merge, partial) = match method("merge")? {
            Some(merge) => (merge, method("partial_merge")?),
            None => (operator.clone().unbind(), None),
        };
        if !merge.bind(py).is_callable() || partial.as_ref().is_some_and(|p| !p.bind(py).is_callable()) {
            return Err(invalid(
                py,
                format!("merge operator '{name}': a callable, or an object with a method 'merge'"),
            ));
        }
        options = options.register_merge_operator(Operator { name, merge, partial });
    }
    Ok(options)
}
