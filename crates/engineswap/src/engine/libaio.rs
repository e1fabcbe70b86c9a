//! The libaio engine: Linux native AIO on the raw system calls.
//!
//! Only direct transfers really overlap: the kernel does buffered ones inside of the submission, one after the other.
//! Batches of buffered reads (`Io::run`) overlap all the same, by the first pass of `cached.rs`. fsync goes to a kernel
//! worker where it is supported; ranges and allocations are plain calls.

mod context;

use std::os::fd::AsRawFd;
use std::sync::Arc;

use self::context::{Context, Spare};
use super::bell::{Bell, FdWaiter};
use super::interruptions::Interruptions;
use super::owned::SlotQueue;
use super::slots::{Policy, Request, SlotTable, What};
use super::{Engine, RawWaiter, probe};
use crate::engine::driver::{Driver, OsEngine, Users};
use crate::info::EngineInfo;
use crate::op::Done;
use crate::os::RawFile;
use crate::process::OfProcess;
use crate::stats::{Counter, Stats};
use crate::uri::LibaioConfig;
use crate::{Error, ErrorKind, Result};

const CMD_PREAD: u16 = 0;
const CMD_PWRITE: u16 = 1;
const CMD_FSYNC: u16 = 2;
const CMD_FDSYNC: u16 = 3;
const CMD_PREADV: u16 = 7;
const CMD_PWRITEV: u16 = 8;
const FLAG_RESFD: u32 = 1;

/// After so many refusals in a row with nothing in flight, operations are done by plain calls.
const MAX_REFUSED: u32 = 64;
/// Of the requests that the whole system may have contexts for, an engine keeps contexts for one in so many, and
/// threads keep queues for another.
const SHARE: u32 = 8;
/// Completions taken by one call.
const EVENTS: usize = 64;

/// struct iocb: one request.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Iocb {
    data: u64,
    #[cfg(target_endian = "little")]
    key: u32,
    rw_flags: i32,
    #[cfg(target_endian = "big")]
    key: u32,
    opcode: u16,
    reqprio: i16,
    fd: u32,
    buf: u64,
    nbytes: u64,
    offset: i64,
    reserved2: u64,
    flags: u32,
    resfd: u32,
}

/// struct io_event: one completion.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Event {
    data: u64,
    obj: u64,
    res: i64,
    res2: i64,
}

const _: () = assert!(size_of::<Iocb>() == 64 && size_of::<Event>() == 32);

fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
}

/// Opens the engine if it works here.
pub fn open(config: &LibaioConfig, mut reasons: Vec<String>) -> Result<Arc<dyn Engine>> {
    let can = try_context(config.depth).map_err(|e| explain("io_setup", e))?;
    reasons.push("libaio: a context was set up and has read a file".into());
    for (has, what, since) in [
        (can.sync, "fsync and fdatasync", "4.18"),
        (can.vectors, "vectored transfers", "2.6.19"),
        (can.flags, "durable writes (RWF_DSYNC)", "4.13"),
    ] {
        if !has {
            reasons.push(format!(
                "libaio: {what} of native AIO do not work (Linux {since}): plain calls do them"
            ));
        }
    }
    Ok(OsEngine::start(Libaio::new(config.clone(), can, reasons)))
}

/// Requests that the whole system may have contexts for.
fn most_requests() -> u32 {
    const USUAL: u32 = 65_536;
    let text = std::fs::read_to_string("/proc/sys/fs/aio-max-nr");
    text.map_or(USUAL, |t| t.trim().parse().unwrap_or(USUAL))
}

/// What the kernel's native AIO can do beside plain transfers, found by doing it.
#[derive(Clone, Copy)]
struct Can {
    sync: bool,
    vectors: bool,
    flags: bool,
}

