//! The commit queue over a fake log, memtable and readers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::time::Duration;

use super::group::GROUP_BYTES;
use super::*;
use crate::ErrorKind;

/// What has happened, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// A frame is in the log: appended, or durable. Its first number and its operations.
    Logged(Seq, u64),
    Synced(u64),
    Applied(Seq, u64),
    Published(Seq),
}

/// A log whose frames can be held on their way and made to fail, a memtable and readers.
pub(super) struct Fake {
    pipelined: bool,
    memtable_limit: u64,
    state: Mutex<FakeState>,
    changed: Condvar,
    random: AtomicU64,
}

#[derive(Default)]
pub(super) struct FakeState {
    events: Vec<Event>,
    /// By what each operation says.
    numbers: BTreeMap<u64, Seq>,
    pub visible: Seq,
    /// The numbers in each memtable.
    memtables: Vec<Vec<Seq>>,
    /// Frames that are reserved and not applied: first number and segment.
    on_their_way: BTreeMap<Seq, u64>,
    /// Frames, by their first operation, that stay on their way; that are refused a place; that the device fails.
    held: BTreeSet<u64>,
    refused: BTreeSet<u64>,
    pub failing: BTreeSet<u64>,
    /// Frames that have come to the device.
    begun: BTreeSet<u64>,
    next_turn: u64,
    failed_turn: Option<u64>,
    stopped: Option<String>,
}

pub(super) struct FakeWriter {
    tickets: u64,
    segment: u64,
    bytes: u64,
}

pub(super) struct FakeFrame {
    ticket: u64,
    first: Seq,
    payload: Vec<u8>,
}

pub(super) struct FakeTurn<'a>(&'a Fake, u64);

impl Drop for FakeTurn<'_> {
    fn drop(&mut self) {
        // What panics here has failed already.
        if let (false, Ok(mut s)) = (std::thread::panicking(), self.0.state.lock()) {
            assert_eq!(s.next_turn, self.1);
            s.next_turn += 1;
            self.0.changed.notify_all();
        }
    }
}

/// What the operations of a payload say.
fn ids(payload: &[u8]) -> Vec<u64> {
    let (mut ids, mut rest) = (Vec::new(), payload);
    while let Some((len, behind)) = rest.split_first_chunk::<8>() {
        let (op, behind) = behind.split_at(u64::from_le_bytes(*len) as usize);
        ids.push(u64::from_le_bytes(op[..8].try_into().unwrap()));
        rest = behind;
    }
    ids
}

impl Fake {
    fn new(pipelined: bool, memtable_limit: u64) -> Fake {
        let state = FakeState { memtables: vec![Vec::new()], ..FakeState::default() };
        Fake {
            pipelined,
            memtable_limit,
            state: Mutex::new(state),
            changed: Condvar::new(),
            random: AtomicU64::new(1),
        }
    }

    pub fn update<R>(&self, f: impl FnOnce(&mut FakeState) -> R) -> R {
        let r = f(&mut self.state.lock().unwrap());
        self.changed.notify_all();
        r
    }

    fn wait_until(&self, what: &str, done: impl Fn(&FakeState) -> bool) {
        let s = self.state.lock().unwrap();
        let (_s, timeout) = self.changed.wait_timeout_while(s, LONG, |s| !done(s)).unwrap();
        assert!(!timeout.timed_out(), "{what}");
    }

    /// Now and then lets another thread go first.
    fn dawdle(&self) {
        if self.random.fetch_add(1, Relaxed).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 62 == 0 {
            std::thread::yield_now();
        }
    }
}

impl CommitEnv for Fake {
    type Writer = FakeWriter;
    type Frame = FakeFrame;
    type Turn<'a> = FakeTurn<'a>;

    fn pipelined(&self) -> bool {
        self.pipelined
    }

    fn check_writable(&self) -> Result<()> {
        self.state.lock().unwrap().stopped.clone().map_or(Ok(()), |why| Err(Error::Stopped(why)))
    }

    fn failed(&self, e: Error) -> Error {
        if e.kind() != ErrorKind::Retry {
            self.update(|s| s.stopped.get_or_insert(e.to_string()).clone());
        }
        e
    }

