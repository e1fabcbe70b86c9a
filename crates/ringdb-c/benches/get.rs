//! What a get by the C interface costs beside one by Rust's: the same keys of the same store, all in the cache, in
//! interleaved rounds, by the thread's CPU clock, as other programs may run beside it. Prints the medians, and the
//! median of the ratios with the quartiles.
#![allow(clippy::unwrap_used)]

use std::ffi::CString;
use std::hint::black_box;
use std::ptr::{null, null_mut};

use ringdb::{Db, Options};
use ringdb_c::*;

const KEYS: usize = 20_000;
const GETS: usize = 100_000;
const ROUNDS: usize = 61;

fn key(i: usize) -> String {
    format!("key{i:09}")
}

/// The thread's CPU clock.
fn cpu_ns() -> u64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a place for the time.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut t) };
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// Nanoseconds of one of `GETS` calls, on keys in an order without a pattern.
fn timed(keys: &[String], mut get: impl FnMut(&[u8]) -> usize) -> f64 {
    let (start, mut bytes, mut at) = (cpu_ns(), 0, 1usize);
    for _ in 0..GETS {
        at = at.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        bytes += get(keys[(at >> 33) % KEYS].as_bytes());
    }
    assert!(bytes >= 100 * GETS);
    (cpu_ns() - start) as f64 / GETS as f64
}

fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    of[of.len() / 2]
}

fn main() {
    if std::env::args().any(|a| a == "--test") {
        return;
    }
    for value_bytes in [100, 1000] {
        let dir = tempfile::tempdir().unwrap();
        let keys: Vec<String> = (0..KEYS).map(key).collect();
        let value = vec![b'v'; value_bytes];
        let rust = Db::open(dir.path().join("rust"), Options::default()).unwrap();
        let path = CString::new(dir.path().join("c").into_os_string().into_encoded_bytes()).unwrap();
        let mut c = null_mut();
        // SAFETY: a path, and a place for the handle.
        assert_eq!(unsafe { ringdb_open(path.as_ptr(), null(), &mut c, null_mut()) }, 0);
        for k in &keys {
            rust.put(k, &value).unwrap();
            // SAFETY: a live handle, and bytes with their lengths.
            let put = unsafe {
                ringdb_put(
                    c,
                    black_box(k).as_ptr().cast(),
                    k.len(),
                    value.as_ptr().cast(),
                    value.len(),
                    null(),
                    null_mut(),
                )
            };
            assert_eq!(put, 0);
        }
        rust.flush().unwrap();
        // SAFETY: a live handle.
        assert_eq!(unsafe { ringdb_flush(c, null_mut()) }, 0);

        let mut error = std::mem::MaybeUninit::<ringdb_error>::uninit();
        let by_rust = |k: &[u8]| rust.get(black_box(k)).unwrap().map_or(0, |v| v.len());
        let by_handle = |k: &[u8]| {
            let mut value = null_mut();
            // SAFETY: a live handle, bytes, places; the value is freed once.
            unsafe {
                ringdb_get(c, black_box(k).as_ptr().cast(), k.len(), null(), &mut value, error.as_mut_ptr());
                let len = ringdb_value_len(value);
                ringdb_value_free(value);
                len
            }
        };
        let mut buffer = vec![0u8; value_bytes];
        let into_buffer = |k: &[u8]| {
            let mut len = 0;
            // SAFETY: a live handle, bytes, a buffer with its length, a place.
            unsafe {
                ringdb_get_into(
                    c,
                    black_box(k).as_ptr().cast(),
                    k.len(),
                    null(),
                    buffer.as_mut_ptr().cast(),
                    buffer.len(),
                    &mut len,
                    null_mut(),
                );
            }
            len
        };
        measure(value_bytes, &keys, by_rust, by_handle, into_buffer);
        // SAFETY: a live handle, released once.
        unsafe { ringdb_release(c) };
    }
}

fn measure(
    value_bytes: usize,
    keys: &[String],
    mut by_rust: impl FnMut(&[u8]) -> usize,
    mut by_handle: impl FnMut(&[u8]) -> usize,
    mut into_buffer: impl FnMut(&[u8]) -> usize,
) {
    let mut rounds: [Vec<f64>; 3] = Default::default();
    for round in 0..=ROUNDS {
        let times = [timed(keys, &mut by_rust), timed(keys, &mut by_handle), timed(keys, &mut into_buffer)];
        if round > 0 {
            rounds.iter_mut().zip(times).for_each(|(all, ns)| all.push(ns));
        }
    }
    for (name, all) in ["Db::get", "ringdb_get", "ringdb_get_into"].iter().zip(&rounds) {
        let mut ratios: Vec<f64> = all.iter().zip(&rounds[0]).map(|(a, b)| a / b).collect();
        ratios.sort_by(f64::total_cmp);
        println!(
            "{value_bytes} B, {name}: {:.0} ns, ratio {:.2} ({:.2} to {:.2})",
            median(all.clone()),
            ratios[ratios.len() / 2],
            ratios[ratios.len() / 4],
            ratios[ratios.len() * 3 / 4]
        );
    }
}
