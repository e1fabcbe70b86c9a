//! [`Memory`]: files in memory and nothing else, so that an input costs microseconds and leaves nothing behind.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use engineswap::engine::{Engine, RawFile, RawMap, RawQueue};
use engineswap::{
    Alignment, Buf, DirEntry, Done, EngineInfo, Error, ErrorKind, File, FileLock, Io, Metadata, Op, OpKind,
    OpenHow, Purpose, Result,
};

/// Files grow no further: a length that was read from damaged bytes must not take the machine's memory.
const MAX_FILE: usize = 64 << 20;

type Node = Arc<Mutex<Vec<u8>>>;

#[derive(Default)]
struct Names {
    dirs: BTreeSet<PathBuf>,
    files: BTreeMap<PathBuf, Node>,
}

/// A disk in memory. Clones are the same disk.
#[derive(Clone, Default)]
pub struct Memory {
    names: Arc<Mutex<Names>>,
}

fn hold<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(|e| e.into_inner())
}

impl Memory {
    /// A disk with this directory.
    pub fn with_dir(dir: &Path) -> Memory {
        let disk = Memory::default();
        hold(&disk.names).dirs.extend(dir.ancestors().map(Path::to_path_buf));
        disk
    }

    /// The engine.
    pub fn io(&self) -> Io {
        Io::from_engine(Arc::new(self.clone()))
    }
}

fn not_found(op: &'static str, path: &Path) -> Error {
    Error::new(ErrorKind::NotFound, op, "no such file").at(path)
}

fn no_space(op: &'static str) -> Error {
    Error::new(ErrorKind::NoSpace, op, "the disk in memory is full")
}

impl Engine for Memory {
    fn info(&self) -> EngineInfo {
        EngineInfo { name: "memory", uri: "memory".into(), reasons: vec![] }
    }
    fn open(&self, path: &Path, how: &OpenHow) -> Result<File> {
        let mut names = hold(&self.names);
        let node = match names.files.get(path) {
            Some(_) if how.create_new => {
                return Err(Error::new(ErrorKind::AlreadyExists, "open", "it exists").at(path));
            }
            Some(node) => node.clone(),
            None if (how.create || how.create_new)
                && path.parent().is_some_and(|p| names.dirs.contains(p)) =>
            {
                names.files.entry(path.into()).or_default().clone()
            }
            None => return Err(not_found("open", path)),
        };
        if how.truncate {
            hold(&node).clear();
        }
        Ok(File::from_raw(Arc::new(MemoryFile { node, path: path.into() })))
    }
    fn metadata(&self, path: &Path) -> Result<Option<Metadata>> {
        let names = hold(&self.names);
        if names.dirs.contains(path) {
            return Ok(Some(Metadata { len: 0, is_dir: true, is_socket: false }));
        }
        Ok(names.files.get(path).map(|n| Metadata {
            len: hold(n).len() as u64,
            is_dir: false,
            is_socket: false,
        }))
    }
    fn read_dir(&self, path: &Path) -> Result<Vec<DirEntry>> {
        let names = hold(&self.names);
        if !names.dirs.contains(path) {
            return Err(not_found("list", path));
        }
        let entry = |p: &PathBuf, is_dir| {
            let name = p.file_name().unwrap_or_default().to_string_lossy().into_owned();
            (p.parent() == Some(path)).then_some(DirEntry { name, is_dir })
        };
        let dirs = names.dirs.iter().filter_map(|p| entry(p, true));
        Ok(names.files.keys().filter_map(|p| entry(p, false)).chain(dirs).collect())
    }
    fn create_dir_all(&self, path: &Path) -> Result<()> {
        hold(&self.names).dirs.extend(path.ancestors().map(Path::to_path_buf));
        Ok(())
    }
    fn remove_file(&self, path: &Path) -> Result<()> {
        hold(&self.names).files.remove(path).map(drop).ok_or_else(|| not_found("unlink", path))
    }
    fn remove_dir(&self, path: &Path) -> Result<()> {
        if hold(&self.names).dirs.remove(path) { Ok(()) } else { Err(not_found("rmdir", path)) }
    }
    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        let mut names = hold(&self.names);
        let node = names.files.remove(from).ok_or_else(|| not_found("rename", from))?;
        names.files.insert(to.into(), node);
        Ok(())
    }
    fn hard_link(&self, from: &Path, to: &Path) -> Result<()> {
        let mut names = hold(&self.names);
        let node = names.files.get(from).ok_or_else(|| not_found("link", from))?.clone();
        names.files.insert(to.into(), node);
        Ok(())
    }
    fn sync_dir(&self, _: &Path) -> Result<()> {
        Ok(())
    }
    fn lock_file(&self, path: &Path) -> Result<FileLock> {
        self.open(path, &OpenHow::read_write()).map(FileLock::new)
    }
    fn queue(&self, depth: u32) -> Result<Box<dyn RawQueue>> {
        Ok(Box::new(MemoryQueue { depth: depth as usize, done: VecDeque::new() }))
    }
    fn run(&self, ops: Vec<Op>) -> Vec<Done> {
        ops.into_iter().map(run).collect()
    }
}

