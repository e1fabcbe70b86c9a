//! How keys and values are written in arguments, output and files: as they are, in hexadecimal or in Base64.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::Args;

use crate::error::{Result, usage};

/// The flags that choose a coding.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct CodingArgs {
    /// Keys and values are in hexadecimal, in arguments and output
    #[arg(long, conflicts_with = "base64")]
    hex: bool,
    /// Keys and values are in Base64, in arguments and output
    #[arg(long)]
    base64: bool,
}

/// A coding of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coding {
    /// The bytes themselves.
    Text,
    /// Two hexadecimal digits a byte.
    Hex,
    /// Standard Base64 with padding.
    Base64,
}

impl CodingArgs {
    /// The coding asked for.
    pub fn coding(self) -> Coding {
        match (self.hex, self.base64) {
            (true, _) => Coding::Hex,
            (_, true) => Coding::Base64,
            _ => Coding::Text,
        }
    }
}

impl Coding {
    /// The coded form of `bytes`, appended to `out`.
    pub fn encode_into(self, bytes: &[u8], out: &mut Vec<u8>) {
        match self {
            Coding::Text => out.extend_from_slice(bytes),
            Coding::Hex => out.extend_from_slice(hex::encode(bytes).as_bytes()),
            Coding::Base64 => out.extend_from_slice(STANDARD.encode(bytes).as_bytes()),
        }
    }

    /// The coded form of `bytes`.
    pub fn encode(self, bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        self.encode_into(bytes, &mut out);
        out
    }

    /// The bytes of a coded form, or what is wrong with it.
    pub fn decode(self, coded: &[u8]) -> std::result::Result<Vec<u8>, String> {
        match self {
            Coding::Text => Ok(coded.to_vec()),
            Coding::Hex => hex::decode(coded).map_err(|e| format!("not hexadecimal: {e}")),
            Coding::Base64 => STANDARD.decode(coded).map_err(|e| format!("not Base64: {e}")),
        }
    }

    /// The bytes of an argument of the command line.
    pub fn argument(self, name: &str, value: &std::ffi::OsStr) -> Result<Vec<u8>> {
        use std::os::unix::ffi::OsStrExt;
        match self.decode(value.as_bytes()) {
            Ok(b) => Ok(b),
            Err(e) => usage(format!("{name} '{}' is {e}", value.to_string_lossy())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_coding_gives_the_bytes_back() {
        let all: Vec<u8> = (0..=255).collect();
        for c in [Coding::Text, Coding::Hex, Coding::Base64] {
            for n in [0, 1, 2, 3, 256] {
                assert_eq!(c.decode(&c.encode(&all[..n])).unwrap(), &all[..n]);
            }
        }
        assert!(Coding::Hex.decode(b"abc").unwrap_err().contains("hexadecimal"));
        assert!(Coding::Base64.decode(b"*").unwrap_err().contains("Base64"));
    }
}
