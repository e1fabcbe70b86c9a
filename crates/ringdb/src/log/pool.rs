//! The life of segments: prepared ahead of need, active, released, recycled or removed.

use std::collections::VecDeque;
use std::sync::Arc;

use super::frame::FIRST_FRAME;
use super::segment::{Maker, Segment};
use super::{Log, Medium};
use crate::error::Result;
use crate::sync::lock;

/// Segments that hold no live frame.
#[derive(Default)]
pub(super) struct Pool {
    /// Ready to be written, by rising number.
    prepared: VecDeque<Segment>,
    /// Released, waiting for a new number.
    free: Vec<Segment>,
    /// Segments being prepared at this moment, without the lock.
    preparing: usize,
}

impl Log {
    fn maker(&self) -> Maker<'_> {
        Maker {
            io: &self.io,
            dir: &self.dir,
            medium: self.options.medium,
            segment_bytes: self.options.segment_bytes,
            stamp: self.seal.as_ref().map(|seal| *seal.stamp()),
        }
    }

    /// Whether [`Log::prepare`] has something to do: worth waking a background thread.
    pub fn needs_prepare(&self) -> bool {
        let p = lock(&self.pool);
        p.prepared.len() + p.preparing < self.options.prepare_ahead
    }

    /// Makes segments ready ahead of need: recycles or zero-fills them and makes their names durable. For a
    /// background thread, after [`LogWriter::append`](super::LogWriter::append) moved on to a new segment.
    /// An error here does not stop the log; the writer will meet it if it lasts.
    pub fn prepare(&self) -> Result<()> {
        while self.needs_prepare() {
            self.prepare_one()?;
        }
        Ok(())
    }

    pub(super) fn prepare_one(&self) -> Result<()> {
        self.latch.check()?;
        let old = {
            let mut p = lock(&self.pool);
            p.preparing += 1;
            p.free.pop()
        };
        let number = (self.next_number)();
        let made = match old {
            Some(old) => self.maker().recycled(old, number, true),
            None => self.maker().filled(number),
        };
        let mut p = lock(&self.pool);
        p.preparing -= 1;
        let made = made?;
        // Several threads may prepare at once; the writer takes them by number.
        let at = p.prepared.partition_point(|s| s.number < made.number);
        p.prepared.insert(at, made);
        Ok(())
    }

    /// Makes the file of a segment and its name durable, unless they are.
    pub(super) fn settle(&self, segment: &Segment) -> Result<()> {
        if segment.is_named() { Ok(()) } else { self.maker().settle(segment) }
    }

    /// A segment with room for `need` bytes of frames, numbered above `after`; it becomes the last live one.
    pub(super) fn next_segment(&self, need: u64, after: u64) -> Result<Arc<Segment>> {
        let size = (FIRST_FRAME + need).next_multiple_of(4096);
        let segment = if size <= self.options.segment_bytes {
            match self.take(after) {
                Taken::Prepared(s) => s,
                Taken::Free(s) => self.maker().recycled(s, (self.next_number)(), false)?,
                Taken::None => self.maker().allocated((self.next_number)(), self.options.segment_bytes)?,
            }
        } else {
            self.maker().allocated((self.next_number)(), size)?
        };
        debug_assert!(segment.number > after, "file numbers rise");
        let segment = Arc::new(segment);
        lock(&self.live).push_back(segment.clone());
        Ok(segment)
    }

    fn take(&self, after: u64) -> Taken {
        let mut p = lock(&self.pool);
        while let Some(s) = p.prepared.pop_front() {
            if s.number > after {
                return Taken::Prepared(s);
            }
            // A segment made on demand has overtaken it: it needs a new number, but not while the log may be replayed
            // from before it. A live segment's name has always been its own, so that one under another name is damage.
            // Nothing is written to it until then: it needs no mapping, which would be beyond the bound of them.
            *lock(&s.map) = None;
            let mut live = lock(&self.live);
            let at = live.partition_point(|l| l.number < s.number);
            live.insert(at, Arc::new(s));
        }
        p.free.pop().map_or(Taken::None, Taken::Free)
    }

    /// Gives up all segments before `first_live`, which the manifest durably names as the log's first: nothing
    /// in them will be replayed any more. They are recycled, or removed if there are enough of them. One that
    /// cannot be removed stays until the store is opened again: that is no failure of whoever released it.
    pub fn release(&self, first_live: u64) {
        let mut released = vec![];
        {
            let mut live = lock(&self.live);
            while live.len() > 1 && live.front().is_some_and(|s| s.number < first_live) {
                released.extend(live.pop_front());
            }
        }
        let mut remove = vec![];
        {
            let mut p = lock(&self.pool);
            for s in released {
                assert!(p.free.iter().all(|free| free.number != s.number), "a segment is released once");
                if s.size == self.options.segment_bytes && p.free.len() < self.options.keep_free {
                    p.free.push(s.reborn());
                } else {
                    remove.push(s);
                }
            }
        }
        for s in remove {
            let _ = self.io.remove_file(&s.path);
        }
    }

    /// Removes the segments that wait for a new number; with `prepared`, those too that are ready to be written. A log
    /// that is written to makes others. One that cannot be removed stays until the store is opened again.
    pub fn remove_spare(&self, prepared: bool) {
        let mut spare = vec![];
        {
            let mut p = lock(&self.pool);
            spare.append(&mut p.free);
            if prepared {
                spare.extend(std::mem::take(&mut p.prepared));
            }
        }
        for s in spare {
            let _ = self.io.remove_file(&s.path);
        }
    }

    /// Bytes of all segment files, free and prepared ones included.
    pub fn bytes(&self) -> u64 {
        let p = lock(&self.pool);
        let idle: u64 = p.prepared.iter().chain(&p.free).map(|s| s.size).sum();
        drop(p);
        idle + self.live_bytes()
    }

    /// Bytes of the segments that are mapped, or may be.
    pub fn mapped_bytes(&self) -> u64 {
        let mapped = |s: &Segment| if lock(&s.map).is_some() { s.size } else { 0 };
        let prepared: u64 = lock(&self.pool).prepared.iter().map(mapped).sum();
        let live = lock(&self.live);
        // The writer has the last one's mapping.
        let usual = |s: &&Arc<Segment>| s.size == self.options.segment_bytes;
        let active = live.back().filter(usual).filter(|_| self.options.medium == Medium::Mapped);
        prepared + live.iter().map(|s| mapped(s)).sum::<u64>() + active.map_or(0, |s| s.size)
    }

    /// Bytes of the segments that a recovery would read.
    pub fn live_bytes(&self) -> u64 {
        lock(&self.live).iter().map(|s| s.size).sum()
    }

    /// The number of the first segment that has not been released.
    #[cfg(test)]
    pub fn first_live(&self) -> u64 {
        lock(&self.live).front().map_or(0, |s| s.number)
    }
}

enum Taken {
    Prepared(Segment),
    Free(Segment),
    None,
}
