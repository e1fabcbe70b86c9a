//! The io_uring engine: a ring per queue, on the raw system calls.
//!
//! A ring belongs to the thread that made it, so every flag that relies on it is used: SINGLE_ISSUER,
//! DEFER_TASKRUN, COOP_TASKRUN; and NO_SQARRAY. Each is dropped when the kernel refuses it, newest first, unless
//! it was asked for.

mod buffers;
mod explain;
mod files;
#[cfg(test)]
mod model;
mod polling;
mod pools;
mod queue;
mod raw;
mod ring;
mod setup;
mod sys;
#[cfg(test)]
mod tests;

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::{Arc, OnceLock};

use self::buffers::{Buffers, RingBuffers};
use self::explain::explain;
use self::files::{Files, RingFiles};
use self::polling::Polling;
use self::pools::RingPools;
use self::queue::{Registered, UringQueue};
use self::raw::RawRing;
use self::ring::{Ring, Setup};
use super::{Engine, RawRegistration, Unregistered};
use crate::engine::driver::{Driver, OsEngine, Users};
use crate::info::EngineInfo;
use crate::mem::Region;
use crate::os::OsFile;
use crate::process::OfProcess;
use crate::stats::Stats;
use crate::uri::{UringConfig, UringOption};
use crate::{Error, ErrorKind, Result};

/// The flags of a ring that one thread alone uses. With coop_taskrun a completion would wait for the thread that
/// submitted it to call the kernel again, while another thread waits for the completion.
const ONE_THREAD: u32 =
    sys::SETUP_SINGLE_ISSUER | sys::SETUP_DEFER_TASKRUN | sys::SETUP_COOP_TASKRUN | sys::SETUP_TASKRUN_FLAG;

/// Opens the engine if it works here, with every flag that works here.
pub fn open(config: &UringConfig, mut reasons: Vec<String>) -> Result<Arc<dyn Engine>> {
    config.check()?;
    let (setup, dropped) = setup::find(config)?;
    let mut uring = Uring {
        config: setup::resolved(config, &setup),
        setup,
        mine: OfProcess::new(Mine::new(config)),
        fixed_vectors: false,
        chooses: provided_buffers(config)?,
        reasons: Vec::new(),
    };
    // Whatever else was asked for shows now, not at the first queue.
    let first = uring.ring_for(1, true)?;
    uring.registered(&first, 1)?;
    uring.fixed_vectors = first.knows(&[sys::OP_READV_FIXED, sys::OP_WRITEV_FIXED]);
    reasons.push(match config.iopoll {
        true => {
            "io_uring: a ring that polls was set up; whether a device can be polled shows at its files".into()
        }
        false => "io_uring: a ring was set up and has read a file".into(),
    });
    reasons.extend(dropped);
    Ok(OsEngine::start(Uring { reasons, ..uring }))
}

/// Whether the kernel is to choose the buffers of pools.
fn provided_buffers(config: &UringConfig) -> Result<bool> {
    // What a polled read needs of its buffer is known when it starts.
    if config.provided_buffers == Some(false) || config.iopoll {
        return Ok(false);
    }
    match pools::probe() {
        Ok(()) => Ok(true),
        Err(_) if config.provided_buffers.is_none() => Ok(false),
        Err(e) => Err(explain("io_uring_register", e, &[UringOption::named("provided_buffers").needs()])),
    }
}

/// A ring that does nothing but own the polling thread that the others share.
fn shared_thread(config: &UringConfig, setup: &Setup) -> Result<Option<OwnedFd>> {
    if !config.sqpoll || config.sqpoll_share == Some(false) {
        return Ok(None);
    }
    let how = Setup { flags: setup.flags & !sys::SETUP_SINGLE_ISSUER, ..*setup };
    let ring = Ring::new(1, &how).map_err(|e| explain("io_uring_setup", e, &[]))?;
    // SAFETY: the ring is open during the call.
    let fd = unsafe { BorrowedFd::borrow_raw(ring.fd()) };
    fd.try_clone_to_owned().map(Some).map_err(|e| Error::from_std("io_uring_setup", &e))
}

/// What belongs to the rings of one process. Nothing of it goes from a parent to its child: the kernel would take the
/// parent's memory, files and threads for it.
struct Mine {
    /// The ring whose polling thread the others share, if they do.
    shared: OnceLock<OwnedFd>,
    buffers: Option<Arc<Buffers>>,
    files: Option<Arc<Files>>,
    polling: Polling,
}

impl Mine {
    fn new(config: &UringConfig) -> Mine {
        Mine {
            shared: OnceLock::new(),
            buffers: Buffers::new(config),
            files: (config.fixed_files == Some(true)).then(Files::new),
            polling: Polling::default(),
        }
    }

