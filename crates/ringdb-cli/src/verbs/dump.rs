//! `ringdb dump`: all records, in a format that `load` reads back byte for byte.

use std::fs::File;
use std::io::{BufWriter, Write};

use crate::args::{DumpArgs, Format};
use crate::error::{Failure, Result, at};
use crate::formats;
use crate::out;
use crate::store::{self, Space};

/// Writes the records of a keyspace, as they are at one moment.
pub fn dump(args: &DumpArgs) -> Result<()> {
    let by_name = || args.output.as_deref().and_then(formats::by_extension);
    let format =
        if args.json { Format::Jsonl } else { args.format.format.or_else(by_name).unwrap_or(Format::Tsv) };
    let bounds = store::bounds(&args.range, args.format.coding.coding())?;
    let space = Space::existing(store::open_for_reading(&args.store)?, args.keyspace.keyspace.as_deref())?;
    let output: Box<dyn Write> = match &args.output {
        Some(p) => Box::new(BufWriter::with_capacity(256 << 10, at(p, File::create(p))?)),
        None => Box::new(out::stdout()),
    };
    let failed = |e: std::io::Error| match (&args.output, Failure::from(e)) {
        (Some(p), Failure::Failed(m)) => Failure::Failed(format!("{}: {m}", p.display())),
        (_, f) => f,
    };
    let bar = args.output.is_some().then(|| out::count_bar(None));
    let mut writer = formats::writer(format, &args.format, output).map_err(failed)?;
    if let Some(bounds) = bounds {
        for (i, pair) in space.range(bounds).enumerate() {
            let (key, value) = pair?;
            writer.write(&key, &value).map_err(failed)?;
            if let Some(bar) = &bar
                && i % 1024 == 0
            {
                bar.set_position(i as u64);
            }
        }
    }
    writer.finish().map_err(failed)?;
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    Ok(())
}
