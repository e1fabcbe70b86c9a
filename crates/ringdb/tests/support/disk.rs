//! A disk in memory that remembers the order of all that was done to it, and what a power cut at any moment may
//! have left of it.
//!
//! What is promised after a power cut, and nothing more: bytes that were there when a sync of their file began,
//! bytes of a durable write that has returned, and entries of a directory that has been synced. Everything else
//! may be there, be missing, or be torn at sectors of 512 or 4096 bytes, each write for itself, in any order.
//! Files cannot be mapped, so the store writes its log by `pwrite`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use ringdb::engineswap::engine::{Engine, RawFile, RawMap, RawQueue};
use ringdb::engineswap::{
    Alignment, Buf, DirEntry, Done, EngineInfo, Error, ErrorKind, File, FileLock, Io, Metadata, Op, OpKind,
    OpenHow, Purpose, Result,
};

use crate::support::Rng;

/// One step of what happened to the disk, or a note of the test's.
#[derive(Clone, Debug)]
pub enum Event<N> {
    Write {
        node: usize,
        offset: usize,
        data: Arc<[u8]>,
        id: usize,
    },
    Zeros {
        node: usize,
        offset: usize,
        len: usize,
    },
    /// The durable write of this number has returned.
    Written {
        node: usize,
        id: usize,
    },
    SetLen {
        node: usize,
        len: usize,
    },
    /// The file is at least so long.
    Grow {
        node: usize,
        len: usize,
    },
    Sync {
        node: usize,
    },
    Name {
        path: PathBuf,
        node: usize,
    },
    Unname {
        path: PathBuf,
    },
    Rename {
        to: PathBuf,
        node: usize,
    },
    MakeDir {
        path: PathBuf,
    },
    SyncDir {
        path: PathBuf,
    },
    Note(N),
}

/// What a disk holds.
#[derive(Clone, Default)]
pub struct Image {
    pub dirs: BTreeSet<PathBuf>,
    pub files: BTreeMap<PathBuf, Vec<u8>>,
}

impl Image {
    /// An empty disk.
    pub fn empty() -> Image {
        Image { dirs: [PathBuf::from("/")].into(), files: BTreeMap::new() }
    }

    /// Puts the files of `from` into a directory of the machine.
    pub fn write_out(&self, from: &Path, to: &Path) {
        use std::os::unix::fs::FileExt;
        for (path, data) in self.files.iter().filter(|(p, _)| p.parent() == Some(from)) {
            let file = std::fs::File::create(to.join(path.file_name().unwrap())).unwrap();
            file.set_len(data.len() as u64).unwrap();
            for (i, block) in data.chunks(4096).enumerate().filter(|(_, b)| b.iter().any(|x| *x != 0)) {
                file.write_all_at(block, i as u64 * 4096).unwrap();
            }
        }
    }
}

struct State<N> {
    dirs: BTreeSet<PathBuf>,
    names: BTreeMap<PathBuf, usize>,
    nodes: Vec<Vec<u8>>,
    events: Vec<Event<N>>,
}

/// The disk. Cheap to clone.
pub struct Disk<N> {
    state: Arc<Mutex<State<N>>>,
    start: Arc<Image>,
}

impl<N> Clone for Disk<N> {
    fn clone(&self) -> Self {
        Disk { state: self.state.clone(), start: self.start.clone() }
    }
}

impl<N: Clone + Send + 'static> Disk<N> {
    /// A disk that holds `image`, durably.
    pub fn new(image: Image) -> Disk<N> {
        let mut s = State { dirs: image.dirs.clone(), names: BTreeMap::new(), nodes: vec![], events: vec![] };
        for (path, data) in &image.files {
            s.names.insert(path.clone(), s.nodes.len());
            s.nodes.push(data.clone());
        }
        Disk { state: Arc::new(Mutex::new(s)), start: Arc::new(image) }
    }

    pub fn io(&self) -> Io {
        Io::from_engine(Arc::new(self.clone()))
    }

    /// Puts a note of the test's among the events.
    pub fn note(&self, note: N) {
        self.lock().events.push(Event::Note(note));
    }

    /// What has happened so far.
    pub fn events(&self) -> Vec<Event<N>> {
        self.lock().events.clone()
    }

    /// How many events that is.
    pub fn len(&self) -> usize {
        self.lock().events.len()
    }

    /// To look at what power cuts leave, one after the other.
    pub fn cutter(&self) -> Cutter<N> {
        Cutter::new(&self.start, self.events())
    }

    fn lock(&self) -> MutexGuard<'_, State<N>> {
        self.state.lock().unwrap()
    }
}

