//! A simulated environment: the store's threads run one at a time, in an order that a seed gives, in a time of their
//! own. Together with a simulated disk ([`engineswap::sim`]) a run with one seed is the same each time.
//!
//! ```
//! use ringdb::{Db, Options, engineswap::sim::Disk, sim::SimEnv};
//!
//! let run = |seed| {
//!     let (env, disk) = (SimEnv::new(seed), Disk::new(seed));
//!     env.run(|| {
//!         let db = Db::open_with_env("/db", Options::default().with_cache_bytes(8 << 20), disk.io(), env.clone())?;
//!         (0..100).try_for_each(|i: u32| db.put(i.to_be_bytes(), b"value"))?;
//!         db.flush()?;
//!         db.close()
//!     })?;
//!     Ok::<_, ringdb::Error>(disk.fingerprint())
//! };
//! assert_eq!(run(7)?, run(7)?);
//! # Ok::<(), ringdb::Error>(())
//! ```
//!
//! # How
//!
//! One thread has the baton, all others wait for it. It is given up where a thread waits for another (a condition, a
//! lock that is taken, the end of a thread), where it sleeps, and at one in [`LOCKS`] of the locks that it takes; who
//! gets it is drawn from the seed. When all wait, time jumps to the first that ends; without one it is a deadlock,
//! which panics with the seed.
//!
//! # What is repeatable
//!
//! Everything that the threads of one [`SimEnv`] do, if nothing else decides: the number of threads must be given
//! (`Options::with_background_threads`; its default is the machine's), and threads of the test must be made by
//! [`Env::spawn`]. What depends on addresses or on real time is not (statistics of latencies). The baton is passed at
//! locks and waits only, so races between single atomic operations are not explored: that is what `make shuttle`
//! does.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use crate::env::{Env, Join};

/// A lock passes the baton on once in so many times.
pub const LOCKS: u64 = 4;

/// Whether this process has ever had a simulation.
static ANY: AtomicBool = AtomicBool::new(false);

thread_local! {
    static TASK: RefCell<Option<(Arc<Baton>, usize)>> = const { RefCell::new(None) };
}

/// Whether the calling thread may be one of a simulation.
#[inline(always)]
pub(crate) fn any() -> bool {
    ANY.load(Relaxed)
}

fn task() -> Option<(Arc<Baton>, usize)> {
    TASK.try_with(|t| t.borrow().clone()).ok().flatten()
}

/// Whether the calling thread is one of a simulation.
pub(crate) fn is_task() -> bool {
    task().is_some()
}

/// Whoever waits at this place may go on.
pub(crate) fn notify(place: usize) {
    if let Some((baton, _)) = task() {
        baton.notify(place);
    }
}

/// Waits at this place, at most so long.
pub(crate) fn wait(place: usize, most: Option<Duration>) {
    if let Some((baton, me)) = task() {
        let until = most.map(|d| baton.lock().now + d);
        baton.pass(me, State::Waiting { place, until });
    }
}

