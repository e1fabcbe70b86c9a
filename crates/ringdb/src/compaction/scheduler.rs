//! [`Scheduler`]: the threads that flush and compact, and those that wait for them.
//!
//! One thread flushes, so that a flush never waits for a compaction; the others compact, and take over parts of
//! each other's merges when they have nothing else to do. They wake on [`Scheduler::wake`] and on the end of any
//! job. A failure that may pass (no space, descriptors or memory) is retried with a growing delay while reads
//! go on; any other stops the store's writing, but for damage of a table, which is left alone from then on.
//!
//! Locks: `work` may be held while the tree is asked for its state, so the tree must not call into the scheduler
//! with its own locks held, but for [`Scheduler::wake`], which takes only `signal`.

use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::backpressure::{Debt, Limits, Pacer};
use super::flush::flush;
use super::helpers::{Helpers, Parts, Shared};
use super::pick::{
    Busy, Manual, Pick, PickContext, Reason, Shape, debt_bytes, movable, pick, pick_manual, runs,
};
use super::rate::RateLimit;
use super::run::{JobStats, run};
use super::watch::Watch;
use super::{CompactionEnv, Levels};
use crate::compaction_filter::registry::{FilterMap, Filters};
use crate::env::Join;
use crate::events::{Event, Events, check_outside};
use crate::insight::{Latencies, Operation};
use crate::key::Seq;
use crate::settings::{SettingsMap, TableSettings};
use crate::stats::RunningCompaction;
use crate::sync::{Condvar, Mutex, lock, wait_briefly};
use crate::{Env, Error, ErrorKind, Options, Result};

/// With so many immutable memtables writers wait: they and the active one, of a quarter of the budget each at most, are
/// never more than three quarters and what is written meanwhile.
const MOST_IMMUTABLES: u64 = 3;
/// First delay before a failed job is tried again.
const FIRST_RETRY: Duration = Duration::from_millis(50);
/// Longest such delay.
const LAST_RETRY: Duration = Duration::from_secs(5);
/// How often threads look around without being woken: a waker may have been missed by none, but time passes.
const LOOK_AROUND: Duration = Duration::from_millis(500);
/// So long after the last flush the store is quiet: compactions that are dear for what they bring are done.
const QUIET_AFTER: Duration = Duration::from_secs(1);

/// What the scheduler decides by.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// Threads that compact.
    pub threads: usize,
    pub shape: Shape,
    pub limits: Limits,
    /// Tables that compactions write are about this large.
    pub table_bytes: u64,
    /// With so many immutable memtables writers wait for one to be flushed.
    pub most_immutables: u64,
    /// How fast compactions may write.
    pub limit: Option<Arc<RateLimit>>,
}

impl Settings {
    /// From the store's settings.
    pub fn new(options: &Options) -> Settings {
        let memtable_bytes = options.memtable_limit();
        let shape = Shape {
            memtable_bytes,
            level0_runs: 4,
            fanout: 8,
            compaction_bytes: memtable_bytes * 24,
            settings: Arc::new(SettingsMap::uniform(TableSettings::of_store(options))),
        };
        Settings {
            threads: options.threads().max(1),
            shape,
            limits: Limits {
                soft: Debt { immutables: 1, level0: 12, pending_bytes: memtable_bytes * 48 },
                hard: Debt { immutables: 3, level0: 28, pending_bytes: memtable_bytes * 192 },
            },
            table_bytes: options.compacted_table_bytes(),
            most_immutables: MOST_IMMUTABLES,
            limit: RateLimit::new(options.compaction_bytes_per_second).map(Arc::new),
        }
    }
}

/// Counts since the store was opened.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub flushes: AtomicU64,
    pub flush_written_bytes: AtomicU64,
    pub compactions: AtomicU64,
    pub trivial_moves: AtomicU64,
    /// Whatever was picked and done, by [`Reason`].
    pub by_reason: [AtomicU64; Reason::ALL.len()],
    pub compaction_read_bytes: AtomicU64,
    pub compaction_written_bytes: AtomicU64,
    pub write_delays: AtomicU64,
    pub write_delay_us: AtomicU64,
}

/// A compaction of a range that somebody waits for.
struct Request {
    id: u64,
    from: Vec<u8>,
    to: Option<Vec<u8>>,
    seq: Seq,
    /// What had expired when it was begun goes; not what expires meanwhile, so that it comes to an end.
    now: u64,
    /// Every table of the range is to be written anew.
    rewrite: bool,
    /// Of the keyspaces in the range when it was begun.
    filters: Option<Arc<FilterMap>>,
    /// Tables with lower numbers have not passed the filters, or were not written anew.
    unpassed_below: u64,
    begun: bool,
}

