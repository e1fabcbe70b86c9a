//! `ringdb import`: the records of another kind of store, or of an export.

mod leveldb;
mod rocksdb;
mod tables;

use crate::args::{Foreign, ImportArgs};
use crate::error::{Result, usage};

/// Loads all records.
pub fn import(args: &ImportArgs) -> Result<()> {
    match args.from {
        Foreign::Rocksdb => rocksdb::import(args),
        Foreign::Leveldb => {
            only_of_rocksdb(args)?;
            leveldb::import(args)
        }
        Foreign::Tables => {
            only_of_rocksdb(args)?;
            tables::import(args)
        }
    }
}

/// What has no meaning for other stores is not passed over.
fn only_of_rocksdb(args: &ImportArgs) -> Result<()> {
    let given = [
        ("--column-family", args.column_family.is_some(), "others have none"),
        ("--ldb", args.ldb.is_some(), "others are read without a tool"),
        ("--durability", args.durability.is_some(), "others come as one, which is durable in the end"),
    ];
    match given.iter().find(|(_, given, _)| *given) {
        Some((flag, _, why)) => usage(format!("{flag} is for --from rocksdb: {why}")),
        None => Ok(()),
    }
}
