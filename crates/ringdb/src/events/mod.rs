//! Events: what a store tells a program of its background work, as it happens.
//!
//! - [`Event`], [`EventListener`]: what is told, to whom.
//! - [`Events`]: the listeners of an open store. They are told outside of all locks, by the thread that it happens to.

#[cfg(feature = "tracing")]
mod traced;

use std::cell::Cell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::sync::atomic::{AtomicU64, Ordering::Relaxed};
use crate::{Error, Result};

#[cfg(feature = "tracing")]
pub use traced::TracingListener;

/// Something that a store tells a program of. Never of single keys or commits.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// The store is open.
    #[non_exhaustive]
    Opened {
        /// Its directory.
        directory: PathBuf,
        /// For reading only.
        read_only: bool,
        /// Tables that it has.
        tables: u64,
        /// Frames of the log that were replayed: groups of writes.
        replayed_frames: u64,
        /// Bytes of memtables that were made of them.
        replayed_bytes: u64,
        /// What the log has lost; see [`crate::Stats::recovered_damage`].
        lost: Option<String>,
        /// How long opening took.
        took: Duration,
    },
    /// The store is closed. The last event.
    #[non_exhaustive]
    Closed {
        /// Its directory.
        directory: PathBuf,
    },
    /// A flush begins.
    #[non_exhaustive]
    FlushBegan {
        /// Memtables that wait to be flushed; it takes several of them, or all.
        memtables: u64,
    },
    /// A flush has ended.
    #[non_exhaustive]
    FlushEnded {
        /// Bytes of the memtables that are gone.
        memtable_bytes: u64,
        /// Tables made of them.
        tables: u64,
        /// Bytes of these.
        written_bytes: u64,
        /// How long it took.
        took: Duration,
        /// Why it has failed, if it has; the memtables are there still.
        error: Option<String>,
    },
    /// A compaction begins.
    #[non_exhaustive]
    CompactionBegan {
        /// Why: a name as in [`crate::Stats::compaction_reasons`].
        reason: &'static str,
        /// The first level that it takes tables from.
        level: u32,
        /// The level that gets its tables.
        output: u32,
        /// Tables that it takes.
        tables: u64,
        /// Bytes of these.
        bytes: u64,
    },
    /// A compaction has ended.
    #[non_exhaustive]
    CompactionEnded {
        /// As when it began; so are the levels.
        reason: &'static str,
        /// The first level that it took tables from.
        level: u32,
        /// The level that got its tables.
        output: u32,
        /// Tables that went to the other level as they were, unread; 0 if it was no move.
        moved_tables: u64,
        /// Bytes of tables that it has read; 0 if they were moved or dropped as they were.
        read_bytes: u64,
        /// Bytes of tables that it has written.
        written_bytes: u64,
        /// How long it took.
        took: Duration,
        /// Why it has failed, if it has; its tables are there still.
        error: Option<String>,
    },
    /// Pairs were ingested as tables ([`crate::Keyspace::ingest`], [`crate::Keyspace::import_tables`]).
    #[non_exhaustive]
    Ingested {
        /// The name of the keyspace.
        keyspace: String,
        /// How many pairs.
        pairs: u64,
        /// Tables that hold them.
        tables: u64,
        /// Bytes of these.
        written_bytes: u64,
        /// How long making them part of the keyspace took; not the time of writing them.
        took: Duration,
    },
    /// Writers are slowed from now on, because background work is behind.
    #[non_exhaustive]
    StallBegan {
        /// Why, in words; see [`crate::Stats::write_delay_reason`].
        reason: String,
    },
    /// Writers are not slowed any more.
    #[non_exhaustive]
    StallEnded {
        /// How long they were.
        took: Duration,
    },
    /// Background work has failed, for a reason that may pass: it is tried again, more seldom each time. Told once.
    #[non_exhaustive]
    TroubleBegan {
        /// `flush` or `compaction`.
        work: &'static str,
        /// Why.
        error: String,
    },
    /// What [`Event::TroubleBegan`] told of has passed.
    #[non_exhaustive]
    TroubleEnded {
        /// `flush` or `compaction`.
        work: &'static str,
    },
    /// Background work has met a table that cannot be read; compactions leave it alone for a while.
    #[non_exhaustive]
    TableDamaged {
        /// Which, where and why.
        error: String,
    },
    /// The store has stopped writing, until it is opened again. Told within a second.
    #[non_exhaustive]
    Stopped {
        /// Why.
        reason: String,
    },
}

