//! The C interface with arguments that no header allows, as far as memory allows: any kinds, flags, lengths,
//! offsets, alignments, purposes, paths and URIs, and NULL wherever a pointer is. What a caller must keep (live
//! handles, memory as long as it says) is kept. No call may panic, which would be
//! ENGINESWAP_INTERNAL; a completion names an operation that was pushed, once.

use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::ptr::{null, null_mut};

use engineswap_c::*;
use ringdb::fuzzing::Input;

const OK: i32 = 0;
const INTERNAL: i32 = -15;
const BROKEN: i32 = -14;
const BUFFER: usize = 16 << 10;
/// What no file system here can give, so that it takes no space.
const HUGE: u64 = 1 << 50;

/// An operation as the header lays it out; what lies behind the fields known here is zero.
#[repr(C)]
struct RawOp {
    kind: u32,
    flags: u32,
    file: *mut engineswap_file,
    buffer: *mut u8,
    offset: u64,
    len: u64,
    user: u64,
    purpose: u32,
    reserved: u32,
}

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

fn number(input: &mut Input<'_>) -> u64 {
    match input.u8() & 7 {
        0 => 0,
        1 => u64::from(input.u8()),
        2 => u64::from(input.u16()),
        3 => u64::from(input.u8()) << 9,
        4 => 4096 * u64::from(input.u8() & 15),
        5 => HUGE + u64::from(input.u16()),
        6 => u64::MAX - u64::from(input.u8()),
        _ => input.u64() | HUGE,
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
    /// Memory of operations, one piece each, not touched while they are in flight.
    memory: Vec<Vec<u8>>,
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
            memory: Vec::new(),
            errors: Errors(Box::new(std::mem::MaybeUninit::zeroed())),
            pushed: Default::default(),
            next_user: 1,
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

    /// An operation: its memory is as long as it says, unless its length is one that must be refused.
    fn op(&mut self, input: &mut Input<'_>) -> RawOp {
        let (kind, flags) = (u32::from(input.u8() & 15), u32::from(input.u8()));
        let flags = if flags & 0x80 != 0 { flags << 24 | flags } else { flags & 3 };
        let file = self.file(input);
        let (offset, mut len) = (number(input), number(input));
        if kind == 6 && len < HUGE {
            len &= 0xFFFF;
        }
        let buffer = if len <= BUFFER as u64 && input.u8() & 7 > 0 {
            let shift = usize::from(input.u8() & 1);
            self.memory.push(vec![input.u8(); len as usize + shift]);
            let last = self.memory.len() - 1;
            // An odd address, perhaps.
            self.memory[last][shift..].as_mut_ptr()
        } else {
            if matches!(kind, 1 | 2) && len < HUGE {
                // Not to be refused by its length: it must be refused for its NULL.
                len = len.max(1);
            }
            null_mut()
        };
        let user = self.next_user;
        self.next_user += 1;
        RawOp {
            kind,
            flags,
            file,
            buffer,
            offset,
            len,
            user,
            purpose: u32::from(input.u8() & 31),
            reserved: u32::from(input.u8() & 15 == 0),
        }
    }

    fn run(mut self, input: &mut Input<'_>) {
        for _ in 0..64 {
            if input.is_empty() {
                break;
            }
            match input.u8() % 16 {
                0 | 1 => self.open_file(input),
                2 => self.close_file(input),
                3 => self.lone(input),
                4 => self.names(input),
                5 => self.run_batch(input),
                6 => self.open_queue(input),
                7..=10 => self.push(input),
                11 => {
                    let err = self.errors.place(input);
                    // SAFETY: a live handle or NULL.
                    checked("submit", unsafe { engineswap_queue_submit(self.queue, err) });
                    // SAFETY: as above.
                    checked("end_chain", unsafe { engineswap_queue_end_chain(self.queue, err) });
                }
                12 => {
                    let (min, err) = (usize::from(input.u8()), self.errors.place(input));
                    // SAFETY: as above.
                    checked("wait", unsafe { engineswap_queue_wait(self.queue, min, err) });
                }
                13 => self.pop(input),
                14 => self.open_engine(input),
                _ => self.close_queue(),
            }
        }
        self.close_queue();
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
        let (what, offset, len) = (input.u8() % 9, number(input), number(input));
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
                5 => engineswap_file_sync_range(file, offset, len, purpose, err),
                6 => engineswap_file_allocate(file, offset, if len < HUGE { len & 0xFFFF } else { len }, err),
                7 => engineswap_file_set_len(file, len, err),
                _ => engineswap_file_len(file, &mut out, err),
            }
        };
        checked("a lone operation", code);
        assert!(done <= small, "more than was asked for");
    }

    fn names(&mut self, input: &mut Input<'_>) {
        let (a, b) = (self.path(input), self.path(input));
        let at = |p: &Option<CString>| p.as_ref().map_or(null(), |p| p.as_ptr());
        let what = input.u8() % 8;
        let err = self.errors.place(input);
        // SAFETY: a live engine, strings or NULL; a lock is given up once.
        let code = unsafe {
            match what {
                0 => engineswap_remove_file(self.engine, at(&a), err),
                1 => engineswap_rename(self.engine, at(&a), at(&b), err),
                2 => engineswap_hard_link(self.engine, at(&a), at(&b), err),
                3 => engineswap_sync_dir(self.engine, at(&a), err),
                4 => engineswap_create_dir_all(self.engine, at(&a), err),
                5 => engineswap_remove_dir(self.engine, at(&a), err),
                6 => {
                    let mut lock = null_mut();
                    let code = engineswap_lock_file(self.engine, at(&a), &mut lock, err);
                    if code == OK {
                        engineswap_unlock(lock);
                    }
                    code
                }
                _ => {
                    let mut listing = null_mut();
                    let code = engineswap_listing_open(self.engine, at(&a), &mut listing, err);
                    if code == OK {
                        while !engineswap_listing_next(listing, null_mut()).is_null() {}
                        engineswap_listing_close(listing);
                    }
                    code
                }
            }
        };
        checked("an operation on names", code);
    }

    /// The operations as the library's own structs.
    fn as_theirs(ops: &[RawOp]) -> Vec<u64> {
        const { assert!(size_of::<engineswap_op>().is_multiple_of(8)) };
        const { assert!(size_of::<engineswap_op>() >= size_of::<RawOp>()) };
        let words = size_of::<engineswap_op>() / 8;
        let mut out = vec![0u64; words * ops.len()];
        for (i, op) in ops.iter().enumerate() {
            // SAFETY: there is room for as many of their structs, which are no shorter; both are plain data.
            unsafe { std::ptr::copy_nonoverlapping(op, out.as_mut_ptr().add(words * i).cast(), 1) };
        }
        out
    }

    fn run_batch(&mut self, input: &mut Input<'_>) {
        let count = usize::from(input.u8() & 15);
        let ops: Vec<RawOp> = (0..count).map(|_| self.op(input)).collect();
        let theirs = Calls::as_theirs(&ops);
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
            for (op, c) in ops.iter().zip(&out) {
                assert_eq!(c[0], op.user);
                assert!(c[1] <= op.len, "{} bytes of {}", c[1], op.len);
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
        let flags = u32::from(input.u8() == 255) << 31;
        let err = self.errors.place(input);
        // SAFETY: a live engine, a place for the handle.
        let code = unsafe { engineswap_queue_open(self.engine, depth, flags, &mut self.queue, err) };
        if checked("queue_open", code) != OK {
            self.queue = null_mut();
        }
    }

    fn push(&mut self, input: &mut Input<'_>) {
        let op = self.op(input);
        let user = op.user;
        let theirs = Calls::as_theirs(&[op]);
        let err = self.errors.place(input);
        let at = if input.u8() == 255 { null() } else { theirs.as_ptr() };
        // SAFETY: a live queue or NULL, an operation or NULL; its memory lives until the queue is closed.
        if checked("push", unsafe { engineswap_queue_push(self.queue, at.cast(), err) }) == OK {
            self.pushed.insert(user);
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