/// A write, or a change of length, that is not durable yet.
enum Pending {
    Write { offset: usize, data: Arc<[u8]>, id: usize, done: bool },
    Zeros { offset: usize, len: usize },
    SetLen(usize),
    Grow(usize),
}

impl Pending {
    fn apply(&self, to: &mut Vec<u8>) {
        match self {
            Pending::Write { offset, data, .. } => put(to, *offset, data),
            Pending::Zeros { offset, len } => {
                to.resize(to.len().max(offset + len), 0);
                to[*offset..offset + len].fill(0);
            }
            Pending::SetLen(len) => to.resize(*len, 0),
            Pending::Grow(len) => to.resize(to.len().max(*len), 0),
        }
    }

    /// As after a power cut that came in the middle: whole, not at all, or some sectors of it.
    fn maybe(&self, to: &mut Vec<u8>, rng: &mut Rng) {
        match self {
            Pending::Write { offset, data, .. } if rng.chance(3) => {
                let unit = *rng.pick(&[512, 4096]);
                let mut at = 0;
                while at < data.len() {
                    let end = ((offset + at) / unit + 1) * unit - offset;
                    let end = end.min(data.len());
                    if rng.chance(2) {
                        put(to, offset + at, &data[at..end]);
                    }
                    at = end;
                }
                if rng.chance(2) {
                    to.resize(to.len().max(offset + data.len()), 0);
                }
            }
            _ if rng.chance(2) => self.apply(to),
            _ => {}
        }
    }
}

fn put(to: &mut Vec<u8>, offset: usize, data: &[u8]) {
    to.resize(to.len().max(offset + data.len()), 0);
    to[offset..offset + data.len()].copy_from_slice(data);
}

#[derive(Default)]
struct Node {
    durable: Vec<u8>,
    pending: Vec<Pending>,
}

/// Walks through the events of a disk and says what a power cut would leave.
pub struct Cutter<N> {
    events: Vec<Event<N>>,
    at: usize,
    nodes: BTreeMap<usize, Node>,
    dirs: BTreeSet<PathBuf>,
    names: BTreeMap<PathBuf, usize>,
    /// Entries of directories that are not durable, in their order.
    pending: Vec<Event<N>>,
}

impl<N: Clone> Cutter<N> {
    fn new(start: &Image, events: Vec<Event<N>>) -> Cutter<N> {
        let mut c = Cutter {
            events,
            at: 0,
            nodes: BTreeMap::new(),
            dirs: start.dirs.clone(),
            names: BTreeMap::new(),
            pending: vec![],
        };
        for (node, (path, data)) in start.files.iter().enumerate() {
            c.nodes.insert(node, Node { durable: data.clone(), pending: vec![] });
            c.names.insert(path.clone(), node);
        }
        c
    }

    /// Goes on until just before event `to`.
    pub fn advance(&mut self, to: usize) {
        while self.at < to {
            let e = self.events[self.at].clone();
            self.step(e);
            self.at += 1;
        }
    }

