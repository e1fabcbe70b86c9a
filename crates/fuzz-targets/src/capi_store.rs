//! The store's C interface with arguments that no header allows, as far as memory allows: any flags, sizes of structs,
//! lengths, names and orders of calls, and NULL wherever a pointer is. What a caller must keep (live handles, memory as
//! long as it says) is kept. No call may panic, which would be RINGDB_INTERNAL; reads give what was written last; every
//! request is answered once, or was cancelled.

mod merges;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CString, c_char, c_void};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use ringdb::fuzzing::Input;
use ringdb_c::*;

const OK: i32 = 0;
const FOUND: i32 = 1;
const INVALID: i32 = -8;
const INTERNAL: i32 = -15;
const WOULD_BLOCK: i32 = -12;

/// More bytes than any struct of options may claim to have.
type Struct = [u64; 520];

/// What a key is after a write; `None`: unknown.
type What = Option<Option<Vec<u8>>>;

struct World {
    db: *mut ringdb_db,
    /// What is known of keys of the default keyspace; `None`: not there.
    known: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    _dir: tempfile::TempDir,
}

thread_local! {
    // Stores are slow to open: one lives as long as the process.
    static WORLD: RefCell<Option<World>> = const { RefCell::new(None) };
}

static CALLED: AtomicUsize = AtomicUsize::new(0);

/// The result of a call, which is never a defect.
fn checked(what: &str, code: i32) -> i32 {
    assert!(code != INTERNAL, "{what}: the library panicked");
    code
}

fn make_world() -> World {
    let shm = std::path::Path::new("/dev/shm");
    let at = if shm.is_dir() { shm.to_owned() } else { std::env::temp_dir() };
    let dir = tempfile::Builder::new().prefix("fuzz-capi-store").tempdir_in(at).expect("a directory");
    let path = CString::new(dir.path().join("db").into_os_string().into_encoded_bytes()).expect("no NUL");
    let mut db = null_mut();
    // SAFETY: live handles, strings, places.
    unsafe {
        let options = ringdb_options_new();
        ringdb_options_set_io(options, c"posix?threads=2".as_ptr(), null_mut());
        ringdb_options_set_cache_bytes(options, 4 << 20, null_mut());
        assert_eq!(ringdb_open(path.as_ptr(), options, &mut db, null_mut()), OK);
        ringdb_options_free(options);
    }
    World { db, known: BTreeMap::new(), _dir: dir }
}

/// Runs the calls that `data` describes.
pub fn capi_store(data: &[u8]) {
    WORLD.with_borrow_mut(|world| {
        let world = world.get_or_insert_with(make_world);
        CALLED.store(0, SeqCst);
        let (iter, reads, writes) = (null_mut(), null_mut(), null_mut());
        // SAFETY: makes a handle.
        let batch = ringdb_batch_new();
        let calls = Calls {
            world,
            parts: Vec::new(),
            iter,
            reads,
            writes,
            batch,
            in_batch: Vec::new(),
            floating: BTreeSet::new(),
            deleted_many: false,
            asked: 0,
        };
        calls.run(&mut Input::new(data));
    });
}

struct Calls<'a> {
    world: &'a mut World,
    /// Keyspaces and snapshots.
    parts: Vec<*mut ringdb_db>,
    iter: *mut ringdb_iter,
    reads: *mut ringdb_reads,
    writes: *mut ringdb_writes,
    batch: *mut ringdb_batch,
    in_batch: Vec<(Vec<u8>, What)>,
    /// Keys that are written to at a moment that nobody knows.
    floating: BTreeSet<Vec<u8>>,
    /// A range was deleted, at once or by a batch that is still to be written: nothing is known of any key.
    deleted_many: bool,
    /// Requests whose callback is to be called.
    asked: usize,
}

/// Bytes, and what of them is passed: sometimes NULL, or a length that cannot be.
fn passed(input: &mut Input<'_>, bytes: &[u8]) -> (*const c_void, usize) {
    match input.u8() {
        255 => (null(), bytes.len()),
        254 => (bytes.as_ptr().cast(), usize::MAX),
        253 => (null(), 0),
        _ => (bytes.as_ptr().cast(), bytes.len()),
    }
}

