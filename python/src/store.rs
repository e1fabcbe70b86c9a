//! [`Db`], [`Keyspace`] and what is written through both.

use std::ops::Bound as End;
use std::path::PathBuf;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use pythonize::{depythonize, pythonize};
use ringdb::{Error, KeyspaceOptions, Options, WriteBatch, WriteOptions};

use serde::de::DeserializeOwned;

use crate::asynchronous;
use crate::batch::Batch;
use crate::bytes::{Given, bytes, write_options};
use crate::error::{call, exception, invalid};
use crate::reader::{Place, Reader, Snapshot};
use crate::transaction::Transaction;

/// Opens a store, or makes one.
#[pyfunction]
#[pyo3(signature = (path, *, read_only=false, options_file=None, **options))]
pub fn open(
    py: Python<'_>,
    path: PathBuf,
    read_only: bool,
    options_file: Option<PathBuf>,
    options: Option<&Bound<'_, PyDict>>,
) -> PyResult<Py<Db>> {
    let mut all = match options {
        Some(given) => settings::<Options>(py, given)?,
        None => Options::default(),
    };
    if let Some(file) = options_file {
        all = all.over(call(py, || Options::load(file))?);
    }
    let db = call(py, || {
        if read_only { ringdb::Db::open_read_only(path, all) } else { ringdb::Db::open(path, all) }
    })?;
    let writer = PyClassInitializer::from(Reader { place: Place::Store(db.clone()) }).add_subclass(Writer {});
    Py::new(py, writer.add_subclass(Db { db }))
}

/// Settings by their names. What is wrong with one is said with its name.
fn settings<T: DeserializeOwned>(py: Python<'_>, given: &Bound<'_, PyDict>) -> PyResult<T> {
    depythonize(given).map_err(|all| {
        for (name, value) in given {
            let alone = PyDict::new(py);
            if let Err(e) = alone.set_item(&name, value) {
                return e;
            }
            if let Err(e) = depythonize::<T>(&alone) {
                return invalid(py, format!("{name}: {e}"));
            }
        }
        invalid(py, all.to_string())
    })
}

/// What a store and a keyspace have in common besides reading.
#[pyclass(frozen, subclass, extends = Reader, module = "ringdb")]
pub struct Writer {}

/// Where writes go.
struct Target<'a> {
    db: &'a ringdb::Db,
    /// `None`: the default one.
    keyspace: Option<&'a ringdb::Keyspace>,
}

macro_rules! each {
    ($target:expr, $at:ident => $call:expr) => {
        match $target.keyspace {
            None => {
                let $at = $target.db;
                $call
            }
            Some($at) => $call,
        }
    };
}

impl Target<'_> {
    fn of<'a>(this: &'a Bound<'_, Writer>) -> Target<'a> {
        match &this.as_super().get().place {
            Place::Store(db) => Target { db, keyspace: None },
            Place::Keyspace(db, keyspace) => Target { db, keyspace: Some(keyspace) },
            Place::Snapshot(_) => unreachable!("a snapshot is no writer"),
        }
    }

    fn batch_of_one(&self, key: &[u8], value: Option<&[u8]>) -> WriteBatch {
        let mut batch = WriteBatch::new();
        match (self.keyspace, value) {
            (None, Some(value)) => batch.put(key, value),
            (None, None) => batch.delete(key),
            (Some(keyspace), Some(value)) => batch.put_in(keyspace, key, value),
            (Some(keyspace), None) => batch.delete_in(keyspace, key),
        }
        batch
    }

    fn write(&self, key: &[u8], value: Option<&[u8]>, options: Option<WriteOptions>) -> ringdb::Result<()> {
        match (options, value) {
            (Some(options), _) => self.db.write(self.batch_of_one(key, value), &options),
            (None, Some(value)) => each!(self, at => at.put(key, value)),
            (None, None) => each!(self, at => at.delete(key)),
        }
    }

    /// Runs `change` on a key's value until nobody has written it meanwhile. The value before.
    fn fetch_update(
        &self,
        py: Python<'_>,
        key: &[u8],
        change: &Bound<'_, PyAny>,
    ) -> PyResult<Option<ringdb::Value>> {
        loop {
            let old = call(py, || each!(self, at => at.get(key)))?;
            let new = change.call1((old.as_ref().map(|v| bytes(py, v)),))?;
            let new: Option<Given> = new.extract()?;
            let (expected, new) = (old.as_deref(), new.as_deref());
            if call(py, || each!(self, at => at.compare_and_swap(key, expected, new)))? {
                return Ok(old);
            }
        }
    }
}

