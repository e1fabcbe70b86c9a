//! [`Ledger`]: what is read and lost, on the way to the report.

use std::path::PathBuf;

use super::find::Source;
use super::report::{SalvageLoss, SalvageReport};
use crate::key::printable;
use crate::stats::Progress;

/// Losses that are listed; a damaged disk may have millions.
const MOST_LISTED: usize = 10_000;
/// Bytes between calls of the progress.
const PROGRESS_EVERY: u64 = 1 << 20;

/// Something lost, by internal keys.
#[derive(Clone, Debug, Default)]
pub(super) struct Loss {
    /// The number of the source; `None` for the log.
    pub source: Option<usize>,
    pub path: PathBuf,
    pub detail: String,
    pub first_block: Option<u32>,
    pub blocks: Option<u64>,
    pub offset: Option<u64>,
    pub bytes: u64,
    pub entries: Option<u64>,
    pub from: Option<Vec<u8>>,
    pub to: Option<Vec<u8>>,
}

/// What is read and lost.
#[derive(Default)]
pub(super) struct Ledger {
    pub report: SalvageReport,
    losses: Vec<Loss>,
    pub progress: Option<Progress>,
    total: u64,
    told: u64,
}

impl Ledger {
    pub fn new(progress: Option<Progress>, total: u64) -> Ledger {
        Ledger { progress, total, ..Ledger::default() }
    }

    /// So many bytes more were read.
    pub fn read(&mut self, bytes: u64) {
        self.report.bytes += bytes;
        if self.report.bytes >= self.told + PROGRESS_EVERY {
            self.told = self.report.bytes;
            if let Some(progress) = &self.progress {
                progress(self.told.min(self.total), self.total);
            }
        }
    }

    pub fn lost(&mut self, loss: Loss) {
        self.report.lost_bytes += loss.bytes;
        match self.losses.len() < MOST_LISTED {
            true => self.losses.push(loss),
            false => self.report.lost_unlisted += 1,
        }
    }

    /// A table has been read to its end: so many of its entries are missing, if that is known.
    pub fn entries_missing(&mut self, source: usize, missing: Option<u64>) {
        self.report.lost_entries += missing.unwrap_or(0);
        let mut of_table = self.losses.iter_mut().filter(|l| l.source == Some(source));
        if let (Some(one), None) = (of_table.next(), of_table.next()) {
            one.entries = one.entries.or(missing);
        }
    }

    /// Whether a source has lost something.
    pub fn has_lost(&self, source: usize) -> bool {
        self.losses.iter().any(|l| l.source == Some(source))
    }

    /// The report, once all was read.
    pub fn finish(mut self, sources: &[Source]) -> SalvageReport {
        let mut damaged: Vec<usize> = self.losses.iter().filter_map(|l| l.source).collect();
        damaged.sort_unstable();
        damaged.dedup();
        self.report.tables_damaged = damaged.len() as u64;
        let trusted = self.report.manifest_whole;
        let stale = |l: &Loss| match l.source.and_then(|i| sources.get(i)) {
            // Whatever was written last is missing.
            None => true,
            Some(own) => {
                let other = |s: &&Source| !std::ptr::eq(*s, own) && (!trusted || s.is_below(own));
                sources.iter().filter(other).any(|s| s.meets(l.from.as_deref(), l.to.as_deref()))
            }
        };
        let listed = self.losses.iter().map(|l| SalvageLoss {
            file: l.path.display().to_string(),
            detail: l.detail.clone(),
            level: l.source.and_then(|i| sources.get(i)?.level),
            first_block: l.first_block,
            blocks: l.blocks,
            offset: l.offset,
            bytes: l.bytes,
            entries: l.entries,
            from: l.from.as_deref().map(printable),
            to: l.to.as_deref().map(printable),
            may_be_out_of_date: stale(l),
        });
        self.report.lost = listed.collect();
        if let Some(progress) = &self.progress {
            progress(self.total, self.total);
        }
        self.report
    }
}
