//! Sequences of operations on a simulated disk with faults and power cuts, beside a model that knows which states are
//! possible: what was acknowledged is there, what failed may be, and a power cut leaves what the durability levels say.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use engineswap::sim::{Disk, Plan};
use ringdb::fuzzing::Input;
use ringdb::{
    CompactionFilter, Compression, Db, Durability, Env, FilterContext, FilterDecision, Join, Keyspace,
    KeyspaceOptions, Options, Result, SystemEnv, WriteBatch, WriteOptions,
};

/// Keyspace (0: the default one) and key to value.
type Map = BTreeMap<(u8, Vec<u8>), Vec<u8>>;
type State = Rc<BTreeMap<(u8, Vec<u8>), Held>>;

/// What a key has.
#[derive(Clone, Debug, Default, PartialEq)]
struct Held {
    /// What was put, and when it expires.
    put: Option<(Vec<u8>, u64)>,
    /// What was merged since, which does not expire.
    merged: Option<Vec<u8>>,
}

impl Held {
    fn put(value: &[u8], at: u64) -> Held {
        Held { put: Some((value.to_vec(), at)), merged: None }
    }

    /// What there is at this time.
    fn at(&self, now: u64) -> Option<Vec<u8>> {
        let put = self.put.as_ref().filter(|(_, at)| *at > now).map(|(value, _)| value.as_slice());
        let merged = self.merged.as_deref();
        (put.is_some() || merged.is_some())
            .then(|| [put.unwrap_or_default(), merged.unwrap_or_default()].concat())
    }
}

/// The machine, but for the wall clock, which stands still.
struct Clock(Arc<dyn Env>, AtomicU64);

impl Clock {
    fn millis(&self) -> u64 {
        self.1.load(Relaxed)
    }
}

impl Env for Clock {
    fn now(&self) -> Duration {
        self.0.now()
    }
    fn sleep(&self, d: Duration) {
        self.0.sleep(d);
    }
    fn spawn(&self, name: &str, background: bool, f: Box<dyn FnOnce() + Send>) -> std::io::Result<Join> {
        self.0.spawn(name, background, f)
    }
    fn random(&self) -> u64 {
        self.0.random()
    }
    fn wall_clock(&self) -> Duration {
        Duration::from_millis(self.millis())
    }
}

/// Whether compactions remove a value of the default keyspace, at no certain time: all reads here pass it over.
fn doomed(keyspace: u8, value: &[u8]) -> bool {
    keyspace == 0 && value.first().is_some_and(|b| b % 4 == 1)
}

/// What a read has shown, but for what is doomed.
fn shown(keyspace: u8, value: Option<ringdb::Value>) -> Option<Vec<u8>> {
    value.map(|v| v.into_vec()).filter(|v| !doomed(keyspace, v))
}

/// Removes what is doomed in the keyspace that has it.
struct Doomed;

impl CompactionFilter for Doomed {
    fn name(&self) -> &str {
        "doomed"
    }
    fn filter(&self, _: &FilterContext, _: &[u8], value: &[u8]) -> FilterDecision {
        if doomed(0, value) { FilterDecision::Remove } else { FilterDecision::Keep }
    }
}

/// What is written.
#[derive(Clone, Debug)]
enum Item {
    /// A key of a keyspace is set, or deleted (`None`).
    Set(u8, Vec<u8>, Option<Vec<u8>>),
    /// An operand is merged into a key of the other keyspace, which appends it.
    Merge(Vec<u8>, Vec<u8>),
    /// A key of a keyspace is set for so many milliseconds.
    Expiring(u8, Vec<u8>, Vec<u8>, u8),
    /// The keys of a keyspace from the first on and before the second (`None`: all that follow) are deleted.
    DeleteRange(u8, Vec<u8>, Option<Vec<u8>>),
}

const DIR: &str = "/db";
const MAX_OPS: usize = 80;
/// Beyond so many possible states a run ends: nothing would be checked.
const MAX_STATES: usize = 200;