/// The bytes that were passed: a length of none is no bytes.
fn meant(passed: (*const c_void, usize), bytes: &[u8]) -> Vec<u8> {
    if whole(passed, bytes) { bytes.to_vec() } else { vec![] }
}

fn whole(passed: (*const c_void, usize), bytes: &[u8]) -> bool {
    passed == (bytes.as_ptr().cast(), bytes.len())
}

fn key(input: &mut Input<'_>) -> Vec<u8> {
    match input.u8() {
        n @ 0..200 => vec![n & 31; usize::from(n >> 5)],
        // About the limit.
        n => vec![n & 1; 65_530 + usize::from(n & 15)],
    }
}

fn value(input: &mut Input<'_>) -> Vec<u8> {
    let n = input.u8();
    vec![n; usize::from(n) * usize::from(input.u8() & 15)]
}

/// A struct of options, or NULL.
fn options(input: &mut Input<'_>, at: &mut Struct) -> *const Struct {
    at.fill(0);
    let size = match input.u8() {
        0 => u64::from(input.u8()) * 16,
        n @ 1..64 => u64::from(n & 7) * 8,
        _ => return null(),
    };
    let second = u64::from(input.u8() & 7);
    // A deadline is none, one that has passed, or one that is far.
    at[1] = [0, 1, 60_000_000][usize::from(input.u8() % 3)];
    at[0] = size | second << 32;
    at[2] = u64::from(input.u8() == 9);
    at
}

extern "C" fn got(_: *mut c_void, code: i32, value: *mut ringdb_value, err: *const ringdb_error) {
    checked("a callback", code);
    assert!(!err.is_null() && value.is_null() == (code != FOUND));
    // SAFETY: the callback's own.
    unsafe { ringdb_value_free(value) };
    CALLED.fetch_add(1, SeqCst);
}

extern "C" fn got_many(_: *mut c_void, code: i32, values: *mut ringdb_values, err: *const ringdb_error) {
    checked("a callback", code);
    assert!(!err.is_null() && values.is_null() == (code != OK));
    // SAFETY: the callback's own.
    unsafe { ringdb_values_free(values) };
    CALLED.fetch_add(1, SeqCst);
}

extern "C" fn done(_: *mut c_void, code: i32, _: *const ringdb_error) {
    checked("a callback", code);
    CALLED.fetch_add(1, SeqCst);
}

