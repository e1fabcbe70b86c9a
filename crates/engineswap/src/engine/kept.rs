//! Where the queues of batches are between two batches. A thread keeps one for each engine, which is its alone and the
//! fastest; but not more threads than a bound do. Beyond it threads borrow loose queues, which go from thread to
//! thread; and when those are all lent out, there is none.
//!
//! The bound is a share of the process's descriptors and memory, so that a thousand idle threads neither keep the log
//! from its next file nor take memory for nothing. A thread that ends, and an engine that is closed, give back
//! what they have.

use std::cell::RefCell;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use super::RawQueue;
use crate::Result;
use crate::process::{OfProcess, Process};

/// Queues that a thread keeps, of as many engines.
const PER_THREAD: usize = 8;
/// The share of descriptors: one in so many.
const DESCRIPTORS: u64 = 4;
/// The share of memory: one byte in so many.
const MEMORY: u64 = 512;
/// Memory of a queue for each operation that it holds, the kernel's included.
const OP_BYTES: u64 = 600;
/// Of the share, one in so many is loose.
const LOOSE_SHARE: usize = 4;

/// How an engine makes the queues of its batches.
pub(crate) trait Maker {
    /// One for the calling thread alone.
    fn own(&self) -> Result<Box<dyn RawQueue>>;
    /// One that threads may use in turn.
    fn loose(&self) -> Result<Box<dyn RawQueue + Send>>;
    /// Operations that each holds; 0 if they need nothing of the system, and are not bounded.
    fn depth(&self) -> u32;
    /// As many as the engine itself can have.
    fn most(&self) -> usize {
        usize::MAX
    }
    /// Whether buffered reads of a batch overlap only if each is tried before any is waited for (see `cached.rs`).
    fn cached_first(&self) -> bool {
        false
    }
    /// Whether an operation that is alone goes through a queue, too.
    fn queue_always(&self) -> bool {
        false
    }
}

/// A number of queues. A child after fork() has none of its own yet.
struct QueueCount(OnceLock<OfProcess<AtomicUsize>>);

impl QueueCount {
    const fn new() -> QueueCount {
        QueueCount(OnceLock::new())
    }

    fn now(&self) -> &AtomicUsize {
        self.0.get_or_init(|| OfProcess::new(AtomicUsize::new(0))).get(AtomicUsize::default)
    }
}

static KEPT: QueueCount = QueueCount::new();
static LOOSE: QueueCount = QueueCount::new();

/// One of a bounded number.
struct Permit {
    of: &'static QueueCount,
    process: Process,
}

impl Permit {
    fn get(of: &'static QueueCount, bound: usize) -> Option<Permit> {
        of.now().fetch_update(Relaxed, Relaxed, |n| (n < bound).then_some(n + 1)).ok()?;
        Some(Permit { of, process: Process::this() })
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if self.process.is_this() {
            self.of.now().fetch_sub(1, Relaxed);
        }
    }
}

/// How many queues may be kept in threads, and how many loose.
fn bounds(maker: &dyn Maker) -> (usize, usize) {
    // SAFETY: `rlimit` is plain data; all-zero bytes are a valid value.
    let mut limit: libc::rlimit = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel fills `limit`.
    let known = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) } == 0;
    let descriptors = if known { limit.rlim_cur } else { 256 };
    share(descriptors, maker.depth(), maker.most())
}

fn share(descriptors: u64, depth: u32, most: usize) -> (usize, usize) {
    static SYSTEM: OnceLock<(u64, u64)> = OnceLock::new();
    let (cpus, memory) = *SYSTEM.get_or_init(|| {
        // SAFETY: no pointers.
        let ask = |name| u64::try_from(unsafe { libc::sysconf(name) }).unwrap_or(1);
        let memory = ask(libc::_SC_PHYS_PAGES).saturating_mul(ask(libc::_SC_PAGESIZE));
        (ask(libc::_SC_NPROCESSORS_ONLN), memory)
    });
    let by_memory = memory / MEMORY / (u64::from(depth) * OP_BYTES).max(1);
    // More than a few threads for each CPU do not have use for more.
    let useful = (cpus * 4).max(128);
    let all = (descriptors / DESCRIPTORS).min(by_memory).min(useful).max(4) as usize;
    let all = all.min(most.max(1));
    let loose = (all / LOOSE_SHARE).max(1);
    (all - loose, loose)
}

/// A thread's queue of an engine.
struct Kept {
    engine: Weak<u64>,
    id: u64,
    process: Process,
    queue: Box<dyn RawQueue>,
    _permit: Option<Permit>,
}

thread_local! {
    static MINE: RefCell<Vec<Kept>> = const { RefCell::new(Vec::new()) };
}

/// A queue that nobody uses, and whose engine's it is.
struct Idle {
    id: u64,
    queue: Box<dyn RawQueue + Send>,
    permit: Permit,
}

