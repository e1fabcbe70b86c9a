//! One life of a store with its writers and readers; and what is looked at when it was cut short.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ringdb::engineswap::sim::Disk;
use ringdb::sim::SimEnv;
use ringdb::{Db, Durability, Env, Error, ErrorKind, Options};

use super::ledger::{Ledger, Survivors, WRITERS};
use super::tasks::{self, Left};
use super::ways::Ways;
use super::{mend, reader, writer};
use crate::faults::{Kind, clear_away};
use crate::job::Job;
use crate::run::STORE;
use crate::support::Rng;

/// Writes of each writer.
pub const ROUNDS: u64 = 60;

/// A life, shared by its threads.
pub struct Life {
    pub seed: u64,
    pub durability: Durability,
    /// Whether there are asynchronous clients.
    pub tasks: bool,
    pub rounds: u64,
    pub disk: Disk,
    pub env: Arc<SimEnv>,
    /// What may go wrong.
    kind: Option<Kind>,
    writers: usize,
    readers: usize,
    ledger: Mutex<Ledger>,
    /// Writes that are on their way when the store is closed.
    left: Mutex<Vec<Left>>,
    done: AtomicBool,
    wrong: Mutex<Option<String>>,
}

fn options(job: &Job) -> Options {
    let mut rng = Rng(job.seed ^ 0x0971);
    Options::default()
        .with_cache_bytes(*rng.pick(&[1u64 << 20, 4 << 20]))
        .with_memtable_bytes(64 << 10)
        .with_background_threads(2)
        .with_log_segment_bytes(64 << 10)
        .with_table_bytes(64 << 10)
        .with_manifest_bytes(*rng.pick(&[2u64 << 10, 4 << 20]))
        .with_durability(job.durability)
}

fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Life {
    /// A life on this disk, in which such a fault may happen.
    pub fn new(job: &Job, disk: &Disk, kind: Option<Kind>) -> Life {
        let mut rng = Rng(job.seed ^ 0x11FE);
        Life {
            seed: job.seed,
            durability: job.durability,
            tasks: job.shape == super::TASKS,
            rounds: ROUNDS,
            disk: disk.clone(),
            env: SimEnv::new(job.seed),
            kind,
            writers: 1 + rng.below(WRITERS as u64) as usize,
            readers: 1 + rng.below(2) as usize,
            ledger: Mutex::default(),
            left: Mutex::default(),
            done: AtomicBool::new(false),
            wrong: Mutex::default(),
        }
    }

    /// What was written.
    pub fn ledger(&self) -> MutexGuard<'_, Ledger> {
        lock(&self.ledger)
    }

    /// Leaves a write to be answered by the end of the store.
    pub fn leave(&self, write: Left) {
        lock(&self.left).push(write);
    }

    pub fn is_done(&self) -> bool {
        self.done.load(Relaxed)
    }

    /// Whether an error is one that the fault explains.
    pub fn right_kind(&self, what: &str, e: &Error) -> Result<(), String> {
        let hits = self.disk.faults_hit();
        let expected = self.kind.is_some_and(|k| k.explains(e, &hits));
        if expected { Ok(()) } else { Err(format!("{what}: {e} ({:?}, hit {hits:?})", e.kind())) }
    }

    /// What was read; `None` if it could not be, for the fault.
    pub fn readable<T>(&self, read: ringdb::Result<Result<T, String>>) -> Result<Option<T>, String> {
        match read {
            Ok(found) => found.map(Some),
            Err(e) => {
                let hits = self.disk.faults_hit();
                let expected = self.kind.is_some_and(|k| k.explains_a_read(&hits));
                if expected { Ok(None) } else { Err(format!("a read: {e} ({:?}, hit {hits:?})", e.kind())) }
            }
        }
    }

    fn spawn(
        self: &Arc<Self>,
        name: &str,
        db: &Arc<Db>,
        body: impl FnOnce(&Arc<Life>, &Db) -> Result<(), String> + Send + 'static,
    ) -> ringdb::Join {
        let (life, db) = (Arc::clone(self), Arc::clone(db));
        let body = move || {
            if let Err(e) = body(&life, &db) {
                lock(&life.wrong).get_or_insert(e);
            }
        };
        self.env.spawn(name, false, Box::new(body)).expect("a thread")
    }

    /// Lives it, from opening to closing or the store's stop.
    pub fn run(self, job: &Job) -> Result<Ledger, String> {
        let life = Arc::new(self);
        let env = Arc::clone(&life.env);
        let result = env.run(|| live(&life, job));
        if let Some(e) = lock(&life.wrong).take() {
            return Err(e);
        }
        result?;
        Ok(life.ledger().clone())
    }
}

