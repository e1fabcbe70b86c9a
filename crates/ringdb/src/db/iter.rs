//! [`Iter`]: pairs in key order, from both ends, as of one sequence number.
//!
//! Each end has a merge of its own over all memtables and tables, made when that end is first asked. The
//! first blocks that the merge needs are read from the disk together.

mod keys;
mod stream;

use std::ops::Bound;
use std::sync::Arc;

use super::cover::{Covered, Skip};
use super::resolve::{add_operand, first_operand};
use super::source::Source;
use super::view::{View, Views};
use crate::bounds::Bounds;
use crate::coding::same_bytes;
use crate::cursor::{Cursor, ReverseCursor, key_head};
use crate::expiry::Moment;
use crate::insight::{Latencies, Seeks};
use crate::key::{Kind, Prefix, Seq};
use crate::merge::MergeCursor;
use crate::operator::operands::Operands;
use crate::table::cursor::SeekTo;
use crate::{Error, ReadOptions, Result, Value};

pub use keys::Keys;
pub use stream::RangeStream;

/// Key-value pairs in key order, from both ends. It sees the store as it was when the iterator was made, and
/// keeps the files it reads. After an error, which is yielded once, it ends.
///
/// ```
/// # let dir = tempfile::tempdir().expect("a temporary directory");
/// # let db = ringdb::Db::open(dir.path(), ringdb::Options::default())?;
/// for (fruit, colour) in [("apple", "red"), ("pear", "green"), ("plum", "blue")] {
///     db.put(fruit, colour)?;
/// }
/// let mut pairs = db.range("a"..);
/// assert_eq!(pairs.next().transpose()?.expect("a pair").0, b"apple");
/// assert_eq!(pairs.next_back().transpose()?.expect("a pair").0, b"plum");
/// assert_eq!(pairs.count(), 1);
/// # Ok::<(), ringdb::Error>(())
/// ```
pub struct Iter {
    state: State,
}

enum State {
    Open(Box<Merged>),
    Failed(Error),
    Done,
}

struct Merged {
    view: Arc<View>,
    seq: Seq,
    /// Bytes of the keyspace's prefix, which returned keys come without.
    prefix_len: usize,
    fill_cache: bool,
    /// Whether values are wanted, too.
    values: bool,
    bounds: Arc<Bounds>,
    /// The upper bound's head; the greatest number without one.
    upper_head: u64,
    front: Option<Front>,
    back: Option<Back>,
    /// What range tombstones hide.
    covered: Covered,
    /// As of when values expire.
    moment: Moment,
    /// The key that the front end has come to (returned or found deleted); empty before.
    front_key: Vec<u8>,
    /// The key that the back end has come to; empty before.
    back_key: Vec<u8>,
    seeks: Seeks,
}

/// What the front has come to.
enum Forward {
    Pair(Value, Value),
    End,
    /// It was not to go on.
    Stopped,
}

struct Front {
    merge: MergeCursor<Source>,
    /// Whether the cursor still stands on what was returned last.
    spent: bool,
    /// Where it goes from there, if not to the next version.
    skip: Option<Box<Skip>>,
    /// Of the key that it has come to, while older versions of it are wanted.
    operands: Option<Box<Operands>>,
}

struct Back {
    merge: MergeCursor<Source>,
    /// The newest visible version so far of `key`: `Some(None)` is a tombstone.
    newest: Option<Option<Value>>,
    /// Operands that are newer than that.
    operands: Option<Box<Operands>>,
    key: Vec<u8>,
}

impl Views {
    /// The pairs of a keyspace whose user key lies in `range`, as of a snapshot (`None`: as of now).
    pub(super) fn iter(
        &self,
        prefix: &Prefix,
        range: (Bound<&[u8]>, Bound<&[u8]>),
        snapshot: Option<Seq>,
        options: &ReadOptions,
    ) -> Iter {
        let (view, seq) = self.as_of(snapshot);
        let (lower, upper) = internal_bounds(prefix, range);
        Iter::over(view, lower, upper, seq, prefix.len(), options).timed(self.latencies())
    }
}

impl Iter {
    /// The pairs visible at `seq` with an internal key from `lower` on and before `upper` (`None`: no end).
    /// Returned keys come without their first `prefix_len` bytes.
    pub(crate) fn over(
        view: Arc<View>,
        lower: Vec<u8>,
        upper: Option<Vec<u8>>,
        seq: Seq,
        prefix_len: usize,
        options: &ReadOptions,
    ) -> Iter {
        if upper.as_ref().is_some_and(|upper| *upper <= lower) {
            return Iter { state: State::Done };
        }
        let merged = Merged {
            covered: Covered::new(&view, seq),
            moment: Moment::default(),
            view,
            seq,
            prefix_len,
            fill_cache: options.fill_cache,
            values: true,
            upper_head: upper.as_ref().map_or(u64::MAX, |upper| key_head(upper, 0)),
            bounds: Arc::new(Bounds { lower, upper }),
            front: None,
            back: None,
            front_key: Vec::with_capacity(64),
            back_key: Vec::new(),
            seeks: Seeks::default(),
        };
        Iter { state: State::Open(Box::new(merged)) }
    }

