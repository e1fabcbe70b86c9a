//! The manifest: which tables, log segments and keyspaces make up the store, as a log of checksummed edits.
//!
//! - [`VersionEdit`]: one atomic change; [`ManifestState`]: the sum of all of them.
//! - [`ManifestFile`]: the file. After [`ManifestFile::append`] returns `Ok` the edit is on the device.
//! - [`Remembered`]: the settings that the store keeps of its keyspaces.
//! - [`Version`]: the tables as the read path and compaction see them, immutable and shared.
//!
//! CURRENT names the live manifest and is replaced by rename and directory sync, so at every moment it names a
//! complete one. The byte layout is in docs/formats/manifest.md.

mod edit;
mod file;
mod remembered;
mod state;
mod version;

pub(crate) use edit::VersionEdit;
#[cfg(feature = "fuzzing")]
pub(crate) use file::fuzzing;
pub(crate) use file::{Loaded, ManifestFile, Since};
pub(crate) use remembered::Remembered;
pub(crate) use state::ManifestState;
pub(crate) use version::{LEVELS, Version};