/// Takes a lock, if the calling thread is one of a simulation.
pub(crate) fn lock<T: ?Sized>(m: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    let (baton, me) = task()?;
    // A thread that unwinds has enough to do.
    if !std::thread::panicking() && baton.lock().random(LOCKS) == 0 {
        baton.pass(me, State::Ready);
    }
    loop {
        match m.try_lock() {
            Ok(guard) => return Some(guard),
            Err(TryLockError::Poisoned(e)) => return Some(e.into_inner()),
            Err(TryLockError::WouldBlock) => baton.pass(me, State::Locked),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Ready,
    /// For a lock that another has: looks again when nobody else can go on.
    Locked,
    Waiting {
        place: usize,
        until: Option<Duration>,
    },
    Done,
}

struct Task {
    name: String,
    state: State,
    turn: Arc<Condvar>,
}

struct Inner {
    seed: u64,
    random: u64,
    now: Duration,
    tasks: Vec<Task>,
    running: Option<usize>,
    /// How often in a row threads have only looked at locks.
    stuck: u32,
    switches: u64,
    broken: bool,
}

/// Looks at locks in a row that are taken for a deadlock.
const MANY_LOOKS: u32 = 10_000;

impl Inner {
    fn random(&mut self, n: u64) -> u64 {
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % n
    }

    fn choose(&mut self, which: impl Fn(State) -> bool) -> Option<usize> {
        let found: Vec<usize> = (0..self.tasks.len()).filter(|i| which(self.tasks[*i].state)).collect();
        match found.len() {
            0 => None,
            n => Some(found[self.random(n as u64) as usize]),
        }
    }

    /// Who goes on; `None` if nobody is left. Sets the time forward if all wait.
    fn next(&mut self) -> Option<usize> {
        let now = self.now;
        for t in &mut self.tasks {
            if matches!(t.state, State::Waiting { until: Some(until), .. } if until <= now) {
                t.state = State::Ready;
            }
        }
        if let Some(i) = self.choose(|s| s == State::Ready) {
            self.stuck = 0;
            return Some(i);
        }
        let first = self.tasks.iter().filter_map(|t| match t.state {
            State::Waiting { until, .. } => until,
            _ => None,
        });
        let first = first.min();
        self.stuck += 1;
        if self.stuck < MANY_LOOKS
            && (first.is_none() || !self.stuck.is_multiple_of(8))
            && let Some(i) = self.choose(|s| s == State::Locked)
        {
            return Some(i);
        }
        if let Some(until) = first {
            self.now = until;
            return self.next();
        }
        if self.tasks.iter().any(|t| t.state != State::Done) {
            self.broken = true;
        }
        None
    }

    fn report(&self) -> String {
        let list: Vec<_> = self.tasks.iter().map(|t| format!("{}: {:?}", t.name, t.state)).collect();
        format!("a deadlock in the simulation of seed {}: {}", self.seed, list.join("; "))
    }
}

struct Baton(Mutex<Inner>);

impl Baton {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn notify(&self, at: usize) {
        for t in &mut self.lock().tasks {
            if matches!(t.state, State::Waiting { place, .. } if place == at) {
                t.state = State::Ready;
            }
        }
    }

    /// A new task, which waits for its turn.
    fn add(&self, name: &str) -> usize {
        let mut s = self.lock();
        s.tasks.push(Task { name: name.into(), state: State::Ready, turn: Arc::default() });
        s.tasks.len() - 1
    }

    /// Gives the baton on, and comes back when it has come back.
    fn pass(&self, me: usize, state: State) {
        let mut s = self.lock();
        s.tasks[me].state = state;
        s.switches += 1;
        self.hand_over(&mut s);
        if state != State::Done {
            self.await_turn(s, me);
        }
    }

    fn hand_over(&self, s: &mut Inner) {
        s.running = s.next();
        match s.running {
            Some(i) => s.tasks[i].turn.notify_all(),
            None if s.broken => s.tasks.iter().for_each(|t| t.turn.notify_all()),
            None => {}
        }
    }

    fn await_turn(&self, mut s: MutexGuard<'_, Inner>, me: usize) {
        let turn = Arc::clone(&s.tasks[me].turn);
        while s.running != Some(me) && !s.broken {
            s = turn.wait(s).unwrap_or_else(PoisonError::into_inner);
        }
        if s.broken {
            let report = s.report();
            drop(s);
            if std::thread::panicking() {
                // There is no way to unwind through a deadlock.
                eprintln!("{report}");
                std::process::abort();
            }
            panic!("{report}");
        }
        s.tasks[me].state = State::Ready;
    }
}

/// Ends a task, however it ends.
struct Ending(Arc<Baton>, usize);

impl Drop for Ending {
    fn drop(&mut self) {
        let _ = TASK.try_with(|t| t.borrow_mut().take());
        // Whoever waits for its end.
        self.0.notify(end_of(self.1));
        self.0.pass(self.1, State::Done);
    }
}

/// The place where the end of a task is waited for: no address.
fn end_of(task: usize) -> usize {
    usize::MAX - task
}

/// A simulated environment; see the [module](self).
#[derive(Clone)]
pub struct SimEnv {
    baton: Arc<Baton>,
}

impl SimEnv {
    /// An environment in which this seed decides.
    pub fn new(seed: u64) -> Arc<SimEnv> {
        ANY.store(true, Relaxed);
        let inner = Inner {
            seed,
            random: seed,
            now: Duration::ZERO,
            tasks: Vec::new(),
            running: None,
            stuck: 0,
            switches: 0,
            broken: false,
        };
        Arc::new(SimEnv { baton: Arc::new(Baton(Mutex::new(inner))) })
    }

    /// Calls `f` as the first thread of the simulation; stores are opened, used and closed in there.
    ///
    /// # Panics
    /// If the calling thread is in a simulation already, or another thread is this one's first.
    pub fn run<T>(&self, f: impl FnOnce() -> T) -> T {
        assert!(!is_task(), "a simulation in a simulation");
        let me = self.baton.add("main");
        {
            let mut s = self.baton.lock();
            assert!(s.running.is_none(), "this simulation is run by another thread");
            s.running = Some(me);
        }
        TASK.with(|t| *t.borrow_mut() = Some((Arc::clone(&self.baton), me)));
        let _ending = Ending(Arc::clone(&self.baton), me);
        f()
    }

    /// How often the baton has been given on.
    pub fn switches(&self) -> u64 {
        self.baton.lock().switches
    }
}

impl Env for SimEnv {
    fn now(&self) -> Duration {
        let mut s = self.baton.lock();
        s.now += Duration::from_micros(1);
        s.now
    }

    fn wall_clock(&self) -> Duration {
        // Some day in 2026.
        Duration::from_secs(1_790_000_000) + self.now()
    }

    fn sleep(&self, d: Duration) {
        // At no address.
        wait(1, Some(d));
    }

    fn spawn(&self, name: &str, _background: bool, f: Box<dyn FnOnce() + Send>) -> std::io::Result<Join> {
        let id = self.baton.add(name);
        let baton = Arc::clone(&self.baton);
        let thread = std::thread::Builder::new().name(name.into()).spawn(move || {
            TASK.with(|t| *t.borrow_mut() = Some((Arc::clone(&baton), id)));
            let _ending = Ending(Arc::clone(&baton), id);
            baton.await_turn(baton.lock(), id);
            f();
        });
        let thread = thread.inspect_err(|_| self.baton.lock().tasks[id].state = State::Done)?;
        let baton = Arc::clone(&self.baton);
        Ok(Box::new(move || {
            while is_task() && baton.lock().tasks[id].state != State::Done {
                wait(end_of(id), None);
            }
            // A panic of the thread has been printed by the panic hook; joining only waits.
            let _ = thread.join();
        }))
    }

    fn random(&self) -> u64 {
        self.baton.lock().random(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync;

    /// Threads that add their numbers to a list under a lock, in turns by a condition; returns the list.
    fn race(seed: u64) -> Vec<u64> {
        let env = SimEnv::new(seed);
        env.run(|| {
            let shared = Arc::new((Mutex::new(Vec::new()), sync::Condvar::new()));
            let threads: Vec<Join> = (0..4u64)
                .map(|t| {
                    let (shared, env2) = (Arc::clone(&shared), env.clone());
                    let body = move || {
                        for i in 0..20 {
                            let mut list = sync::lock(&shared.0);
                            while list.len() as u64 / 4 < i {
                                list = sync::wait(&shared.1, list, &shared.0);
                            }
                            list.push(t);
                            shared.1.notify_all();
                            drop(list);
                            env2.sleep(Duration::from_micros(t));
                        }
                    };
                    env.spawn("racer", false, Box::new(body)).unwrap()
                })
                .collect();
            threads.into_iter().for_each(|join| join());
            sync::lock(&shared.0).clone()
        })
    }

    #[test]
    fn one_seed_is_one_order() {
        let orders: std::collections::BTreeSet<_> = (0..20).map(race).collect();
        assert!(orders.len() > 15, "{} orders of 20", orders.len());
        assert!((0..20).all(|seed| race(seed) == race(seed)));
    }

    #[test]
    fn time_is_its_own() {
        let env = SimEnv::new(1);
        let start = std::time::Instant::now();
        let slept = env.run(|| {
            let before = env.now();
            env.sleep(Duration::from_secs(3600));
            let m = Mutex::new(());
            sync::wait_briefly(&sync::Condvar::new(), sync::lock(&m), Duration::from_secs(3600));
            env.now() - before
        });
        assert!(slept >= Duration::from_secs(7200));
        assert!(start.elapsed() < Duration::from_secs(600));
    }

    #[test]
    fn a_deadlock_is_told_with_its_seed() {
        let env = SimEnv::new(77);
        let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            env.run(|| {
                let m = Mutex::new(());
                let c = sync::Condvar::new();
                drop(sync::wait(&c, sync::lock(&m), &m));
            });
        }));
        let text = *found.unwrap_err().downcast::<String>().unwrap();
        assert!(text.contains("deadlock") && text.contains("seed 77"), "{text}");
    }
}
