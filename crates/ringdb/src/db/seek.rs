//! [`Cursor`]: a place among the pairs of a keyspace that can be sought again and again, with borrowed bytes.

use std::sync::Arc;

use super::cover::{Covered, Skip};
use super::iter::internal_bounds;
use super::resolve::{add_operand, first_operand};
use super::source::Source;
use super::view::{View, Views};
use crate::bounds::Bounds;
use crate::coding::same_bytes;
use crate::cursor::{Cursor as _, ReverseCursor as _};
use crate::expiry::{self, Moment};
use crate::insight::Seeks;
use crate::key::{Kind, Prefix, Seq};
use crate::merge::MergeCursor;
use crate::operator::operands::Operands;
use crate::table::cursor::SeekTo;
use crate::{Error, ReadOptions, Result};

/// A place among the pairs of a keyspace, moved in both directions and sought as often as one likes. It sees the store
/// as it was when it was made, and keeps the memtables and files of that moment until dropped, as an iterator does.
///
/// Keys and values are borrowed until the next move; a value that is not asked for is not looked at, going forward. A
/// seek allocates nothing: it uses again what the cursor has. Made without a place; a move without a place does
/// nothing. After an error, and behind either end, it has none.
///
/// ```
/// # let dir = std::env::temp_dir().join(format!("ringdb-cursor-{}", std::process::id()));
/// # let db = ringdb::Db::open(&dir, ringdb::Options::default())?;
/// db.put("apple", "red")?;
/// db.put("pear", "green")?;
/// db.put("plum", "blue")?;
/// let mut cursor = db.cursor();
/// assert!(cursor.seek("b")?);
/// assert_eq!((cursor.key(), cursor.value()), (Some(&b"pear"[..]), Some(&b"green"[..])));
/// assert!(cursor.next()? && cursor.key() == Some(b"plum"));
/// assert!(!cursor.next()? && cursor.key().is_none());
/// assert!(cursor.seek_for_prev("peach")? && cursor.key() == Some(b"apple"));
/// # drop(db);
/// # std::fs::remove_dir_all(&dir).ok();
/// # Ok::<(), ringdb::Error>(())
/// ```
pub struct Cursor {
    state: Result<Box<Open>>,
}

struct Open {
    merge: MergeCursor<Source>,
    /// What the merge is of. Dropped after it.
    view: Arc<View>,
    bounds: Arc<Bounds>,
    seq: Seq,
    /// What range tombstones hide.
    covered: Covered,
    /// As of when values expire: that of the last seek.
    moment: Moment,
    prefix_len: usize,
    fill_cache: bool,
    at: At,
    /// The internal key of the place, or that the last search has come by.
    key: Vec<u8>,
    /// The value, if it came from the back, or was merged.
    value: Vec<u8>,
    /// Where to seek.
    target: Vec<u8>,
    seeks: Seeks,
}

/// Where it stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum At {
    Nowhere,
    /// On what the merge stands on, going forward.
    Front,
    /// On `key` and `value`, which was merged; the merge, going forward, stands behind what it was merged of.
    Merged,
    /// On `key` and `value`; the merge, going backward, has left them behind.
    Back,
}

impl Views {
    /// A cursor over a keyspace as of a snapshot (`None`: as of now).
    pub(super) fn cursor(&self, prefix: &Prefix, snapshot: Option<Seq>, options: &ReadOptions) -> Cursor {
        let (view, seq) = self.as_of(snapshot);
        let (lower, upper) = internal_bounds(prefix, crate::KeyRange::bounds(&..));
        let bounds = Arc::new(Bounds { lower, upper });
        let merge = MergeCursor::new(Source::all(&view, &bounds, options.fill_cache));
        Cursor {
            state: Ok(Box::new(Open {
                merge,
                covered: Covered::new(&view, seq),
                moment: Moment::default(),
                view,
                bounds,
                seq,
                prefix_len: prefix.len(),
                fill_cache: options.fill_cache,
                at: At::Nowhere,
                key: Vec::with_capacity(64),
                value: Vec::new(),
                target: Vec::with_capacity(64),
                seeks: Seeks::new(self.latencies()),
            })),
        }
    }
}

impl Cursor {
    /// Whose every move is this error.
    pub(super) fn failed(error: Error) -> Cursor {
        Cursor { state: Err(error) }
    }

    fn go(&mut self, f: impl FnOnce(&mut Open) -> Result<bool>) -> Result<bool> {
        let open = self.state.as_mut().map_err(|e| e.clone())?;
        let moved = f(open);
        if moved.is_err() {
            open.at = At::Nowhere;
        }
        moved
    }

