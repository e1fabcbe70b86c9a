//! The corpora, and every input that once failed, through the fuzz targets on the stable toolchain; and some random
//! changes of them, so that the targets themselves are known to work.

use std::fs;
use std::path::PathBuf;
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

#[test]
fn what_once_failed_does_not_fail() {
    for (name, _) in TARGETS {
        for (path, bytes) in inputs("regressions", name) {
            println!("{name}: {}", path.display());
            run(name, &bytes);
        }
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