const CALLS: [&str; 14] = [
    "read",
    "write",
    "fsync",
    "fdatasync",
    "sync_dir",
    "open",
    "create",
    "rename",
    "unlink",
    "truncate",
    "allocate",
    "submit",
    "wait",
    "map",
];
const NAMES: [&str; 6] = ["", "*.sst", "*.log", "MANIFEST-*", "CURRENT*", "0*"];
/// Faults that spoil no data that was acknowledged.
const ACTIONS: [&str; 9] =
    ["EIO", "ENOSPC", "EINTR", "ENOMEM", "EAGAIN", "short 100", "torn", "delay 50", "ring"];

fn rule(input: &mut Input<'_>) -> Option<Plan> {
    let (call, name) = (CALLS[input.u8() as usize % CALLS.len()], NAMES[input.u8() as usize % NAMES.len()]);
    let n = 1 + input.u8() % 40;
    let when = match input.u8() & 3 {
        0 | 1 => format!("nth {n}"),
        2 => format!("every {n}"),
        _ => format!("after {n}"),
    };
    let action = ACTIONS[input.u8() as usize % ACTIONS.len()];
    let name = if name.is_empty() || matches!(call, "submit" | "wait") {
        String::new()
    } else {
        format!("\"{name}\"")
    };
    Plan::parse(&format!("on {call} {name} {when} {action}")).ok()
}

fn range<'a>(from: &'a [u8], to: &'a Option<Vec<u8>>) -> (Bound<&'a [u8]>, Bound<&'a [u8]>) {
    (Bound::Included(from), to.as_deref().map_or(Bound::Unbounded, Bound::Excluded))
}

fn with(state: &State, items: &[Item], now: u64) -> State {
    let mut map = BTreeMap::clone(state);
    for item in items {
        match item {
            Item::Set(keyspace, key, Some(v)) => {
                map.insert((*keyspace, key.clone()), Held::put(v, u64::MAX));
            }
            Item::Expiring(keyspace, key, v, life) => {
                map.insert((*keyspace, key.clone()), Held::put(v, now + u64::from(*life)));
            }
            Item::Set(keyspace, key, None) => drop(map.remove(&(*keyspace, key.clone()))),
            Item::Merge(key, operand) => {
                let held = map.entry((1, key.clone())).or_default();
                held.merged.get_or_insert_default().extend_from_slice(operand);
            }
            Item::DeleteRange(keyspace, from, to) => {
                map.retain(|(k, key), _| {
                    k != keyspace || key < from || to.as_ref().is_some_and(|to| key >= to)
                });
            }
        }
    }
    Rc::new(map)
}

fn add(to: &mut Vec<State>, more: &[State]) {
    for s in more {
        if !to.contains(s) {
            to.push(s.clone());
        }
    }
}

/// What is there at this time, but for what is doomed.
fn visible(state: &State, now: u64) -> Map {
    let there = state.iter().filter_map(|(k, held)| Some((k.clone(), held.at(now)?)));
    there.filter(|((keyspace, _), v)| !doomed(*keyspace, v)).collect()
}

fn after(states: &[State], items: &[Item], now: u64) -> Vec<State> {
    let mut out = Vec::new();
    states.iter().for_each(|s| add(&mut out, &[with(s, items, now)]));
    out
}

struct Run {
    disk: Disk,
    options: Options,
    db: Option<(Db, Keyspace)>,
    clock: Arc<Clock>,
    /// The states that reads may show; that the store may have when it is opened again; and after a power cut.
    seen: Vec<State>,
    kept: Vec<State>,
    cut: Vec<State>,
    /// Whether faults may happen now, and have been possible since the store was opened.
    faulty: bool,
    was_faulty: bool,
    /// A write has failed since the store was opened: later ones are refused.
    failed: bool,
}

