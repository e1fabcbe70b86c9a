//! Registered buffers: one table for the engine, a copy of it in each ring.
//!
//! The engine's table is kept in a ring of its own, which is where the kernel's refusal shows at once; the queues'
//! rings clone it (Linux 6.12), so that memory is pinned and counted once, or register the same memory themselves. What
//! a table names is kept mapped by it, on the same pages, so an address found in a ring's copy always means the pages
//! that the kernel has.
//!
//! The kernel looks a request's place up when it starts the request, not when it takes it: a linked one after the one
//! before it, one for a worker or of a polling thread whenever they come to it. So a ring follows a change of the table
//! at its next submission if no request that names a place is in flight, and until then new requests name none.

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::explain::explain;
use super::raw::RawRing;
use super::ring::{Ring, Setup};
use super::sys;
use crate::engine::{RawRegistration, Unregistered};
use crate::mem::Region;
use crate::process::Process;
use crate::uri::{UringConfig, UringOption};
use crate::{Error, ErrorKind, Result};

/// Places in a table.
const SLOTS: usize = 64;
/// The most bytes of one place: the kernel's limit.
const MAX_PIECE: usize = 1 << 30;

/// A part of a region in a place of the table.
#[derive(Clone)]
struct Piece {
    base: usize,
    len: usize,
    region: Region,
}

type Pieces = Vec<Option<Piece>>;

struct Table {
    /// The ring that the others clone from; none if they don't.
    ring: Option<OwnedFd>,
    pieces: Pieces,
}

/// The engine's table.
pub(super) struct Buffers {
    table: Mutex<Table>,
    /// Counts the changes.
    version: AtomicU64,
    asked: bool,
    clones: Option<bool>,
    /// A child after fork() has a table of its own.
    process: Process,
}

impl Buffers {
    /// `None` if there are to be none.
    pub(super) fn new(config: &UringConfig) -> Option<Arc<Buffers>> {
        (config.fixed_buffers != Some(false)).then(|| {
            Arc::new(Buffers {
                table: Mutex::new(Table { ring: None, pieces: vec![None; SLOTS] }),
                version: AtomicU64::new(0),
                asked: config.fixed_buffers == Some(true),
                clones: config.clone_buffers,
                process: Process::this(),
            })
        })
    }

    pub(super) fn register(self: &Arc<Self>, region: Region) -> Result<Box<dyn RawRegistration>> {
        match self.add(&region) {
            Ok(places) => Ok(Box::new(Registered { buffers: Arc::clone(self), places })),
            Err(e) if self.asked => Err(e),
            Err(e) => Ok(Box::new(Unregistered(e.to_string()))),
        }
    }

    /// Registers a region with the engine's own ring.
    fn add(&self, region: &Region) -> Result<Vec<usize>> {
        let mut guard = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let table = &mut *guard;
        let (base, bytes) = (region.base() as usize, region.bytes());
        let n = bytes.div_ceil(MAX_PIECE);
        let places: Vec<usize> = (0..SLOTS).filter(|i| table.pieces[*i].is_none()).take(n).collect();
        if places.len() < n {
            let why = format!("no room for {bytes} bytes more: a table has {SLOTS} places of 1 GiB at most");
            return Err(Error::new(ErrorKind::Unsupported, "io_uring_register", why));
        }
        let refused = |e| refusal(e, bytes);
        let fd = match &table.ring {
            Some(fd) => fd.try_clone().map_err(|e| Error::from_std("io_uring_register", &e))?,
            None => {
                let fd = source().map_err(refused)?;
                // One place filled and cloned says whether rings can clone.
                let can = sparse(fd.as_raw_fd()).map(|()| source().and_then(|to| clone(&to, &fd, false)));
                match (can.map_err(refused)?, self.clones) {
                    (_, Some(false)) => {}
                    (Ok(()), _) => {
                        table.ring =
                            Some(fd.try_clone().map_err(|e| Error::from_std("io_uring_register", &e))?)
                    }
                    (Err(e), Some(true)) => {
                        return Err(explain(
                            "io_uring_register",
                            e,
                            &[UringOption::named("clone_buffers").needs()],
                        ));
                    }
                    (Err(_), None) => {}
                }
                fd
            }
        };
        for (k, place) in places.iter().enumerate() {
            let at = k * MAX_PIECE;
            let piece = Piece { base: base + at, len: (bytes - at).min(MAX_PIECE), region: region.clone() };
            if let Err(e) = put(fd.as_raw_fd(), *place, Some(&piece)) {
                for p in &places[..k] {
                    // Its ring may be gone after this function anyway.
                    let _ = put(fd.as_raw_fd(), *p, None);
                    table.pieces[*p] = None;
                }
                return Err(refused(e));
            }
            table.pieces[*place] = Some(piece);
        }
        self.version.fetch_add(1, Ordering::Release);
        Ok(places)
    }

