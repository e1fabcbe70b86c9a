//! The ways to call a store: blocking calls, futures, and the completion interface. None may change an answer.

use std::ops::{Bound, RangeBounds};
use std::time::Duration;

use ringdb::{
    Cursor, Db, Durability, Keyspace, ReadOptions, Reads, Snapshot, Value, WriteBatch, WriteFuture,
    WriteOptions,
};

use crate::executor::{block_on, join_all, poll_once};
use crate::op::{How, Key, Limits};
use crate::subject::take;

/// Which of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Calls {
    Blocking,
    /// Writes, syncs and reads are futures, of which several wait at a time and some are dropped.
    Futures,
    /// Reads by [`Reads`] and by a stream.
    Reads,
    /// Reads that borrow bytes: by functions, cursors and keys alone. Batches are transactions.
    Looks,
}

impl Calls {
    pub const ALL: [Calls; 4] = [Calls::Blocking, Calls::Futures, Calls::Reads, Calls::Looks];
}

/// More than a test takes.
const LONG: Duration = Duration::from_secs(3600);
/// Writes on their way at most.
const WRITES: usize = 20;

/// A reader of one keyspace, now or at a snapshot: the calls are the same, the types are not.
pub enum Reader<'a> {
    Now(&'a Keyspace),
    Then(Snapshot, &'a Keyspace),
}

macro_rules! on {
    ($r:expr, $x:ident => $call:expr) => {
        match $r {
            Reader::Now($x) => $call,
            Reader::Then($x, _) => $call,
        }
    };
}
pub(crate) use on;

impl Reader<'_> {
    /// The value of a key; `n` varies the way.
    pub fn get(&self, calls: Calls, key: &Key, options: &ReadOptions, n: usize) -> Option<Value> {
        match calls {
            Calls::Blocking => on!(self, x => x.get_with(key, options)).expect("get"),
            // It is a future inside.
            Calls::Futures if n.is_multiple_of(4) => {
                on!(self, x => x.get_with(key, &options.with_deadline(LONG))).expect("get")
            }
            Calls::Futures => {
                if n.is_multiple_of(3) {
                    let _ = poll_once(&mut on!(self, x => x.get_async_with(key, options)));
                }
                block_on(on!(self, x => x.get_async_with(key, options))).expect("get_async")
            }
            Calls::Reads => by_reads(on!(self, x => x.reads_with(1, options)), &[key]).remove(0),
            Calls::Looks => {
                let there = on!(self, x => x.contains_key(key)).expect("contains_key");
                let got = on!(self, x => x.read_with(key, |bytes| Value::from(bytes))).expect("read_with");
                assert_eq!(there, got.is_some(), "contains_key and read_with of {key:?}");
                got
            }
        }
    }

    /// The values of keys; `n` varies the way.
    pub fn multi_get(
        &self,
        calls: Calls,
        keys: &[Key],
        options: &ReadOptions,
        n: usize,
    ) -> Vec<Option<Value>> {
        match calls {
            Calls::Blocking => on!(self, x => x.multi_get_with(keys, options)).expect("multi_get"),
            Calls::Futures => match n % 4 {
                0 => on!(self, x => x.multi_get_with(keys, &options.with_deadline(LONG))).expect("multi_get"),
                1 => {
                    let one = |key| on!(self, x => x.get_async_with(key, options));
                    let all = join_all(keys.iter().map(one));
                    all.into_iter().map(|got| got.expect("get_async")).collect()
                }
                n => {
                    if n == 2 {
                        let _ = poll_once(&mut on!(self, x => x.multi_get_async_with(keys, options)));
                    }
                    block_on(on!(self, x => x.multi_get_async_with(keys, options))).expect("multi_get_async")
                }
            },
            Calls::Looks => {
                let of = match self {
                    Reader::Now(keyspace) | Reader::Then(_, keyspace) => *keyspace,
                };
                let keys: Vec<(&Keyspace, &Key)> = keys.iter().map(|key| (of, key)).collect();
                on!(self, x => x.multi_get_in(&keys)).expect("multi_get_in")
            }
            Calls::Reads if n.is_multiple_of(2) => {
                let keys: Vec<&Key> = keys.iter().collect();
                by_reads(on!(self, x => x.reads_with(1 + n % 30, options)), &keys)
            }
            Calls::Reads => {
                // A stream gives keys in any order, equal ones as often as they were asked for.
                let mut found: Vec<Option<Option<Value>>> = keys.iter().map(|_| None).collect();
                let numbered = keys.iter().enumerate().map(|(i, key)| Numbered(i, key));
                for (Numbered(i, _), got) in
                    on!(self, x => x.multi_get_stream(numbered, 1 + n % 30)).expect("stream")
                {
                    assert!(found[i].replace(got.expect("a value")).is_none(), "an answer given twice");
                }
                found.into_iter().map(|got| got.expect("an answer")).collect()
            }
        }
    }
}

