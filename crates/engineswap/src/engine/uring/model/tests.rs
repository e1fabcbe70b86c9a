//! A queue on the model: random operations, chains, cancellations and calls, each case from its seed.
//!
//! `ENGINESWAP_TEST_SEED=N` begins with the case that has printed N; `ENGINESWAP_TEST_CASES` says how many follow.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use super::super::pools::RingPools;
use super::super::queue::{Registered, UringQueue};
use super::shadow::{CANARY, REGION, REGIONS, Record, SYNC, Shadow};
use super::{Manners, Model, ModelRing};
use crate::buf::Piece;
use crate::engine::RawQueue;
use crate::engine::owned::Owned;
use crate::kind::{OpKind, Purpose};
use crate::mem::{AlignedBuf, ReadPool};
use crate::op::Op;
use crate::random::Random;
use crate::stats::Stats;
use crate::uri::UringConfig;
use crate::{Buf, Error};

const CALLS: u32 = 250;

/// Prints the seed of a case that fails.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("ENGINESWAP_TEST_SEED={}", self.0);
        }
    }
}

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|s| s.parse().ok()).unwrap_or(otherwise)
}

#[test]
fn a_queue_keeps_its_promises_whatever_its_ring_does() {
    let first = number("ENGINESWAP_TEST_SEED", 20_261_122);
    for i in 0..number("ENGINESWAP_TEST_CASES", 60) {
        let seed = Seed(first.wrapping_add(i));
        Case::new(seed.0).run();
    }
}

struct Case {
    random: Random,
    ring: ModelRing,
    queue: Owned<UringQueue<ModelRing>>,
    shadow: Shadow,
    pool: ReadPool,
    limits: bool,
    lasting: bool,
    /// Operations to push, in order.
    plan: VecDeque<(Op, Record)>,
    next: u64,
}

impl Case {
    fn new(seed: u64) -> Case {
        let mut r = Random::of(seed, 1);
        let depth = 1 + r.below(12) as u32;
        let polled = r.one_in(6);
        let entries = (if polled { depth * 2 } else { depth }).next_power_of_two().max(2);
        let fails = r.one_in(2);
        let breaks = r.one_in(5).then(|| (r.below(120) as u32, r.one_in(2)));
        let room = if r.one_in(2) { 1 + r.below(3) as usize } else { entries as usize * 2 };
        let how = Manners { entries, room, polled, deferred: r.one_in(2), fails, breaks };
        let config = UringConfig {
            depth,
            sqpoll: polled,
            force_async: r.one_in(3),
            reap: r.one_in(3).then(|| 1 + r.below(8) as u32),
            min_wait_us: r.one_in(2).then_some(20),
            ..UringConfig::default()
        };
        let ring = ModelRing(Rc::new(RefCell::new(Model::new(seed, how))));
        let pools = r.one_in(2).then(RingPools::default);
        let registered = Registered { pools, ..Registered::default() };
        let stats = Arc::new(Stats::new(c"model"));
        Case {
            queue: Owned::new(UringQueue::new(ring.clone(), depth, &config, registered, &stats)),
            ring,
            shadow: Shadow::new(2, fails),
            pool: ReadPool::new(4096, 1 + r.below(4) as usize),
            limits: !polled,
            lasting: breaks.is_some_and(|(_, lasting)| lasting),
            plan: VecDeque::new(),
            next: 1,
            random: r,
        }
    }

    fn run(mut self) {
        for _ in 0..CALLS {
            if !self.call() {
                return;
            }
        }
        if self.random.one_in(4) {
            // With some of them in flight: nothing may point to freed memory.
            let ring = self.ring.clone();
            drop(self.queue);
            let m = ring.0.borrow();
            assert!(
                m.how.breaks.is_some() || m.inside.is_empty(),
                "requests are left of a queue that is gone"
            );
            return;
        }
        self.finish();
    }

    /// Waits for all that is in flight; false if the ring has broken.
    fn finish(&mut self) -> bool {
        for _ in 0..1000 {
            if self.queue.in_flight() == 0 {
                self.shadow.check_files();
                return true;
            }
            let n = self.queue.in_flight();
            if !self.wait(n) {
                return false;
            }
        }
        panic!("hangs: {:?}", self.shadow.open);
    }

