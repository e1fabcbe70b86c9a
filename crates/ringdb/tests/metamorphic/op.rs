//! Operations, and the text that they are kept as: a line each, readable, with values by length and seed.
//!
//! Every list of operations means something: what names a keyspace, snapshot or iterator that is not there does
//! nothing. So any operation can be left out of a list.

use std::fmt::{self, Display, Write};
use std::ops::Bound;

use ringdb::Durability;

/// Keyspaces by number; the first is the default one.
pub const KEYSPACES: [&str; 4] = ["default", "users", "orders", "x"];
/// What merges into a key do, in all keyspaces: the value, this, the operand.
pub const SEPARATOR: &str = "+";
/// Snapshots and iterators that can be held at once, each.
pub const SLOTS: usize = 4;

pub type Key = Vec<u8>;

/// A value by its length and what its bytes come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Val {
    pub len: u32,
    pub seed: u32,
}

impl Val {
    pub fn bytes(self) -> Vec<u8> {
        let mut v = vec![self.seed as u8; self.len as usize];
        let mut x = self.seed;
        // Compressible, but not all the same.
        for b in v.iter_mut().step_by(5) {
            x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            *b = (x >> 24) as u8;
        }
        v
    }
}

/// A put, a merge or a delete (no value) of a key in a keyspace, or the deletion of a range of keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    pub keyspace: usize,
    /// Empty if it is a range.
    pub key: Key,
    pub value: Option<Val>,
    /// The value is an operand.
    pub merge: bool,
    /// It expires after so many milliseconds.
    pub life: Option<u32>,
    pub range: Option<Limits>,
}

/// A keyspace, now or as a snapshot sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View {
    pub keyspace: usize,
    pub snapshot: Option<usize>,
}

/// From which end pairs are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    Forward,
    Backward,
    /// From both by turns, which a generator of this seed decides.
    Mixed(u32),
}

pub type Limits = (Bound<Key>, Bound<Key>);

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    Put(Item),
    Batch {
        durability: Option<Durability>,
        items: Vec<Item>,
    },
    /// Puts that are ingested, sorted, a keyspace at a time.
    Ingest(Vec<Item>),
    Get {
        view: View,
        key: Key,
    },
    MultiGet {
        view: View,
        keys: Vec<Key>,
    },
    Scan {
        view: View,
        limits: Limits,
        how: How,
        count: usize,
    },
    Prefix {
        view: View,
        prefix: Key,
        how: How,
        count: usize,
    },
    Snapshot(usize),
    Release(usize),
    Iter {
        slot: usize,
        view: View,
        limits: Limits,
    },
    Step {
        slot: usize,
        how: How,
        count: usize,
    },
    DropIter(usize),
    Create(usize),
    DropKeyspace(usize),
    Flush,
    Sync,
    Compact {
        keyspace: usize,
        limits: Limits,
    },
    WaitIdle,
    /// So many milliseconds of the wall clock pass; iterators end.
    Pass(u32),
    Verify,
    Checkpoint,
    ReadOnly,
    /// Closed first (which flushes), or only dropped.
    Reopen {
        close: bool,
    },
}

struct Quoted<'a>(&'a [u8]);

impl Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for b in self.0 {
            match b {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b':' | b'.' | b'-' | b'_' => {
                    f.write_char(*b as char)?;
                }
                b => write!(f, "\\{b:02x}")?,
            }
        }
        f.write_char('"')
    }
}

impl Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, key) = (KEYSPACES[self.keyspace], Quoted(&self.key));
        if let Some(limits) = &self.range {
            return write!(f, "delete_range {name} {}", Bounds(limits));
        }
        let word = if self.merge { "merge" } else { "put" };
        match self.value {
            Some(v) => {
                write!(f, "{word} {name} {key} {}:{}", v.len, v.seed)?;
                self.life.map_or(Ok(()), |life| write!(f, ":{life}"))
            }
            None => write!(f, "delete {name} {key}"),
        }
    }
}

impl Display for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(KEYSPACES[self.keyspace])?;
        self.snapshot.map_or(Ok(()), |s| write!(f, "@{s}"))
    }
}

impl Display for How {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            How::Forward => f.write_str("forward"),
            How::Backward => f.write_str("backward"),
            How::Mixed(seed) => write!(f, "mixed:{seed}"),
        }
    }
}

struct Bounds<'a>(&'a Limits);

impl Display for Bounds<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, b) in [&self.0.0, &self.0.1].into_iter().enumerate() {
            if i > 0 {
                f.write_char(' ')?;
            }
            match b {
                Bound::Included(k) => write!(f, "with:{}", Quoted(k))?,
                Bound::Excluded(k) => write!(f, "without:{}", Quoted(k))?,
                Bound::Unbounded => f.write_str("..")?,
            }
        }
        Ok(())
    }
}

fn level(d: Option<Durability>) -> &'static str {
    match d {
        None => "usual",
        Some(Durability::None) => "none",
        Some(Durability::Process) => "process",
        Some(Durability::Sync) => "sync",
    }
}

