//! A real store as the subject of operations.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use ringdb::engineswap::Io;
use ringdb::{
    Db, Durability, Env, Iter, Join, Keyspace, KeyspaceOptions, ReadOptions, Snapshot, SystemEnv,
    Transaction, Value, WriteBatch, WriteOptions,
};

use crate::calls::{Calls, Pending, Reader, on};
use crate::op::{Item, KEYSPACES, Op, SLOTS, View};
use crate::settings::{Settings, operator, own};
use crate::subject::{DONE, NOTHING, Subject, joined, show, show_pairs, take};

/// The machine, but for the wall clock.
struct Clock(AtomicU64, Arc<dyn Env>);

impl Env for Clock {
    fn now(&self) -> Duration {
        self.1.now()
    }
    fn sleep(&self, d: Duration) {
        self.1.sleep(d);
    }
    fn spawn(&self, name: &str, background: bool, f: Box<dyn FnOnce() + Send>) -> std::io::Result<Join> {
        self.1.spawn(name, background, f)
    }
    fn random(&self) -> u64 {
        self.1.random()
    }
    fn wall_clock(&self) -> Duration {
        Duration::from_millis(self.0.load(Relaxed))
    }
}

pub struct Store {
    settings: Settings,
    /// One for all openings.
    clock: Arc<Clock>,
    /// One for all openings: a disk in memory is gone with its engine.
    io: Io,
    dir: PathBuf,
    db: Option<Db>,
    keyspaces: [Option<Keyspace>; KEYSPACES.len()],
    snapshots: [Option<Snapshot>; SLOTS],
    iters: [Option<(usize, Iter)>; SLOTS],
    /// There were writes that are lost if the store is only dropped.
    unlogged: bool,
    /// Writes on their way: waited for before whatever is no write.
    pending: Pending,
    done: usize,
    checkpoints: usize,
}

type Pair = ringdb::Result<(Value, Value)>;

fn pairs(taken: Vec<Pair>) -> String {
    let pairs: Vec<(Value, Value)> = taken.into_iter().map(|p| p.expect("a pair")).collect();
    show_pairs(pairs.iter().map(|(k, v)| (&k[..], &v[..])))
}

fn all_of(db: &Db) -> String {
    let mut out = String::new();
    for (i, name) in KEYSPACES.iter().enumerate() {
        let there = db.existing_keyspace(name).expect("keyspace");
        if let Some(k) = there {
            let from_db = if i == 0 { pairs(db.iter().collect()) } else { pairs(k.iter().collect()) };
            let _ = write!(out, "[{name} {from_db}]");
        }
    }
    out
}

impl Store {
    pub fn new(settings: &Settings, io: &Io, dir: &Path) -> Store {
        let mut s = Store {
            settings: settings.clone(),
            clock: Arc::new(Clock(AtomicU64::new(0), SystemEnv::shared())),
            io: io.clone(),
            dir: dir.into(),
            db: None,
            keyspaces: Default::default(),
            snapshots: [const { None }; SLOTS],
            iters: [const { None }; SLOTS],
            unlogged: false,
            pending: Pending::default(),
            done: 0,
            checkpoints: 0,
        };
        s.open();
        s
    }

    fn db(&self) -> &Db {
        self.db.as_ref().expect("open")
    }

    fn open_at(&self, dir: &Path) -> Db {
        Db::open_with_env(dir, self.settings.options(), self.io.clone(), self.clock.clone()).expect("open")
    }

    fn open(&mut self) {
        let db = self.open_at(&self.dir);
        for (slot, name) in self.keyspaces.iter_mut().zip(KEYSPACES) {
            *slot = db.existing_keyspace(name).expect("keyspace");
        }
        if let Some(default) = &self.keyspaces[0] {
            // The others have it from there, unless they have it of their own.
            default.alter(&KeyspaceOptions::default().with_merge_operator(operator())).expect("alter");
        }
        self.db = Some(db);
    }

    fn reopen(&mut self, close: bool) {
        if !close && self.unlogged {
            self.db().flush().expect("flush");
        }
        self.unlogged = false;
        self.iters = [const { None }; SLOTS];
        self.snapshots = [const { None }; SLOTS];
        self.keyspaces = Default::default();
        let db = self.db.take().expect("open");
        if close {
            db.close().expect("close");
        } else {
            drop(db);
        }
        self.open();
    }