/// Sets a context up, reads a file through it, and tries what newer kernels have.
fn try_context(depth: u32) -> std::result::Result<Can, i32> {
    let context = Context::new(depth)?;
    let file = probe::sample_file()?;
    let mut buf = *probe::SAMPLE;
    let iov = libc::iovec { iov_base: buf.as_mut_ptr().cast(), iov_len: buf.len() };
    let request = |opcode, buf: u64, nbytes: u64, rw_flags| Iocb {
        opcode,
        fd: file.as_raw_fd() as u32,
        buf,
        nbytes,
        rw_flags,
        ..Iocb::default()
    };
    let (ptr, len) = (iov.iov_base as u64, buf.len() as u64);
    let vector = &raw const iov as u64;
    let one = |mut iocb: Iocb| {
        // SAFETY: `buf` and `iov` outlive the request: it is waited for here, and if that fails the context is
        // destroyed, which waits for it, before this function returns.
        while let Err(e) = unsafe { context.submit(&[&mut iocb]) } {
            if e != libc::EINTR {
                return Err(e);
            }
        }
        let mut events = [Event::default()];
        while match context.take(1, &mut events) {
            Ok(n) => n == 0,
            Err(libc::EINTR) => true,
            Err(e) => return Err(e),
        } {}
        let res = events[0].res;
        if res < 0 { Err(-res as i32) } else { Ok(res as u64) }
    };
    let can = Can {
        sync: one(request(CMD_FDSYNC, 0, 0, 0)).is_ok() && one(request(CMD_FSYNC, 0, 0, 0)).is_ok(),
        flags: one(request(CMD_PWRITE, ptr, len, libc::RWF_DSYNC)) == Ok(len),
        vectors: one(request(CMD_PWRITEV, vector, 1, 0)) == Ok(len)
            && one(request(CMD_PREADV, vector, 1, 0)) == Ok(len),
    };
    let read = one(request(CMD_PREAD, ptr, len, 0))?;
    drop(context);
    if read == len && buf == *probe::SAMPLE { Ok(can) } else { Err(libc::EPROTO) }
}

fn explain(op: &'static str, errno: i32) -> Error {
    let why = match errno {
        libc::EAGAIN => {
            "the system's limit of requests is reached; raise it (`sysctl fs.aio-max-nr=1048576`) or \
             use a smaller depth"
                .to_string()
        }
        libc::ENOSYS | libc::EPERM => format!(
            "{} the kernel has no CONFIG_AIO; use the engine posix",
            if probe::seccomp() { "a seccomp filter refuses it, or" } else { "" }
        )
        .trim_start()
        .into(),
        libc::ENOMEM => "no memory for the context; use a smaller depth".into(),
        _ => "native AIO does not work here".into(),
    };
    Error::from_errno(op, errno).with_kind(ErrorKind::Unsupported).detail(why)
}

struct Libaio {
    config: LibaioConfig,
    can: Can,
    reasons: Vec<String>,
    most_requests: u32,
    spare: OfProcess<Arc<Spare>>,
}

impl Libaio {
    fn new(config: LibaioConfig, can: Can, reasons: Vec<String>) -> Libaio {
        let most_requests = most_requests();
        let spare = OfProcess::new(Arc::new(Spare::new(most_requests / SHARE)));
        Libaio { config, can, reasons, most_requests, spare }
    }

    fn spare(&self) -> &Arc<Spare> {
        self.spare.get(|| Arc::new(Spare::new(self.most_requests / SHARE)))
    }
}

impl Driver for Libaio {
    const NAME: &std::ffi::CStr = c"libaio";
    type Queue = LibaioQueue;

    fn info(&self) -> EngineInfo {
        EngineInfo { name: "libaio", uri: self.config.to_string(), reasons: self.reasons.clone() }
    }

    fn queue(&self, depth: u32, users: Users, stats: &Arc<Stats>) -> Result<LibaioQueue> {
        let shared = users == Users::Many;
        let bell = if shared { Some(Arc::new(Bell::new()?)) } else { None };
        let depth = depth.clamp(1, self.config.depth);
        let (holds, context) = self.spare().take(depth).map_err(|e| explain("io_setup", e))?;
        let mut slots = SlotTable::new(depth, stats);
        slots.set_policy(Policy { always: self.config.queue_always, ..Policy::default() });
        if shared {
            slots.start_lending();
        }
        Ok(LibaioQueue {
            slots,
            context,
            holds,
            broken: false,
            bell,
            spare: self.spare().clone(),
            can: self.can,
            iocbs: vec![Iocb::default(); depth as usize],
            queued: Vec::new(),
            refused: 0,
            interruptions: Interruptions::default(),
        })
    }

    fn most_queues(&self) -> usize {
        (self.most_requests / SHARE / self.config.depth) as usize
    }

    fn run_depth(&self) -> u32 {
        self.config.depth
    }

    fn cached_first(&self) -> bool {
        !self.config.queue_always
    }

    fn queue_always(&self) -> bool {
        self.config.queue_always
    }
}