impl Reader<'_> {
    /// Pairs of a range; `n` varies the way.
    pub fn scan(
        &self,
        calls: Calls,
        limits: &Limits,
        options: &ReadOptions,
        (how, count, n): (How, usize, usize),
    ) -> Vec<ringdb::Result<(Value, Value)>> {
        if calls == Calls::Looks {
            let pairs = take(Sought::new(on!(self, x => x.cursor()), limits, n), how, count);
            let keys = take(on!(self, x => x.range_with(limits.clone(), options)).keys(), how, count);
            let keys: Vec<Value> = keys.into_iter().map(|key| key.expect("a key")).collect();
            assert!(keys.iter().eq(pairs.iter().map(|(key, _)| key)), "keys alone: {keys:?}, of {pairs:?}");
            check_ends(self, limits, &pairs, (how, count));
            return pairs.into_iter().map(Ok).collect();
        }
        // A stream has one end.
        if calls != Calls::Futures || how != How::Forward {
            return take(on!(self, x => x.range_with(limits.clone(), options)), how, count);
        }
        let options = if n.is_multiple_of(4) { options.with_deadline(LONG) } else { *options };
        let mut stream = on!(self, x => x.range_async_with(limits.clone(), &options));
        block_on(async {
            let mut pairs = Vec::new();
            while pairs.len() < count
                && let Some(pair) = stream.next().await
            {
                pairs.push(pair);
            }
            pairs
        })
    }
}

/// Compares the first or last pair of all with what a whole scan has given.
fn check_ends(of: &Reader<'_>, limits: &Limits, pairs: &[(Value, Value)], (how, count): (How, usize)) {
    if *limits == (Bound::Unbounded, Bound::Unbounded) && count > 0 {
        let end = match how {
            How::Forward => on!(of, x => x.first()),
            How::Backward => on!(of, x => x.last()),
            How::Mixed(_) => return,
        };
        assert_eq!(end.expect("an end").as_ref(), pairs.first());
    }
}

/// The pairs of a range from both ends, by one cursor.
struct Sought<'a> {
    cursor: Cursor,
    limits: &'a Limits,
    /// Now and then it goes a step back and forth.
    n: usize,
    /// Where the ends are, and from which the cursor has come.
    front: Option<Value>,
    back: Option<Value>,
    from_back: Option<bool>,
}

impl<'a> Sought<'a> {
    fn new(cursor: Cursor, limits: &'a Limits, n: usize) -> Sought<'a> {
        Sought { cursor, limits, n, front: None, back: None, from_back: None }
    }

    /// The pair that the cursor stands on, if it is within the limits and between the ends.
    fn taken(&mut self) -> Option<(Value, Value)> {
        let (key, value) = (self.cursor.key()?, self.cursor.value()?);
        assert!(self.cursor.valid());
        let (key, value) = (Value::from(key), Value::from(value));
        let within = RangeBounds::contains(self.limits, &key.to_vec())
            && self.front.as_ref().is_none_or(|front| key > *front)
            && self.back.as_ref().is_none_or(|back| key < *back);
        within.then_some((key, value))
    }

    /// A step away and back again leads to the same pair.
    fn turn(&mut self, back: bool) {
        self.n += 1;
        let Some(key) = self.cursor.key().map(Value::from).filter(|_| self.n.is_multiple_of(3)) else {
            return;
        };
        let away = if back { self.cursor.next() } else { self.cursor.prev() };
        match (away.expect("a step"), back) {
            (true, true) => assert!(self.cursor.prev().expect("a step")),
            (true, false) => assert!(self.cursor.next().expect("a step")),
            (false, _) => assert!(self.cursor.seek(&key).expect("a seek")),
        }
        assert_eq!(self.cursor.key(), Some(&key[..]), "a step away and back");
    }
}

impl Iterator for Sought<'_> {
    type Item = (Value, Value);