    fn append(&self, _: &mut FakeWriter, first: Seq, parts: &[&[u8]]) -> Result<LogPos> {
        let ids = ids(&parts.concat());
        self.update(|s| {
            if s.refused.contains(&ids[0]) {
                return Err(no_space());
            }
            s.events.push(Event::Logged(first, ids.len() as u64));
            Ok(LogPos { segment: 1, offset: first })
        })
    }

    fn sync(&self, end: LogPos) -> Result<()> {
        self.update(|s| s.events.push(Event::Synced(end.offset)));
        Ok(())
    }

    fn reserve(&self, w: &mut FakeWriter, first: Seq, parts: &[&[u8]]) -> Result<FakeFrame> {
        let payload = parts.concat();
        self.update(|s| {
            if s.refused.contains(&ids(&payload)[0]) {
                return Err(no_space());
            }
            // Some segments are full.
            w.segment += u64::from(w.tickets.is_multiple_of(3));
            s.on_their_way.insert(first, w.segment);
            Ok(())
        })?;
        w.tickets += 1;
        Ok(FakeFrame { ticket: w.tickets - 1, first, payload })
    }

    fn write(&self, frame: FakeFrame) -> Result<FakeTurn<'_>> {
        let ids = ids(&frame.payload);
        self.dawdle();
        self.update(|s| s.begun.insert(ids[0]));
        self.wait_until("a frame was held for ever", |s| !s.held.contains(&ids[0]));
        self.update(|s| match s.failing.contains(&ids[0]) {
            true => s.failed_turn = Some(s.failed_turn.map_or(frame.ticket, |t| t.min(frame.ticket))),
            false => s.events.push(Event::Logged(frame.first, ids.len() as u64)),
        });
        self.dawdle();
        let failed = |s: &FakeState| s.failed_turn.is_some_and(|t| t <= frame.ticket);
        self.wait_until("a turn never came", |s| s.next_turn == frame.ticket || failed(s));
        match failed(&self.state.lock().unwrap()) {
            true => Err(Error::Stopped("the device failed".into())),
            false => Ok(FakeTurn(self, frame.ticket)),
        }
    }

    fn segment(&self, w: &FakeWriter) -> u64 {
        w.segment
    }

    fn has_writes(&self, w: &FakeWriter) -> bool {
        w.bytes > 0
    }

    fn is_full(&self, w: &FakeWriter) -> bool {
        w.bytes >= self.memtable_limit
    }

    fn memtable_limit(&self) -> u64 {
        self.memtable_limit
    }

    fn switch_memtable(&self, w: &mut FakeWriter, reserved: Option<u64>, applied: Seq) {
        w.bytes = 0;
        self.update(|s| {
            let oldest = s.on_their_way.values().min().copied();
            assert_eq!(reserved.is_some(), oldest.is_some(), "frames on their way: {:?}", s.on_their_way);
            assert!(reserved <= oldest, "the log is kept from {reserved:?}, a frame lies in {oldest:?}");
            assert_eq!(s.memtables.last().and_then(|m| m.last()), Some(&applied));
            s.memtables.push(Vec::new());
        });
    }

    fn apply(&self, w: &mut FakeWriter, first: Seq, write: &Write<'_>) {
        let payload = write.parts.concat();
        w.bytes += payload.len() as u64;
        self.update(|s| {
            s.on_their_way.remove(&first);
            let ids = ids(&payload);
            s.events.push(Event::Applied(first, ids.len() as u64));
            s.numbers.extend(ids.into_iter().zip(first..));
            s.memtables.last_mut().unwrap().extend(first..first + u64::from(write.count));
        });
    }

    fn each_key(&self, write: &Write<'_>, mut f: impl FnMut(&[u8], u64, &[u8])) {
        for id in ids(&write.parts.concat()) {
            let key = id.to_be_bytes();
            f(&key, crate::key::hash(&key), &[]);
        }
    }

    fn publish(&self, newest: Seq) {
        self.update(|s| {
            s.events.push(Event::Published(newest));
            s.visible = newest;
        });
    }
}

fn no_space() -> Error {
    Error::Io(engineswap::Error::new(engineswap::ErrorKind::NoSpace, "write", "a test says so"))
}

/// Longer than anything takes here.
pub(super) const LONG: Duration = Duration::from_secs(60);

/// A queue with threads that commit to it.
pub(super) struct Bench {
    pub queue: Arc<CommitQueue<Fake>>,
}

