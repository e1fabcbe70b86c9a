//! What is done for a request.

use std::ffi::OsString;
use std::ops::Bound;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use ringdb::{BackupOptions, Db, Error, Progress, Result};
use serde_json::{Value, json};

use crate::wire::Request;

/// Does it; gives the result as JSON.
pub(crate) fn work(db: &Db, request: Request, progress: Progress) -> Result<Value> {
    Ok(match request {
        Request::Stats => value(db.stats())?,
        Request::Flush => db.flush().map(|()| json!({}))?,
        Request::Compact { keyspace, from, to } => compact(db, keyspace, from, to)?,
        Request::Checkpoint { to } => db.checkpoint(absolute(to)?).map(|()| json!({}))?,
        Request::Backup { to, keep } => {
            let mut options = BackupOptions::default().with_progress(progress);
            options.keep = keep;
            value(db.backup_with(absolute(to)?, &options)?)?
        }
    })
}

fn value(of: impl serde::Serialize) -> Result<Value> {
    serde_json::to_value(of).map_err(|e| Error::Invalid(format!("the answer cannot be told: {e}")))
}

/// A relative path would be one of this process, which the other side does not mean.
fn absolute(path: Vec<u8>) -> Result<PathBuf> {
    let path = PathBuf::from(OsString::from_vec(path));
    match path.is_absolute() {
        true => Ok(path),
        false => Err(Error::Invalid(format!("{} is not an absolute path", path.display()))),
    }
}

fn compact(db: &Db, keyspace: Option<String>, from: Option<Vec<u8>>, to: Option<Vec<u8>>) -> Result<Value> {
    let bounds =
        (from.map_or(Bound::Unbounded, Bound::Included), to.map_or(Bound::Unbounded, Bound::Excluded));
    let before = db.stats();
    match keyspace {
        None => db.compact_range(bounds)?,
        Some(name) => match db.existing_keyspace(&name)? {
            Some(k) => k.compact_range(bounds)?,
            None => return Err(Error::Invalid(format!("no keyspace '{name}' in this store"))),
        },
    }
    let after = db.stats();
    Ok(json!({
        "table_bytes_before": before.table_bytes, "table_bytes_after": after.table_bytes,
        "read_bytes": after.compaction_read_bytes - before.compaction_read_bytes,
        "written_bytes": after.compaction_written_bytes - before.compaction_written_bytes,
    }))
}
