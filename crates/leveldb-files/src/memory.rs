//! What logs hold: writes that no table has yet.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use crate::Result;
use crate::bytes::{fixed32, fixed64, prefixed};
use crate::journal::Journal;
use crate::key::MAX_SEQUENCE;

/// The newest write of each key: its number, and the value if it was no deletion.
pub(crate) type Memory = BTreeMap<Vec<u8>, (u64, Option<Vec<u8>>)>;

/// Adds a log's writes. Returns how many bytes of an unfinished one are at its end.
pub(crate) fn replay(journal: &mut Journal, into: &mut Memory) -> Result<u64> {
    while let Some((at, record)) = journal.next_record()? {
        batch(record, into).map_err(|why| journal.damaged(at, why))?;
    }
    Ok(journal.torn())
}

/// A record is a batch: the number of its first write, how many there are, the writes.
fn batch(record: &[u8], into: &mut Memory) -> std::result::Result<(), String> {
    let head =
        fixed64(record).and_then(|(first, rest)| fixed32(rest).map(|(count, rest)| (first, count, rest)));
    let (first, count, mut rest) = head.ok_or("a batch is too short")?;
    if first.checked_add(u64::from(count)).is_none_or(|end| end > MAX_SEQUENCE) {
        return Err(format!("a batch with the impossible number {first}"));
    }
    let mut found = 0;
    while let Some((kind, write)) = rest.split_first() {
        let cut_off = || format!("write {} of a batch is cut off", found + 1);
        let (key, behind) = prefixed(write).ok_or_else(cut_off)?;
        let (value, behind) = match kind {
            0 => (None, behind),
            1 => prefixed(behind).map(|(value, rest)| (Some(value), rest)).ok_or_else(cut_off)?,
            kind => return Err(format!("a write of the unknown kind {kind}")),
        };
        add(into, key, first + u64::from(found), value);
        rest = behind;
        found += 1;
        if found > count {
            break;
        }
    }
    if found == count { Ok(()) } else { Err(format!("a batch of {count} writes has {found} or more")) }
}

fn add(into: &mut Memory, key: &[u8], sequence: u64, value: Option<&[u8]>) {
    let new = (sequence, value.map(Into::into));
    match into.entry(key.into()) {
        Entry::Vacant(place) => {
            place.insert(new);
        }
        Entry::Occupied(mut place) if place.get().0 <= sequence => {
            place.insert(new);
        }
        Entry::Occupied(_) => {}
    }
}