/// Runs the operations that `data` describes.
pub fn sequence(data: &[u8]) {
    let mut input = Input::new(data);
    let mut run = Run::new(input.u8(), input.u8());
    run.open();
    for _ in 0..MAX_OPS {
        if input.is_empty() || run.kept.len() + run.cut.len() > MAX_STATES {
            break;
        }
        run.step(&mut input);
        if run.disk.is_cut() {
            run.power_cut(input.u8().into());
        }
    }
    run.end();
}

impl Run {
    fn new(seed: u8, how: u8) -> Run {
        let options = Options::default()
            .with_cache_bytes(1 << 20)
            .with_memtable_bytes(64 << 10)
            .with_background_threads(1)
            .with_durability(if how & 1 == 0 { Durability::Process } else { Durability::Sync })
            .with_compression(if how & 2 == 0 { Compression::None } else { Compression::Lz4 })
            .with_block_bytes(if how & 4 == 0 { 4096 } else { 16384 })
            .register_compaction_filter(Doomed);
        let empty = vec![Rc::new(BTreeMap::new())];
        Run {
            disk: Disk::new(seed.into()),
            options,
            db: None,
            clock: Arc::new(Clock(SystemEnv::shared(), AtomicU64::new(1))),
            seen: empty.clone(),
            kept: empty.clone(),
            cut: empty,
            faulty: false,
            was_faulty: false,
            failed: false,
        }
    }

    fn db(&self) -> &(Db, Keyspace) {
        self.db.as_ref().expect("open")
    }

    fn try_open(&self) -> Result<(Db, Keyspace)> {
        let db = Db::open_with_env(DIR, self.options.clone(), self.disk.io(), self.clock.clone())?;
        let filter = |name: &str| KeyspaceOptions::default().with_compaction_filter(name);
        db.keyspace("default")?.alter(&filter("doomed"))?;
        let keyspace = db.keyspace_with("other", &filter("").with_merge_operator("append"))?;
        Ok((db, keyspace))
    }

    /// Everything in the store.
    fn content(&self) -> Result<Map> {
        let (db, other) = self.db();
        let mut map = Map::new();
        for (i, iter) in [(0, db.iter()), (1, other.iter())] {
            for pair in iter {
                let (k, v) = pair?;
                if !doomed(i, &v) {
                    map.insert((i, k.into_vec()), v.into_vec());
                }
            }
        }
        Ok(map)
    }

    fn heal(&mut self) {
        self.disk.set_plan(Plan::none());
        self.faulty = false;
    }

    /// Opens the store, without faults if it does not open with them.
    fn open(&mut self) {
        self.failed = false;
        self.was_faulty = self.faulty;
        match self.try_open() {
            Ok(db) => self.db = Some(db),
            Err(_) if self.disk.is_cut() => self.power_cut(3),
            Err(e) if !self.faulty => panic!("it does not open: {e}"),
            Err(_) => {
                self.heal();
                self.open();
            }
        }
    }

    fn reopen(&mut self, close: bool) {
        if let Some((db, other)) = self.db.take() {
            drop(other);
            if close {
                match db.close() {
                    Ok(()) => self.cut = self.kept.clone(),
                    Err(e) => assert!(self.was_faulty || self.disk.is_cut(), "{e}"),
                }
            }
        }
        self.open();
        if self.disk.is_cut() {
            return;
        }
        self.settle("it was opened again", |run| run.kept.clone());
    }

    /// Reads everything, which must be one of the states that are possible now.
    fn settle(&mut self, when: &str, possible: impl Fn(&Run) -> Vec<State>) {
        let content = match self.content() {
            Ok(c) => c,
            Err(e) => {
                if self.disk.is_cut() {
                    return;
                }
                assert!(self.faulty, "when {when}: {e}");
                self.heal();
                match self.content() {
                    Ok(c) => c,
                    Err(_) if self.disk.is_cut() => return,
                    Err(e) => panic!("when {when}: {e}"),
                }
            }
        };
        let (possible, now) = (possible(self), self.clock.millis());
        let (is, _): (Vec<State>, Vec<State>) =
            possible.iter().cloned().partition(|s| visible(s, now) == content);
        assert!(!is.is_empty(), "when {when}, it holds\n{content:?}\nof {possible:?} at {now}");
        self.seen = is.clone();
        self.kept = is.clone();
        add(&mut self.cut, &is);
    }

