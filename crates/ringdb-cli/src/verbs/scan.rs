//! `ringdb scan` and `count`: ranges of keys.

use std::io::Write;

use serde_json::json;

use crate::args::{CountArgs, ScanArgs};
use crate::coding::Coding;
use crate::error::Result;
use crate::formats::{escape_into, write_pair};
use crate::out;
use crate::store::{self, Space};

/// Prints pairs in key order: key, TAB, value, with the escapes of TSV; or an object a line. A terminal gets no control
/// bytes, which it would obey: they are shown as \xHH.
pub fn scan(args: &ScanArgs) -> Result<()> {
    let coding = args.coding.coding();
    let bounds = store::bounds(&args.range, coding)?;
    let space = Space::existing(store::open_for_reading(&args.store)?, args.keyspace.keyspace.as_deref())?;
    let Some(bounds) = bounds else { return Ok(()) };
    let iter = space.range(bounds);
    let pairs: Box<dyn Iterator<Item = _>> = if args.reverse { Box::new(iter.rev()) } else { Box::new(iter) };
    let mut out = out::stdout();
    let visible = out::to_terminal();
    let mut line = Vec::new();
    for pair in pairs.take(args.limit.map_or(usize::MAX, |n| usize::try_from(n).unwrap_or(usize::MAX))) {
        let (key, value) = pair?;
        let value = (!args.keys_only).then_some(value);
        if args.json {
            write_pair(&mut out, coding, &key, value.as_deref())?;
            continue;
        }
        line.clear();
        field(coding, &key, visible, &mut line);
        if let Some(v) = value {
            line.push(b'\t');
            field(coding, &v, visible, &mut line);
        }
        line.push(b'\n');
        out.write_all(&line)?;
    }
    Ok(out.flush()?)
}

fn field(coding: Coding, bytes: &[u8], visible: bool, line: &mut Vec<u8>) {
    match coding {
        Coding::Text if visible => out::visible_into(bytes, line),
        Coding::Text => escape_into(bytes, line),
        c => c.encode_into(bytes, line),
    }
}

/// Counts keys by walking over them: the count is exact.
pub fn count(args: &CountArgs) -> Result<()> {
    let bounds = store::bounds(&args.range, args.coding.coding())?;
    let space = Space::existing(store::open_for_reading(&args.store)?, args.keyspace.keyspace.as_deref())?;
    let mut n = 0u64;
    if let Some(bounds) = bounds {
        let bar = out::count_bar(None);
        for pair in space.range(bounds) {
            pair?;
            n += 1;
            if n.is_multiple_of(4096) {
                bar.set_position(n);
            }
        }
        bar.finish_and_clear();
    }
    if args.json { out::json(&json!({ "count": n })) } else { out::text(&format!("{n}\n")) }
}