    /// The same, timed as a seek if it is the one in so many.
    fn go_far(&mut self, f: impl FnOnce(&mut Open) -> Result<bool>) -> Result<bool> {
        self.go(|c| {
            let began = c.seeks.begin();
            let moved = f(c);
            c.seeks.end(began);
            moved
        })
    }

    /// To the first pair whose key is at or after `key`; false if there is none.
    ///
    /// # Errors
    /// This and all other moves: what reading fails with (an I/O error, damage), and [`Error::Closed`] or
    /// [`Error::KeyspaceDropped`] if the cursor was made too late.
    pub fn seek(&mut self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.go_far(|c| {
            c.aim(key.as_ref());
            c.seek_forward()
        })
    }

    /// To the last pair whose key is at or before `key`; false if there is none.
    ///
    /// # Errors
    /// As [`Cursor::seek`].
    pub fn seek_for_prev(&mut self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.go_far(|c| {
            c.aim(key.as_ref());
            // The first key behind it.
            c.target.push(0);
            c.seek_backward()
        })
    }

    /// To the first pair; false if there is none.
    ///
    /// # Errors
    /// As [`Cursor::seek`].
    pub fn first(&mut self) -> Result<bool> {
        self.go_far(|c| {
            c.aim(b"");
            c.seek_forward()
        })
    }

    /// To the last pair; false if there is none.
    ///
    /// # Errors
    /// As [`Cursor::seek`].
    pub fn last(&mut self) -> Result<bool> {
        self.go_far(|c| {
            c.target.clear();
            match &c.bounds.upper {
                Some(upper) => c.target.extend_from_slice(upper),
                None => return c.seek_last(),
            }
            c.seek_backward()
        })
    }

    /// To the next pair; false if there is none, or the cursor has no place.
    ///
    /// # Errors
    /// As [`Cursor::seek`].
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<bool> {
        self.go(|c| match c.at {
            At::Nowhere => Ok(false),
            At::Front => c.settle_forward(true),
            At::Merged => c.settle_forward(false),
            At::Back => {
                c.aim_at_place();
                c.target.push(0);
                c.seek_forward()
            }
        })
    }

    /// To the pair before; false if there is none, or the cursor has no place.
    ///
    /// # Errors
    /// As [`Cursor::seek`].
    pub fn prev(&mut self) -> Result<bool> {
        self.go(|c| match c.at {
            At::Nowhere => Ok(false),
            At::Back => c.settle_backward(),
            At::Front | At::Merged => {
                c.aim_at_place();
                c.seek_backward()
            }
        })
    }

    /// Whether it stands on a pair.
    pub fn valid(&self) -> bool {
        self.place().is_some()
    }

    /// The key that it stands on.
    #[inline]
    pub fn key(&self) -> Option<&[u8]> {
        self.place().and_then(|c| c.key.get(c.prefix_len..))
    }

    /// The value of that key.
    #[inline]
    pub fn value(&self) -> Option<&[u8]> {
        self.place().map(|c| match (c.at, c.merge.kind()) {
            (At::Front, Kind::Expiring) => expiry::split(c.merge.value()).1,
            (At::Front, _) => c.merge.value(),
            _ => &c.value,
        })
    }

    #[inline]
    fn place(&self) -> Option<&Open> {
        self.state.as_deref().ok().filter(|c| c.at != At::Nowhere)
    }
}

impl Open {
    /// Makes an internal key the target.
    fn aim(&mut self, key: &[u8]) {
        self.target.clear();
        self.target.extend_from_slice(self.bounds.lower.get(..self.prefix_len).unwrap_or_default());
        self.target.extend_from_slice(key);
    }

    fn aim_at_place(&mut self) {
        self.target.clear();
        self.target.extend_from_slice(&self.key);
    }

    fn seek_forward(&mut self) -> Result<bool> {
        self.at = At::Nowhere;
        self.moment.renew();
        Source::seek_all(self.merge.sources_mut(), SeekTo::AtOrAfter(&self.target), self.fill_cache)?;
        self.merge.start_forward();
        self.key.clear();
        self.settle_forward(false)
    }

    fn seek_backward(&mut self) -> Result<bool> {
        self.at = At::Nowhere;
        self.moment.renew();
        Source::seek_all(self.merge.sources_mut(), SeekTo::Before(&self.target), self.fill_cache)?;
        self.merge.start_backward();
        self.settle_backward()
    }