    fn step(&mut self, e: Event<N>) {
        let mut add = |node: usize, p: Pending| self.nodes.entry(node).or_default().pending.push(p);
        match e {
            Event::Write { node, offset, data, id } => {
                add(node, Pending::Write { offset, data, id, done: false })
            }
            Event::Zeros { node, offset, len } => add(node, Pending::Zeros { offset, len }),
            Event::SetLen { node, len } => add(node, Pending::SetLen(len)),
            Event::Grow { node, len } => add(node, Pending::Grow(len)),
            Event::Written { node, id: which } => {
                for p in &mut self.nodes.entry(node).or_default().pending {
                    if let Pending::Write { id, done, .. } = p {
                        *done |= *id == which;
                    }
                }
            }
            Event::Sync { node } => {
                let n = self.nodes.entry(node).or_default();
                for p in n.pending.drain(..) {
                    p.apply(&mut n.durable);
                }
            }
            Event::SyncDir { path } => {
                let (now, later) = std::mem::take(&mut self.pending)
                    .into_iter()
                    .partition(|e| entry_path(e).and_then(Path::parent) == Some(&path));
                self.pending = later;
                now.iter().for_each(|e: &Event<N>| change_names(e, &mut self.names, &mut self.dirs));
            }
            Event::Note(_) => {}
            e => self.pending.push(e),
        }
    }

    /// What a power cut at this moment may leave; `rng` decides.
    pub fn cut(&self, rng: &mut Rng) -> Image {
        let (mut names, mut dirs) = (self.names.clone(), self.dirs.clone());
        let (how, first) = (rng.below(4), rng.below(self.pending.len() as u64 + 1) as usize);
        for (i, e) in self.pending.iter().enumerate() {
            let kept = match how {
                0 => false,
                1 => true,
                2 => i < first,
                _ => rng.chance(2),
            };
            if kept {
                change_names(e, &mut names, &mut dirs);
            }
        }
        let reachable = |p: &Path| p.ancestors().skip(1).all(|d| dirs.contains(d));
        names.retain(|p, _| reachable(p));
        let how = rng.below(4);
        let mut contents: BTreeMap<usize, Vec<u8>> = BTreeMap::new();
        let mut image =
            Image { dirs: dirs.iter().filter(|d| reachable(d)).cloned().collect(), ..Image::empty() };
        for (path, node) in names {
            let content = contents.entry(node).or_insert_with(|| {
                let Some(n) = self.nodes.get(&node) else { return vec![] };
                let mut data = n.durable.clone();
                for p in &n.pending {
                    match (how, p) {
                        (_, Pending::Write { done: true, .. }) | (1, _) => p.apply(&mut data),
                        (0, _) => {}
                        _ => p.maybe(&mut data, rng),
                    }
                }
                data
            });
            image.files.insert(path, content.clone());
        }
        image
    }
}

fn entry_path<N>(e: &Event<N>) -> Option<&Path> {
    match e {
        Event::Name { path, .. } | Event::Unname { path } | Event::MakeDir { path } => Some(path),
        Event::Rename { to, .. } => Some(to),
        _ => None,
    }
}

fn change_names<N>(e: &Event<N>, names: &mut BTreeMap<PathBuf, usize>, dirs: &mut BTreeSet<PathBuf>) {
    match e {
        Event::Name { path, node } => drop(names.insert(path.clone(), *node)),
        Event::Unname { path } => drop(names.remove(path)),
        Event::Rename { to, node, .. } => {
            // Under whatever name an earlier rename that was lost has left it.
            names.retain(|p, n| n != node || p.parent() != to.parent());
            names.insert(to.clone(), *node);
        }
        Event::MakeDir { path } => drop(dirs.insert(path.clone())),
        _ => {}
    }
}

// ---- the engine

fn not_found(op: &'static str, path: &Path) -> Error {
    Error::new(ErrorKind::NotFound, op, "no such file").at(path)
}

