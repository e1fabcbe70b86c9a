//! Mappings of a simulated file: real shared memory, whose changes the disk takes over.
//!
//! A mapping is memory of the kernel's (a memfd), so that the disk may look at it by `pread` while somebody stores to
//! it. What was handed out for storing is looked at before every operation of the disk; what differs from the file
//! becomes a change of the file, and an operation of its own: the disk may be cut there.

use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use super::content::{Content, PAGE, parts};
use super::disk::Disk;
use super::node::What;
use super::plan::Call;
use super::world::World;
use crate::map::MapRange;
use crate::map::RawMap;
use crate::os::{Held, Mapping, Sys};

/// A file that somebody has mapped.
pub(crate) struct Mapped {
    memory: Arc<OwnedFd>,
    len: u64,
    /// What each mapping may be storing to now.
    open: Vec<(u64, Range<u64>)>,
    next: u64,
}

fn put(fd: &OwnedFd, mut data: &[u8], mut offset: u64) {
    while !data.is_empty() {
        // SAFETY: the kernel only reads `data`.
        let n =
            unsafe { libc::pwrite(fd.as_raw_fd(), data.as_ptr().cast(), data.len(), offset as libc::off_t) };
        assert!(n > 0, "a simulated mapping has no memory: {}", std::io::Error::last_os_error());
        data = &data[n as usize..];
        offset += n as u64;
    }
}

fn get(fd: &OwnedFd, buf: &mut [u8], offset: u64) {
    let mut at = 0;
    while at < buf.len() {
        let rest = &mut buf[at..];
        let place = (offset + at as u64) as libc::off_t;
        // SAFETY: the kernel writes into `rest`, which is borrowed mutably for the call.
        let n = unsafe { libc::pread(fd.as_raw_fd(), rest.as_mut_ptr().cast(), rest.len(), place) };
        assert!(n > 0, "a simulated mapping cannot be read: {}", std::io::Error::last_os_error());
        at += n as usize;
    }
}

impl Mapped {
    fn new(content: &Content) -> Sys<Mapped> {
        let fd = crate::os::late::memfd(c"simulated");
        if fd < 0 {
            return Err(libc::ENOMEM);
        }
        // SAFETY: the kernel has just given us this descriptor, and nobody else has it.
        let memory = unsafe { OwnedFd::from_raw_fd(fd) };
        let len = content.len().next_multiple_of(PAGE as u64);
        // SAFETY: a plain system call on our descriptor.
        if unsafe { libc::ftruncate(fd, len as libc::off_t) } != 0 {
            return Err(libc::ENOMEM);
        }
        let m = Mapped { memory: Arc::new(memory), len, open: Vec::new(), next: 0 };
        m.load(content);
        Ok(m)
    }

    fn load(&self, content: &Content) {
        for (page, ..) in parts(0, content.len().min(self.len)) {
            if let Some(bytes) = content.page(page) {
                put(&self.memory, bytes, page * PAGE as u64);
            }
        }
    }

    fn clear(&self, from: u64, to: u64) {
        let to = to.min(self.len);
        if from < to {
            let how = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
            // SAFETY: a plain system call on our descriptor.
            let r = unsafe {
                libc::fallocate(self.memory.as_raw_fd(), how, from as libc::off_t, (to - from) as libc::off_t)
            };
            assert!(r == 0, "a simulated mapping cannot be cleared: {}", std::io::Error::last_os_error());
        }
    }

    /// Takes over a change that was made to the file.
    pub fn follow(&self, what: &What) {
        match what {
            What::Write { offset, data } | What::Store { offset, data } => {
                let n = self.len.saturating_sub(*offset).min(data.len() as u64);
                put(&self.memory, &data[..n as usize], *offset);
            }
            What::Zeros { offset, len } => self.clear(*offset, offset + len),
            What::SetLen(len) => self.clear(*len, self.len),
            What::Grow(_) => {}
        }
    }

    /// What was stored and is not in the file yet: the changed bytes of each page.
    fn stores(&self, now: &Content) -> Vec<What> {
        let mut out = Vec::new();
        for (_, range) in &self.open {
            let end = range.end.min(now.len());
            if range.start >= end {
                continue;
            }
            let mut bytes = vec![0; (end - range.start) as usize];
            get(&self.memory, &mut bytes, range.start);
            let mut at = 0;
            for (page, inside, k) in parts(range.start, end - range.start) {
                let new = &bytes[at..at + k];
                at += k;
                let old = &now.page(page).unwrap_or(&[0; PAGE])[inside..inside + k];
                if new == old {
                    continue;
                }
                let first = new.iter().zip(old).position(|(a, b)| a != b).unwrap_or(0);
                let last = new.iter().zip(old).rposition(|(a, b)| a != b).unwrap_or(0);
                let offset = page * PAGE as u64 + (inside + first) as u64;
                out.push(What::Store { offset, data: new[first..=last].into() });
            }
        }
        out
    }
}