impl Request {
    /// To be called when its turn has come. False: what is running has to end first. It may write tables that did not
    /// pass the filters of now, or are not written as it would be now.
    fn begin<T: CompactionEnv>(&mut self, store: &T, now: u64, running: bool) -> bool {
        if !self.begun {
            let filters = store.filters().and_then(Filters::now);
            self.filters = filters.filter(|f| f.reach(&self.from, self.to.as_deref()));
            if self.rewrite || self.filters.is_some() {
                if running {
                    return false;
                }
                self.unpassed_below = store.new_file_number();
            }
            (self.now, self.begun) = (now, true);
        }
        true
    }

    /// What its compactions are picked by.
    fn context(&self, context: &PickContext) -> PickContext {
        let (filters, unpassed_below) = (self.filters.clone(), self.unpassed_below);
        let now = self.now.min(context.now);
        PickContext { now, filters, rewrite: self.rewrite, unpassed_below, ..context.clone() }
    }
}

/// What somebody waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum On {
    /// Flushes alone: the passing trouble of a compaction is no reason to fail.
    Flushes,
    /// Flushes and compactions.
    Compactions,
}

/// A failure that may pass.
struct Trouble {
    error: Error,
    failures: u32,
    /// When to try again.
    until: Duration,
}

/// Which background work.
#[derive(Clone, Copy)]
enum Work {
    Flush,
    Compaction,
}

impl Work {
    fn name(self) -> &'static str {
        match self {
            Work::Flush => "flush",
            Work::Compaction => "compaction",
        }
    }

    fn trouble(self, state: &mut State) -> &mut Option<Trouble> {
        match self {
            Work::Flush => &mut state.flush_trouble,
            Work::Compaction => &mut state.compaction_trouble,
        }
    }
}

#[derive(Default)]
struct State {
    busy: Busy,
    compactions: usize,
    running: Vec<Arc<Watch>>,
    flushing: bool,
    requests: VecDeque<Request>,
    next_request: u64,
    /// When the last flush ended.
    flushed: Duration,
    /// How many wait until nothing is left to do.
    idle_waiters: usize,
    offers: Vec<Arc<Shared>>,
    flush_trouble: Option<Trouble>,
    compaction_trouble: Option<Trouble>,
    /// Compactions that met a damaged table, and what the last of them said.
    damage_met: (u64, Option<String>),
    /// Nothing new is begun: writing has stopped.
    stopped: Option<Error>,
}

/// The background threads' shared state.
pub(crate) struct Scheduler {
    pub(super) env: Arc<dyn Env>,
    settings: Settings,
    work: Mutex<State>,
    /// Counts wakes.
    signal: Mutex<u64>,
    woken: Condvar,
    /// Running jobs give up, threads end.
    closing: Arc<AtomicBool>,
    slowing: AtomicBool,
    immutables: AtomicU64,
    pub(super) pacer: Mutex<Pacer>,
    pub counters: Counters,
    latencies: Arc<Latencies>,
    pub(super) events: Arc<Events>,
    /// Since when writers are slowed, as far as listeners were told.
    pub(super) told_stall: Mutex<Option<Duration>>,
    /// Listeners were told that writing has stopped.
    pub(super) told_stop: AtomicBool,
}

enum Job<T: CompactionEnv> {
    Help(Arc<Shared>),
    /// What was picked, from what.
    Compact(Box<Pick<T::Table>>, Levels<T::Table>, Arc<Watch>),
}

impl Scheduler {
    /// Without threads yet.
    pub fn new(
        env: Arc<dyn Env>,
        settings: Settings,
        latencies: Arc<Latencies>,
        events: Arc<Events>,
    ) -> Arc<Scheduler> {
        Arc::new(Scheduler {
            pacer: Mutex::new(Pacer::new(settings.limits)),
            env,
            settings,
            work: Mutex::default(),
            signal: Mutex::new(0),
            woken: Condvar::new(),
            closing: Arc::default(),
            slowing: AtomicBool::new(false),
            immutables: AtomicU64::new(0),
            counters: Counters::default(),
            latencies,
            events,
            told_stall: Mutex::default(),
            told_stop: AtomicBool::new(false),
        })
    }

