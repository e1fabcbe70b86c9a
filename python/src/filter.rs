//! Compaction filters of Python's (see [`crate::calls`]).

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use ringdb::{CompactionFilter, FilterContext, FilterDecision, Options};

use crate::bytes::Given;
use crate::calls::within;
use crate::error::invalid;

/// A callable.
struct Filter {
    name: String,
    filter: Py<PyAny>,
    /// What it returns for an entry that goes.
    remove: Py<PyAny>,
}

impl CompactionFilter for Filter {
    fn name(&self) -> &str {
        &self.name
    }

    fn filter(&self, _: &FilterContext, key: &[u8], value: &[u8]) -> FilterDecision {
        let said = within(|py| {
            let said = self.filter.bind(py).call1((PyBytes::new(py, key), PyBytes::new(py, value)))?;
            if said.is_none() {
                return Ok(FilterDecision::Keep);
            }
            if said.is(&self.remove) {
                return Ok(FilterDecision::Remove);
            }
            match said.extract::<Given>() {
                Ok(bytes) => Ok(FilterDecision::Change(bytes.to_vec())),
                Err(_) => Err(PyTypeError::new_err(format!(
                    "it has returned {}, not None, bytes or ringdb.REMOVE",
                    said.get_type().name()?
                ))),
            }
        });
        said.unwrap_or_else(FilterDecision::Fail)
    }
}

/// The options with filters by their names.
pub fn register(py: Python<'_>, mut options: Options, filters: &Bound<'_, PyDict>) -> PyResult<Options> {
    let remove = py.import("ringdb._filters")?.getattr("REMOVE")?.unbind();
    for (name, filter) in filters {
        let name: String = name.extract()?;
        if name.is_empty() || name.len() > 255 {
            return Err(invalid(py, "a compaction filter's name has 1 to 255 bytes"));
        }
        if !filter.is_callable() {
            return Err(invalid(py, format!("compaction filter '{name}': a callable")));
        }
        let (filter, remove) = (filter.unbind(), remove.clone_ref(py));
        options = options.register_compaction_filter(Filter { name, filter, remove });
    }
    Ok(options)
}
