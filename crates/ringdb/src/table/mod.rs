//! Tables: immutable sorted files of versions of keys. docs/formats/table.md draws the bytes.
//!
//! A table is data blocks, then an index, a filter and properties, then a footer. [`block`] is a data block as
//! it lies on disk and in a cache frame; [`index`] finds the block of a key; [`filter`] says which keys are not
//! there; [`writer`] makes a table; [`parts`] reads what stays in memory of one; [`scan`] reads one from end to
//! end; [`copy`] copies one; [`walk`], [`remains`] and [`carve`] read what is left of a damaged one. [`reader`] is an
//! open table over the cache, with [`fetch`] for its blocks, of which [`checked`] knows the good ones, and [`cursor`]
//! for its order; [`reads`] opens its file.

pub(crate) mod block;
pub(crate) mod block_builder;
pub(crate) mod block_read;
pub(crate) mod carve;
mod checked;
pub(crate) mod compress;
pub(crate) mod copy;
pub(crate) mod cursor;
pub(crate) mod fetch;
pub(crate) mod filter;
pub(crate) mod format;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
pub(crate) mod index;
pub(crate) mod index_format;
pub(crate) mod meta;
mod output;
pub(crate) mod parts;
pub(crate) mod read_ahead;
pub(crate) mod reader;
pub(crate) mod reads;
pub(crate) mod remains;
#[cfg(test)]
mod round_trip_tests;
pub(crate) mod scan;
#[cfg(all(test, feature = "encryption"))]
mod sealed_tests;
mod sections;
#[cfg(test)]
mod trimmed_tests;
pub(crate) mod walk;
pub(crate) mod writer;

pub(crate) use format::version_in_footer;
pub(crate) use meta::TableMeta;
pub(crate) use parts::TableParts;
pub(crate) use reader::Table;
pub(crate) use reads::{Reads, open_direct};
pub(crate) use scan::TableScan;
