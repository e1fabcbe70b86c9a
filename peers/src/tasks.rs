//! Concurrent requests of one key each, as a server has them: tasks on tokio. A store without futures is asked on the
//! runtime's pool of blocking threads, as its users do.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use hdrhistogram::Histogram;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use crate::stores::{Result, Store};
use crate::work::key;

/// Threads that poll tasks.
const WORKERS: usize = 2;

/// How the requests come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tasks {
    /// So many, each with one request at a time.
    pub tasks: usize,
    /// Threads of the pool for those that block.
    pub pool: usize,
}

/// Gets `ops` random keys of `pairs`, with values of `len` bytes; their number and how long each took.
pub fn gets(
    store: &Arc<dyn Store>,
    how: Tasks,
    (pairs, len): (u64, usize),
    ops: u64,
    round: u32,
) -> Result<(u64, Histogram<u64>)> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .max_blocking_threads(how.pool)
        .build()?;
    let next = Arc::new(AtomicU64::new(0));
    runtime.block_on(async {
        let one = |task: usize| {
            let (store, next) = (Arc::clone(store), Arc::clone(&next));
            let mut rng = SmallRng::seed_from_u64(u64::from(round) << 32 | task as u64);
            tokio::spawn(async move {
                let mut times = Vec::new();
                while next.fetch_add(1, Relaxed) < ops {
                    let key = key(rng.random_range(0..pairs));
                    let began = Instant::now();
                    let found = match store.get_future(&key) {
                        Some(found) => found.await?,
                        None => {
                            let store = Arc::clone(&store);
                            tokio::task::spawn_blocking(move || store.get(&key)).await??
                        }
                    };
                    times.push(began.elapsed().as_nanos() as u64);
                    if found != Some(len) {
                        return Err("a key that was put is not there".into());
                    }
                }
                Result::Ok(times)
            })
        };
        let all: Vec<_> = (0..how.tasks).map(one).collect();
        let (mut keys, mut times) = (0, Histogram::new(3)?);
        for task in all {
            for ns in task.await?? {
                keys += 1;
                times.record(ns)?;
            }
        }
        Ok((keys, times))
    })
}
