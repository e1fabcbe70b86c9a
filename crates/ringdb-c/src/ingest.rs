//! Ingests. An [`ringdb::Ingester`] belongs to the thread that made it, for its queue may. C programs, and languages
//! over C, move handles between threads: so a thread of its own has it, which is sent the pairs by many.

use std::ffi::c_void;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use engineswap::Process;
use ringdb::{Keyspace, MAX_KEY_BYTES, MAX_VALUE_BYTES};

use crate::args;
use crate::result::{Alone, EXHAUSTED, Fail, OK, failed, guard, ringdb_error};
use crate::store::{give, ringdb_db};
use crate::value::free;

/// Bytes of pairs that are sent together.
const CHUNK_BYTES: usize = 64 << 10;
/// Such parcels that wait at most.
const AHEAD: usize = 4;

/// Pairs on their way, until they are ingested.
pub struct ringdb_ingester(Alone<Option<Feed>>);

/// Pairs, one behind the other.
#[derive(Default)]
struct Chunk {
    bytes: Vec<u8>,
    /// Lengths of keys and values.
    lens: Vec<(usize, usize)>,
}

enum Message {
    Pairs(Chunk),
    Finish,
}

/// The thread, and what it has not been sent yet.
struct Feed {
    to: Option<SyncSender<Message>>,
    thread: Option<JoinHandle<ringdb::Result<u64>>>,
    chunk: Chunk,
    last: Option<Vec<u8>>,
    failed: Option<Fail>,
    /// In a child of it there is no thread.
    process: Process,
}

/// What the thread does. Without a `Finish` nothing is left of it.
fn ingest(keyspace: &Keyspace, from: &Receiver<Message>) -> ringdb::Result<u64> {
    let mut ingester = keyspace.ingester()?;
    for message in from {
        let Message::Pairs(chunk) = message else { return ingester.finish() };
        let mut rest = chunk.bytes.as_slice();
        for (key_len, value_len) in chunk.lens {
            let (key, behind) = rest.split_at(key_len);
            let (value, behind) = behind.split_at(value_len);
            ingester.add(key, value)?;
            rest = behind;
        }
    }
    Ok(0)
}

impl Feed {
    fn begin(keyspace: Keyspace) -> Result<Feed, Fail> {
        // Whether there can be one at all is told here.
        drop(keyspace.ingester().map_err(failed)?);
        let (to, from) = sync_channel(AHEAD);
        let thread = std::thread::Builder::new().name("ringdb ingest".into());
        let thread = thread.spawn(move || ingest(&keyspace, &from));
        let thread = thread.map_err(|e| Fail::new(EXHAUSTED, format!("no thread for an ingest: {e}")))?;
        let (thread, to) = (Some(thread), Some(to));
        let (chunk, process) = (Chunk::default(), Process::this());
        Ok(Feed { to, thread, chunk, last: None, failed: None, process })
    }

    fn add(&mut self, key: &[u8], value: &[u8]) -> Result<(), Fail> {
        self.check()?;
        let added = self.take(key, value);
        if let Err(why) = &added {
            self.failed = Some(why.clone());
        }
        added
    }

    fn check(&self) -> Result<(), Fail> {
        if !self.process.is_this() {
            return Err(Fail::invalid(
                "the ingest is its parent's: after fork() a child opens the store itself",
            ));
        }
        self.failed.clone().map_or(Ok(()), Err)
    }

    fn take(&mut self, key: &[u8], value: &[u8]) -> Result<(), Fail> {
        if key.len() > MAX_KEY_BYTES || value.len() > MAX_VALUE_BYTES {
            let (k, v) = (key.len(), value.len());
            return Err(Fail::invalid(format!(
                "a key of {k} bytes and a value of {v} are too long: at most {MAX_KEY_BYTES} and {MAX_VALUE_BYTES}"
            )));
        }
        if self.last.as_deref().is_some_and(|last| last >= key) {
            return Err(Fail::invalid(
                "pairs to be ingested come in ascending order of their keys, each key once: this one does not come \
                 after the one before",
            ));
        }
        let last = self.last.get_or_insert_default();
        last.clear();
        last.extend_from_slice(key);
        self.chunk.bytes.extend_from_slice(key);
        self.chunk.bytes.extend_from_slice(value);
        self.chunk.lens.push((key.len(), value.len()));
        // Empty pairs cannot be: each takes a place in `lens`.
        if self.chunk.bytes.len() + size_of::<(usize, usize)>() * self.chunk.lens.len() >= CHUNK_BYTES {
            return self.send();
        }
        Ok(())
    }