    /// What the settings add to the list.
    fn extra(&mut self, op: &Op) {
        self.done += 1;
        if !matches!(op, Op::Put(_) | Op::Batch { .. } | Op::Sync) {
            self.pending.settle();
        }
        let due = |every: usize| every > 0 && self.done.is_multiple_of(every);
        if due(self.settings.flush_every) {
            self.db().flush().expect("flush");
        }
        if due(self.settings.compact_every) {
            self.db().compact_range(..).expect("compact");
        }
        if due(self.settings.alter_every) {
            let n = self.done / self.settings.alter_every;
            if let Some(k) = &self.keyspaces[n % KEYSPACES.len()] {
                k.alter(&own(n)).expect("alter");
                let now = k.options();
                assert_eq!(now, own(n), "settings were not taken");
            }
        }
        let held = self.snapshots.iter().any(Option::is_some) || self.iters.iter().any(Option::is_some);
        if due(self.settings.reopen_every) && !held {
            self.pending.settle();
            self.reopen(self.done.is_multiple_of(2));
        }
    }

    fn make(&self, k: usize) -> Keyspace {
        let made = match self.settings.alter_every {
            0 => self.db().keyspace(KEYSPACES[k]),
            _ => self.db().keyspace_with(KEYSPACES[k], &own(k)),
        };
        made.expect("keyspace")
    }

