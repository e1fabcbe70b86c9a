//! Encryption at rest: blocks, log frames and manifest records are sealed one by one, with AES-256-GCM-SIV (RFC 8452).
//!
//! A file says in the clear what it is sealed with, its [`Stamp`]: the number of a key of the program's and a random
//! salt. The file's own key is derived from both (HKDF-SHA256, RFC 5869), so each file can be read with nothing but the
//! program's keys, whatever else of the store is lost. The salt is drawn once per open ([`ring`]).
//!
//! What is sealed is bound to its place: the nonce is the [`Unit`], a file's number and a place in it. Within an open a
//! file's number is given once and a place is written once. Where that fails (a write that the system refused and that
//! is tried again with other bytes, a machine that goes on twice from one snapshot), a nonce comes twice, and then
//! this cipher gives away only whether the two texts are the same.
//!
//! - [`provider`]: where keys come from; `static_keys`: from the program itself.
//! - [`ring`]: which seal belongs to which file, in an open store.
//! - [`cipher`]: the one place that knows the algorithms; empty in a build without the feature `encryption`.

#[cfg_attr(not(feature = "encryption"), path = "none.rs")]
mod cipher;
pub(crate) mod provider;
pub(crate) mod ring;
#[cfg(feature = "encryption")]
pub(crate) mod static_keys;
#[cfg(all(test, feature = "encryption"))]
mod tests;

use std::path::Path;

use crate::Error;
use crate::coding::Reader;
use cipher::Cipher;
use provider::EncryptionKey;

/// Bytes by which what is sealed is longer than what it holds.
pub(crate) const TAG_BYTES: usize = 16;

/// What a file is sealed with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Stamp {
    /// The number of the program's key, not 0.
    pub key: u32,
    pub salt: [u8; 16],
}

impl Stamp {
    pub const BYTES: usize = 20;

    /// A stamp; zeros say that there is none.
    pub fn encode(stamp: Option<&Stamp>) -> [u8; Stamp::BYTES] {
        let mut b = [0; Stamp::BYTES];
        if let Some(stamp) = stamp {
            b[..4].copy_from_slice(&stamp.key.to_le_bytes());
            b[4..].copy_from_slice(&stamp.salt);
        }
        b
    }

    /// What [`Stamp::encode`] wrote.
    pub fn decode(bytes: &[u8; Stamp::BYTES]) -> Option<Stamp> {
        let mut r = Reader::new(bytes);
        let (key, salt) = (r.u32()?, r.take(16)?);
        (key != 0).then_some(Stamp { key, salt: *salt.first_chunk()? })
    }
}

/// A piece that is sealed by itself, by its place. No two of one key are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// A table's data block.
    Block { file: u64, number: u32 },
    /// One of the parts behind them: index, filter, properties.
    Section { file: u64, number: u32 },
    /// The payload of a log frame. Frames begin at multiples of 8.
    Frame { segment: u64, offset: u64 },
    /// A record of a manifest, or an export's list of tables. Each of these files has a salt of its own.
    Record { offset: u64 },
}

impl Unit {
    /// Files' numbers end below 2^62 ([`crate::files::MAX_NUMBER`]); the kind stands above.
    fn nonce(self) -> [u8; 12] {
        let (kind, file, place) = match self {
            Unit::Block { file, number } => (0, file, number),
            Unit::Section { file, number } => (1, file, number),
            Unit::Frame { segment, offset } => (2, segment, (offset / 8) as u32),
            Unit::Record { offset } => (3, offset, 0),
        };
        let mut nonce = [0; 12];
        nonce[..8].copy_from_slice(&(file | kind << 62).to_le_bytes());
        nonce[8..].copy_from_slice(&place.to_le_bytes());
        nonce
    }
}

/// Seals and opens the pieces of files with one stamp.
pub(crate) struct Seal {
    stamp: Stamp,
    cipher: Cipher,
}

impl Seal {
    fn new(key: &EncryptionKey, stamp: Stamp) -> Seal {
        Seal { stamp, cipher: Cipher::derive(key, &stamp) }
    }

    /// One of a fixed key; `None` in a build without encryption.
    #[cfg(feature = "fuzzing")]
    pub fn for_fuzzing() -> Option<Seal> {
        let stamp = Stamp { key: 1, salt: [0; 16] };
        cfg!(feature = "encryption").then(|| Seal::new(&EncryptionKey::new([5; 32]), stamp))
    }

    pub fn stamp(&self) -> &Stamp {
        &self.stamp
    }

    /// Encrypts `bytes`; returns the tag that belongs behind them. `with` is vouched for, too, and has to be the same
    /// when they are opened.
    pub fn close(&self, unit: Unit, with: &[u8], bytes: &mut [u8]) -> [u8; TAG_BYTES] {
        self.cipher.encrypt(&unit.nonce(), with, bytes)
    }

    /// The same of a vector from `from` on, with the tag appended.
    pub fn close_vec(&self, unit: Unit, with: &[u8], bytes: &mut Vec<u8>, from: usize) {
        let tag = self.close(unit, with, &mut bytes[from..]);
        bytes.extend_from_slice(&tag);
    }

    /// Decrypts `bytes`, without their tag; false if the key is another one or anything was altered. What is in
    /// `bytes` then is of no use.
    #[must_use]
    pub fn open(&self, unit: Unit, with: &[u8], bytes: &mut [u8], tag: &[u8; TAG_BYTES]) -> bool {
        self.cipher.decrypt(&unit.nonce(), with, bytes, tag)
    }

    /// What was sealed, decrypted; `sealed` ends with the tag. `None` as [`Seal::open`].
    pub fn opened(&self, unit: Unit, with: &[u8], sealed: &[u8]) -> Option<Vec<u8>> {
        let (bytes, tag) = sealed.split_last_chunk::<TAG_BYTES>()?;
        let mut bytes = bytes.to_vec();
        self.open(unit, with, &mut bytes, tag).then_some(bytes)
    }

    /// Why something whose checksum is right could not be opened.
    pub fn refusal(&self) -> String {
        let key = self.stamp.key;
        format!(
            "it does not decrypt with key {key}: that is not the key it was written with, or the bytes were altered"
        )
    }

    /// The same as an error about a whole file.
    pub fn wrong_key(&self, path: &Path) -> Error {
        Error::Key { path: path.into(), key: self.stamp.key, detail: self.refusal() }
    }
}

impl std::fmt::Debug for Seal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Seal").field("key", &self.stamp.key).finish_non_exhaustive()
    }
}

/// `bytes` as they are where nothing is sealed, or opened.
pub(crate) fn opened<'a>(
    seal: Option<&Seal>,
    unit: Unit,
    bytes: &'a [u8],
) -> std::result::Result<std::borrow::Cow<'a, [u8]>, String> {
    match seal {
        None => Ok(bytes.into()),
        Some(seal) => seal.opened(unit, &[], bytes).map(Into::into).ok_or_else(|| seal.refusal()),
    }
}