impl Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Op::Put(item) => item.fmt(f),
            Op::Batch { durability, items } => {
                write!(f, "batch {}", level(*durability))?;
                items.iter().try_for_each(|i| write!(f, " {i}"))
            }
            Op::Ingest(items) => {
                f.write_str("ingest")?;
                items.iter().try_for_each(|i| write!(f, " {i}"))
            }
            Op::Get { view, key } => write!(f, "get {view} {}", Quoted(key)),
            Op::MultiGet { view, keys } => {
                write!(f, "multi_get {view}")?;
                keys.iter().try_for_each(|k| write!(f, " {}", Quoted(k)))
            }
            Op::Scan { view, limits, how, count } => {
                write!(f, "scan {view} {} {how} {count}", Bounds(limits))
            }
            Op::Prefix { view, prefix, how, count } => {
                write!(f, "prefix {view} {} {how} {count}", Quoted(prefix))
            }
            Op::Snapshot(n) => write!(f, "snapshot {n}"),
            Op::Release(n) => write!(f, "release {n}"),
            Op::Iter { slot, view, limits } => write!(f, "iter {slot} {view} {}", Bounds(limits)),
            Op::Step { slot, how, count } => write!(f, "step {slot} {how} {count}"),
            Op::DropIter(n) => write!(f, "drop_iter {n}"),
            Op::Create(k) => write!(f, "create {}", KEYSPACES[*k]),
            Op::DropKeyspace(k) => write!(f, "drop_keyspace {}", KEYSPACES[*k]),
            Op::Flush => f.write_str("flush"),
            Op::Sync => f.write_str("sync"),
            Op::Compact { keyspace, limits } => {
                write!(f, "compact {} {}", KEYSPACES[*keyspace], Bounds(limits))
            }
            Op::WaitIdle => f.write_str("wait_idle"),
            Op::Pass(millis) => write!(f, "pass {millis}"),
            Op::Verify => f.write_str("verify"),
            Op::Checkpoint => f.write_str("checkpoint"),
            Op::ReadOnly => f.write_str("read_only"),
            Op::Reopen { close: true } => f.write_str("reopen close"),
            Op::Reopen { close: false } => f.write_str("reopen drop"),
        }
    }
}

/// The words of a line, taken one by one; what is wrong is said with the line.
struct Words<'a> {
    line: &'a str,
    words: std::iter::Peekable<std::str::SplitWhitespace<'a>>,
}

impl<'a> Words<'a> {
    fn next(&mut self) -> Result<&'a str, String> {
        self.words.next().ok_or_else(|| format!("'{}' ends early", self.line))
    }

    fn wrong(&self, what: &str) -> String {
        format!("'{}': what is '{what}'?", self.line)
    }

    fn number<N: std::str::FromStr>(&mut self) -> Result<N, String> {
        let word = self.next()?;
        word.parse().map_err(|_| self.wrong(word))
    }

    fn slot(&mut self) -> Result<usize, String> {
        self.number().and_then(|n| if n < SLOTS { Ok(n) } else { Err(self.wrong("such a slot")) })
    }

    fn keyspace_of(&self, name: &str) -> Result<usize, String> {
        KEYSPACES.iter().position(|k| *k == name).ok_or_else(|| self.wrong(name))
    }

    fn keyspace(&mut self) -> Result<usize, String> {
        let name = self.next()?;
        self.keyspace_of(name)
    }

    fn view(&mut self) -> Result<View, String> {
        let word = self.next()?;
        let (name, snapshot) = match word.split_once('@') {
            Some((name, slot)) => {
                (name, Some(slot.parse().ok().filter(|n| *n < SLOTS).ok_or_else(|| self.wrong(word))?))
            }
            None => (word, None),
        };
        Ok(View { keyspace: self.keyspace_of(name)?, snapshot })
    }

    fn unquote(&self, word: &str) -> Result<Key, String> {
        let inner =
            word.strip_prefix('"').and_then(|w| w.strip_suffix('"')).ok_or_else(|| self.wrong(word))?;
        let (mut key, mut rest) = (Vec::new(), inner);
        while let Some(c) = rest.chars().next() {
            if c == '\\' {
                let byte = rest.get(1..3).and_then(|h| u8::from_str_radix(h, 16).ok());
                key.push(byte.ok_or_else(|| self.wrong(word))?);
                rest = &rest[3..];
            } else {
                key.extend_from_slice(&rest.as_bytes()[..c.len_utf8()]);
                rest = &rest[c.len_utf8()..];
            }
        }
        Ok(key)
    }

    fn key(&mut self) -> Result<Key, String> {
        let word = self.next()?;
        self.unquote(word)
    }

    fn bound(&mut self) -> Result<Bound<Key>, String> {
        match self.next()? {
            ".." => Ok(Bound::Unbounded),
            w => match w.split_once(':') {
                Some(("with", k)) => Ok(Bound::Included(self.unquote(k)?)),
                Some(("without", k)) => Ok(Bound::Excluded(self.unquote(k)?)),
                _ => Err(self.wrong(w)),
            },
        }
    }

    fn limits(&mut self) -> Result<Limits, String> {
        Ok((self.bound()?, self.bound()?))
    }

    fn how(&mut self) -> Result<How, String> {
        match self.next()? {
            "forward" => Ok(How::Forward),
            "backward" => Ok(How::Backward),
            w => match w.strip_prefix("mixed:").and_then(|n| n.parse().ok()) {
                Some(seed) => Ok(How::Mixed(seed)),
                None => Err(self.wrong(w)),
            },
        }
    }

    fn item(&mut self, put: bool) -> Result<Item, String> {
        let (keyspace, key) = (self.keyspace()?, self.key()?);
        let mut life = None;
        let value = if put {
            let mut word = self.next()?;
            if let Some((rest, millis)) = word.rsplit_once(':').filter(|(rest, _)| rest.contains(':')) {
                life = Some(millis.parse().map_err(|_| self.wrong(word))?);
                word = rest;
            }
            let parsed = word.split_once(':').and_then(|(l, s)| Some((l.parse().ok()?, s.parse().ok()?)));
            let (len, seed) = parsed.ok_or_else(|| self.wrong(word))?;
            Some(Val { len, seed })
        } else {
            None
        };
        Ok(Item { keyspace, key, value, merge: false, life, range: None })
    }

    fn pairs(&mut self) -> Result<Vec<Item>, String> {
        let mut items = Vec::new();
        while let Some(word) = self.words.next() {
            items.push(if word == "put" { self.item(true)? } else { return Err(self.wrong(word)) });
        }
        Ok(items)
    }

    fn range(&mut self) -> Result<Item, String> {
        let (keyspace, range) = (self.keyspace()?, Some(self.limits()?));
        Ok(Item { keyspace, key: Key::new(), value: None, merge: false, life: None, range })
    }

    fn operand(&mut self) -> Result<Item, String> {
        let item = self.item(true)?;
        match item.life {
            Some(_) => Err("what is merged does not expire".into()),
            None => Ok(Item { merge: true, ..item }),
        }
    }
}

