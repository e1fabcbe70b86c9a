//! Merge operators of Python's: any thread of the store may call them, so each call takes the interpreter's lock, and
//! nobody waits for the store while he holds that.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};
use ringdb::{MergeOperator, Options};

use crate::bytes::Given;
use crate::error::invalid;

/// Whether the interpreter is ending: nobody calls into it from then on.
static ENDING: AtomicBool = AtomicBool::new(false);
/// Calls into it that are under way, or wait for its lock.
static CALLS: AtomicUsize = AtomicUsize::new(0);
/// How many forks lie between the process that loaded this and this one.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// A call that the end of the interpreter waits for, begun after so many forks.
struct Entered(u32);

impl Entered {
    fn new() -> Option<Entered> {
        let entered = Entered(FORKS.load(SeqCst));
        CALLS.fetch_add(1, SeqCst);
        (!ENDING.load(SeqCst)).then_some(entered)
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        // A child that was forked within an operator has forgotten the call.
        if FORKS.load(SeqCst) == self.0 {
            CALLS.fetch_sub(1, SeqCst);
        }
    }
}

/// Called in a child after fork(): the threads whose calls were under way are not there, and nobody is to wait for them.
#[pyfunction]
pub fn _forked() {
    FORKS.fetch_add(1, SeqCst);
    CALLS.store(0, SeqCst);
}

/// Called at the interpreter's end, by `atexit`: no thread of a store may be in it, or come into it, when it goes.
#[pyfunction]
pub fn _end(py: Python<'_>) {
    ENDING.store(true, SeqCst);
    py.detach(|| {
        while CALLS.load(SeqCst) > 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
    });
}

/// A callable, or an object with methods `merge` and, if it likes, `partial_merge`.
struct Operator {
    name: String,
    merge: Py<PyAny>,
    partial: Option<Py<PyAny>>,
}

/// What went wrong, as one line.
fn told(py: Python<'_>, e: &PyErr) -> String {
    let class = e.get_type(py).qualname().map_or_else(|_| "an exception".into(), |n| n.to_string());
    match e.value(py).str() {
        Ok(text) if !text.to_string_lossy().is_empty() => format!("{class}: {}", text.to_string_lossy()),
        _ => class,
    }
}

fn list<'py>(py: Python<'py>, operands: &[&[u8]]) -> PyResult<Bound<'py, PyList>> {
    PyList::new(py, operands.iter().map(|o| PyBytes::new(py, o)))
}

/// Runs `f` in the interpreter, unless that is ending.
fn within<T>(f: impl FnOnce(Python<'_>) -> PyResult<T>) -> Result<T, String> {
    const ENDED: &str = "the Python interpreter is ending";
    let Some(_entered) = Entered::new() else { return Err(ENDED.into()) };
    Python::try_attach(|py| f(py).map_err(|e| told(py, &e))).unwrap_or_else(|| Err(ENDED.into()))
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

/// Has the interpreter's end wait for the operators, and a child of this process not for its parent's.
pub fn at_exit(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let of =
        |name: &str| module.getattr(name).map_err(|_| PyRuntimeError::new_err(format!("ringdb: no {name}")));
    let py = module.py();
    py.import("atexit")?.call_method1("register", (of("_end")?,))?;
    let forked = PyDict::new(py);
    forked.set_item("after_in_child", of("_forked")?)?;
    py.import("os")?.call_method("register_at_fork", (), Some(&forked))?;
    Ok(())
}