/// What a commit in a thread of its own will return.
pub(super) struct Pending(mpsc::Receiver<Result<()>>);

impl Pending {
    pub fn wait(&self) -> Result<()> {
        self.0.recv_timeout(LONG).expect("a commit never returned")
    }
}

impl Bench {
    pub fn new(pipelined: bool, most_leaders: usize, memtable_limit: u64) -> Bench {
        let writer = FakeWriter { tickets: 0, segment: 1, bytes: 0 };
        let env = Fake::new(pipelined, memtable_limit);
        Bench { queue: Arc::new(CommitQueue::new(env, writer, 0, most_leaders)) }
    }

    pub fn env(&self) -> &Fake {
        &self.queue.env
    }

    /// Commits one operation, padded to so many bytes.
    pub fn commit(&self, id: u64, bytes: u64, durability: Durability) -> Result<()> {
        let op = [&bytes.max(8).to_le_bytes()[..], &id.to_le_bytes(), &vec![0; bytes.max(8) as usize - 8]];
        self.queue
            .commit(&Write { parts: &[&op.concat()], count: 1, batches: 1, single: None }, durability)?;
        let seen = self.env().update(|s| s.numbers.get(&id).is_some_and(|n| *n <= s.visible));
        assert!(seen, "a write is seen when its commit returns");
        Ok(())
    }

    fn spawn(&self, id: u64, bytes: u64, durability: Durability) -> Pending {
        let (bench, (tell, told)) = (Bench { queue: self.queue.clone() }, mpsc::channel());
        std::thread::spawn(move || tell.send(bench.commit(id, bytes, durability)));
        Pending(told)
    }

    /// A commit that leads: it is on its way to the device when this returns, and stays so.
    pub fn lead(&self, id: u64) -> Pending {
        self.env().update(|s| s.held.insert(id));
        let pending = self.spawn(id, 8, Durability::Sync);
        self.env().wait_until("a frame was not begun", |s| s.begun.contains(&id));
        pending
    }

    /// A commit that waits in a group when this returns.
    pub fn join(&self, id: u64, bytes: u64) -> Pending {
        let waiting = || lock(&self.queue.state).waiting.iter().map(|g| g.members.len()).sum::<usize>();
        let before = waiting();
        let pending = self.spawn(id, bytes, Durability::Sync);
        let start = std::time::Instant::now();
        while waiting() == before {
            assert!(start.elapsed() < LONG, "a commit does not wait");
            std::thread::yield_now();
        }
        pending
    }

    /// Waits in a thread of its own until nobody leads.
    fn idle(&self) -> mpsc::Receiver<()> {
        let (queue, (tell, told)) = (self.queue.clone(), mpsc::channel());
        std::thread::spawn(move || {
            queue.wait_for_leaders();
            tell.send(())
        });
        told
    }

    pub fn release(&self, id: u64) {
        self.env().update(|s| s.held.remove(&id));
    }

    /// Everything is published in order, once it is applied and, but for `unlogged` operations, in the log.
    fn check(&self, unlogged: &BTreeSet<u64>) {
        let s = self.env().state.lock().unwrap();
        let not_logged: BTreeSet<Seq> = unlogged.iter().filter_map(|id| s.numbers.get(id)).copied().collect();
        let (mut logged, mut applied, mut published) = (BTreeSet::new(), 0, 0);
        for e in &s.events {
            match *e {
                Event::Logged(first, n) => logged.extend(first..first + n),
                Event::Synced(_) => {}
                Event::Applied(first, n) => {
                    assert_eq!(first, applied + 1, "applied in order: {e:?}");
                    applied += n;
                }
                Event::Published(newest) => {
                    assert!(newest > published && newest == applied, "{e:?} after {published}, {applied}");
                    let missing =
                        (published + 1..=newest).find(|n| !logged.contains(n) && !not_logged.contains(n));
                    assert_eq!(missing, None, "{e:?} before it is in the log");
                    published = newest;
                }
            }
        }
        assert_eq!(s.memtables.concat(), (1..=applied).collect::<Vec<_>>(), "in the memtables, in order");
    }
}

