//! The C interface with arguments that no header allows, as far as memory allows: any kinds, flags, lengths,
//! offsets, alignments, purposes, paths and URIs, and NULL wherever a pointer is. What a caller must keep (live
//! handles, memory as long as it says) is kept. No call may panic, which would be
//! ENGINESWAP_INTERNAL; a completion names an operation that was pushed, once.

mod op;

use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::ptr::{null, null_mut};

use engineswap_c::*;
use op::{BUFFER, Memory, RawOp, as_theirs, number};
use ringdb::fuzzing::Input;

const OK: i32 = 0;
const INTERNAL: i32 = -15;
const BROKEN: i32 = -14;

struct World {
    engines: Vec<*mut engineswap_engine>,
    dir: tempfile::TempDir,
}

thread_local! {
    // Rings are slow to make: the engines live as long as the process.
    static WORLD: RefCell<Option<World>> = const { RefCell::new(None) };
}

/// The result of a call, which is never a defect.
fn checked(what: &str, code: i32) -> i32 {
    assert!(code != INTERNAL, "{what}: the library panicked");
    code
}

fn make_world() -> World {
    let mut engines = Vec::new();
    for uri in [c"posix?threads=2", c"io_uring?depth=8", c"libaio?depth=8"] {
        let mut engine = null_mut();
        // SAFETY: a string, a place for the handle, no place for the error.
        if checked("open", unsafe { engineswap_open(uri.as_ptr(), &mut engine, null_mut()) }) == OK {
            engines.push(engine);
        }
    }
    let shm = std::path::Path::new("/dev/shm");
    let at = if shm.is_dir() { shm.to_owned() } else { std::env::temp_dir() };
    let dir = tempfile::Builder::new().prefix("fuzz-capi").tempdir_in(at).expect("a directory");
    World { engines, dir }
}

/// An error struct, or NULL.
struct Errors(Box<std::mem::MaybeUninit<engineswap_error>>);

impl Errors {
    fn place(&mut self, input: &mut Input<'_>) -> *mut engineswap_error {
        if input.u8() & 7 == 0 { null_mut() } else { self.0.as_mut_ptr() }
    }
}

/// Runs the calls that `data` describes.
pub fn capi(data: &[u8]) {
    WORLD.with_borrow_mut(|world| {
        let world = world.get_or_insert_with(make_world);
        let mut input = Input::new(data);
        let engine = world.engines[usize::from(input.u8()) % world.engines.len()];
        Calls::new(engine, world.dir.path()).run(&mut input);
    });
}

struct Calls {
    engine: *mut engineswap_engine,
    dir: std::path::PathBuf,
    files: Vec<*mut engineswap_file>,
    queue: *mut engineswap_queue,
    memory: Memory,
    registrations: Vec<*mut engineswap_registration>,
    errors: Errors,
    pushed: std::collections::BTreeSet<u64>,
    next_user: u64,
}

impl Calls {
    fn new(engine: *mut engineswap_engine, dir: &std::path::Path) -> Calls {
        Calls {
            engine,
            dir: dir.into(),
            files: Vec::new(),
            queue: null_mut(),
            memory: Memory::default(),
            registrations: Vec::new(),
            errors: Errors(Box::new(std::mem::MaybeUninit::zeroed())),
            pushed: Default::default(),
            next_user: 0,
        }
    }

    fn path(&self, input: &mut Input<'_>) -> Option<CString> {
        let name = match input.u8() & 15 {
            0 => return None,
            1 => return Some(CString::default()),
            2 => "x".repeat(300),
            3 => "no/such".to_owned(),
            4 => ".".to_owned(),
            n => format!("f{}", n & 3),
        };
        CString::new(self.dir.join(name).into_os_string().into_encoded_bytes()).ok()
    }

    /// The operation's file: an open one, or NULL.
    fn file(&self, input: &mut Input<'_>) -> *mut engineswap_file {
        let n = usize::from(input.u8());
        if self.files.is_empty() || n == 255 { null_mut() } else { self.files[n % self.files.len()] }
    }

