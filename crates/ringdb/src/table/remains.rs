//! [`Remains`]: what can be read of a table's parts when not all of them can.

use std::path::Path;
use std::sync::Arc;

use engineswap::{Io, Purpose};

use super::block::BLOCK_UNIT;
use super::format::{
    BLOCK_BYTES_RANGE, FILTER, FOOTER_BYTES, Footer, INDEX, PROPERTIES, Properties, Section, SectionNumber,
};
use super::index::Index;
use super::walk::Window;
use crate::coding::Reader;
use crate::error::{Error, Result};
use crate::seal::{Seal, ring};

const UNIT: u64 = BLOCK_UNIT as u64;
/// How far back from the end of a file the footer is looked for: something may have been appended.
const SEARCH_UNITS: u64 = 256;

/// What is left of a table besides its blocks.
pub(crate) struct Remains {
    pub window: Window,
    /// The number that the blocks' checksums are started from.
    pub file_id: u64,
    /// What the table is sealed with. Without its index, the blocks of one that is sealed cannot be found.
    pub seal: Option<Arc<Seal>>,
    pub properties: Option<Properties>,
    pub index: Option<Arc<Index>>,
    /// Where the blocks end, as far as that is known.
    pub data_end: u64,
    /// What is wrong, if anything is.
    pub problems: Vec<String>,
}

impl Remains {
    /// Reads what there is of the file at `path`, whose name says `named`. `block_bytes` is what other tables of the
    /// store have, should this one not say. An error only if the file cannot be opened, or its key is not to be had.
    pub fn load(
        io: &Io,
        path: &Path,
        named: u64,
        block_bytes: Option<u32>,
        purpose: Purpose,
    ) -> Result<Remains> {
        let mut window = Window::open(io, path, purpose)?;
        let mut problems = Vec::new();
        let footer = find_footer(&mut window, path);
        if footer.is_none() {
            problems.push("the footer is missing or damaged".into());
        }
        let file_id = footer.map_or(named, |f| f.file_id);
        let mut data_end = window.len();
        let (mut properties, mut index, mut seal) = (None, None, None);
        if let Some(footer) = footer {
            data_end = footer.index.offset;
            if footer.file_bytes != window.len() {
                problems.push(format!("{} bytes, where {} should be", window.len(), footer.file_bytes));
            }
            seal = ring::of_file(io, footer.stamp, path)?;
            let opened = |bytes: Vec<u8>, which: SectionNumber| match (footer.stamp, &seal) {
                (None, _) => Ok(bytes),
                (_, Some(seal)) => {
                    seal.opened(which.unit(file_id), &[], &bytes).ok_or_else(|| seal.refusal())
                }
                (_, None) => Err("it is encrypted".into()),
            };
            let mut read = |what: &str, s: Section, which| match section(&mut window, s, file_id)
                .and_then(|bytes| opened(bytes, which))
            {
                Ok(bytes) => Some(bytes),
                Err(e) => {
                    problems.push(format!("{what}: {e}"));
                    None
                }
            };
            properties =
                read("properties", footer.properties, PROPERTIES).and_then(|b| Properties::decode(&b));
            // Only looked at: salvage does not ask it.
            drop(read("filter", footer.filter, FILTER));
            let bytes = read("index", footer.index, INDEX);
            let sizes = properties.as_ref().map(|p| p.block_bytes).or(block_bytes).into_iter();
            let sizes = sizes.chain((12..=16).map(|shift| 1 << shift));
            index = bytes.and_then(|b| {
                let fits = |i: &Index| {
                    i.blocks() > 0
                        && i.data_bytes() <= footer.index.offset
                        && i.fits_seal(footer.stamp.is_some())
                };
                sizes
                    .filter(|n| BLOCK_BYTES_RANGE.contains(n))
                    .filter_map(|n| Index::decode(&b, n).ok())
                    .find(fits)
            });
        }
        if seal.is_some() && index.is_none() {
            data_end = 0;
            problems.push("it is encrypted: without its index its blocks cannot be found".into());
        }
        Ok(Remains { window, file_id, seal, properties, index: index.map(Arc::new), data_end, problems })
    }
}

/// The footer at the end of the file, or before what was appended.
fn find_footer(window: &mut Window, path: &Path) -> Option<Footer> {
    let units = window.len() / UNIT;
    for end in (units.saturating_sub(SEARCH_UNITS) + 1..=units).rev().map(|u| u * UNIT) {
        let Ok(bytes) = window.bytes(end - FOOTER_BYTES as u64, FOOTER_BYTES) else { continue };
        let Some(bytes) = bytes.first_chunk::<FOOTER_BYTES>() else { continue };
        let mut r = Reader::new(bytes);
        let (Some(file_id), Some(_)) = (r.u64(), r.u64()) else { continue };
        if let Ok(footer) = Footer::decode(bytes, path, end, file_id) {
            return Some(footer);
        }
    }
    None
}

fn section(window: &mut Window, s: Section, file_id: u64) -> std::result::Result<Vec<u8>, String> {
    let len = usize::try_from(s.len).map_err(|_| "it is too long")?;
    let bytes = window.bytes(s.offset, len).map_err(|e| match e {
        Error::Corrupt { detail, .. } => detail,
        e => e.to_string(),
    })?;
    s.check(bytes, s.offset, file_id).map(<[u8]>::to_vec)
}
