//! In place of the cipher in a build without the feature `encryption`: there is none.

use super::provider::EncryptionKey;
use super::{Stamp, TAG_BYTES};
use crate::Result;

/// There is no such thing.
pub(super) struct Cipher(std::convert::Infallible);

impl Cipher {
    pub fn derive(_key: &EncryptionKey, _stamp: &Stamp) -> Cipher {
        // Who could give a key is not in this build either.
        unreachable!("a build without the feature `encryption`")
    }

    pub fn encrypt(&self, _nonce: &[u8; 12], _with: &[u8], _bytes: &mut [u8]) -> [u8; TAG_BYTES] {
        match self.0 {}
    }

    pub fn decrypt(&self, _: &[u8; 12], _with: &[u8], _bytes: &mut [u8], _tag: &[u8; TAG_BYTES]) -> bool {
        match self.0 {}
    }
}

pub(super) fn salt() -> Result<[u8; 16]> {
    Err(crate::Error::Invalid("a build without the feature `encryption`".into()))
}