    /// An operation on some file, and how many bytes it can transfer.
    fn op(&mut self, input: &mut Input<'_>) -> (RawOp, u64) {
        let file = self.file(input);
        self.next_user += 1;
        op::op(input, file, self.next_user, &mut self.memory)
    }

    fn run(mut self, input: &mut Input<'_>) {
        for _ in 0..64 {
            if input.is_empty() {
                break;
            }
            match input.u8() % 17 {
                0 | 1 => self.open_file(input),
                2 => self.close_file(input),
                3 => self.lone(input),
                4 => self.sync_dir(input),
                5 => self.run_batch(input),
                6 => self.open_queue(input),
                7 | 8 => self.push(input),
                9 => self.cancel(input),
                10 => self.take(input),
                11 => {
                    let err = self.errors.place(input);
                    // SAFETY: a live handle or NULL.
                    checked("submit", unsafe { engineswap_queue_submit(self.queue, err) });
                }
                12 => {
                    let (min, err) = (usize::from(input.u8()), self.errors.place(input));
                    // SAFETY: as above.
                    checked("wait", unsafe { engineswap_queue_wait(self.queue, min, err) });
                }
                13 => self.pop(input),
                14 if input.u8() & 3 == 0 => self.open_engine(input),
                14 => self.push_many(input),
                15 => self.close_queue(),
                _ => self.registered(input),
            }
        }
        // While the queue still has operations, now and then.
        if input.u8() & 1 == 0 {
            self.unregister_all();
        }
        self.close_queue();
        self.unregister_all();
        for f in std::mem::take(&mut self.files) {
            // SAFETY: a live handle, closed once.
            unsafe { engineswap_file_close(f) };
        }
        for entry in std::fs::read_dir(&self.dir).into_iter().flatten().flatten() {
            let path = entry.path();
            let _ = std::fs::remove_file(&path).or_else(|_| std::fs::remove_dir_all(&path));
        }
    }

    fn open_file(&mut self, input: &mut Input<'_>) {
        let path = self.path(input);
        let path: *const c_char = path.as_ref().map_or(null(), |p| p.as_ptr());
        let flags = input.u8();
        let flags = if flags & 0xC0 == 0xC0 { u32::from(flags) << 8 } else { u32::from(flags) };
        let err = self.errors.place(input);
        let mut file = null_mut();
        // SAFETY: a live engine, a string or NULL, a place for the handle.
        let code = unsafe { engineswap_file_open(self.engine, path, flags, &mut file, err) };
        if checked("file_open", code) == OK && self.files.len() < 8 {
            self.files.push(file);
        } else if code == OK {
            // SAFETY: a live handle, closed once.
            unsafe { engineswap_file_close(file) };
        }
    }

    fn close_file(&mut self, input: &mut Input<'_>) {
        if self.files.is_empty() {
            return;
        }
        let at = usize::from(input.u8()) % self.files.len();
        // SAFETY: a live handle, closed once; operations in flight keep the file.
        unsafe { engineswap_file_close(self.files.swap_remove(at)) };
    }

    fn lone(&mut self, input: &mut Input<'_>) {
        let file = self.file(input);
        let (what, offset, len) = (input.u8() % 8, number(input), number(input));
        let purpose = u32::from(input.u8() & 31);
        let mut memory = vec![0u8; BUFFER];
        let small = len as usize % BUFFER;
        let err = self.errors.place(input);
        let mut done = 0usize;
        let mut out = 0u64;
        // SAFETY: live handles or NULL; `memory` has at least `small` bytes.
        let code = unsafe {
            match what {
                0 => engineswap_file_read(
                    file,
                    memory.as_mut_ptr().cast(),
                    small,
                    offset,
                    purpose,
                    &mut done,
                    err,
                ),
                1 => engineswap_file_write(file, memory.as_ptr().cast(), small, offset, purpose, err),
                2 => engineswap_file_write_dsync(file, memory.as_ptr().cast(), small, offset, purpose, err),
                3 => engineswap_file_sync_data(file, purpose, err),
                4 => engineswap_file_sync_all(file, purpose, err),
                5 => engineswap_file_set_len(file, len, err),
                6 => engineswap_file_start_write_back(file, offset, len, purpose & 3, purpose, err),
                _ => engineswap_file_len(file, &mut out, err),
            }
        };
        checked("a lone operation", code);
        assert!(done <= small, "more than was asked for");
    }

