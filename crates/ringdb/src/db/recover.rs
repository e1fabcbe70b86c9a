//! What the manifest and the log say a store is: tables opened, frames replayed into memtables.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use engineswap::Io;

use super::quarantine::is_damage;
use crate::cache::Cache;
use crate::files::FileKind;
use crate::key::{self, Seq};
use crate::log::payload::decode;
use crate::log::{LogPos, Lost, ReplayFrom, follow, replay};
use crate::manifest::{ManifestState, Version};
use crate::memtable::{MemWriter, Memtable};
use crate::mutation::{Mutation, broken};
use crate::table::{Reads, Table};
use crate::{Error, Options, Result};

/// A store's content, in memory.
pub(super) struct Recovered {
    pub cache: Arc<Cache>,
    pub version: Version<Table>,
    /// What the log holds beyond the tables, oldest first, each with its newest sequence number.
    pub memtables: Vec<(Arc<Memtable>, Seq)>,
    /// Frames of the log that they were made of.
    pub frames: u64,
    pub last_seq: Seq,
    pub lost: Option<Lost>,
    /// See [`crate::log::ReplayEnd::broken`].
    pub broken: Option<Lost>,
    /// Where to go on from, for who reads beside a writer.
    pub tail: Tail,
}

/// Where a replay has ended, and the memtable that what follows goes to.
#[derive(Default)]
pub(super) struct Tail {
    /// The end of the log, and the first sequence number of its last frame.
    pub at: (LogPos, Seq),
    /// Of the newest memtable, if there is one, with the newest sequence number in it.
    writer: Option<(Arc<Memtable>, MemWriter, Seq)>,
}

/// What replaying a log comes to.
pub(super) struct Replayed {
    pub memtables: Vec<(Arc<Memtable>, Seq)>,
    pub frames: u64,
    pub last_seq: Seq,
    pub lost: Option<Lost>,
    pub broken: Option<Lost>,
    pub tail: Tail,
}

/// Opens the tables of `state`, those that cannot be read as [`Table::unreadable`], and replays the `segments` behind
/// it. `frame_bytes` are those of the cache's frames. Changes nothing on disk.
pub(super) fn recover(
    io: &Io,
    dir: &Path,
    options: &Options,
    frame_bytes: u32,
    state: &ManifestState,
    segments: &[u64],
) -> Result<Recovered> {
    let cache = Cache::new(options.cache_bytes, frame_bytes as usize);
    let version = open_tables((io, dir, options), &cache, state, &Version::empty())?;
    let log = replay_log((io, dir, options), &cache, state, segments)?;
    let Replayed { memtables, frames, last_seq, lost, broken, tail } = log;
    Ok(Recovered { cache, version, memtables, frames, last_seq, lost, broken, tail })
}

/// Where a store is and how it is read.
pub(super) type At<'a> = (&'a Io, &'a Path, &'a Options);

/// The tables of `state`. Those that `open` has already are not opened again.
pub(super) fn open_tables(
    (io, dir, options): At<'_>,
    cache: &Arc<Cache>,
    state: &ManifestState,
    open: &Version<Table>,
) -> Result<Version<Table>> {
    let reads = Reads::from_option(options.direct_reads);
    let readable = open.tables().filter(|(_, t)| t.why_unreadable().is_none());
    let open: BTreeMap<u64, &Arc<Table>> = readable.map(|(_, t)| (t.meta().file_id, t)).collect();
    Version::build(state, |_, meta| {
        if let Some(table) = open.get(&meta.file_id).filter(|t| t.meta() == meta) {
            return Ok(Arc::clone(table));
        }
        let path = FileKind::Table(meta.file_id).path(dir);
        match Table::open(io, cache, &path, meta.clone(), reads) {
            Err(e) if is_damage(&e) => Ok(Table::unreadable(io, cache, &path, meta.clone(), gone(e))),
            table => table,
        }
    })
    .map_err(|e| match e {
        Error::Invalid(detail) => Error::corrupt(&FileKind::Current.path(dir), None, detail),
        e => e,
    })
}

fn from(state: &ManifestState, options: &Options) -> ReplayFrom {
    ReplayFrom {
        first_segment: state.log_number,
        flushed_seq: state.flushed_seq,
        recover_damaged: options.recover_damaged_log,
        durable: state.log_durable,
    }
}

/// What the log holds beyond the tables of `state`.
pub(super) fn replay_log(
    (io, dir, options): At<'_>,
    cache: &Arc<Cache>,
    state: &ManifestState,
    segments: &[u64],
) -> Result<Replayed> {
    let limit = options.memtable_limit();
    let mut sink = Sink { state, dir, cache, limit, open: None, done: Vec::new() };
    let (mut last_seq, mut frames) = (state.last_seq, 0);
    let end = replay(io, dir, segments, &from(state, options), &mut |first, payload| {
        frames += 1;
        last_seq = last_seq.max(sink.frame(first, payload)?);
        Ok(())
    })?;
    check_last_seq(dir, last_seq)?;
    if broken(Mutation::ReuseSequenceNumbers) {
        last_seq = state.last_seq;
    }
    let Sink { mut done, open, .. } = sink;
    done.extend(open.iter().map(|(mem, _, newest)| (mem.clone(), *newest)));
    let tail = Tail { at: (end.end, end.last_first_seq), writer: open };
    Ok(Replayed { memtables: done, frames, last_seq, lost: end.lost, broken: end.broken, tail })
}

