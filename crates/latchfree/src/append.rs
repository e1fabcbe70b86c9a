//! [`AppendArena`]: append-only memory with one writer and any number of readers.
//!
//! Memory comes in chunks that never move and live as long as the arena. What has been appended never changes; a
//! read is checked against what has been published, so any position is safe to ask for.

use crate::prefetch::hint;
use engineswap::mem::Pages;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::*};
use std::sync::{Arc, OnceLock};

/// Bytes of a chunk: one huge page, or less if less is asked for. What does not fit has a chunk of its own.
const CHUNK: usize = if cfg!(miri) { 16 << 10 } else { 2 << 20 };
/// Chunks in the first segment of the chunk table; each further one has twice as many.
const FIRST: usize = 32;
const SEGMENTS: usize = 26;
/// Positions are multiples of this, so records start aligned.
const ALIGN: usize = 8;

/// Where something starts in an [`AppendArena`]: chunk in the upper half, offset in the lower. Never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ArenaPos(pub u64);

#[repr(align(64))]
struct Chunk {
    pages: Pages,
    /// Bytes that may be read. Only grows.
    published: AtomicUsize,
}

/// The readers' side.
pub struct AppendArena {
    /// Segment s has FIRST << s chunks. A table that never moves, read without locks.
    segments: [OnceLock<Box<[OnceLock<Chunk>]>>; SEGMENTS],
    /// Bytes of a chunk.
    chunk_bytes: usize,
    bytes: AtomicU64,
    reserved: AtomicU64,
}

/// The writer's side: there is one for an arena.
pub struct ArenaWriter {
    arena: Arc<AppendArena>,
    /// The chunk that is being filled, and how much of it is.
    chunk: u32,
    used: usize,
    chunks: u32,
}

/// Segment and index in it of chunk `i`.
#[inline(always)]
fn place(i: u32) -> (usize, usize) {
    let n = i as usize + FIRST;
    let segment = (n.ilog2() - FIRST.ilog2()) as usize;
    (segment, n - (FIRST << segment))
}

impl AppendArena {
    /// An empty arena and its only writer.
    #[allow(clippy::new_ret_no_self)]
    pub fn new() -> (Arc<AppendArena>, ArenaWriter) {
        AppendArena::with_chunks(CHUNK)
    }

    /// The same with chunks of about so many bytes, at most those of [`AppendArena::new`]: for one that stays small.
    pub fn with_chunks(chunk_bytes: usize) -> (Arc<AppendArena>, ArenaWriter) {
        let chunk_bytes = chunk_bytes.clamp(4096, CHUNK).next_multiple_of(4096);
        let arena = Arc::new(AppendArena {
            segments: std::array::from_fn(|_| OnceLock::new()),
            chunk_bytes,
            bytes: AtomicU64::new(0),
            reserved: AtomicU64::new(0),
        });
        let writer = ArenaWriter { arena: Arc::clone(&arena), chunk: u32::MAX, used: chunk_bytes, chunks: 0 };
        (arena, writer)
    }

    #[inline(always)]
    fn chunk(&self, i: u32) -> Option<&Chunk> {
        let (segment, at) = place(i);
        self.segments.get(segment)?.get()?.get(at)?.get()
    }

    /// The `len` bytes at `pos`; `None` if they have not all been published in one chunk.
    #[inline]
    pub fn get(&self, pos: ArenaPos, len: usize) -> Option<&[u8]> {
        let chunk = self.chunk((pos.0 >> 32) as u32)?;
        let offset = pos.0 as u32 as usize;
        // Acquire pairs with the writer's release: the bytes below have been written.
        if offset.checked_add(len)? > chunk.published.load(Acquire) {
            return None;
        }
        // SAFETY: `offset + len <= published <= pages.len()`, so the range is within the mapping, initialised. The one
        // writer writes only at and above `published`, which only grows, so nobody writes here any more. The chunk
        // lives as long as the arena, which is borrowed.
        Some(unsafe { std::slice::from_raw_parts(chunk.pages.base().as_ptr().add(offset), len) })
    }

