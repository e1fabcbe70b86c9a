//! The io_uring engine: a ring per queue, on the raw system calls.
//!
//! A ring belongs to the thread that made it, so every flag that relies on it is used: SINGLE_ISSUER,
//! DEFER_TASKRUN, COOP_TASKRUN; and NO_SQARRAY. Each is dropped when the kernel refuses it, newest first, unless
//! it was asked for.

mod queue;
mod ring;
mod sys;

use std::os::fd::AsRawFd;
use std::sync::Arc;

use self::queue::UringQueue;
use self::ring::Ring;
use super::base::{Driver, OsEngine};
use super::{Engine, RawQueue, probe};
use crate::io::EngineInfo;
use crate::stats::Stats;
use crate::uri::UringConfig;
use crate::{Error, ErrorKind, Result};

/// The optional flags, newest first: their names in URIs, their bits, the kernel that brought them.
const FLAGS: [(&str, u32, &str); 5] = [
    ("no_sqarray", sys::SETUP_NO_SQARRAY, "6.6"),
    ("defer_taskrun", sys::SETUP_DEFER_TASKRUN | sys::SETUP_TASKRUN_FLAG, "6.1"),
    ("single_issuer", sys::SETUP_SINGLE_ISSUER, "6.0"),
    ("coop_taskrun", sys::SETUP_COOP_TASKRUN | sys::SETUP_TASKRUN_FLAG, "5.19"),
    ("", sys::SETUP_SUBMIT_ALL, "5.18"),
];

fn asked(config: &UringConfig, name: &str) -> Option<bool> {
    match name {
        "no_sqarray" => config.no_sqarray,
        "defer_taskrun" => config.defer_taskrun,
        "single_issuer" => config.single_issuer,
        "coop_taskrun" => config.coop_taskrun,
        _ => None,
    }
}

/// Opens the engine if it works here, with every flag that works here.
pub fn open(config: &UringConfig, mut reasons: Vec<String>) -> Result<Arc<dyn Engine>> {
    let (flags, dropped) = find_flags(config)?;
    let resolved = |name: &str, bit: u32| match asked(config, name) {
        Some(v) => Some(v),
        None => Some(flags & bit != 0),
    };
    let resolved = UringConfig {
        depth: config.depth,
        single_issuer: resolved("single_issuer", sys::SETUP_SINGLE_ISSUER),
        defer_taskrun: resolved("defer_taskrun", sys::SETUP_DEFER_TASKRUN),
        coop_taskrun: resolved("coop_taskrun", sys::SETUP_COOP_TASKRUN),
        no_sqarray: resolved("no_sqarray", sys::SETUP_NO_SQARRAY),
    };
    reasons.push("io_uring: a ring was set up and has read a file".into());
    reasons.extend(dropped);
    Ok(Arc::new(OsEngine::new(Uring { config: resolved, flags, reasons })))
}

/// The setup flags to use, found by setting rings up and reading through them.
fn find_flags(config: &UringConfig) -> Result<(u32, Vec<String>)> {
    let wanted = |name: &str| match (asked(config, name), name) {
        (Some(v), _) => v,
        // It needs the other.
        (None, "defer_taskrun") => config.single_issuer != Some(false),
        (None, _) => true,
    };
    let mut on: Vec<bool> = FLAGS.iter().map(|f| wanted(f.0)).collect();
    let mut dropped = Vec::new();
    loop {
        let used = FLAGS.iter().zip(&on).filter(|(_, on)| **on);
        let flags = used.fold(sys::SETUP_CLAMP, |bits, (f, _)| bits | f.1);
        let errno = match try_ring(config.depth, flags) {
            Ok(()) => return Ok((flags, dropped)),
            Err(e) => e,
        };
        // Only EINVAL says that a flag is not known; the newest one is the likeliest.
        let newest = (0..FLAGS.len()).find(|i| on[*i] && asked(config, FLAGS[*i].0) != Some(true));
        let (libc::EINVAL, Some(i)) = (errno, newest) else {
            let named: Vec<String> = FLAGS
                .iter()
                .zip(&on)
                .filter(|(f, on)| **on && !f.0.is_empty())
                .map(|(f, _)| format!("{} needs Linux {}", f.0, f.2))
                .collect();
            return Err(explain("io_uring_setup", errno, &named));
        };
        on[i] = false;
        if FLAGS[i].0 == "single_issuer" && on[1] {
            // defer_taskrun was asked for and cannot go without.
            return Err(explain("io_uring_setup", errno, &["defer_taskrun needs Linux 6.1".into()]));
        }
        if !FLAGS[i].0.is_empty() {
            dropped.push(format!("io_uring: {} is not to be had (Linux {})", FLAGS[i].0, FLAGS[i].2));
        }
    }
}