impl<N: Clone + Send + 'static> Engine for Disk<N> {
    fn info(&self) -> EngineInfo {
        EngineInfo { name: "memory", uri: "memory".into(), reasons: vec![] }
    }
    fn open(&self, path: &Path, how: &OpenHow) -> Result<File> {
        let mut s = self.lock();
        let node = match s.names.get(path) {
            Some(_) if how.create_new => {
                return Err(Error::new(ErrorKind::AlreadyExists, "open", "it exists").at(path));
            }
            Some(&node) => {
                if how.truncate {
                    s.nodes[node].clear();
                    s.events.push(Event::SetLen { node, len: 0 });
                }
                node
            }
            None if (how.create || how.create_new) && path.parent().is_some_and(|p| s.dirs.contains(p)) => {
                let node = s.nodes.len();
                s.nodes.push(vec![]);
                s.names.insert(path.into(), node);
                s.events.push(Event::Name { path: path.into(), node });
                node
            }
            None => return Err(not_found("open", path)),
        };
        Ok(File::from_raw(Arc::new(DiskFile { disk: self.clone(), node, path: path.into() })))
    }
    fn metadata(&self, path: &Path) -> Result<Option<Metadata>> {
        let s = self.lock();
        if s.dirs.contains(path) {
            return Ok(Some(Metadata { len: 0, is_dir: true }));
        }
        Ok(s.names.get(path).map(|&n| Metadata { len: s.nodes[n].len() as u64, is_dir: false }))
    }
    fn read_dir(&self, path: &Path) -> Result<Vec<DirEntry>> {
        let s = self.lock();
        let name = |p: &PathBuf| p.file_name().unwrap().to_string_lossy().into_owned();
        let files = s.names.keys().filter(|p| p.parent() == Some(path));
        let dirs = s.dirs.iter().filter(|p| p.parent() == Some(path));
        Ok(files
            .map(|p| DirEntry { name: name(p), is_dir: false })
            .chain(dirs.map(|p| DirEntry { name: name(p), is_dir: true }))
            .collect())
    }
    fn create_dir_all(&self, path: &Path) -> Result<()> {
        let mut s = self.lock();
        let missing: Vec<PathBuf> =
            path.ancestors().filter(|p| !s.dirs.contains(*p)).map(Path::to_path_buf).collect();
        for path in missing.into_iter().rev() {
            s.dirs.insert(path.clone());
            s.events.push(Event::MakeDir { path });
        }
        Ok(())
    }
    fn remove_file(&self, path: &Path) -> Result<()> {
        let mut s = self.lock();
        s.names.remove(path).ok_or_else(|| not_found("unlink", path))?;
        s.events.push(Event::Unname { path: path.into() });
        Ok(())
    }
    fn remove_dir(&self, path: &Path) -> Result<()> {
        Err(Error::new(ErrorKind::Unsupported, "rmdir", "not needed").at(path))
    }
    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        let mut s = self.lock();
        let node = s.names.remove(from).ok_or_else(|| not_found("rename", from))?;
        s.names.insert(to.into(), node);
        s.events.push(Event::Rename { to: to.into(), node });
        Ok(())
    }
    fn hard_link(&self, from: &Path, to: &Path) -> Result<()> {
        let mut s = self.lock();
        let node = *s.names.get(from).ok_or_else(|| not_found("link", from))?;
        s.names.insert(to.into(), node);
        s.events.push(Event::Name { path: to.into(), node });
        Ok(())
    }
    fn sync_dir(&self, path: &Path) -> Result<()> {
        self.lock().events.push(Event::SyncDir { path: path.into() });
        Ok(())
    }
    fn lock_file(&self, path: &Path) -> Result<FileLock> {
        self.open(path, &OpenHow::read_write()).map(FileLock::new)
    }
    fn queue(&self, depth: u32) -> Result<Box<dyn RawQueue>> {
        Ok(Box::new(DiskQueue { depth: depth as usize, todo: VecDeque::new(), done: VecDeque::new() }))
    }
    fn run(&self, ops: Vec<Op>) -> Vec<Done> {
        ops.into_iter().map(run).collect()
    }
}

