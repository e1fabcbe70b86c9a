//! A LevelDB store, read by `leveldb-files` and ingested.

use leveldb_files::{Error, Store};

use crate::args::ImportArgs;
use crate::error::{Failure, Result, warn};
use crate::out;
use crate::store::{self, Space};
use crate::verbs::ingest;

/// Pairs between two looks at how far it is.
const TELL_EVERY: u64 = 1024;

/// Loads all pairs.
pub(super) fn import(args: &ImportArgs) -> Result<()> {
    let source = Store::open(&args.src).map_err(explained)?;
    for torn in source.torn_tails() {
        warn(&format!(
            "{} ends with {} bytes of a record that was not finished; left out, as LevelDB does",
            torn.file.display(),
            torn.bytes
        ));
    }
    let db = store::open_for_writing(&args.store, true, None)?;
    let space = Space::made(db, args.keyspace.keyspace.as_deref())?;
    let bar = out::bytes_bar(Some(source.bytes()));
    ingest::all(space, args.json, &bar, |sorted| {
        let mut pairs = source.into_pairs().map_err(explained)?;
        while let Some((key, value)) = pairs.next_pair().map_err(explained)? {
            sorted.add(key, value)?;
            if sorted.records().is_multiple_of(TELL_EVERY) {
                bar.set_position(pairs.bytes_read());
            }
        }
        Ok(())
    })
}

/// With what can be done.
fn explained(e: Error) -> Failure {
    let todo = match &e {
        Error::Damaged { .. } => {
            "; LevelDB's own repair saves what can be read, best of a copy: leveldb_repair_db, or plyvel.repair_db in Python"
        }
        _ => "",
    };
    Failure::Failed(format!("{e}{todo}"))
}
