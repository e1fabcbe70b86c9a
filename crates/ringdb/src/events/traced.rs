//! [`TracingListener`]: events for `tracing`.

use tracing::{error, info, warn};

use super::{Event, EventListener};

/// Gives a store's events to the program's `tracing` subscriber, with the target `ringdb`: what succeeds as `INFO`,
/// stalls and what is tried again as `WARN`, damage and the end of writing as `ERROR`.
///
/// ```
/// use ringdb::{Db, Options, TracingListener};
///
/// # fn main() -> ringdb::Result<()> {
/// # let dir = tempfile::tempdir().expect("a temporary directory");
/// let db = Db::open(dir.path(), Options::default().with_listener(TracingListener))?;
/// # db.close()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct TracingListener;

impl EventListener for TracingListener {
    fn event(&self, event: &Event) {
        match event {
            Event::Opened { directory, read_only, tables, replayed_frames, replayed_bytes, lost, took } => {
                let (directory, took_us) = (directory.display(), took.as_micros() as u64);
                info!(
                    target: "ringdb", %directory, read_only, tables, replayed_frames, replayed_bytes, took_us, "opened"
                );
                if let Some(lost) = lost {
                    error!(target: "ringdb", %directory, "the log has lost something: {lost}");
                }
            }
            Event::Closed { directory } => {
                info!(target: "ringdb", directory = %directory.display(), "closed")
            }
            Event::FlushBegan { memtables } => info!(target: "ringdb", memtables, "flush began"),
            Event::FlushEnded { memtable_bytes, tables, written_bytes, took, error: None } => {
                let took_us = took.as_micros() as u64;
                info!(target: "ringdb", memtable_bytes, tables, written_bytes, took_us, "flush ended");
            }
            Event::FlushEnded { error: Some(error), .. } => warn!(target: "ringdb", error, "flush failed"),
            Event::CompactionBegan { reason, level, output, tables, bytes } => {
                info!(target: "ringdb", reason, level, output, tables, bytes, "compaction began");
            }
            Event::CompactionEnded {
                reason,
                level,
                output,
                moved_tables,
                read_bytes,
                written_bytes,
                took,
                error: None,
            } => {
                let took_us = took.as_micros() as u64;
                info!(
                    target: "ringdb", reason, level, output, moved_tables, read_bytes, written_bytes, took_us,
                    "compaction ended"
                );
            }
            Event::CompactionEnded { reason, level, output, error: Some(error), .. } => {
                warn!(target: "ringdb", reason, level, output, error, "compaction failed");
            }
            Event::Ingested { keyspace, pairs, tables, written_bytes, took } => {
                let took_us = took.as_micros() as u64;
                info!(target: "ringdb", keyspace, pairs, tables, written_bytes, took_us, "ingested");
            }
            Event::StallBegan { reason } => warn!(target: "ringdb", reason, "writers are slowed"),
            Event::StallEnded { took } => {
                info!(target: "ringdb", took_us = took.as_micros() as u64, "writers are not slowed any more");
            }
            Event::TroubleBegan { work, error } => {
                warn!(target: "ringdb", work, error, "background work fails")
            }
            Event::TroubleEnded { work } => info!(target: "ringdb", work, "background work goes on"),
            Event::TableDamaged { error } => error!(target: "ringdb", error, "a table is damaged"),
            Event::Stopped { reason } => error!(target: "ringdb", reason, "the store has stopped writing"),
        }
    }
}
