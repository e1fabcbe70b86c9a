//! Calls of asyncio. A call that is answered from memory is a future that is done already. The others wait in the
//! event loop's [`Driver`]: what wakes them writes one byte to a socket that the loop watches, and never takes the
//! interpreter's lock.

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use futures_core::Stream;
use pyo3::exceptions::PyStopAsyncIteration;
use pyo3::prelude::*;
use pyo3::types::PyList;
use ringdb::{GetFuture, MultiGetFuture, RangeStream, Result, Value, WriteFuture};

use crate::bytes::{optional, pair};
use crate::error::exception;

/// Most pairs that a stream takes at once.
const MOST: usize = 64;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a call ends in.
enum Answer {
    Value(Option<Value>, Option<Py<PyAny>>),
    Values(Vec<Option<Value>>),
    Written,
    Pair(Option<(Value, Value)>),
}

type Call = Pin<Box<dyn Future<Output = Result<Answer>> + Send>>;

impl Answer {
    fn into_python(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        Ok(match self {
            Answer::Value(Some(value), _) => optional(py, Some(&value)).into_pyobject(py)?,
            Answer::Value(None, default) => default.into_pyobject(py)?,
            Answer::Values(values) => {
                PyList::new(py, values.iter().map(|v| optional(py, v.as_ref())))?.into_any()
            }
            Answer::Written => py.None().into_bound(py),
            Answer::Pair(Some(next)) => pair(py, &next)?.into_any(),
            Answer::Pair(None) => return Err(PyStopAsyncIteration::new_err(())),
        })
    }
}

/// The calls that have something to do, and what tells the loop so.
struct Ready {
    calls: Mutex<Vec<u64>>,
    told: UnixStream,
}

/// Wakes one call.
struct Bell {
    id: u64,
    ready: Arc<Ready>,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        let mut calls = lock(&self.ready.calls);
        calls.push(self.id);
        if calls.len() == 1 {
            // Full, it says so already; closed, nobody listens.
            let _ = (&self.ready.told).write(&[1]);
        }
    }
}

struct Waiting {
    call: Call,
    waker: Waker,
    /// asyncio's future.
    future: Py<PyAny>,
}

/// The calls of one event loop that wait.
#[pyclass(frozen, module = "ringdb")]
pub struct Driver {
    ready: Arc<Ready>,
    heard: UnixStream,
    waiting: Mutex<HashMap<u64, Waiting>>,
    next: Mutex<u64>,
}

#[pymethods]
impl Driver {
    #[new]
    fn new() -> PyResult<Driver> {
        let (told, heard) = UnixStream::pair()?;
        told.set_nonblocking(true)?;
        heard.set_nonblocking(true)?;
        let ready = Arc::new(Ready { calls: Mutex::default(), told });
        Ok(Driver { ready, heard, waiting: Mutex::default(), next: Mutex::default() })
    }

    fn fileno(&self) -> i32 {
        self.heard.as_raw_fd()
    }

    /// Goes on with what has something to do.
    fn drain(&self, py: Python<'_>) -> PyResult<()> {
        let mut bytes = [0; 64];
        while (&self.heard).read(&mut bytes).is_ok_and(|n| n == bytes.len()) {}
        let calls = std::mem::take(&mut *lock(&self.ready.calls));
        for id in calls {
            // Out of the map while it runs: nothing that is called here finds a lock held.
            let Some(mut waiting) = lock(&self.waiting).remove(&id) else { continue };
            match waiting.call.as_mut().poll(&mut Context::from_waker(&waiting.waker)) {
                Poll::Pending => _ = lock(&self.waiting).insert(id, waiting),
                Poll::Ready(answer) => settle(py, waiting.future.bind(py), answer)?,
            }
        }
        Ok(())
    }

    /// How many calls wait.
    fn waiting(&self) -> usize {
        lock(&self.waiting).len()
    }

    /// Drops a call whose future was cancelled. What it has asked for is thrown away.
    fn forget(&self, id: u64, future: &Bound<'_, PyAny>) -> PyResult<()> {
        if future.call_method0("cancelled")?.is_truthy()? {
            let given_up = lock(&self.waiting).remove(&id);
            drop(given_up);
        }
        Ok(())
    }
}

