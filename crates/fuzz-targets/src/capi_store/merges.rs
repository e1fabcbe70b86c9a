//! Merges, operators, times to live, ingests and locks, with arguments that may be anything. What is there afterwards
//! is not known.

use std::ffi::{CString, c_void};
use std::ptr::{null, null_mut};

use ringdb::fuzzing::Input;
use ringdb_c::*;

use super::{Calls, INVALID, OK, checked, key, meant, options, passed, value};

/// Settings of keyspaces, some of which cannot be. Nothing that is put expires within a run.
const SETTINGS: [&str; 8] = [
    "merge_operator = 'append:,'",
    "merge_operator = 'add'",
    "merge_operator = 'nobody'",
    "time_to_live = '9 d'",
    "time_to_live = 0",
    "block_bytes = '16 KiB'\ncompression = 'lz4'",
    "cache_bytes = 5",
    "= =",
];

/// As `ringdb_merge_operator` lies in memory.
#[repr(C)]
struct Operator {
    size: u32,
    reserved: u32,
    name: *const std::ffi::c_char,
    user: *mut c_void,
    calls: [usize; 3],
    drop: usize,
}

extern "C" fn merge(
    _: *mut c_void,
    _: ringdb_slice,
    value: *const ringdb_slice,
    _: *const ringdb_slice,
    count: usize,
    result: *mut ringdb_merge_result,
) {
    assert!(count > 0);
    // SAFETY: the result of this call; a text; or arguments that are refused.
    unsafe {
        match (value.is_null(), count & 1) {
            (true, 0) => drop(ringdb_merge_result_fail(result, c"no".as_ptr(), null_mut())),
            (true, _) => drop(ringdb_merge_result_append(result, null(), 5, null_mut())),
            (false, _) => drop(ringdb_merge_result_append(result, (*value).data, (*value).len, null_mut())),
        }
    }
}

