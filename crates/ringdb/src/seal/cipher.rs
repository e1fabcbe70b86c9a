//! AES-256-GCM-SIV and HKDF-SHA256, of the RustCrypto project. AES and the hash over GF(2^128) use the CPU's
//! instructions where it has them, which is found out at run time.

use aes_gcm_siv::aead::AeadInOut;
use aes_gcm_siv::{Aes256GcmSiv, KeyInit, Nonce};
use hkdf::Hkdf;
use sha2::Sha256;
use zeroize::Zeroizing;

use super::provider::EncryptionKey;
use super::{Stamp, TAG_BYTES};
use crate::Result;

/// Tells these keys from all others that somebody may derive from the program's.
const INFO: &[u8] = b"ringdb file key, version 1";

/// A file's key. The box: it is some hundred bytes of round keys.
pub(super) struct Cipher(Box<Aes256GcmSiv>);

impl Cipher {
    pub fn derive(key: &EncryptionKey, stamp: &Stamp) -> Cipher {
        let mut own = Zeroizing::new([0; 32]);
        let number = stamp.key.to_le_bytes();
        let derived = Hkdf::<Sha256>::new(Some(&stamp.salt), key.bytes())
            .expand_multi_info(&[INFO, &number], &mut *own);
        // It fails for outputs of more than 8 KiB.
        assert!(derived.is_ok(), "a key of 32 bytes can be derived");
        Cipher(Box::new(Aes256GcmSiv::new((&*own).into())))
    }

    pub fn encrypt(&self, nonce: &[u8; 12], with: &[u8], bytes: &mut [u8]) -> [u8; TAG_BYTES] {
        match self.0.encrypt_inout_detached(&Nonce::from(*nonce), with, bytes.into()) {
            Ok(tag) => tag.into(),
            // Values and batches end far below the cipher's limit.
            Err(_) => panic!("{} bytes are more than the cipher takes (64 GiB)", bytes.len()),
        }
    }

    pub fn decrypt(&self, nonce: &[u8; 12], with: &[u8], bytes: &mut [u8], tag: &[u8; TAG_BYTES]) -> bool {
        self.0.decrypt_inout_detached(&Nonce::from(*nonce), with, bytes.into(), &(*tag).into()).is_ok()
    }
}

/// A salt.
pub(super) fn salt() -> Result<[u8; 16]> {
    let mut salt = [0; 16];
    getrandom::fill(&mut salt)
        .map_err(|e| crate::Error::Invalid(format!("the system gives no random bytes: {e}")))?;
    Ok(salt)
}
