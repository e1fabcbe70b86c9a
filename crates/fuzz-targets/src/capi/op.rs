//! Operations with any fields, whose memory is as long as they say unless they must be refused.

use std::ffi::c_void;
use std::ptr::null_mut;

use engineswap_c::{engineswap_file, engineswap_op, engineswap_vector};
use ringdb::fuzzing::Input;

pub const BUFFER: usize = 16 << 10;
/// What no file system here can give, so that it takes no space.
const HUGE: u64 = 1 << 50;

/// An operation as the header lays it out; what lies behind the fields known here is zero.
#[repr(C)]
pub struct RawOp {
    kind: u32,
    flags: u32,
    file: *mut engineswap_file,
    buffer: *mut c_void,
    offset: u64,
    len: u64,
    pub user: u64,
    purpose: u32,
    time_limit_us: u32,
}

/// A piece of a vectored operation, likewise.
#[repr(C)]
pub struct RawVector {
    base: *mut c_void,
    len: usize,
}

/// The memory of operations, not touched or moved while they may be in flight.
#[derive(Default)]
pub struct Memory {
    buffers: Vec<Vec<u8>>,
    vectors: Vec<Vec<RawVector>>,
    arena: Arena,
}

/// Memory of which parts may be registered, and which operations have parts of, each its own.
struct Arena {
    memory: Vec<u8>,
    used: usize,
}

impl Default for Arena {
    fn default() -> Arena {
        Arena { memory: vec![0; 16 * BUFFER], used: 0 }
    }
}

impl Memory {
    /// Nothing is in flight any more.
    pub fn clear(&mut self) {
        self.buffers.clear();
        self.vectors.clear();
        self.arena.used = 0;
    }

    /// A part of the arena, or nothing.
    pub fn part(&mut self, input: &mut Input<'_>) -> (*mut c_void, usize) {
        let all = self.arena.memory.len();
        let at = usize::from(input.u8()) * 512 % all;
        match input.u8() {
            0 => (null_mut(), all),
            1 => (self.arena.memory[at..].as_mut_ptr().cast(), 0),
            n if n & 1 == 0 => (self.arena.memory.as_mut_ptr().cast(), all),
            n => (self.arena.memory[at..].as_mut_ptr().cast(), (usize::from(n) * 1000).min(all - at)),
        }
    }

    /// `len` bytes of the arena, if it has them left.
    fn of_arena(&mut self, len: usize, fill: u8) -> Option<*mut c_void> {
        let Arena { memory, used } = &mut self.arena;
        let bytes = memory.get_mut(*used..)?.get_mut(..len)?;
        *used += len;
        bytes.fill(fill);
        Some(bytes.as_mut_ptr().cast())
    }

    /// `len` bytes, at an odd address if `odd`.
    fn buffer(&mut self, len: usize, odd: bool, fill: u8) -> *mut c_void {
        let mut buffer = vec![fill; len + usize::from(odd)];
        // The memory stays where it is when the vector moves.
        let at = buffer[usize::from(odd)..].as_mut_ptr();
        self.buffers.push(buffer);
        at.cast()
    }

    /// An array of pieces and how many bytes they have; one may be one that must be refused.
    fn vectors(&mut self, input: &mut Input<'_>) -> (*mut c_void, u64, u64) {
        let mut total = 0;
        let mut vectors = Vec::new();
        for _ in 0..input.u8() & 7 {
            let (what, len) = (input.u8(), usize::from(input.u8()) * 17);
            vectors.push(match what {
                0 => RawVector { base: null_mut(), len: len + 1 },
                1 => RawVector { base: null_mut(), len: 0 },
                2 => RawVector { base: self.buffer(1, false, 0), len: usize::MAX - len },
                _ => {
                    total += len as u64;
                    let registered = if what & 6 == 2 { self.of_arena(len, what) } else { None };
                    RawVector {
                        base: registered.unwrap_or_else(|| self.buffer(len, what & 1 == 1, what)),
                        len,
                    }
                }
            });
        }
        let count = vectors.len() as u64;
        let at = vectors.as_mut_ptr();
        self.vectors.push(vectors);
        (at.cast(), count, total)
    }
}

/// A number of some interest.
pub fn number(input: &mut Input<'_>) -> u64 {
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

/// An operation on `file`, and how many bytes it can transfer.
pub fn op(input: &mut Input<'_>, file: *mut engineswap_file, user: u64, memory: &mut Memory) -> (RawOp, u64) {
    let (kind, flags) = (u32::from(input.u8() & 15), u32::from(input.u8()));
    let flags = if flags & 0x80 != 0 { flags << 24 | flags } else { flags & 7 };
    let (offset, mut len) = (number(input), number(input));
    if kind == 6 && len < HUGE {
        len &= 0xFFFF;
    }
    let mut bytes = len;
    let buffer = match kind {
        7 | 8 if len < HUGE => {
            let (at, count, total) = memory.vectors(input);
            (len, bytes) = (count, total);
            at
        }
        _ if len <= BUFFER as u64 && input.u8() & 7 > 0 => {
            let how = input.u8();
            let registered = if how & 6 == 2 { memory.of_arena(len as usize, user as u8) } else { None };
            registered.unwrap_or_else(|| memory.buffer(len as usize, how & 1 == 1, user as u8))
        }
        _ => {
            // Not to be refused by its length: it must be refused for its NULL.
            len = len.max(1);
            null_mut()
        }
    };
    let purpose = u32::from(input.u8() & 31);
    let limit = input.u8();
    let time_limit_us = if limit & 15 == 0 { u32::from(limit) * 10 + 1 } else { 0 };
    (RawOp { kind, flags, file, buffer, offset, len, user, purpose, time_limit_us }, bytes)
}

/// The operations as the library's own structs.
pub fn as_theirs(ops: &[RawOp]) -> Vec<u64> {
    const { assert!(size_of::<engineswap_op>().is_multiple_of(8)) };
    const { assert!(size_of::<engineswap_op>() >= size_of::<RawOp>()) };
    const { assert!(size_of::<engineswap_vector>() == size_of::<RawVector>()) };
    let words = size_of::<engineswap_op>() / 8;
    let mut out = vec![0u64; words * ops.len()];
    for (i, op) in ops.iter().enumerate() {
        // SAFETY: there is room for as many of their structs, which are no shorter; both are plain data.
        unsafe { std::ptr::copy_nonoverlapping(op, out.as_mut_ptr().add(words * i).cast(), 1) };
    }
    out
}