    /// One call of the queue; false if its ring has broken for good.
    fn call(&mut self) -> bool {
        let ok = match self.random.below(100) {
            0..55 => {
                self.push();
                true
            }
            55..67 => {
                let done = self.asked(|q| q.submit());
                self.answered(done)
            }
            67..82 => {
                let n = self.random.below(self.queue.in_flight() as u64 + 2) as usize;
                self.wait(n)
            }
            82..92 => {
                self.pop();
                true
            }
            92..97 => self.cancel(),
            97 => self.finish(),
            _ => true,
        };
        if ok {
            assert_eq!(self.queue.in_flight(), self.shadow.open.len(), "in flight");
        }
        ok
    }

    /// Calls the queue, and looks at what the ring has done then.
    fn asked<T>(&mut self, call: impl FnOnce(&mut Owned<UringQueue<ModelRing>>) -> T) -> T {
        self.ring.0.borrow_mut().calls_now = 0;
        let out = call(&mut self.queue);
        self.shadow.follow(&self.ring);
        out
    }

    fn pop(&mut self) -> bool {
        let Some(done) = self.asked(|q| q.pop()) else { return false };
        self.shadow.take(done, &self.ring, &self.pool);
        true
    }

    fn wait(&mut self, min: usize) -> bool {
        let held = self.queue.in_flight();
        // A read may wait for a buffer that one of those who have come has.
        let waits = self.shadow.open.values().any(|r| r.pool);
        let done = self.asked(|q| q.wait(min));
        if done.is_err() {
            return self.answered(done);
        }
        for k in 0..min.min(held) {
            if !self.pop() {
                assert!(waits && k > 0, "waited for {min} of {held}, and {k} have come");
                break;
            }
        }
        true
    }

    fn cancel(&mut self) -> bool {
        let mut users: Vec<u64> = self.shadow.open.keys().copied().collect();
        users.sort_unstable();
        let k = self.random.below(users.len() as u64 + 1) as usize;
        let user = users.get(k).copied().unwrap_or(self.next + 1000);
        let held = self.queue.holds(user);
        if let Some(r) = self.shadow.open.get_mut(&user) {
            r.asked = true;
        }
        match self.asked(|q| q.cancel(user)) {
            Ok(n) => {
                assert_eq!(n, usize::from(held), "operations taken back");
                true
            }
            Err(e) => self.answered(Err(e)),
        }
    }

    /// After a call; false if the ring is broken for good.
    fn answered(&mut self, done: Result<(), Error>) -> bool {
        let Err(e) = done else { return true };
        assert!(e.to_string().contains("the ring is broken"), "{e}");
        let answers = self.queue.fail_all(&e);
        self.shadow.fail(answers);
        self.plan.clear();
        if self.lasting {
            return false;
        }
        // It was only that call: what runs comes back, to nobody.
        self.ring.0.borrow_mut().calls_now = 0;
        for _ in 0..1000 {
            let n = self.queue.in_flight();
            if n == 0 {
                self.shadow.start_over(&self.ring);
                return true;
            }
            self.queue.wait(n).unwrap();
            assert!(self.queue.pop().is_none(), "answered twice");
        }
        panic!("hangs after an error: {} in flight", self.queue.in_flight());
    }

    fn push(&mut self) {
        if self.plan.is_empty() {
            self.make_chain();
        }
        let Some((op, record)) = self.plan.pop_front() else { return };
        let full = self.queue.in_flight() >= self.queue.depth();
        match self.queue.push(op) {
            Ok(()) => {
                assert!(!full, "more than the queue is deep");
                self.shadow.open.insert(record.user, record);
            }
            Err(op) => {
                assert!(full, "refused with room");
                self.plan.push_front((op, record));
            }
        }
        if self.plan.is_empty() {
            // The last one may have asked for a successor.
            self.queue.end_chain();
        }
    }

