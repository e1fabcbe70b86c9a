//! Verbs on the store as a whole: `compact`, `flush`, `checkpoint`, `upgrade`, `keyspaces`.

use std::fmt::Write;
use std::ops::Bound;
use std::time::Instant;

use ringdb::Db;
use ringdb::socket::{Remote, Request};
use serde_json::{Value, json};

use crate::args::{CheckpointArgs, CompactArgs, KeyspacesArgs, PlainArgs, UpgradeArgs};
use crate::error::{Result, failed, usage};
use crate::out::{self, human_bytes};
use crate::store::{self, Bounds, Reached, Space};

/// Merges tables down to the last level.
pub fn compact(args: &CompactArgs) -> Result<()> {
    let Some(bounds) = store::bounds(&args.range, args.coding.coding())? else {
        return usage("--prefix, --from and --to have no key in common: nothing would be compacted");
    };
    let reached = store::open_or_reach(&args.store)?;
    let start = Instant::now();
    let bar = out::count_bar(None);
    bar.set_message("compacting");
    let done = match reached {
        Reached::Here(db) => compact_here(db, args, bounds),
        Reached::There(remote) if args.rewrite => {
            let key = args.store.keys.newest();
            via_socket(remote, &Request::Rewrite { key }, |_, _| {})
        }
        Reached::There(remote) => {
            let key = |bound: Bound<Vec<u8>>| match bound {
                Bound::Included(key) | Bound::Excluded(key) => Some(key),
                Bound::Unbounded => None,
            };
            let (keyspace, from, to) = (args.keyspace.keyspace.clone(), key(bounds.0), key(bounds.1));
            via_socket(remote, &Request::Compact { keyspace, from, to }, |_, _| {})
        }
    };
    bar.finish_and_clear();
    let mut done = done?;
    let seconds = start.elapsed().as_secs_f64();
    if args.json {
        done["seconds"] = json!(seconds);
        return out::json(&done);
    }
    let bytes = |name: &str| human_bytes(done[name].as_u64().unwrap_or_default());
    out::text(&format!(
        "{} of tables, {} before; read {}, wrote {} in {seconds:.2} s\n",
        bytes("table_bytes_after"),
        bytes("table_bytes_before"),
        bytes("read_bytes"),
        bytes("written_bytes"),
    ))
}

fn compact_here(db: Db, args: &CompactArgs, bounds: Bounds) -> Result<Value> {
    let space = Space::existing(db, args.keyspace.keyspace.as_deref())?;
    let before = space.db.stats();
    space.db.flush()?;
    match args.rewrite {
        true => space.db.rewrite()?,
        false => space.compact(bounds)?,
    }
    let after = space.db.stats();
    space.db.close()?;
    Ok(json!({
        "table_bytes_before": before.table_bytes, "table_bytes_after": after.table_bytes,
        "read_bytes": after.compaction_read_bytes, "written_bytes": after.compaction_written_bytes,
    }))
}

/// Has the process that has the store open do something; its answer says so.
pub(super) fn via_socket(remote: Remote, request: &Request, progress: impl FnMut(u64, u64)) -> Result<Value> {
    let mut done: Value = serde_json::from_str(&remote.ask(request, progress)?)?;
    done["via"] = json!("socket");
    Ok(done)
}

/// Writes what memtables and the log hold to tables.
pub fn flush(args: &PlainArgs) -> Result<()> {
    let done = match store::open_or_reach(&args.store)? {
        Reached::Here(db) => {
            db.flush()?;
            db.close()?;
            json!({})
        }
        Reached::There(remote) => via_socket(remote, &Request::Flush, |_, _| {})?,
    };
    if args.json { out::json(&done) } else { out::text("flushed\n") }
}

/// Copies the store by hard links.
pub fn checkpoint(args: &CheckpointArgs) -> Result<()> {
    let mut done = match store::open_or_reach(&args.store)? {
        Reached::Here(db) => {
            db.checkpoint(&args.target)?;
            db.close()?;
            json!({})
        }
        Reached::There(remote) => {
            let to = store::for_another(&args.target)?;
            via_socket(remote, &Request::Checkpoint { to }, |_, _| {})?
        }
    };
    if args.json {
        done["checkpoint"] = json!(args.target.display().to_string());
        out::json(&done)
    } else {
        out::text(&format!("a copy of {} is in {}\n", args.store.db.display(), args.target.display()))
    }
}

/// Says which versions of the format there are, and raises that of the store.
pub fn upgrade(args: &UpgradeArgs) -> Result<()> {
    let found = store::format(&args.store)?;
    let raise = found.is_old() && !args.dry_run;
    if raise {
        store::open_for_writing(&args.store, false, None)?.close()?;
    }
    let now = if raise { store::format(&args.store)? } else { found.clone() };
    if args.json {
        return out::json(&json!({
            "version": found.version, "newest": found.newest, "upgrade_needed": found.is_old(),
            "upgraded": raise, "version_now": now.version, "files": now.files,
        }));
    }
    let mut text = format!("format version {}; this build writes {}\n", found.version, found.newest);
    for f in &now.files {
        let version = f.version.map_or("not known".into(), |v| v.to_string());
        let _ = writeln!(text, "  {:<20} {version}", f.file);
    }
    text.push_str(match (found.is_old(), raise) {
        (false, _) => "nothing to do\n",
        (true, false) => "an upgrade would begin a new manifest; tables stay as they are; older builds refuse the store then\n",
        (true, true) => "upgraded: the manifest is new, tables stay as they are\n",
    });
    out::text(&text)
}

/// Lists, creates or drops keyspaces.
pub fn keyspaces(args: &KeyspacesArgs) -> Result<()> {
    let db = if args.create.is_some() || args.drop.is_some() {
        store::open_for_writing(&args.store, args.create.is_some(), None)?
    } else {
        store::open_for_reading(&args.store)?
    };
    if let Some(name) = &args.create {
        db.keyspace(name)?;
    }
    if let Some(name) = &args.drop
        && !db.drop_keyspace(name)?
    {
        return failed(format!("no keyspace '{name}' in this store"));
    }
    let names = db.keyspaces()?;
    if args.create.is_some() || args.drop.is_some() {
        db.close()?;
    }
    if args.json {
        return out::json(&names);
    }
    out::text(&names.iter().fold(String::new(), |s, n| s + n + "\n"))
}