fn run(mut op: Op) -> Done {
    let (len, file, purpose) = (op.len as usize, op.file.clone(), op.purpose);
    let result = match (op.kind, &mut op.buf) {
        (OpKind::Read, Buf::Aligned(b)) => file.read_at(&mut b[..len], op.offset, purpose).map(|n| n as u64),
        (OpKind::Read, Buf::Frame(b)) => file.read_at(&mut b[..len], op.offset, purpose).map(|n| n as u64),
        (OpKind::Read, Buf::Frames(frames)) => {
            let mut total = 0;
            for b in frames.iter_mut() {
                let want = b.len().min(len - total);
                total += file.read_at(&mut b[..want], op.offset + total as u64, purpose).unwrap_or(0);
            }
            Ok(total as u64)
        }
        (OpKind::Write { dsync: false }, Buf::Aligned(b)) => {
            file.write_all_at(&b[..len], op.offset, purpose).map(|()| op.len)
        }
        (OpKind::SyncAll | OpKind::SyncData, _) => file.sync_all(purpose).map(|()| 0),
        _ => Err(Error::new(ErrorKind::InvalidInput, "run", "an operation that this disk does not know")),
    };
    Done { user: op.user, result, buf: op.buf }
}

struct DiskQueue {
    depth: usize,
    todo: VecDeque<Op>,
    done: VecDeque<Done>,
}

impl RawQueue for DiskQueue {
    fn push(&mut self, op: Op) -> std::result::Result<(), Op> {
        if self.in_flight() >= self.depth {
            return Err(op);
        }
        self.todo.push_back(op);
        Ok(())
    }
    fn submit(&mut self) -> Result<()> {
        self.done.extend(self.todo.drain(..).map(run));
        Ok(())
    }
    fn wait(&mut self, _min: usize) -> Result<()> {
        self.submit()
    }
    fn pop(&mut self) -> Option<Done> {
        self.done.pop_front()
    }
    fn in_flight(&self) -> usize {
        self.todo.len() + self.done.len()
    }
}

struct DiskFile<N> {
    disk: Disk<N>,
    node: usize,
    path: PathBuf,
}

impl<N: Clone + Send + 'static> RawFile for DiskFile<N> {
    fn read_at(&self, buf: &mut [u8], offset: u64, _: Purpose) -> Result<usize> {
        let s = self.disk.lock();
        let rest = s.nodes[self.node].get(offset as usize..).unwrap_or_default();
        let n = rest.len().min(buf.len());
        buf[..n].copy_from_slice(&rest[..n]);
        Ok(n)
    }
    fn write_all_at(&self, buf: &[u8], offset: u64, dsync: bool, _: Purpose) -> Result<()> {
        let (node, offset) = (self.node, offset as usize);
        let mut s = self.disk.lock();
        put(&mut s.nodes[node], offset, buf);
        let id = s.events.len();
        let zeros = !dsync && buf.len() >= 4096 && buf.iter().all(|b| *b == 0);
        match s.events.last_mut() {
            // A file that is filled with zeros is one event.
            Some(Event::Zeros { node: n, offset: o, len }) if zeros && *n == node && *o + *len == offset => {
                *len += buf.len();
            }
            _ if zeros => s.events.push(Event::Zeros { node, offset, len: buf.len() }),
            _ => s.events.push(Event::Write { node, offset, data: buf.into(), id }),
        }
        drop(s);
        if dsync {
            // Others write meanwhile.
            std::thread::yield_now();
            self.disk.lock().events.push(Event::Written { node, id });
        }
        Ok(())
    }
    fn sync(&self, _: bool, _: Purpose) -> Result<()> {
        self.disk.lock().events.push(Event::Sync { node: self.node });
        Ok(())
    }
    fn sync_range(&self, _: u64, _: u64, _: Purpose) -> Result<()> {
        Ok(())
    }
    fn allocate(&self, offset: u64, len: u64) -> Result<()> {
        let (mut s, end) = (self.disk.lock(), (offset + len) as usize);
        let now = s.nodes[self.node].len();
        s.nodes[self.node].resize(now.max(end), 0);
        s.events.push(Event::Grow { node: self.node, len: end });
        Ok(())
    }
    fn set_len(&self, len: u64) -> Result<()> {
        let mut s = self.disk.lock();
        s.nodes[self.node].resize(len as usize, 0);
        s.events.push(Event::SetLen { node: self.node, len: len as usize });
        Ok(())
    }
    fn len(&self) -> Result<u64> {
        Ok(self.disk.lock().nodes[self.node].len() as u64)
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
        Err(Error::new(ErrorKind::Unsupported, "mmap", "every write is recorded"))
    }
}