    fn remove(&self, places: &[usize]) {
        if !self.process.is_this() {
            // The table is the parent's, and its ring.
            return;
        }
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        for p in places {
            if let Some(fd) = &table.ring {
                // The kernel does not refuse to empty a place; if it did, the piece would have to stay.
                if put(fd.as_raw_fd(), *p, None).is_err() {
                    continue;
                }
            }
            table.pieces[*p] = None;
        }
        self.version.fetch_add(1, Ordering::Release);
    }
}

/// The places of one registration.
struct Registered {
    buffers: Arc<Buffers>,
    places: Vec<usize>,
}

impl RawRegistration for Registered {
    fn refusal(&self) -> Option<&str> {
        self.places.is_empty().then_some("its replacement was refused")
    }

    fn replace(&mut self, region: Region) -> Result<()> {
        self.buffers.process.check()?;
        self.buffers.remove(&std::mem::take(&mut self.places));
        self.places = self.buffers.add(&region)?;
        Ok(())
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.buffers.remove(&self.places);
    }
}

/// A ring's copy of the table.
pub(super) struct RingBuffers {
    engine: Arc<Buffers>,
    seen: u64,
    /// The ring has a table in the kernel.
    has_table: bool,
    /// The kernel has vectored transfers of registered buffers.
    vectors: bool,
    pieces: Pieces,
    /// The slots of the queue whose requests in the ring name a place, and how many they are.
    naming: Vec<bool>,
    in_flight: u32,
    /// The engine's table has changed and this one has not yet.
    behind: bool,
}

impl RingBuffers {
    pub(super) fn new(engine: &Arc<Buffers>, vectors: bool, slots: u32) -> RingBuffers {
        RingBuffers {
            engine: Arc::clone(engine),
            seen: 0,
            has_table: false,
            vectors,
            pieces: Vec::new(),
            naming: vec![false; slots as usize],
            in_flight: 0,
            behind: false,
        }
    }

    /// Follows the engine's table, as soon as no request in the ring may still look a place up. If the kernel refuses
    /// (memory), the ring goes on without.
    pub(super) fn follow(&mut self, ring: RawFd) {
        self.behind = self.engine.version.load(Ordering::Acquire) != self.seen;
        if !self.behind || self.in_flight > 0 {
            return;
        }
        self.behind = false;
        let engine = Arc::clone(&self.engine);
        let table = engine.table.lock().unwrap_or_else(PoisonError::into_inner);
        self.seen = engine.version.load(Ordering::Acquire);
        let done = match &table.ring {
            Some(from) => self.clone_from(ring, from),
            None => self.register_anew(ring, &table.pieces),
        };
        self.pieces = if done.is_ok() { table.pieces.clone() } else { Vec::new() };
    }

    fn clone_from(&mut self, ring: RawFd, from: &OwnedFd) -> std::result::Result<(), i32> {
        if self.has_table && clone(&ring, from, true).is_err() {
            // Linux 6.12 does not replace.
            drop_table(ring);
            self.has_table = false;
        } else if self.has_table {
            return Ok(());
        }
        clone(&ring, from, false)?;
        self.has_table = true;
        Ok(())
    }

    fn register_anew(&mut self, fd: RawFd, pieces: &Pieces) -> std::result::Result<(), i32> {
        if std::mem::take(&mut self.has_table) {
            drop_table(fd);
        }
        sparse(fd)?;
        self.has_table = true;
        let filled = pieces.iter().enumerate().filter_map(|(i, p)| Some((i, p.as_ref()?)));
        filled.into_iter().try_for_each(|(i, p)| put(fd, i, Some(p)))
    }

    /// The request of this slot is put into the ring and names a place.
    pub(super) fn names(&mut self, slot: u32) {
        if let Some(n) = self.naming.get_mut(slot as usize).filter(|n| !**n) {
            *n = true;
            self.in_flight += 1;
        }
    }

