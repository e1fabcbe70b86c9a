//! [`StaticKeys`]: keys that a program holds.

use std::collections::BTreeMap;

use super::provider::{EncryptionKey, KeyError, KeyProvider};
use crate::{Error, Result};

/// Keys that a program holds.
///
/// ```
/// use ringdb::{Db, EncryptionKey, Options, StaticKeys};
///
/// # fn main() -> ringdb::Result<()> {
/// # let tmp = tempfile::tempdir().expect("a temporary directory");
/// # let dir = tmp.path().join("store");
/// let keys = StaticKeys::new(1, EncryptionKey::new([7; 32]))?; // 32 random bytes
/// let db = Db::open(&dir, Options::default().with_encryption(keys))?;
/// db.put("apple", "red")?;
/// db.close()?;
/// // Without the key there is nothing to be read.
/// assert!(Db::open(&dir, Options::default()).is_err());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct StaticKeys(BTreeMap<u32, EncryptionKey>);

impl StaticKeys {
    /// One key.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the number is 0.
    pub fn new(number: u32, key: EncryptionKey) -> Result<StaticKeys> {
        StaticKeys::default().with(number, key)
    }

    /// One key more. What is written is encrypted with the key of the largest number.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the number is 0, or there is a key of that number.
    pub fn with(mut self, number: u32, key: EncryptionKey) -> Result<StaticKeys> {
        if number == 0 || self.0.insert(number, key).is_some() {
            let why = if number == 0 { "numbers begin with 1" } else { "there are two of that number" };
            return Err(Error::Invalid(format!("encryption key {number}: {why}")));
        }
        Ok(self)
    }

    /// From text, a key a line: its number, a space and 64 hexadecimal digits. Lines that are empty or begin with `#`
    /// are passed over. The file of such a text is a secret.
    ///
    /// ```
    /// let text = "# from 2026 on\n1 000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n";
    /// assert!(ringdb::StaticKeys::from_text(text).is_ok());
    /// ```
    ///
    /// # Errors
    /// [`Error::Invalid`] if a line is none of these, or there is no key; it names the line, and nothing of a key.
    pub fn from_text(text: &str) -> Result<StaticKeys> {
        let mut keys = StaticKeys::default();
        for (i, line) in text.lines().map(str::trim).enumerate() {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let parsed = line.split_once(char::is_whitespace).and_then(|(number, hex)| {
                Some((number.parse().ok()?, EncryptionKey::new(from_hex(hex.trim().as_bytes())?)))
            });
            let Some((number, key)) = parsed else {
                let what = "a key's number and 64 hexadecimal digits";
                return Err(Error::Invalid(format!("encryption keys, line {}: {what} were expected", i + 1)));
            };
            keys = keys.with(number, key)?;
        }
        match keys.0.is_empty() {
            true => Err(Error::Invalid("there is no encryption key in this text".into())),
            false => Ok(keys),
        }
    }
}

impl KeyProvider for StaticKeys {
    fn current(&self) -> std::result::Result<u32, KeyError> {
        self.0.last_key_value().map(|(number, _)| *number).ok_or_else(|| "there are no keys".into())
    }

    fn key(&self, number: u32) -> std::result::Result<EncryptionKey, KeyError> {
        self.0.get(&number).cloned().ok_or_else(|| "it is not among the keys that were given".into())
    }
}

fn from_hex(hex: &[u8]) -> Option<[u8; 32]> {
    let mut key = [0; 32];
    let digits: &[u8; 64] = hex.try_into().ok()?;
    let digit = |c: u8| char::from(c).to_digit(16).map(|d| d as u8);
    for (byte, pair) in key.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(key)
}
