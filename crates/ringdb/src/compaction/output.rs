//! [`Outputs`]: the tables that a flush, a part of a compaction or an ingest writes.
//!
//! A table is cut when it is large enough, between two keys only, so that tables of a level stay disjoint, and where
//! keyspaces with different settings meet. Its sync overlaps the writing of the next. Files are removed again unless
//! they are [kept](PendingFiles::keep).

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;

use engineswap::{Io, Process, Purpose};

use super::CompactionEnv;
use super::filtering::Filtering;
use super::memory::Memory;
use super::pick::{LAST, cuts};
use super::watch::Watch;
use crate::Result;
use crate::cache::Charge;
use crate::files::FileKind;
use crate::key::{Kind, Seq};
use crate::operator::registry::Operator;
use crate::seal::ring;
use crate::settings::SettingsMap;
use crate::table::Reads;
use crate::table::meta::TableMeta;
use crate::table::writer::{FinishingTable, TableOptions, TableWriter};

/// Tables whose sync is waited for only when further ones have been written.
const SYNCING: usize = 2;

/// Bytes of keys and values between looks at the size of the table.
const LOOK_EVERY: usize = 2048;

/// Files that are not in the tree yet: removed when dropped unless kept.
pub(crate) struct PendingFiles {
    io: Io,
    files: Vec<PathBuf>,
    /// Whose they are: a child of it leaves them where they are.
    process: Process,
}

impl PendingFiles {
    fn new(io: &Io) -> PendingFiles {
        PendingFiles { io: io.clone(), files: Vec::new(), process: Process::this() }
    }

    /// The files stay.
    pub fn keep(mut self) {
        self.files.clear();
    }
}

impl Drop for PendingFiles {
    fn drop(&mut self) {
        if !self.process.is_this() {
            return;
        }
        for f in &self.files {
            // Whatever cannot be removed now is an orphan, removed when the store is next opened.
            let _ = self.io.remove_file(f);
        }
    }
}

/// Writes versions into tables.
pub(crate) struct Outputs<'a, T: CompactionEnv> {
    store: &'a T,
    options: TableOptions,
    table_bytes: u64,
    /// Bytes of keys and values until the table's size is looked at again.
    until_look: usize,
    writer: Option<TableWriter>,
    /// Tables end here, so that none reaches into a damaged table's range and out of it: the keys are ascending,
    /// each with whether it is the last before the cut, not the first behind it.
    cuts: VecDeque<(Vec<u8>, bool)>,
    finishing: VecDeque<FinishingTable>,
    done: Vec<TableMeta>,
    pending: PendingFiles,
    /// What the writer takes of memory.
    charge: Option<Charge>,
    /// How tables of each keyspace are written, and which of its regions the next key is in.
    settings: Arc<SettingsMap>,
    region: usize,
    last_level: bool,
    pub(super) filtering: Option<Filtering>,
    /// Told of what is written, if that is limited; and of how much of the table it knows.
    pub(super) watch: Option<Arc<Watch>>,
    told: u64,
}

impl<'a, T: CompactionEnv> Outputs<'a, T> {
    /// Tables for `level` of about `table_bytes` each; all in all about so many bytes and at most so many versions
    /// will come.
    pub fn new(
        store: &'a T,
        level: usize,
        table_bytes: u64,
        (expected_bytes, most_entries): (u64, u64),
        purpose: Purpose,
    ) -> Self {
        let (o, settings) = (store.options(), store.table_settings());
        let first = settings.of_region(0);
        let options = TableOptions {
            block_bytes: first.block_bytes,
            compression: first.compression_of(level == LAST),
            filter_bits_per_key: first.filter_bits_of(level == LAST),
            expected_bytes: expected_bytes.min(table_bytes.saturating_add(table_bytes / 32)),
            buffer_bytes: Memory::of(o).write_bytes(),
            // Those of level 0 are not cut within a region, so one that is alone has about all of them.
            most_keys: (level == 0 && settings.regions() == 1).then_some(most_entries),
            most_hashes: Memory::of(o).hashes(),
            reads: Reads::from_option(o.direct_reads),
            seal: None,
            purpose,
        };
        Outputs {
            store,
            charge: store.charge(0),
            options,
            table_bytes,
            until_look: 0,
            writer: None,
            cuts: cuts(&store.levels(), &store.quarantined()).into(),
            finishing: VecDeque::new(),
            done: Vec::new(),
            pending: PendingFiles::new(store.io()),
            settings,
            region: 0,
            last_level: level == LAST,
            filtering: None,
            watch: None,
            told: 0,
        }
    }

