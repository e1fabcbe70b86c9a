//! [`Follower`]: how a store that was opened read-only catches up with its writer.
//!
//! As an open does, a refresh reads the manifest, then the log behind it, then looks whether the manifest still says
//! the same of the log. But it reads little twice: of the manifest the records that are new; of the log the frames that
//! are new, as long as nothing was flushed; tables stay open. Memtables that were flushed are replaced by those of the
//! log that is left, so that no entry is there twice. The new view is published whole; readers of the old one keep its
//! memtables, and its tables by their descriptors, whatever the writer has removed since.

use std::sync::Arc;

use super::core::Core;
use super::open::{describe, files_of, segments, until_believed};
use super::recover::{Tail, append_news, open_tables, read_news, replay_log};
use super::remember::resolve;
use crate::key::Seq;
use crate::log::Lost;
use crate::manifest::{Loaded, ManifestFile, ManifestState, Since, Version};
use crate::memtable::Memtable;
use crate::sync::lock;
use crate::table::Table;
use crate::{Error, Options, Result};

/// What the newest view is made of, and where to go on from.
pub(crate) struct Follower {
    /// As the open was given them.
    given: Options,
    loaded: Loaded,
    log: Log,
}

/// What has been read of the log.
struct Log {
    /// Oldest first, each with its newest sequence number.
    memtables: Vec<(Arc<Memtable>, Seq)>,
    /// `None` if the log has to be replayed from its beginning.
    tail: Option<Tail>,
    last_seq: Seq,
}

impl Follower {
    /// Of a store that was opened with `given`, as `loaded` and the log said; `log` are its memtables, its end, and the
    /// newest sequence number.
    pub(super) fn new(
        given: Options,
        loaded: Loaded,
        (memtables, tail, last_seq): (Vec<(Arc<Memtable>, Seq)>, Tail, Seq),
    ) -> Follower {
        Follower { given, loaded, log: Log { memtables, tail: Some(tail), last_seq } }
    }
}

/// What the store has come to.
struct Next {
    /// What the manifest says, if that is not the same.
    loaded: Option<Box<Loaded>>,
    /// Its tables, if they are not the same.
    version: Option<Version<Table>>,
    /// The log, if it was read from its beginning.
    log: Option<Log>,
    damage: Option<String>,
}

impl Core {
    /// See [`crate::Db::refresh`].
    pub fn refresh(&self) -> Result<bool> {
        self.check_open()?;
        let Some(follower) = &self.follower else { return Ok(false) };
        let f = &mut *lock(follower);
        let next = until_believed(&self.dir, &*self.env, || self.look_further(f))?;
        self.move_on(f, next)
    }

    /// Reads what is new; `None` if the writer was too fast. With damage that was passed over, if there is some.
    fn look_further(&self, f: &mut Follower) -> Result<Option<(Next, Option<Lost>)>> {
        let (io, dir) = (&self.io, &self.dir);
        let since = ManifestFile::load_since(io, dir, &f.loaded)?;
        // Segments come into being all the time; list them after the manifest was read, so that none is missed.
        let own = files_of(io, dir)?;
        let new = match since {
            Since::NoCurrent => return Ok(None),
            Since::Same => None,
            Since::New(loaded) => Some(loaded),
        };
        let (before, now) = (&f.loaded.state, &new.as_deref().unwrap_or(&f.loaded).state);
        self.check_same(before, now)?;
        let same_tables = now.tables == before.tables && now.ranges == before.ranges;
        let same_log = now.log_number == before.log_number && now.flushed_seq == before.flushed_seq;
        let at = (io, dir.as_path(), &self.options);
        let version = match same_tables && same_log {
            true => None,
            false => Some(open_tables(at, &self.cache, now, &self.tree.version())?),
        };
        let may_follow = same_log && !before.lacks_ingest_of(now);
        let news = match f.log.tail.as_ref().filter(|_| may_follow) {
            Some(tail) => read_news(at, now, &segments(&own), tail)?,
            None => None,
        };
        let replayed = match &news {
            Some(_) => None,
            None => Some(replay_log(at, &self.cache, now, &segments(&own))?),
        };
        // A segment is reused only after an edit that says so.
        let latest = ManifestFile::load_since(io, dir, new.as_deref().unwrap_or(&f.loaded))?;
        if !holds(now, version.as_ref(), &latest) {
            return Ok(None);
        }
        // The view of before has the same memtable. It may show more of it, once there is nothing between the two that
        // came by tables alone.
        if let Some((news, tail)) = news.zip(f.log.tail.take()) {
            let more = append_news(at, &self.cache, now, news, tail)?;
            f.log.memtables.extend(more.begun);
            f.log.last_seq = f.log.last_seq.max(more.last_seq);
            f.log.tail = Some(more.tail);
        }
        let (mut log, mut damage) = (None, None);
        if let Some(r) = replayed {
            damage = r.lost.or(r.broken);
            log = Some(Log { memtables: r.memtables, tail: Some(r.tail), last_seq: r.last_seq });
        }
        let next = Next { loaded: new, version, log, damage: damage.as_ref().map(describe) };
        Ok(Some((next, damage)))
    }

