//! [`Transaction`]: reads and writes that happen at one moment, or not at all.

use std::ops::Bound as End;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};
use ringdb::{Value, WriteOptions};

use crate::bytes::{Given, Range, bytes, optional, pair};
use crate::error::{call, invalid};
use crate::loose::Loose;
use crate::reader::given;
use crate::store::Keyspace;

/// A transaction; as a context manager it is committed at the end, unless an exception goes through.
#[pyclass(frozen, module = "ringdb")]
pub struct Transaction {
    options: WriteOptions,
    /// `None` once it has ended.
    transaction: Mutex<Option<Loose<ringdb::Transaction>>>,
}

/// How long a call waits for keys that others have locked, if it does not say.
const LOCK_WAIT: Duration = Duration::from_secs(5);

type Place<'a, 'py> = Option<&'a Bound<'py, Keyspace>>;

impl Transaction {
    pub fn new(transaction: ringdb::Transaction, options: WriteOptions) -> Transaction {
        Transaction { options, transaction: Mutex::new(Some(Loose::new(transaction))) }
    }

    /// To be called without the interpreter's lock: whoever holds this one may wait for that, in a merge operator.
    fn lock(&self) -> MutexGuard<'_, Option<Loose<ringdb::Transaction>>> {
        self.transaction.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something in it, without the interpreter's lock.
    fn within<T: Send>(
        &self,
        py: Python<'_>,
        f: impl FnOnce(&ringdb::Transaction) -> ringdb::Result<T> + Send,
    ) -> PyResult<T> {
        call(py, || self.lock().as_ref().map(|t| f(t)).transpose())?.ok_or_else(|| ended(py))
    }

    fn end(&self, taken: Loose<ringdb::Transaction>) -> ringdb::Result<()> {
        taken.into_inner().commit_with(&self.options)
    }

    fn value(&self, py: Python<'_>, key: &Given, keyspace: Place<'_, '_>) -> PyResult<Option<Value>> {
        let keyspace = keyspace.map(Keyspace::of);
        self.within(py, |t| match keyspace {
            Some(keyspace) => t.get_in(keyspace, key),
            None => t.get(key),
        })
    }

    fn set(
        &self,
        py: Python<'_>,
        key: &Given,
        value: Option<&Given>,
        keyspace: Place<'_, '_>,
    ) -> PyResult<()> {
        let keyspace = keyspace.map(Keyspace::of);
        self.within(py, |t| match (value, keyspace) {
            (Some(value), Some(keyspace)) => t.put_in(keyspace, key, value),
            (Some(value), None) => t.put(key, value),
            (None, Some(keyspace)) => t.delete_in(keyspace, key),
            (None, None) => t.delete(key),
        })
    }

    fn pop<'py>(
        &self,
        py: Python<'py>,
        keyspace: Place<'_, '_>,
        last: bool,
    ) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let keyspace = keyspace.map(Keyspace::of);
        let popped = self.within(py, |t| match (last, keyspace) {
            (false, None) => t.pop_first(),
            (false, Some(keyspace)) => t.pop_first_in(keyspace),
            (true, None) => t.pop_last(),
            (true, Some(keyspace)) => t.pop_last_in(keyspace),
        })?;
        popped.map(|p| pair(py, &p)).transpose()
    }
}

fn ended(py: Python<'_>) -> PyErr {
    invalid(py, "the transaction has ended: begin another")
}