    fn reader(&self, view: View) -> Option<Reader<'_>> {
        let keyspace = self.keyspaces[view.keyspace].as_ref()?;
        match view.snapshot {
            None => Some(Reader::Now(keyspace)),
            Some(slot) => Some(Reader::Then(self.snapshots[slot].as_ref()?.keyspace(keyspace), keyspace)),
        }
    }

    fn options(&self) -> ReadOptions {
        ReadOptions::default().fill_cache(self.settings.fill_cache)
    }

    fn put(&mut self, item: &Item) {
        if self.settings.calls == Calls::Futures {
            return self.write(None, std::slice::from_ref(item));
        }
        let Some(k) = &self.keyspaces[item.keyspace] else { return };
        let value = item.value.map(|v| v.bytes());
        if let Some(limits) = &item.range {
            let all = matches!(limits, (Bound::Unbounded, Bound::Unbounded));
            let deleted = match (item.keyspace, all) {
                (0, true) => self.db().clear(),
                (0, false) => self.db().delete_range(limits.clone()),
                (_, true) => k.clear(),
                (_, false) => k.delete_range(limits.clone()),
            };
            return deleted.expect("delete_range");
        }
        let life = item.life.map(|life| Duration::from_millis(life.into()));
        match (item.keyspace, value) {
            (0, Some(v)) if item.merge => self.db().merge(&item.key, v).expect("merge"),
            (_, Some(v)) if item.merge => k.merge(&item.key, v).expect("merge"),
            (0, Some(v)) if life.is_some() => {
                self.db().put_with_ttl(&item.key, v, life.unwrap_or_default()).expect("put_with_ttl");
            }
            (_, Some(v)) if life.is_some() => {
                k.put_with_ttl(&item.key, v, life.unwrap_or_default()).expect("put_with_ttl");
            }
            // The calls of `Db` itself, which are the default keyspace's.
            (0, Some(v)) => self.db().put(&item.key, v).expect("put"),
            (0, None) => self.db().delete(&item.key).expect("delete"),
            (_, Some(v)) => k.put(&item.key, v).expect("put"),
            (_, None) => k.delete(&item.key).expect("delete"),
        }
    }

    fn write(&mut self, durability: Option<Durability>, items: &[Item]) {
        let mut batch = WriteBatch::new();
        for item in items {
            let Some(k) = &self.keyspaces[item.keyspace] else { continue };
            if let Some(limits) = &item.range {
                batch.delete_range_in(k, limits.clone());
                continue;
            }
            match (item.value.map(|v| v.bytes()), item.life) {
                (Some(v), _) if item.merge => batch.merge_in(k, &item.key, v),
                (Some(v), Some(life)) => {
                    batch.put_with_ttl_in(k, &item.key, v, Duration::from_millis(life.into()));
                }
                (Some(v), None) => batch.put_in(k, &item.key, v),
                (None, _) => batch.delete_in(k, &item.key),
            }
        }
        let mut options = WriteOptions::default();
        if let Some(d) = durability {
            options = options.durability(d);
            self.unlogged |= d == Durability::None;
        }
        // Transactions delete no ranges, and what they put does not expire.
        let plain = |i: &Item| i.range.is_none() && i.life.is_none();
        if self.settings.calls == Calls::Looks && items.iter().all(plain) {
            return self.transact(&options, items);
        }
        let db = self.db.as_ref().expect("open");
        self.pending.write(db, self.settings.calls, batch, &options, self.done);
    }

    /// Writes a batch as a transaction, which sees what it has written.
    fn transact(&self, options: &WriteOptions, items: &[Item]) {
        let tx = self.db().transaction();
        let mut own: BTreeMap<(usize, &[u8]), Option<Vec<u8>>> = BTreeMap::new();
        for item in items {
            let Some(k) = &self.keyspaces[item.keyspace] else { continue };
            let before = k.get(&item.key).expect("get").map(Value::into_vec);
            let place = (item.keyspace, item.key.as_ref());
            if self.done.is_multiple_of(2) && !own.contains_key(&place) {
                assert_eq!(tx.get_in(k, &item.key).expect("get").as_deref(), before.as_deref());
            }
            let value = item.value.map(|v| v.bytes());
            let value = match item.merge {
                true => joined(own.get(&place).unwrap_or(&before).as_deref(), value.as_deref()),
                false => value,
            };
            write_item(&tx, k, item);
            if !self.done.is_multiple_of(3) {
                assert_eq!(tx.get_in(k, &item.key).expect("get").as_deref(), value.as_deref());
                let there: Vec<_> = tx.range_in(k, item.key.clone()..=item.key.clone()).collect();
                let there: Vec<_> = there.into_iter().map(|pair| pair.expect("pair").1.into_vec()).collect();
                assert_eq!(there, Vec::from_iter(value.clone()), "a range of one key");
            }
            assert_eq!(tx.contains_key_in(k, &item.key).expect("contains_key"), value.is_some());
            own.insert(place, value);
            let now = k.get(&item.key).expect("get").map(Value::into_vec);
            assert_eq!(now, before, "nobody sees it before the commit");
        }
        match self.done % 5 {
            // Nothing of this is left.
            0 => {
                drop(tx);
                let tx = self.db().transaction();
                self.fill(&tx, items);
                tx.commit_with(options).expect("commit");
            }
            _ => tx.commit_with(options).expect("commit"),
        }
    }

    fn fill(&self, tx: &Transaction, items: &[Item]) {
        for item in items {
            let Some(k) = &self.keyspaces[item.keyspace] else { continue };
            write_item(tx, k, item);
        }
    }

    fn pass(&mut self, millis: u32) -> String {
        // As of when they see what expires is theirs to choose.
        self.iters = [const { None }; SLOTS];
        self.clock.0.fetch_add(u64::from(millis), Relaxed);
        DONE.into()
    }

    fn flush(&mut self) -> String {
        self.db().flush().expect("flush");
        self.unlogged = false;
        DONE.into()
    }

    fn sync(&mut self) -> String {
        self.pending.sync(self.db.as_ref().expect("open"), self.settings.calls);
        // What was not logged is durable now, too: the store may be dropped.
        self.unlogged = false;
        DONE.into()
    }

    fn ingest(&mut self, items: &[Item]) -> String {
        for (number, keyspace) in self.keyspaces.iter().enumerate() {
            let Some(keyspace) = keyspace else { continue };
            let of_it = items.iter().filter(|i| i.keyspace == number);
            let pairs: BTreeMap<_, _> = of_it.filter_map(|i| Some((&i.key, i.value?.bytes()))).collect();
            let count = pairs.len() as u64;
            assert_eq!(keyspace.ingest(pairs).expect("ingest"), count);
            // Everything before it is durable now.
            self.unlogged &= count == 0;
        }
        DONE.into()
    }

    fn checkpoint(&mut self) -> String {
        self.checkpoints += 1;
        let dir = self.dir.with_extension(format!("checkpoint{}", self.checkpoints));
        self.db().checkpoint(&dir).expect("checkpoint");
        let copy = self.open_at(&dir);
        let all = all_of(&copy);
        drop(copy);
        for entry in self.io.read_dir(&dir).expect("list") {
            self.io.remove_file(&dir.join(entry.name)).expect("remove");
        }
        self.io.remove_dir(&dir).expect("remove");
        all
    }

    fn read_only(&mut self) -> String {
        // The writer's own memtable is read from its log; what is not logged is not there.
        let unlogged = std::mem::take(&mut self.unlogged);
        if unlogged {
            self.db().flush().expect("flush");
        }
        if self.settings.io.starts_with("sim") {
            // It would have a disk of its own.
            return all_of(self.db());
        }
        let options = self.settings.options();
        let copy = Db::open_read_only_with_env(&self.dir, options, self.io.clone(), self.clock.clone());
        let copy = copy.expect("open read-only");
        assert!(copy.put("k", "v").is_err(), "a read-only store is written");
        all_of(&copy)
    }
}

