//! Clients that do one operation after the other until the time is over.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use ringdb::{Db, Durability, Value, WriteBatch, WriteOptions};
use tokio::runtime::{Builder, Runtime};

use crate::report::{Mark, Row};
use crate::{Result, VALUE};

/// How a read is made.
#[derive(Clone, Copy)]
pub enum Form {
    Async,
    SpawnBlocking(usize),
    Threads,
}

impl Form {
    pub fn name(self) -> String {
        match self {
            Form::Async => "get_async".into(),
            Form::SpawnBlocking(n) => format!("spawn_blocking {n}"),
            Form::Threads => "threads".into(),
        }
    }
}

pub fn key(n: u64) -> [u8; 16] {
    // Neighbours in time are none in order.
    (u128::from(n.wrapping_mul(0x9E37_79B9_7F4A_7C15)) << 64 | u128::from(n)).to_be_bytes()
}

pub fn value(n: u64) -> [u8; VALUE] {
    std::array::from_fn(|i| (n as usize + i) as u8)
}

/// The numbers of keys (xorshift64*).
struct Numbers(u64, u64);

impl Numbers {
    /// Others for each client of the process: what one has read is in memory.
    fn new(keys: u64) -> Numbers {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Numbers(NEXT.fetch_add(1, Relaxed).wrapping_mul(0x9E37_79B9_7F4A_7C15), keys)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) % self.1
    }
}

fn check(n: u64, got: &ringdb::Result<Option<Value>>) {
    let got = got.as_ref().expect("a read").as_deref();
    assert!(got == Some(&value(n)[..]), "key number {n}: {got:?}");
}

/// Ends it when its time is over.
struct Stop(AtomicBool);

pub struct Clients {
    pub db: Db,
    pub keys: u64,
    pub time: Duration,
}

impl Clients {
    /// Reads by so many clients.
    pub fn read(&self, form: Form, clients: usize) -> Result<Row> {
        match form {
            Form::Threads => self.threads(clients, |db, n| check(n, &db.get(key(n)))),
            Form::Async => self.tasks(clients, &runtime(1)?, |db, n| async move {
                check(n, &db.get_async(key(n)).await);
            }),
            Form::SpawnBlocking(threads) => self.tasks(clients, &runtime(threads)?, |db, n| async move {
                let read = tokio::task::spawn_blocking(move || db.get(key(n)));
                check(n, &read.await.expect("no panic"));
            }),
        }
    }

    /// Durable writes by so many tasks.
    pub fn write_async(&self, clients: usize) -> Result<Row> {
        self.tasks(clients, &runtime(1)?, |db, n| async move {
            db.write_async(batch(n), &sync()).await.expect("a write");
        })
    }

    /// Durable writes by so many threads.
    pub fn write_blocking(&self, clients: usize) -> Result<Row> {
        self.threads(clients, |db, n| db.write(batch(n), &sync()).expect("a write"))
    }

    fn threads(&self, clients: usize, op: impl Fn(&Db, u64) + Sync) -> Result<Row> {
        let (mark, stop) = (Mark::now(), Stop(AtomicBool::new(false)));
        let client = || {
            let (mut numbers, mut latencies) = (Numbers::new(self.keys), Vec::new());
            while !stop.0.load(Relaxed) {
                let (n, start) = (numbers.next(), Instant::now());
                op(&self.db, n);
                latencies.push(start.elapsed().as_nanos() as u64);
            }
            latencies
        };
        let all = std::thread::scope(|scope| {
            let client = &client;
            let threads: Vec<_> = (0..clients).map(|_| scope.spawn(client)).collect();
            std::thread::sleep(self.time);
            stop.0.store(true, Relaxed);
            threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
        });
        Ok(mark.row(all))
    }

    fn tasks<F: Future<Output = ()> + Send>(
        &self,
        clients: usize,
        runtime: &Runtime,
        op: impl Fn(Db, u64) -> F + Copy + Send + 'static,
    ) -> Result<Row> {
        let (mark, stop) = (Mark::now(), Arc::new(Stop(AtomicBool::new(false))));
        let client = || {
            let (db, stop, keys) = (self.db.clone(), Arc::clone(&stop), self.keys);
            async move {
                let (mut numbers, mut latencies) = (Numbers::new(keys), Vec::new());
                while !stop.0.load(Relaxed) {
                    let (n, start) = (numbers.next(), Instant::now());
                    op(db.clone(), n).await;
                    latencies.push(start.elapsed().as_nanos() as u64);
                    // Others get their turn, even if this one never waits.
                    tokio::task::consume_budget().await;
                }
                latencies
            }
        };
        let tasks: Vec<_> = (0..clients).map(|_| runtime.spawn(client())).collect();
        std::thread::sleep(self.time);
        stop.0.store(true, Relaxed);
        let all = tasks.into_iter().flat_map(|task| runtime.block_on(task).expect("no panic")).collect();
        Ok(mark.row(all))
    }
}

fn runtime(blocking_threads: usize) -> Result<Runtime> {
    Ok(Builder::new_multi_thread().worker_threads(2).max_blocking_threads(blocking_threads).build()?)
}

fn batch(n: u64) -> WriteBatch {
    let mut batch = WriteBatch::new();
    batch.put(key(n), value(n));
    batch
}

fn sync() -> WriteOptions {
    WriteOptions::default().durability(Durability::Sync)
}
