//! The calls on an open file of a simulated disk, as the kernel would answer them: short, with errors, and with no
//! retries. [`crate::engine::OsFile`] and the queues do the rest as for any file.

use super::content::{Content, parts};
use super::disk::Disk;
use super::map::SimMap;
use super::node::{What, tear};
use super::plan::{Action, Call};
use super::world::World;
use crate::map::RawMap;
use crate::os::{FileCalls, FileKey, Held, OsFile, Sys};

/// The largest file.
const MAX_FILE: u64 = 1 << 40;

/// An open file or directory.
pub(crate) struct Handle {
    pub disk: Disk,
    pub node: u64,
    pub is_dir: bool,
    pub read: bool,
    pub write: bool,
}

/// A write whose effect is there and that is to become durable.
pub(crate) struct Unfinished(u64);

impl Handle {
    fn can(&self, may: bool) -> Sys<()> {
        match (self.is_dir, may) {
            (true, _) => Err(libc::EISDIR),
            (_, false) => Err(libc::EBADF),
            _ => Ok(()),
        }
    }

    /// The first half of a write: its effect.
    pub fn begin_write(&self, buf: &[u8], offset: u64, flags: i32) -> Sys<(usize, Option<Unfinished>)> {
        self.can(self.write)?;
        if flags & !libc::RWF_DSYNC != 0 {
            return Err(libc::EOPNOTSUPP);
        }
        let mut w = self.disk.lock();
        let v = w.begin_on(Call::Write, self.node)?;
        if let Err(e) = v.check() {
            if flags != 0 && OsFile::spoils_sync(e) {
                w.file_mut(self.node)?.give_up();
            }
            return Err(e);
        }
        let end = offset.checked_add(buf.len() as u64).filter(|end| *end <= MAX_FILE).ok_or(libc::EFBIG)?;
        let may = w.room(self.node, offset, end)?.saturating_sub(offset);
        if may == 0 && !buf.is_empty() {
            w.hit(Call::Write, "no room");
            return Err(libc::ENOSPC);
        }
        let mut n = buf.len().min(may as usize);
        if let Some(Action::Short(most)) = v.fault {
            n = n.min(most as usize);
        }
        let at = match v.fault {
            Some(Action::Torn) => {
                self.torn(&mut w, &buf[..n], offset)?;
                return w.effect(&v).and(Err(libc::EIO));
            }
            Some(Action::Flip(bit)) if n > 0 => {
                let mut data = buf[..n].to_vec();
                let bit = bit % (n as u64 * 8);
                data[bit as usize / 8] ^= 1 << (bit % 8);
                w.change(self.node, What::Write { offset, data: data.into() })?
            }
            _ if n >= 4096 && is_zero(&buf[..n]) => {
                w.change(self.node, What::Zeros { offset, len: n as u64 })?
            }
            _ if n == 0 => return w.harmless(&v).map(|()| (0, None)),
            _ => w.change(self.node, What::Write { offset, data: buf[..n].into() })?,
        };
        w.effect(&v)?;
        drop(w);
        self.disk.nap(v.takes);
        let durable = flags & libc::RWF_DSYNC != 0 && !v.lies();
        Ok((n, durable.then_some(Unfinished(at))))
    }

    /// Some sectors of a write, each a change of its own.
    fn torn(&self, w: &mut World, buf: &[u8], offset: u64) -> Sys<()> {
        let mut some = w.file(self.node)?.now.clone();
        tear(offset, buf, 512, &mut some, &mut w.random);
        let mut bytes = vec![0; buf.len()];
        some.read(&mut bytes, offset);
        for (page, inside, k) in parts(offset, buf.len() as u64) {
            let at = page * 4096 + inside as u64;
            let part = &bytes[(at - offset) as usize..][..k];
            if same(&w.file(self.node)?.now, at, part) {
                continue;
            }
            w.change(self.node, What::Write { offset: at, data: part.into() })?;
        }
        Ok(())
    }

    /// The second half of a durable write.
    pub fn end_write(&self, unfinished: Unfinished) -> Sys<()> {
        let mut w = self.disk.lock();
        if w.dead {
            return Err(libc::EIO);
        }
        w.file_mut(self.node)?.written(unfinished.0);
        Ok(())
    }
}

impl FileCalls for Handle {
    fn read(&self, buf: &mut [u8], offset: u64) -> Sys<usize> {
        self.can(self.read)?;
        let mut w = self.disk.lock();
        let v = w.begin_on(Call::Read, self.node)?;
        v.check()?;
        let most = match v.fault {
            Some(Action::Short(n)) => buf.len().min(n as usize),
            _ => buf.len(),
        };
        let n = w.file(self.node)?.now.read(&mut buf[..most], offset);
        if let (Some(Action::Flip(bit)), true) = (v.fault, n > 0) {
            let bit = bit % (n as u64 * 8);
            buf[bit as usize / 8] ^= 1 << (bit % 8);
        }
        w.harmless(&v)?;
        drop(w);
        self.disk.nap(v.takes);
        Ok(n)
    }