    /// Starts the threads. They hold `tree` until [`Scheduler::close`]; join them after it.
    pub fn start<T: CompactionEnv>(self: &Arc<Self>, store: &Arc<T>, threads: &mut Vec<Join>) -> Result<()> {
        let mut spawn = |name: String, f: fn(&Arc<Scheduler>, &Arc<T>)| -> Result<()> {
            let (me, store) = (Arc::clone(self), Arc::clone(store));
            let join = self.env.spawn(&name, true, Box::new(move || f(&me, &store)));
            let failed = |e: std::io::Error| engineswap::Error::from_std("start a background thread", &e);
            threads.push(join.map_err(failed)?);
            Ok(())
        };
        spawn("ringdb-flush".into(), |me, store| me.flush_loop(store))?;
        for i in 0..self.settings.threads {
            spawn(format!("ringdb-compact{i}"), |me, store| me.compact_loop(store))?;
        }
        Ok(())
    }

    /// Has the threads end soon; running jobs give up without a trace. Waiters fail.
    pub fn close(&self) {
        self.closing.store(true, Release);
        self.wake();
    }

    /// Something has changed: memtables, tables, snapshots. May be called with any of the tree's locks held.
    pub fn wake(&self) {
        *lock(&self.signal) += 1;
        self.woken.notify_all();
    }

    /// A memtable was made immutable; there are `count` now. May be called with any of the tree's locks held.
    pub fn memtable_frozen(&self, count: usize) {
        self.immutables.store(count as u64, Relaxed);
        let mut pacer = lock(&self.pacer);
        let debt = Debt { immutables: count as u64, ..pacer.debt() };
        pacer.observe(debt);
        self.slowing.store(pacer.slowing(), Relaxed);
        drop(pacer);
        self.wake();
    }

    /// To be called before a write of `bytes`, without any lock: sleeps as long as the writer should be delayed.
    /// Fails with [`ErrorKind::Retry`] if memory is full of memtables that cannot be flushed for now.
    #[inline]
    pub fn admit(&self, bytes: u64) -> Result<()> {
        if self.slowing.load(Relaxed) { self.admit_slowly(bytes) } else { Ok(()) }
    }

    /// Whether [`Scheduler::admit`] may have a writer wait.
    #[inline]
    pub fn slowing(&self) -> bool {
        self.slowing.load(Relaxed)
    }

    #[cold]
    fn admit_slowly(&self, bytes: u64) -> Result<()> {
        let start = self.env.now();
        let mut delay = lock(&self.pacer).delay(start, bytes);
        // A listener on a background thread holds up what the others wait for.
        if check_outside().is_err() {
            delay = Duration::ZERO;
        } else {
            self.tell_stall(start);
        }
        if !delay.is_zero() {
            self.env.sleep(delay);
        }
        let r = if self.immutables.load(Relaxed) < self.settings.most_immutables {
            Ok(())
        } else {
            self.wait_for(On::Flushes, || self.immutables.load(Relaxed) < self.settings.most_immutables)
        };
        let waited = self.env.now().saturating_sub(start);
        if !waited.is_zero() && (!delay.is_zero() || waited > Duration::from_millis(1)) {
            self.counters.write_delays.fetch_add(1, Relaxed);
            self.counters.write_delay_us.fetch_add(waited.as_micros() as u64, Relaxed);
            self.latencies.record(Operation::Stall, waited, 1);
        }
        r
    }

    /// Why writers are delayed or background work fails, if so.
    pub fn reason(&self) -> Option<String> {
        let state = lock(&self.work);
        let trouble = [&state.flush_trouble, &state.compaction_trouble].into_iter().flatten().next();
        if let Some(t) = trouble {
            return Some(format!("{}; it is tried again", t.error));
        }
        drop(state);
        lock(&self.pacer).reason()
    }

    /// How many compactions have met a damaged table, and what the last of them said.
    pub fn background_errors(&self) -> (u64, Option<String>) {
        lock(&self.work).damage_met.clone()
    }

    /// Waits until `done`, which is asked again after every change; fails when the store is closed, has stopped
    /// writing, or the background work that this depends `on` fails for now.
    pub fn wait_for(&self, on: On, mut done: impl FnMut() -> bool) -> Result<()> {
        loop {
            let seen = self.generation();
            if done() {
                return Ok(());
            }
            check_outside()?;
            self.check(on)?;
            self.sleep_until_woken(seen, LOOK_AROUND);
        }
    }