    /// Everything published in the same chunk from `pos` on: one look-up for a record that tells its own length.
    #[inline]
    pub fn tail(&self, pos: ArenaPos) -> Option<&[u8]> {
        let chunk = self.chunk((pos.0 >> 32) as u32)?;
        let offset = pos.0 as u32 as usize;
        let len = chunk.published.load(Acquire).checked_sub(offset)?;
        // SAFETY: as in `get`: offset + len is what has been published.
        Some(unsafe { std::slice::from_raw_parts(chunk.pages.base().as_ptr().add(offset), len) })
    }

    /// Hints that the cache line `offset` bytes after `pos` is about to be read.
    #[inline(always)]
    pub fn prefetch(&self, pos: ArenaPos, offset: usize) {
        if let Some(chunk) = self.chunk((pos.0 >> 32) as u32) {
            hint(chunk.pages.base().as_ptr().wrapping_add(pos.0 as u32 as usize + offset));
        }
    }

    /// Bytes of a chunk that is not made for one piece.
    pub fn chunk_bytes(&self) -> usize {
        self.chunk_bytes
    }

    /// Bytes of all chunks: at most so much memory is in use.
    pub fn reserved(&self) -> u64 {
        self.reserved.load(Relaxed)
    }

    /// Bytes appended, padding included.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }
}

impl std::fmt::Debug for AppendArena {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AppendArena({} bytes)", self.bytes())
    }
}

impl ArenaWriter {
    /// The readers' side.
    pub fn arena(&self) -> &Arc<AppendArena> {
        &self.arena
    }

    /// Appends the parts back to back, publishes them, and says where they start (a multiple of 8). Together they
    /// must be shorter than 4 GiB.
    pub fn append(&mut self, parts: &[&[u8]]) -> ArenaPos {
        let len = parts.iter().fold(0usize, |n, p| n.saturating_add(p.len()));
        assert!(len < u32::MAX as usize - CHUNK, "{len} bytes in one piece");
        let room = len.next_multiple_of(ALIGN).max(ALIGN);
        let usual = self.arena.chunk_bytes;
        let (index, offset) = if room <= usual - self.used {
            (self.chunk, self.used)
        } else if room > usual / 4 {
            // A chunk of its own, so that the one being filled goes on.
            (self.add_chunk(room + ALIGN), ALIGN)
        } else {
            self.chunk = self.add_chunk(usual);
            self.used = ALIGN;
            (self.chunk, ALIGN)
        };
        if index == self.chunk {
            self.used = offset + room;
        }
        // The chunk exists: `add_chunk` made it.
        let Some(chunk) = self.arena.chunk(index) else { unreachable!("chunk {index}") };
        assert!(offset + room <= chunk.pages.len() && offset >= chunk.published.load(Relaxed));
        let mut at = offset;
        for part in parts {
            // SAFETY: at + part.len() <= offset + len <= pages.len(), checked above, so the target is within the
            // mapping; it is at or above `published`, where readers never look, and `&mut self` is the only writer;
            // `part` cannot overlap it, since no reference to unpublished memory exists.
            unsafe {
                let to = chunk.pages.base().as_ptr().add(at);
                std::ptr::copy_nonoverlapping(part.as_ptr(), to, part.len());
            }
            at += part.len();
        }
        chunk.published.store(offset + room, Release);
        self.arena.bytes.store(self.arena.bytes() + room as u64, Relaxed);
        ArenaPos((index as u64) << 32 | offset as u64)
    }

    fn add_chunk(&mut self, bytes: usize) -> u32 {
        let i = self.chunks;
        let (segment, at) = place(i);
        let Some(segment_cell) = self.arena.segments.get(segment) else { panic!("an arena of {i} chunks") };
        let table =
            segment_cell.get_or_init(|| (0..FIRST << segment).map(|_| OnceLock::new()).collect::<Box<[_]>>());
        // The first `ALIGN` bytes stay unused, so that no position is 0.
        let chunk = Chunk { pages: Pages::reserve(bytes), published: AtomicUsize::new(0) };
        self.arena.reserved.store(self.arena.reserved() + chunk.pages.len() as u64, Relaxed);
        let fresh = table[at].set(chunk).is_ok();
        assert!(fresh, "the only writer");
        self.chunks += 1;
        i
    }
}

