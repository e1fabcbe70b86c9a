//! The inside of a simulated disk: files and names, the numbering of operations, faults, and the power switch.
//!
//! Everything happens under one lock. An operation has two halves: its effect, which readers see and a power cut may
//! lose, and for syncs and durable writes what makes it durable. The power may go out between them: that is the
//! moment which [`World::effect`] records and [`super::Disk::cut_at`] names.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::map::Mapped;
use super::names::Names;
use super::node::{Node, What};
use super::plan::{Action, Call, Plan};
use crate::os::Sys;
use crate::random::Random;

/// What a disk holds, durable or not. A copy costs a pointer for each file and directory.
#[derive(Clone)]
pub(crate) struct State {
    pub files: BTreeMap<u64, Arc<Node>>,
    pub names: Names,
    /// The number of the next change.
    pub at: u64,
}

/// The disk in the middle of one of its operations.
#[derive(Clone)]
pub struct Point {
    /// The operation's number.
    pub operation: u64,
    /// What it is.
    pub call: Call,
    /// Of which file or directory.
    pub path: PathBuf,
    pub(crate) state: State,
}

pub(crate) struct World {
    pub state: State,
    pub operations: u64,
    pub random: Random,
    pub plan: Plan,
    pub hits: BTreeMap<String, u64>,
    pub cut_at: Option<u64>,
    pub dead: bool,
    pub points: Option<Vec<Point>>,
    /// Of all operations so far.
    pub print: u64,
    /// Bytes that files may take.
    pub capacity: Option<u64>,
    /// Whether what is written goes to a new place.
    pub cow: bool,
    /// The store to mapped memory that had no space.
    pub bus_error: Option<String>,
    /// Nanoseconds of the disk's own time.
    pub clock: u64,
    /// The longest that an operation takes, in nanoseconds of that time.
    pub delay: u64,
    pub opened: BTreeMap<u64, u32>,
    pub locked: BTreeSet<u64>,
    pub mapped: BTreeMap<u64, Mapped>,
    /// The last name of each file.
    pub paths: BTreeMap<u64, PathBuf>,
}

/// What was decided about an operation when it began.
pub(crate) struct Verdict {
    number: u64,
    call: Call,
    path: PathBuf,
    cut: bool,
    /// What goes wrong with it, if the operation has to see to that.
    pub fault: Option<Action>,
    /// Nanoseconds that it takes.
    pub takes: u64,
}

impl Verdict {
    /// Fails if that is what happens to the operation.
    pub fn check(&self) -> Sys<()> {
        match self.fault {
            Some(Action::Errno(e)) => Err(e),
            _ => Ok(()),
        }
    }

    /// Whether durability is only claimed.
    pub fn lies(&self) -> bool {
        self.fault == Some(Action::Lie)
    }
}

impl World {
    pub fn new(state: State, seed: u64) -> World {
        World {
            state,
            operations: 0,
            random: Random::of(seed, 1),
            plan: Plan::none(),
            hits: BTreeMap::new(),
            cut_at: None,
            dead: false,
            points: None,
            print: 0,
            capacity: None,
            cow: false,
            bus_error: None,
            clock: 0,
            delay: 0,
            opened: BTreeMap::new(),
            locked: BTreeSet::new(),
            mapped: BTreeMap::new(),
            paths: BTreeMap::new(),
        }
    }

    /// The number of a new change.
    pub fn next_change(&mut self) -> u64 {
        self.state.at += 1;
        self.state.at
    }

    /// Takes bytes into the fingerprint: FNV-1a, by words.
    fn mark(&mut self, bytes: &[u8]) {
        for word in bytes.chunks(8) {
            let mut w = [0; 8];
            w[..word.len()].copy_from_slice(word);
            self.print = (self.print ^ u64::from_le_bytes(w)).wrapping_mul(0x0100_0000_01B3).rotate_left(29);
        }
    }

    /// Counts a fault.
    pub fn hit(&mut self, call: Call, what: &str) {
        *self.hits.entry(format!("{} {what}", call.name())).or_default() += 1;
    }

    /// An operation on a file begins.
    pub fn begin_on(&mut self, call: Call, node: u64) -> Sys<Verdict> {
        let path = self.paths.get(&node).cloned().unwrap_or_default();
        self.begin(call, &path, Some(node))
    }

    /// An operation begins. Fails if the power is out.
    pub fn begin(&mut self, call: Call, path: &Path, node: Option<u64>) -> Sys<Verdict> {
        self.pull_all();
        if self.dead {
            return Err(libc::EIO);
        }
        let number = self.operations;
        self.operations += 1;
        self.mark(&[call as u8]);
        self.mark(path.as_os_str().as_encoded_bytes());
        let mut verdict = Verdict {
            number,
            call,
            path: path.to_path_buf(),
            cut: self.cut_at == Some(number),
            fault: None,
            takes: if self.delay == 0 { 0 } else { self.random.below(self.delay + 1) },
        };
        if !self.plan.is_empty() {
            for action in self.plan.strike(call, path, &mut self.random) {
                self.hit(call, &action.name());
                match action {
                    Action::Delay(us) => verdict.takes += us * 1000,
                    Action::Full(bytes) => self.capacity = Some(self.used() + bytes),
                    Action::BitRot(bits) => {
                        if let Some(file) = node.and_then(|n| self.state.files.get_mut(&n)) {
                            Arc::make_mut(file).rot(bits, &mut self.random);
                            if let (Some(n), true) =
                                (node, node.is_some_and(|n| self.mapped.contains_key(&n)))
                            {
                                self.refresh_mapping(n);
                            }
                        }
                    }
                    Action::Cut => verdict.cut = true,
                    other => verdict.fault = Some(other),
                }
            }
        }
        self.clock += verdict.takes;
        Ok(verdict)
    }

