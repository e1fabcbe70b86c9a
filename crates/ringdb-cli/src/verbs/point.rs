//! `ringdb get`, `put` and `del`: single keys.

use std::io::{Read, Write};

use ringdb::{WriteBatch, WriteOptions};
use serde_json::json;

use crate::args::{DelArgs, GetArgs, PutArgs};
use crate::coding::Coding;
use crate::error::{Failure, Result, at};
use crate::formats::write_pair;
use crate::out;
use crate::store::{self, DurabilityArg, Space};

/// Prints the values of keys, each on a line; on a terminal without control bytes, unless --raw. Absent ones
/// are named on standard error.
pub fn get(args: &GetArgs) -> Result<()> {
    let coding = args.coding.coding();
    let keys = arguments(coding, &args.keys)?;
    let space = Space::existing(store::open_for_reading(&args.store)?, args.keyspace.keyspace.as_deref())?;
    let values = space.multi_get(&keys)?;
    let mut out = out::stdout();
    let visible = !args.raw && coding == Coding::Text && out::to_terminal();
    let mut absent = Vec::new();
    for (key, value) in keys.iter().zip(values) {
        match value {
            Some(v) if args.json => write_pair(&mut out, coding, key, Some(&v))?,
            Some(v) => {
                if visible {
                    let mut text = Vec::new();
                    out::visible_into(&v, &mut text);
                    out.write_all(&text)?;
                } else {
                    out.write_all(&coding.encode(&v))?;
                }
                if !args.raw {
                    out.write_all(b"\n")?;
                }
            }
            None => {
                if args.json {
                    let mut pair = Vec::new();
                    write_pair(&mut pair, coding, key, None)?;
                    let mut object: serde_json::Value = serde_json::from_slice(&pair)?;
                    object["value"] = serde_json::Value::Null;
                    serde_json::to_writer(&mut out, &object)?;
                    out.write_all(b"\n")?;
                }
                absent.push(key);
            }
        }
    }
    out.flush()?;
    if absent.is_empty() {
        return Ok(());
    }
    for key in absent {
        crate::error::warn(&format!("no key '{}'", String::from_utf8_lossy(&coding.encode(key))));
    }
    Err(Failure::Negative)
}

/// Sets a key.
pub fn put(args: &PutArgs) -> Result<()> {
    let coding = args.coding.coding();
    let key = coding.argument("key", &args.key)?;
    let value = match (&args.value, &args.value_file) {
        (Some(v), _) => coding.argument("value", v)?,
        (None, Some(path)) => {
            let mut bytes = Vec::new();
            if path.as_os_str() == "-" {
                std::io::stdin().read_to_end(&mut bytes)?;
            } else {
                bytes = at(path, std::fs::read(path))?;
            }
            bytes
        }
        (None, None) => return crate::error::usage("give a value or --value-file"),
    };
    let db = store::open_for_writing(&args.store, true, args.durability)?;
    let space = Space::made(db, args.keyspace.keyspace.as_deref())?;
    let mut batch = WriteBatch::new();
    space.put_in(&mut batch, &key, &value);
    commit(space, batch, args.durability)?;
    if args.json {
        out::json(&json!({ "put": 1, "key_bytes": key.len(), "value_bytes": value.len() }))?;
    }
    Ok(())
}

/// Deletes keys, and what lies in a range, all together.
pub fn del(args: &DelArgs) -> Result<()> {
    let keys = arguments(args.coding.coding(), &args.keys)?;
    let in_range = args.range.prefix.is_some() || args.range.from.is_some() || args.range.to.is_some();
    if keys.is_empty() && !in_range && !args.all {
        return crate::error::usage("give keys, a range (--prefix, --from, --to) or --all");
    }
    let bounds = if in_range || args.all { store::bounds(&args.range, args.coding.coding())? } else { None };
    let db = store::open_for_writing(&args.store, false, args.durability)?;
    let space = Space::existing(db, args.keyspace.keyspace.as_deref())?;
    let mut batch = WriteBatch::new();
    keys.iter().for_each(|k| space.delete_in(&mut batch, k));
    let ranges = u64::from(bounds.is_some());
    bounds.into_iter().for_each(|range| space.delete_range_in(&mut batch, range));
    commit(space, batch, args.durability)?;
    if args.json {
        out::json(&json!({ "deleted": keys.len(), "ranges": ranges }))?;
    }
    Ok(())
}

pub(super) fn commit(space: Space, batch: WriteBatch, durability: Option<DurabilityArg>) -> Result<()> {
    let mut options = WriteOptions::default();
    if let Some(d) = durability {
        options = options.durability(d.into());
    }
    space.db.write(batch, &options)?;
    Ok(space.db.close()?)
}

fn arguments(coding: Coding, keys: &[std::ffi::OsString]) -> Result<Vec<Vec<u8>>> {
    keys.iter().map(|k| coding.argument("key", k)).collect()
}