    fn next(&mut self) -> Option<(Value, Value)> {
        let c = &mut self.cursor;
        let moved = match (&self.front, self.from_back, &self.limits.0) {
            (Some(_), Some(false), _) => c.next(),
            (Some(front), ..) => c.seek([&front[..], &[0]].concat()),
            (None, _, Bound::Included(key)) => c.seek(key),
            (None, _, Bound::Excluded(key)) => c.seek([&key[..], &[0]].concat()),
            (None, _, Bound::Unbounded) => c.first(),
        };
        moved.expect("a move");
        self.from_back = Some(false);
        self.turn(false);
        let taken = self.taken()?;
        self.front = Some(taken.0.clone());
        Some(taken)
    }
}

impl DoubleEndedIterator for Sought<'_> {
    fn next_back(&mut self) -> Option<(Value, Value)> {
        let c = &mut self.cursor;
        let before = |c: &mut Cursor, key: &[u8]| match c.seek(key).expect("a seek") {
            true => c.prev(),
            false => c.last(),
        };
        let moved = match (&self.back, self.from_back, &self.limits.1) {
            (Some(_), Some(true), _) => c.prev(),
            (Some(back), ..) => before(c, back),
            (None, _, Bound::Included(key)) => c.seek_for_prev(key),
            (None, _, Bound::Excluded(key)) => before(c, key),
            (None, _, Bound::Unbounded) => c.last(),
        };
        moved.expect("a move");
        self.from_back = Some(true);
        self.turn(true);
        let taken = self.taken()?;
        self.back = Some(taken.0.clone());
        Some(taken)
    }
}

/// A key that knows its place.
struct Numbered<'a>(usize, &'a Key);

impl AsRef<[u8]> for Numbered<'_> {
    fn as_ref(&self) -> &[u8] {
        self.1
    }
}

fn by_reads(reads: ringdb::Result<Reads>, keys: &[&Key]) -> Vec<Option<Value>> {
    let mut reads = reads.expect("reads");
    let mut found: Vec<Option<Option<Value>>> = keys.iter().map(|_| None).collect();
    let (mut asked, mut left) = (0, keys.len());
    while left > 0 {
        while asked < keys.len() && reads.open() < reads.depth() {
            reads.submit(asked as u64, keys[asked]).expect("submit");
            asked += 1;
        }
        reads.wait(1).expect("wait");
        while let Some((tag, got)) = reads.poll() {
            assert!(found[tag as usize].replace(got.expect("a value")).is_none(), "an answer given twice");
            left -= 1;
        }
    }
    found.into_iter().map(|got| got.expect("an answer")).collect()
}

/// Writes that were polled and not waited for yet.
#[derive(Default)]
pub struct Pending(Vec<WriteFuture>);

impl Pending {
    /// Writes a batch; `n` varies the way.
    pub fn write(&mut self, db: &Db, calls: Calls, batch: WriteBatch, options: &WriteOptions, n: usize) {
        if calls != Calls::Futures {
            return db.write(batch, options).expect("write");
        }
        let options = if n.is_multiple_of(5) { options.with_deadline(LONG) } else { *options };
        let mut write = db.write_async(batch, &options);
        match poll_once(&mut write) {
            std::task::Poll::Ready(done) => done.expect("write_async"),
            std::task::Poll::Pending => self.0.push(write),
        }
        if self.0.len() == WRITES {
            self.settle();
        }
    }

    /// Waits for all of them.
    pub fn settle(&mut self) {
        join_all(self.0.drain(..)).into_iter().for_each(|done| done.expect("write_async"));
    }

    /// Makes everything durable that was written, what is on its way too.
    pub fn sync(&mut self, db: &Db, calls: Calls) {
        match calls {
            Calls::Blocking | Calls::Looks => db.sync().expect("sync"),
            Calls::Futures => block_on(db.sync_async()).expect("sync_async"),
            Calls::Reads => {
                let sync = WriteOptions::default().durability(Durability::Sync);
                db.write(WriteBatch::new(), &sync).expect("an empty batch");
            }
        }
        self.settle();
    }
}