    unsafe fn read_vectors(&self, iov: &[libc::iovec], offset: u64) -> Sys<usize> {
        let mut all = vec![0; iov.iter().map(|v| v.iov_len).sum()];
        let n = self.read(&mut all, offset)?;
        let mut from = &all[..n];
        for v in iov {
            let k = v.iov_len.min(from.len());
            // SAFETY: `k` bytes at most of a vector, whose memory is ours for the call (the caller's promise).
            unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), v.iov_base.cast(), k) };
            from = &from[k..];
        }
        Ok(n)
    }

    fn write(&self, buf: &[u8], offset: u64, flags: i32) -> Sys<usize> {
        let (n, unfinished) = self.begin_write(buf, offset, flags)?;
        if let Some(u) = unfinished {
            // Others write meanwhile.
            std::thread::yield_now();
            self.end_write(u)?;
        }
        Ok(n)
    }

    fn sync(&self, data_only: bool) -> Sys<usize> {
        let call = if data_only { Call::Fdatasync } else { Call::Fsync };
        let mut w = self.disk.lock();
        let v = w.begin_on(call, self.node)?;
        if let Err(e) = v.check() {
            match (OsFile::spoils_sync(e), self.is_dir) {
                (false, _) => {}
                (true, true) => w.state.names.give_up(self.node),
                (true, false) => w.file_mut(self.node)?.give_up(),
            }
            return Err(e);
        }
        w.effect(&v)?;
        match (v.lies(), self.is_dir) {
            (true, _) => {}
            (false, true) => w.state.names.sync(self.node),
            (false, false) => w.file_mut(self.node)?.sync(),
        }
        drop(w);
        self.disk.nap(v.takes);
        Ok(0)
    }

    fn sync_range(&self, offset: u64, len: u64) -> Sys<usize> {
        self.can(true)?;
        offset.checked_add(len).filter(|end| *end <= i64::MAX as u64).ok_or(libc::EINVAL)?;
        let mut w = self.disk.lock();
        let v = w.begin_on(Call::SyncRange, self.node)?;
        if let Err(e) = v.check() {
            if OsFile::spoils_sync(e) {
                w.file_mut(self.node)?.give_up();
            }
            return Err(e);
        }
        w.harmless(&v)?;
        drop(w);
        self.disk.nap(v.takes);
        Ok(0)
    }

    fn allocate(&self, offset: u64, len: u64) -> Sys<usize> {
        self.can(self.write)?;
        let end = offset.checked_add(len).filter(|end| *end <= MAX_FILE).ok_or(libc::EFBIG)?;
        let mut w = self.disk.lock();
        let v = w.begin_on(Call::Allocate, self.node)?;
        v.check()?;
        if w.growth(self.node, end)? < end {
            w.hit(Call::Allocate, "no room");
            return Err(libc::ENOSPC);
        }
        w.change(self.node, What::Grow(end))?;
        w.effect(&v)?;
        drop(w);
        self.disk.nap(v.takes);
        Ok(0)
    }

    fn truncate(&self, len: u64) -> Sys<usize> {
        self.can(self.write)?;
        if len > MAX_FILE {
            return Err(libc::EFBIG);
        }
        let mut w = self.disk.lock();
        let v = w.begin_on(Call::Truncate, self.node)?;
        v.check()?;
        w.change(self.node, What::SetLen(len))?;
        w.effect(&v)?;
        drop(w);
        self.disk.nap(v.takes);
        Ok(0)
    }

    fn len(&self) -> Sys<u64> {
        let mut w = self.disk.lock();
        if self.is_dir {
            return Ok(0);
        }
        let v = w.begin_on(Call::Stat, self.node)?;
        v.check()?;
        w.harmless(&v)?;
        Ok(w.file(self.node)?.now.len())
    }

    fn lock(&self) -> Sys<()> {
        let mut w = self.disk.lock();
        let v = w.begin_on(Call::Lock, self.node)?;
        v.check()?;
        w.harmless(&v)?;
        if w.locked.insert(self.node) { Ok(()) } else { Err(libc::EAGAIN) }
    }

    fn unlock(&self) {
        self.disk.lock().locked.remove(&self.node);
    }

    fn map(&self, len: u64, held: &mut Option<Held>) -> Sys<Box<dyn RawMap>> {
        self.can(self.read && self.write)?;
        if !self.disk.config().map {
            return Err(libc::ENODEV);
        }
        Ok(Box::new(SimMap::new(&self.disk, self.node, len, held)?))
    }

    fn rewrites_in_place(&self) -> bool {
        !self.disk.config().cow
    }

    fn key(&self) -> FileKey {
        self.disk.key(self.node)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let mut w = self.disk.lock();
        let Some(n) = w.opened.get_mut(&self.node) else { return };
        *n -= 1;
        if *n == 0 {
            w.opened.remove(&self.node);
            w.forget(self.node);
        }
    }
}

fn is_zero(data: &[u8]) -> bool {
    static ZEROS: [u8; 4096] = [0; 4096];
    data.chunks(ZEROS.len()).all(|c| c == &ZEROS[..c.len()])
}

fn same(content: &Content, offset: u64, part: &[u8]) -> bool {
    let mut old = vec![0; part.len()];
    content.read(&mut old, offset) == part.len() && old == part
}
