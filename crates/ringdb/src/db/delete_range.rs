//! Deleting ranges of keys: one operation of a batch, however many keys it covers.

use std::ops::Bound;

use super::core::Core;
use super::iter::internal_bounds;
use super::keyspaces::KeyspaceState;
use crate::key::{self, Prefix, check_limits};
use crate::log::payload;
use crate::{Result, WriteOptions};

/// The internal keys of a range of user keys: the first, and the first behind them. `None` if the range is empty.
fn internal(id: u32, range: (Bound<&[u8]>, Bound<&[u8]>)) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
    for end in [range.0, range.1] {
        if let Bound::Included(user) | Bound::Excluded(user) = end {
            check_limits(user, b"")?;
        }
    }
    let (start, end) = internal_bounds(&Prefix::new(id), range);
    // A tombstone's end is an internal key itself: what follows all keys of keyspace 0xEF otherwise is none.
    let end = end.filter(|_| range.1 != Bound::Unbounded).unwrap_or_else(|| key::bounds_of(id).1);
    Ok((start < end).then_some((start, end)))
}

/// Appends the deletion of a range of a keyspace to a payload; false, and nothing, if the range is empty.
pub(super) fn encode(out: &mut Vec<u8>, id: u32, range: (Bound<&[u8]>, Bound<&[u8]>)) -> Result<bool> {
    let Some((start, end)) = internal(id, range)? else { return Ok(false) };
    payload::encode_range(out, &start, &end);
    Ok(true)
}

impl Core {
    /// See [`crate::Db::delete_range`].
    pub fn delete_range(&self, keyspace: &KeyspaceState, range: (Bound<&[u8]>, Bound<&[u8]>)) -> Result<()> {
        self.write_side()?;
        self.health.check_writable()?;
        keyspace.check()?;
        let mut payload = Vec::new();
        match encode(&mut payload, keyspace.id, range)? {
            true => self.commit_batch(&payload, 1, &WriteOptions::default()),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::MAX_KEY_BYTES;
    use crate::ranges::is_range;

    #[test]
    fn every_range_of_every_keyspace_can_be_written() {
        let long = vec![0xFF; MAX_KEY_BYTES];
        for id in [0, 1, 0xEF, 0xF0, 0xFF, 0x1FF, u32::MAX - 1] {
            for start in [Bound::Unbounded, Bound::Included(&long[..]), Bound::Excluded(&long)] {
                let (start, end) = internal(id, (start, Bound::Unbounded)).unwrap().expect("a range");
                assert!(is_range(&start, &end), "{id}");
                assert!(
                    end.as_slice() <= Prefix::new(id + 1).as_slice()
                        && start.starts_with(Prefix::new(id).as_slice())
                );
            }
            let all = internal(id, (Bound::Unbounded, Bound::Included(&long))).unwrap().expect("a range");
            assert!(is_range(&all.0, &all.1));
        }
        let (a, b) = (Bound::Included(&b"a"[..]), Bound::Excluded(&b"b"[..]));
        assert_eq!(internal(3, (a, b)).unwrap(), Some((b"\x03a".to_vec(), b"\x03b".to_vec())));
        assert_eq!(internal(3, (Bound::Included(b"b"), b)).unwrap(), None);
        assert_eq!(internal(3, (Bound::Included(b"c"), b)).unwrap(), None);
        let long = vec![0; MAX_KEY_BYTES + 1];
        assert!(
            internal(3, (Bound::Included(&long), Bound::Unbounded))
                .unwrap_err()
                .to_string()
                .contains("65536")
        );
    }
}
