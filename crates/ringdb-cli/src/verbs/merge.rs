//! `ringdb merge`: operands for the merge operator of a keyspace.

use ringdb::{KeyspaceOptions, WriteBatch};
use serde_json::json;

use super::point::commit;
use crate::args::MergeArgs;
use crate::coding::Coding;
use crate::error::{Result, usage};
use crate::out;
use crate::store::{self, Space};

/// The operators that every store has.
const BUILT_IN: &str = "add, max, append, append:SEPARATOR";

/// Merges operands into a key, all together.
pub fn merge(args: &MergeArgs) -> Result<()> {
    let coding = args.coding.coding();
    let key = coding.argument("key", &args.key)?;
    let operands = args.operands.iter().map(|o| operand(args.number, coding, o));
    let operands = operands.collect::<Result<Vec<_>>>()?;
    if let Some(name) = args.operator.as_deref()
        && !(matches!(name, "add" | "max" | "append") || name.starts_with("append:"))
    {
        return usage(format!(
            "--operator '{name}': {BUILT_IN}; others are a program's own, which registers them"
        ));
    }
    let db = store::open_for_writing(&args.store, args.operator.is_some(), args.durability)?;
    let name = args.keyspace.keyspace.as_deref();
    let space = match &args.operator {
        None => Space::existing(db, name)?,
        Some(operator) => {
            let settings = KeyspaceOptions::default().with_merge_operator(operator);
            db.keyspace_with(name.unwrap_or("default"), &settings)?;
            Space::made(db, name)?
        }
    };
    let keyspace = name.unwrap_or("default");
    match space.db.keyspace(keyspace)?.options().merge_operator.as_deref() {
        None => {
            return usage(format!(
                "keyspace '{keyspace}' has no merge operator: give it one with --operator ({BUILT_IN}), which it keeps"
            ));
        }
        Some("add") if operands.iter().any(|o| o.len() != size_of::<u64>()) => {
            return usage("`add` takes numbers: give --number, or 8 bytes, little endian, by --hex");
        }
        Some(_) => {}
    }
    let mut batch = WriteBatch::new();
    operands.iter().for_each(|o| space.merge_in(&mut batch, &key, o));
    commit(space, batch, args.durability)?;
    if args.json {
        out::json(&json!({ "merged": operands.len(), "key_bytes": key.len() }))?;
    }
    Ok(())
}

/// An operand as it is stored.
fn operand(number: bool, coding: Coding, given: &std::ffi::OsString) -> Result<Vec<u8>> {
    if !number {
        return coding.argument("operand", given);
    }
    let text = given.to_string_lossy();
    let n = text.parse::<u64>().ok().or_else(|| text.parse::<i64>().ok().map(i64::cast_unsigned));
    match n {
        Some(n) => Ok(n.to_le_bytes().to_vec()),
        None => usage(format!("operand '{text}': --number takes whole numbers of 64 bits")),
    }
}