/// Is told what happens in a store.
///
/// It is called by the thread to which it happens, outside of all of the store's locks: a background thread, or a
/// writer that is slowed. That thread waits, so a listener should be quick. Calls may come from several threads at
/// once. One that panics harms nothing; [`crate::Stats::listener_panics`] counts.
///
/// It may read the store, ask for statistics, and write. What would wait for background work, perhaps for that of this
/// very thread, is [`crate::Error::Invalid`] instead: a flush, a compaction, a write when memory is full of memtables,
/// a close. A listener that keeps a [`crate::Db`] keeps the store open until [`crate::Db::close`].
///
/// ```
/// use std::sync::{Arc, Mutex};
///
/// use ringdb::{Db, Event, EventListener, Options};
///
/// #[derive(Default)]
/// struct Flushes(Mutex<Vec<u64>>);
///
/// impl EventListener for Flushes {
///     fn event(&self, event: &Event) {
///         if let Event::FlushEnded { written_bytes, error: None, .. } = event {
///             self.0.lock().unwrap().push(*written_bytes);
///         }
///     }
/// }
///
/// # fn main() -> ringdb::Result<()> {
/// # let dir = tempfile::tempdir().expect("a temporary directory");
/// let flushes = Arc::new(Flushes::default());
/// let db = Db::open(dir.path(), Options::default().with_listener(flushes.clone()))?;
/// db.put("apple", "red")?;
/// db.flush()?;
/// db.close()?;
/// assert_eq!(flushes.0.lock().unwrap().len(), 1);
/// # Ok(())
/// # }
/// ```
pub trait EventListener: Send + Sync + 'static {
    /// Something has happened.
    fn event(&self, event: &Event);
}

impl<T: EventListener + ?Sized> EventListener for Arc<T> {
    fn event(&self, event: &Event) {
        (**self).event(event);
    }
}

/// The listeners that an open was given.
#[derive(Clone, Default)]
pub(crate) struct Listeners(Vec<Arc<dyn EventListener>>);

impl Listeners {
    pub fn add(&mut self, listener: Arc<dyn EventListener>) {
        self.0.push(listener);
    }

    pub fn extend(&mut self, others: Listeners) {
        self.0.extend(others.0);
    }
}

impl fmt::Debug for Listeners {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.len())
    }
}

thread_local! {
    /// Listeners that this thread is in.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// While this thread is in a listener.
struct Inside;

impl Inside {
    fn enter() -> Inside {
        DEPTH.set(DEPTH.get() + 1);
        Inside
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
    }
}

/// Fails in a listener: what it asks for would wait for background work, which may be that of this thread.
pub(crate) fn check_outside() -> Result<()> {
    match DEPTH.get() {
        0 => Ok(()),
        _ => Err(Error::Invalid(
            "an event listener must not wait for background work: do this in another thread".into(),
        )),
    }
}

/// The listeners of an open store.
#[derive(Default)]
pub(crate) struct Events {
    listeners: Listeners,
    panics: AtomicU64,
}

impl Events {
    pub fn new(listeners: Listeners) -> Arc<Events> {
        Arc::new(Events { listeners, panics: AtomicU64::new(0) })
    }

    /// Whether anybody listens.
    pub fn any(&self) -> bool {
        !self.listeners.0.is_empty()
    }

    /// Tells everybody what `event` makes; it is not asked where nobody listens. To be called without any lock.
    pub fn tell(&self, event: impl FnOnce() -> Event) {
        if !self.any() {
            return;
        }
        let event = event();
        let _inside = Inside::enter();
        for listener in &self.listeners.0 {
            if catch_unwind(AssertUnwindSafe(|| listener.event(&event))).is_err() {
                self.panics.fetch_add(1, Relaxed);
            }
        }
    }

    /// Calls of listeners that have panicked.
    pub fn panics(&self) -> u64 {
        self.panics.load(Relaxed)
    }
}