    fn sync_dir(&mut self, input: &mut Input<'_>) {
        let path = self.path(input);
        let err = self.errors.place(input);
        // SAFETY: a live engine, a string or NULL.
        let code =
            unsafe { engineswap_sync_dir(self.engine, path.as_ref().map_or(null(), |p| p.as_ptr()), err) };
        checked("sync_dir", code);
    }

    fn run_batch(&mut self, input: &mut Input<'_>) {
        let count = usize::from(input.u8() & 15);
        let (ops, bytes): (Vec<RawOp>, Vec<u64>) = (0..count).map(|_| self.op(input)).unzip();
        let theirs = as_theirs(&ops);
        let mut out = vec![[0u64; size_of::<engineswap_completion>() / 8]; count];
        let (ops_at, out_at) = match input.u8() & 15 {
            0 => (null(), out.as_mut_ptr()),
            1 => (theirs.as_ptr(), null_mut()),
            _ => (theirs.as_ptr(), out.as_mut_ptr()),
        };
        let err = self.errors.place(input);
        // SAFETY: arrays of `count`, or NULL; live files or NULL; memory as long as the operations say.
        let code = unsafe { engineswap_run(self.engine, ops_at.cast(), count, out_at.cast(), err) };
        checked("run", code);
        if code == OK {
            for ((op, bytes), c) in ops.iter().zip(bytes).zip(&out) {
                assert_eq!(c[0], op.user);
                assert!(c[1] <= bytes, "{} bytes of {bytes}", c[1]);
            }
        }
    }

    fn open_queue(&mut self, input: &mut Input<'_>) {
        self.close_queue();
        let depth = match input.u8() {
            0 => 0,
            255 => u32::MAX,
            n => u32::from(n & 15) + 1,
        };
        let flags = match input.u8() {
            255 => 1 << 31,
            // Shared, or the calling thread's own.
            n => u32::from(n & 1),
        };
        let err = self.errors.place(input);
        // SAFETY: a live engine, a place for the handle.
        let code = unsafe { engineswap_queue_open(self.engine, depth, flags, &mut self.queue, err) };
        if checked("queue_open", code) != OK {
            self.queue = null_mut();
        }
    }

    fn push(&mut self, input: &mut Input<'_>) {
        let (op, _) = self.op(input);
        let user = op.user;
        let theirs = as_theirs(&[op]);
        let err = self.errors.place(input);
        let at = if input.u8() == 255 { null() } else { theirs.as_ptr() };
        // SAFETY: a live queue or NULL, an operation or NULL; its memory lives until the queue is closed.
        if checked("push", unsafe { engineswap_queue_push(self.queue, at.cast(), err) }) == OK {
            self.pushed.insert(user);
        }
    }

    fn push_many(&mut self, input: &mut Input<'_>) {
        let count = usize::from(input.u8() & 7);
        let (ops, _): (Vec<RawOp>, Vec<u64>) = (0..count).map(|_| self.op(input)).unzip();
        let theirs = as_theirs(&ops);
        let err = self.errors.place(input);
        // SAFETY: a live queue or NULL, an array of `count`; its memory lives until the queue is closed.
        let code = unsafe { engineswap_queue_push_many(self.queue, theirs.as_ptr().cast(), count, err) };
        if checked("push_many", code) == OK {
            self.pushed.extend(ops.iter().map(|op| op.user));
        }
    }

    /// Takes an operation back, perhaps one that never was.
    fn cancel(&mut self, input: &mut Input<'_>) {
        let user = self.next_user.saturating_sub(u64::from(input.u8() & 7));
        let err = self.errors.place(input);
        // SAFETY: a live queue or NULL.
        let found = checked("cancel", unsafe { engineswap_queue_cancel(self.queue, user, err) });
        assert!(found <= i32::from(self.pushed.contains(&user)), "{found} operations of this tag");
    }

