//! Static probes (USDT) before and after every operation: `engineswap:submit` and `engineswap:complete`.
//!
//! Both have the same arguments, all of 64 bits:
//!
//! | | argument | |
//! |---|---|---|
//! | arg0 | engine | string: `posix`, `libaio`, `io_uring` |
//! | arg1 | operation | string: `read`, `write`, `fsync`, `fdatasync`, `sync_file_range`, `fallocate`, `truncate`,
//! `open`, `rename`, `link`, `unlink`, `sync_dir` |
//! | arg2 | purpose | the caller's tag ([`crate::Purpose`]) |
//! | arg3 | fd | -1 for operations on names |
//! | arg4 | offset | bytes |
//! | arg5 | length | bytes asked for |
//! | arg6 | result | bytes transferred or a negative errno; 0 at submit |
//! | arg7 | id | the same at an operation's submit and complete, and at no other operation of the process |
//! | arg8 | plain | 1 if it is done by plain system calls, 0 if by the kernel's queue |
//!
//! Every operation that an engine answers fires each probe once, whatever becomes of it: retries and
//! continuations fire nothing more, and an operation that is refused or canceled before it was started fires
//! submit just before complete. Operations that were under way when a tracer came are completed with the id 0, or,
//! if they are lone calls, not at all. A queue dropped before it was submitted fires nothing for what it held.
//!
//! The notes are those of SystemTap's `sys/sdt.h`, so bpftrace, perf, bcc and SystemTap know them. A semaphore says
//! whether anyone listens; while nobody does, a probe is one load and a branch that is not taken, and its
//! arguments are not even computed. On other processors than x86-64 and AArch64 there are no probes, and
//! [`attached`] says 0.
//!
//! bpftrace reads no more than six arguments on x86-64. arg0 therefore points to all of them, the engine's name first,
//! so that `str(arg0)` is the engine and `((struct engineswap_op *)arg0)->id` is the id. At submit the last of them,
//! `tag`, is what the kernel knows the request by (`user_data` of io_uring's tracepoints, `aio_data` of libaio's
//! requests); 0 if there is none. Queues number theirs from different beginnings, so that two requests in flight
//! hardly ever share one:
//!
//! ```text
//! struct engineswap_op {
//!   char engine[16]; char op[16];
//!   uint64_t purpose; int64_t fd; uint64_t offset; uint64_t len; int64_t result; uint64_t id; uint64_t plain;
//!   uint64_t tag;
//! };
//! usdt:./ringdb:engineswap:submit { @at[((struct engineswap_op *)arg0)->id] = nsecs; }
//! usdt:./ringdb:engineswap:complete {
//!   $o = (struct engineswap_op *)arg0;
//!   if (@at[$o->id]) { @us[str(arg0), str(arg1)] = hist((nsecs - @at[$o->id]) / 1000); delete(@at[$o->id]); }
//! }
//! ```

use std::cell::Cell;
use std::ffi::CStr;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering::Relaxed};

use crate::kind::Purpose;
use crate::{Error, ErrorKind, Result};

/// Counts who listens: tracers add to it when they attach. Both probes share it, so that the two halves of an
/// operation are traced alike.
///
/// It has pages of the executable's file to itself. The kernel finds it by its place in the file, and takes the first
/// writable mapping of that page: in a program that is just starting that may be the tail of the segment before,
/// which ends in the same page of the file, and then nobody here would see the count.
#[cfg_attr(target_arch = "aarch64", repr(C, align(65536)))]
#[cfg_attr(not(target_arch = "aarch64"), repr(C, align(4096)))]
struct Listeners(AtomicU16);

#[unsafe(link_section = ".probes")]
static LISTENERS: Listeners = Listeners(AtomicU16::new(0));

/// How many times the probes of this process are attached to (a tracer of both counts twice).
#[inline]
pub fn attached() -> u16 {
    LISTENERS.0.load(Relaxed)
}

/// Whether anyone listens.
#[inline(always)]
pub(crate) fn on() -> bool {
    attached() != 0
}

/// The arguments that submit and complete have in common.
#[derive(Clone, Copy)]
pub(crate) struct Event {
    pub(crate) engine: &'static CStr,
    pub(crate) op: &'static CStr,
    pub(crate) purpose: Purpose,
    pub(crate) fd: i32,
    pub(crate) offset: u64,
    pub(crate) len: u64,
    pub(crate) plain: bool,
    /// What the kernel knows the request by; 0 if it knows of none.
    pub(crate) tag: u64,
}

impl Event {
    /// Fires submit; returns the id to complete with.
    #[cold]
    pub(crate) fn submit(&self) -> u64 {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let id = NEXT.fetch_add(1, Relaxed);
        fire_submit(&self.arguments(0, id));
        id
    }

    /// Fires complete.
    #[cold]
    pub(crate) fn complete(&self, result: i64, id: u64) {
        fire_complete(&self.arguments(result, id));
    }

