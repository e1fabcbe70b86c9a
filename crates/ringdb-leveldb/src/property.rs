//! What a store says of itself, sizes of ranges, compaction.

use std::ffi::{CStr, c_char, c_int};
use std::fmt::Write;
use std::ops::Bound;

use ringdb::{Db, Stats};

use crate::args;
use crate::report::{copy_text, failed, invalid, quiet};
use crate::store::leveldb_t;

/// Levels that programs ask for, even if there are none so deep.
const LEVELS: u32 = 7;

/// A property by its name; `None` if there is none of that name.
fn property(db: &Db, name: &str) -> Option<String> {
    match name.strip_prefix("leveldb.")? {
        "stats" => Some(stats(&db.stats())),
        "sstables" => Some(tables(db)),
        "approximate-memory-usage" => Some(db.stats().memory_bytes.to_string()),
        other => {
            let level = other.strip_prefix("num-files-at-level")?;
            let level: u32 = level.parse().ok().filter(|_| level.bytes().all(|b| b.is_ascii_digit()))?;
            let levels = db.stats().levels;
            let known = level < LEVELS || levels.iter().any(|l| l.level >= level);
            let found = levels.iter().find(|l| l.level == level).map_or(0, |l| l.tables);
            known.then(|| found.to_string())
        }
    }
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// The levels, and what was written, in lines.
fn stats(s: &Stats) -> String {
    let mut text = String::from("                 Tables\nLevel  Files Size(MB)\n---------------------\n");
    for l in s.levels.iter().filter(|l| l.tables > 0) {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{:5} {:6} {:8.0}", l.level, l.tables, mib(l.bytes));
    }
    let _ = writeln!(
        text,
        "flushes {}, {:.1} MB; compactions {}, read {:.1} MB, wrote {:.1} MB; log {:.1} MB",
        s.flushes,
        mib(s.flush_written_bytes),
        s.compactions,
        mib(s.compaction_read_bytes),
        mib(s.compaction_written_bytes),
        mib(s.log_written_bytes)
    );
    for trouble in s.stopped.iter().chain(&s.background_error) {
        let _ = writeln!(text, "{trouble}");
    }
    text
}

/// The tables of each level.
fn tables(db: &Db) -> String {
    let all = db.tables();
    let deepest = all.iter().map(|t| t.level).max().unwrap_or(0).max(LEVELS - 1);
    let mut text = String::new();
    for level in 0..=deepest {
        let _ = writeln!(text, "--- level {level} ---");
        for t in all.iter().filter(|t| t.level == level) {
            let _ = writeln!(text, " {}:{}['{}' .. '{}']", t.number, t.bytes, t.from, t.to);
        }
    }
    text
}

/// A property.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_property_value(db: *mut leveldb_t, propname: *const c_char) -> *mut c_char {
    quiet(std::ptr::null_mut(), || {
        if propname.is_null() {
            return Err(invalid("the property's name is NULL"));
        }
        // SAFETY: the header's contract; the name is not NULL.
        let (db, name) = unsafe { (args::handle(db, "store")?, CStr::from_ptr(propname)) };
        match name.to_str().ok().and_then(|name| property(&db.db, name)) {
            Some(text) => copy_text(&text),
            None => Ok(std::ptr::null_mut()),
        }
    })
}

/// About how many bytes each range takes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_approximate_sizes(
    db: *mut leveldb_t,
    num_ranges: c_int,
    range_start_key: *const *const c_char,
    range_start_key_len: *const usize,
    range_limit_key: *const *const c_char,
    range_limit_key_len: *const usize,
    sizes: *mut u64,
) {
    quiet((), || {
        // SAFETY: the header's contract: `num_ranges` elements each.
        let db = unsafe { args::handle(db, "store") }?;
        for i in 0..usize::try_from(num_ranges).unwrap_or(0) {
            // SAFETY: likewise.
            unsafe {
                sizes.add(i).write(0);
                let from = args::bytes(*range_start_key.add(i), *range_start_key_len.add(i), "key")?;
                let to = args::bytes(*range_limit_key.add(i), *range_limit_key_len.add(i), "key")?;
                if from < to {
                    sizes.add(i).write(db.db.approximate_size(from..to).map_err(failed)?);
                }
            }
        }
        Ok(())
    });
}

/// An end of a range: NULL is none.
///
/// # Safety
/// The header's contract.
unsafe fn end<'a>(key: *const c_char, len: usize) -> Result<Bound<&'a [u8]>, c_abi::Fail> {
    match key.is_null() {
        true => Ok(Bound::Unbounded),
        // SAFETY: the caller's promise.
        false => Ok(Bound::Included(unsafe { args::bytes(key, len, "key") }?)),
    }
}

/// Compacts a range.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_compact_range(
    db: *mut leveldb_t,
    start_key: *const c_char,
    start_key_len: usize,
    limit_key: *const c_char,
    limit_key_len: usize,
) {
    quiet((), || {
        // SAFETY: the header's contract.
        let (db, from, to) = unsafe {
            (args::handle(db, "store")?, end(start_key, start_key_len)?, end(limit_key, limit_key_len)?)
        };
        db.db.compact_range((from, to)).map_err(failed)
    });
}
