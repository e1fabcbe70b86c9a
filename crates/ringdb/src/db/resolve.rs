//! Operands that an iterator or a cursor meets, and the values that come of them.

use super::cover::Covered;
use super::source::Source;
use super::view::View;
use crate::cursor::Cursor;
use crate::expiry::{Clock, Moment};
use crate::key::{Kind, SEQ_MAX};
use crate::merge::MergeCursor;
use crate::operator::operands::Operands;
use crate::{Result, Value};

/// Begins with the operand that a merge, going forward, stands on.
#[cold]
pub(super) fn first_operand(view: &View, merge: &MergeCursor<Source>) -> Result<Box<Operands>> {
    let mut operands = Box::new(Operands::new(view.operator(merge.key()), true));
    operands.push(merge.key(), merge.value())?;
    Ok(operands)
}

/// Adds an operand that is newer than the others.
#[cold]
pub(super) fn add_operand(
    view: &View,
    operands: &mut Option<Box<Operands>>,
    key: &[u8],
    operand: &[u8],
) -> Result<()> {
    operands.get_or_insert_with(|| Box::new(Operands::new(view.operator(key), false))).push(key, operand)
}

impl Covered {
    /// Takes the version that a merge, going forward, stands on for older than the operands of `key`; the value, if
    /// they end there. A merge at its end, or at another key, ends them, too.
    #[cold]
    pub(super) fn gather(
        &mut self,
        merge: &MergeCursor<Source>,
        key: &[u8],
        operands: &mut Option<Box<Operands>>,
        (moment, clock): (&mut Moment, &Clock),
    ) -> Result<Option<Value>> {
        let Some(newer) = operands else { return Ok(None) };
        let here = merge.valid() && merge.key() == key;
        if here && merge.seq() > SEQ_MAX {
            // The place of a block that cannot be read, which may have more of them: the step beyond it is the error.
            return Ok(None);
        }
        let there = here && !(self.any() && self.hides_ahead(key, merge.seq()));
        if there && merge.kind() == Kind::Merge {
            newer.push(key, merge.value())?;
            return Ok(None);
        }
        let value = match there {
            true => moment.value_of(clock, merge.kind(), merge.value()),
            false => None,
        };
        let value = newer.resolve(key, value)?;
        *operands = None;
        Ok(Some(value.into()))
    }
}