impl std::fmt::Debug for ArenaWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ArenaWriter({:?})", self.arena)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_appended_reads_back_and_nothing_else() {
        let (arena, mut w) = AppendArena::new();
        assert_eq!(arena.get(ArenaPos(0), 0), None);
        let mut all = Vec::new();
        let mut state = 7u64;
        let rounds = if cfg!(miri) { 40..100 } else { 48..3000 };
        for i in rounds {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let len = match i % 50 {
                49 => CHUNK + 1 + i,
                48 => CHUNK / 4 - 7,
                _ => (state >> 55) as usize,
            };
            let bytes: Vec<u8> = (0..len).map(|j| (i + j) as u8).collect();
            let (a, b) = bytes.split_at(len / 3);
            let pos = w.append(&[a, b]);
            assert!(pos.0 != 0 && pos.0 % 8 == 0);
            all.push((pos, bytes));
        }
        for (pos, bytes) in &all {
            assert_eq!(arena.get(*pos, bytes.len()), Some(&bytes[..]));
            assert!(arena.tail(*pos).unwrap().starts_with(bytes));
        }
        let last = all.iter().map(|(p, _)| p.0).max().unwrap();
        assert_eq!(arena.get(ArenaPos(last), CHUNK * 2), None);
        for bad in [u64::MAX, 1 << 62, u32::MAX as u64, 5 << 32 | u32::MAX as u64] {
            assert_eq!(arena.get(ArenaPos(bad), usize::MAX), None);
            assert_eq!(arena.get(ArenaPos(bad), 1), None);
            assert_eq!(arena.tail(ArenaPos(bad)), None);
            arena.prefetch(ArenaPos(bad), 64);
        }
        assert!(arena.bytes() >= all.iter().map(|(_, b)| b.len() as u64).sum());
        assert!(arena.reserved() >= arena.bytes());
    }

    #[test]
    fn small_chunks_reserve_little() {
        let (arena, mut w) = AppendArena::with_chunks(5000);
        assert_eq!((arena.chunk_bytes(), arena.reserved()), (8192, 0));
        let small = w.append(&[&[1; 100]]);
        let large = w.append(&[&[2; 3000]]);
        assert_eq!(arena.reserved(), 8192);
        let lone = w.append(&[&[3; 20_000]]);
        assert_eq!(arena.reserved(), 8192 + 20_480);
        for (pos, byte, len) in [(small, 1, 100), (large, 2, 3000), (lone, 3, 20_000)] {
            assert_eq!(arena.get(pos, len), Some(&vec![byte; len][..]));
        }
    }

    #[test]
    fn readers_see_whole_records_while_the_writer_appends() {
        let (arena, mut w) = AppendArena::new();
        let newest = AtomicU64::new(0);
        let n = if cfg!(miri) { 300 } else { 200_000u64 };
        std::thread::scope(|s| {
            for _ in 0..2 {
                s.spawn(|| {
                    let mut seen = 0;
                    while seen < n {
                        // Relaxed on purpose: the arena itself must make this safe.
                        let pos = newest.load(Relaxed);
                        let record = (pos != 0).then(|| arena.get(ArenaPos(pos), 16)).flatten();
                        let Some(r) = record else {
                            // Not yet: also a hint to Miri to let the writer run.
                            std::hint::spin_loop();
                            continue;
                        };
                        let (a, b) = r.split_at(8);
                        let a = u64::from_le_bytes(a.try_into().unwrap());
                        assert_eq!(!a, u64::from_le_bytes(b.try_into().unwrap()));
                        assert!(a >= seen);
                        seen = a;
                    }
                });
            }
            for i in 1..=n {
                let pos = w.append(&[&i.to_le_bytes(), &(!i).to_le_bytes(), &[7; 40]]);
                newest.store(pos.0, Relaxed);
            }
        });
    }
}
