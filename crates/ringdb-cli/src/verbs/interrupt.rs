//! Ending by a signal, with a word about what is loaded.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::error::Result;
use crate::out::human_count;

/// How long an interrupted load may wait for the record that it is reading.
const PATIENCE: Duration = Duration::from_millis(500);

/// In place of a count of records: they are becoming part of the store.
const UNKNOWN: u64 = u64::MAX;

/// A signal that asks the command to end. It is looked at before each record, so that what was read is committed and
/// counted. Where a record does not come (standard input is a terminal or an idle pipe), another thread says
/// what has been committed by then and ends the process; so does a second signal.
pub(super) struct Interrupt {
    signal: AtomicI32,
    noticed: AtomicBool,
    /// Records committed.
    loaded: AtomicU64,
}

impl Interrupt {
    pub(super) fn watch() -> Result<Arc<Interrupt>> {
        let it = Arc::new(Interrupt {
            signal: AtomicI32::new(0),
            noticed: AtomicBool::new(false),
            loaded: AtomicU64::new(0),
        });
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
        let watched = it.clone();
        std::thread::spawn(move || watched.run(&mut signals));
        Ok(it)
    }

    fn run(&self, signals: &mut Signals) {
        let mut signals = signals.forever();
        let Some(first) = signals.next() else { return };
        self.signal.store(first, Relaxed);
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end && !self.noticed.load(Relaxed) {
            std::thread::sleep(Duration::from_millis(10));
        }
        if self.noticed.load(Relaxed) {
            // The rest may take its time; who is in a hurry asks again.
            let _ = signals.next();
        }
        crate::error::warn(&match self.loaded.load(Relaxed) {
            UNKNOWN => "interrupted: `ringdb count` says whether the records are in the store".into(),
            n => format!("interrupted: {} records are loaded", human_count(n)),
        });
        std::process::exit(128 + first);
    }

    /// From here on one signal is too late: what is being done is done whole, or not at all.
    pub(super) fn not_now(&self) {
        self.loaded.store(UNKNOWN, Relaxed);
        self.noticed.store(true, Relaxed);
    }

    /// Says that so many more records are committed.
    pub(super) fn committed(&self, records: u64) {
        self.loaded.fetch_add(records, Relaxed);
    }

    /// The signal, if one came.
    pub(super) fn came(&self) -> Option<u8> {
        let signal = u8::try_from(self.signal.load(Relaxed)).ok().filter(|s| *s != 0)?;
        self.noticed.store(true, Relaxed);
        Some(signal)
    }
}
