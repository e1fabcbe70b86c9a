//! The corpora, and every input that once failed, through the fuzz targets on the stable toolchain; and some random
//! changes of them, so that the targets themselves are known to work.

use std::alloc::{GlobalAlloc, Layout, System};
use std::fs;
use std::path::PathBuf;
use std::ptr::null_mut;
use std::time::{Duration, Instant};

use fuzz_targets::{TARGETS, run};

fn inputs(kind: &str, target: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz").join(kind).join(target);
    let mut files: Vec<PathBuf> = match fs::read_dir(&dir) {
        Ok(entries) => entries.map(|e| e.expect("entry").path()).collect(),
        Err(_) => vec![],
    };
    files.sort();
    files.into_iter().map(|p| (p.clone(), fs::read(&p).expect("read"))).collect()
}

/// splitmix64.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

fn mutate(bytes: &mut Vec<u8>, state: &mut u64) {
    for _ in 0..1 + next(state) % 4 {
        let at = next(state) as usize % (bytes.len() + 1);
        match next(state) % 5 {
            0 if at < bytes.len() => bytes[at] ^= 1 << (next(state) % 8),
            1 if at < bytes.len() => bytes[at] = [0, 1, 0x7F, 0x80, 0xFF][next(state) as usize % 5],
            2 => bytes.truncate(at),
            3 => bytes.insert(at, next(state) as u8),
            _ if at < bytes.len() => {
                bytes.remove(at);
            }
            _ => {}
        }
    }
}

/// The most that one allocation may be, as `tools/fuzz` has it.
const MAX_ALLOCATION: usize = 512 << 20;

/// The system's allocator, up to that size: what asks for more ends the test.
struct Bounded;

#[global_allocator]
static BOUNDED: Bounded = Bounded;

// SAFETY: every call is passed on as it is, or fails.
unsafe impl GlobalAlloc for Bounded {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.size() > MAX_ALLOCATION {
            return null_mut();
        }
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if layout.size() > MAX_ALLOCATION {
            return null_mut();
        }
        // SAFETY: the caller's promise.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, p: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if size > MAX_ALLOCATION {
            return null_mut();
        }
        // SAFETY: the caller's promise.
        unsafe { System.realloc(p, layout, size) }
    }

    unsafe fn dealloc(&self, p: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(p, layout) }
    }
}

#[test]
fn what_once_failed_does_not_fail() {
    let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/regressions");
    for target in fs::read_dir(&dir).expect("fuzz/regressions").map(|e| e.expect("entry").file_name()) {
        assert!(TARGETS.iter().any(|t| *t.0 == *target), "fuzz/regressions/{target:?} is of no target");
    }
    let mut found = Vec::new();
    for (name, _) in TARGETS {
        for (path, bytes) in inputs("regressions", name) {
            println!("{name}: {}", path.display());
            run(name, &bytes);
            found.push(name);
        }
    }
    for needed in ["manifest", "store", "table"] {
        assert!(
            found.contains(&needed),
            "fuzz/regressions/{needed} is empty: its inputs failed once, and are kept"
        );
    }
}

#[test]
fn every_target_has_a_corpus_that_passes() {
    for (name, _) in TARGETS {
        let corpus = inputs("corpus", name);
        assert!(corpus.len() >= 2, "fuzz/corpus/{name} has {} inputs: `make fuzz-corpus`", corpus.len());
        let bytes: usize = corpus.iter().map(|(_, b)| b.len()).sum();
        assert!(bytes < 400_000, "fuzz/corpus/{name} has {bytes} bytes: keep it small");
        corpus.iter().for_each(|(_, bytes)| run(name, bytes));
    }
}

/// A second of each target (`RINGDB_REPLAY_SECONDS`), or of one (`RINGDB_REPLAY_TARGET`); a failure prints the input.
#[test]
fn changed_inputs_pass() {
    let seed = match std::env::var("RINGDB_SEED") {
        Ok(s) => s.parse().expect("RINGDB_SEED is a number"),
        Err(_) => std::time::UNIX_EPOCH.elapsed().expect("clock").as_nanos() as u64,
    };
    println!("RINGDB_SEED={seed}");
    let seconds =
        std::env::var("RINGDB_REPLAY_SECONDS").map_or(1, |s| s.parse().expect("a number of seconds"));
    let only = std::env::var("RINGDB_REPLAY_TARGET").ok();
    for (name, _) in TARGETS {
        if only.as_deref().is_some_and(|o| o != name) {
            continue;
        }
        let mut state = seed;
        let corpus = inputs("corpus", name);
        let (start, mut runs) = (Instant::now(), 0u32);
        // At least some of each, however slow the machine.
        while runs < 20 || start.elapsed() < Duration::from_secs(seconds) {
            let mut bytes = corpus[next(&mut state) as usize % corpus.len()].1.clone();
            mutate(&mut bytes, &mut state);
            if let Err(panic) = std::panic::catch_unwind(|| run(name, &bytes)) {
                println!("{name} fails for the input {bytes:?}");
                std::panic::resume_unwind(panic);
            }
            runs += 1;
        }
        println!("{name}: {runs} inputs");
    }
}
