//! Keys whose newest version is an operand: merged, if the operator is built in, or copied with all that counts.

use super::Input;
use super::output::Output;
use crate::Result;
use crate::cursor::Cursor;
use crate::key::{Kind, Seq};
use crate::manifest::ManifestState;
use crate::merge::MergeCursor;
use crate::operator::operands::Operands;
use crate::operator::registry::{Operator, Registry};

/// The operator of a keyspace, if it is built in.
pub(super) fn operator(state: &ManifestState, id: u32) -> Option<Operator> {
    let name = |id: u32| state.settings.get(&id).and_then(|s| s.known.merge_operator.as_deref());
    let operator = Registry::default().find(name(id).or_else(|| name(0))?);
    operator.code().is_ok().then_some(operator)
}

/// Copies the key on whose newest version, an operand, the merge stands: a value, if the operator makes one; else the
/// operands and what they are to be merged into. What is older than `cover` is deleted. Leaves the merge behind what
/// counts.
pub(super) fn copy(
    merge: &mut MergeCursor<Input>,
    cover: Seq,
    operator: Option<Operator>,
    out: &mut Output<'_>,
) -> Result<()> {
    let key = merge.key().to_vec();
    // Those that nobody can merge are copied as they come: there may be any number of them.
    let mut known = operator.map(|operator| Operands::new(Some(operator), true));
    let (mut below, mut value, mut new_key, mut expiring) = (Seq::MAX, None, true, false);
    while merge.valid() && merge.key() == key {
        // The same version may be in the log and in a table.
        if merge.seq() < below {
            below = merge.seq();
            if merge.kind() != Kind::Merge || below < cover {
                let there = merge.kind().has_value() && merge.kind() != Kind::Merge && below >= cover;
                value = there.then(|| merge.value().to_vec());
                expiring = there && merge.kind() == Kind::Expiring;
                break;
            }
            match &mut known {
                Some(operands) => operands.push_numbered(&key, below, merge.value()),
                None => {
                    out.add(&key, below, Kind::Merge, merge.value(), std::mem::take(&mut new_key))?;
                }
            }
        }
        merge.next()?;
    }
    if let Some(operands) = known {
        // What they are merged into may expire; they do not.
        let made = if expiring { None } else { operands.resolve(&key, value.as_deref()).ok() };
        if let Some(made) = made {
            return out.add(&key, 0, Kind::Put, &made, true);
        }
        for (seq, operand) in operands.iter() {
            out.add(&key, seq, Kind::Merge, operand, std::mem::take(&mut new_key))?;
        }
    }
    let kind = if expiring { Kind::Expiring } else { Kind::Put };
    value.map_or(Ok(()), |value| out.add(&key, 0, kind, &value, false))
}