/// The operation of a line.
pub fn parse(line: &str) -> Result<Op, String> {
    let mut w = Words { line, words: line.split_whitespace().peekable() };
    let op = match w.next()? {
        "put" => Op::Put(w.item(true)?),
        "merge" => Op::Put(w.operand()?),
        "delete" => Op::Put(w.item(false)?),
        "delete_range" => Op::Put(w.range()?),
        "batch" => {
            let durability = match w.next()? {
                "usual" => None,
                "none" => Some(Durability::None),
                "process" => Some(Durability::Process),
                "sync" => Some(Durability::Sync),
                other => return Err(w.wrong(other)),
            };
            let mut items = Vec::new();
            while let Some(word) = w.words.next() {
                items.push(match word {
                    "put" => w.item(true)?,
                    "merge" => w.operand()?,
                    "delete" => w.item(false)?,
                    "delete_range" => w.range()?,
                    other => return Err(w.wrong(other)),
                });
            }
            Op::Batch { durability, items }
        }
        "ingest" => Op::Ingest(w.pairs()?),
        "get" => Op::Get { view: w.view()?, key: w.key()? },
        "multi_get" => {
            let (view, mut keys) = (w.view()?, Vec::new());
            while w.words.peek().is_some() {
                keys.push(w.key()?);
            }
            Op::MultiGet { view, keys }
        }
        "scan" => Op::Scan { view: w.view()?, limits: w.limits()?, how: w.how()?, count: w.number()? },
        "prefix" => Op::Prefix { view: w.view()?, prefix: w.key()?, how: w.how()?, count: w.number()? },
        "snapshot" => Op::Snapshot(w.slot()?),
        "release" => Op::Release(w.slot()?),
        "iter" => Op::Iter { slot: w.slot()?, view: w.view()?, limits: w.limits()? },
        "step" => Op::Step { slot: w.slot()?, how: w.how()?, count: w.number()? },
        "drop_iter" => Op::DropIter(w.slot()?),
        "create" => Op::Create(w.keyspace()?),
        "drop_keyspace" => Op::DropKeyspace(w.keyspace()?),
        "flush" => Op::Flush,
        "sync" => Op::Sync,
        "compact" => Op::Compact { keyspace: w.keyspace()?, limits: w.limits()? },
        "wait_idle" => Op::WaitIdle,
        "pass" => Op::Pass(w.number()?),
        "verify" => Op::Verify,
        "checkpoint" => Op::Checkpoint,
        "read_only" => Op::ReadOnly,
        "reopen" => match w.next()? {
            "close" => Op::Reopen { close: true },
            "drop" => Op::Reopen { close: false },
            other => return Err(w.wrong(other)),
        },
        other => return Err(w.wrong(other)),
    };
    match w.words.next() {
        None => Ok(op),
        Some(more) => Err(w.wrong(more)),
    }
}
