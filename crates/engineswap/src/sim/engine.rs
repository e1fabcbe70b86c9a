//! The engine over a simulated disk: opening files, names, queues.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};

use super::disk::Disk;
use super::handle::Handle;
use super::node::{Node, What};
use super::plan::{Action, Call};
use super::queue::SimQueue;
use super::world::World;
use crate::engine::owned::Owned;
use crate::engine::queued::{self, RunsAlone};
use crate::engine::{Engine, RawQueue, kept, runner};
use crate::file::{File, FileLock};
use crate::how::{Direct, OpenHow};
use crate::info::Alignment;
use crate::info::{DirEntry, EngineInfo, Metadata};
use crate::kind::Purpose;
use crate::op::{Done, Op};
use crate::os::{MAPPED, OsFile, Sys, cutting, retry_intr};
use crate::probes::{self, Event};
use crate::stats::{IoStats, Stats};
use crate::{Error, ErrorKind, Result};

pub(crate) struct SimEngine {
    disk: Disk,
    stats: Arc<Stats>,
    token: Arc<u64>,
    reasons: Vec<String>,
    /// For the files whose every call goes through a queue.
    me: Weak<SimEngine>,
}

impl SimEngine {
    pub fn start(disk: Disk, reasons: Vec<String>) -> Arc<SimEngine> {
        // Apart from the tokens of the operating system's engines, which count from 1.
        static NEXT: AtomicU64 = AtomicU64::new(1 << 32);
        let token = Arc::new(NEXT.fetch_add(1, Relaxed));
        let stats = Arc::new(Stats::new(c"sim"));
        Arc::new_cyclic(|me| SimEngine { disk, stats, token, reasons, me: me.clone() })
    }

    /// A change of names, which a power cut may lose.
    fn name<T>(
        &self,
        op: &'static str,
        call: Call,
        path: &Path,
        mut change: impl FnMut(&mut World) -> Sys<T>,
    ) -> Result<T> {
        let done = retry_intr(|| {
            let mut w = self.disk.lock();
            let v = w.begin(call, path, None)?;
            v.check()?;
            let out = change(&mut w)?;
            w.effect(&v)?;
            drop(w);
            self.disk.nap(v.takes);
            Ok(out)
        });
        done.map_err(|e| Error::from_errno(op, e).at(path))
    }

    /// A question about names.
    fn ask<T>(&self, op: &'static str, call: Call, path: &Path, get: impl Fn(&World) -> Sys<T>) -> Result<T> {
        let done = retry_intr(|| {
            let mut w = self.disk.lock();
            let v = w.begin(call, path, None)?;
            v.check()?;
            w.harmless(&v)?;
            get(&w)
        });
        done.map_err(|e| Error::from_errno(op, e).at(path))
    }

    fn open_file(&self, path: &Path, how: &OpenHow) -> Sys<Handle> {
        let mut w = self.disk.lock();
        let found = w.state.names.find(path)?;
        let makes = found.is_none() && (how.create || how.create_new);
        let v = w.begin(if makes { Call::Create } else { Call::Open }, path, found.map(|e| e.node))?;
        v.check()?;
        let handle =
            |node, is_dir| Handle { disk: self.disk.clone(), node, is_dir, read: how.read, write: how.write };
        let handle = match found {
            Some(_) if how.create_new => return Err(libc::EEXIST),
            Some(e) if e.is_dir && how.write => return Err(libc::EISDIR),
            Some(e) if e.is_dir => {
                w.harmless(&v)?;
                handle(e.node, true)
            }
            Some(e) => {
                if how.truncate {
                    // Nothing else happens on this disk meanwhile.
                    cutting(self.disk.key(e.node), 0, || Ok(()))?;
                    w.change(e.node, What::SetLen(0))?;
                    w.effect(&v)?;
                } else {
                    w.harmless(&v)?;
                }
                handle(e.node, false)
            }
            None if !makes => return Err(libc::ENOENT),
            None => {
                let (node, at) = (w.state.names.new_id(), w.next_change());
                w.state.names.link(at, path, node, false)?;
                w.state.files.insert(node, Arc::new(Node::default()));
                w.paths.insert(node, path.to_path_buf());
                w.effect(&v)?;
                handle(node, false)
            }
        };
        if !handle.is_dir {
            *w.opened.entry(handle.node).or_default() += 1;
            w.paths.entry(handle.node).or_insert_with(|| path.to_path_buf());
        }
        Ok(handle)
    }

