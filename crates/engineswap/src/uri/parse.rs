//! The values of options, and the errors about them.

use crate::{Error, ErrorKind, Result};

pub(super) fn bad(why: String) -> Error {
    Error::new(ErrorKind::InvalidInput, "engine URI", why)
}

pub(super) fn number(name: &str, value: Option<&str>, min: u32, max: u32) -> Result<u32> {
    let parsed = value.and_then(|v| v.parse::<u32>().ok()).filter(|n| (min..=max).contains(n));
    let given = value.unwrap_or("");
    parsed.ok_or_else(|| bad(format!("'{name}' takes a number from {min} to {max}, not '{given}'")))
}

pub(super) fn flag(name: &str, value: Option<&str>) -> Result<Option<bool>> {
    match value {
        None | Some("on" | "1" | "true" | "yes") => Ok(Some(true)),
        Some("off" | "0" | "false" | "no") => Ok(Some(false)),
        Some(v) => Err(bad(format!("'{name}' takes on or off, not '{v}'"))),
    }
}

pub(super) fn unknown(engine: &str, name: &str, valid: &str) -> Error {
    bad(format!("unknown option '{name}' of {engine}; valid: {valid}"))
}