    /// The request of this slot is out of the ring.
    pub(super) fn is_out(&mut self, slot: u32) {
        if self.naming.get_mut(slot as usize).is_some_and(std::mem::take) {
            self.in_flight -= 1;
        }
    }

    /// The place whose memory holds all of these bytes.
    pub(super) fn find(&self, ptr: *const u8, len: u32) -> Option<u16> {
        if self.behind {
            return None;
        }
        self.pieces.iter().position(|p| holds(p, ptr as usize, len as usize)).map(|i| i as u16)
    }

    /// The place whose memory holds all bytes of these vectors, if the kernel takes it for vectored transfers.
    pub(super) fn find_all(&self, iov: &[libc::iovec]) -> Option<u16> {
        let first = iov.first().filter(|_| self.vectors && !self.behind)?;
        let inside = |p: &Option<Piece>, v: &libc::iovec| holds(p, v.iov_base as usize, v.iov_len);
        let i = self.pieces.iter().position(|p| inside(p, first))?;
        iov.iter().all(|v| inside(&self.pieces[i], v)).then_some(i as u16)
    }
}

fn holds(piece: &Option<Piece>, start: usize, len: usize) -> bool {
    piece.as_ref().is_some_and(|p| p.base <= start && start + len <= p.base + p.len)
}

fn refusal(errno: i32, bytes: usize) -> Error {
    let why = match errno {
        libc::ENOMEM => format!(
            "registering {bytes} bytes exceeds RLIMIT_MEMLOCK or the memory there is; raise the limit (`ulimit -l`, \
             LimitMEMLOCK= of systemd), register less, or do without fixed_buffers"
        ),
        libc::EINVAL => "sparse tables of registered buffers need Linux 5.19".into(),
        _ => format!("the kernel refuses to register {bytes} bytes"),
    };
    Error::from_errno("io_uring_register", errno).with_kind(ErrorKind::Unsupported).detail(why)
}

/// A ring that any thread may register with, and that nobody enters.
fn source() -> std::result::Result<OwnedFd, i32> {
    let ring = Ring::new(1, &Setup::default())?;
    // SAFETY: the ring is open during the call.
    let fd = unsafe { BorrowedFd::borrow_raw(ring.fd()) };
    fd.try_clone_to_owned().map_err(|e| e.raw_os_error().unwrap_or(libc::EMFILE))
}

fn sparse(fd: RawFd) -> std::result::Result<(), i32> {
    sys::register_sparse(fd, sys::REGISTER_BUFFERS2, SLOTS as u32)
}

/// Fills or empties a place.
fn put(fd: RawFd, place: usize, piece: Option<&Piece>) -> std::result::Result<(), i32> {
    let (base, len) = piece.map_or((std::ptr::null_mut(), 0), |p| {
        (p.region.base().wrapping_add(p.base - p.region.base() as usize), p.len)
    });
    let iov = libc::iovec { iov_base: base.cast(), iov_len: len };
    // struct io_uring_rsrc_update2: offset, data, tags, number.
    let arg = [place as u64, &raw const iov as u64, 0, 1];
    let size = size_of_val(&arg) as u32;
    // SAFETY: that structure and one vector, which the kernel reads. The memory is kept by the piece's region, which
    // the table that this place belongs to keeps as long as it names it.
    unsafe { sys::register(fd, sys::REGISTER_BUFFERS_UPDATE, arg.as_ptr().cast(), size) }.map(drop)
}

fn clone(to: &impl AsRawFd, from: &OwnedFd, replace: bool) -> std::result::Result<(), i32> {
    // struct io_uring_clone_buffers: the source, flags, offsets and number (all), reserved.
    let flags = if replace { sys::CLONE_DST_REPLACE } else { 0 };
    let arg: [u32; 8] = [from.as_raw_fd() as u32, flags, 0, 0, 0, 0, 0, 0];
    // SAFETY: that structure, which the kernel reads.
    unsafe { sys::register(to.as_raw_fd(), sys::REGISTER_CLONE_BUFFERS, arg.as_ptr().cast(), 1) }.map(drop)
}

fn drop_table(fd: RawFd) {
    // SAFETY: no argument. It fails only if there is no table.
    let _ = unsafe { sys::register(fd, sys::UNREGISTER_BUFFERS, std::ptr::null(), 0) };
}