struct LibaioQueue {
    slots: SlotTable,
    context: Context,
    /// The kernel may have more to say than the queue knows.
    broken: bool,
    /// Rung by the kernel at each completion, if several threads share the queue.
    bell: Option<Arc<Bell>>,
    /// Requests that the context takes.
    holds: u32,
    /// Where the context goes then.
    spare: Arc<Spare>,
    can: Can,
    /// One for each slot.
    iocbs: Vec<Iocb>,
    /// Slots whose requests are made but not submitted.
    queued: Vec<u32>,
    refused: u32,
    interruptions: Interruptions,
}

impl LibaioQueue {
    /// Submits all that is pending.
    fn start(&mut self) -> Result<()> {
        self.slots.feed();
        while self.slots.has_pending() {
            self.slots.tick();
            while let Some(i) = self.slots.next_pending() {
                // A buffered transfer is over when its submission returns: nobody else's should wait for that.
                let blocks = self.slots.is_lending() && self.slots.file(i).is_some_and(|f| !f.is_direct());
                let request =
                    self.slots.request(i).filter(|r| !blocks || matches!(r.what, What::Sync { .. }));
                match request.and_then(|r| iocb(&r, self.can)) {
                    Some((iocb, punted)) => {
                        let slot = &mut self.iocbs[i as usize];
                        *slot = Iocb { data: self.slots.tag(i), ..iocb };
                        if let Some(bell) = &self.bell {
                            (slot.flags, slot.resfd) = (FLAG_RESFD, bell.fd() as u32);
                        }
                        if punted {
                            self.slots.stats().add(Counter::Punted, 1);
                        }
                        self.slots.set_running(i);
                        self.queued.push(i);
                    }
                    None => self.slots.run_inline(i),
                }
            }
            self.submit_queued()?;
        }
        Ok(())
    }

    fn submit_queued(&mut self) -> Result<()> {
        let mut list: Vec<*mut Iocb> = Vec::with_capacity(self.queued.len());
        for i in &self.queued {
            list.push(&mut self.iocbs[*i as usize]);
        }
        let mut n = 0;
        let mut broken = None;
        while n < list.len() {
            self.slots.stats().add(Counter::SubmitCalls, 1);
            // SAFETY: buffers and vectors belong to operations in their slots, which keep them, and the files,
            // until their completions are taken (`SlotTable::complete`); `drop` waits for all of them or leaks them.
            match unsafe { self.context.submit(&list[n..]) } {
                Ok(k) => {
                    n += k;
                    self.refused = 0;
                    self.interruptions.none();
                }
                Err(libc::EINTR) => {
                    if !self.interruptions.one_more() {
                        broken = Some(Error::from_errno("io_submit", libc::EINTR));
                        break;
                    }
                }
                Err(libc::EAGAIN) => {
                    // The context is full: completions make room. With none to come the plain calls do it.
                    self.refused += 1;
                    if self.slots.running() > list.len() - n {
                        if let Err(e) = self.reap(1) {
                            broken = Some(e);
                            break;
                        }
                    } else if self.refused > MAX_REFUSED {
                        self.slots.take_back(self.queued[n]);
                        if let Some(i) = self.slots.next_pending() {
                            self.slots.run_inline(i);
                        }
                        n += 1;
                    } else {
                        std::thread::yield_now();
                    }
                }
                // The first request itself is refused.
                Err(e) => {
                    self.slots.complete(self.queued[n], -i64::from(e));
                    n += 1;
                }
            }
        }
        for i in self.queued.drain(..).skip(n).rev() {
            self.slots.take_back(i);
        }
        broken.map_or(Ok(()), Err)
    }

    /// Takes at least `min` completions, waiting for them.
    fn reap(&mut self, min: usize) -> Result<()> {
        let mut events = [Event::default(); EVENTS];
        let mut got = 0;
        loop {
            match self.context.take(self.interruptions.wait_for(min.saturating_sub(got)), &mut events) {
                Ok(n) => {
                    self.interruptions.none();
                    if n > 0 {
                        self.slots.tick();
                    }
                    for e in &events[..n] {
                        // A stale tag has no slot any more.
                        if let Some(i) = self.slots.slot_of(e.data) {
                            self.slots.complete(i, e.res);
                        }
                    }
                    self.slots.count();
                    got += n;
                    if n < EVENTS && got >= min {
                        return Ok(());
                    }
                }
                Err(libc::EINTR) if self.interruptions.one_more() => {}
                Err(e) => {
                    return Err(Error::from_errno("io_getevents", e).detail("the AIO context is broken"));
                }
            }
        }
    }

