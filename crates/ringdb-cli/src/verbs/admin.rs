//! Verbs on the store as a whole: `stats`, `compact`, `checkpoint`, `keyspaces`.

use std::fmt::Write;
use std::time::Instant;

use ringdb::{Compression, KeyspaceSettings, Stats};
use serde_json::json;

use crate::args::{CheckpointArgs, CompactArgs, KeyspacesArgs, PlainArgs, UpgradeArgs};
use crate::error::{Result, failed, usage};
use crate::out::{self, human_bytes, human_count};
use crate::store::{self, Space};

/// Prints counters and sizes. Counters start when a store is opened, so sizes are what this verb is for.
pub fn stats(args: &PlainArgs) -> Result<()> {
    let stats = store::open_for_reading(&args.store)?.stats();
    if args.json { out::json(&stats) } else { out::text(&describe(&stats)) }
}

fn describe(s: &Stats) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: String| {
        let _ = writeln!(text, "{name:<20} {value}");
    };
    line("I/O engine", s.io.clone());
    for reason in &s.io_reasons {
        line("", reason.clone());
    }
    line("tables", format!("{} in {} entries", human_bytes(s.table_bytes), human_count(s.table_entries)));
    line(
        "memtables",
        format!("{}, {} waiting to be flushed", human_bytes(s.memtable_bytes), s.immutable_memtables),
    );
    line("log", human_bytes(s.log_bytes));
    for (i, k) in s.settings.iter().enumerate() {
        line(if i == 0 { "settings" } else { "" }, describe_settings(k));
    }
    line("last sequence", human_count(s.last_sequence));
    line("index, filters", format!("{}, {}", human_bytes(s.index_bytes), human_bytes(s.filter_bytes)));
    line(
        "memory budget",
        format!(
            "{}, {} of it cached blocks",
            human_bytes(s.cache_capacity_bytes),
            human_bytes(s.cache_used_bytes)
        ),
    );
    line(
        "memory",
        format!(
            "{} of the budget: memtables {}, background work {}, iterators {}; mapped log segments {}",
            human_bytes(s.memory_bytes),
            human_bytes(s.memtable_memory_bytes),
            human_bytes(s.background_memory_bytes),
            human_bytes(s.iterator_memory_bytes),
            human_bytes(s.log_mapped_bytes)
        ),
    );
    line("block reads", format!("{} cached, {} from disk", s.cache_hits, s.cache_misses));
    if let Some(what) = &s.recovered_damage {
        line("LOST", what.clone());
    }
    for t in &s.damaged_tables {
        let what = if t.unreadable { "all of it" } else { "in part" };
        line(
            "DAMAGED",
            format!("{} (level {}, {what}, keys {} to {}): {}", t.file, t.level, t.from, t.to, t.reason),
        );
    }
    if let Some(why) = &s.stopped {
        line("STOPPED", why.clone());
    }
    let rows: Vec<Vec<String>> = s
        .levels
        .iter()
        .map(|l| {
            let target = if l.target_bytes > 0 { human_bytes(l.target_bytes) } else { "-".into() };
            vec![
                l.level.to_string(),
                l.tables.to_string(),
                human_bytes(l.bytes),
                human_count(l.entries),
                target,
            ]
        })
        .collect();
    text.push('\n');
    text + &out::table(&["level", "tables", "size", "entries", "target"], &rows, 1)
}

/// The settings in force for a keyspace's tables.
fn describe_settings(k: &KeyspaceSettings) -> String {
    let o = &k.options;
    let name = |c: Option<Compression>| c.map_or(String::new(), |c| format!("{c:?}").to_lowercase());
    let operator = o.merge_operator.as_ref().map(|m| format!("; merge operator {}", m.escape_debug()));
    format!(
        "{}: compression {}, last level {}; blocks of {}; {} filter bits a key{}",
        k.keyspace.escape_debug(),
        name(o.compression),
        name(o.last_level_compression),
        human_bytes(o.block_bytes.unwrap_or_default().into()),
        o.filter_bits_per_key.unwrap_or_default(),
        operator.unwrap_or_default()
    )
}

/// Merges tables down to the last level.
pub fn compact(args: &CompactArgs) -> Result<()> {
    let Some(bounds) = store::bounds(&args.range, args.coding.coding())? else {
        return usage("--prefix, --from and --to have no key in common: nothing would be compacted");
    };
    let db = store::open_for_writing(&args.store, false, None)?;
    let space = Space::existing(db, args.keyspace.keyspace.as_deref())?;
    let before = space.db.stats();
    let start = Instant::now();
    let bar = out::count_bar(None);
    bar.set_message("compacting");
    space.db.flush()?;
    space.compact(bounds)?;
    bar.finish_and_clear();
    let after = space.db.stats();
    space.db.close()?;
    let seconds = start.elapsed().as_secs_f64();
    if args.json {
        return out::json(&json!({
            "table_bytes_before": before.table_bytes, "table_bytes_after": after.table_bytes,
            "read_bytes": after.compaction_read_bytes, "written_bytes": after.compaction_written_bytes,
            "seconds": seconds,
        }));
    }
    out::text(&format!(
        "{} of tables, {} before; read {}, wrote {} in {seconds:.2} s\n",
        human_bytes(after.table_bytes),
        human_bytes(before.table_bytes),
        human_bytes(after.compaction_read_bytes),
        human_bytes(after.compaction_written_bytes),
    ))
}

/// Copies the store by hard links.
pub fn checkpoint(args: &CheckpointArgs) -> Result<()> {
    let db = store::open_for_writing(&args.store, false, None)?;
    db.checkpoint(&args.target)?;
    db.close()?;
    if args.json {
        out::json(&json!({ "checkpoint": args.target.display().to_string() }))
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
