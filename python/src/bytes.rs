//! Keys, values and ranges from Python and to it.

use std::ops::Bound as End;
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyTuple};
use ringdb::{Durability, Value, WriteOptions};

use crate::error::invalid;

/// The bytes of a `bytes` (borrowed) or `bytearray` (copied).
pub type Given = PyBackedBytes;

/// An owned range of keys.
pub type Range = (End<Vec<u8>>, End<Vec<u8>>);

/// `bytes`, which Python owns: one copy.
pub fn bytes<'py>(py: Python<'py>, value: &[u8]) -> Bound<'py, PyBytes> {
    PyBytes::new(py, value)
}

/// `bytes`, or `None`.
pub fn optional<'py>(py: Python<'py>, value: Option<&Value>) -> Option<Bound<'py, PyBytes>> {
    value.map(|v| bytes(py, v))
}

/// A key and its value.
pub fn pair<'py>(py: Python<'py>, (key, value): &(Value, Value)) -> PyResult<Bound<'py, PyTuple>> {
    (bytes(py, key), bytes(py, value)).into_pyobject(py)
}

/// The keys that begin with `prefix`, from `start` on and before `stop`.
pub fn range(prefix: Option<&[u8]>, start: Option<&[u8]>, stop: Option<&[u8]>) -> Range {
    let own = |end: Option<&[u8]>| end.map(<[u8]>::to_vec);
    let (mut from, mut to) = (own(start), own(stop));
    if let Some(prefix) = prefix {
        if from.as_deref().is_none_or(|from| from < prefix) {
            from = own(Some(prefix));
        }
        let behind = after(prefix);
        if behind.is_some() && (to.is_none() || to > behind) {
            to = behind;
        }
    }
    (from.map_or(End::Unbounded, End::Included), to.map_or(End::Unbounded, End::Excluded))
}

/// The first key behind all that begin with `prefix`; `None` if there is none.
fn after(prefix: &[u8]) -> Option<Vec<u8>> {
    let end = prefix.iter().rposition(|b| *b < u8::MAX)?;
    let mut behind = prefix[..=end].to_vec();
    behind[end] += 1;
    Some(behind)
}

/// What `durability=` says.
pub fn write_options(py: Python<'_>, durability: Option<&str>) -> PyResult<WriteOptions> {
    let options = WriteOptions::default();
    Ok(match durability {
        None => options,
        Some("none") => options.durability(Durability::None),
        Some("process") => options.durability(Durability::Process),
        Some("sync") => options.durability(Durability::Sync),
        Some(other) => {
            return Err(invalid(py, format!("durability '{other}': 'none', 'process' or 'sync'")));
        }
    })
}

/// What `ttl=` says: seconds, or a `datetime.timedelta`.
pub fn life(py: Python<'_>, ttl: Option<&Bound<'_, PyAny>>) -> PyResult<Option<Duration>> {
    let Some(ttl) = ttl else { return Ok(None) };
    let wrong = || invalid(py, format!("ttl {ttl}: seconds, or a timedelta, more than 0"));
    let life = match ttl.extract::<f64>() {
        Ok(seconds) => Duration::try_from_secs_f64(seconds).map_err(|_| wrong())?,
        Err(not_a_number) => ttl.extract::<Duration>().map_err(|_| match ttl.hasattr("total_seconds") {
            Ok(true) => wrong(),
            _ => not_a_number,
        })?,
    };
    if life.is_zero() { Err(wrong()) } else { Ok(Some(life)) }
}

/// What `timeout=` says, in seconds.
pub fn read_options(py: Python<'_>, timeout: Option<f64>) -> PyResult<ringdb::ReadOptions> {
    let options = ringdb::ReadOptions::default();
    let Some(seconds) = timeout else { return Ok(options) };
    match Duration::try_from_secs_f64(seconds) {
        Ok(most) => Ok(options.with_deadline(most)),
        Err(_) => Err(invalid(py, format!("timeout {seconds}: seconds, not less than 0"))),
    }
}