    /// The same, timed.
    fn timed(mut self, latencies: &Arc<Latencies>) -> Iter {
        if let State::Open(merged) = &mut self.state {
            merged.seeks = Seeks::new(latencies);
        }
        self
    }

    /// Yields `error` and ends.
    pub(crate) fn failed(error: Error) -> Iter {
        Iter { state: State::Failed(error) }
    }

    #[inline]
    fn step(
        &mut self,
        f: impl FnOnce(&mut Merged) -> Result<Option<(Value, Value)>>,
    ) -> Option<Result<(Value, Value)>> {
        if let State::Open(merged) = &mut self.state {
            match f(merged) {
                Ok(Some(pair)) => return Some(Ok(pair)),
                Ok(None) => self.state = State::Done,
                Err(e) => self.state = State::Failed(e),
            }
        }
        match std::mem::replace(&mut self.state, State::Done) {
            State::Failed(e) => Some(Err(e)),
            _ => None,
        }
    }
}

/// The first internal key of a range of user keys, and the first behind it (`None`: there is none).
pub(super) fn internal_bounds(
    prefix: &Prefix,
    range: (Bound<&[u8]>, Bound<&[u8]>),
) -> (Vec<u8>, Option<Vec<u8>>) {
    let prefix = prefix.as_slice();
    let internal = |key: &[u8], tail: &[u8]| [prefix, key, tail].concat();
    let lower = match range.0 {
        Bound::Included(key) => internal(key, &[]),
        Bound::Excluded(key) => internal(key, &[0]),
        Bound::Unbounded => prefix.to_vec(),
    };
    let upper = match range.1 {
        Bound::Included(key) => Some(internal(key, &[0])),
        Bound::Excluded(key) => Some(internal(key, &[])),
        Bound::Unbounded => {
            let mut next = prefix.to_vec();
            while next.last() == Some(&u8::MAX) {
                next.pop();
            }
            next.last_mut().map(|b| *b += 1).map(|()| next)
        }
    };
    (lower, upper)
}

impl Iterator for Iter {
    type Item = Result<(Value, Value)>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.step(Merged::next)
    }
}

impl DoubleEndedIterator for Iter {
    #[inline]
    fn next_back(&mut self) -> Option<Self::Item> {
        self.step(Merged::next_back)
    }
}

impl std::iter::FusedIterator for Iter {}

impl std::fmt::Debug for Iter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = match &self.state {
            State::Open(m) => format!("{:?} at {}", m.bounds, m.seq),
            State::Failed(e) => format!("failed: {e}"),
            State::Done => "done".into(),
        };
        write!(f, "Iter({state})")
    }
}

impl Merged {
    /// All sources, positioned at the first version within the bounds, or the last: timed if it is the one in so many.
    fn timed_merge(&self, forward: bool) -> Result<MergeCursor<Source>> {
        let began = self.seeks.begin();
        let merge = self.merge(forward);
        self.seeks.end(began);
        merge
    }

    /// The same.
    fn merge(&self, forward: bool) -> Result<MergeCursor<Source>> {
        let place = match (&self.bounds.lower, &self.bounds.upper) {
            (lower, _) if forward => SeekTo::AtOrAfter(lower),
            (_, Some(upper)) => SeekTo::Before(upper),
            (_, None) => SeekTo::Last,
        };
        let mut sources = Source::all(&self.view, &self.bounds, self.fill_cache);
        Source::seek_all(&mut sources, place, self.fill_cache)?;
        let mut merge = MergeCursor::new(sources);
        if forward {
            merge.start_forward()
        } else {
            merge.start_backward()
        }
        Ok(merge)
    }

    #[inline]
    fn next(&mut self) -> Result<Option<(Value, Value)>> {
        if self.front.is_none() {
            self.front = Some(Front::new(self.timed_merge(true)?));
        }
        match self.forward(|_, _| true)? {
            Forward::Pair(key, value) => Ok(Some((key, value))),
            Forward::End | Forward::Stopped => Ok(None),
        }
    }

