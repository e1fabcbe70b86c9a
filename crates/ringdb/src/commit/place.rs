//! [`CommitQueue::place`]: a number for what comes to readers whole, neither logged nor through a memtable: ingested
//! tables. It goes alone: whoever sees its number sees every write before it, and all of it.

use super::{CommitEnv, CommitQueue, State};
use crate::key::Seq;
use crate::sync::atomic::Ordering::Relaxed;
use crate::sync::{lock, wait};
use crate::{Result, log::LogPos};

/// What is placed.
pub(crate) trait Place<E: CommitEnv> {
    /// Waits until everything up to `applied`, for which no memtable is active any more, is in tables. Under the
    /// queue's lock.
    fn flush(&mut self, applied: Seq) -> Result<()>;
    /// Puts it into the tree with the number `seq`, behind another active memtable: views from before must not get
    /// what is written later. False, and nothing, if what is in memtables has to be flushed first; not if `flushed`:
    /// nothing is. Under the queue's lock.
    fn install(&mut self, env: &E, w: &mut E::Writer, seq: Seq, flushed: bool) -> Result<bool>;
}

impl<E: CommitEnv> CommitQueue<E> {
    /// Places what lies between two internal keys, the second not included, once all writes before it are durable.
    /// Other writers wait for so long.
    pub fn place(&self, (from, to): (&[u8], &[u8]), what: &mut impl Place<E>) -> Result<()> {
        self.placing.fetch_add(1, Relaxed);
        let placed = self.place_in_turn((from, to), what);
        self.placing.fetch_sub(1, Relaxed);
        placed
    }

    /// Whether a commit may have to wait for something that is placed.
    pub fn is_placing(&self) -> bool {
        self.placing.load(Relaxed) > 0
    }

    fn place_in_turn(&self, (from, to): (&[u8], &[u8]), what: &mut impl Place<E>) -> Result<()> {
        let mut s = lock(&self.state);
        s.alone += 1;
        while s.leaders > 0 {
            s = wait(&self.idle, s, &self.state);
        }
        let placed = self.place_alone(&mut s, what);
        if let Ok(seq) = placed {
            let next = seq + 1;
            if s.recent.on() && s.recent.begin(seq, next, (from.len() + to.len()) as u64) {
                s.recent.record(seq, 0, from, to);
            }
            (s.applied, s.next_seq) = (seq, next);
            self.env.publish(seq);
        }
        s.alone -= 1;
        while s.alone == 0
            && s.leaders < self.most_leaders
            && let Some(group) = s.waiting.pop_front()
        {
            s.leaders += 1;
            group.lead();
        }
        placed.map(drop)
    }

    fn place_alone(&self, s: &mut State<E::Writer>, what: &mut impl Place<E>) -> Result<Seq> {
        self.env.check_writable()?;
        assert!(s.reserved.is_empty() && s.next_seq == s.applied + 1, "no frame is on its way");
        if s.unlogged == 0 {
            // Pipelined frames are published when they are durable.
            if s.appended > LogPos::default() {
                self.env.sync(s.appended).map_err(|e| self.env.failed(e))?;
            }
            if what.install(&self.env, &mut s.writer, s.next_seq, false)? {
                return Ok(s.next_seq);
            }
        }
        if self.env.has_writes(&s.writer) {
            self.env.switch_memtable(&mut s.writer, None, s.applied);
        }
        what.flush(s.applied)?;
        s.unlogged = 0;
        let placed = what.install(&self.env, &mut s.writer, s.next_seq, true)?;
        assert!(placed, "nothing is in memtables");
        Ok(s.next_seq)
    }
}
