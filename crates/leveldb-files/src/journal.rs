//! Records of the manifest and of logs: pieces of records, each behind a checksum, a length and its place in the
//! record, in blocks of 32 KiB over whose ends no piece goes.
//!
//! A file may end within a record: the writer died there, and LevelDB drops what is unfinished. Everything else that
//! does not fit is damage.

use crate::bytes::{checksum, fixed32};
use crate::files::Source;
use crate::{Error, Result};

const BLOCK: u64 = 32 << 10;
const HEADER: u64 = 7;

/// A piece's place in its record.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Whole,
    First,
    Middle,
    Last,
}

/// The records of a file, one after the other.
pub(crate) struct Journal {
    source: Source,
    checksums: bool,
    at: u64,
    record: Vec<u8>,
    /// Bytes of an unfinished record at the end.
    torn: u64,
}

impl Journal {
    pub(crate) fn new(source: Source, checksums: bool) -> Journal {
        Journal { source, checksums, at: 0, record: Vec::new(), torn: 0 }
    }

    /// What is wrong at `offset`.
    pub(crate) fn damaged(&self, offset: u64, why: impl Into<String>) -> Error {
        Error::damaged(self.source.path(), offset, why)
    }

    /// The file.
    pub(crate) fn path(&self) -> &std::path::Path {
        self.source.path()
    }

    /// Bytes of an unfinished record, once the end has been reached.
    pub(crate) fn torn(&self) -> u64 {
        self.torn
    }

    /// The next record, and where it begins.
    pub(crate) fn next_record(&mut self) -> Result<Option<(u64, &[u8])>> {
        self.record.clear();
        let mut start = None;
        loop {
            let at = self.at;
            let Some((place, piece)) = self.piece()? else {
                if let Some(start) = start {
                    self.torn = self.source.len() - start;
                }
                return Ok(None);
            };
            let piece_at = self.at - piece.1;
            match (start, place) {
                (None, Place::Whole | Place::First) => start = Some(piece_at - HEADER),
                // Early versions of LevelDB began a record with no bytes of it at the end of a block, and again in the
                // next.
                (Some(_), Place::Whole | Place::First) if self.record.is_empty() => {}
                (Some(_), Place::Middle | Place::Last) => {}
                (Some(_), _) => {
                    return Err(self.damaged(at, "a record begins before the one before has ended"));
                }
                (None, _) => return Err(self.damaged(at, "a piece of a record without its beginning")),
            }
            let bytes = self.source.bytes(piece_at, piece.1)?;
            self.record.extend_from_slice(bytes);
            if let (Some(start), Place::Whole | Place::Last) = (start, place) {
                return Ok(Some((start, &self.record)));
            }
        }
    }

    /// Checks the next piece and goes behind it: its place, and its offset and length. `None` at the end.
    fn piece(&mut self) -> Result<Option<(Place, (u64, u64))>> {
        let len = self.source.len();
        let mut left = BLOCK - self.at % BLOCK;
        if left < HEADER {
            // Too little for a header: filled up.
            self.at += left.min(len - self.at);
            left = BLOCK;
        }
        let at = self.at;
        let here = left.min(len - at);
        if here < HEADER {
            self.torn = here;
            return Ok(None);
        }
        let header = self.source.bytes(at, HEADER)?;
        let stored = fixed32(header).map_or(0, |(crc, _)| crc);
        let size = u64::from(header[4]) | u64::from(header[5]) << 8;
        let kind = header[6];
        if kind == 0 && size == 0 {
            self.only_zeros(at)?;
            return Ok(None);
        }
        if HEADER + size > here {
            if here == left {
                return Err(
                    self.damaged(at, format!("a piece of {size} bytes goes over the end of its block"))
                );
            }
            self.torn = here;
            return Ok(None);
        }
        let place = match kind {
            1 => Place::Whole,
            2 => Place::First,
            3 => Place::Middle,
            4 => Place::Last,
            kind => return Err(self.damaged(at, format!("a piece of a record of the unknown kind {kind}"))),
        };
        // The kind is under the checksum.
        let covered = self.source.bytes(at + HEADER - 1, size + 1)?;
        if self.checksums && checksum(covered) != stored {
            return Err(self.damaged(at, "the checksum of a piece of a record is wrong"));
        }
        self.at = at + HEADER + size;
        Ok(Some((place, (at + HEADER, size))))
    }

    /// Space that was reserved for records to come is the end, if nothing stands behind it.
    fn only_zeros(&mut self, from: u64) -> Result<()> {
        let mut at = from;
        while at < self.source.len() {
            let size = BLOCK.min(self.source.len() - at);
            if self.source.bytes(at, size)?.iter().any(|b| *b != 0) {
                return Err(self.damaged(from, "zeros, and then more, where records should be"));
            }
            at += size;
        }
        Ok(())
    }
}