    fn send(&mut self) -> Result<(), Fail> {
        let full = std::mem::take(&mut self.chunk);
        match self.to.as_ref().map(|to| to.send(Message::Pairs(full))) {
            Some(Ok(())) => Ok(()),
            // It has ended, and says why.
            _ => self
                .end()
                .and(Err(Fail::new(c_abi::INTERNAL, "a defect of ringdb: an ingest ended by itself"))),
        }
    }

    fn finish(mut self) -> Result<u64, Fail> {
        self.check()?;
        self.send()?;
        if let Some(to) = &self.to {
            // If it has ended, it says why.
            let _ = to.send(Message::Finish);
        }
        self.end()
    }

    /// Waits for the thread, which has nothing to wait for any more.
    fn end(&mut self) -> Result<u64, Fail> {
        drop(self.to.take());
        let Some(thread) = self.thread.take() else { return Ok(0) };
        let ended = thread
            .join()
            .map_err(|_| Fail::new(c_abi::INTERNAL, "a defect of ringdb: an ingest panicked"))?;
        ended.map_err(failed)
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        if self.process.is_this() {
            // Nobody wants to know what would have become of it.
            let _ = self.end();
            return;
        }
        // Its other end may be in the middle of something, for ever.
        std::mem::forget((self.to.take(), self.thread.take()));
    }
}

/// Begins an ingest.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringdb_ingester_open(
    db: *const ringdb_db,
    out: *mut *mut ringdb_ingester,
    err: *mut ringdb_error,
) -> i32 {
    guard(err, || {
        let out = args::out(out)?;
        // SAFETY: the header's contract.
        let keyspace = unsafe { args::handle(db, "store")? }.writable()?.clone();
        let feed = Feed::begin(keyspace)?;
        // SAFETY: not NULL, so a place of the caller.
        unsafe { give(out, ringdb_ingester(Alone::new(Some(feed)))) };
        Ok(OK)
    })
}

fn ended() -> Fail {
    Fail::invalid("the ingest has ended: open another one")
}

/// Adds a pair.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringdb_ingester_add(
    ingester: *mut ringdb_ingester,
    key: *const c_void,
    key_len: usize,
    value: *const c_void,
    value_len: usize,
    err: *mut ringdb_error,
) -> i32 {
    guard(err, || {
        // SAFETY: the header's contract.
        let (ingester, key, value) = unsafe {
            (
                args::handle(ingester, "ingester")?,
                args::bytes(key, key_len, "key")?,
                args::bytes(value, value_len, "value")?,
            )
        };
        ingester.0.take("ingester")?.as_mut().ok_or_else(ended)?.add(key, value)?;
        Ok(OK)
    })
}

/// Makes all pairs part of the keyspace.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringdb_ingester_finish(
    ingester: *mut ringdb_ingester,
    pairs: *mut u64,
    err: *mut ringdb_error,
) -> i32 {
    guard(err, || {
        // SAFETY: the header's contract.
        let ingester = unsafe { args::handle(ingester, "ingester")? };
        let feed = ingester.0.take("ingester")?.take().ok_or_else(ended)?;
        let ingested = feed.finish()?;
        if !pairs.is_null() {
            // SAFETY: a place of the caller.
            unsafe { pairs.write(ingested) };
        }
        Ok(OK)
    })
}

/// Ends it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringdb_ingester_free(ingester: *mut ringdb_ingester) {
    // SAFETY: the header's contract.
    unsafe { free(ingester) }
}