/// Sets a ring up, does nothing through it once, and reads a file through it.
fn try_ring(depth: u32, flags: u32) -> std::result::Result<(), i32> {
    let mut ring = Ring::new(depth.next_power_of_two(), flags)?;
    let file = probe::sample_file()?;
    let mut buf = vec![0u8; probe::SAMPLE.len()];
    let result = try_requests(&mut ring, &file, &mut buf);
    if result.is_err() {
        // The read may still be in flight.
        std::mem::forget(buf);
        return result;
    }
    if buf == probe::SAMPLE { Ok(()) } else { Err(libc::EPROTO) }
}

/// A NOP, then a read of `file` into `buf`, which must stay valid for good if this fails.
fn try_requests(ring: &mut Ring, file: &std::fs::File, buf: &mut [u8]) -> std::result::Result<(), i32> {
    let read = sys::Sqe {
        opcode: sys::OP_READ,
        fd: file.as_raw_fd(),
        addr: buf.as_mut_ptr() as u64,
        len: buf.len() as u32,
        user_data: 2,
        ..Default::default()
    };
    for sqe in [sys::Sqe { opcode: sys::OP_NOP, user_data: 1, ..Default::default() }, read] {
        let (mut taken, mut tries) = (false, 0);
        loop {
            // SAFETY: a NOP points to nothing. The read points to `buf`: on success its completion was taken, and
            // otherwise the caller never frees it.
            if !taken && !unsafe { ring.put(sqe) } {
                return Err(libc::ENOSPC);
            }
            match ring.enter(1) {
                Ok(n) => taken |= n > 0,
                // Signals may come; something that interrupts every call may not.
                Err(libc::EINTR) if tries < 1000 => {}
                Err(e) => return Err(e),
            }
            if let Some((tag, res)) = ring.take() {
                if tag == sqe.user_data && res >= 0 {
                    break;
                }
                return Err(if res < 0 { -res } else { libc::EPROTO });
            }
            tries += 1;
            if tries > 1000 {
                return Err(libc::EPROTO);
            }
        }
    }
    Ok(())
}

/// An error that names the cause and the remedy.
fn explain(op: &'static str, errno: i32, flags: &[String]) -> Error {
    let why = match errno {
        libc::EPERM | libc::EACCES => match std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled") {
            Ok(s) if s.trim() == "2" => {
                "kernel.io_uring_disabled is 2; allow it with `sysctl kernel.io_uring_disabled=0`".into()
            }
            Ok(s) if s.trim() == "1" => {
                "kernel.io_uring_disabled is 1 and this process is neither privileged \
                 nor in the group kernel.io_uring_group; `sysctl kernel.io_uring_disabled=0` allows it"
                    .into()
            }
            _ => format!(
                "{}; use a profile that allows io_uring_setup, io_uring_enter and io_uring_register (for \
                 containers: --security-opt seccomp=...), or the engine libaio or posix",
                if probe::seccomp() { "a seccomp filter refuses it" } else { "a security policy refuses it" }
            ),
        },
        libc::ENOSYS => match probe::seccomp() {
            true => {
                "a seccomp filter hides it, or the kernel is older than Linux 5.6 or built without it; use \
                 another profile, or the engine libaio or posix"
                    .to_string()
            }
            false => {
                "the kernel is older than Linux 5.6 or built without CONFIG_IO_URING; use the engine libaio \
                 or posix"
                    .into()
            }
        },
        libc::ENOMEM => "no memory for the ring: it counts against RLIMIT_MEMLOCK; raise it (`ulimit -l`, \
             LimitMEMLOCK= of systemd) or use a smaller depth"
            .into(),
        libc::EMFILE | libc::ENFILE => "no file descriptors left; raise RLIMIT_NOFILE (`ulimit -n`)".into(),
        libc::EINVAL if flags.is_empty() => "the kernel refuses rings of this kind".into(),
        libc::EINVAL => format!("the kernel refuses an option: {}", flags.join(", ")),
        _ => "the ring does not work".into(),
    };
    Error::from_errno(op, errno).with_kind(ErrorKind::Unsupported).detail(why)
}

struct Uring {
    config: UringConfig,
    flags: u32,
    reasons: Vec<String>,
}

impl Driver for Uring {
    const NAME: &std::ffi::CStr = c"io_uring";

    fn info(&self) -> EngineInfo {
        EngineInfo { name: "io_uring", uri: self.config.to_string(), reasons: self.reasons.clone() }
    }

    fn queue(&self, depth: u32, stats: &Arc<Stats>) -> Result<Box<dyn RawQueue>> {
        let depth = depth.clamp(1, self.config.depth);
        let ring = Ring::new(depth.next_power_of_two(), self.flags)
            .map_err(|e| explain("io_uring_setup", e, &[]))?;
        Ok(Box::new(UringQueue::new(ring, depth, stats)))
    }

    fn run_depth(&self) -> u32 {
        self.config.depth
    }
}