    fn open_os(&self, path: &Path, how: &OpenHow) -> Result<OsFile> {
        let wrong = |why: &str| Error::new(ErrorKind::InvalidInput, "open", why).at(path);
        if !how.read && !how.write {
            return Err(wrong("neither for reading nor writing"));
        }
        if (how.truncate || how.create || how.create_new) && !how.write {
            return Err(wrong("made or cut but not for writing"));
        }
        let unit = self.disk.config().align;
        let direct = match how.direct {
            Direct::No => None,
            Direct::Require if unit == 0 => {
                let e = Error::from_errno("open", libc::EINVAL).with_kind(ErrorKind::Unsupported).at(path);
                return Err(e.detail("this simulated disk has no direct I/O (align=0)"));
            }
            _ if unit == 0 => None,
            _ => Some(Alignment { memory: unit.min(512), offset: unit }),
        };
        let handle = retry_intr(|| self.open_file(path, how));
        let handle = handle.map_err(|e| match e {
            libc::ETXTBSY => {
                let e = Error::from_errno("truncate", e).with_kind(ErrorKind::InvalidInput);
                e.at(path).detail(MAPPED)
            }
            _ => Error::from_errno("open", e).at(path),
        })?;
        Ok(OsFile::answered_by(Box::new(handle), path, direct, &self.stats))
    }
}

fn named<T>(op: &'static std::ffi::CStr, call: impl FnOnce() -> Result<T>) -> Result<T> {
    let event = || Event {
        engine: c"sim",
        op,
        purpose: Purpose::default(),
        fd: -1,
        offset: 0,
        len: 0,
        plain: true,
        tag: 0,
    };
    probes::around(event, |_| 0, call)
}

impl Engine for SimEngine {
    fn info(&self) -> EngineInfo {
        EngineInfo { name: "sim", uri: self.disk.config().to_string(), reasons: self.reasons.clone() }
    }

    fn open(&self, path: &Path, how: &OpenHow) -> Result<File> {
        named(c"open", || {
            let file = Arc::new(self.open_os(path, how)?);
            Ok(queued::file(file, self.disk.config().queue_always.then_some(&self.me)))
        })
    }

    fn metadata(&self, path: &Path) -> Result<Option<Metadata>> {
        let found = self.ask("stat", Call::Stat, path, |w| match w.state.names.find(path)? {
            None => Ok(None),
            Some(e) if e.is_dir => Ok(Some(Metadata { len: 0, is_dir: true, is_socket: false })),
            Some(e) => Ok(Some(Metadata { len: w.file(e.node)?.now.len(), is_dir: false, is_socket: false })),
        });
        match found {
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
            other => other,
        }
    }

    fn read_dir(&self, path: &Path) -> Result<Vec<DirEntry>> {
        let list = self.ask("read directory", Call::List, path, |w| w.state.names.list(path))?;
        let name = |n: OsString| n.to_string_lossy().into_owned();
        Ok(list.into_iter().map(|(n, is_dir)| DirEntry { name: name(n), is_dir }).collect())
    }

    fn create_dir_all(&self, path: &Path) -> Result<()> {
        let mut missing: Vec<PathBuf> = Vec::new();
        for p in path.ancestors() {
            match self.disk.lock().state.names.find(p) {
                Ok(Some(e)) if e.is_dir => break,
                Ok(Some(_)) | Err(libc::ENOTDIR) => {
                    return Err(Error::from_errno("create directory", libc::ENOTDIR).at(path));
                }
                _ => missing.push(p.to_path_buf()),
            }
        }
        for p in missing.into_iter().rev() {
            self.name("create directory", Call::Mkdir, &p, |w| {
                let (node, at) = (w.state.names.new_id(), w.next_change());
                w.state.names.link(at, &p, node, true)
            })?;
        }
        Ok(())
    }

    fn remove_file(&self, path: &Path) -> Result<()> {
        let call = |w: &mut World| {
            let at = w.next_change();
            let node = w.state.names.unlink(at, path, false)?;
            w.forget(node);
            Ok(())
        };
        named(c"unlink", || self.name("unlink", Call::Unlink, path, call))
    }

