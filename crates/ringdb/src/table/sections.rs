//! [`Sections`]: writes what lies behind a table's blocks, sealed if the table is.

use std::sync::Arc;

use super::filter::Filter;
use super::format::{FILTER, Section, SectionNumber};
use super::output::Output;
use crate::Result;
use crate::coding::crc32c;
use crate::seal::{Seal, TAG_BYTES};

/// See the module.
pub(super) struct Sections {
    pub file_id: u64,
    pub seal: Option<Arc<Seal>>,
}

impl Sections {
    /// Bytes by which a section is longer than what it holds.
    pub fn tag_bytes(&self) -> usize {
        if self.seal.is_some() { TAG_BYTES } else { 0 }
    }

    /// Writes a section, which `bytes` hold; what they hold afterwards is of no use.
    pub fn write(&self, out: &mut Output, bytes: &mut Vec<u8>, which: SectionNumber) -> Result<Section> {
        if let Some(seal) = &self.seal {
            seal.close_vec(which.unit(self.file_id), &[], bytes, 0);
        }
        let (offset, len) = (out.position(), bytes.len() as u64);
        out.write(bytes)?;
        Ok(Section { offset, len, checksum: crc32c(self.file_id as u32, bytes) })
    }

    /// Writes the filter, if it is not sealed without a copy. `bytes` are memory to use.
    pub fn write_filter(&self, out: &mut Output, filter: &Filter, bytes: &mut Vec<u8>) -> Result<Section> {
        if self.seal.is_some() {
            bytes.clear();
            filter.encode(|piece| -> Result<()> {
                bytes.extend_from_slice(piece);
                Ok(())
            })?;
            return self.write(out, bytes, FILTER);
        }
        let (offset, len) = (out.position(), filter.encoded_len());
        let mut checksum = self.file_id as u32;
        filter.encode(|piece| {
            checksum = crc32c(checksum, piece);
            out.write(piece)
        })?;
        Ok(Section { offset, len, checksum })
    }
}