    /// Waits for a certain operation.
    fn take(&mut self, input: &mut Input<'_>) {
        let user = self.next_user.saturating_sub(u64::from(input.u8() & 7));
        let mut out = [0u64; size_of::<engineswap_completion>() / 8];
        let err = self.errors.place(input);
        // SAFETY: a live queue or NULL, a place.
        let n = unsafe { engineswap_queue_take(self.queue, user, out.as_mut_ptr().cast(), err) };
        if checked("take", n) == 1 {
            assert!(out[0] == user && self.pushed.remove(&user), "operation {} for {user}", out[0]);
        }
    }

    fn pop(&mut self, input: &mut Input<'_>) {
        let mut out = [0u64; size_of::<engineswap_completion>() / 8];
        let err = self.errors.place(input);
        let place = if input.u8() == 255 { null_mut() } else { out.as_mut_ptr() };
        // SAFETY: a live queue or NULL, a place or NULL.
        let n = unsafe { engineswap_queue_pop(self.queue, place.cast(), err) };
        if checked("pop", n) == 1 {
            assert!(self.pushed.remove(&out[0]), "a completion of operation {}", out[0]);
        }
        // SAFETY: a live queue or NULL.
        assert!(unsafe { engineswap_queue_in_flight(self.queue) } <= self.pushed.len());
    }

    fn close_queue(&mut self) {
        let queue = std::mem::replace(&mut self.queue, null_mut());
        // SAFETY: a live queue or NULL, closed once.
        let code = unsafe { engineswap_queue_close(queue, null_mut()) };
        checked("queue_close", code);
        self.pushed.clear();
        if code == BROKEN {
            // The kernel may still write to it.
            std::mem::forget(std::mem::take(&mut self.memory));
        } else {
            self.memory.clear();
        }
    }

    /// Registers a part of the arena, asks after it, or takes it out, whatever is in flight.
    fn registered(&mut self, input: &mut Input<'_>) {
        let what = input.u8();
        let (at, len) = self.memory.part(input);
        let err = self.errors.place(input);
        let which = usize::from(what >> 2) % self.registrations.len().max(1);
        let one = self.registrations.get(which).copied().unwrap_or(null_mut());
        match what & 3 {
            0 | 1 if self.registrations.len() < 4 => {
                let mut out = null_mut();
                let place = if what == 252 { null_mut() } else { &raw mut out };
                // SAFETY: a live engine, memory that stays until it is taken out, a place or NULL.
                let code = unsafe { engineswap_register_buffer(self.engine, at, len, place, err) };
                if checked("register_buffer", code) == OK {
                    self.registrations.push(out);
                }
            }
            // SAFETY: a live handle or NULL.
            2 => unsafe {
                engineswap_registration_refusal(one);
            },
            _ if !one.is_null() => {
                self.registrations.swap_remove(which);
                // SAFETY: a live handle, closed once.
                unsafe { engineswap_unregister(one) };
            }
            _ => {}
        }
    }

    fn unregister_all(&mut self) {
        for one in self.registrations.drain(..) {
            // SAFETY: a live handle, closed once.
            unsafe { engineswap_unregister(one) };
        }
    }

    fn open_engine(&mut self, input: &mut Input<'_>) {
        let n = usize::from(input.u8() & 31);
        let text = input.take(n);
        let uri = CString::new(text.iter().copied().filter(|b| *b != 0).collect::<Vec<u8>>());
        let uri = if text.first() == Some(&0) { None } else { uri.ok() };
        let mut engine = null_mut();
        let err = self.errors.place(input);
        // SAFETY: a string or NULL, a place for the handle.
        let code = unsafe { engineswap_open(uri.as_ref().map_or(null(), |u| u.as_ptr()), &mut engine, err) };
        if checked("open", code) == OK {
            // SAFETY: a live handle, closed once.
            unsafe {
                assert!(!engineswap_engine_uri(engine).is_null());
                engineswap_close(engine);
            }
        }
    }
}