fn check_last_seq(dir: &Path, last_seq: Seq) -> Result<()> {
    if last_seq > key::SEQ_MAX / 2 {
        // A million writes a second take a thousand years to get here.
        let detail = format!("it has come to sequence number {last_seq}, which no store can have");
        return Err(Error::corrupt(dir, None, detail));
    }
    Ok(())
}

/// Frames that have come to the log, in no memtable yet, and where they end.
pub(super) struct News {
    frames: Vec<(Seq, Vec<u8>)>,
    at: (LogPos, Seq),
}

/// What [`append_news`] has come to.
pub(super) struct Followed {
    /// Memtables behind the former newest one, oldest first.
    pub begun: Vec<(Arc<Memtable>, Seq)>,
    /// The newest sequence number of the log.
    pub last_seq: Seq,
    pub tail: Tail,
}

/// Reads what has come behind `tail`. `None` if it is more than a memtable takes, or the log has to be replayed from
/// its beginning for another reason.
pub(super) fn read_news(
    (io, dir, options): At<'_>,
    state: &ManifestState,
    segments: &[u64],
    tail: &Tail,
) -> Result<Option<News>> {
    let (mut frames, mut bytes) = (Vec::new(), 0);
    let at = follow(io, dir, segments, &from(state, options), tail.at, &mut |first, payload| {
        bytes += payload.len() as u64;
        if bytes > options.memtable_limit() {
            frames = Vec::new();
        } else {
            frames.push((first, payload.to_vec()));
        }
        Ok(())
    })?;
    Ok(at.filter(|_| bytes <= options.memtable_limit()).map(|at| News { frames, at }))
}

/// Adds `news` to the memtable of `tail`, and to others when that is full.
pub(super) fn append_news(
    (_, dir, options): At<'_>,
    cache: &Arc<Cache>,
    state: &ManifestState,
    news: News,
    tail: Tail,
) -> Result<Followed> {
    let limit = options.memtable_limit();
    let known = tail.writer.as_ref().map(|(mem, ..)| mem.clone());
    let mut sink = Sink { state, dir, cache, limit, open: tail.writer, done: Vec::new() };
    let mut last_seq = 0;
    for (first, payload) in &news.frames {
        last_seq = last_seq.max(sink.frame(*first, payload)?);
    }
    check_last_seq(dir, last_seq)?;
    let Sink { done: mut begun, open, .. } = sink;
    begun.extend(open.iter().map(|(mem, _, newest)| (mem.clone(), *newest)));
    begun.retain(|(mem, _)| known.as_ref().is_none_or(|k| !Arc::ptr_eq(k, mem)));
    Ok(Followed { begun, last_seq, tail: Tail { at: news.at, writer: open } })
}

/// A missing table is damage, not a wrong path of the caller's.
fn gone(e: Error) -> Error {
    match e {
        Error::Io(e) if e.kind() == engineswap::ErrorKind::NotFound => {
            let path = e.path().unwrap_or(Path::new("a table")).to_path_buf();
            Error::Corrupt {
                path,
                offset: None,
                detail: "the manifest names this table, but it is gone".into(),
            }
        }
        e => e,
    }
}

/// Where frames go.
struct Sink<'a> {
    state: &'a ManifestState,
    dir: &'a Path,
    cache: &'a Arc<Cache>,
    limit: u64,
    open: Option<(Arc<Memtable>, MemWriter, Seq)>,
    done: Vec<(Arc<Memtable>, Seq)>,
}

impl Sink<'_> {
    /// Inserts a frame's operations, in one memtable; returns the last sequence number.
    fn frame(&mut self, first: Seq, payload: &[u8]) -> Result<Seq> {
        if self.open.as_ref().is_some_and(|(m, ..)| m.bytes() >= self.limit) {
            self.close();
        }
        let (_, writer, newest) = self.open.get_or_insert_with(|| {
            let (mem, writer) = Memtable::charged(self.limit, self.cache);
            (mem, writer, 0)
        });
        let corrupt = |what: &str| {
            // The frame's checksum holds, so this was written: by a fault of the program, or by another one.
            Error::corrupt(self.dir, None, format!("the log frame of sequence number {first}: {what}"))
        };
        let mut seq = first;
        for op in decode(payload) {
            let op = op.map_err(corrupt)?;
            if key::split(op.first_key()).is_none_or(|(id, _)| id != 0 && id >= self.state.next_keyspace_id) {
                return Err(corrupt("it writes to a keyspace that never was"));
            }
            if seq > key::SEQ_MAX {
                return Err(corrupt("its sequence numbers are too large"));
            }
            op.insert_into(writer, seq);
            *newest = seq;
            seq += 1;
        }
        Ok(seq.saturating_sub(1).max(first))
    }

    fn close(&mut self) {
        self.done.extend(self.open.take().map(|(mem, _, newest)| (mem, newest)));
    }
}