/// `None`: as the store has it.
fn chosen(py: Python<'_>, durability: Option<&str>) -> PyResult<Option<WriteOptions>> {
    durability.map(|_| write_options(py, durability)).transpose()
}

fn ends(start: Option<Given>, stop: Option<Given>) -> (End<Given>, End<Given>) {
    (start.map_or(End::Unbounded, End::Included), stop.map_or(End::Unbounded, End::Excluded))
}

#[pymethods]
impl Writer {
    #[pyo3(signature = (key, value, *, durability=None))]
    fn put(this: &Bound<'_, Self>, key: Given, value: Given, durability: Option<&str>) -> PyResult<()> {
        let (at, options) = (Target::of(this), chosen(this.py(), durability)?);
        call(this.py(), || at.write(&key, Some(&value), options))
    }

    fn __setitem__(this: &Bound<'_, Self>, key: Given, value: Given) -> PyResult<()> {
        Writer::put(this, key, value, None)
    }

    #[pyo3(signature = (key, *, durability=None))]
    fn delete(this: &Bound<'_, Self>, key: Given, durability: Option<&str>) -> PyResult<()> {
        let (at, options) = (Target::of(this), chosen(this.py(), durability)?);
        call(this.py(), || at.write(&key, None, options))
    }

    /// Also of a key that is not there: that is no error, and is not looked up.
    fn __delitem__(this: &Bound<'_, Self>, key: Given) -> PyResult<()> {
        Writer::delete(this, key, None)
    }

    #[pyo3(signature = (start=None, stop=None))]
    fn delete_range(this: &Bound<'_, Self>, start: Option<Given>, stop: Option<Given>) -> PyResult<()> {
        let at = Target::of(this);
        call(this.py(), || each!(at, at => at.delete_range(ends(start, stop))))
    }

    fn delete_prefix(this: &Bound<'_, Self>, prefix: Given) -> PyResult<()> {
        let at = Target::of(this);
        call(this.py(), || each!(at, at => at.delete_prefix(&prefix)))
    }

    fn clear(this: &Bound<'_, Self>) -> PyResult<()> {
        let at = Target::of(this);
        call(this.py(), || each!(at, at => at.clear()))
    }

    #[pyo3(signature = (start=None, stop=None))]
    fn compact(this: &Bound<'_, Self>, start: Option<Given>, stop: Option<Given>) -> PyResult<()> {
        let at = Target::of(this);
        call(this.py(), || each!(at, at => at.compact_range(ends(start, stop))))
    }

    fn approximate_len(this: &Bound<'_, Self>) -> PyResult<u64> {
        let at = Target::of(this);
        call(this.py(), || each!(at, at => at.approximate_len()))
    }

    #[pyo3(signature = (start=None, stop=None))]
    fn approximate_size(this: &Bound<'_, Self>, start: Option<Given>, stop: Option<Given>) -> PyResult<u64> {
        let at = Target::of(this);
        call(this.py(), || each!(at, at => at.approximate_size(ends(start, stop))))
    }

    fn put_if_absent(this: &Bound<'_, Self>, key: Given, value: Given) -> PyResult<bool> {
        let at = Target::of(this);
        call(this.py(), || each!(at, at => at.put_if_absent(&key, &value)))
    }

    fn compare_and_swap(
        this: &Bound<'_, Self>,
        key: Given,
        expected: Option<Given>,
        new: Option<Given>,
    ) -> PyResult<bool> {
        let at = Target::of(this);
        call(this.py(), || each!(at, at => at.compare_and_swap(&key, expected.as_deref(), new.as_deref())))
    }

    fn fetch_update<'py>(
        this: &Bound<'py, Self>,
        key: Given,
        change: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let old = Target::of(this).fetch_update(this.py(), &key, change)?;
        Ok(old.map(|v| bytes(this.py(), &v)))
    }

    #[pyo3(signature = (key, value, *, durability=None))]
    fn aput<'py>(
        this: &Bound<'py, Self>,
        key: Given,
        value: Given,
        durability: Option<&str>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (at, options) = (Target::of(this), write_options(this.py(), durability)?);
        asynchronous::write(this.py(), at.db.write_async(at.batch_of_one(&key, Some(&value)), &options))
    }

    #[pyo3(signature = (key, *, durability=None))]
    fn adelete<'py>(
        this: &Bound<'py, Self>,
        key: Given,
        durability: Option<&str>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (at, options) = (Target::of(this), write_options(this.py(), durability)?);
        asynchronous::write(this.py(), at.db.write_async(at.batch_of_one(&key, None), &options))
    }
}