impl Calls<'_> {
    /// One call, or a few that belong together.
    pub(super) fn merges(&mut self, input: &mut Input<'_>) {
        let (what, key, value) = (input.u8(), key(input), value(input));
        match what & 7 {
            0..=3 => self.write_in_some_way(input, what, &key, &value),
            4 => self.alter(input, what),
            5 => self.ingest(input),
            6 => self.merge_in_a_transaction(input, &key, &value),
            _ => register(input, what),
        }
    }

    fn write_in_some_way(&mut self, input: &mut Input<'_>, what: u8, bytes: &[u8], value: &[u8]) {
        let ((db, _), mut s) = (self.part(input), [0; 520]);
        let (k, v, how) = (passed(input, bytes), passed(input, value), options(input, &mut s).cast());
        let life = [0, 1, 3_600_000, u64::MAX][usize::from(input.u8() & 3)];
        // SAFETY: live handles or NULL; bytes as long as said, or lengths that are refused; a struct or NULL.
        let code = unsafe {
            match what & 3 {
                0 => ringdb_merge(db, k.0, k.1, v.0, v.1, how, null_mut()),
                1 => ringdb_put_with_ttl(db, k.0, k.1, v.0, v.1, life, how, null_mut()),
                2 => ringdb_batch_merge(self.batch, db, k.0, k.1, v.0, v.1, null_mut()),
                _ => ringdb_batch_put_with_ttl(self.batch, db, k.0, k.1, v.0, v.1, life, null_mut()),
            }
        };
        if checked("a merge", code) == INVALID {
            return;
        }
        match what & 3 {
            0 | 1 => self.learn(meant(k, bytes), None, true),
            _ => self.in_batch.push((meant(k, bytes), None)),
        }
    }

    fn alter(&mut self, input: &mut Input<'_>, what: u8) {
        let (db, _) = self.part(input);
        let toml = CString::new(SETTINGS[usize::from(what >> 5)]).expect("no NUL");
        let toml = if input.u8() == 255 { null() } else { toml.as_ptr() };
        let mut out = null_mut();
        // SAFETY: a live handle or NULL; texts or NULL; places; the text and the handle are given back once.
        unsafe {
            if what & 8 == 0 {
                checked("alter", ringdb_keyspace_alter(db, toml, null_mut()));
            } else {
                let mut part = null_mut();
                checked(
                    "keyspace_with",
                    ringdb_keyspace_with(db, c"k1".as_ptr(), toml, &mut part, null_mut()),
                );
                ringdb_release(part);
            }
            checked("settings", ringdb_keyspace_settings(db, &mut out, null_mut()));
            ringdb_value_free(out);
            checked("import", ringdb_import_tables(db, c"/nowhere/at/all".as_ptr(), null_mut(), null_mut()));
        }
    }

    fn ingest(&mut self, input: &mut Input<'_>) {
        let (db, _) = self.part(input);
        let (mut ingester, mut pairs, mut added) = (null_mut(), 0, 0);
        // SAFETY: live handles or NULL; bytes; places; the ingester is freed once.
        unsafe {
            checked("open", ringdb_ingester_open(db, &mut ingester, null_mut()));
            for _ in 0..input.u8() & 7 {
                let (key, value) = (key(input), value(input));
                let (k, v) = (passed(input, &key), passed(input, &value));
                let code = ringdb_ingester_add(ingester, k.0, k.1, v.0, v.1, null_mut());
                if checked("add", code) == OK {
                    added += 1;
                    self.learn(meant(k, &key), None, true);
                }
            }
            if input.u8() & 1 == 0 {
                let code = checked("finish", ringdb_ingester_finish(ingester, &mut pairs, null_mut()));
                assert!(code != OK || pairs == added, "{pairs} of {added} pairs");
                checked("finish", ringdb_ingester_finish(ingester, null_mut(), null_mut()));
            }
            ringdb_ingester_free(ingester);
        }
    }

    fn merge_in_a_transaction(&mut self, input: &mut Input<'_>, bytes: &[u8], value: &[u8]) {
        let (db, _) = self.part(input);
        let (mut tx, mut out) = (null_mut(), null_mut());
        let (keys, slices) = Self::slices(input);
        let (k, v) = (passed(input, bytes), passed(input, value));
        // SAFETY: live handles or NULL; bytes; places; all is freed once.
        unsafe {
            checked("begin", ringdb_transaction_begin(db, &mut tx, null_mut()));
            checked("lock", ringdb_transaction_lock(tx, null(), slices.as_ptr(), keys.len(), 1, null_mut()));
            let code = ringdb_transaction_merge(tx, null(), k.0, k.1, v.0, v.1, null_mut());
            if checked("merge", code) == OK {
                self.learn(meant(k, bytes), None, true);
                checked("get", ringdb_transaction_get(tx, null(), k.0, k.1, &mut out, null_mut()));
                ringdb_value_free(out);
            }
            checked("commit", ringdb_transaction_commit(tx, null(), null_mut()));
            ringdb_transaction_free(tx);
        }
    }
}

/// Options with an operator, which no store is opened with.
fn register(input: &mut Input<'_>, what: u8) {
    let name = CString::new(vec![b'o'; usize::from(what >> 3) * 10]).expect("no NUL");
    let operator = Operator {
        size: if input.u8() == 255 { input.u8().into() } else { 56 },
        reserved: u32::from(input.u8() == 255),
        name: if input.u8() == 255 { null() } else { name.as_ptr() },
        user: null_mut(),
        calls: [if input.u8() == 255 { 0 } else { merge as *const () as usize }, 0, 0],
        drop: 0,
    };
    let given = if input.u8() == 255 { null() } else { (&raw const operator).cast() };
    // SAFETY: a live handle, freed once; a struct of the size that it says, or a smaller one; NULL.
    unsafe {
        let o = ringdb_options_new();
        checked("register", ringdb_options_register_merge_operator(o, given, null_mut()));
        ringdb_options_free(o);
        checked("fail", ringdb_merge_result_fail(null_mut(), c"x".as_ptr(), null_mut()));
    }
}
