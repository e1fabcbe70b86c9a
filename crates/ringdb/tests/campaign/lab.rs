//! A simulated disk with notes between its operations, and with turns: background work happens when a history says so,
//! so that the same steps do the same things to the disk.

use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use ringdb::engineswap::engine::{Engine, RawQueue};
use ringdb::engineswap::sim::Disk;
use ringdb::engineswap::{DirEntry, Done, EngineInfo, File, FileLock, Io, Metadata, Op, OpenHow, Result};

use crate::env::Class;
use crate::model::Note;

/// Who may begin something on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Only the thread of the history; the others wait.
    History,
    /// It and the thread that prepares log segments.
    Log,
    /// Everybody.
    All,
}

/// The disk, its notes and its turns. A clone is the same.
#[derive(Clone)]
pub struct Lab {
    pub disk: Disk,
    turn: Arc<(Mutex<Turn>, Condvar)>,
    notes: Arc<Mutex<Vec<(usize, Note)>>>,
}

impl Lab {
    pub fn new(disk: Disk) -> Lab {
        Lab { disk, turn: Arc::new((Mutex::new(Turn::All), Condvar::new())), notes: Arc::default() }
    }

    pub fn io(&self) -> Io {
        Io::from_engine(Arc::new(InTurn { io: self.disk.io(), lab: self.clone() }))
    }

    /// Notes something before the next change of the disk.
    pub fn note(&self, note: Note) {
        let at = self.disk.points();
        self.notes.lock().unwrap().push((at, note));
    }

    /// The notes, each with the number of changes of the disk before it.
    pub fn notes(&self) -> Vec<(usize, Note)> {
        self.notes.lock().unwrap().clone()
    }

    /// Says who may use the disk from now on.
    pub fn give_turn(&self, turn: Turn) {
        *self.turn.0.lock().unwrap() = turn;
        self.turn.1.notify_all();
    }

    /// Waits for the calling thread's turn.
    fn enter(&self) {
        let class = Class::of_this_thread();
        if class == Class::History {
            return;
        }
        let may = |turn: &Turn| *turn == Turn::All || (*turn == Turn::Log && class == Class::Log);
        let mut turn: MutexGuard<'_, Turn> = self.turn.0.lock().unwrap();
        while !may(&turn) {
            turn = self.turn.1.wait(turn).unwrap();
        }
    }
}

/// The disk's engine, where whoever opens, renames or makes a queue waits for his turn. All work on a disk begins with
/// one of these.
struct InTurn {
    io: Io,
    lab: Lab,
}

impl Engine for InTurn {
    fn info(&self) -> EngineInfo {
        self.io.info()
    }
    fn open(&self, path: &Path, how: &OpenHow) -> Result<File> {
        self.lab.enter();
        self.io.open(path, how)
    }
    fn metadata(&self, path: &Path) -> Result<Option<Metadata>> {
        self.lab.enter();
        self.io.metadata(path)
    }
    fn read_dir(&self, path: &Path) -> Result<Vec<DirEntry>> {
        self.io.read_dir(path)
    }
    fn create_dir_all(&self, path: &Path) -> Result<()> {
        self.io.create_dir_all(path)
    }
    fn remove_file(&self, path: &Path) -> Result<()> {
        self.lab.enter();
        self.io.remove_file(path)
    }
    fn remove_dir(&self, path: &Path) -> Result<()> {
        self.io.remove_dir(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.lab.enter();
        self.io.rename(from, to)
    }
    fn hard_link(&self, from: &Path, to: &Path) -> Result<()> {
        self.io.hard_link(from, to)
    }
    fn sync_dir(&self, path: &Path) -> Result<()> {
        // No turn is waited for: the store holds its lock of the directory, for which whoever has the turn may wait.
        self.io.sync_dir(path)
    }
    fn lock_file(&self, path: &Path) -> Result<FileLock> {
        self.io.lock_file(path)
    }
    fn queue(&self, depth: u32) -> Result<Box<dyn RawQueue>> {
        self.lab.enter();
        Ok(Box::new(PlainQueue(self.io.queue(depth)?)))
    }
    fn run(&self, ops: Vec<Op>) -> Vec<Done> {
        self.lab.enter();
        self.io.run(ops)
    }
    fn run_with(&self, ops: &mut dyn Iterator<Item = Op>, each: &mut dyn FnMut(Done)) {
        self.lab.enter();
        self.io.run_with(ops, each);
    }
}

/// The disk's queue as it is.
struct PlainQueue(ringdb::engineswap::Queue);

impl RawQueue for PlainQueue {
    fn push(&mut self, op: Op) -> std::result::Result<(), Op> {
        self.0.push(op)
    }
    fn submit(&mut self) -> Result<()> {
        self.0.submit()
    }
    fn wait(&mut self, min: usize) -> Result<()> {
        self.0.wait(min)
    }
    fn pop(&mut self) -> Option<Done> {
        self.0.pop()
    }
    fn in_flight(&self) -> usize {
        self.0.in_flight()
    }
    fn cancel(&mut self, user: u64) -> Result<usize> {
        self.0.cancel(user)
    }
    fn end_chain(&mut self) {
        self.0.end_chain();
    }
}
