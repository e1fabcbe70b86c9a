//! Carrying requests out, on their files.

use std::ops::Range;
use std::sync::atomic::{AtomicU16, Ordering};

use super::super::pools::BufReg;
use super::super::sys::{self, Sqe};
use super::{Event, Model};

/// A list of buffers to choose from.
#[derive(Clone, Copy)]
pub(super) struct Group {
    list: usize,
    entries: u32,
    head: u16,
}

/// The vectors of a transfer; none of other requests, and of a read whose buffer is to be chosen.
fn vectors(s: &Sqe) -> Vec<libc::iovec> {
    match s.opcode {
        sys::OP_READ | sys::OP_WRITE if s.flags & sys::IOSQE_BUFFER_SELECT == 0 => {
            vec![libc::iovec { iov_base: s.addr as *mut libc::c_void, iov_len: s.len as usize }]
        }
        // SAFETY: the slot's vectors, which the queue keeps until the request has ended.
        sys::OP_READV | sys::OP_WRITEV => unsafe {
            std::slice::from_raw_parts(s.addr as *const libc::iovec, s.len as usize).to_vec()
        },
        _ => Vec::new(),
    }
}

/// Whether a request points into this memory.
pub(super) fn points_into(s: &Sqe, memory: &Range<usize>) -> bool {
    vectors(s).iter().any(|v| {
        let at = v.iov_base as usize;
        at < memory.end && memory.start < at + v.iov_len
    })
}

/// The first `n` bytes of these vectors.
fn cut(iov: &[libc::iovec], mut n: usize) -> Vec<libc::iovec> {
    let mut out = Vec::new();
    for v in iov {
        let k = v.iov_len.min(n);
        out.push(libc::iovec { iov_base: v.iov_base, iov_len: k });
        n -= k;
    }
    out
}

impl Model {
    /// Does what a request asks for, or some of it, or not: its result, flags, and whether a chain goes on.
    pub(super) fn carry_out(&mut self, s: &Sqe) -> (i32, u32, bool) {
        let (res, flags, good) = match s.opcode {
            sys::OP_READ | sys::OP_READV => self.transfer(s, false),
            sys::OP_WRITE | sys::OP_WRITEV => self.transfer(s, true),
            sys::OP_FSYNC => self.other(s, &[libc::EINVAL]),
            sys::OP_SYNC_FILE_RANGE => self.other(s, &[libc::EINVAL]),
            sys::OP_FALLOCATE => self.other(s, &[libc::EOPNOTSUPP]),
            op => panic!("a request of kind {op}"),
        };
        self.log.push(Event { fd: s.fd, opcode: s.opcode, offset: s.off, res });
        (res, flags, good)
    }

    /// The errno of a request that is to fail.
    fn trouble(&mut self, passing: &[i32], lasting: &[i32]) -> Option<i32> {
        let one = |list: &[i32], r: u64| list[r as usize % list.len()];
        let r = self.random.next() >> 8;
        match self.random.below(24) {
            0..3 => Some(one(passing, r)),
            3 if self.how.fails => Some(one(lasting, r)),
            _ => None,
        }
    }