    /// Plans a chain of one to six operations, on regions of its own.
    fn make_chain(&mut self) {
        let file = self.random.below(self.shadow.files.len() as u64) as usize;
        let regions: Vec<usize> = (0..2).map(|_| self.random.below(REGIONS as u64) as usize).collect();
        if !regions.iter().all(|r| self.shadow.is_free(file, *r)) {
            return;
        }
        let chain = self.next;
        let mut kinds = Vec::new();
        let long = if self.random.one_in(2) { 1 } else { 2 + self.random.below(5) };
        for _ in 0..long {
            let region = regions[self.random.below(2) as usize];
            let (kind, region) = match self.random.below(10) {
                0..4 => (OpKind::Read, region),
                4..7 => (OpKind::Write { dsync: self.random.one_in(2) }, region),
                7 => (OpKind::SyncRange, region),
                8 => (OpKind::Allocate, region),
                _ => (if self.random.one_in(2) { OpKind::SyncAll } else { OpKind::SyncData }, SYNC),
            };
            let behind = region == REGIONS - 1 && kind != OpKind::Read;
            let class = |k: &OpKind| std::mem::discriminant(k);
            let again =
                kinds.iter().any(|(k, r)| *r == region && (region == SYNC || class(k) == class(&kind)));
            if !behind && !again && (region != SYNC || self.shadow.is_free(file, SYNC)) {
                kinds.push((kind, region));
            }
        }
        for (_, region) in &kinds {
            self.shadow.own(file, *region, chain);
        }
        self.shadow.begin(chain, kinds.len());
        let n = kinds.len();
        let mut before = None;
        for (i, (kind, region)) in kinds.into_iter().enumerate() {
            let user = self.next;
            self.next += 1;
            let (op, record) = self.make(kind, file, region, (chain, user, before));
            before = Some(user);
            self.plan.push_back((if i + 1 < n || self.random.one_in(4) { op.then() } else { op }, record));
        }
        self.next += 1;
    }

    fn make(
        &mut self,
        kind: OpKind,
        file: usize,
        region: usize,
        (chain, user, before): (u64, u64, Option<u64>),
    ) -> (Op, Record) {
        let r = &mut self.random;
        let skip = r.below(REGION / 2);
        let offset = region as u64 * REGION + skip;
        let mut len = 1 + r.below(REGION - skip);
        let transfer = matches!(kind, OpKind::Read | OpKind::Write { .. });
        let pool = kind == OpKind::Read && r.one_in(3);
        if pool {
            len = len.min(self.pool.buf_bytes() as u64);
        }
        if transfer && r.one_in(30) {
            len = 0;
        }
        let bytes: Vec<u8> = match kind {
            OpKind::Write { .. } => (0..len).map(|i| (user * 31 + i * 5 + (i >> 8)) as u8).collect(),
            _ => vec![CANARY; len as usize],
        };
        let buf = match (transfer, pool) {
            (false, _) => Buf::None,
            (_, true) => Buf::Pool(self.pool.clone()),
            _ => buffer(r, &bytes),
        };
        let start = |b: &[u8]| b.as_ptr() as usize..b.as_ptr() as usize + b.len();
        let memory = match &buf {
            Buf::Aligned(b) => vec![start(b)],
            Buf::Pieces(v) => v.iter().map(|p| start(p.bytes())).collect(),
            _ => Vec::new(),
        };
        let (offset, len) = if region == SYNC { (0, 0) } else { (offset, len) };
        let mut op = Op::new(kind, &self.shadow.files[file], offset, len, buf, Purpose(0)).user(user);
        op.force_async = r.one_in(3);
        let limited = self.limits && r.one_in(8);
        op.time_limit = limited.then(|| Duration::from_nanos(r.below(5_000_000_000)));
        let record = Record {
            user,
            chain,
            kind,
            file,
            offset,
            len,
            memory,
            pool,
            bytes,
            before,
            limited,
            asked: false,
            moved: 0,
            began: false,
        };
        (op, record)
    }
}

/// A buffer that begins with these bytes, in one piece or several.
fn buffer(r: &mut Random, bytes: &[u8]) -> Buf {
    let aligned = |part: &[u8]| {
        let mut b = AlignedBuf::zeroed(part.len());
        b[..part.len()].copy_from_slice(part);
        b
    };
    if bytes.is_empty() || r.one_in(2) {
        return Buf::Aligned(aligned(bytes));
    }
    let (mut pieces, mut rest) = (Vec::new(), bytes);
    while !rest.is_empty() {
        // All but the last are used whole.
        let n = (AlignedBuf::ALIGN * (1 + r.below(2) as usize)).min(rest.len());
        pieces.push(Piece::Aligned(aligned(&rest[..n])));
        rest = &rest[n..];
    }
    Buf::Pieces(pieces)
}