/// A named set of keys.
#[pyclass(frozen, extends = Writer, module = "ringdb")]
pub struct Keyspace {
    keyspace: ringdb::Keyspace,
}

impl Keyspace {
    pub fn of<'a>(this: &'a Bound<'_, Keyspace>) -> &'a ringdb::Keyspace {
        &this.get().keyspace
    }

    fn make(py: Python<'_>, db: &ringdb::Db, keyspace: ringdb::Keyspace) -> PyResult<Py<Keyspace>> {
        let reader = Reader { place: Place::Keyspace(db.clone(), keyspace.clone()) };
        let writer = PyClassInitializer::from(reader).add_subclass(Writer {});
        Py::new(py, writer.add_subclass(Keyspace { keyspace }))
    }
}

#[pymethods]
impl Keyspace {
    #[getter]
    fn name(&self) -> &str {
        self.keyspace.name()
    }

    #[pyo3(signature = (**options))]
    fn alter(&self, py: Python<'_>, options: Option<&Bound<'_, PyDict>>) -> PyResult<()> {
        let Some(options) = options else { return Ok(()) };
        let options = settings::<KeyspaceOptions>(py, options)?;
        call(py, || self.keyspace.alter(&options))
    }

    fn __repr__(&self) -> String {
        format!("<ringdb.Keyspace {:?}>", self.keyspace.name())
    }
}

/// An open store.
#[pyclass(frozen, extends = Writer, module = "ringdb")]
pub struct Db {
    db: ringdb::Db,
}

#[pymethods]
impl Db {
    #[pyo3(signature = (name, **options))]
    fn keyspace(
        &self,
        py: Python<'_>,
        name: &str,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Py<Keyspace>> {
        let options = options.map(|o| settings::<KeyspaceOptions>(py, o)).transpose()?;
        let keyspace = call(py, || match &options {
            Some(options) => self.db.keyspace_with(name, options),
            // A store that is only read has those that are there.
            None => match self.db.existing_keyspace(name)? {
                Some(keyspace) => Ok(keyspace),
                None => self.db.keyspace(name),
            },
        })?;
        Keyspace::make(py, &self.db, keyspace)
    }

    fn keyspaces(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        call(py, || self.db.keyspaces())
    }

    fn drop_keyspace(&self, py: Python<'_>, name: &str) -> PyResult<bool> {
        call(py, || self.db.drop_keyspace(name))
    }

    #[pyo3(signature = (*, durability=None))]
    fn batch(&self, py: Python<'_>, durability: Option<&str>) -> PyResult<Batch> {
        Ok(Batch::new(self.db.clone(), write_options(py, durability)?))
    }

    #[pyo3(signature = (*, durability=None))]
    fn transaction(&self, py: Python<'_>, durability: Option<&str>) -> PyResult<Transaction> {
        Ok(Transaction::new(self.db.transaction(), write_options(py, durability)?))
    }

    fn snapshot(&self, py: Python<'_>) -> PyResult<Py<Snapshot>> {
        Snapshot::make(py, self.db.snapshot())
    }

    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        call(py, || self.db.flush())
    }

    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        call(py, || self.db.sync())
    }

    fn async_sync<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        asynchronous::write(py, self.db.sync_async())
    }

    fn checkpoint(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        call(py, || self.db.checkpoint(path))
    }

    fn backup<'py>(&self, py: Python<'py>, path: PathBuf) -> PyResult<Bound<'py, PyAny>> {
        let report = call(py, || self.db.backup(path))?;
        Ok(pythonize(py, &report)?)
    }

    fn verify<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let report = call(py, || self.db.verify())?;
        Ok(pythonize(py, &report)?)
    }

    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let stats = py.detach(|| self.db.stats());
        Ok(pythonize(py, &stats)?)
    }

    /// A second time it does nothing.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        match py.detach(|| self.db.clone().close()) {
            Err(Error::Closed) => Ok(()),
            done => done.map_err(|e| exception(py, &e)),
        }
    }

    fn __enter__(this: Py<Self>) -> Py<Self> {
        this
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        _kind: Py<PyAny>,
        _error: Py<PyAny>,
        _trace: Py<PyAny>,
    ) -> PyResult<()> {
        self.close(py)
    }
}