    fn remove_dir(&self, path: &Path) -> Result<()> {
        self.name("remove directory", Call::Rmdir, path, |w| {
            let at = w.next_change();
            w.state.names.unlink(at, path, true).map(drop)
        })
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        let call = |w: &mut World| {
            let at = w.next_change();
            let e = w.state.names.find(from)?;
            let old = w.state.names.rename(at, from, to)?;
            match e {
                Some(e) if !e.is_dir => drop(w.paths.insert(e.node, to.to_path_buf())),
                // Of all that is in it.
                _ => w.paths = w.state.names.files().into_iter().map(|(p, n)| (n, p)).collect(),
            }
            old.into_iter().for_each(|n| w.forget(n));
            Ok(())
        };
        let done = named(c"rename", || self.name("rename", Call::Rename, from, call));
        done.map_err(|e| e.detail(format!("to {}", to.display())))
    }

    fn hard_link(&self, from: &Path, to: &Path) -> Result<()> {
        let call = |w: &mut World| {
            let e = w.state.names.find(from)?.ok_or(libc::ENOENT)?;
            if e.is_dir {
                return Err(libc::EPERM);
            }
            let at = w.next_change();
            w.state.names.link(at, to, e.node, false)
        };
        let done = named(c"link", || self.name("link", Call::Link, from, call));
        done.map_err(|e| e.detail(format!("to {}", to.display())))
    }

    fn sync_dir(&self, path: &Path) -> Result<()> {
        let call = || {
            let mut w = self.disk.lock();
            let e = w.state.names.find(path)?.ok_or(libc::ENOENT)?;
            if !e.is_dir {
                return Err(libc::ENOTDIR);
            }
            let v = w.begin(Call::SyncDir, path, None)?;
            v.check().inspect_err(|errno| {
                if OsFile::spoils_sync(*errno) {
                    w.state.names.give_up(e.node);
                }
            })?;
            w.effect(&v)?;
            if v.fault != Some(Action::Lie) {
                w.state.names.sync(e.node);
                w.forget_all();
            }
            drop(w);
            self.disk.nap(v.takes);
            Ok(())
        };
        let failed = |e: i32| {
            let error = Error::from_errno("fsync directory", e).at(path);
            if OsFile::spoils_sync(e) && error.kind() != ErrorKind::NotFound {
                return error.with_kind(ErrorKind::SyncFailed);
            }
            error
        };
        let named_call = || retry_intr(call).map_err(failed);
        named(c"sync_dir", named_call)
    }

    fn lock_file(&self, path: &Path) -> Result<FileLock> {
        let file = self.open_os(path, &OpenHow::read_write())?;
        file.lock_exclusive()?;
        Ok(FileLock::new(File::from_raw(Arc::new(file))))
    }

    fn queue(&self, depth: u32) -> Result<Box<dyn RawQueue>> {
        let depth = depth.clamp(1, self.disk.config().depth);
        Ok(Box::new(Owned::new(SimQueue::new(&self.disk, depth, &self.stats))))
    }

    fn shared_queue(&self, depth: u32) -> Result<Box<dyn RawQueue + Send>> {
        let depth = depth.clamp(1, self.disk.config().depth);
        Ok(Box::new(Owned::new(SimQueue::new(&self.disk, depth, &self.stats))))
    }

    fn run(&self, ops: Vec<Op>) -> Vec<Done> {
        runner::run(&self.token, ops, self, &self.stats)
    }

    fn run_with(&self, ops: &mut dyn Iterator<Item = Op>, each: &mut dyn FnMut(Done)) {
        runner::run_with(&self.token, ops, self, &self.stats, each);
    }

    fn stats(&self) -> IoStats {
        self.stats.snapshot()
    }
}

impl RunsAlone for SimEngine {
    fn run_alone(&self, op: Op) -> Done {
        runner::run_alone(&self.token, op, self, &self.stats)
    }
}

impl kept::Maker for SimEngine {
    fn own(&self) -> Result<Box<dyn RawQueue>> {
        self.queue(u32::MAX)
    }

    fn loose(&self) -> Result<Box<dyn RawQueue + Send>> {
        self.shared_queue(u32::MAX)
    }

    fn queue_always(&self) -> bool {
        self.disk.config().queue_always
    }

    /// Which thread had a queue first must not matter in a simulation.
    fn depth(&self) -> u32 {
        0
    }
}
