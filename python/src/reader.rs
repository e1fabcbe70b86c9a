//! [`Reader`]: what can be read from a store, a keyspace or a snapshot alike.

use std::path::PathBuf;

use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};
use pythonize::pythonize;
use ringdb::{GetFuture, Iter, MultiGetFuture, RangeStream, ReadOptions, Result, Value};

use crate::asynchronous::{self, PairStream};
use crate::bytes::{Given, Range, bytes, optional, pair, range, read_options};
use crate::error::call;
use crate::items::{Items, Part};
use crate::loose::Loose;
use crate::store::Keyspace;

/// Where reads go.
#[derive(Clone)]
pub enum Place {
    Store(ringdb::Db),
    Keyspace(ringdb::Db, ringdb::Keyspace),
    Snapshot(ringdb::Snapshot),
}

macro_rules! each {
    ($place:expr, $at:ident => $call:expr) => {
        match $place {
            Place::Store($at) => $call,
            Place::Keyspace(_, $at) => $call,
            Place::Snapshot($at) => $call,
        }
    };
}

impl Place {
    fn get(&self, key: &[u8], options: &ReadOptions) -> Result<Option<Value>> {
        each!(self, at => at.get_with(key, options))
    }

    fn contains(&self, key: &[u8]) -> Result<bool> {
        each!(self, at => at.contains_key(key))
    }

    fn multi_get(&self, keys: &[Given], options: &ReadOptions) -> Result<Vec<Option<Value>>> {
        each!(self, at => at.multi_get_with(keys, options))
    }

    fn ends(&self, last: bool) -> Result<Option<(Value, Value)>> {
        each!(self, at => if last { at.last() } else { at.first() })
    }

    pub fn range(&self, range: Range) -> Iter {
        each!(self, at => at.range(range))
    }

    fn get_async(&self, key: &[u8], options: &ReadOptions) -> GetFuture {
        each!(self, at => at.get_async_with(key, options))
    }

    fn multi_get_async(&self, keys: &[Given], options: &ReadOptions) -> MultiGetFuture {
        each!(self, at => at.multi_get_async_with(keys, options))
    }

    fn range_async(&self, range: Range) -> RangeStream {
        each!(self, at => at.range_async(range))
    }
}

/// What a store, a keyspace and a snapshot have in common.
#[pyclass(frozen, subclass, module = "ringdb")]
pub struct Reader {
    pub place: Loose<Place>,
}

impl Reader {
    pub fn new(place: Place) -> Reader {
        Reader { place: Loose::new(place) }
    }

    fn value(&self, py: Python<'_>, key: &Given, options: &ReadOptions) -> PyResult<Option<Value>> {
        call(py, || self.place.get(key, options))
    }
}

