//! [`Items`]: iteration, which takes several pairs each time that it gives the interpreter's lock up.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;
use ringdb::{Error, Iter, Keys, Value};

use crate::bytes::{bytes, pair};
use crate::error::exception;

/// Most pairs, and bytes of them, that are taken at once.
const MOST: usize = 256;
const MOST_BYTES: usize = 1 << 20;

/// What of a pair is returned.
#[derive(Clone, Copy)]
pub enum Part {
    Pairs,
    Keys,
    Values,
}

/// Iterates over pairs, keys or values in key order.
#[pyclass(frozen, module = "ringdb")]
pub struct Items {
    inner: Mutex<Taken>,
    part: Part,
}

struct Taken {
    iter: Source,
    reverse: bool,
    ahead: VecDeque<(Value, Value)>,
    failed: Option<Error>,
    /// How many are taken at once: twice as many each time.
    most: usize,
}

/// Keys alone copy no values and ask no merge operators.
enum Source {
    Pairs(Iter),
    Keys(Keys),
}

impl Source {
    fn next(&mut self, back: bool) -> Option<Result<(Value, Value), Error>> {
        let key = match (self, back) {
            (Source::Pairs(pairs), false) => return pairs.next(),
            (Source::Pairs(pairs), true) => return pairs.next_back(),
            (Source::Keys(keys), false) => keys.next(),
            (Source::Keys(keys), true) => keys.next_back(),
        };
        key.map(|key| Ok((key?, Value::default())))
    }
}

impl Items {
    pub fn new(iter: Iter, reverse: bool, part: Part) -> Items {
        let iter = match part {
            Part::Keys => Source::Keys(iter.keys()),
            Part::Pairs | Part::Values => Source::Pairs(iter),
        };
        Items {
            inner: Mutex::new(Taken { iter, reverse, ahead: VecDeque::new(), failed: None, most: 1 }),
            part,
        }
    }
}

impl Taken {
    fn next(&mut self) -> Option<Result<(Value, Value), Error>> {
        if let Some(pair) = self.ahead.pop_front() {
            return Some(Ok(pair));
        }
        self.fill();
        self.ahead.pop_front().map(Ok).or_else(|| self.failed.take().map(Err))
    }

    fn fill(&mut self) {
        let mut size = 0;
        while self.ahead.len() < self.most && size < MOST_BYTES {
            match self.iter.next(self.reverse) {
                None => break,
                Some(Ok(pair)) => {
                    size += pair.0.len() + pair.1.len();
                    self.ahead.push_back(pair);
                }
                Some(Err(e)) => {
                    self.failed = Some(e);
                    break;
                }
            }
        }
        self.most = (2 * self.most).min(MOST);
    }
}

#[pymethods]
impl Items {
    fn __iter__(this: Py<Self>) -> Py<Self> {
        this
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        // Whoever holds this lock may wait for the interpreter's, in a merge operator.
        let next = py.detach(|| self.inner.lock().unwrap_or_else(PoisonError::into_inner).next());
        let Some(next) = next else { return Ok(None) };
        let next = next.map_err(|e| exception(py, &e))?;
        Ok(Some(match self.part {
            Part::Pairs => pair(py, &next)?.into_any(),
            Part::Keys => bytes(py, &next.0).into_any(),
            Part::Values => bytes(py, &next.1).into_any(),
        }))
    }
}
