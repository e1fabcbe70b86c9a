//! [`KeyProvider`]: where keys come from.

use std::fmt;
use std::sync::Arc;

/// What a provider can fail with.
pub type KeyError = Box<dyn std::error::Error + Send + Sync>;

/// A key of 256 bits. It is wiped from memory when it is dropped.
#[derive(Clone)]
pub struct EncryptionKey(#[cfg_attr(not(feature = "encryption"), allow(dead_code))] [u8; 32]);

impl EncryptionKey {
    /// Of these bytes, which have to be random: not a password, nor what was made of one without a function for that
    /// (Argon2, scrypt).
    #[cfg_attr(not(feature = "encryption"), allow(dead_code))]
    #[must_use]
    pub fn new(bytes: [u8; 32]) -> EncryptionKey {
        EncryptionKey(bytes)
    }

    #[cfg(feature = "encryption")]
    pub(super) fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

#[cfg(feature = "encryption")]
impl Drop for EncryptionKey {
    fn drop(&mut self) {
        zeroize::Zeroize::zeroize(&mut self.0);
    }
}

impl fmt::Debug for EncryptionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EncryptionKey(..)")
    }
}

/// Gives the keys of encrypted stores, by number: from a file, a key ring, a service.
///
/// A number means the same key for ever. Numbers begin with 1.
///
/// ```
/// use ringdb::{EncryptionKey, KeyError, KeyProvider};
///
/// /// Keys that a service keeps.
/// struct Vault;
///
/// impl KeyProvider for Vault {
///     fn current(&self) -> Result<u32, KeyError> {
///         Ok(2)
///     }
///     fn key(&self, number: u32) -> Result<EncryptionKey, KeyError> {
///         match number {
///             // What the service answers.
///             1 | 2 => Ok(EncryptionKey::new([number as u8; 32])),
///             n => Err(format!("the vault has no key {n}").into()),
///         }
///     }
/// }
/// ```
pub trait KeyProvider: Send + Sync + 'static {
    /// The number of the key that an open writes with, asked once by each open that writes: that one stays until the
    /// store is opened again.
    ///
    /// # Errors
    /// Whatever keeps it from telling; the open fails with that.
    fn current(&self) -> std::result::Result<u32, KeyError>;

    /// The key of a number. Asked once for each that an open meets.
    ///
    /// # Errors
    /// If there is no such key, or it cannot be had now. What needs it fails with that.
    fn key(&self, number: u32) -> std::result::Result<EncryptionKey, KeyError>;
}

/// The provider of an open, if there is one.
#[derive(Clone, Default)]
pub(crate) struct Provider(pub Option<Arc<dyn KeyProvider>>);

impl fmt::Debug for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "given" } else { "none" })
    }
}