/// Gives an asyncio future its result, unless it was cancelled.
fn settle(py: Python<'_>, future: &Bound<'_, PyAny>, answer: Result<Answer>) -> PyResult<()> {
    if future.call_method0("done")?.is_truthy()? {
        return Ok(());
    }
    match answer.map_err(|e| exception(py, &e)).and_then(|a| a.into_python(py)) {
        Ok(value) => future.call_method1("set_result", (value,))?,
        Err(e) => future.call_method1("set_exception", (e,))?,
    };
    Ok(())
}

/// A future of the running event loop, and the loop's driver.
fn future(py: Python<'_>) -> PyResult<(Bound<'_, PyAny>, Bound<'_, Driver>)> {
    let made = py.import("ringdb._asyncio")?.call_method0("future")?;
    made.extract()
}

/// A future that is done.
pub fn done<'py>(py: Python<'py>, value: Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let (future, _) = future(py)?;
    future.call_method1("set_result", (value,))?;
    Ok(future)
}

/// Begins a call: the asyncio future that it resolves.
fn begin(
    py: Python<'_>,
    call: impl Future<Output = Result<Answer>> + Send + 'static,
) -> PyResult<Bound<'_, PyAny>> {
    let (future, driver) = future(py)?;
    let this = driver.get();
    let id = {
        let mut next = lock(&this.next);
        *next += 1;
        *next
    };
    let waker = Waker::from(Arc::new(Bell { id, ready: this.ready.clone() }));
    let mut call: Call = Box::pin(call);
    match call.as_mut().poll(&mut Context::from_waker(&waker)) {
        Poll::Ready(answer) => settle(py, &future, answer)?,
        Poll::Pending => {
            // Woken already, it is found all the same: the loop's thread drains, and is here.
            let waiting = Waiting { call, waker, future: future.clone().unbind() };
            lock(&this.waiting).insert(id, waiting);
            let forget = py.import("functools")?.call_method1("partial", (driver.getattr("forget")?, id))?;
            future.call_method1("add_done_callback", (forget,))?;
        }
    }
    Ok(future)
}

pub fn get(py: Python<'_>, call: GetFuture, default: Option<Py<PyAny>>) -> PyResult<Bound<'_, PyAny>> {
    begin(py, async move { Ok(Answer::Value(call.await?, default)) })
}

pub fn multi_get(py: Python<'_>, call: MultiGetFuture) -> PyResult<Bound<'_, PyAny>> {
    begin(py, async move { Ok(Answer::Values(call.await?)) })
}

pub fn write(py: Python<'_>, call: WriteFuture) -> PyResult<Bound<'_, PyAny>> {
    begin(py, async move { call.await.map(|()| Answer::Written) })
}

/// Iterates over the pairs of a range without blocking the event loop.
#[pyclass(frozen, module = "ringdb")]
pub struct PairStream {
    inner: Arc<Mutex<Ahead>>,
}

struct Ahead {
    stream: RangeStream,
    pairs: VecDeque<(Value, Value)>,
    /// How the stream has ended.
    end: Option<Result<()>>,
}

impl Ahead {
    /// The next pair. With the first that has to be waited for, those that are there already are taken too.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<Answer>> {
        while self.pairs.len() < MOST && self.end.is_none() {
            match Pin::new(&mut self.stream).poll_next(context) {
                Poll::Ready(Some(Ok(next))) => self.pairs.push_back(next),
                Poll::Ready(Some(Err(e))) => self.end = Some(Err(e)),
                Poll::Ready(None) => self.end = Some(Ok(())),
                Poll::Pending if self.pairs.is_empty() => return Poll::Pending,
                Poll::Pending => break,
            }
        }
        Poll::Ready(match (self.pairs.pop_front(), &mut self.end) {
            (Some(next), _) => Ok(Answer::Pair(Some(next))),
            // It is told once; then the end.
            (None, Some(end)) => std::mem::replace(end, Ok(())).map(|()| Answer::Pair(None)),
            (None, None) => return Poll::Pending,
        })
    }
}

impl PairStream {
    pub fn new(stream: RangeStream) -> PairStream {
        PairStream { inner: Arc::new(Mutex::new(Ahead { stream, pairs: VecDeque::new(), end: None })) }
    }
}

#[pymethods]
impl PairStream {
    fn __aiter__(this: Py<Self>) -> Py<Self> {
        this
    }

    fn __anext__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let inner = self.inner.clone();
        begin(py, std::future::poll_fn(move |context| lock(&inner).poll(context)))
    }
}