    fn drain(&mut self) -> Result<()> {
        while self.slots.running() > 0 {
            self.reap(1)?;
            self.start()?;
        }
        Ok(())
    }
}

/// The request in the kernel's form, and whether a worker does it; `None` for kinds that native AIO lacks here.
fn iocb(r: &Request, can: Can) -> Option<(Iocb, bool)> {
    // Without flags a hint is lost, but no promise.
    let hints = if can.flags { r.flags } else { 0 };
    let dsync_flag = |dsync| hints | if dsync { libc::RWF_DSYNC } else { 0 };
    match r.what {
        What::ReadV { .. } | What::WriteV { .. } if !can.vectors => return None,
        What::Write { dsync: true, .. } | What::WriteV { dsync: true, .. } if !can.flags => return None,
        What::Sync { .. } if !can.sync => return None,
        _ => {}
    }
    let mut c = Iocb { fd: r.fd as u32, offset: r.offset as i64, rw_flags: hints, ..Iocb::default() };
    match r.what {
        What::Read { ptr, len } => (c.opcode, c.buf, c.nbytes) = (CMD_PREAD, ptr as u64, u64::from(len)),
        What::ReadV { iov, n } => (c.opcode, c.buf, c.nbytes) = (CMD_PREADV, iov as u64, u64::from(n)),
        What::Write { ptr, len, dsync } => {
            (c.opcode, c.buf, c.nbytes) = (CMD_PWRITE, ptr as u64, u64::from(len));
            c.rw_flags = dsync_flag(dsync);
        }
        What::WriteV { iov, n, dsync } => {
            (c.opcode, c.buf, c.nbytes) = (CMD_PWRITEV, iov as u64, u64::from(n));
            c.rw_flags = dsync_flag(dsync);
        }
        What::Sync { data_only } => {
            (c.offset, c.rw_flags) = (0, 0);
            c.opcode = if data_only { CMD_FDSYNC } else { CMD_FSYNC };
            return Some((c, true));
        }
        What::SyncRange { .. } | What::Allocate { .. } | What::Choose { .. } => return None,
    }
    Some((c, false))
}

impl SlotQueue for LibaioQueue {
    fn slots(&self) -> &SlotTable {
        &self.slots
    }

    fn slots_mut(&mut self) -> &mut SlotTable {
        &mut self.slots
    }

    fn submit(&mut self) -> Result<()> {
        self.start()
    }

    fn wait(&mut self, min: usize) -> Result<()> {
        loop {
            self.start()?;
            let missing = min.min(self.slots.in_flight()).saturating_sub(self.slots.ready());
            let missing = missing.min(self.slots.running());
            if missing == 0 && min > 0 && self.slots.starving() {
                self.slots.await_buffer();
                continue;
            }
            if missing == 0 {
                return Ok(());
            }
            self.slots.stats().add(Counter::SubmitCalls, 1);
            self.reap(missing)?;
        }
    }

    fn pop(&mut self) -> Option<Done> {
        if self.slots.ready() == 0 && (self.slots.running() > 0 || self.slots.starving()) {
            // An error comes out again, and is reported, at the next submit or wait.
            let _ = self.reap(0).and_then(|()| self.start());
        }
        self.slots.pop()
    }

    fn waiter(&self) -> Option<Arc<dyn RawWaiter>> {
        let bell = self.bell.clone()?;
        Some(Arc::new(FdWaiter { bell, also: None }))
    }

    fn fail_all(&mut self, e: &Error) -> Vec<Done> {
        self.broken = true;
        self.slots.fail_all(e)
    }

    fn settle(&mut self) -> bool {
        self.drain().is_ok()
    }
}

impl Drop for LibaioQueue {
    fn drop(&mut self) {
        let mine = self.context.is_mine();
        if mine {
            self.slots.stop_lending();
            self.slots.discard_pending();
        }
        if !mine || self.drain().is_err() {
            // The kernel may still write to these buffers, or they are in flight in the parent of this process: they
            // are never freed.
            self.slots.leak();
        } else if !self.broken {
            self.spare.give(self.holds, std::mem::replace(&mut self.context, Context::none()));
        }
    }
}

#[cfg(test)]
mod tests;
