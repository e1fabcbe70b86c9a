//! What each fuzz target does with its bytes: a function of bytes that panics if something does not hold which must
//! hold for all of them.
//!
//! `fuzz/` has a libFuzzer binary for each target (nightly toolchain); `tests/replay.rs` runs the corpora and all
//! inputs that once failed through the same functions on the stable toolchain.

mod capi;
mod capi_store;
mod leveldb;
mod memory;
mod sequence;
mod store;
mod uri;

use std::path::Path;

use engineswap::Io;
use ringdb::fuzzing;

pub use capi::capi;
pub use capi_store::capi_store;
pub use leveldb::leveldb;
pub use memory::Memory;
pub use sequence::sequence;
pub use store::store;
pub use uri::uri;

/// A target: its name, which is its corpus's too, and what it does.
pub type Target = (&'static str, fn(&[u8]));

/// All targets.
pub const TARGETS: [Target; 12] = [
    ("batch", fuzzing::batch),
    ("block", fuzzing::block),
    ("capi", capi),
    ("capi_store", capi_store),
    ("filter", fuzzing::filter),
    ("leveldb", leveldb),
    ("log", log),
    ("manifest", manifest),
    ("sequence", sequence),
    ("store", store),
    ("table", table),
    ("uri", uri),
];

/// Longest input that a target looks at: what a decoder may do is bounded by what it is given.
pub const MAX_INPUT_BYTES: usize = 1 << 18;

/// The most that any input may cost the thread that looks at it. Not by the clock: the machine may be busy.
const MAX_CPU_SECONDS: u64 = 10;

fn cpu_seconds() -> u64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a place for the time.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut t) };
    t.tv_sec as u64
}

/// Runs a target by its name.
pub fn run(name: &str, data: &[u8]) {
    let (_, target) = TARGETS.iter().find(|t| t.0 == name).expect("a target's name");
    let start = cpu_seconds();
    target(data);
    let spent = cpu_seconds() - start;
    assert!(spent <= MAX_CPU_SECONDS, "{spent} s for {} bytes", data.len());
}

fn on_disk(data: &[u8], run: impl FnOnce(&Io, &Path, &[u8])) {
    let dir = Path::new("/db");
    let io = Memory::with_dir(dir).io();
    run(&io, dir, &data[..data.len().min(MAX_INPUT_BYTES)]);
}

/// Segments of the log, and their replay.
pub fn log(data: &[u8]) {
    on_disk(data, fuzzing::log);
}

/// CURRENT and the manifest.
pub fn manifest(data: &[u8]) {
    on_disk(data, fuzzing::manifest);
}

/// A table: footer, index, filter, properties, blocks; then gets and scans.
pub fn table(data: &[u8]) {
    on_disk(data, fuzzing::table);
}