    /// The merge operator for an internal key, if the store knows what it does.
    pub fn operator(&self, internal: &[u8]) -> Option<Operator> {
        self.store.operator(internal).filter(|o| o.code().is_ok())
    }

    /// The wall clock's time, by which values expire.
    pub fn now(&self) -> u64 {
        self.store.wall_clock()
    }

    /// Adds a version. `new_key`: its key is not that of the version before.
    #[inline]
    pub fn add(&mut self, key: &[u8], seq: Seq, kind: Kind, value: &[u8], new_key: bool) -> Result<()> {
        if new_key && !self.cuts.is_empty() && self.passes_cut(key) {
            self.cut()?;
        }
        if new_key && self.settings.end_of(self.region).is_some_and(|end| end <= key) {
            self.enter_region(key)?;
        }
        if new_key && self.until_look == 0 {
            self.until_look = LOOK_EVERY;
            if let (Some(charge), Some(w)) = (&self.charge, &self.writer) {
                charge.set_roughly(w.memory());
            }
            self.tell_written()?;
            if self.writer.as_ref().is_none_or(|w| w.estimated_bytes() >= self.table_bytes) {
                self.cut()?;
                self.start()?;
            }
        }
        self.until_look = self.until_look.saturating_sub(key.len() + value.len());
        match &mut self.writer {
            Some(w) => w.add(key, seq, kind, value),
            None => self.start()?.add(key, seq, kind, value),
        }
    }

    /// Ends the table at the end of a region: the next ones are written as those of the region of `key`.
    #[cold]
    fn enter_region(&mut self, key: &[u8]) -> Result<()> {
        self.cut()?;
        self.region = self.settings.region_of(key);
        let s = self.settings.of_region(self.region);
        self.options.block_bytes = s.block_bytes;
        self.options.compression = s.compression_of(self.last_level);
        self.options.filter_bits_per_key = s.filter_bits_of(self.last_level);
        Ok(())
    }

    /// Whether a cut lies before `key`; forgets it.
    fn passes_cut(&mut self, key: &[u8]) -> bool {
        let before =
            |(at, last): &(Vec<u8>, bool)| if *last { at.as_slice() < key } else { at.as_slice() <= key };
        let passed = self.cuts.iter().take_while(|c| before(c)).count();
        self.cuts.drain(..passed);
        passed > 0
    }

    fn start(&mut self) -> Result<&mut TableWriter> {
        let id = self.store.new_file_number();
        let path = FileKind::Table(id).path(self.store.dir());
        self.pending.files.push(path.clone());
        let seal = ring::for_writing(self.store.io())?;
        let options = TableOptions { seal, ..self.options.clone() };
        let writer = TableWriter::create(self.store.io(), &path, id, options)?;
        Ok(self.writer.insert(writer))
    }

    /// Waits as the limit of compactions' writes has it.
    fn tell_written(&mut self) -> Result<()> {
        if let (Some(watch), Some(w)) = (&self.watch, &self.writer) {
            let size = w.estimated_bytes();
            watch.wrote(size.saturating_sub(self.told))?;
            self.told = size;
        }
        Ok(())
    }

    fn cut(&mut self) -> Result<()> {
        self.tell_written()?;
        self.told = 0;
        if let Some(w) = self.writer.take() {
            self.finishing.push_back(w.finish_start()?);
        }
        while self.finishing.len() > SYNCING {
            self.wait_for_one()?;
        }
        Ok(())
    }

    fn wait_for_one(&mut self) -> Result<()> {
        if let Some(f) = self.finishing.pop_front() {
            self.done.push(f.wait()?);
        }
        Ok(())
    }

    /// All tables, durable (their directory entries are not yet), and what removes them again.
    pub fn finish(mut self) -> Result<(Vec<TableMeta>, PendingFiles)> {
        self.cut()?;
        while !self.finishing.is_empty() {
            self.wait_for_one()?;
        }
        let nothing = PendingFiles::new(&self.pending.io);
        Ok((std::mem::take(&mut self.done), std::mem::replace(&mut self.pending, nothing)))
    }
}
