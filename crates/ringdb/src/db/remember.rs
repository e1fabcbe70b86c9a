//! The settings that a store remembers, and what overrides them when it is opened.

use std::collections::BTreeMap;
use std::path::Path;

use engineswap::Io;

use super::quarantine::is_damage;
use crate::compaction::pick::LAST;
use crate::files::FileKind;
use crate::manifest::{ManifestState, Remembered};
use crate::options::KeyspaceOptions;
use crate::settings::{SettingsMap, TableSettings};
use crate::table::Reads;
use crate::table::meta::TableMeta;
use crate::table::parts::TableParts;
use crate::{Options, Result, purpose};

/// Damaged tables that are passed over in search of one that says how tables were written.
const MOST_TRIES: usize = 8;

/// The settings of the store that is opened, and what it remembers of them: what `options` gives, over what the
/// manifest says, over what the tables of an old store say, over the defaults.
pub(super) fn resolve(
    io: &Io,
    dir: &Path,
    options: Options,
    state: &ManifestState,
    read_only: bool,
) -> Result<(Options, Remembered)> {
    let mut remembered = state.settings.get(&0).cloned().unwrap_or_default();
    let k = &remembered.known;
    let known = [k.compression.is_some(), k.last_level_compression.is_some()];
    if !known.into_iter().chain([k.block_bytes.is_some(), k.filter_bits_per_key.is_some()]).all(|is| is) {
        let told = told_by_tables(io, dir, state, Reads::from_option(options.direct_reads))?;
        remembered = remembered.with(&remembered.known.over(&told));
    }
    if !read_only {
        remembered = remembered.with(&options.remembered());
    }
    let settings = TableSettings::of_store(&Options::default()).with(&remembered.known);
    let nothing_told = !state.tables.is_empty() && remembered.known.block_bytes.is_none();
    if !nothing_told {
        remembered = remembered.with(&settings.to_options());
    }
    let life = remembered.known.time_to_live.unwrap_or_default();
    Ok((settings.put_into(options).with_time_to_live(life), remembered))
}

/// How the tables of a store were written that does not say so itself: by the largest of the last level and of the
/// others. Levels without tables are as the others.
fn told_by_tables(io: &Io, dir: &Path, state: &ManifestState, reads: Reads) -> Result<KeyspaceOptions> {
    let largest = |last: bool| {
        let of_group = |(level, _): &&(u32, TableMeta)| (*level as usize == LAST) == last;
        let mut metas: Vec<&TableMeta> = state.tables.values().filter(of_group).map(|(_, m)| m).collect();
        metas.sort_by_key(|m| std::cmp::Reverse(m.file_bytes));
        for meta in metas.into_iter().take(MOST_TRIES) {
            let path = FileKind::Table(meta.file_id).path(dir);
            match TableParts::load(io, &path, meta.file_id, reads, purpose::TABLE_OPEN) {
                Ok(parts) => return Ok(Some(parts.properties)),
                // Any of the others says it too.
                Err(e) if is_damage(&e) => {}
                Err(e) => return Err(e),
            }
        }
        Ok(None)
    };
    let (upper, last) = (largest(false)?, largest(true)?);
    let (Some(upper), Some(last)) = (upper.as_ref().or(last.as_ref()), last.as_ref().or(upper.as_ref()))
    else {
        return Ok(KeyspaceOptions::default());
    };
    Ok(KeyspaceOptions::default()
        .with_compression(upper.compression.into())
        .with_last_level_compression(last.compression.into())
        .with_block_bytes(last.block_bytes)
        .with_filter_bits_per_key(last.filter_bits_per_key))
}

/// Bytes of the cache's frames, which have one size: that of the blocks of most bytes of tables.
pub(super) fn frame_bytes(state: &ManifestState, map: &SettingsMap) -> u32 {
    let mut bytes: BTreeMap<u32, u64> = BTreeMap::new();
    for (_, meta) in state.tables.values() {
        let settings = map.of_region(map.region_of(&meta.smallest));
        *bytes.entry(settings.block_bytes).or_default() += meta.file_bytes;
    }
    let most = bytes.into_iter().max_by_key(|(_, n)| *n);
    most.map_or(map.of_region(0).block_bytes, |(block_bytes, _)| block_bytes)
}