    /// The ring whose polling thread is shared, set up when it is first asked for.
    fn shared_thread(&self, config: &UringConfig, setup: &Setup) -> Result<Option<RawFd>> {
        if self.shared.get().is_none()
            && let Some(fd) = shared_thread(config, setup)?
        {
            // Another thread may have been faster: then this ring goes.
            let _ = self.shared.set(fd);
        }
        Ok(self.shared.get().map(|fd| fd.as_raw_fd()))
    }
}

struct Uring {
    config: UringConfig,
    setup: Setup,
    mine: OfProcess<Mine>,
    /// The kernel has vectored transfers of registered buffers (Linux 6.15).
    fixed_vectors: bool,
    /// The kernel chooses the buffers of pools.
    chooses: bool,
    reasons: Vec<String>,
}

impl Uring {
    fn mine(&self) -> &Mine {
        self.mine.get(|| Mine::new(&self.config))
    }

    /// A ring of the calling thread.
    /// A ring of the calling thread alone, or of any thread.
    fn ring_for(&self, depth: u32, one_thread: bool) -> Result<Ring> {
        let c = &self.config;
        // What a polling thread has not taken yet is in the way of what comes next.
        let entries = if c.sqpoll { depth * 2 } else { depth };
        // And an operation with a time limit takes two places.
        let how = Setup { share: self.mine().shared_thread(c, &self.setup)?, ..self.setup };
        let how = if one_thread { how } else { Setup { flags: how.flags & !ONE_THREAD, ..how } };
        let mut ring = Ring::new(entries.next_power_of_two().max(2), &how)
            .map_err(|e| explain("io_uring_setup", e, &[]))?;
        let refused = |e, option| explain("io_uring_register", e, &[UringOption::named(option).needs()]);
        if c.bounded_workers.is_some() || c.unbounded_workers.is_some() {
            let limited = if c.bounded_workers.is_some() { "bounded_workers" } else { "unbounded_workers" };
            ring.limit_workers(c.bounded_workers.unwrap_or(0), c.unbounded_workers.unwrap_or(0))
                .map_err(|e| refused(e, limited))?;
        }
        if !c.worker_cpus.is_empty() {
            ring.bind_workers(&c.worker_cpus).map_err(|e| refused(e, "worker_cpus"))?;
        }
        if c.min_wait_us.is_some() && !ring.has_min_wait() {
            return Err(refused(libc::EINVAL, "min_wait_us"));
        }
        if one_thread && c.registered_ring != Some(false) {
            match ring.register_ring() {
                Err(e) if c.registered_ring == Some(true) => {
                    return Err(refused(e, "registered_ring"));
                }
                _ => {}
            }
        }
        Ok(ring)
    }
}

impl Uring {
    /// What a ring has registered.
    fn registered(&self, ring: &Ring, depth: u32) -> Result<Registered> {
        let files = self.mine().files.as_ref().map(|f| RingFiles::new(f, ring)).transpose();
        Ok(Registered {
            buffers: self.mine().buffers.as_ref().map(|b| RingBuffers::new(b, self.fixed_vectors, depth)),
            pools: self.chooses.then(RingPools::default),
            files: files
                .map_err(|e| explain("io_uring_register", e, &[UringOption::named("fixed_files").needs()]))?,
        })
    }
}

impl Driver for Uring {
    const NAME: &std::ffi::CStr = c"io_uring";
    type Queue = UringQueue;

    fn info(&self) -> EngineInfo {
        EngineInfo { name: "io_uring", uri: self.config.to_string(), reasons: self.reasons.clone() }
    }

    fn opened(&self, file: &OsFile) -> Result<()> {
        if self.config.iopoll { self.mine().polling.check(file, &self.setup) } else { Ok(()) }
    }

    fn queue(&self, depth: u32, users: Users, stats: &Arc<Stats>) -> Result<UringQueue> {
        if users == Users::InTurn && !self.config.worker_cpus.is_empty() {
            // Workers are bound for the thread that sets a ring up, not for those that it is handed to.
            return Err(Error::new(
                ErrorKind::Unsupported,
                "queue",
                "worker_cpus binds one thread's workers",
            ));
        }
        let depth = depth.clamp(1, self.config.depth);
        let ring = self.ring_for(depth, users == Users::One)?;
        let registered = self.registered(&ring, depth)?;
        let queue = UringQueue::new(ring, depth, &self.config, registered, stats);
        if users == Users::Many { queue.shared(&self.config) } else { Ok(queue) }
    }

    fn register_buffers(&self, region: Region) -> Result<Box<dyn RawRegistration>> {
        match &self.mine().buffers {
            Some(b) => b.register(region),
            None => Ok(Box::new(Unregistered("fixed_buffers is off".into()))),
        }
    }

    fn run_depth(&self) -> u32 {
        self.config.depth
    }

    /// A polled ring does not take buffered reads: they are plain calls there.
    fn cached_first(&self) -> bool {
        self.config.iopoll && !self.config.queue_always
    }

    fn queue_always(&self) -> bool {
        self.config.queue_always
    }
}
