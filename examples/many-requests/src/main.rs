//! `many-requests DIR [SECONDS [ROUNDS [KEYS]]]`: what a server's requests of one key each cost, by how they are made:
//!
//! - `get_async`: tasks of tokio with two threads, each with one read under way;
//! - `spawn_blocking 16` and `64`: the same tasks, each read a blocking `get` on tokio's pool of so many threads;
//! - `threads`: so many threads that do a blocking `get` each, without an executor (64 at most).
//!
//! Keys are random and equally likely, of a store made in DIR (2 million pairs of 116 bytes): *cached*, all of it in the
//! store's memory; *page cache*, 32 MiB of it and all in the page cache; *cold*, 32 MiB of it and reads past the page
//! cache. Then durable writes: `write_async` of 1,024 tasks and `write` of 32 threads.
//!
//! Rounds are interleaved: each does every form once. A row is the median of the rounds, with the lowest and the highest
//! in brackets. Every value is checked. Device reads are those of the process, in units of 4 KiB, by the kernel's count.

mod clients;
mod report;

use std::time::Duration;

use ringdb::{Db, Options, WriteBatch};

use clients::{Clients, Form};
use report::{Row, print};

/// Bytes of a value.
const VALUE: usize = 100;
/// Concurrent requests.
const TASKS: [usize; 5] = [1, 16, 64, 1024, 10_000];

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let Some(dir) = args.next() else {
        return Err("usage: many-requests DIR [SECONDS [ROUNDS [KEYS]]]".into());
    };
    let mut number = |default: f64| args.next().map_or(Ok(default), |s| s.parse::<f64>());
    let (seconds, rounds, keys) = (number(1.0)?, number(5.0)? as usize, number(2e6)? as u64);
    fill(&dir, keys)?;
    let base = Options::default().with_cache_bytes(32 << 20);
    for (medium, options) in [
        ("cached", base.clone().with_cache_bytes(keys * 200 + (64 << 20))),
        ("page cache", base.clone()),
        ("cold", base.with_direct_reads(true)),
    ] {
        let db = Db::open(&dir, options)?;
        db.wait_idle()?;
        // Into the store's memory, or the page cache.
        db.iter().try_for_each(|pair| pair.map(drop))?;
        let clients = Clients { db, keys, time: Duration::from_secs_f64(seconds) };
        reads(&clients, medium, rounds)?;
        clients.db.close()?;
    }
    let clients =
        Clients { db: Db::open(&dir, Options::default())?, keys, time: Duration::from_secs_f64(seconds) };
    writes(&clients, rounds)
}

/// Makes the store, unless it is there.
fn fill(dir: &str, keys: u64) -> Result<()> {
    let db = Db::open(dir, Options::default())?;
    if db.get(clients::key(keys - 1))?.is_some() {
        return Ok(());
    }
    for first in (0..keys).step_by(1000) {
        let mut batch = WriteBatch::new();
        (first..keys.min(first + 1000)).for_each(|n| {
            batch.put(clients::key(n), clients::value(n));
        });
        db.write(batch, &Default::default())?;
    }
    db.compact_range(..)?;
    Ok(db.close()?)
}

fn reads(clients: &Clients, medium: &str, rounds: usize) -> Result<()> {
    for tasks in TASKS {
        let mut forms = vec![Form::Async, Form::SpawnBlocking(16), Form::SpawnBlocking(64)];
        forms.extend((tasks <= 64).then_some(Form::Threads));
        let mut rows: Vec<Vec<Row>> = forms.iter().map(|_| Vec::new()).collect();
        for _ in 0..rounds {
            for (form, rows) in forms.iter().zip(&mut rows) {
                rows.push(clients.read(*form, tasks)?);
            }
        }
        forms.iter().zip(&rows).for_each(|(form, rows)| print(medium, tasks, &form.name(), rows));
    }
    Ok(())
}

fn writes(clients: &Clients, rounds: usize) -> Result<()> {
    let (mut tasks, mut threads) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        tasks.push(clients.write_async(1024)?);
        threads.push(clients.write_blocking(32)?);
    }
    print("durable puts", 1024, "write_async", &tasks);
    print("durable puts", 32, "threads", &threads);
    Ok(())
}
