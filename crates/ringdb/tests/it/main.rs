//! Tests of the store that need no process of their own, in one binary. A test that sets limits, forks, is
//! killed, counts what the whole process reads, or simulates time, has a binary beside this one.
#![allow(clippy::unwrap_used)] // tests

#[path = "../support/executor.rs"]
mod executor;
#[path = "../support/failing.rs"]
mod failing;
#[path = "../support/frozen_v1.rs"]
mod frozen_v1;
#[path = "../support/linear.rs"]
mod linear;
#[path = "../support/mod.rs"]
mod support;
#[path = "../support/tables.rs"]
mod tables;

mod api;
mod async_ranges;
mod async_reads;
mod async_writes;
mod backup;
mod beside;
mod compaction_rate;
mod concurrency;
mod damage;
mod deadlines;
mod destroy;
#[cfg(feature = "encryption")]
mod encryption;
mod engines;
mod events;
mod export;
mod filter;
mod frozen;
mod ingest;
mod insight;
mod linearizability;
mod locks;
mod looks;
mod merge;
mod power_cut;
mod pressure;
mod proofs;
mod ranges;
mod reads;
mod recovery;
mod refresh;
mod settings;
mod transaction_merges;
mod transactions;
mod ttl;
