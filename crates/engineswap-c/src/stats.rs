//! Counters and latencies as plain data.

use std::time::Duration;

use engineswap::{IoStats, OpClass, OpStats};

use crate::args;
use crate::engine::engineswap_engine;
use crate::result::{Fail, OK, engineswap_error, guard};

/// One kind of operation.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct engineswap_op_stats {
    ops: u64,
    bytes: u64,
    errors: u64,
    total_ns: u64,
    p50_ns: u64,
    p95_ns: u64,
    p99_ns: u64,
    p999_ns: u64,
}

/// An engine's counters.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct engineswap_stats {
    elapsed_ns: u64,
    read: engineswap_op_stats,
    write: engineswap_op_stats,
    sync: engineswap_op_stats,
    sync_range: engineswap_op_stats,
    allocate: engineswap_op_stats,
    queue_ops: u64,
    queue_time_ns: u64,
    queue_busy_ns: u64,
    submit_calls: u64,
    punted: u64,
    inline_ops: u64,
    fallbacks: u64,
    bounced: u64,
    fixed: u64,
}

fn nanos(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}

fn op_stats(s: &OpStats) -> engineswap_op_stats {
    engineswap_op_stats {
        ops: s.ops,
        bytes: s.bytes,
        errors: s.errors,
        total_ns: nanos(s.time()),
        p50_ns: nanos(s.percentile(0.5)),
        p95_ns: nanos(s.percentile(0.95)),
        p99_ns: nanos(s.percentile(0.99)),
        p999_ns: nanos(s.percentile(0.999)),
    }
}

fn of(s: &IoStats, purpose: Option<engineswap::Purpose>) -> engineswap_stats {
    let class = |c| match purpose {
        Some(p) => op_stats(s.of(c, p)),
        None => op_stats(&s.total(c)),
    };
    engineswap_stats {
        elapsed_ns: nanos(s.elapsed()),
        read: class(OpClass::Read),
        write: class(OpClass::Write),
        sync: class(OpClass::Sync),
        sync_range: class(OpClass::SyncRange),
        allocate: class(OpClass::Allocate),
        queue_ops: s.queue_ops,
        queue_time_ns: nanos(s.queue_time),
        queue_busy_ns: nanos(s.queue_busy),
        submit_calls: s.submit_calls,
        punted: s.punted,
        inline_ops: s.inline,
        fallbacks: s.fallbacks,
        bounced: s.bounced,
        fixed: s.fixed,
    }
}

/// Reads the counters.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engineswap_get_stats(
    engine: *const engineswap_engine,
    purpose: i32,
    out: *mut engineswap_stats,
    size: usize,
    err: *mut engineswap_error,
) -> i32 {
    guard(err, || {
        let out = args::out(out)?;
        // SAFETY: the header's contract.
        let engine = unsafe { args::handle(engine, "engine")? };
        let purpose = match u32::try_from(purpose) {
            Ok(p) => Some(args::purpose(p)?),
            Err(_) if purpose == -1 => None,
            Err(_) => return Err(Fail::invalid(format!("purpose {purpose}; -1 means all"))),
        };
        let stats = of(&engine.io.stats(), purpose);
        // SAFETY: the caller's struct has `size` bytes, and both structs are made of `u64` alone.
        unsafe { args::struct_of_size(out, size, &stats)? };
        Ok(OK)
    })
}