fn run(mut op: Op) -> Done {
    let (len, file, purpose) = (op.len as usize, op.file.clone(), op.purpose);
    let unknown =
        || Err(Error::new(ErrorKind::InvalidInput, "run", "an operation that this disk does not know"));
    let result = match (op.kind, &mut op.buf) {
        (OpKind::Read, Buf::Aligned(b)) => file.read_at(&mut b[..len], op.offset, purpose).map(|n| n as u64),
        (OpKind::Read, Buf::Arena(b)) => file.read_at(&mut b[..len], op.offset, purpose).map(|n| n as u64),
        (OpKind::Read, Buf::Pieces(pieces)) => pieces.iter_mut().try_fold(0, |total, b| {
            let want = b.len().min(len - total as usize);
            file.read_at(&mut b.to_fill()[..want], op.offset + total, purpose).map(|n| total + n as u64)
        }),
        (OpKind::Write { .. }, Buf::Aligned(b)) => {
            file.write_all_at(&b[..len], op.offset, purpose).map(|()| op.len)
        }
        (OpKind::SyncAll | OpKind::SyncData, _) => Ok(0),
        _ => unknown(),
    };
    Done { user: op.user, result, buf: op.buf }
}

struct MemoryQueue {
    depth: usize,
    done: VecDeque<Done>,
}

impl RawQueue for MemoryQueue {
    fn push(&mut self, op: Op) -> std::result::Result<(), Op> {
        if self.done.len() >= self.depth {
            return Err(op);
        }
        self.done.push_back(run(op));
        Ok(())
    }
    fn submit(&mut self) -> Result<()> {
        Ok(())
    }
    fn wait(&mut self, _min: usize) -> Result<()> {
        Ok(())
    }
    fn pop(&mut self) -> Option<Done> {
        self.done.pop_front()
    }
    fn in_flight(&self) -> usize {
        self.done.len()
    }
}

struct MemoryFile {
    node: Node,
    path: PathBuf,
}

impl MemoryFile {
    fn resize(&self, op: &'static str, len: u64, grow_only: bool) -> Result<()> {
        let len = usize::try_from(len).ok().filter(|n| *n <= MAX_FILE);
        let len = len.ok_or_else(|| no_space(op).at(&self.path))?;
        let mut bytes = hold(&self.node);
        if len > bytes.len() || !grow_only {
            bytes.resize(len, 0);
        }
        Ok(())
    }
}

impl RawFile for MemoryFile {
    fn read_at(&self, buf: &mut [u8], offset: u64, _: Purpose) -> Result<usize> {
        let bytes = hold(&self.node);
        let rest = usize::try_from(offset).ok().and_then(|o| bytes.get(o..)).unwrap_or_default();
        let n = rest.len().min(buf.len());
        buf[..n].copy_from_slice(&rest[..n]);
        Ok(n)
    }
    fn write_all_at(&self, buf: &[u8], offset: u64, _dsync: bool, _: Purpose) -> Result<()> {
        self.resize("write", offset.saturating_add(buf.len() as u64), true)?;
        hold(&self.node)[offset as usize..][..buf.len()].copy_from_slice(buf);
        Ok(())
    }
    fn sync(&self, _: bool, _: Purpose) -> Result<()> {
        Ok(())
    }
    fn sync_range(&self, _: u64, _: u64, _: Purpose) -> Result<()> {
        Ok(())
    }
    fn allocate(&self, offset: u64, len: u64) -> Result<()> {
        self.resize("allocate", offset.saturating_add(len), true)
    }
    fn set_len(&self, len: u64) -> Result<()> {
        self.resize("truncate", len, false)
    }
    fn len(&self) -> Result<u64> {
        Ok(hold(&self.node).len() as u64)
    }
    fn path(&self) -> &Path {
        &self.path
    }
    fn is_direct(&self) -> bool {
        true
    }
    fn alignment(&self) -> Alignment {
        Alignment { memory: 1, offset: 1 }
    }
    fn map(&self, _: u64) -> Result<Box<dyn RawMap>> {
        Err(Error::new(ErrorKind::Unsupported, "mmap", "this disk has no mappings"))
    }
}