/// Runs `f` in so many threads, each with its number; fails if they do not end.
fn threads(bench: &Bench, n: u64, f: impl Fn(&Bench, u64) + Send + Sync + 'static) {
    let (f, (tell, told)) = (Arc::new(f), mpsc::channel());
    for i in 0..n {
        let (bench, f, tell) = (Bench { queue: bench.queue.clone() }, f.clone(), tell.clone());
        std::thread::spawn(move || {
            f(&bench, i);
            tell.send(()).unwrap();
        });
    }
    for _ in 0..n {
        told.recv_timeout(LONG).expect("a thread has failed or never ends");
    }
}

#[test]
fn publication_is_in_order_and_behind_the_log() {
    for (pipelined, most_leaders) in [(false, 1), (true, 1), (true, 4)] {
        let bench = Bench::new(pipelined, most_leaders, u64::MAX);
        threads(&bench, 6, |bench, thread| {
            (0..200).for_each(|i| bench.commit(thread << 32 | i, 8, Durability::Process).unwrap());
        });
        bench.check(&BTreeSet::new());
        assert_eq!(bench.queue.counts().batches, 1200);
    }
}

#[test]
fn a_refused_frame_refuses_exactly_its_group() {
    let bench = Bench::new(true, 2, u64::MAX);
    let leaders = [bench.lead(1), bench.lead(2)];
    let refused = [bench.join(3, 8), bench.join(4, 8)];
    let next = bench.join(5, GROUP_BYTES);
    bench.env().update(|s| s.refused.insert(3));
    bench.release(1);
    for p in refused {
        assert_eq!(p.wait().unwrap_err().kind(), ErrorKind::Retry);
    }
    bench.release(2);
    for p in leaders.iter().chain([&next]) {
        p.wait().unwrap();
    }
    // The trouble has passed, and no number was lost.
    bench.commit(6, 8, Durability::Sync).unwrap();
    bench.check(&BTreeSet::new());
    assert_eq!(bench.env().update(|s| s.visible), 4);
}

#[test]
fn a_failed_frame_fails_itself_and_all_behind_it() {
    let bench = Bench::new(true, 2, u64::MAX);
    let (good, bad) = (bench.lead(1), bench.lead(2));
    bench.env().update(|s| s.failing.insert(2));
    let behind = [bench.join(3, 8), bench.join(4, 8), bench.join(5, GROUP_BYTES)];
    bench.release(1);
    good.wait().unwrap();
    bench.release(2);
    for p in [bad].iter().chain(&behind) {
        assert!(matches!(p.wait(), Err(Error::Stopped(_))));
    }
    assert!(matches!(bench.commit(6, 8, Durability::Sync), Err(Error::Stopped(_))));
    assert!(matches!(bench.queue.freeze(), Err(Error::Stopped(_))));
    bench.idle().recv_timeout(LONG).expect("nobody leads any more");
    bench.check(&BTreeSet::new());
    assert_eq!(bench.env().update(|s| s.visible), 1);
}

#[test]
fn a_group_is_refused_if_the_store_has_stopped_while_it_waited() {
    let bench = Bench::new(true, 1, u64::MAX);
    let (leader, groups) = (bench.lead(1), [bench.join(2, 8), bench.join(3, GROUP_BYTES)]);
    bench.env().update(|s| s.stopped = Some("the manifest failed".into()));
    bench.release(1);
    leader.wait().unwrap();
    assert!(groups.iter().all(|p| matches!(p.wait(), Err(Error::Stopped(_)))));
    bench.idle().recv_timeout(LONG).expect("nobody leads any more");
    assert_eq!(bench.env().update(|s| (s.visible, s.begun.len())), (1, 1));
}

#[test]
fn a_switch_keeps_the_log_of_frames_on_their_way() {
    // What it keeps is looked at by the fake's `switch_memtable`.
    let bench = Bench::new(true, 4, 100);
    threads(&bench, 8, |bench, thread| {
        for i in 0..100 {
            let bytes = if i % 17 == 0 { 200 } else { 8 };
            bench.commit(thread << 32 | i, bytes, Durability::Sync).unwrap();
            if i % 40 == 0 {
                bench.queue.freeze().unwrap();
            }
        }
    });
    bench.check(&BTreeSet::new());
    let memtables = bench.env().update(|s| s.memtables.len());
    assert!(memtables > 50, "{memtables}");

    // Switched by the frame that comes first, while another one is on its way.
    let bench = Bench::new(true, 2, 100);
    bench.commit(1, 150, Durability::Sync).unwrap();
    let (first, second) = (bench.lead(2), bench.lead(3));
    bench.release(2);
    first.wait().unwrap();
    assert_eq!(bench.queue.freeze().unwrap(), 2);
    bench.release(3);
    second.wait().unwrap();
    let memtables = bench.env().update(|s| s.memtables.clone());
    assert_eq!(memtables, [vec![1], vec![2], vec![3]]);
}

