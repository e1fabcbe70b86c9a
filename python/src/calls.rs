//! Calls of the store's threads into Python: of merge operators and compaction filters. Any thread of the store may make
//! one, so each takes the interpreter's lock, and nobody waits for the store while he holds that.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

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
        // A child that was forked within a call has forgotten the call.
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

/// What went wrong, as one line.
fn told(py: Python<'_>, e: &PyErr) -> String {
    let class = e.get_type(py).qualname().map_or_else(|_| "an exception".into(), |n| n.to_string());
    match e.value(py).str() {
        Ok(text) if !text.to_string_lossy().is_empty() => format!("{class}: {}", text.to_string_lossy()),
        _ => class,
    }
}

/// Runs `f` in the interpreter, unless that is ending.
pub fn within<T>(f: impl FnOnce(Python<'_>) -> PyResult<T>) -> Result<T, String> {
    const ENDED: &str = "the Python interpreter is ending";
    let Some(_entered) = Entered::new() else { return Err(ENDED.into()) };
    Python::try_attach(|py| f(py).map_err(|e| told(py, &e))).unwrap_or_else(|| Err(ENDED.into()))
}

/// Has the interpreter's end wait for the calls, and a child of this process not for its parent's.
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