    /// The effect of an operation is there, and it is not durable: the moment at which the power may go out.
    pub fn effect(&mut self, v: &Verdict) -> Sys<()> {
        if let Some(points) = &mut self.points {
            points.push(Point {
                operation: v.number,
                call: v.call,
                path: v.path.clone(),
                state: self.state.clone(),
            });
        }
        if v.cut {
            self.dead = true;
        }
        if self.dead { Err(libc::EIO) } else { Ok(()) }
    }

    /// The end of an operation that changes nothing.
    pub fn harmless(&mut self, v: &Verdict) -> Sys<()> {
        self.dead |= v.cut;
        if self.dead { Err(libc::EIO) } else { Ok(()) }
    }

    pub fn file(&self, node: u64) -> Sys<&Node> {
        self.state.files.get(&node).map(|f| &**f).ok_or(libc::ESTALE)
    }

    pub fn file_mut(&mut self, node: u64) -> Sys<&mut Node> {
        self.state.files.get_mut(&node).map(Arc::make_mut).ok_or(libc::ESTALE)
    }

    /// Changes a file, and the memory of those who have mapped it.
    pub fn change(&mut self, node: u64, what: What) -> Sys<u64> {
        let at = self.next_change();
        match &what {
            What::Write { offset, data } | What::Store { offset, data } => {
                self.mark(&offset.to_le_bytes());
                self.mark(data);
            }
            What::Zeros { offset, len } => self.mark(&[offset.to_le_bytes(), len.to_le_bytes()].concat()),
            What::SetLen(len) | What::Grow(len) => self.mark(&len.to_le_bytes()),
        }
        if let Some(m) = self.mapped.get(&node)
            && !matches!(what, What::Store { .. })
        {
            m.follow(&what);
        }
        self.file_mut(node)?.change(at, what);
        Ok(at)
    }

    /// Bytes that files take which somebody can reach now.
    fn used(&self) -> u64 {
        let mut nodes: BTreeSet<u64> = self.state.names.files().into_iter().map(|(_, n)| n).collect();
        nodes.extend(self.opened.keys());
        let files = nodes.iter().filter_map(|n| self.state.files.get(n));
        files.map(|f| f.room.next_multiple_of(4096)).sum()
    }

    /// Bytes in whole pages that are free.
    fn free(&self) -> u64 {
        self.capacity.map_or(u64::MAX, |c| c.saturating_sub(self.used()) / 4096 * 4096)
    }

    /// How far a file may grow that wants to reach `end`. A file takes the room up to its last byte.
    pub fn growth(&self, node: u64, end: u64) -> Sys<u64> {
        let mine = self.file(node)?.room.next_multiple_of(4096);
        Ok(end.min(mine.saturating_add(self.free())))
    }

    /// How far bytes that go from `offset` to `end` may be written. With copy on write each page needs another one,
    /// which is not given back before the write has ended.
    pub fn room(&self, node: u64, offset: u64, end: u64) -> Sys<u64> {
        let grown = self.growth(node, end)?;
        if self.cow && self.capacity.is_some() {
            return Ok(grown.min((offset / 4096 * 4096).saturating_add(self.free())));
        }
        Ok(grown)
    }

    /// Forgets a file that nobody can reach any more.
    pub fn forget(&mut self, node: u64) {
        let used = self.opened.contains_key(&node) || self.mapped.contains_key(&node);
        if !used && !self.state.names.is_named(node) {
            self.state.files.remove(&node);
            self.paths.remove(&node);
        }
    }

    /// Forgets all such files.
    pub fn forget_all(&mut self) {
        let unnamed: Vec<u64> =
            self.state.files.keys().filter(|n| !self.opened.contains_key(n)).copied().collect();
        unnamed.into_iter().for_each(|n| self.forget(n));
    }
}

impl World {
    /// Bytes were stored to mapped memory: an operation whose number is `number`.
    pub fn stored(&mut self, number: u64, path: PathBuf) {
        self.operations += 1;
        let mut v = Verdict {
            number,
            call: Call::Store,
            path,
            cut: self.cut_at == Some(number),
            fault: None,
            takes: 0,
        };
        if !self.plan.is_empty()
            && self.plan.strike(Call::Store, &v.path, &mut self.random).contains(&Action::Cut)
        {
            self.hit(Call::Store, "cut");
            v.cut = true;
        }
        // Nobody waits for the answer; the next call notices.
        let _ = self.effect(&v);
    }
}