    fn seek_last(&mut self) -> Result<bool> {
        self.at = At::Nowhere;
        self.moment.renew();
        Source::seek_all(self.merge.sources_mut(), SeekTo::Last, self.fill_cache)?;
        self.merge.start_backward();
        self.settle_backward()
    }

    /// Goes on to the newest visible version of the next key that has a value; `leave`: the merge still stands on what
    /// was dealt with.
    fn settle_forward(&mut self, mut leave: bool) -> Result<bool> {
        self.at = At::Nowhere;
        let mut skip: Option<Box<Skip>> = None;
        loop {
            match skip.take() {
                Some(skip) => self.merge.move_current(|source| skip.forward(source))?,
                None if leave => self.merge.next()?,
                None => {}
            }
            leave = true;
            if !self.merge.valid() {
                return Ok(false);
            }
            let key = self.merge.key();
            if same_bytes(key, &self.key) {
                continue;
            }
            if self.bounds.end_before(key) {
                return Ok(false);
            }
            if self.merge.seq() > self.seq {
                continue;
            }
            self.key.clear();
            self.key.extend_from_slice(key);
            if self.covered.any() && self.covered.hides_ahead(&self.key, self.merge.seq()) {
                skip = self.covered.skip_ahead(&self.key, self.merge.current_source());
                continue;
            }
            let live = match self.merge.kind() {
                Kind::Put => true,
                Kind::Delete => false,
                Kind::Merge => return self.merge_forward(),
                Kind::Expiring => self.moment.unexpired(self.view.clock(), self.merge.value()).is_some(),
            };
            if live {
                self.at = At::Front;
                return Ok(true);
            }
        }
    }

    /// To the value that comes of the operand on which the merge stands and what is older.
    #[cold]
    fn merge_forward(&mut self) -> Result<bool> {
        let mut operands = Some(first_operand(&self.view, &self.merge)?);
        loop {
            self.merge.next()?;
            let moment = (&mut self.moment, self.view.clock());
            let gathered = self.covered.gather(&self.merge, &self.key, &mut operands, moment)?;
            if let Some(value) = gathered {
                self.value = value.into_vec();
                self.at = At::Merged;
                return Ok(true);
            }
        }
    }

    /// The same backward. Versions of a key come oldest first: the last visible one before the key changes is the
    /// newest.
    fn settle_backward(&mut self) -> Result<bool> {
        self.at = At::Nowhere;
        let (mut started, mut live) = (false, false);
        // Whether `value` is that of the key, and what is to be merged into it.
        let (mut put, mut operands): (bool, Option<Box<Operands>>) = (false, None);
        loop {
            let here = self.merge.valid().then(|| self.merge.key());
            let here = here.filter(|here| *here >= self.bounds.lower.as_slice());
            if started && here != Some(self.key.as_slice()) {
                if live {
                    if let Some(operands) = operands {
                        let value = put.then_some(self.value.as_slice());
                        self.value = operands.resolve(&self.key, value)?;
                    }
                    self.at = At::Back;
                    return Ok(true);
                }
                started = false;
            }
            let Some(here) = here else { return Ok(false) };
            if self.merge.seq() <= self.seq {
                if !started {
                    self.key.clear();
                    self.key.extend_from_slice(here);
                    (started, put, operands) = (true, false, None);
                }
                let hidden = self.covered.any() && self.covered.hides_behind(&self.key, self.merge.seq());
                if !hidden && self.merge.kind() == Kind::Merge {
                    add_operand(&self.view, &mut operands, &self.key, self.merge.value())?;
                    live = true;
                    self.merge.prev()?;
                    continue;
                }
                let value = match hidden {
                    true => None,
                    false => self.moment.value_of(self.view.clock(), self.merge.kind(), self.merge.value()),
                };
                live = value.is_some();
                (put, operands) = (live, None);
                if let Some(value) = value {
                    self.value.clear();
                    self.value.extend_from_slice(value);
                }
                if hidden && let Some(skip) = self.covered.skip_behind(&self.key, self.merge.current_source())
                {
                    self.merge.move_current(|source| skip.back(source))?;
                    continue;
                }
            }
            self.merge.prev()?;
        }
    }
}

impl std::fmt::Debug for Cursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (&self.state, self.key()) {
            (Err(e), _) => write!(f, "Cursor(failed: {e})"),
            (Ok(_), Some(key)) => write!(f, "Cursor(at \"{}\")", key.escape_ascii()),
            (Ok(_), None) => write!(f, "Cursor(nowhere)"),
        }
    }
}