    fn arguments(&self, result: i64, id: u64) -> Arguments {
        Arguments {
            engine: short(self.engine),
            op: short(self.op),
            purpose: u64::from(self.purpose.0),
            fd: i64::from(self.fd),
            offset: self.offset,
            len: self.len,
            result,
            id,
            plain: u64::from(self.plain),
            tag: self.tag,
        }
    }
}

/// What arg0 points to.
#[repr(C)]
struct Arguments {
    engine: [u8; 16],
    op: [u8; 16],
    purpose: u64,
    fd: i64,
    offset: u64,
    len: u64,
    result: i64,
    id: u64,
    plain: u64,
    tag: u64,
}

/// A name with at least one zero byte at its end.
fn short(name: &CStr) -> [u8; 16] {
    let mut out = [0; 16];
    for (to, from) in out[..15].iter_mut().zip(name.to_bytes()) {
        *to = *from;
    }
    out
}

/// A result as the probe's argument.
pub(crate) fn code(result: std::result::Result<u64, &Error>) -> i64 {
    let errno = |e: &Error| match e.kind() {
        ErrorKind::Canceled => libc::ECANCELED,
        ErrorKind::InvalidInput => libc::EINVAL,
        ErrorKind::TimedOut => libc::ETIMEDOUT,
        ErrorKind::Unsupported => libc::EOPNOTSUPP,
        _ => libc::EIO,
    };
    match result {
        Ok(n) => n as i64,
        Err(e) => -i64::from(e.errno().unwrap_or_else(|| errno(e))),
    }
}

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Does plain calls whose probes somebody else fires.
pub(crate) fn quiet<T>(call: impl FnOnce() -> T) -> T {
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            let _ = QUIET.try_with(|q| q.set(self.0));
        }
    }
    let _restore = on().then(|| Restore(QUIET.try_with(|q| q.replace(true)).unwrap_or(false)));
    call()
}

/// Fires around a plain call, unless the call is a part of an operation that fires its own.
#[inline]
pub(crate) fn around<T>(
    event: impl Fn() -> Event,
    bytes: impl FnOnce(&T) -> u64,
    call: impl FnOnce() -> Result<T>,
) -> Result<T> {
    let id = if on() { begin(&event) } else { 0 };
    let out = call();
    if id != 0 {
        event().complete(code(out.as_ref().map(bytes)), id);
    }
    out
}

#[cold]
fn begin(event: &dyn Fn() -> Event) -> u64 {
    if QUIET.try_with(Cell::get).unwrap_or(false) { 0 } else { event().submit() }
}

/// A probe: a `nop` with a note that says where its arguments are.
#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), target_os = "linux", not(miri)))]
macro_rules! note {
    ($name:literal, $a:ident $(, $syntax:ident)?) => {
        // SAFETY: a nop, whose tracer may read what the first register points to. The note beside it goes into a
        // section that is not even loaded; it names registers that the compiler chose, this place, and a semaphore that
        // lives for good.
        unsafe {
            std::arch::asm!(
                "990: nop",
                ".pushsection .note.stapsdt, \"\", \"note\"",
                ".balign 4",
                ".4byte 992f-991f, 994f-993f, 3",
                "991: .asciz \"stapsdt\"",
                "992: .balign 4",
                "993: .8byte 990b",
                ".8byte _.stapsdt.base",
                ".8byte {listeners}",
                ".asciz \"engineswap\"",
                concat!(".asciz \"", $name, "\""),
                concat!(
                    ".asciz \"8@{engine} 8@{op} 8@{purpose} -8@{fd} 8@{offset} 8@{len} -8@{result} ",
                    "8@{id} 8@{plain}\""
                ),
                "994: .balign 4",
                ".popsection",
                ".ifndef _.stapsdt.base",
                ".pushsection .stapsdt.base, \"aG\", \"progbits\", .stapsdt.base, comdat",
                ".weak _.stapsdt.base",
                ".hidden _.stapsdt.base",
                "_.stapsdt.base: .space 1",
                ".size _.stapsdt.base, 1",
                ".popsection",
                ".endif",
                listeners = sym LISTENERS,
                engine = in(reg) $a.engine.as_ptr(),
                op = in(reg) $a.op.as_ptr(),
                purpose = in(reg) $a.purpose,
                fd = in(reg) $a.fd,
                offset = in(reg) $a.offset,
                len = in(reg) $a.len,
                result = in(reg) $a.result,
                id = in(reg) $a.id,
                plain = in(reg) $a.plain,
                options($($syntax,)? readonly, nostack, preserves_flags),
            );
        }
    };
}

#[inline(never)]
fn fire_submit(a: &Arguments) {
    #[cfg(all(target_arch = "x86_64", target_os = "linux", not(miri)))]
    note!("submit", a, att_syntax);
    #[cfg(all(target_arch = "aarch64", target_os = "linux", not(miri)))]
    note!("submit", a);
    let _ = a;
}

#[inline(never)]
fn fire_complete(a: &Arguments) {
    #[cfg(all(target_arch = "x86_64", target_os = "linux", not(miri)))]
    note!("complete", a, att_syntax);
    #[cfg(all(target_arch = "aarch64", target_os = "linux", not(miri)))]
    note!("complete", a);
    let _ = a;
}