impl World {
    /// Takes over what was stored to mapped files.
    pub fn pull_all(&mut self) {
        if self.mapped.values().any(|m| !m.open.is_empty()) {
            let nodes: Vec<u64> = self.mapped.keys().copied().collect();
            nodes.into_iter().for_each(|n| self.pull(n));
        }
    }

    fn pull(&mut self, node: u64) {
        let (Some(m), Some(file)) = (self.mapped.get(&node), self.state.files.get(&node)) else { return };
        let stores = m.stores(&file.now);
        if stores.is_empty() || self.dead {
            return;
        }
        let number = self.operations;
        let path = self.paths.get(&node).cloned().unwrap_or_default();
        for what in stores {
            if let What::Store { offset, data } = &what {
                self.expect_room(node, &path, *offset, data.len() as u64);
            }
            // The file is there: it was found above.
            let _ = self.change(node, what);
        }
        self.stored(number, path);
    }

    /// Bytes were stored to a mapping: where there is no space for them, the kernel raises SIGBUS and the process is
    /// gone. So nothing works from here on.
    fn expect_room(&mut self, node: u64, path: &Path, offset: u64, len: u64) {
        let end = offset + len;
        if self.room(node, offset, end).is_ok_and(|may| may < end) {
            self.hit(Call::Store, "SIGBUS");
            self.dead = true;
            self.bus_error.get_or_insert(format!("{}: {len} bytes at {offset}", path.display()));
        }
    }

    /// After damage to a mapped file.
    pub fn refresh_mapping(&mut self, node: u64) {
        if let (Some(m), Some(file)) = (self.mapped.get(&node), self.state.files.get(&node)) {
            m.load(&file.now);
        }
    }

    fn open_range(&mut self, node: u64, map: u64, range: Option<Range<u64>>) {
        self.pull_all();
        if let Some(m) = self.mapped.get_mut(&node) {
            m.open.retain(|(id, _)| *id != map);
            m.open.extend(range.map(|r| (map, r)));
        }
    }
}

/// A mapping.
pub(crate) struct SimMap {
    /// Before the disk, whose address it names.
    mapping: Mapping,
    disk: Disk,
    node: u64,
    id: u64,
    memory: Arc<OwnedFd>,
}

impl SimMap {
    /// Maps the first `len` bytes of a file; takes `held` with it if it can.
    pub fn new(disk: &Disk, node: u64, len: u64, held: &mut Option<Held>) -> Sys<SimMap> {
        let mut w = disk.lock();
        let v = w.begin_on(Call::Map, node)?;
        v.check()?;
        w.harmless(&v)?;
        if w.mapped.get(&node).is_none_or(|m| m.len < len) {
            if w.mapped.contains_key(&node) {
                // Its memory cannot move under those who have it mapped already.
                return Err(libc::ENOMEM);
            }
            let m = Mapped::new(&w.file(node)?.now)?;
            w.mapped.insert(node, m);
        }
        let Some(m) = w.mapped.get_mut(&node) else { return Err(libc::ENOMEM) };
        let held = held.take().ok_or(libc::ENOMEM)?;
        let mapping = Mapping::new(m.memory.as_raw_fd(), len, false, held);
        let mapping = mapping.map_err(|e| e.errno().unwrap_or(libc::EINVAL))?;
        m.next += 1;
        let (id, memory) = (m.next, Arc::clone(&m.memory));
        drop(w);
        Ok(SimMap { disk: disk.clone(), node, id, mapping, memory })
    }
}

impl RawMap for SimMap {
    fn range(&mut self, range: Range<usize>) -> MapRange<'_> {
        let r = range.start as u64..range.end as u64;
        self.disk.lock().open_range(self.node, self.id, Some(r));
        self.mapping.range(range)
    }

    fn read(&self, offset: usize, buf: &mut [u8]) {
        self.mapping.read(offset, buf);
    }

    fn write(&mut self, offset: usize, bytes: &[u8]) {
        self.range(offset..offset.saturating_add(bytes.len())).write(0, bytes);
        // It is over: an operation of its own.
        self.disk.lock().open_range(self.node, self.id, None);
    }
}

impl Drop for SimMap {
    fn drop(&mut self) {
        let mut w = self.disk.lock();
        w.open_range(self.node, self.id, None);
        // The disk's own, and this one's.
        if Arc::strong_count(&self.memory) == 2 {
            w.mapped.remove(&self.node);
            w.forget(self.node);
        }
    }
}