    fn power_cut(&mut self, outcome: u64) {
        let disk = self.disk.crash(outcome);
        self.disk.cut();
        self.db = None;
        self.disk = disk;
        self.faulty = false;
        self.open();
        self.settle("the power was cut", |run| run.cut.clone());
        self.cut = self.kept.clone();
    }

    fn key(input: &mut Input<'_>) -> (u8, Vec<u8>) {
        let b = input.u8();
        let key = match b >> 1 & 15 {
            0 => vec![],
            n => vec![b'a' + n / 3; n as usize % 3 + 1],
        };
        (b & 1, key)
    }

    fn item(input: &mut Input<'_>) -> Item {
        let (keyspace, key) = Run::key(input);
        let b = input.u8();
        if b & 0x78 == 0x78 {
            let to = (b & 7 > 0).then(|| Run::key(input).1);
            return Item::DeleteRange(keyspace, key, to);
        }
        if b & 0x78 == 0x70 {
            return Item::Expiring(keyspace, key, vec![b; 90], 1 + (b & 7));
        }
        if b & 0x38 == 0x30 && keyspace == 1 {
            return Item::Merge(key, vec![b; usize::from(b & 7) * 11]);
        }
        let value = (b & 7 > 0).then(|| vec![b; 12 * usize::from(b) + usize::from(b & 7 == 7) * 3000]);
        Item::Set(keyspace, key, value)
    }

    fn write(&mut self, durability: Option<Durability>, items: &[Item]) {
        let (db, other) = self.db();
        let life = |life: u8| Duration::from_millis(life.into());
        let result = match (durability, items) {
            (None, [Item::Expiring(0, k, v, l)]) => db.put_with_ttl(k, v, life(*l)),
            (None, [Item::Expiring(_, k, v, l)]) => other.put_with_ttl(k, v, life(*l)),
            (None, [Item::Set(0, k, Some(v))]) => db.put(k, v),
            (None, [Item::Set(0, k, None)]) => db.delete(k),
            (None, [Item::Set(_, k, Some(v))]) => other.put(k, v),
            (None, [Item::Set(_, k, None)]) => other.delete(k),
            (None, [Item::Merge(k, v)]) => other.merge(k, v),
            (None, [Item::DeleteRange(0, from, to)]) => db.delete_range(range(from, to)),
            (None, [Item::DeleteRange(_, from, to)]) => other.delete_range(range(from, to)),
            _ => {
                let mut batch = WriteBatch::new();
                for item in items {
                    match item {
                        Item::Set(0, key, Some(v)) => batch.put(key, v),
                        Item::Set(0, key, None) => batch.delete(key),
                        Item::Set(_, key, Some(v)) => batch.put_in(other, key, v),
                        Item::Set(_, key, None) => batch.delete_in(other, key),
                        Item::Merge(key, v) => batch.merge_in(other, key, v),
                        Item::Expiring(0, key, v, l) => batch.put_with_ttl(key, v, life(*l)),
                        Item::Expiring(_, key, v, l) => batch.put_with_ttl_in(other, key, v, life(*l)),
                        Item::DeleteRange(0, from, to) => batch.delete_range(range(from, to)),
                        Item::DeleteRange(_, from, to) => batch.delete_range_in(other, range(from, to)),
                    }
                }
                let options = WriteOptions::default();
                db.write(batch, &durability.map_or(options, |d| options.durability(d)))
            }
        };
        let durable = durability == Some(Durability::Sync) || self.options.durability == Durability::Sync;
        self.written(result, durable, items);
    }

