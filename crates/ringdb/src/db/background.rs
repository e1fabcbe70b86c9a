//! Background work and those who wait for it: flushes and compactions, the log's segments, and the end of it all.

use crate::sync::atomic::AtomicBool;
use std::ops::Bound;
use std::sync::Arc;

use super::core::Core;
use super::keyspaces::KeyspaceState;
use super::log_keeper::KEEP_SPARE;
use super::write::WriteSide;
use crate::Result;
use crate::compaction::flush::flush;
use crate::env::Join;
use crate::events::Event;
use crate::key::{self, KeyBuf};

impl WriteSide {
    /// Flushes what was replayed, before any thread runs.
    pub(super) fn flush_recovered(&self) -> Result<()> {
        let never = AtomicBool::new(false);
        while flush(&*self.compaction, &never)?.is_some() {}
        Ok(())
    }
}

impl Core {
    /// Starts the threads of a store opened for writing.
    pub fn start_threads(self: &Arc<Core>, threads: &mut Vec<Join>) -> Result<()> {
        let Some(w) = &self.write_side else { return Ok(()) };
        w.scheduler.start(&w.compaction, threads)?;
        let w = w.clone();
        // Of a failure to prepare a segment that lasts the writer learns when it needs one, and can tell somebody. One
        // to note anything, or to sync the directory, stops the store.
        let keep_log = move || {
            let (prepare, note) = (|| drop(w.log.prepare()), || drop(w.versions.note_log()));
            w.log_keeper.run(prepare, note, KEEP_SPARE, || w.log.remove_spare(false));
        };
        let join = self.env.spawn("ringdb-log", true, Box::new(keep_log));
        threads.push(join.map_err(|e| engineswap::Error::from_std("start a background thread", &e))?);
        Ok(())
    }

    /// See [`crate::Db::flush`].
    pub fn flush(&self) -> Result<()> {
        self.write_side()?.flush()
    }

    /// Waits for the thread that prepares log segments.
    pub fn wait_prepared(&self) -> Result<()> {
        let w = self.write_side()?;
        self.check_open()?;
        w.log_keeper.wait();
        Ok(())
    }

    /// See [`crate::Db::wait_idle`].
    pub fn wait_idle(&self) -> Result<()> {
        self.wait_prepared()?;
        let w = self.write_side()?;
        w.scheduler.wait_idle(&*w.compaction)
    }

    /// See [`crate::Db::compact_range`].
    pub fn compact_range(&self, keyspace: &KeyspaceState, range: (Bound<&[u8]>, Bound<&[u8]>)) -> Result<()> {
        let w = self.write_side()?;
        self.health.check_writable()?;
        keyspace.check()?;
        self.flush()?;
        let seq = self.views.visible();
        let internal = |k: &[u8]| KeyBuf::new(&keyspace.prefix, k).as_slice().to_vec();
        let (first, after) = key::bounds_of(keyspace.id);
        let from = match range.0 {
            Bound::Included(k) | Bound::Excluded(k) => internal(k),
            Bound::Unbounded => first,
        };
        // Ends included: a key too much does no harm.
        let to = match range.1 {
            Bound::Included(k) | Bound::Excluded(k) => internal(k),
            Bound::Unbounded => after,
        };
        if from > to {
            return Ok(());
        }
        w.scheduler.compact_range(&from, Some(&to), seq, false)?;
        // Everything else is done.
        let last_too = matches!(range.1, Bound::Included(_));
        self.quarantine.damage_within(&from, &to, last_too).map_or(Ok(()), Err)
    }

    /// See [`crate::Db::rewrite`].
    pub fn rewrite(&self) -> Result<()> {
        let w = self.write_side()?;
        self.health.check_writable()?;
        self.flush()?;
        w.scheduler.compact_range(&[], None, self.views.visible(), true)?;
        let (first, last) = (key::bounds_of(0).0, key::bounds_of(u32::MAX - 1).1);
        self.quarantine.damage_within(&first, &last, true).map_or(Ok(()), Err)
    }

    /// Ends the threads and gives up the lock. Nothing is flushed. Every call fails from then on.
    pub fn shut_down(&self, threads: Vec<Join>) -> Result<()> {
        if !self.health.close() {
            return Ok(());
        }
        #[cfg(feature = "socket")]
        self.stop_serving();
        self.committer.begin_close();
        self.reactor.close();
        let closed = || Event::Closed { directory: self.dir.clone() };
        let Some(w) = &self.write_side else {
            self.events.tell(closed);
            return Ok(());
        };
        // Whoever commits, or makes or drops a keyspace, finishes first.
        w.commits.wait_for_leaders();
        drop(w.versions.lock());
        w.scheduler.close();
        w.log_keeper.close();
        self.committer.end_close();
        for join in threads {
            join();
        }
        #[cfg(feature = "socket")]
        self.end_serving();
        let stopped = self.health.latch().reason();
        if stopped.is_none() {
            // What is durable stays so without these words.
            let _ = w.versions.note_end();
            // Opening the store again begins a new log.
            w.log.remove_spare(true);
        }
        w.unlock();
        w.scheduler.tell_stop(&*w.compaction);
        self.events.tell(closed);
        stopped.map_or(Ok(()), |why| Err(crate::Error::Stopped(why.into())))
    }
}