    /// Fails if what is there now cannot have become of what was.
    fn check_same(&self, before: &ManifestState, now: &ManifestState) -> Result<()> {
        let another = before.store_id != 0 && now.store_id != before.store_id;
        if another || now.next_file_number < before.next_file_number || now.log_number < before.log_number {
            return Err(self.gone("another store, or an older state of it, is in its place"));
        }
        Ok(())
    }

    fn gone(&self, what: &str) -> Error {
        let detail = format!("{what}; close this handle and open the store again");
        Error::NoStore { path: self.dir.clone(), detail }
    }

    /// Shows readers what was found; whether there is anything new.
    fn move_on(&self, f: &mut Follower, next: Next) -> Result<bool> {
        let Next { loaded, version, log, damage } = next;
        let now = &loaded.as_deref().unwrap_or(&f.loaded).state;
        let visible = self.views.visible();
        let seq = log.as_ref().unwrap_or(&f.log).last_seq.max(now.last_seq);
        if seq < visible {
            let what = format!("it has gone back from sequence number {visible} to {seq}");
            return Err(self.gone(&what));
        }
        let before = &f.loaded.state;
        let same_spaces = now.keyspaces == before.keyspaces && now.settings == before.settings;
        let moved = seq > visible || version.is_some() || !same_spaces;
        let mut settings = None;
        if let Some(loaded) = &loaded {
            let mut state = loaded.state.clone();
            let (_, remembered) = resolve(&self.io, &self.dir, f.given.clone(), &state, true)?;
            state.settings.insert(0, remembered);
            settings = Some(state);
        }
        if let Some(log) = log {
            f.log = log;
            *lock(&self.recovered_damage) = damage;
        }
        if let Some(loaded) = loaded {
            f.loaded = *loaded;
        }
        // Keyspaces first: their entries are found when they are.
        if let Some(state) = settings {
            self.keyspaces.move_on(&state);
        }
        if moved {
            self.tree.move_on(&f.log.memtables, version, seq);
        }
        Ok(moved)
    }
}

/// Whether what was read of the log and of tables fits to `now`, which the manifest said before, by what it says after.
fn holds(now: &ManifestState, version: Option<&Version<Table>>, latest: &Since) -> bool {
    match latest {
        Since::NoCurrent => false,
        Since::Same => true,
        Since::New(latest) => {
            // A table that cannot be read may just have been compacted away.
            let unreadable = |v: &Version<Table>| v.tables().any(|(_, t)| t.why_unreadable().is_some());
            let changed = latest.state.tables != now.tables;
            // Nor what was ingested meanwhile: what came after it may be in the log that was read.
            latest.state.log_number == now.log_number
                && !now.lacks_ingest_of(&latest.state)
                && !(changed && version.is_some_and(unreadable))
        }
    }
}