fn live(life: &Arc<Life>, job: &Job) -> Result<(), String> {
    let open = || Db::open_with_env(STORE, options(job), life.disk.io(), life.env.clone());
    let db = match open() {
        Ok(db) => db,
        Err(e) => {
            life.right_kind("opening", &e)?;
            mend(&life.disk);
            clear_away(&life.disk, STORE);
            open().map_err(|e| format!("the store does not open after a failed opening: {e}"))?
        }
    };
    let db = Arc::new(db);
    let writers: Vec<_> = (0..life.writers)
        .map(|w| {
            // Beside tasks a blocking writer, sometimes.
            let task = life.tasks && (w == 0 || life.seed >> w & 3 > 0);
            life.spawn("writer", &db, move |l, db| match task {
                true => tasks::write(l, db, w),
                false => writer::write(l, db, w),
            })
        })
        .collect();
    let readers: Vec<_> =
        (0..life.readers).map(|r| life.spawn("reader", &db, move |l, db| reader::read(l, db, r))).collect();
    writers.into_iter().for_each(|join| join());
    life.done.store(true, Relaxed);
    readers.into_iter().for_each(|join| join());
    end(life, Arc::into_inner(db).expect("the last handle"))
}

/// Closes the store, or drops it; or sees that one that has stopped refuses writes.
fn end(life: &Arc<Life>, db: Db) -> Result<(), String> {
    let left = std::mem::take(&mut *lock(&life.left));
    if let Some(why) = db.stats().stopped {
        // It refuses writes for good and holds what was acknowledged.
        if why.is_empty() || life.kind.is_none() {
            return Err(format!("the store has stopped: {why:?}"));
        }
        mend(&life.disk);
        return match db.put("more", "x") {
            Err(Error::Stopped(_)) => Ok(()),
            r => Err(format!("a write to a store that has stopped: {r:?}")),
        };
    }
    if life.seed.is_multiple_of(2) {
        // A failure is told by the kind of the fault; what is not closed is dropped.
        if let Err(e) = db.close() {
            life.right_kind("closing", &e)?;
        }
    } else {
        drop(db);
    }
    left.into_iter().try_for_each(|write| write.answered(life))
}

/// Opens what a cut has left, checks it, goes on with it, and does so again.
pub fn check(disk: &Disk, job: &Job, survivors: &Survivors<'_>) -> Result<(), String> {
    let env = SimEnv::new(job.seed);
    let forgive = |e: &Error| survivors.liar && e.kind() == ErrorKind::Repair;
    let ways = match job.shape == super::TASKS {
        true => Ways::all(&env, job.seed),
        false => Ways::blocking(&env),
    };
    env.run(|| {
        let open = || Db::open_with_env(STORE, options(job), disk.io(), env.clone());
        let db = match open() {
            Err(e) if forgive(&e) => return Ok(()),
            db => db.map_err(|e| format!("the store does not open: {e}"))?,
        };
        let found = match reader::look(&ways, &db, &db.snapshot()) {
            Err(e) if forgive(&e) => return Ok(()),
            found => found.map_err(|e| format!("reading: {e}"))??,
        };
        survivors.check(found)?;
        let report = db.verify().map_err(|e| format!("verify: {e}"))?;
        if !report.is_ok() && !survivors.liar {
            return Err(format!("verify: {:?}", report.problems));
        }
        db.put("later", "x").map_err(|e| format!("a later write: {e}"))?;
        db.close().map_err(|e| format!("close: {e}"))?;
        let db = open().map_err(|e| format!("the store does not open again: {e}"))?;
        let again = reader::look(&ways, &db, &db.snapshot()).map_err(|e| format!("reading again: {e}"))??;
        let later = db.get("later").map_err(|e| format!("reading again: {e}"))?;
        if again != found || later.is_none() {
            return Err(format!("opened again: {again:?} instead of {found:?}"));
        }
        Ok(())
    })
}
