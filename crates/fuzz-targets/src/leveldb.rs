//! A LevelDB store of any files: what is read of it is in order, or it is an error.

use std::collections::BTreeMap;

use leveldb_files::Store;

use crate::MAX_INPUT_BYTES;

/// Files by name. The first byte says whether checksums count; then come files: kind (manifest, table, log), number,
/// length (two bytes), bytes.
fn files(mut data: &[u8]) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::from([("CURRENT".to_string(), b"MANIFEST-000001\n".to_vec())]);
    while let [kind, number, low, high, rest @ ..] = data {
        let (bytes, rest) = rest.split_at(usize::from(u16::from_le_bytes([*low, *high])).min(rest.len()));
        let name = match kind % 3 {
            0 => "MANIFEST-000001".into(),
            1 => format!("{number:06}.ldb"),
            _ => format!("{number:06}.log"),
        };
        files.insert(name, bytes.into());
        data = rest;
    }
    files
}

/// Opens the store and reads all pairs.
pub fn leveldb(data: &[u8]) {
    let Some((first, rest)) = data[..data.len().min(MAX_INPUT_BYTES)].split_first() else { return };
    let Ok(store) = Store::in_memory(files(rest), first & 1 == 1) else { return };
    let Ok(mut pairs) = store.into_pairs() else { return };
    let mut last: Option<Vec<u8>> = None;
    while let Ok(Some((key, _))) = pairs.next_pair() {
        assert!(last.as_deref().is_none_or(|last| last < key), "keys out of order");
        last = Some(key.into());
    }
}
