//! A queue of jobs that survives its workers: a job that is taken is kept until its worker says that it is done, and
//! comes back if the worker dies.
//!
//! `cargo run -p ringdb --example queue -- DIRECTORY`

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use ringdb::{Db, Durability, ErrorKind, Keyspace, Options, WriteOptions};

struct Queue {
    db: Db,
    waiting: Keyspace,
    /// What workers have, under the same keys.
    taken: Keyspace,
    next: AtomicU64,
}

struct Job {
    key: Vec<u8>,
    work: Vec<u8>,
}

impl Queue {
    /// Opens the queue. Nobody works yet, so what was taken and not finished waits again: in front, for its number is
    /// lower than those of what came later.
    fn open(dir: &Path) -> ringdb::Result<Queue> {
        let db = Db::open(dir, Options::default())?;
        let (waiting, taken) = (db.keyspace("waiting")?, db.keyspace("taken")?);
        let tx = db.transaction();
        for pair in tx.range_in(&taken, ..) {
            let (key, work) = pair?;
            tx.delete_in(&taken, &key)?;
            tx.put_in(&waiting, &key, work)?;
        }
        tx.commit()?;
        // Finished jobs are gone: without this number, which outlives them, theirs could be given again.
        let last = db.get("last")?.and_then(|v| v.as_ref().try_into().ok()).map_or(0, u64::from_be_bytes);
        Ok(Queue { db, waiting, taken, next: AtomicU64::new(last + 1) })
    }

    /// Adds a job; it is on the device when this returns.
    fn push(&self, work: &[u8]) -> ringdb::Result<()> {
        let number = self.next.fetch_add(1, Ordering::Relaxed).to_be_bytes();
        loop {
            let tx = self.db.transaction();
            tx.put_in(&self.waiting, number, work)?;
            // Of threads that push at the same time the highest number stays.
            if tx.get("last")?.is_none_or(|last| *last < number[..]) {
                tx.put("last", number)?;
            }
            match tx.commit_with(&WriteOptions::default().durability(Durability::Sync)) {
                Err(e) if e.kind() == ErrorKind::Retry => continue,
                done => return done,
            }
        }
    }

    /// Takes the oldest job, or none. Of workers that take the same one, one gets it.
    fn take(&self) -> ringdb::Result<Option<Job>> {
        loop {
            let tx = self.db.transaction();
            let Some((key, work)) = tx.pop_first_in(&self.waiting)? else { return Ok(None) };
            tx.put_in(&self.taken, &key, &work)?;
            match tx.commit() {
                Err(e) if e.kind() == ErrorKind::Retry => continue,
                done => return done.map(|()| Some(Job { key: key.to_vec(), work: work.to_vec() })),
            }
        }
    }

    /// The job is done, and forgotten.
    fn done(&self, job: &Job) -> ringdb::Result<()> {
        self.taken.delete(&job.key)
    }

    fn close(self) -> ringdb::Result<()> {
        self.db.close()
    }
}

/// Twenty jobs, of which a worker takes one and dies; the others then do them all. What they did, sorted.
pub(crate) fn run(dir: &Path) -> ringdb::Result<Vec<String>> {
    let queue = Queue::open(dir)?;
    for i in 0..20 {
        queue.push(format!("job {i:02}").as_bytes())?;
    }
    let lost = queue.take()?.expect("there are jobs");
    assert_eq!(lost.work, b"job 00");
    queue.close()?;

    let queue = Queue::open(dir)?;
    let work = || -> ringdb::Result<Vec<String>> {
        let mut finished = vec![];
        while let Some(job) = queue.take()? {
            finished.push(String::from_utf8_lossy(&job.work).into_owned());
            queue.done(&job)?;
        }
        Ok(finished)
    };
    let mut finished = std::thread::scope(|s| {
        let workers = [s.spawn(work), s.spawn(work), s.spawn(work)];
        workers.into_iter().map(|w| w.join().expect("no panic")).collect::<ringdb::Result<Vec<_>>>()
    })?
    .concat();
    finished.sort();
    queue.close()?;
    Ok(finished)
}

fn main() -> ringdb::Result<()> {
    let dir = std::env::args().nth(1).expect("a directory for the store");
    println!("done: {}", run(Path::new(&dir))?.join(", "));
    Ok(())
}
