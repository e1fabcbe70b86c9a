//! Which setup flags the kernel takes: found by setting rings up and reading through them.

use std::os::fd::AsRawFd;

use super::explain::explain;
use super::raw::RawRing;
use super::ring::{Ring, Setup};
use super::sys;
use crate::Result;
use crate::engine::probe;
use crate::uri::{UringConfig, UringOption};

/// Milliseconds before an idle polling thread sleeps: long enough for a busy queue's pauses, short enough not to
/// starve a small machine.
const SQPOLL_IDLE_MS: u32 = 20;

/// The optional flags, newest first: their names in URIs and their bits.
const FLAGS: [(&str, u32); 5] = [
    ("no_sqarray", sys::SETUP_NO_SQARRAY),
    ("defer_taskrun", sys::SETUP_DEFER_TASKRUN | sys::SETUP_TASKRUN_FLAG),
    ("single_issuer", sys::SETUP_SINGLE_ISSUER),
    ("coop_taskrun", sys::SETUP_COOP_TASKRUN | sys::SETUP_TASKRUN_FLAG),
    ("submit_all", sys::SETUP_SUBMIT_ALL),
];
const DEFER: usize = 1;

/// What is wanted of the flags where the kernel has them.
fn wanted(config: &UringConfig, name: &str) -> bool {
    // See `files.rs`.
    let release_at_once = config.fixed_files == Some(true) && config.single_issuer.is_none();
    match (config.flag(name), name) {
        (Some(v), _) => v,
        (None, "single_issuer") if release_at_once => config.defer_taskrun == Some(true),
        (None, "defer_taskrun") if release_at_once => false,
        // It needs the other; and a polling thread has neither's kind of work.
        (None, "defer_taskrun") => config.single_issuer != Some(false) && !config.sqpoll,
        (None, "coop_taskrun") => !config.sqpoll,
        (None, _) => true,
    }
}

/// The same configuration with every flag said.
pub(super) fn resolved(config: &UringConfig, setup: &Setup) -> UringConfig {
    let or = |asked: Option<bool>, bit: u32| Some(asked.unwrap_or(setup.flags & bit != 0));
    UringConfig {
        single_issuer: or(config.single_issuer, sys::SETUP_SINGLE_ISSUER),
        defer_taskrun: or(config.defer_taskrun, sys::SETUP_DEFER_TASKRUN),
        coop_taskrun: or(config.coop_taskrun, sys::SETUP_COOP_TASKRUN),
        no_sqarray: or(config.no_sqarray, sys::SETUP_NO_SQARRAY),
        submit_all: or(config.submit_all, sys::SETUP_SUBMIT_ALL),
        ..config.clone()
    }
}

/// What has to be asked of the kernel whatever it has.
fn required(config: &UringConfig) -> (Setup, Vec<String>) {
    let mut setup = Setup { flags: sys::SETUP_CLAMP, ..Setup::default() };
    let mut named = Vec::new();
    if config.sqpoll {
        setup.flags |= sys::SETUP_SQPOLL;
        setup.idle_ms = config.sqpoll_idle_ms.unwrap_or(SQPOLL_IDLE_MS);
        if let Some(cpu) = config.sqpoll_cpu {
            setup.flags |= sys::SETUP_SQ_AFF;
            setup.cpu = cpu;
            named.push(format!("sqpoll_cpu={cpu} needs that CPU online and in this process's cpuset"));
        }
    }
    if config.iopoll {
        setup.flags |= sys::SETUP_IOPOLL;
    }
    if config.hybrid_iopoll {
        setup.flags |= sys::SETUP_HYBRID_IOPOLL;
        named.push(UringOption::named("hybrid_iopoll").needs());
    }
    (setup, named)
}

/// How to set rings up, and what of the flags is not to be had.
pub(super) fn find(config: &UringConfig) -> Result<(Setup, Vec<String>)> {
    let (base, named) = required(config);
    let mut on: Vec<bool> = FLAGS.iter().map(|f| wanted(config, f.0)).collect();
    let mut dropped = Vec::new();
    loop {
        let used = FLAGS.iter().zip(&on).filter(|(_, on)| **on);
        let setup = Setup { flags: used.fold(base.flags, |bits, (f, _)| bits | f.1), ..base };
        let errno = match try_ring(config.depth, &setup) {
            Ok(()) => return Ok((setup, dropped)),
            Err(e) => e,
        };
        // Only EINVAL says that a flag is not known; the newest one is the likeliest.
        let newest = (0..FLAGS.len()).find(|i| on[*i] && config.flag(FLAGS[*i].0) != Some(true));
        let (libc::EINVAL, Some(i)) = (errno, newest) else {
            let flags = FLAGS.iter().zip(&on).filter(|(_, on)| **on);
            let flags = flags.map(|(f, _)| UringOption::named(f.0).needs());
            return Err(explain(
                "io_uring_setup",
                errno,
                &named.into_iter().chain(flags).collect::<Vec<_>>(),
            ));
        };
        on[i] = false;
        if FLAGS[i].0 == "single_issuer" && on[DEFER] {
            // defer_taskrun was asked for and cannot go without.
            return Err(explain("io_uring_setup", errno, &[UringOption::named("defer_taskrun").needs()]));
        }
        let linux = UringOption::named(FLAGS[i].0).linux.unwrap_or_default();
        dropped.push(format!("io_uring: {} is not to be had (Linux {linux})", FLAGS[i].0));
    }
}

/// Sets a ring up, does nothing through it once, and reads a file through it.
fn try_ring(depth: u32, setup: &Setup) -> std::result::Result<(), i32> {
    let mut ring = Ring::new(depth.next_power_of_two(), setup)?;
    let file = probe::sample_file()?;
    let mut buf = vec![0u8; probe::SAMPLE.len()];
    let result = try_requests(&mut ring, &file, &mut buf);
    if result.is_err() {
        // The read may still be in flight.
        std::mem::forget(buf);
        return result;
    }
    if ring.polls() || buf == probe::SAMPLE { Ok(()) } else { Err(libc::EPROTO) }
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
    let nop = sys::Sqe { opcode: sys::OP_NOP, user_data: 1, ..Default::default() };
    // Only direct I/O on a device can be polled for, and it is the file's device that can do it or not.
    for sqe in [nop, read].into_iter().take(if ring.polls() { 1 } else { 2 }) {
        let (mut taken, mut tries) = (false, 0);
        loop {
            // SAFETY: a NOP points to nothing. The read points to `buf`: on success its completion was taken, and
            // otherwise the caller never frees it.
            if !taken && !unsafe { ring.put(sqe) } {
                return Err(libc::ENOSPC);
            }
            match ring.enter(1, 0) {
                Ok(n) => taken |= n > 0,
                // Signals may come; something that interrupts every call may not.
                Err(libc::EINTR) if tries < 1000 => {}
                Err(e) => return Err(e),
            }
            if let Some((tag, res, _)) = ring.take() {
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
