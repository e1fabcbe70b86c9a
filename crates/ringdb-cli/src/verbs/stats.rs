//! `ringdb stats`.

use std::fmt::Write;

use ringdb::socket::Request;
use serde_json::Value;

use super::admin::via_socket;
use crate::args::PlainArgs;
use crate::error::Result;
use crate::out::{self, human_bytes, human_count};
use crate::store;

/// Prints counters and sizes: those of the process that has the store open, if it serves a socket. Counters start when
/// a store is opened, so that of a reader's only sizes say something.
pub fn stats(args: &PlainArgs) -> Result<()> {
    let stats = match store::reach(&args.store)? {
        Some(remote) => via_socket(remote, &Request::Stats, |_, _| {})?,
        None => serde_json::to_value(store::open_for_reading(&args.store)?.stats())?,
    };
    if args.json { out::json(&stats) } else { out::text(&describe(&stats)) }
}

/// Fields of a JSON object. What another version does not say is 0, or nothing.
struct Fields<'a>(&'a Value);

impl<'a> Fields<'a> {
    fn number(&self, name: &str) -> u64 {
        self.0[name].as_u64().unwrap_or_default()
    }

    fn bytes(&self, name: &str) -> String {
        human_bytes(self.number(name))
    }

    fn text(&self, name: &str) -> &'a str {
        self.0[name].as_str().unwrap_or_default()
    }

    fn list(&self, name: &str) -> impl Iterator<Item = Fields<'a>> + use<'a> {
        self.0[name].as_array().map(Vec::as_slice).unwrap_or_default().iter().map(Fields)
    }
}

fn describe(stats: &Value) -> String {
    let s = Fields(stats);
    let mut text = String::new();
    let mut line = |name: &str, value: String| {
        let _ = writeln!(text, "{name:<20} {value}");
    };
    if s.text("via") == "socket" {
        line("of", "the process that has the store open, by its socket".into());
    }
    line("I/O engine", s.text("io").into());
    for reason in s.list("io_reasons") {
        line("", reason.0.as_str().unwrap_or_default().into());
    }
    line(
        "tables",
        format!("{} in {} entries", s.bytes("table_bytes"), human_count(s.number("table_entries"))),
    );
    line(
        "memtables",
        format!("{}, {} waiting to be flushed", s.bytes("memtable_bytes"), s.number("immutable_memtables")),
    );
    line("log", s.bytes("log_bytes"));
    for (i, k) in s.list("settings").enumerate() {
        line(if i == 0 { "settings" } else { "" }, describe_settings(&k));
    }
    if let Some(said) = describe_encryption(&s) {
        line("encryption", said);
    }
    line("last sequence", human_count(s.number("last_sequence")));
    line("index, filters", format!("{}, {}", s.bytes("index_bytes"), s.bytes("filter_bytes")));
    let cached = s.bytes("cache_used_bytes");
    line("memory budget", format!("{}, {cached} of it cached blocks", s.bytes("cache_capacity_bytes")));
    line(
        "memory",
        format!(
            "{} of the budget: memtables {}, background work {}, iterators {}; mapped log segments {}",
            s.bytes("memory_bytes"),
            s.bytes("memtable_memory_bytes"),
            s.bytes("background_memory_bytes"),
            s.bytes("iterator_memory_bytes"),
            s.bytes("log_mapped_bytes")
        ),
    );
    line("block reads", format!("{} cached, {} from disk", s.number("cache_hits"), s.number("cache_misses")));
    if s.number("compaction_filter_seen") > 0 {
        let count = |what: &str| human_count(s.number(&format!("compaction_filter_{what}")));
        let (seen, removed, changed) = (count("seen"), count("removed"), count("changed"));
        line("compaction filters", format!("{seen} entries seen, {removed} removed, {changed} changed"));
    }
    for (name, what) in [("LOST", "recovered_damage"), ("STOPPED", "stopped"), ("ERROR", "background_error")]
    {
        let what = s.text(what);
        if !what.is_empty() {
            line(name, what.into());
        }
    }
    for t in s.list("damaged_tables") {
        line("DAMAGED", describe_damaged(&t));
    }
    let rows: Vec<Vec<String>> = s.list("levels").map(|l| describe_level(&l)).collect();
    text.push('\n');
    text + &out::table(&["level", "tables", "size", "entries", "target"], &rows, 1)
}

/// Which keys are in use; `None` if nothing is encrypted.
fn describe_encryption(s: &Fields) -> Option<String> {
    let by_key = s.list("tables_by_key").map(|row| (row.0[0].as_u64().unwrap_or_default(), row.0[1].clone()));
    let (plain, sealed): (Vec<_>, Vec<_>) = by_key.partition(|(key, _)| *key == 0);
    let current = s.0["encryption_key"].as_u64().map(|key| format!("written with key {key}"));
    if current.is_none() && sealed.is_empty() {
        return None;
    }
    let sealed = sealed.into_iter().map(|(key, n)| format!("{n} tables with key {key}"));
    let plain = plain.into_iter().map(|(_, n)| format!("{n} tables that are not encrypted"));
    Some(current.into_iter().chain(sealed).chain(plain).collect::<Vec<_>>().join(", "))
}

fn describe_damaged(t: &Fields) -> String {
    let what = if t.0["unreadable"] == true { "all of it" } else { "in part" };
    let (file, level, from, to) = (t.text("file"), t.number("level"), t.text("from"), t.text("to"));
    format!("{file} (level {level}, {what}, keys {from} to {to}): {}", t.text("reason"))
}

fn describe_level(l: &Fields) -> Vec<String> {
    let target = if l.number("target_bytes") > 0 { l.bytes("target_bytes") } else { "-".into() };
    let number = |name| l.number(name).to_string();
    vec![number("level"), number("tables"), l.bytes("bytes"), human_count(l.number("entries")), target]
}

/// The settings in force for a keyspace's tables.
fn describe_settings(k: &Fields) -> String {
    let operator = match k.text("merge_operator") {
        "" => String::new(),
        name => format!("; merge operator {}", name.escape_debug()),
    };
    let filter = match k.text("compaction_filter") {
        "" => String::new(),
        name => format!("; compaction filter {}", name.escape_debug()),
    };
    let life = match k.text("time_to_live") {
        "" | "0 ms" => String::new(),
        life => format!("; time to live {life}"),
    };
    format!(
        "{}: compression {}, last level {}; blocks of {}; {} filter bits a key{operator}{filter}{life}",
        k.text("keyspace").escape_debug(),
        k.text("compression"),
        k.text("last_level_compression"),
        k.bytes("block_bytes"),
        k.number("filter_bits_per_key")
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::describe;

    #[test]
    fn what_compaction_filters_have_done_is_shown_when_they_have_seen_something() {
        let of = |seen: u64| {
            describe(&json!({
                "compaction_filter_seen": seen, "compaction_filter_removed": 21, "compaction_filter_changed": 7,
                "background_error": "a filter that fails",
            }))
        };
        let some = of(500);
        assert!(some.contains("compaction filters   500 entries seen, 21 removed, 7 changed\n"), "{some}");
        assert!(some.contains("ERROR                a filter that fails\n"), "{some}");
        assert!(!of(0).contains("compaction filters"));
    }
}
