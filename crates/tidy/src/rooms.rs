//! The rooms of a crate (its top-level modules) have an order: a room imports only from rooms below it.

use std::collections::BTreeSet;

use crate::code::Source;
use crate::imports::Imports;

/// The rooms of a crate, layer by layer from the bottom. Rooms of one layer do not import each other.
pub struct Order {
    /// The folder of its sources, with a slash at the end.
    pub src: &'static str,
    /// Rooms that may import one another, side by side: names separated by spaces.
    pub layers: &'static [&'static str],
}

/// The order of the rooms of each crate that has folders.
pub const ORDERS: &[Order] = &[
    Order {
        src: "crates/engineswap/src/",
        layers: &[
            "error mutation random",
            "kind how info map mem process uri",
            "buf",
            "probes stats",
            "os",
            "file",
            "op",
            "engine",
            "shared",
            "io",
            "sim",
            "open",
            "lib",
        ],
    },
    Order {
        src: "crates/latchfree/src/",
        layers: &["sync prefetch", "words append epoch clock", "frames", "slots", "lib"],
    },
    Order {
        src: "crates/ringdb/src/",
        layers: &[
            "env purpose value bounds coding mutation open_stores fuzz_input format_version",
            "sim",
            "sync error",
            "stop key",
            "store_dir operator expiry compaction_filter seal events",
            "options",
            "stats",
            "insight",
            "cursor cache files",
            "ranges",
            "memtable merge table",
            "log settings",
            "manifest compaction commit",
            "socket",
            "db",
            "salvage",
            "fuzzing",
            "lib",
        ],
    },
    Order {
        src: "crates/ringdb-cli/src/",
        layers: &[
            "error",
            "cleanup coding out",
            "engine keys",
            "store",
            "bench",
            "fileperf demo",
            "trace",
            "doctor lab top",
            "args",
            "formats",
            "verbs",
            "main",
        ],
    },
    Order {
        src: "crates/engineswap-c/src/",
        layers: &["result buffer", "args", "engine", "file stats register", "queue", "lib"],
    },
    Order {
        src: "crates/ringdb-c/src/",
        layers: &[
            "result task",
            "args callback",
            "value said",
            "options answer",
            "store operator",
            "read iter write upkeep filter",
            "asynchronous reads writes transaction ingest tables",
            "merge",
            "lib",
        ],
    },
    Order {
        src: "crates/ringdb-leveldb/src/",
        layers: &[
            "report",
            "args",
            "batch calls comparator filter objects",
            "options",
            "store",
            "iter manage property",
            "lib",
        ],
    },
    Order { src: "crates/c-abi/src/", layers: &["fail", "args guard", "lib"] },
];

/// The imports that go up or sideways, as "file -> room", each with the number of files of that room. Rooms
/// that the order does not name are told as such.
pub fn against_the_order(order: &Order, sources: &[Source]) -> Vec<(String, usize)> {
    let imports = Imports::of(order.src, sources);
    let layer = |room: &str| order.layers.iter().position(|l| l.split(' ').any(|r| r == room));
    let mut found: Vec<(String, usize)> = vec![];
    let mut unknown = BTreeSet::new();
    for (file, uses) in imports.uses.iter().enumerate() {
        let from = room(order.src, &imports.names[file]);
        for used in uses {
            let to = room(order.src, &imports.names[*used]);
            match (layer(from), layer(to)) {
                _ if from == to => {}
                (Some(a), Some(b)) if b < a => {}
                (Some(_), Some(_)) => {
                    let name = format!("{} -> {to}", imports.names[file]);
                    match found.iter_mut().find(|f| f.0 == name) {
                        Some(f) => f.1 += 1,
                        None => found.push((name, 1)),
                    }
                }
                (a, _) => {
                    unknown.insert(if a.is_none() { from } else { to });
                }
            }
        }
    }
    found.extend(
        unknown.into_iter().map(|r| (format!("{}{r} has no place in the order of the rooms", order.src), 1)),
    );
    found
}

fn room<'a>(src: &str, name: &'a str) -> &'a str {
    let name = name.strip_prefix(src).unwrap_or(name);
    name.split('/').next().map_or(name, |r| r.strip_suffix(".rs").unwrap_or(r))
}

#[cfg(test)]
mod tests {
    use super::{Order, against_the_order};
    use crate::code::sources;

    #[test]
    fn an_import_that_goes_up_is_found() {
        let files = [
            ("src/lib.rs", "mod a; mod b; mod c;"),
            ("src/a/mod.rs", "mod x; use crate::c::C;"),
            ("src/a/x.rs", "use crate::b::B;"),
            ("src/b.rs", ""),
            ("src/c.rs", "use crate::d::D;"),
            ("src/d.rs", ""),
        ];
        let sources = sources(files.iter().map(|(n, t)| ((*n).into(), (*t).into())).collect());
        let order = Order { src: "src/", layers: &["c", "a", "b", "lib"] };
        let found = against_the_order(&order, &sources);
        assert_eq!(
            found,
            [("src/a/x.rs -> b".into(), 1), ("src/d has no place in the order of the rooms".to_string(), 1)]
        );
    }
}