#[pymethods]
impl Transaction {
    #[pyo3(signature = (key, default=None, *, keyspace=None))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        key: Given,
        default: Option<Bound<'py, PyAny>>,
        keyspace: Place<'_, '_>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let value = self.value(py, &key, keyspace)?;
        Ok(optional(py, value.as_ref()).map(Bound::into_any).or(default))
    }

    fn __getitem__<'py>(&self, py: Python<'py>, key: Given) -> PyResult<Bound<'py, PyBytes>> {
        match self.value(py, &key, None)? {
            Some(value) => Ok(bytes(py, &value)),
            None => Err(PyKeyError::new_err(bytes(py, &key).unbind())),
        }
    }

    fn __contains__(&self, py: Python<'_>, key: Given) -> PyResult<bool> {
        self.within(py, |t| t.contains_key(&key))
    }

    #[pyo3(signature = (keys, *, keyspace=None))]
    fn multi_get<'py>(
        &self,
        py: Python<'py>,
        keys: Vec<Given>,
        keyspace: Place<'_, '_>,
    ) -> PyResult<Bound<'py, PyList>> {
        let keyspace = keyspace.map(Keyspace::of);
        let values = self.within(py, |t| match keyspace {
            Some(keyspace) => t.multi_get_in(keyspace, &keys),
            None => t.multi_get(&keys),
        })?;
        PyList::new(py, values.iter().map(|v| optional(py, v.as_ref())))
    }

    #[pyo3(signature = (key, value, *, keyspace=None))]
    fn put(&self, py: Python<'_>, key: Given, value: Given, keyspace: Place<'_, '_>) -> PyResult<()> {
        self.set(py, &key, Some(&value), keyspace)
    }

    fn __setitem__(&self, py: Python<'_>, key: Given, value: Given) -> PyResult<()> {
        self.set(py, &key, Some(&value), None)
    }

    #[pyo3(signature = (key, operand, *, keyspace=None))]
    fn merge(&self, py: Python<'_>, key: Given, operand: Given, keyspace: Place<'_, '_>) -> PyResult<()> {
        let keyspace = keyspace.map(Keyspace::of);
        self.within(py, |t| match keyspace {
            Some(keyspace) => t.merge_in(keyspace, &key, &operand),
            None => t.merge(&key, &operand),
        })
    }

    /// Also waits without the interpreter's lock.
    #[pyo3(signature = (keys, *, keyspace=None, timeout=None))]
    fn lock_keys(
        &self,
        py: Python<'_>,
        keys: Vec<Given>,
        keyspace: Place<'_, '_>,
        timeout: Option<f64>,
    ) -> PyResult<()> {
        let keyspace = keyspace.map(Keyspace::of);
        let wait = match timeout.map(Duration::try_from_secs_f64) {
            None => LOCK_WAIT,
            Some(Ok(wait)) => wait,
            Some(Err(_)) => return Err(invalid(py, "timeout: seconds, not less than 0")),
        };
        let locked = call(py, || {
            let mut open = self.lock();
            let Some(t) = open.as_mut() else { return Ok(None) };
            t.set_lock_wait(wait);
            match keyspace {
                Some(keyspace) => t.lock_in(keyspace, &keys),
                None => t.lock(&keys),
            }
            .map(Some)
        })?;
        locked.ok_or_else(|| ended(py))
    }

    #[pyo3(signature = (key, *, keyspace=None))]
    fn delete(&self, py: Python<'_>, key: Given, keyspace: Place<'_, '_>) -> PyResult<()> {
        self.set(py, &key, None, keyspace)
    }

    fn __delitem__(&self, py: Python<'_>, key: Given) -> PyResult<()> {
        self.set(py, &key, None, None)
    }

    #[pyo3(signature = (*, keyspace=None))]
    fn pop_first<'py>(
        &self,
        py: Python<'py>,
        keyspace: Place<'_, '_>,
    ) -> PyResult<Option<Bound<'py, PyTuple>>> {
        self.pop(py, keyspace, false)
    }

    #[pyo3(signature = (*, keyspace=None))]
    fn pop_last<'py>(
        &self,
        py: Python<'py>,
        keyspace: Place<'_, '_>,
    ) -> PyResult<Option<Bound<'py, PyTuple>>> {
        self.pop(py, keyspace, true)
    }

    #[pyo3(signature = (*, prefix=None, start=None, stop=None, reverse=false, keyspace=None))]
    fn items(
        this: Py<Self>,
        prefix: Option<Given>,
        start: Option<Given>,
        stop: Option<Given>,
        reverse: bool,
        keyspace: Place<'_, '_>,
    ) -> TransactionItems {
        let keyspace = keyspace.map(|k| Loose::new(Keyspace::of(k).clone()));
        let left = Mutex::new(given(&prefix, &start, &stop));
        TransactionItems { transaction: this, keyspace, left, reverse, done: AtomicBool::new(false) }
    }

    fn commit(&self, py: Python<'_>) -> PyResult<()> {
        call(py, || self.lock().take().map(|t| self.end(t)).transpose())?.ok_or_else(|| ended(py))
    }

    /// Also of one that has ended: there is nothing left to do.
    fn rollback(&self, py: Python<'_>) {
        py.detach(|| drop(self.lock().take().map(Loose::into_inner)));
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
        let wanted = kind.is_none();
        call(py, || match self.lock().take() {
            Some(taken) if wanted => self.end(taken),
            // Ended in the block already, or given up.
            taken => {
                drop(taken.map(Loose::into_inner));
                Ok(())
            }
        })
    }
}

/// Iterates over the pairs of a transaction, one at a time: it sees what is written ahead of it meanwhile.
#[pyclass(frozen, module = "ringdb")]
pub struct TransactionItems {
    transaction: Py<Transaction>,
    keyspace: Option<Loose<ringdb::Keyspace>>,
    left: Mutex<Range>,
    reverse: bool,
    done: AtomicBool,
}

impl TransactionItems {
    fn step(&self, t: &ringdb::Transaction) -> ringdb::Result<Option<(Value, Value)>> {
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        let mut range = match &self.keyspace {
            Some(keyspace) => t.range_in(keyspace, left.clone()),
            None => t.range(left.clone()),
        };
        let next = if self.reverse { range.next_back() } else { range.next() }.transpose()?;
        if let Some((key, _)) = &next {
            let passed = End::Excluded(key.to_vec());
            *(if self.reverse { &mut left.1 } else { &mut left.0 }) = passed;
        }
        Ok(next)
    }
}

#[pymethods]
impl TransactionItems {
    fn __iter__(this: Py<Self>) -> Py<Self> {
        this
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        if self.done.load(Relaxed) {
            return Ok(None);
        }
        let next = self.transaction.get().within(py, |t| self.step(t));
        self.done.store(!matches!(next, Ok(Some(_))), Relaxed);
        next?.map(|p| pair(py, &p)).transpose()
    }
}
