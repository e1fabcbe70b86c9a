//! [`Db`], [`Keyspace`] and what is written through both.

use std::collections::BTreeMap;
use std::ops::Bound as End;
use std::path::PathBuf;
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyIterator};
use pythonize::{depythonize, pythonize};
use ringdb::{EncryptionKey, Error, KeyspaceOptions, Options, StaticKeys, WriteBatch, WriteOptions};

use serde::de::DeserializeOwned;

use crate::asynchronous;
use crate::batch::Batch;
use crate::bytes::{Given, bytes, life, write_options};
use crate::error::{call, exception, invalid};
use crate::filter;
use crate::loose::Loose;
use crate::operator;
use crate::reader::{Place, Reader, Snapshot};
use crate::transaction::Transaction;

/// Pairs that are taken from Python at once.
const AT_ONCE: usize = 512;

/// Opens a store, or makes one.
#[pyfunction]
#[pyo3(signature = (
    path, *, read_only=false, options_file=None, merge_operators=None, compaction_filters=None, encryption_keys=None, **options
))]
#[allow(clippy::too_many_arguments)] // each is one of Python's
pub fn open(
    py: Python<'_>,
    path: PathBuf,
    read_only: bool,
    options_file: Option<PathBuf>,
    merge_operators: Option<&Bound<'_, PyDict>>,
    compaction_filters: Option<&Bound<'_, PyDict>>,
    encryption_keys: Option<BTreeMap<u32, Vec<u8>>>,
    options: Option<&Bound<'_, PyDict>>,
) -> PyResult<Py<Db>> {
    let mut all = match options {
        Some(given) => settings::<Options>(py, given)?,
        None => Options::default(),
    };
    if let Some(file) = options_file {
        all = all.over(call(py, || Options::load(file))?);
    }
    if let Some(operators) = merge_operators {
        all = operator::register(py, all, operators)?;
    }
    if let Some(keys) = encryption_keys {
        all = with_keys(py, all, keys)?;
    }
    if let Some(filters) = compaction_filters {
        all = filter::register(py, all, filters)?;
    }
    let db = call(py, || {
        if read_only { ringdb::Db::open_read_only(path, all) } else { ringdb::Db::open(path, all) }
    })?;
    let writer = PyClassInitializer::from(Reader::new(Place::Store(db.clone()))).add_subclass(Writer {});
    Py::new(py, writer.add_subclass(Db { db: Loose::new(db) }))
}