    /// Ingests what of these are puts into the keyspace of the first.
    fn ingest(&mut self, items: &[Item]) {
        let put = |item: &Item| match item {
            Item::Set(keyspace, key, Some(value)) => Some((*keyspace, key.clone(), value.clone())),
            _ => None,
        };
        let Some((keyspace, ..)) = items.iter().find_map(put) else { return };
        let puts = items.iter().filter_map(put).filter(|(of, ..)| *of == keyspace);
        let pairs: BTreeMap<Vec<u8>, Vec<u8>> = puts.map(|(_, k, v)| (k, v)).collect();
        let items: Vec<Item> =
            pairs.iter().map(|(k, v)| Item::Set(keyspace, k.clone(), Some(v.clone()))).collect();
        let (db, other) = self.db();
        let result = if keyspace == 0 { db.ingest(pairs) } else { other.ingest(pairs) };
        self.written(result.map(drop), true, &items);
    }

    fn written(&mut self, result: Result<()>, durable: bool, items: &[Item]) {
        let now = self.clock.millis();
        match result {
            Ok(()) => {
                assert!(!self.failed, "a write is taken after one has failed");
                self.seen = after(&self.seen, items, now);
                self.kept = after(&self.kept, items, now);
                match durable {
                    true => self.cut = self.kept.clone(),
                    false => add(&mut self.cut, &self.kept.clone()),
                }
            }
            Err(e) => {
                assert!(self.was_faulty || self.disk.is_cut(), "{e}");
                if !self.failed {
                    let (seen, kept) = (after(&self.seen, items, now), after(&self.kept, items, now));
                    add(&mut self.seen, &seen);
                    add(&mut self.kept, &kept);
                    add(&mut self.cut, &kept);
                }
                self.failed |= matches!(e, ringdb::Error::Stopped(_));
            }
        }
    }

    /// What a read has shown must be so in a state that is possible; others are ruled out.
    fn observe<T: std::fmt::Debug>(&mut self, got: Result<T>, holds: impl Fn(&Map, &T) -> bool) {
        match got {
            Ok(got) => {
                let (before, now) = (self.seen.clone(), self.clock.millis());
                self.seen.retain(|s| holds(&visible(s, now), &got));
                assert!(!self.seen.is_empty(), "a read shows {got:?}, of {before:?}");
            }
            Err(e) => assert!(self.faulty || self.disk.is_cut(), "{e}"),
        }
    }

    fn maintained(&mut self, what: Result<()>, durable: bool) {
        match what {
            Ok(()) if durable => self.cut = self.kept.clone(),
            Ok(()) => {}
            Err(e) => assert!(self.was_faulty || self.disk.is_cut(), "{e}"),
        }
    }