    fn check(&self, on: On) -> Result<()> {
        if self.closing.load(Acquire) {
            return Err(Error::Closed);
        }
        let now = self.env.now();
        let state = lock(&self.work);
        // One whose delay is over is being tried again: whoever waits learns how that ends.
        let compactions = state.compaction_trouble.iter().filter(|_| on == On::Compactions);
        let mut trouble = state.flush_trouble.iter().chain(compactions).filter(|t| t.until > now);
        match (&state.stopped, trouble.next().map(|t| &t.error)) {
            (Some(e), _) | (None, Some(e)) => Err(e.clone()),
            (None, None) => Ok(()),
        }
    }

    /// Brings everything between two internal keys (ends included; `None`: no end) that was written up to `seq`
    /// and flushed into the last level; with `rewrite`, no table of it stays as it is.
    pub fn compact_range(&self, from: &[u8], to: Option<&[u8]>, seq: Seq, rewrite: bool) -> Result<()> {
        let id = {
            let mut state = lock(&self.work);
            let id = state.next_request;
            state.next_request += 1;
            state.requests.push_back(Request {
                id,
                from: from.to_vec(),
                to: to.map(<[u8]>::to_vec),
                seq,
                now: u64::MAX,
                rewrite,
                filters: None,
                unpassed_below: 0,
                begun: false,
            });
            id
        };
        self.wake();
        let r = self.wait_for(On::Compactions, || lock(&self.work).requests.iter().all(|r| r.id != id));
        if r.is_err() {
            lock(&self.work).requests.retain(|r| r.id != id);
            self.wake();
        }
        r
    }

    /// Calls `f` with what running compactions write, and lets none begin meanwhile that writes into a range of
    /// internal keys, ends included.
    pub fn beside<R>(&self, (from, to): (&[u8], &[u8]), f: impl FnOnce(&Busy) -> R) -> R {
        let others = {
            let mut state = lock(&self.work);
            let others = state.busy.clone();
            state.busy.hold(from, to);
            others
        };
        let r = f(&others);
        lock(&self.work).busy.release(from, to);
        self.wake();
        r
    }

    /// Tables have come that no flush and no compaction wrote.
    pub fn tables_came<T: CompactionEnv>(&self, store: &T) {
        self.look_at_debt(store);
        self.wake();
    }

    /// Waits until nothing is left to flush or compact.
    pub fn wait_idle<T: CompactionEnv>(&self, store: &T) -> Result<()> {
        lock(&self.work).idle_waiters += 1;
        self.wake();
        let idle = self.wait_for(On::Compactions, || {
            let state = lock(&self.work);
            !state.flushing
                && state.compactions == 0
                && state.requests.is_empty()
                && store.immutable_count() == 0
                && pick(&store.levels(), &self.shape(store), &state.busy, &pick_context(store, true))
                    .is_none()
        });
        lock(&self.work).idle_waiters -= 1;
        idle
    }

    /// What is decided by now: keyspaces may have got other settings.
    fn shape<T: CompactionEnv>(&self, store: &T) -> Shape {
        Shape { settings: store.table_settings(), ..self.settings.shape.clone() }
    }

    fn generation(&self) -> u64 {
        *lock(&self.signal)
    }

    /// Sleeps until a wake after `seen`, at most `most`.
    fn sleep_until_woken(&self, seen: u64, most: Duration) {
        let guard = lock(&self.signal);
        if *guard == seen {
            // A wake before its time is harmless: everyone looks again.
            wait_briefly(&self.woken, guard, most);
        }
    }

    fn closing(&self) -> bool {
        self.closing.load(Acquire)
    }

    // ---- flush

