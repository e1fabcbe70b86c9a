//! Registered files: each ring's own table, in which a file has the same place in all rings of its engine.
//!
//! A file gets its place when it is first used on a ring and keeps it until it is closed; a ring puts a file into its
//! table when it first meets it. So to find a file again is to compare one number. A file that finds every place taken
//! is used by its descriptor, as without a table.
//!
//! What a table names, the kernel keeps open. When a file is closed, its places are emptied first: by the closing
//! thread, so that the file is really closed when [`crate::File`]'s last clone is gone. On rings of a single issuer
//! only the ring's own thread may do so; it does at its next call (`submit`, `wait`, `pop`, `cancel`) or when the queue
//! is dropped. A file in the table of such a ring whose thread does something else for an hour is kept open for an
//! hour, so `fixed_files` goes without `single_issuer` unless both are asked for.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::raw::RawRing;
use super::ring::Ring;
use super::sys;
use crate::os::OsFile;
use crate::os::{FileSlot, SlotOwner};
use crate::process::Process;

/// Places in a table: 8 bytes each here and in the kernel.
const PLACES: u32 = 1024;

fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    // No code that holds these locks can panic halfway through a change.
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The places of an engine's files.
pub(super) struct Files {
    free: Mutex<Vec<u32>>,
    /// How many are free, so that a file which finds none asks for no lock.
    room: AtomicU32,
    next_id: AtomicU64,
    places: u32,
    tables: Mutex<Vec<Weak<Table>>>,
    /// A child after fork() has places of its own.
    process: Process,
}

/// A ring's table, as the threads see it that close files.
struct Table {
    /// The ring, until it is closed; locked while a place is changed.
    ring: Mutex<Option<RawFd>>,
    /// The process that made the ring. A child of it has the descriptor, but the table is not the child's to change.
    process: Process,
    /// The id of the file in each place, 0 in empty ones.
    ids: Box<[AtomicU64]>,
    /// Only the ring's own thread may change places.
    owned: bool,
    /// What it has to empty: places and the ids that were there, at most one for each place.
    closed: Mutex<Vec<(u32, u64)>>,
    has_closed: AtomicBool,
}

impl Table {
    fn is_of_parent(&self) -> bool {
        !self.process.is_this()
    }

    /// Empties a place if it has this file.
    fn empty(&self, number: u32, id: u64) {
        let ring = lock(&self.ring);
        let place = &self.ids[number as usize];
        if let (Some(fd), true, false) = (*ring, place.load(Relaxed) == id, self.is_of_parent()) {
            // The kernel does not refuse to empty a place; if it did, the next file there would take it.
            let _ = put(fd, number, -1);
            place.store(0, Relaxed);
        }
    }

    /// Leaves that to the ring's thread.
    fn leave(&self, number: u32, id: u64) {
        let ring = lock(&self.ring);
        if ring.is_some() && self.ids[number as usize].load(Relaxed) == id {
            lock(&self.closed).push((number, id));
            self.has_closed.store(true, SeqCst);
        }
    }
}

impl Files {
    /// Tables are no longer than this process may have descriptors, which is the kernel's own limit.
    pub(super) fn new() -> Arc<Files> {
        // SAFETY: `rlimit` is plain data; all-zero bytes are a valid value.
        let mut limit: libc::rlimit = unsafe { std::mem::zeroed() };
        // SAFETY: the kernel fills `limit`.
        let known = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) } == 0;
        let most = if known { limit.rlim_cur.min(PLACES.into()) as u32 } else { 256 };
        Files::with_places(most.max(1))
    }

    pub(super) fn with_places(places: u32) -> Arc<Files> {
        Arc::new(Files {
            free: Mutex::new((0..places).rev().collect()),
            room: AtomicU32::new(places),
            next_id: AtomicU64::new(1),
            places,
            tables: Mutex::new(Vec::new()),
            process: Process::this(),
        })
    }

    fn give(self: &Arc<Self>) -> Option<FileSlot> {
        if self.room.load(Relaxed) == 0 {
            return None;
        }
        let mut free = lock(&self.free);
        let number = free.pop()?;
        self.room.store(free.len() as u32, Relaxed);
        let id = self.next_id.fetch_add(1, Relaxed);
        Some(FileSlot::new(Arc::clone(self) as Arc<dyn SlotOwner>, number, id))
    }
}

