//! [`Fold`]: the operands of a key that a flush or a compaction meets become one, or with what they are merged into, a
//! value.
//!
//! Operands in one stripe (see [`super::visibility`]) are seen by the same views. With a put, a tombstone or nothing
//! below them in that stripe they become a put. If what is older lies in another stripe, or may lie deeper in the tree,
//! they become one operand. What an operator cannot do leaves them as they are: nothing is lost.

use super::CompactionEnv;
use super::output::Outputs;
use super::run::Bottom;
use super::visibility::{Fate, Stripe};
use crate::Result;
use crate::key::{Kind, Seq};
use crate::mutation::{Mutation, broken};
use crate::operator::operands::Operands;
use crate::operator::registry::Operator;

/// Operands of one key that wait for what they are merged into have at most so many bytes.
const MOST_BYTES: usize = 16 << 20;

/// The version that was come to.
pub(super) struct Met<'a> {
    pub key: &'a [u8],
    pub seq: Seq,
    pub kind: Kind,
    pub value: &'a [u8],
}

/// See the module.
#[derive(Default)]
pub(super) struct Fold {
    run: Option<Run>,
}

/// Operands of one key and one stripe.
struct Run {
    key: Vec<u8>,
    stripe: Stripe,
    /// The number of the newest, and the lowest that a value may have which comes of them all.
    newest: Seq,
    lowest: Seq,
    /// Whether nothing of the key was written.
    new_key: bool,
    operator: Option<Operator>,
    /// Newest first.
    operands: Operands,
    /// They are written as they come: too many bytes, or nobody knows what to do with them.
    passes: bool,
}

impl Run {
    fn new<T: CompactionEnv>(
        first: &Met<'_>,
        (stripe, lowest): (Stripe, Seq),
        new_key: bool,
        out: &Outputs<'_, T>,
    ) -> Run {
        let operator = out.operator(first.key);
        Run {
            key: first.key.to_vec(),
            stripe,
            newest: first.seq,
            lowest,
            new_key,
            operands: Operands::new(operator.clone(), true),
            passes: operator.is_none(),
            operator,
        }
    }

    fn push<T: CompactionEnv>(&mut self, met: &Met<'_>, out: &mut Outputs<'_, T>) -> Result<()> {
        if self.passes {
            return self.write(met.seq, Kind::Merge, met.value, out);
        }
        self.operands.push_numbered(&self.key, met.seq, met.value);
        if self.operands.bytes() > MOST_BYTES {
            self.write_operands(out)?;
            self.passes = true;
        }
        Ok(())
    }

    fn write<T: CompactionEnv>(
        &mut self,
        seq: Seq,
        kind: Kind,
        value: &[u8],
        out: &mut Outputs<'_, T>,
    ) -> Result<()> {
        out.add(&self.key, seq, kind, value, std::mem::take(&mut self.new_key))
    }

    fn write_operands<T: CompactionEnv>(&mut self, out: &mut Outputs<'_, T>) -> Result<()> {
        let none = Operands::new(self.operator.clone(), true);
        for (seq, operand) in std::mem::replace(&mut self.operands, none).iter() {
            self.write(seq, Kind::Merge, operand, out)?;
        }
        Ok(())
    }

    /// Writes what comes of the operands and `value`, which they are merged into; false if nothing does, and they have
    /// been written as they are.
    fn resolve<T: CompactionEnv>(
        &mut self,
        value: Option<&[u8]>,
        bottom: &mut Bottom,
        out: &mut Outputs<'_, T>,
    ) -> Result<bool> {
        let made = if self.passes { None } else { self.operands.resolve(&self.key, value).ok() };
        let Some(made) = made else {
            self.write_operands(out)?;
            return Ok(false);
        };
        let (bottom, new_key) = (bottom.is(&self.key), std::mem::take(&mut self.new_key));
        let seq = if bottom { self.lowest } else { self.newest };
        match &out.filtering {
            Some(_) if new_key => {
                out.add_passed(&self.key, seq, Kind::Put, &made, bottom && self.stripe == 0)?;
            }
            _ => out.add(&self.key, seq, Kind::Put, &made, new_key)?,
        }
        Ok(true)
    }

    /// Writes as few operands as the operator makes of them: older versions count, too.
    fn shorten<T: CompactionEnv>(mut self, out: &mut Outputs<'_, T>) -> Result<()> {
        self.operands.collapse_all(&self.key);
        self.write_operands(out)
    }
}

impl Fold {
    /// Whether operands are waiting.
    #[inline]
    pub fn is_open(&self) -> bool {
        self.run.is_some()
    }

    /// Before the next version is judged: if it is of another key, the one before is over.
    #[cold]
    pub fn come_to<T: CompactionEnv>(
        &mut self,
        key: &[u8],
        bottom: &mut Bottom,
        out: &mut Outputs<'_, T>,
    ) -> Result<()> {
        match self.run.as_ref().is_some_and(|run| run.key != key) {
            true => self.end_of_key(bottom, out),
            false => Ok(()),
        }
    }

    /// Nothing older of the key is in the merge.
    pub fn end_of_key<T: CompactionEnv>(
        &mut self,
        bottom: &mut Bottom,
        out: &mut Outputs<'_, T>,
    ) -> Result<()> {
        let Some(mut run) = self.run.take() else { return Ok(()) };
        if bottom.is(&run.key) || broken(Mutation::MergeIntoNothing) {
            return run.resolve(None, bottom, out).map(drop);
        }
        run.shorten(out)
    }

    /// What follows is seen by other views.
    #[inline]
    pub fn stop<T: CompactionEnv>(&mut self, out: &mut Outputs<'_, T>) -> Result<()> {
        self.run.take().map_or(Ok(()), |run| run.shorten(out))
    }

    /// An operand, or what those that wait are merged into.
    #[cold]
    pub fn meet<T: CompactionEnv>(
        &mut self,
        fate: Fate,
        met: &Met<'_>,
        new_key: bool,
        bottom: &mut Bottom,
        out: &mut Outputs<'_, T>,
    ) -> Result<()> {
        if let Fate::Operand(stripe, lowest) = fate {
            if self.run.as_ref().is_some_and(|run| run.stripe != stripe) {
                self.stop(out)?;
            }
            let run = match &mut self.run {
                Some(run) => run,
                none => none.insert(Run::new(met, (stripe, lowest), new_key, out)),
            };
            return run.push(met, out);
        }
        let Some(mut run) = self.run.take() else { return Ok(()) };
        let is_base = fate == Fate::Base;
        if is_base && met.kind == Kind::Expiring {
            // Once it has expired the operands are all that there is. So they stay apart until then: what a read finds
            // must not depend on when this was done.
            let key = run.key.clone();
            run.shorten(out)?;
            return out.add(&key, met.seq, met.kind, met.value, false);
        }
        let value = (is_base && met.kind == Kind::Put).then_some(met.value);
        let made = run.resolve(value, bottom, out)?;
        // A tombstone at the bottom hides nothing: kept, it would be worth a compaction again and again.
        let gone = met.kind == Kind::Delete && run.stripe == 0 && bottom.is(&run.key);
        if !made && is_base && !gone {
            run.write(met.seq, met.kind, met.value, out)?;
        }
        Ok(())
    }
}