#[test]
fn a_slot_goes_to_the_group_that_has_waited_longest() {
    let bench = Bench::new(true, 1, u64::MAX);
    let leader = bench.lead(1);
    let groups = [bench.join(2, 8), bench.join(3, 8), bench.join(4, GROUP_BYTES), bench.join(5, GROUP_BYTES)];
    bench.release(1);
    [leader].iter().chain(&groups).for_each(|p| p.wait().unwrap());
    bench.check(&BTreeSet::new());
    assert_eq!(bench.queue.counts(), Counts { groups: 4, batches: 5 });
    let numbers = bench.env().update(|s| s.numbers.clone());
    assert!(numbers.into_iter().all(|(id, number)| id == number), "in the order in which they came");
}

#[test]
fn no_wakeup_is_lost() {
    for most_leaders in 1..=3 {
        let bench = Bench::new(true, most_leaders, 500);
        let unlogged: BTreeSet<u64> = (0..16 * 150).filter(|i| i % 7 == 0).collect();
        threads(&bench, 16, |bench, thread| {
            for i in 0..150 {
                let id = thread * 150 + i;
                let durability = if id % 7 == 0 { Durability::None } else { Durability::Sync };
                // Some frames are refused, which must not keep others waiting.
                if id % 31 == 0 {
                    bench.env().update(|s| s.refused.insert(id));
                }
                if let Err(e) = bench.commit(id, 8, durability) {
                    assert_eq!(e.kind(), ErrorKind::Retry);
                }
            }
        });
        bench.idle().recv_timeout(LONG).expect("nobody leads any more");
        bench.check(&unlogged);
        let s = lock(&bench.queue.state);
        assert_eq!((s.leaders, s.waiting.len(), s.reserved.len()), (0, 0, 0));
    }
}

#[test]
fn closing_waits_for_leaders() {
    let bench = Bench::new(true, 2, u64::MAX);
    let leader = bench.lead(1);
    let told = bench.idle();
    assert!(told.recv_timeout(Duration::from_millis(20)).is_err());
    bench.release(1);
    told.recv_timeout(LONG).expect("nobody leads any more");
    leader.wait().unwrap();
}

#[test]
fn an_unlogged_write_keeps_its_place() {
    let bench = Bench::new(true, 2, u64::MAX);
    bench.commit(1, 8, Durability::None).unwrap();
    assert_eq!(bench.queue.counts(), Counts { groups: 0, batches: 1 });
    // Beside a frame on its way it needs one of its own: its number is higher.
    let leader = bench.lead(2);
    let behind = bench.spawn(3, 8, Durability::None);
    bench.env().wait_until("a frame was not begun", |s| s.begun.contains(&3));
    assert_eq!(bench.env().update(|s| s.visible), 1);
    bench.release(2);
    leader.wait().unwrap();
    behind.wait().unwrap();
    bench.check(&BTreeSet::from([1]));
    assert_eq!(bench.queue.counts(), Counts { groups: 2, batches: 3 });
}

#[test]
fn copied_frames_are_synced_behind_their_publication_and_only_for_a_sync_write() {
    let bench = Bench::new(false, 1, u64::MAX);
    bench.commit(1, 8, Durability::None).unwrap();
    bench.commit(2, 8, Durability::Process).unwrap();
    bench.env().update(|s| s.refused.insert(3));
    assert_eq!(bench.commit(3, 8, Durability::Sync).unwrap_err().kind(), ErrorKind::Retry);
    bench.commit(4, 8, Durability::Sync).unwrap();
    bench.check(&BTreeSet::from([1]));
    use Event::{Applied, Logged, Published, Synced};
    let expected = [
        Applied(1, 1),
        Published(1),
        Logged(2, 1),
        Applied(2, 1),
        Published(2),
        Logged(3, 1),
        Applied(3, 1),
        Published(3),
        Synced(3),
    ];
    assert_eq!(bench.env().update(|s| s.events.clone()), expected);
}