impl SlotOwner for Files {
    fn release(&self, number: u32, id: u64) {
        if !self.process.is_this() {
            return;
        }
        let tables: Vec<Arc<Table>> = lock(&self.tables).iter().filter_map(Weak::upgrade).collect();
        for t in tables {
            if t.owned { t.leave(number, id) } else { t.empty(number, id) }
        }
        let mut free = lock(&self.free);
        free.push(number);
        self.room.store(free.len() as u32, Relaxed);
    }
}

/// The table of one ring.
pub(super) struct RingFiles {
    files: Arc<Files>,
    table: Arc<Table>,
}

impl RingFiles {
    /// Gives a ring an empty table; an errno if the kernel has none.
    pub(super) fn new(files: &Arc<Files>, ring: &Ring) -> Result<RingFiles, i32> {
        sys::register_sparse(ring.fd(), sys::REGISTER_FILES2, files.places)?;
        let table = Arc::new(Table {
            ring: Mutex::new(Some(ring.fd())),
            process: Process::this(),
            ids: (0..files.places).map(|_| AtomicU64::new(0)).collect(),
            owned: ring.is_of_single_issuer(),
            closed: Mutex::new(Vec::new()),
            has_closed: AtomicBool::new(false),
        });
        let mut all = lock(&files.tables);
        all.retain(|t| t.strong_count() > 0);
        all.push(Arc::downgrade(&table));
        drop(all);
        Ok(RingFiles { files: Arc::clone(files), table })
    }

    /// The place of a file, which is put there if it is not yet; `None` if there is none for it.
    pub(super) fn find(&self, file: &OsFile) -> Option<u32> {
        // A file of another engine has its place there, if it has one.
        let slot = file.slot(|| self.files.give()).filter(|s| s.is_of(&self.files))?;
        let place = &self.table.ids[slot.number as usize];
        // The file is open, so nobody empties its place now.
        if place.load(Relaxed) != slot.id {
            let ring = lock(&self.table.ring);
            put((*ring)?, slot.number, file.fd()).ok()?;
            place.store(slot.id, Relaxed);
        }
        Some(slot.number)
    }

    /// Empties the places of files that have been closed, where that is left to this thread.
    #[inline]
    pub(super) fn tend(&self) {
        if self.table.has_closed.load(Relaxed) {
            self.empty_closed();
        }
    }

    #[cold]
    fn empty_closed(&self) {
        self.table.has_closed.store(false, SeqCst);
        let closed = std::mem::take(&mut *lock(&self.table.closed));
        for (number, id) in closed {
            self.table.empty(number, id);
        }
    }
}

impl Drop for RingFiles {
    /// Not only when the kernel gets to taking the closed ring apart.
    fn drop(&mut self) {
        if self.table.is_of_parent() {
            return;
        }
        if let Some(fd) = lock(&self.table.ring).take() {
            // SAFETY: no argument. It fails only if there is no table.
            let _ = unsafe { sys::register(fd, sys::UNREGISTER_FILES, std::ptr::null(), 0) };
        }
    }
}

/// Puts a descriptor's file into a place, in place of what was there; -1 empties it.
fn put(ring: RawFd, number: u32, fd: RawFd) -> Result<(), i32> {
    // struct io_uring_files_update: the first place, reserved, the descriptors.
    #[repr(C)]
    struct Update(u32, u32, u64);
    let arg = Update(number, 0, &raw const fd as u64);
    // SAFETY: that structure and one descriptor, which the kernel reads.
    unsafe { sys::register(ring, sys::REGISTER_FILES_UPDATE, (&raw const arg).cast(), 1) }.map(drop)
}
