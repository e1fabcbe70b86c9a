//! `ringdb export`: the records of a range as sorted tables.

use std::ops::Bound;
use std::time::Instant;

use crate::args::ExportArgs;
use crate::error::{Failure, Result};
use crate::out::{self, human_bytes, human_count};
use crate::store::{self, Space};

/// Writes the tables.
pub fn export(args: &ExportArgs) -> Result<()> {
    let bounds = store::bounds(&args.range, args.coding.coding())?;
    let nothing = (Bound::Unbounded, Bound::Excluded(Vec::new()));
    let space = Space::existing(store::open_for_reading(&args.store)?, args.keyspace.keyspace.as_deref())?;
    let start = Instant::now();
    let bar = out::count_bar(None);
    bar.set_message("exporting");
    let report = space.export(bounds.unwrap_or(nothing), &args.dir);
    bar.finish_and_clear();
    let report = report.map_err(|e| match e {
        Failure::Usage(why) => Failure::Failed(why),
        e => e,
    })?;
    if args.json {
        return out::json(&report);
    }
    out::text(&format!(
        "exported {} records as {} tables ({}) to {} in {:.2} s\n",
        human_count(report.pairs),
        human_count(report.tables),
        human_bytes(report.bytes),
        args.dir.display(),
        start.elapsed().as_secs_f64(),
    ))
}