#[pymethods]
impl Reader {
    #[pyo3(signature = (key, default=None, *, timeout=None))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        key: Given,
        default: Option<Bound<'py, PyAny>>,
        timeout: Option<f64>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let value = self.value(py, &key, &read_options(py, timeout)?)?;
        Ok(optional(py, value.as_ref()).map(Bound::into_any).or(default))
    }

    fn __getitem__<'py>(&self, py: Python<'py>, key: Given) -> PyResult<Bound<'py, PyBytes>> {
        match self.value(py, &key, &ReadOptions::default())? {
            Some(value) => Ok(bytes(py, &value)),
            None => Err(PyKeyError::new_err(bytes(py, &key).unbind())),
        }
    }

    fn __contains__(&self, py: Python<'_>, key: Given) -> PyResult<bool> {
        call(py, || self.place.contains(&key))
    }

    #[pyo3(signature = (keys, *, timeout=None))]
    fn multi_get<'py>(
        &self,
        py: Python<'py>,
        keys: Vec<Given>,
        timeout: Option<f64>,
    ) -> PyResult<Bound<'py, PyList>> {
        let options = read_options(py, timeout)?;
        let values = call(py, || self.place.multi_get(&keys, &options))?;
        PyList::new(py, values.iter().map(|v| optional(py, v.as_ref())))
    }

    #[pyo3(signature = (*, prefix=None, start=None, stop=None, reverse=false))]
    fn items(
        &self,
        prefix: Option<Given>,
        start: Option<Given>,
        stop: Option<Given>,
        reverse: bool,
    ) -> Items {
        Items::new(self.iter(prefix, start, stop), reverse, Part::Pairs)
    }

    #[pyo3(signature = (*, prefix=None, start=None, stop=None, reverse=false))]
    fn keys(&self, prefix: Option<Given>, start: Option<Given>, stop: Option<Given>, reverse: bool) -> Items {
        Items::new(self.iter(prefix, start, stop), reverse, Part::Keys)
    }

    #[pyo3(signature = (*, prefix=None, start=None, stop=None, reverse=false))]
    fn values(
        &self,
        prefix: Option<Given>,
        start: Option<Given>,
        stop: Option<Given>,
        reverse: bool,
    ) -> Items {
        Items::new(self.iter(prefix, start, stop), reverse, Part::Values)
    }

    fn __iter__(&self) -> Items {
        Items::new(self.iter(None, None, None), false, Part::Keys)
    }

    #[pyo3(signature = (path, start=None, stop=None))]
    fn export_range<'py>(
        &self,
        py: Python<'py>,
        path: PathBuf,
        start: Option<Given>,
        stop: Option<Given>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let range = given(&None, &start, &stop);
        let report = call(py, || each!(&*self.place, at => at.export_range(range, path)))?;
        Ok(pythonize(py, &report)?)
    }

    fn first<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        call(py, || self.place.ends(false))?.map(|p| pair(py, &p)).transpose()
    }

    fn last<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        call(py, || self.place.ends(true))?.map(|p| pair(py, &p)).transpose()
    }

    #[pyo3(signature = (key, default=None, *, timeout=None))]
    fn aget<'py>(
        &self,
        py: Python<'py>,
        key: Given,
        default: Option<Py<PyAny>>,
        timeout: Option<f64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        asynchronous::get(py, self.place.get_async(&key, &read_options(py, timeout)?), default)
    }

    #[pyo3(signature = (keys, *, timeout=None))]
    fn amulti_get<'py>(
        &self,
        py: Python<'py>,
        keys: Vec<Given>,
        timeout: Option<f64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        asynchronous::multi_get(py, self.place.multi_get_async(&keys, &read_options(py, timeout)?))
    }

    #[pyo3(signature = (*, prefix=None, start=None, stop=None))]
    fn aitems(&self, prefix: Option<Given>, start: Option<Given>, stop: Option<Given>) -> PairStream {
        PairStream::new(self.place.range_async(given(&prefix, &start, &stop)))
    }
}

impl Reader {
    fn iter(&self, prefix: Option<Given>, start: Option<Given>, stop: Option<Given>) -> Iter {
        self.place.range(given(&prefix, &start, &stop))
    }
}

/// The range that three arguments say.
pub fn given(prefix: &Option<Given>, start: &Option<Given>, stop: &Option<Given>) -> Range {
    range(prefix.as_deref(), start.as_deref(), stop.as_deref())
}

/// The store as it was at one moment.
#[pyclass(frozen, extends = Reader, module = "ringdb")]
pub struct Snapshot {}

impl Snapshot {
    pub fn make(py: Python<'_>, snapshot: ringdb::Snapshot) -> PyResult<Py<Snapshot>> {
        let reader = PyClassInitializer::from(Reader::new(Place::Snapshot(snapshot)));
        Py::new(py, reader.add_subclass(Snapshot {}))
    }
}

#[pymethods]
impl Snapshot {
    /// The same moment of a keyspace.
    fn keyspace(this: &Bound<'_, Self>, keyspace: &Bound<'_, Keyspace>) -> PyResult<Py<Snapshot>> {
        let Place::Snapshot(snapshot) = &*this.as_super().get().place else {
            unreachable!("a snapshot's place")
        };
        Snapshot::make(this.py(), snapshot.keyspace(Keyspace::of(keyspace)))
    }

    fn __enter__(this: Py<Self>) -> Py<Self> {
        this
    }

    /// The versions that it holds are kept until nothing refers to it.
    fn __exit__(&self, _kind: Py<PyAny>, _error: Py<PyAny>, _trace: Py<PyAny>) {}
}
