//! [`Batch`]: writes that happen together or not at all.

use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use ringdb::{WriteBatch, WriteOptions};

use crate::asynchronous;
use crate::bytes::{Given, life};
use crate::error::{call, invalid};
use crate::loose::Loose;
use crate::store::{Keyspace, What};

/// A batch; as a context manager it is written at the end, unless an exception goes through.
#[pyclass(frozen, module = "ringdb")]
pub struct Batch {
    db: Loose<ringdb::Db>,
    options: WriteOptions,
    /// `None` once it is written.
    batch: Mutex<Option<WriteBatch>>,
}

impl Batch {
    pub fn new(db: ringdb::Db, options: WriteOptions) -> Batch {
        Batch { db: Loose::new(db), options, batch: Mutex::new(Some(WriteBatch::new())) }
    }

    fn lock(&self) -> MutexGuard<'_, Option<WriteBatch>> {
        self.batch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, py: Python<'_>, f: impl FnOnce(&mut WriteBatch)) -> PyResult<()> {
        self.lock().as_mut().map(f).ok_or_else(|| written(py))
    }

    fn take(&self, py: Python<'_>) -> PyResult<WriteBatch> {
        self.lock().take().ok_or_else(|| written(py))
    }
}

fn written(py: Python<'_>) -> PyErr {
    invalid(py, "the batch was written already: make another")
}

#[pymethods]
impl Batch {
    #[pyo3(signature = (key, value, *, keyspace=None, ttl=None))]
    fn put(
        &self,
        py: Python<'_>,
        key: Given,
        value: Given,
        keyspace: Option<&Bound<'_, Keyspace>>,
        ttl: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let put = What::put(&value, life(py, ttl)?);
        self.add(py, |batch| put.add_to(batch, keyspace.map(Keyspace::of), &key))
    }

    fn __setitem__(&self, py: Python<'_>, key: Given, value: Given) -> PyResult<()> {
        self.put(py, key, value, None, None)
    }

    #[pyo3(signature = (key, operand, *, keyspace=None))]
    fn merge(
        &self,
        py: Python<'_>,
        key: Given,
        operand: Given,
        keyspace: Option<&Bound<'_, Keyspace>>,
    ) -> PyResult<()> {
        self.add(py, |batch| What::Merge(&operand).add_to(batch, keyspace.map(Keyspace::of), &key))
    }

    #[pyo3(signature = (key, *, keyspace=None))]
    fn delete(&self, py: Python<'_>, key: Given, keyspace: Option<&Bound<'_, Keyspace>>) -> PyResult<()> {
        self.add(py, |batch| What::Delete.add_to(batch, keyspace.map(Keyspace::of), &key))
    }

    fn __delitem__(&self, py: Python<'_>, key: Given) -> PyResult<()> {
        self.delete(py, key, None)
    }

    /// How many writes are in it.
    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        self.lock().as_ref().map(WriteBatch::len).ok_or_else(|| written(py))
    }

    /// A batch is there, also an empty one.
    fn __bool__(&self) -> bool {
        true
    }

    /// Forgets all writes.
    fn clear(&self, py: Python<'_>) -> PyResult<()> {
        self.add(py, WriteBatch::clear)
    }

    fn write(&self, py: Python<'_>) -> PyResult<()> {
        let batch = self.take(py)?;
        call(py, || self.db.write(batch, &self.options))
    }

    fn awrite<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let batch = self.take(py)?;
        asynchronous::write(py, self.db.write_async(batch, &self.options))
    }

    fn __enter__(this: Py<Self>) -> Py<Self> {
        this
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        kind: Option<Py<PyAny>>,
        _e: Py<PyAny>,
        _t: Py<PyAny>,
    ) -> PyResult<()> {
        let batch = self.lock().take();
        match batch {
            Some(batch) if kind.is_none() => call(py, || self.db.write(batch, &self.options)),
            // Written in the block already, or given up.
            _ => Ok(()),
        }
    }

    fn __aenter__<'py>(this: Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let py = this.py();
        asynchronous::done(py, this.into_any())
    }

    fn __aexit__<'py>(
        &self,
        py: Python<'py>,
        kind: Option<Py<PyAny>>,
        _e: Py<PyAny>,
        _t: Py<PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let batch = self.lock().take();
        match batch {
            Some(batch) if kind.is_none() => {
                asynchronous::write(py, self.db.write_async(batch, &self.options))
            }
            _ => asynchronous::done(py, py.None().into_bound(py)),
        }
    }
}
