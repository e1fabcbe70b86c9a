//! The write-ahead log: frames appended to fixed-size, recycled segment files, and their replay.
//!
//! The log treats a payload as bytes and a position as (segment number, offset). Its promises:
//! - [`LogWriter`] is unique and lives under the writer's lock; nothing it does waits for the device, except
//!   when a segment is needed and none has been prepared ([`Log::prepare`]).
//! - After [`Log::sync_to`] returns `Ok` for a frame's position, or a [`Turn`](turn::Turn) has been had for
//!   it, that frame and every frame before it are on the device.
//! - [`replay`] yields a prefix of what was appended. Bytes of a recycled segment's former life are never
//!   believed: a frame's checksum covers its segment's number and its offset.
//! - The first I/O error stops the log, and with it the store, for good: later calls fail with
//!   [`crate::Error::Stopped`] and its reason.
//!
//! Two ways to write, never mixed on one file:
//! - *mapped*: [`LogWriter::append`] copies into a mapping (or does one `pwrite` where there are no mappings);
//!   a durable write then calls [`Log::sync_to`], without the writer's lock.
//! - *direct*: [`LogWriter::reserve`] gives a frame its place and copies it to an aligned buffer; without the
//!   writer's lock, [`Log::write`] puts it on the device, several threads at once, and returns the frame's
//!   turn when every earlier turn is over. The caller applies and publishes while it holds the turn.
//!
//! The byte layout is in docs/formats/log.md.

#[cfg(test)]
mod crash_tests;
#[cfg(test)]
mod fault_tests;
mod frame;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
pub(crate) mod payload;
mod pool;
#[cfg(feature = "sim")]
#[cfg(test)]
mod race_tests;
mod replay;
mod segment;
mod sync;
#[cfg(test)]
mod tests;
mod turn;
mod window;
mod writer;

use crate::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use engineswap::Io;
use engineswap::mem::AlignedBuf;

use crate::error::Result;
use crate::seal::{Seal, ring};
use crate::stop::StopLatch;
use crate::store_dir::StoreDir;
use crate::sync::Mutex;

pub(crate) use frame::{LogPos, MAX_PAYLOAD_BYTES};
pub(crate) use replay::{Lost, ReplayFrom, follow, frames_behind_gap, replay};
pub(crate) use segment::{Medium, number_in_header, version_in_header};
pub(crate) use turn::{Reserved, Turn};
pub(crate) use writer::LogWriter;

/// Settings of a log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogOptions {
    pub medium: Medium,
    /// Bytes of a segment, a multiple of 4096 and at least 64 KiB. A frame that does not fit one has a segment
    /// of its own.
    pub segment_bytes: u64,
    /// Released segments kept for recycling; more are removed.
    pub keep_free: usize,
    /// Segments that [`Log::prepare`] keeps ready.
    pub prepare_ahead: usize,
}

impl Default for LogOptions {
    fn default() -> LogOptions {
        LogOptions { medium: Medium::Mapped, segment_bytes: 16 << 20, keep_free: 6, prepare_ahead: 2 }
    }
}

/// Gives the next file number, each one only once.
pub(crate) type NextNumber = Arc<dyn Fn() -> u64 + Send + Sync>;

/// The shared half of a log; see the module's documentation. Made with its [`LogWriter`] by [`Log::create`].
pub(crate) struct Log {
    io: Io,
    dir: Arc<StoreDir>,
    options: LogOptions,
    next_number: NextNumber,
    latch: Arc<StopLatch>,
    /// What batches are sealed with.
    seal: Option<Arc<Seal>>,
    pool: Mutex<pool::Pool>,
    /// Segments with frames that have not been released, oldest first; the last is the active one.
    live: Mutex<std::collections::VecDeque<Arc<segment::Segment>>>,
    sync: sync::Syncer,
    turns: turn::Turnstile,
    buffers: Mutex<Vec<AlignedBuf>>,
    written_bytes: AtomicU64,
    syncs: AtomicU64,
    /// The newest segment that the manifest was asked to say something of.
    noted: AtomicU64,
}

impl Log {
    /// A new log in `dir`, which must hold no live segment. Makes its first segment at once. The log's number
    /// space is that of `next_number`; [`LogWriter::segment`] says where the log begins.
    pub fn create(
        io: &Io,
        dir: &Arc<StoreDir>,
        options: LogOptions,
        next_number: NextNumber,
    ) -> Result<(Arc<Log>, LogWriter)> {
        let segment_bytes = options.segment_bytes.clamp(64 << 10, 1 << 30).next_multiple_of(4096);
        let log = Arc::new(Log {
            io: io.clone(),
            dir: dir.clone(),
            options: LogOptions { segment_bytes, ..options },
            next_number,
            latch: dir.latch().clone(),
            seal: ring::for_writing(io)?,
            pool: Mutex::default(),
            live: Mutex::default(),
            sync: sync::Syncer::default(),
            turns: turn::Turnstile::default(),
            buffers: Mutex::default(),
            written_bytes: AtomicU64::new(0),
            syncs: AtomicU64::new(0),
            noted: AtomicU64::new(0),
        });
        if options.medium == Medium::Direct {
            // Durable writes into blocks that were never written cost a journal commit each.
            log.prepare_one()?;
        }
        let writer = LogWriter::new(&log)?;
        Ok((log, writer))
    }

    /// How frames are written.
    pub fn medium(&self) -> Medium {
        self.options.medium
    }

    /// Bytes of a usual segment.
    pub fn segment_bytes(&self) -> u64 {
        self.options.segment_bytes
    }

    /// Bytes of frames appended since the log was made, padding included.
    pub fn written_bytes(&self) -> u64 {
        self.written_bytes.load(Ordering::Relaxed)
    }

    /// fdatasync calls (or, on the direct medium, durable writes) since the log was made.
    pub fn syncs(&self) -> u64 {
        self.syncs.load(Ordering::Relaxed)
    }
}
