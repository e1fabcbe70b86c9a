//! What a store takes of memory and disk stays within what was asked for.
//!
//! The stores are in child processes, in memory cgroups, so that a kill is a failure of the test.
//! `RINGDB_BUDGET_MIB` and `RINGDB_BUDGET_KEYS` set the size of the run over all workloads (`make budget`).

#![allow(clippy::unwrap_used)]

mod cgroup;
mod child;
mod large;
mod segments;
#[path = "../support/mod.rs"]
mod support;
mod watch;
mod workloads;