    fn flush_loop<T: CompactionEnv>(&self, store: &Arc<T>) {
        loop {
            // Before the question: a wake between the two is not slept through.
            let seen = self.generation();
            if self.closing() {
                return;
            }
            let mut pause = LOOK_AROUND;
            self.tell_news(&**store, None);
            if self.may_flush(&mut pause) && store.immutable_count() > 0 {
                lock(&self.work).flushing = true;
                self.events.tell(|| Event::FlushBegan { memtables: store.immutable_count() as u64 });
                let start = self.env.now();
                let result = flush(&**store, &self.closing);
                if let Ok(Some(work)) = &result {
                    self.counters.flushes.fetch_add(1, Relaxed);
                    self.counters.flush_written_bytes.fetch_add(work.written_bytes, Relaxed);
                    let took = self.env.now().saturating_sub(start);
                    self.latencies.record(Operation::Flush, took, 1);
                    lock(&self.pacer).flushed(work.read_bytes, took);
                }
                self.tell_flush(&result, start);
                let mut state = lock(&self.work);
                (state.flushing, state.flushed) = (false, self.env.now());
                let news = self.account(&**store, &mut state, result.map(drop), Work::Flush);
                drop(state);
                self.look_at_debt(&**store);
                self.wake();
                self.tell_news(&**store, news);
                continue;
            }
            // A count told late, when the memtables were flushed already, would have writers wait for good. Who
            // tells it wakes this thread.
            if self.immutables.load(Relaxed) != store.immutable_count() as u64 {
                self.look_at_debt(&**store);
                self.wake();
            }
            self.sleep_until_woken(seen, pause);
        }
    }

    fn may_flush(&self, pause: &mut Duration) -> bool {
        let state = lock(&self.work);
        state.stopped.is_none() && self.over(&state.flush_trouble, pause)
    }

    /// Whether the delay after a failure is over; shortens `pause` to what is left of it.
    fn over(&self, trouble: &Option<Trouble>, pause: &mut Duration) -> bool {
        let left = trouble.as_ref().map_or(Duration::ZERO, |t| t.until.saturating_sub(self.env.now()));
        if !left.is_zero() {
            *pause = (*pause).min(left);
        }
        left.is_zero()
    }

    /// Records how a job ended.
    fn account<T: CompactionEnv>(
        &self,
        store: &T,
        state: &mut State,
        result: Result<()>,
        work: Work,
    ) -> Option<Event> {
        let trouble = work.trouble(state);
        match result {
            Ok(()) => return trouble.take().map(|_| Event::TroubleEnded { work: work.name() }),
            Err(_) if self.closing() => {}
            Err(error) if store.quarantine(&error) => {
                // Others go on.
                state.damage_met = (state.damage_met.0 + 1, Some(error.to_string()));
                return Some(Event::TableDamaged { error: error.to_string() });
            }
            Err(error) if error.kind() == ErrorKind::Retry => {
                let failures = trouble.as_ref().map_or(0, |t| t.failures) + 1;
                let delay = (FIRST_RETRY * (1 << (failures - 1).min(10))).min(LAST_RETRY);
                let news = Event::TroubleBegan { work: work.name(), error: error.to_string() };
                *trouble = Some(Trouble { error, failures, until: self.env.now() + delay });
                return (failures == 1).then_some(news);
            }
            Err(error) => {
                store.stop_writing(&error);
                let why = match error {
                    Error::Stopped(why) => why,
                    e => e.to_string(),
                };
                state.stopped.get_or_insert(Error::Stopped(why));
            }
        }
        None
    }

    /// Tells the pacer what is left to do.
    fn look_at_debt<T: CompactionEnv>(&self, store: &T) {
        // What cannot go anywhere because of damage is no debt: writers would wait for ever.
        let (all, damaged) = (store.levels(), store.quarantined());
        let levels = movable(all.clone(), &damaged);
        let (immutables, shape) = (store.immutable_count() as u64, self.shape(store));
        let debt = Debt {
            immutables,
            level0: runs(&all, &levels, &damaged, &shape.settings) as u64,
            pending_bytes: debt_bytes(&levels, &shape),
        };
        self.immutables.store(immutables, Relaxed);
        let mut pacer = lock(&self.pacer);
        pacer.observe(debt);
        self.slowing.store(pacer.slowing() || immutables >= self.settings.most_immutables, Relaxed);
    }

    // ---- compaction