fn idle() -> MutexGuard<'static, Vec<Idle>> {
    static IDLE: OnceLock<OfProcess<Mutex<Vec<Idle>>>> = OnceLock::new();
    let all = IDLE.get_or_init(|| OfProcess::new(Mutex::default())).get(Mutex::default);
    // No code that holds the lock can panic halfway through a change.
    all.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A queue for one batch.
pub(crate) enum Taken {
    Own(Own),
    Loose(Loose),
}

pub(crate) struct Own(Kept);
pub(crate) struct Loose(Idle);

impl Taken {
    pub(crate) fn queue(&mut self) -> &mut dyn RawQueue {
        match self {
            Taken::Own(Own(kept)) => &mut *kept.queue,
            Taken::Loose(Loose(idle)) => &mut *idle.queue,
        }
    }

    /// It can be used again.
    pub(crate) fn put_back(self) {
        match self {
            Taken::Own(Own(kept)) => keep(kept),
            // One that was lent before fork() is not the child's.
            Taken::Loose(Loose(lent)) if lent.permit.process.is_this() => idle().push(lent),
            Taken::Loose(_) => {}
        }
    }
}

/// The calling thread's queue of an engine, or one that can be had: kept already, made, or borrowed.
pub(crate) fn take(token: &Arc<u64>, maker: &dyn Maker) -> Option<Taken> {
    if let Some(kept) = mine(**token) {
        return Some(Taken::Own(Own(kept)));
    }
    let bounded = maker.depth() > 0;
    let (in_threads, loose) = if bounded { bounds(maker) } else { (usize::MAX, 0) };
    let permit = Permit::get(&KEPT, in_threads).filter(|_| bounded);
    if (permit.is_some() || !bounded)
        && let Ok(queue) = maker.own()
    {
        let (engine, process) = (Arc::downgrade(token), Process::this());
        return Some(Taken::Own(Own(Kept { engine, id: **token, process, queue, _permit: permit })));
    }
    borrow(**token, maker, loose)
}

/// A loose queue of this engine: an idle one, a new one, or a new one in place of another engine's.
fn borrow(id: u64, maker: &dyn Maker, bound: usize) -> Option<Taken> {
    let mut list = idle();
    if let Some(i) = list.iter().rposition(|q| q.id == id) {
        return Some(Taken::Loose(Loose(list.swap_remove(i))));
    }
    let other = if LOOSE.now().load(Relaxed) >= bound { list.pop() } else { None };
    drop(list);
    drop(other);
    let permit = Permit::get(&LOOSE, bound)?;
    let queue = maker.loose().ok()?;
    Some(Taken::Loose(Loose(Idle { id, queue, permit })))
}

/// The calling thread's queue of an engine, out of its list; with none, those go that are of no use any more. The list
/// is not to be had while the thread ends.
fn mine(id: u64) -> Option<Kept> {
    let useless = |k: &mut Kept| !k.process.is_this() || k.engine.strong_count() == 0;
    let (found, out) = MINE
        .try_with(|q| {
            let mut q = q.borrow_mut();
            match q.iter().position(|k| k.id == id && k.process.is_this()) {
                Some(i) => (Some(q.swap_remove(i)), Vec::new()),
                None => (None, q.extract_if(.., useless).collect()),
            }
        })
        .ok()?;
    // With the list given back, for a queue's drop is not trivial. A child lets go of what it has of its parent's.
    drop(out);
    found
}

fn keep(kept: Kept) {
    if !kept.process.is_this() {
        return;
    }
    // What is thrown out is dropped only after the list is given back.
    let _ = MINE.try_with(|q| {
        let mut q = q.borrow_mut();
        let mut out: Vec<Kept> = q.extract_if(.., |k| k.engine.strong_count() == 0).collect();
        if q.len() >= PER_THREAD {
            out.push(q.remove(0));
        }
        q.push(kept);
        drop(q);
        out
    });
}

/// An engine is closed: its loose queues go.
pub(crate) fn close(id: u64) {
    let gone: Vec<Idle> = idle().extract_if(.., |q| q.id == id).collect();
    drop(gone);
}

/// Descriptors have run out: gives back those of idle queues. Says whether there were any.
pub(crate) fn make_room() -> bool {
    let idle = std::mem::take(&mut *idle());
    let mine = MINE.try_with(RefCell::take).unwrap_or_default();
    !idle.is_empty() || !mine.is_empty()
}

#[cfg(test)]
mod tests {
    use super::share;

    #[test]
    fn the_bound_is_a_share_of_what_there_is() {
        let (kept, loose) = share(1024, 128, usize::MAX);
        assert!(kept + loose <= 256 && kept > loose && loose >= 1, "{kept} and {loose}");
        assert_eq!(share(256, 1, usize::MAX), (48, 16));
        // However little there is, batches run.
        for (descriptors, depth, most) in [(0, 128, 9), (u64::MAX, 4096, 1), (16, u32::MAX, usize::MAX)] {
            let (kept, loose) = share(descriptors, depth, most);
            assert!(loose >= 1 && kept <= 4096, "{kept} and {loose}");
        }
    }
}