    fn transfer(&mut self, s: &Sqe, write: bool) -> (i32, u32, bool) {
        let chooses = s.flags & sys::IOSQE_BUFFER_SELECT != 0;
        let passing: &[i32] = match (write, chooses) {
            (false, true) => &[libc::EAGAIN, libc::EINTR, libc::ENOBUFS],
            (true, _) if s.op_flags & libc::RWF_DSYNC as u32 != 0 => &[libc::EAGAIN, libc::EOPNOTSUPP],
            _ => &[libc::EAGAIN, libc::EINTR],
        };
        let lasting: &[i32] = if write { &[libc::EIO, libc::ENOSPC, 0] } else { &[libc::EIO] };
        if let Some(e) = self.trouble(passing, lasting) {
            return (-e, 0, false);
        }
        let (mut iov, mut flags) = (vectors(s), 0);
        if chooses {
            let Some((id, v)) = self.choose(s.rest[0] as u16, s.len) else {
                return (-libc::ENOBUFS, 0, false);
            };
            (iov, flags) = (vec![v], sys::CQE_BUFFER | u32::from(id) << 16);
        }
        let all: usize = iov.iter().map(|v| v.iov_len).sum();
        let n = if all > 1 && self.random.one_in(4) {
            1 + self.random.below(all as u64 - 1) as usize
        } else {
            all
        };
        let iov = cut(&iov, n);
        let (count, at) = (iov.len() as i32, s.off as libc::off_t);
        // SAFETY: the memory of a request that has not ended, or of a buffer chosen for it, which nobody else uses.
        let moved = unsafe {
            match write {
                true => libc::pwritev(s.fd, iov.as_ptr(), count, at),
                false => libc::preadv(s.fd, iov.as_ptr(), count, at),
            }
        };
        assert!(moved >= 0, "{}", std::io::Error::last_os_error());
        (moved as i32, flags, moved as usize == all)
    }

    /// A request that moves nothing.
    fn other(&mut self, s: &Sqe, unknown: &[i32]) -> (i32, u32, bool) {
        let passing: Vec<i32> = [libc::EAGAIN, libc::EINTR].iter().chain(unknown).copied().collect();
        if let Some(e) = self.trouble(&passing, &[libc::EIO]) {
            return (-e, 0, false);
        }
        if s.opcode == sys::OP_FALLOCATE {
            assert_eq!(s.len, 0, "the mode");
            // SAFETY: a plain system call.
            let n = unsafe { libc::fallocate(s.fd, 0, s.off as libc::off_t, s.addr as libc::off_t) };
            assert_eq!(n, 0, "{}", std::io::Error::last_os_error());
        }
        (0, 0, true)
    }

    /// The next buffer of a list, and its number.
    fn choose(&mut self, group: u16, len: u32) -> Option<(u16, libc::iovec)> {
        let g = self.groups.get_mut(&group)?;
        // SAFETY: the list is the pool's, which keeps it until it is taken away. Its count is in the last two bytes
        // of the first entry.
        let tail = unsafe { (*((g.list + 14) as *const AtomicU16)).load(Ordering::Acquire) };
        if g.head == tail {
            return None;
        }
        let entry = g.list + (u32::from(g.head) & (g.entries - 1)) as usize * 16;
        // SAFETY: an entry that the count has passed: address, length, number.
        let (addr, room, id) = unsafe {
            (
                (entry as *const u64).read(),
                ((entry + 8) as *const u32).read(),
                ((entry + 12) as *const u16).read(),
            )
        };
        g.head = g.head.wrapping_add(1);
        Some((id, libc::iovec { iov_base: addr as *mut libc::c_void, iov_len: room.min(len) as usize }))
    }

    /// io_uring_register.
    ///
    /// # Safety
    /// `arg` is what `opcode` asks for.
    pub(super) unsafe fn register(&mut self, opcode: u32, arg: *const libc::c_void) -> Result<u32, i32> {
        // SAFETY: the only registrations of a queue without registered buffers and files, with their argument.
        let reg = unsafe { arg.cast::<BufReg>().read() };
        if opcode == sys::REGISTER_PBUF_RING {
            if self.random.one_in(8) {
                return Err(libc::ENOMEM);
            }
            let group = Group { list: reg.address as usize, entries: reg.entries, head: 0 };
            assert!(self.groups.insert(reg.group, group).is_none(), "two lists under one number");
            return Ok(0);
        }
        assert_eq!(opcode, sys::UNREGISTER_PBUF_RING);
        let wants = |s: &Sqe| s.flags & sys::IOSQE_BUFFER_SELECT != 0 && s.rest[0] as u16 == reg.group;
        let mut left = self.inside.iter().flatten().map(|t| &t.sqe).chain(&self.queued).chain(&self.passed);
        assert!(
            self.how.breaks.is_some() || std::thread::panicking() || !left.any(wants),
            "a list taken away below a read"
        );
        self.groups.remove(&reg.group).map(|_| 0).ok_or(libc::EINVAL)
    }
}