    fn step(&mut self, input: &mut Input<'_>) {
        match input.u8() % 21 {
            0..=4 => {
                let item = Run::item(input);
                self.write(None, &[item]);
            }
            5..=7 => {
                let b = input.u8();
                let items: Vec<Item> = (0..1 + (b >> 2 & 7)).map(|_| Run::item(input)).collect();
                if b >> 5 == 7 {
                    return self.ingest(&items);
                }
                let durability =
                    [None, Some(Durability::Process), Some(Durability::Sync), None][usize::from(b & 3)];
                self.write(durability, &items);
            }
            8 | 9 => {
                let key = Run::key(input);
                let (db, other) = self.db();
                let got = if key.0 == 0 { db.get(&key.1) } else { other.get(&key.1) };
                self.observe(got.map(|v| shown(key.0, v)), |m, v| m.get(&key) == v.as_ref());
            }
            10 => {
                let n = 1 + input.u8() % 12;
                let keys: Vec<Vec<u8>> = (0..n).map(|_| Run::key(input).1).collect();
                let got = self.db().0.multi_get(&keys);
                let got = got.map(|all| all.into_iter().map(|v| shown(0, v)).collect::<Vec<_>>());
                self.observe(got, |m, got| {
                    keys.iter().zip(got).all(|(k, v)| m.get(&(0, k.clone())) == v.as_ref())
                });
            }
            11 => {
                let (from, reverse) = (Run::key(input), input.u8() & 1 == 1);
                let (db, other) = self.db();
                let range = from.1.clone()..;
                let iter = if from.0 == 0 { db.range(range) } else { other.range(range) };
                let got: Result<Vec<_>> = if reverse { iter.rev().collect() } else { iter.collect() };
                let got = got.map(|mut all| {
                    if reverse {
                        all.reverse();
                    }
                    let pairs = all.into_iter().map(|(k, v)| (k.into_vec(), v.into_vec()));
                    pairs.filter(|(_, v)| !doomed(from.0, v)).collect::<Vec<_>>()
                });
                self.observe(got, |m, got| {
                    let want = m.range(from.clone()..).take_while(|((k, _), _)| *k == from.0);
                    want.map(|((_, k), v)| (k.clone(), v.clone())).eq(got.iter().cloned())
                });
            }
            12 => {
                let flushed = self.db().0.flush();
                self.maintained(flushed, true);
            }
            13 => {
                let compacted = self.db().0.compact_range(..);
                self.maintained(compacted, false);
            }
            14 | 15 => {
                if let Some(plan) = rule(input) {
                    self.disk.set_plan(plan);
                    (self.faulty, self.was_faulty) = (true, true);
                }
            }
            16 => self.heal(),
            17 => self.reopen(input.u8() & 1 == 0),
            18 => self.power_cut(input.u8().into()),
            19 => drop(self.clock.1.fetch_add(u64::from(input.u8() & 7), Relaxed)),
            _ => self.disk.cut_at(self.disk.operations() + u64::from(input.u8())),
        }
    }

    /// Without faults, everything is sound again.
    fn end(&mut self) {
        self.heal();
        self.reopen(false);
        if self.disk.is_cut() {
            self.power_cut(1);
        }
        let mut report = self.db().0.verify();
        if self.disk.is_cut() {
            // A cut that was set for later has come.
            self.power_cut(1);
            report = self.db().0.verify();
        }
        let report = report.expect("verify");
        assert!(report.is_ok(), "{:?}", report.problems);
        self.power_cut(2);
        assert!(Path::new(DIR).is_absolute() && self.db.is_some());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes, loses the power, and looks.
    fn after_faults(plan: &str, how: u8) {
        for outcome in 0..10 {
            let mut run = Run::new(1, how);
            run.open();
            run.disk.set_plan(Plan::parse(plan).expect("a plan"));
            (run.faulty, run.was_faulty) = (true, true);
            for i in 0..20 {
                run.write(Some(Durability::Sync), &[Item::Set(0, vec![b'k', i], Some(vec![i; 300]))]);
            }
            run.heal();
            run.power_cut(outcome);
            run.end();
        }
    }

    #[test]
    fn a_cut_may_come_at_the_end() {
        for n in (0..60).step_by(3) {
            let mut run = Run::new(n, 0);
            run.open();
            run.write(None, &[Item::Set(0, b"k".to_vec(), Some(vec![n; 3000]))]);
            run.disk.cut_at(run.disk.operations() + u64::from(n));
            run.end();
        }
    }

    #[test]
    fn faults_that_are_told_lose_nothing() {
        for plan in ["on fdatasync nth 2 EIO", "on write \"*.log\" nth 5 torn", "on any every 3 EINTR"] {
            after_faults(plan, 0);
            after_faults(plan, 1);
        }
    }

    #[test]
    #[should_panic(expected = "the power was cut")]
    fn a_disk_that_lies_is_noticed() {
        after_faults("on fdatasync lie", 0);
    }

    #[test]
    #[should_panic(expected = "the power was cut")]
    fn a_disk_that_lies_about_durable_writes_is_noticed() {
        after_faults("on write \"*.log\" lie", 1);
    }
}
