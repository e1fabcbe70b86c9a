//! Reads that choose their buffers from pools: who has one, and who waits for one.

use super::{SlotTable, State};
use crate::buf::Buf;
use crate::engine::exec;
use crate::kind::OpKind;
use crate::mem::{PoolBuf, ReadPool};

impl SlotTable {
    /// The pool that a buffer for this read is still to be chosen from.
    pub(crate) fn pool(&self, i: u32) -> Option<ReadPool> {
        let s = &self.slots[i as usize];
        let op = s.op.as_ref().filter(|op| s.pooled && op.kind == OpKind::Read && op.len > 0)?;
        match &op.buf {
            Buf::Pool(pool) => Some(pool.clone()),
            _ => None,
        }
    }

    /// Sees that a read which needs a buffer of a pool has one; else it waits, and false comes back.
    pub(crate) fn choose(&mut self, i: u32) -> bool {
        if self.pool(i).is_none() {
            return true;
        }
        let chosen = self.slots[i as usize].op.as_mut().is_some_and(|op| op.buf.choose());
        if !chosen {
            self.starve(i);
        }
        chosen
    }

    pub(super) fn starve(&mut self, i: u32) {
        self.slots[i as usize].state = State::Pending;
        self.starved.push_back(i);
    }

    /// Lets reads that wait for buffers try again, as many as there are buffers; ends them if they have waited for
    /// long enough.
    pub(crate) fn feed(&mut self) {
        if self.starved.is_empty() {
            return;
        }
        self.due = true;
        let mut pools: Vec<(ReadPool, usize)> = Vec::new();
        for i in std::mem::take(&mut self.starved) {
            let Some(pool) = self.pool(i) else {
                self.pending.push_back(i);
                continue;
            };
            let k = pools.iter().position(|(p, _)| p.is(&pool)).unwrap_or_else(|| {
                let available = pool.available();
                pools.push((pool, available));
                pools.len() - 1
            });
            if pools[k].1 > 0 {
                pools[k].1 -= 1;
                self.pending.push_back(i);
            } else {
                self.starved.push_back(i);
            }
        }
        if !self.starving() {
            self.starving_since = None;
            return;
        }
        let now = self.stats.now();
        let since = *self.starving_since.get_or_insert(now);
        if now.saturating_sub(since) >= exec::NO_BUFFER.as_nanos() as u64 {
            self.starving_since = None;
            for i in std::mem::take(&mut self.starved) {
                if let Some(e) = self.slots[i as usize].op.as_ref().map(exec::no_buffer) {
                    self.finish(i, Err(e));
                }
            }
        }
    }

    /// Whether all that is left waits for buffers.
    pub(crate) fn starving(&self) -> bool {
        !self.starved.is_empty() && self.running == 0 && self.pending.is_empty() && self.ready.is_empty()
    }

    /// Waits a moment for one to come back.
    pub(crate) fn await_buffer(&self) {
        if let Some(pool) = self.starved.front().and_then(|i| self.pool(*i)) {
            pool.await_return(exec::NO_BUFFER / 20);
        }
    }

    /// Marks a running read as one whose buffer the kernel chooses.
    pub(crate) fn set_choosing(&mut self, i: u32) {
        self.slots[i as usize].choosing = true;
    }

    /// Whether the kernel chooses its buffer; not any more after this.
    pub(crate) fn was_choosing(&mut self, i: u32) -> bool {
        std::mem::take(&mut self.slots[i as usize].choosing)
    }

    /// The buffer that the kernel has chosen.
    pub(crate) fn chosen(&mut self, i: u32, buf: PoolBuf) {
        if let Some(op) = &mut self.slots[i as usize].op {
            op.buf = Buf::Pooled(buf);
        }
    }
}