/// Writes an item into a keyspace in a transaction.
fn write_item(tx: &Transaction, k: &Keyspace, item: &Item) {
    match item.value.map(|v| v.bytes()) {
        Some(v) if item.merge => tx.merge_in(k, &item.key, v).expect("merge"),
        Some(v) => tx.put_in(k, &item.key, v).expect("put"),
        None => tx.delete_in(k, &item.key).expect("delete"),
    }
}

impl Subject for Store {
    fn run(&mut self, op: &Op) -> String {
        self.extra(op);
        match op {
            Op::Put(item) => {
                self.put(item);
                DONE.into()
            }
            Op::Batch { durability, items } => {
                self.write(*durability, items);
                DONE.into()
            }
            Op::Ingest(items) => self.ingest(items),
            Op::Get { view, key } => {
                let Some(r) = self.reader(*view) else { return NOTHING.into() };
                let got = r.get(self.settings.calls, key, &self.options(), self.done);
                got.map_or("none".into(), |v| show(&v))
            }
            Op::MultiGet { view, keys } => {
                let Some(r) = self.reader(*view) else { return NOTHING.into() };
                let got = r.multi_get(self.settings.calls, keys, &self.options(), self.done);
                assert_eq!(got.len(), keys.len());
                let found = got.into_iter().map(|v| v.map_or("none".into(), |v| show(&v)));
                found.collect::<Vec<_>>().join(" ")
            }
            Op::Scan { view, limits, how, count } => {
                let Some(r) = self.reader(*view) else { return NOTHING.into() };
                pairs(r.scan(self.settings.calls, limits, &self.options(), (*how, *count, self.done)))
            }
            Op::Prefix { view, prefix, how, count } => {
                let Some(r) = self.reader(*view) else { return NOTHING.into() };
                pairs(take(on!(r, x => x.prefix(prefix)), *how, *count))
            }
            Op::Snapshot(slot) => {
                self.snapshots[*slot] = Some(self.db().snapshot());
                DONE.into()
            }
            Op::Release(slot) => {
                self.snapshots[*slot] = None;
                DONE.into()
            }
            Op::Iter { slot, view, limits } => {
                let Some(r) = self.reader(*view) else { return NOTHING.into() };
                let iter = on!(r, x => x.range_with(limits.clone(), &self.options()));
                self.iters[*slot] = Some((view.keyspace, iter));
                DONE.into()
            }
            Op::Step { slot, how, count } => match &mut self.iters[*slot] {
                Some((_, iter)) => pairs(take(iter.by_ref(), *how, *count)),
                None => NOTHING.into(),
            },
            Op::DropIter(slot) => {
                self.iters[*slot] = None;
                DONE.into()
            }
            Op::Create(k) => {
                let keyspace = self.make(*k);
                assert_eq!(keyspace.name(), KEYSPACES[*k]);
                self.keyspaces[*k] = Some(keyspace);
                DONE.into()
            }
            Op::DropKeyspace(k) => {
                let there = self.db().drop_keyspace(KEYSPACES[*k]).expect("drop keyspace");
                if let Some(old) = self.keyspaces[*k].take() {
                    assert!(old.put("k", "v").is_err() && old.get("k").is_err(), "a dropped keyspace serves");
                    for i in &mut self.iters {
                        *i = i.take().filter(|(of, _)| of != k);
                    }
                }
                there.to_string()
            }
            Op::Flush => self.flush(),
            Op::Compact { keyspace, limits } => {
                if let Some(k) = &self.keyspaces[*keyspace] {
                    k.compact_range(limits.clone()).expect("compact");
                }
                DONE.into()
            }
            Op::Sync => self.sync(),
            Op::WaitIdle => {
                self.db().wait_idle().expect("wait_idle");
                DONE.into()
            }
            Op::Pass(millis) => self.pass(*millis),
            Op::Verify => {
                let r = self.db().verify().expect("verify");
                if r.is_ok() { "sound".into() } else { format!("{:?}", r.problems) }
            }
            Op::Checkpoint => self.checkpoint(),
            Op::ReadOnly => self.read_only(),
            Op::Reopen { close } => {
                self.reopen(*close);
                all_of(self.db())
            }
        }
    }
}