/// The same settings, with the keys of an encrypted store.
fn with_keys(py: Python<'_>, options: Options, keys: BTreeMap<u32, Vec<u8>>) -> PyResult<Options> {
    let mut all = StaticKeys::default();
    if keys.is_empty() {
        return Err(invalid(py, "encryption_keys is empty"));
    }
    for (number, key) in keys {
        let key: [u8; 32] = key.try_into().map_err(|k: Vec<u8>| {
            invalid(py, format!("encryption key {number} has {} bytes, not 32", k.len()))
        })?;
        all = all.with(number, EncryptionKey::new(key)).map_err(|e| exception(py, &e))?;
    }
    Ok(options.with_encryption(all))
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

/// What becomes of a key.
#[derive(Clone, Copy)]
pub enum What<'a> {
    Put(&'a [u8]),
    Expiring(&'a [u8], Duration),
    Merge(&'a [u8]),
    Delete,
}

impl<'a> What<'a> {
    pub fn put(value: &'a [u8], life: Option<Duration>) -> What<'a> {
        life.map_or(What::Put(value), |life| What::Expiring(value, life))
    }

    pub fn add_to(self, batch: &mut WriteBatch, keyspace: Option<&ringdb::Keyspace>, key: &[u8]) {
        match (keyspace, self) {
            (None, What::Put(value)) => batch.put(key, value),
            (None, What::Expiring(value, life)) => batch.put_with_ttl(key, value, life),
            (None, What::Merge(operand)) => batch.merge(key, operand),
            (None, What::Delete) => batch.delete(key),
            (Some(k), What::Put(value)) => batch.put_in(k, key, value),
            (Some(k), What::Expiring(value, life)) => batch.put_with_ttl_in(k, key, value, life),
            (Some(k), What::Merge(operand)) => batch.merge_in(k, key, operand),
            (Some(k), What::Delete) => batch.delete_in(k, key),
        }
    }

    fn batch(self, keyspace: Option<&ringdb::Keyspace>, key: &[u8]) -> WriteBatch {
        let mut batch = WriteBatch::new();
        self.add_to(&mut batch, keyspace, key);
        batch
    }
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
        match &*this.as_super().get().place {
            Place::Store(db) => Target { db, keyspace: None },
            Place::Keyspace(db, keyspace) => Target { db, keyspace: Some(keyspace) },
            Place::Snapshot(_) => unreachable!("a snapshot is no writer"),
        }
    }

    fn write(&self, key: &[u8], what: What<'_>, options: Option<WriteOptions>) -> ringdb::Result<()> {
        match (options, what) {
            (Some(options), _) => self.db.write(what.batch(self.keyspace, key), &options),
            (None, What::Put(value)) => each!(self, at => at.put(key, value)),
            (None, What::Expiring(value, life)) => each!(self, at => at.put_with_ttl(key, value, life)),
            (None, What::Merge(operand)) => each!(self, at => at.merge(key, operand)),
            (None, What::Delete) => each!(self, at => at.delete(key)),
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

/// Why an ingest has stopped.
enum Stopped {
    Store(Error),
    Python(PyErr),
}

/// Some pairs of an iterator; none at its end.
fn taken(pairs: &Bound<'_, PyIterator>) -> PyResult<Vec<(Given, Given)>> {
    pairs.clone().take(AT_ONCE).map(|pair| pair?.extract()).collect()
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
    #[pyo3(signature = (key, value, *, durability=None, ttl=None))]
    fn put(
        this: &Bound<'_, Self>,
        key: Given,
        value: Given,
        durability: Option<&str>,
        ttl: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let (at, options) = (Target::of(this), chosen(this.py(), durability)?);
        let life = life(this.py(), ttl)?;
        call(this.py(), || at.write(&key, What::put(&value, life), options))
    }

    fn __setitem__(this: &Bound<'_, Self>, key: Given, value: Given) -> PyResult<()> {
        Writer::put(this, key, value, None, None)
    }

    #[pyo3(signature = (key, operand, *, durability=None))]
    fn merge(this: &Bound<'_, Self>, key: Given, operand: Given, durability: Option<&str>) -> PyResult<()> {
        let (at, options) = (Target::of(this), chosen(this.py(), durability)?);
        call(this.py(), || at.write(&key, What::Merge(&operand), options))
    }

    /// Pairs in the order of their keys, from any iterable.
    fn ingest(this: &Bound<'_, Self>, pairs: &Bound<'_, PyAny>) -> PyResult<u64> {
        let at = Target::of(this);
        let pairs = pairs.try_iter()?.unbind();
        let done = this.py().detach(|| {
            // It belongs to this thread, and is here as long as the thread is.
            let mut ingester = each!(at, at => at.ingester()).map_err(Stopped::Store)?;
            loop {
                let some = Python::attach(|py| taken(pairs.bind(py))).map_err(Stopped::Python)?;
                if some.is_empty() {
                    return ingester.finish().map_err(Stopped::Store);
                }
                let mut some = some.iter();
                some.try_for_each(|(key, value)| ingester.add(key, value)).map_err(Stopped::Store)?;
            }
        });
        done.map_err(|e| match e {
            Stopped::Store(e) => exception(this.py(), &e),
            Stopped::Python(e) => e,
        })
    }

    fn import_tables(this: &Bound<'_, Self>, path: PathBuf) -> PyResult<u64> {
        let at = Target::of(this);
        call(this.py(), || each!(at, at => at.import_tables(path)))
    }

    #[pyo3(signature = (key, *, durability=None))]
    fn delete(this: &Bound<'_, Self>, key: Given, durability: Option<&str>) -> PyResult<()> {
        let (at, options) = (Target::of(this), chosen(this.py(), durability)?);
        call(this.py(), || at.write(&key, What::Delete, options))
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

    #[pyo3(signature = (key, value, *, durability=None, ttl=None))]
    fn aput<'py>(
        this: &Bound<'py, Self>,
        key: Given,
        value: Given,
        durability: Option<&str>,
        ttl: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (at, options) = (Target::of(this), write_options(this.py(), durability)?);
        let batch = What::put(&value, life(this.py(), ttl)?).batch(at.keyspace, &key);
        asynchronous::write(this.py(), at.db.write_async(batch, &options))
    }

    #[pyo3(signature = (key, operand, *, durability=None))]
    fn amerge<'py>(
        this: &Bound<'py, Self>,
        key: Given,
        operand: Given,
        durability: Option<&str>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (at, options) = (Target::of(this), write_options(this.py(), durability)?);
        let batch = What::Merge(&operand).batch(at.keyspace, &key);
        asynchronous::write(this.py(), at.db.write_async(batch, &options))
    }

    #[pyo3(signature = (key, *, durability=None))]
    fn adelete<'py>(
        this: &Bound<'py, Self>,
        key: Given,
        durability: Option<&str>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (at, options) = (Target::of(this), write_options(this.py(), durability)?);
        asynchronous::write(this.py(), at.db.write_async(What::Delete.batch(at.keyspace, &key), &options))
    }
}

/// A named set of keys.
#[pyclass(frozen, extends = Writer, module = "ringdb")]
pub struct Keyspace {
    keyspace: Loose<ringdb::Keyspace>,
}

impl Keyspace {
    pub fn of<'a>(this: &'a Bound<'_, Keyspace>) -> &'a ringdb::Keyspace {
        &this.get().keyspace
    }

    fn make(py: Python<'_>, db: &ringdb::Db, keyspace: ringdb::Keyspace) -> PyResult<Py<Keyspace>> {
        let reader = Reader::new(Place::Keyspace(db.clone(), keyspace.clone()));
        let writer = PyClassInitializer::from(reader).add_subclass(Writer {});
        Py::new(py, writer.add_subclass(Keyspace { keyspace: Loose::new(keyspace) }))
    }
}

#[pymethods]
impl Keyspace {
    #[getter]
    fn name(&self) -> &str {
        self.keyspace.name()
    }

    /// The settings in force.
    fn settings<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(pythonize(py, &self.keyspace.options())?)
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
    db: Loose<ringdb::Db>,
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
        Ok(Batch::new(ringdb::Db::clone(&self.db), write_options(py, durability)?))
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

    fn rewrite(&self, py: Python<'_>) -> PyResult<()> {
        call(py, || self.db.rewrite())
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
        let stats = call(py, || {
            // Which tells of a store that is closed, or a parent's.
            self.db.keyspaces()?;
            Ok(self.db.stats())
        })?;
        Ok(pythonize(py, &stats)?)
    }

    #[pyo3(signature = (*, open_metrics=false))]
    fn metrics(&self, py: Python<'_>, open_metrics: bool) -> PyResult<String> {
        call(py, || {
            // Which tells of a store that is closed, or a parent's.
            self.db.keyspaces()?;
            let metrics = self.db.metrics();
            Ok(if open_metrics { metrics.open_metrics() } else { metrics.prometheus() })
        })
    }

    /// A second time it does nothing.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        match py.detach(|| ringdb::Db::clone(&self.db).close()) {
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