    fn compact_loop<T: CompactionEnv>(self: &Arc<Self>, store: &Arc<T>) {
        loop {
            // Before the question: a wake between the two is not slept through.
            let seen = self.generation();
            if self.closing() {
                return;
            }
            let mut pause = LOOK_AROUND;
            match self.next_job(&**store, &mut pause) {
                None => self.sleep_until_woken(seen, pause),
                Some(Job::Help(shared)) => while shared.do_one() {},
                Some(Job::Compact(pick, levels, watch)) => {
                    let start = self.env.now();
                    let what = watch.tell(start);
                    self.tell_began(&what);
                    let result = run(store, &pick, &levels, self.settings.table_bytes, &**self, &watch);
                    if let Ok(work) = &result {
                        let took = self.env.now().saturating_sub(start);
                        self.count(work, pick.reason(), took);
                        lock(&self.pacer).compacted(work.level0_bytes, took);
                    }
                    self.tell_ended(&what, &result, start);
                    let mut state = lock(&self.work);
                    state.busy.remove(&pick);
                    state.running.retain(|w| !Arc::ptr_eq(w, &watch));
                    let news = self.account(&**store, &mut state, result.map(drop), Work::Compaction);
                    drop(state);
                    // Obsolete files go with the last of these, and of what the debt is counted from; who waits for
                    // idleness waits for that too.
                    drop((pick, levels));
                    self.look_at_debt(&**store);
                    lock(&self.work).compactions -= 1;
                    self.wake();
                    self.tell_news(&**store, news);
                }
            }
        }
    }

    /// The compactions that are running, and whether a flush is.
    pub fn running(&self) -> (Vec<RunningCompaction>, bool) {
        let now = self.env.now();
        let state = lock(&self.work);
        (state.running.iter().map(|w| w.tell(now)).collect(), state.flushing)
    }

    fn count(&self, work: &JobStats, reason: Reason, took: Duration) {
        let c = &self.counters;
        c.by_reason[reason as usize].fetch_add(1, Relaxed);
        c.trivial_moves.fetch_add(work.moved, Relaxed);
        if work.read_bytes > 0 {
            c.compactions.fetch_add(1, Relaxed);
            self.latencies.record(Operation::Compaction, took, 1);
            c.compaction_read_bytes.fetch_add(work.read_bytes, Relaxed);
            c.compaction_written_bytes.fetch_add(work.written_bytes, Relaxed);
        }
    }

    fn next_job<T: CompactionEnv>(&self, store: &T, pause: &mut Duration) -> Option<Job<T>> {
        let mut guard = lock(&self.work);
        let state = &mut *guard;
        state.offers.retain(|o| !o.is_taken());
        if let Some(offer) = state.offers.first() {
            return Some(Job::Help(Arc::clone(offer)));
        }
        if state.stopped.is_some() || !self.over(&state.compaction_trouble, pause) {
            return None;
        }
        let quiet = state.idle_waiters > 0 || self.env.now().saturating_sub(state.flushed) >= QUIET_AFTER;
        let (levels, context) = (store.levels(), pick_context(store, quiet));
        let shape = self.shape(store);
        let mut next = None;
        // Nothing else is begun while a request waits, so that it comes to its turn.
        let requested = !state.requests.is_empty();
        let running = state.compactions > 0;
        while let (None, Some(r)) = (&next, state.requests.front_mut()) {
            if !r.begin(store, context.now, running) {
                return None;
            }
            let context = r.context(&context);
            let range = (r.from.as_slice(), r.to.as_deref());
            match pick_manual(&levels, &shape, &state.busy, &context, range, r.seq) {
                Manual::Pick(p) => next = Some(p),
                Manual::Wait => return None,
                Manual::Done => {
                    state.requests.pop_front();
                    self.wake();
                }
            }
        }
        if next.is_none() && !requested {
            next = pick(&levels, &shape, &state.busy, &context);
        }
        let Some(next) = next else {
            // What failed has no reason to be done any more.
            state.compaction_trouble = None;
            return None;
        };
        state.busy.add(&next);
        state.compactions += 1;
        let watch = Watch::over(&next, &self.closing, &self.env, self.settings.limit.as_ref());
        state.running.push(Arc::clone(&watch));
        Some(Job::Compact(Box::new(next), levels, watch))
    }
}

fn pick_context<T: CompactionEnv>(store: &T, quiet: bool) -> PickContext {
    // Before the views, which then see all of them.
    let ranges = store.ranges();
    let oldest_view = store.views().into_iter().min().unwrap_or(0);
    PickContext {
        oldest_view,
        dropped: store.dropped_keyspaces(),
        damaged: store.quarantined(),
        ranges,
        quiet,
        now: store.wall_clock(),
        ..PickContext::default()
    }
}

impl Helpers for Scheduler {
    fn threads(&self) -> usize {
        self.settings.threads
    }

    fn share(&self, parts: usize, job: Parts) {
        let shared = Arc::new(Shared::new(parts, job));
        if parts > 1 {
            lock(&self.work).offers.push(Arc::clone(&shared));
            self.wake();
        }
        while shared.do_one() {}
        shared.wait();
    }
}
