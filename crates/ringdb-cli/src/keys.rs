//! `--key-file`: the keys of encrypted stores.

use std::os::unix::fs::MetadataExt;
use std::str::FromStr;

use clap::Args;
use ringdb::{KeyProvider, Options, StaticKeys};

/// Keys of encrypted stores.
#[derive(Args, Clone, Debug, Default)]
pub struct KeyArgs {
    /// Encryption keys, a line each: a number and 64 hexadecimal digits. What is written is encrypted with the one of
    /// the largest number; the others are for what was written before. Make one so: (umask 077; echo "1 $(openssl rand
    /// -hex 32)" > FILE)
    #[arg(long, value_name = "FILE")]
    pub key_file: Option<KeyFile>,
}

/// The keys of a file.
#[derive(Clone, Debug)]
pub struct KeyFile(pub StaticKeys);

impl KeyArgs {
    /// The number of the key that is written with.
    pub fn newest(&self) -> Option<u32> {
        self.key_file.as_ref().and_then(|KeyFile(keys)| keys.current().ok())
    }

    /// These settings, with the keys.
    pub fn over(&self, options: Options) -> Options {
        match &self.key_file {
            Some(KeyFile(keys)) => options.with_encryption(keys.clone()),
            None => options,
        }
    }
}

impl FromStr for KeyFile {
    type Err = String;

    fn from_str(file: &str) -> Result<KeyFile, String> {
        let text = std::fs::read_to_string(file).map_err(|e| format!("{file}: {e}"))?;
        let keys = StaticKeys::from_text(&text).map_err(|e| format!("{file}: {e}"))?;
        if std::fs::metadata(file).is_ok_and(|m| m.mode() & 0o077 != 0) {
            crate::error::warn(&format!("others than its owner may use {file}: chmod 600 {file}"));
        }
        Ok(KeyFile(keys))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistakes_name_the_file_and_nothing_of_a_key() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("keys").display().to_string();
        assert!(path.parse::<KeyFile>().unwrap_err().contains(&path));
        std::fs::write(&path, "1 c0ffee\n").unwrap();
        let e = path.parse::<KeyFile>().unwrap_err();
        assert!(e.contains(&path) && e.contains("line 1") && !e.contains("c0ffee"), "{e}");
        std::fs::write(&path, format!("1 {}\n", "ab".repeat(32))).unwrap();
        assert!(path.parse::<KeyFile>().is_ok());
    }
}