    /// The next pair from the front, which is there. `ready` is asked before each step of the merge, or skip, and may
    /// stop it; the next call goes on there.
    #[inline]
    fn forward(
        &mut self,
        mut ready: impl FnMut(&mut MergeCursor<Source>, Option<&mut Skip>) -> bool,
    ) -> Result<Forward> {
        let Some(Front { merge, spent, skip, operands }) = &mut self.front else { return Ok(Forward::End) };
        let mut leave = std::mem::take(spent);
        loop {
            if leave {
                if !ready(merge, skip.as_deref_mut()) {
                    *spent = true;
                    return Ok(Forward::Stopped);
                }
                match skip.take() {
                    None => merge.next()?,
                    Some(skip) => merge.move_current(|source| skip.forward(source))?,
                }
            }
            leave = true;
            if operands.is_some() {
                let moment = (&mut self.moment, self.view.clock());
                match self.covered.gather(merge, &self.front_key, operands, moment)? {
                    None => continue,
                    // What the merge stands on is older, or of another key: the next call goes on from it.
                    Some(value) => return Ok(Forward::Pair(self.user_key(), value)),
                }
            }
            if !merge.valid() {
                return Ok(Forward::End);
            }
            let key = merge.key();
            if same_bytes(key, &self.front_key) {
                // An older version of what has been dealt with.
                continue;
            }
            let may_be_over = key_head(key, 0) >= self.upper_head;
            if (may_be_over && self.bounds.upper.as_ref().is_some_and(|upper| key >= upper.as_slice()))
                || (!self.back_key.is_empty() && key >= self.back_key.as_slice())
            {
                return Ok(Forward::End);
            }
            if merge.seq() > self.seq {
                continue;
            }
            self.front_key.clear();
            self.front_key.extend_from_slice(key);
            if self.covered.any() && self.covered.hides_ahead(&self.front_key, merge.seq()) {
                *skip = self.covered.skip_ahead(&self.front_key, merge.current_source());
                continue;
            }
            let mut value = merge.value();
            match merge.kind() {
                Kind::Put => {}
                Kind::Delete => continue,
                Kind::Merge if self.values => {
                    *operands = Some(first_operand(&self.view, merge)?);
                    continue;
                }
                Kind::Merge => {}
                Kind::Expiring => match self.moment.unexpired(self.view.clock(), value) {
                    Some(unexpired) => value = unexpired,
                    None => continue,
                },
            }
            *spent = true;
            let key = key.get(self.prefix_len..).unwrap_or_default();
            let value = if self.values { Value::copy_from(value) } else { Value::default() };
            return Ok(Forward::Pair(Value::copy_from(key), value));
        }
    }

    /// The key that the front end has come to, as the caller knows it.
    fn user_key(&self) -> Value {
        Value::copy_from(self.front_key.get(self.prefix_len..).unwrap_or_default())
    }

    fn next_back(&mut self) -> Result<Option<(Value, Value)>> {
        if self.back.is_none() {
            let merge = self.timed_merge(false)?;
            self.back = Some(Back { merge, newest: None, operands: None, key: Vec::new() });
        }
        let Some(Back { merge, newest, operands, key }) = &mut self.back else { return Ok(None) };
        loop {
            // Versions of a key come oldest first: the last visible one before the key changes is the newest.
            let here = merge.valid().then(|| merge.key()).filter(|here| {
                *here >= self.bounds.lower.as_slice()
                    && (self.front_key.is_empty() || *here > self.front_key.as_slice())
            });
            if here != Some(key.as_slice())
                && let Some(found) = newest.take()
            {
                self.back_key.clone_from(key);
                let found = match operands.take() {
                    None => found,
                    Some(operands) => Some(operands.resolve(key, found.as_deref())?.into()),
                };
                if let Some(value) = found {
                    let key = key.get(self.prefix_len..).unwrap_or_default();
                    return Ok(Some((Value::copy_from(key), value)));
                }
                continue;
            }
            let Some(here) = here else { return Ok(None) };
            if merge.seq() <= self.seq {
                if newest.is_none() {
                    key.clear();
                    key.extend_from_slice(here);
                }
                let hidden = self.covered.any() && self.covered.hides_behind(key, merge.seq());
                let values = self.values;
                if !hidden && values && merge.kind() == Kind::Merge {
                    add_operand(&self.view, operands, key, merge.value())?;
                    newest.get_or_insert(None);
                } else {
                    *operands = None;
                    let value = match merge.kind() {
                        _ if hidden => None,
                        Kind::Merge => Some(&[][..]),
                        kind => self.moment.value_of(self.view.clock(), kind, merge.value()),
                    };
                    *newest =
                        Some(value.map(|v| if values { Value::copy_from(v) } else { Value::default() }));
                }
                if hidden && let Some(skip) = self.covered.skip_behind(key, merge.current_source()) {
                    merge.move_current(|source| skip.back(source))?;
                    continue;
                }
            }
            merge.prev()?;
        }
    }
}

impl Front {
    fn new(merge: MergeCursor<Source>) -> Front {
        Front { merge, spent: false, skip: None, operands: None }
    }
}

#[cfg(test)]
mod tests;
