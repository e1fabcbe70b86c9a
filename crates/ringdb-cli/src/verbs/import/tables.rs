//! What `ringdb export` has written, ingested.

use ringdb::{Error, Exported, Options};

use crate::args::ImportArgs;
use crate::error::{Failure, Result};
use crate::out;
use crate::store::{self, Space};
use crate::verbs::ingest;

/// Pairs between two looks at how far it is.
const TELL_EVERY: u64 = 1024;

/// Loads all pairs.
pub(super) fn import(args: &ImportArgs) -> Result<()> {
    let io = args.store.keys.over(Options::default()).open_io()?;
    let mut exported = Exported::open_with_io(&args.src, io).map_err(explained)?;
    let db = store::open_for_writing(&args.store, true, None)?;
    let space = Space::made(db, args.keyspace.keyspace.as_deref())?;
    let bar = out::count_bar(Some(exported.pairs()));
    bar.set_message("importing");
    ingest::all(space, args.json, &bar, |sorted| {
        while let Some((key, value)) = exported.next_pair().map_err(explained)? {
            sorted.add(key, value)?;
            if sorted.records().is_multiple_of(TELL_EVERY) {
                bar.set_position(sorted.records());
            }
        }
        Ok(())
    })
}

/// With what can be done; what can be done about a store's tables would be wrong here.
fn explained(e: Error) -> Failure {
    match e {
        Error::Invalid(why) => Failure::Failed(format!("{why}; `ringdb export` makes one")),
        Error::Corrupt { .. } => {
            Failure::Failed(format!("{e}; the export is damaged: make it anew, or take another copy of it"))
        }
        e => e.into(),
    }
}