impl Calls<'_> {
    /// Some handle: mostly the store's; whether it is.
    fn part(&self, input: &mut Input<'_>) -> (*mut ringdb_db, bool) {
        match input.u8() {
            255 => (null_mut(), false),
            n if n & 1 == 1 && !self.parts.is_empty() => {
                (self.parts[usize::from(n) % self.parts.len()], false)
            }
            _ => (self.world.db, true),
        }
    }

    fn run(mut self, input: &mut Input<'_>) {
        for _ in 0..64 {
            if input.is_empty() {
                break;
            }
            match input.u8() % 18 {
                0 | 1 => self.write_one(input),
                2 | 3 => self.read_one(input),
                4 => self.read_many(input),
                5 => self.scan(input),
                6 => self.fill_batch(input),
                7 => self.write_batch(input),
                8 => self.open_part(input),
                9 => self.ask(input),
                10 => self.by_descriptor(input),
                11 => self.write_by_descriptor(input),
                12 => self.settings(input),
                13 => self.delete_many(input),
                14 => self.transact(input),
                15 | 16 => self.merges(input),
                _ => self.upkeep(input),
            }
        }
        // SAFETY: live handles or NULL, given back once.
        unsafe {
            ringdb_iter_free(self.iter);
            ringdb_reads_free(self.reads);
            ringdb_writes_free(self.writes);
            ringdb_batch_free(self.batch);
            // What was begun is written before the next input reads.
            ringdb_sync_async(self.world.db, Some(done), null_mut(), null_mut(), null_mut());
        }
        self.asked += 1;
        let start = Instant::now();
        while CALLED.load(SeqCst) < self.asked {
            assert!(start.elapsed() < Duration::from_secs(60), "a request is not answered");
            std::thread::sleep(Duration::from_micros(50));
        }
        assert_eq!(CALLED.load(SeqCst), self.asked, "answered more than once");
        // SAFETY: live handles, given back once.
        self.parts.iter().for_each(|part| unsafe { ringdb_release(*part) });
    }

    fn write_one(&mut self, input: &mut Input<'_>) {
        let ((db, own), key, value, mut s) = (self.part(input), key(input), value(input), [0; 520]);
        let (k, v, how) = (passed(input, &key), passed(input, &value), options(input, &mut s).cast());
        let put = input.u8() & 3 != 0;
        // SAFETY: a live handle or NULL; bytes as long as said, or lengths that are refused.
        let code = unsafe {
            match put {
                true => ringdb_put(db, k.0, k.1, v.0, v.1, how, null_mut()),
                false => ringdb_delete(db, k.0, k.1, how, null_mut()),
            }
        };
        // Its reason is an argument: nothing was written.
        if checked("a write", code) == INVALID {
            return;
        }
        let what = (own && code == OK).then(|| put.then(|| meant(v, &value)));
        self.learn(meant(k, &key), what, code != OK);
    }

    /// A key was written to, or may have been, or may be later.
    fn learn(&mut self, key: Vec<u8>, what: What, floating: bool) {
        if floating {
            self.floating.insert(key.clone());
        }
        match what.filter(|_| !self.deleted_many && !self.floating.contains(&key)) {
            Some(what) => drop(self.world.known.insert(key, what)),
            None => drop(self.world.known.remove(&key)),
        }
    }

    fn read_one(&mut self, input: &mut Input<'_>) {
        let ((db, own), key, mut s) = (self.part(input), key(input), [0; 520]);
        let (k, how) = (passed(input, &key), options(input, &mut s).cast());
        let (mut out, mut buffer, mut len) = (null_mut(), [0u8; 700], 0);
        let capacity = usize::from(input.u8()) * 2;
        // SAFETY: a live handle or NULL; bytes, a buffer, places.
        let (code, into) = unsafe {
            let place = if input.u8() == 255 { null_mut() } else { &raw mut out };
            let to = buffer.as_mut_ptr().cast();
            (
                checked("get", ringdb_get(db, k.0, k.1, how, place, null_mut())),
                checked("get_into", ringdb_get_into(db, k.0, k.1, how, to, capacity, &mut len, null_mut())),
            )
        };
        assert!(into < OK || len <= capacity, "{len} bytes for {capacity}");
        if own
            && code >= OK
            && whole(k, &key)
            && let Some(known) = self.world.known.get(&key)
        {
            // SAFETY: a live handle or NULL.
            let (data, n) = unsafe { (ringdb_value_data(out).cast::<u8>(), ringdb_value_len(out)) };
            // SAFETY: the value's own bytes.
            let got = (code == FOUND).then(|| unsafe { std::slice::from_raw_parts(data, n) });
            assert_eq!(got, known.as_deref());
            assert!(into < OK || got.map_or(0, <[u8]>::len) == len);
        }
        // SAFETY: a live handle or NULL, freed once.
        unsafe { ringdb_value_free(out) };
    }

    fn read_many(&mut self, input: &mut Input<'_>) {
        let (db, _) = self.part(input);
        let (keys, slices) = Self::slices(input);
        let count = match input.u8() {
            255 => usize::MAX / 8,
            _ => keys.len(),
        };
        let (mut s, mut out, mut slice) = ([0; 520], null_mut(), slices[0]);
        let how = options(input, &mut s).cast();
        let first = if count != keys.len() { null() } else { slices.as_ptr() };
        // SAFETY: a live handle or NULL; an array, or a count that is refused; places.
        unsafe {
            let code = ringdb_multi_get(db, first, count, how, &mut out, null_mut());
            checked("multi_get", code);
            assert_eq!(ringdb_values_count(out), if code == OK { count } else { 0 });
            for place in 0..=ringdb_values_count(out) {
                checked("values_get", ringdb_values_get(out, place, &mut slice));
            }
            ringdb_values_free(out);
            let asked = ringdb_multi_get_async(
                db,
                first,
                count,
                how,
                Some(got_many),
                null_mut(),
                null_mut(),
                null_mut(),
            );
            self.asked += usize::from(checked("multi_get_async", asked) == OK);
        }
    }

    /// Some keys, at least one, and slices of them, some of which lead nowhere.
    fn slices(input: &mut Input<'_>) -> (Vec<Vec<u8>>, Vec<ringdb_slice>) {
        let keys: Vec<_> = (0..=input.u8() & 7).map(|_| key(input)).collect();
        let slices =
            keys.iter().map(|k| passed(input, k)).map(|(data, len)| ringdb_slice { data, len }).collect();
        (keys, slices)
    }

    fn scan(&mut self, input: &mut Input<'_>) {
        let (db, _) = self.part(input);
        let (keys, bounds) = Self::slices(input);
        let (mut s, what) = ([0; 520], input.u8());
        let bound = |n: usize| {
            if what >> n & 1 == 0 { null() } else { bounds.get(n).map_or(null(), |b| &raw const *b) }
        };
        let how = options(input, &mut s).cast();
        // SAFETY: live handles or NULL; bytes, places; the iterator is freed once.
        unsafe {
            let mut iter = null_mut();
            let code = match what & 8 {
                0 => ringdb_range(db, bound(0), bound(1), u32::from(what >> 4), how, &mut iter, null_mut()),
                _ => ringdb_prefix(db, keys[0].as_ptr().cast(), keys[0].len(), how, &mut iter, null_mut()),
            };
            if checked("a scan", code) == OK {
                ringdb_iter_free(std::mem::replace(&mut self.iter, iter));
            }
            let mut last: Option<Vec<u8>> = None;
            let (mut slice, steps) = (bounds[0], input.u8());
            for _ in 0..steps & 15 {
                let next = if steps & 16 == 0 { ringdb_iter_next } else { ringdb_iter_next_back };
                if checked("a step", next(self.iter, &mut slice, null_mut(), null_mut())) != FOUND {
                    break;
                }
                let key = std::slice::from_raw_parts(slice.data.cast::<u8>(), slice.len).to_vec();
                assert!(last.is_none_or(|last| (last < key) == (steps & 16 == 0)), "out of order");
                last = Some(key);
            }
        }
    }

    fn fill_batch(&mut self, input: &mut Input<'_>) {
        let (mut db, mut own) = self.part(input);
        if input.u8() & 1 == 1 {
            // The default keyspace.
            (db, own) = (null_mut(), true);
        }
        let (key, value) = (key(input), value(input));
        let (k, v, put) = (passed(input, &key), passed(input, &value), input.u8() & 3 != 0);
        // SAFETY: live handles or NULL; bytes.
        let code = unsafe {
            match put {
                true => ringdb_batch_put(self.batch, db, k.0, k.1, v.0, v.1, null_mut()),
                false => ringdb_batch_delete(self.batch, db, k.0, k.1, null_mut()),
            }
        };
        if checked("a batch", code) == OK {
            let what = (own || db.is_null()).then(|| put.then(|| meant(v, &value)));
            self.in_batch.push((meant(k, &key), what));
        }
    }

    fn write_batch(&mut self, input: &mut Input<'_>) {
        let ((db, _), mut s, what) = (self.part(input), [0; 520], input.u8());
        let how = options(input, &mut s).cast();
        // SAFETY: live handles or NULL, a struct or NULL.
        let code = unsafe {
            match what & 3 {
                0 => {
                    let code = ringdb_write_async(
                        db,
                        self.batch,
                        how,
                        Some(done),
                        null_mut(),
                        null_mut(),
                        null_mut(),
                    );
                    self.asked += usize::from(code == OK);
                    code
                }
                _ => ringdb_write(db, self.batch, how, null_mut()),
            }
        };
        if checked("write", code) != INVALID {
            let at_once = code == OK && what & 3 != 0;
            for (key, value) in self.in_batch.clone() {
                self.learn(key, value.filter(|_| at_once), !at_once);
            }
        }
        if what & 4 == 0 {
            // SAFETY: a live handle.
            checked("clear", unsafe { ringdb_batch_clear(self.batch, null_mut()) });
            self.in_batch.clear();
        }
    }

    fn open_part(&mut self, input: &mut Input<'_>) {
        let ((db, _), what) = (self.part(input), input.u8());
        let name = match what >> 4 {
            0 => None,
            1 => Some(CString::default()),
            2 => CString::new(vec![b'n'; 300]).ok(),
            3 => CString::new([0xC3, 0x28]).ok(),
            4 => CString::new("default").ok(),
            n => CString::new(format!("k{}", n & 3)).ok(),
        };
        let name: *const c_char = name.as_ref().map_or(null(), |n| n.as_ptr());
        let mut out = null_mut();
        // SAFETY: live handles or NULL, strings or NULL, places.
        unsafe {
            let code = match what & 3 {
                0 => ringdb_keyspace(db, name, &mut out, null_mut()),
                1 => ringdb_existing_keyspace(db, name, &mut out, null_mut()),
                2 if what & 4 == 0 => ringdb_drop_keyspace(db, name, null_mut()),
                _ => ringdb_snapshot(db, &mut out, null_mut()),
            };
            checked("a part", code);
            if self.parts.len() >= 4 {
                ringdb_release(self.parts.swap_remove(usize::from(what) % 4));
            }
        }
        if !out.is_null() {
            self.parts.push(out);
        }
    }

    fn ask(&mut self, input: &mut Input<'_>) {
        let ((db, _), key, mut s) = (self.part(input), key(input), [0; 520]);
        let (k, how, what) = (passed(input, &key), options(input, &mut s).cast(), input.u8());
        let mut request = null_mut();
        let place = if what & 1 == 0 { null_mut() } else { &raw mut request };
        let callback: ringdb_get_callback = if what == 255 { None } else { Some(got) };
        // SAFETY: a live handle or NULL; bytes; places; the request is freed once.
        unsafe {
            let code = ringdb_get_async(db, k.0, k.1, how, callback, null_mut(), place, null_mut());
            let cancelled = what & 2 == 2 && ringdb_request_cancel(request) == 1;
            self.asked += usize::from(checked("get_async", code) == OK && !cancelled);
            ringdb_request_free(request);
        }
    }

    fn by_descriptor(&mut self, input: &mut Input<'_>) {
        let ((db, _), what, mut s) = (self.part(input), input.u8(), [0; 520]);
        let (mut fd, mut answer) = (0, std::mem::MaybeUninit::<ringdb_answer>::uninit());
        let key = key(input);
        let k = passed(input, &key);
        // SAFETY: live handles or NULL; bytes; places; handles are freed once.
        unsafe {
            match what & 7 {
                0 => {
                    let mut out = null_mut();
                    let how = options(input, &mut s).cast();
                    if checked(
                        "open",
                        ringdb_reads_open(db, usize::from(what >> 4), how, &mut out, null_mut()),
                    ) == OK
                    {
                        ringdb_reads_free(std::mem::replace(&mut self.reads, out));
                    }
                }
                1..4 => drop(checked("submit", ringdb_reads_submit(self.reads, 7, k.0, k.1, null_mut()))),
                4 => drop(checked(
                    "wait",
                    ringdb_reads_wait(self.reads, (what >> 3).into(), null_mut(), null_mut()),
                )),
                5 => drop(checked("fd", ringdb_reads_fd(self.reads, &mut fd, null_mut()))),
                _ => {
                    let place = if what == 255 { null_mut() } else { answer.as_mut_ptr() };
                    let code = checked("poll", ringdb_reads_poll(self.reads, place, null_mut()));
                    assert!(code != WOULD_BLOCK);
                    if code == FOUND {
                        let answer = answer.assume_init();
                        checked("an answer", answer.code);
                        assert!(answer.tag == 7 && answer.value.is_null() == (answer.code != FOUND));
                        ringdb_value_free(answer.value);
                    }
                }
            }
        }
    }

    fn write_by_descriptor(&mut self, input: &mut Input<'_>) {
        let ((db, _), what, mut s) = (self.part(input), input.u8(), [0; 520]);
        let (mut fd, mut answer) = (0, std::mem::MaybeUninit::<ringdb_answer>::uninit());
        let how = options(input, &mut s).cast();
        // SAFETY: live handles or NULL; a struct or NULL; places; handles are freed once.
        unsafe {
            match what & 7 {
                0 => {
                    let mut out = null_mut();
                    if checked("open", ringdb_writes_open(db, usize::from(what >> 4), &mut out, null_mut()))
                        == OK
                    {
                        ringdb_writes_free(std::mem::replace(&mut self.writes, out));
                    }
                }
                1 => drop(checked("sync", ringdb_writes_sync(self.writes, 9, null_mut()))),
                2 | 3 => {
                    let code =
                        checked("submit", ringdb_writes_submit(self.writes, 9, self.batch, how, null_mut()));
                    if code == OK {
                        // When it is written, and whether, is told by its answer only.
                        self.in_batch.clone().into_iter().for_each(|(key, _)| self.learn(key, None, true));
                        checked("wait", ringdb_writes_wait(self.writes, usize::MAX, null_mut(), null_mut()));
                    }
                }
                4 => drop(checked(
                    "wait",
                    ringdb_writes_wait(self.writes, (what >> 3).into(), null_mut(), null_mut()),
                )),
                5 => drop(checked("fd", ringdb_writes_fd(self.writes, &mut fd, null_mut()))),
                _ => {
                    if checked("poll", ringdb_writes_poll(self.writes, answer.as_mut_ptr(), null_mut()))
                        == FOUND
                    {
                        let answer = answer.assume_init();
                        checked("an answer", answer.code);
                        assert!(answer.tag == 9 && answer.value.is_null());
                    }
                }
            }
        }
    }

    fn settings(&mut self, input: &mut Input<'_>) {
        let (what, n) = (input.u8(), input.u64());
        // SAFETY: a live handle or NULL, freed once.
        unsafe {
            let o = if what == 255 { null_mut() } else { ringdb_options_new() };
            let code = match what % 7 {
                0 => ringdb_options_set_cache_bytes(o, n, null_mut()),
                1 => ringdb_options_set_durability(o, n as i32, null_mut()),
                2 => ringdb_options_set_compression(o, n as i32, null_mut()),
                3 => ringdb_options_set_direct_reads(o, n as i32, null_mut()),
                4 => ringdb_options_set_io(o, c"posix?threads=\xff".as_ptr(), null_mut()),
                5 => ringdb_options_set_background_threads(o, n as usize, null_mut()),
                _ => ringdb_options_set_block_bytes(o, n as u32, null_mut()),
            };
            checked("an option", code);
            // The store is open already: it is refused, whatever the options are.
            let mut out = null_mut();
            let path = CString::new(self.world._dir.path().join("db").into_os_string().into_encoded_bytes());
            let path = path.as_ref().map_or(null(), |p| p.as_ptr());
            assert!(checked("open", ringdb_open(path, o, &mut out, null_mut())) < OK && out.is_null());
            ringdb_options_free(o);
            checked("a name", i32::from(ringdb_code_name(n as i32).is_null()));
            checked("a kind", ringdb_code_kind(n as i32));
        }
    }

    /// A range, or keys that begin alike, deleted at once or by the batch; what is there then is not known.
    fn delete_many(&mut self, input: &mut Input<'_>) {
        let ((db, _), what, mut s) = (self.part(input), input.u8(), [0; 520]);
        let (keys, bounds) = Self::slices(input);
        let bound = |n: usize| {
            if what >> n & 1 == 0 { null() } else { bounds.get(n).map_or(null(), |b| &raw const *b) }
        };
        let (prefix, how) = (&keys[0], options(input, &mut s).cast());
        // SAFETY: live handles or NULL; bytes; a struct or NULL.
        let code = unsafe {
            match what >> 2 & 3 {
                0 => ringdb_delete_range(db, bound(0), bound(1), u32::from(what >> 4), how, null_mut()),
                1 => ringdb_delete_prefix(db, prefix.as_ptr().cast(), prefix.len(), how, null_mut()),
                2 => ringdb_batch_delete_range(
                    self.batch,
                    db,
                    bound(0),
                    bound(1),
                    u32::from(what >> 4),
                    null_mut(),
                ),
                _ => ringdb_batch_delete_prefix(
                    self.batch,
                    db,
                    prefix.as_ptr().cast(),
                    prefix.len(),
                    null_mut(),
                ),
            }
        };
        if checked("deleting many", code) != INVALID {
            self.world.known.clear();
            self.in_batch.iter_mut().for_each(|(_, what)| *what = None);
            self.deleted_many = true;
        }
    }

    /// A transaction, which nobody disturbs: it sees what it writes, and commits unless an iterator of it is open.
    fn transact(&mut self, input: &mut Input<'_>) {
        let ((db, own), mut s) = (self.part(input), [0; 520]);
        let (mut tx, mut iter, mut out) = (null_mut(), null_mut::<ringdb_iter>(), null_mut());
        // Nothing that was begun before may still be written.
        let quiet = own && self.floating.is_empty() && self.asked == 0 && self.writes.is_null();
        // SAFETY: live handles or NULL; bytes; places; all is freed once, the iterator before or after its transaction.
        unsafe {
            checked("begin", ringdb_transaction_begin(db, &mut tx, null_mut()));
            for _ in 0..input.u8() & 7 {
                let (key, value, what) = (key(input), value(input), input.u8());
                let (k, v) = (passed(input, &key), passed(input, &value));
                let code = match what & 3 {
                    0 => ringdb_transaction_delete(tx, null(), k.0, k.1, null_mut()),
                    1 if iter.is_null() => ringdb_transaction_range(
                        tx,
                        null(),
                        null(),
                        null(),
                        u32::from(what >> 6),
                        &mut iter,
                        null_mut(),
                    ),
                    1 => ringdb_iter_next(iter, null_mut(), null_mut(), null_mut()),
                    _ => ringdb_transaction_put(tx, null(), k.0, k.1, v.0, v.1, null_mut()),
                };
                checked("a step of a transaction", code);
                if code == OK && what & 3 != 1 {
                    let key = meant(k, &key);
                    let got = ringdb_transaction_get(
                        tx,
                        null(),
                        key.as_ptr().cast(),
                        key.len(),
                        &mut out,
                        null_mut(),
                    );
                    assert_eq!(got, i32::from(what & 3 != 0), "a transaction does not see what it has done");
                    ringdb_value_free(std::mem::replace(&mut out, null_mut()));
                    // Whether it will be there is not known; nor whose keyspace it is.
                    self.learn(key, None, true);
                }
            }
            let (how, what) = (options(input, &mut s).cast(), input.u8());
            if what & 1 == 0 {
                ringdb_iter_free(std::mem::replace(&mut iter, null_mut()));
            }
            let code = checked("commit", ringdb_transaction_commit(tx, how, null_mut()));
            assert!(code == OK || !quiet || !iter.is_null() || !how.is_null(), "a commit fails with {code}");
            ringdb_transaction_free(tx);
            ringdb_iter_free(iter);
        }
    }

    fn upkeep(&mut self, input: &mut Input<'_>) {
        let ((db, _), what, mut out) = (self.part(input), input.u8(), null_mut());
        // SAFETY: a live handle or NULL; places; the text is freed once.
        unsafe {
            let code = match what {
                0..4 => ringdb_flush(db, null_mut()),
                4..6 => ringdb_compact(db, null(), null(), what.into(), null_mut()),
                6..40 => ringdb_stats(db, &mut out, null_mut()),
                40..70 => ringdb_sync(db, null_mut()),
                70..100 => ringdb_keyspace_name(db, &mut out, null_mut()),
                100..110 => ringdb_verify(null(), &mut out, null_mut()),
                _ => ringdb_checkpoint(db, c"".as_ptr(), null_mut()),
            };
            checked("upkeep", code);
            ringdb_value_free(out);
        }
    }
}
