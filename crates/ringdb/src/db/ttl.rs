//! Puts that live for some time: when they expire is known when they are committed.

use std::time::Duration;

use super::keyspaces::Lives;
use crate::expiry::{self, STAMP_BYTES};
use crate::key::{self, Kind, MAX_BATCH_BYTES, MAX_VALUE_BYTES, check_limits};
use crate::log::payload::{self, Op, decode};
use crate::{Error, Result};

/// Fails for what cannot be put with a time to live.
pub(super) fn check(key: &[u8], value: &[u8], life: Duration) -> Result<()> {
    check_limits(key, value)?;
    check_room(value)?;
    match life.is_zero() {
        true => Err(Error::Invalid("a time to live of 0: it has to be longer; or leave it out".into())),
        false => Ok(()),
    }
}

/// Fails for a value that leaves no room for its time.
pub(super) fn check_room(value: &[u8]) -> Result<()> {
    if value.len() > MAX_VALUE_BYTES - STAMP_BYTES {
        return Err(Error::Invalid(format!(
            "a value of {} bytes is too long to expire: at most {} bytes",
            value.len(),
            MAX_VALUE_BYTES - STAMP_BYTES
        )));
    }
    Ok(())
}

/// Fails for a merge where puts live so many milliseconds: an operand has no time, it would never go.
pub(super) fn check_merge(life: u64) -> Result<()> {
    if life > 0 {
        return Err(Error::Invalid(format!(
            "the keyspace has a time to live of {life} ms, and what is merged would never expire: put the value \
             (fetch_update), or merge in a keyspace whose time to live is 0"
        )));
    }
    Ok(())
}

/// A payload in which puts into keyspaces get the time that they live there, and what expires the time at which it
/// does. In a batch the time that it lives stands in its place until then.
#[cold]
pub(super) fn stamp(ops: &[u8], lives: &Lives, now: u64) -> Result<Vec<u8>> {
    let mut out = Vec::with_capacity(ops.len());
    // Encoded by this process: every operation decodes.
    for op in decode(ops).flatten() {
        match op {
            Op::DeleteRange { start, end } => payload::encode_range(&mut out, start, end),
            Op::Version { kind, key, value } => {
                let own = key::split(key).map_or(0, |(id, _)| lives.of(id));
                let (life, value) = match kind {
                    Kind::Put => (own, value),
                    Kind::Expiring => expiry::split(value),
                    // Operands have no time (`check_merge`).
                    Kind::Delete | Kind::Merge => (0, value),
                };
                if life == 0 {
                    payload::encode_internal(&mut out, kind, key, value);
                } else {
                    check_room(value)?;
                    let stored = expiry::stamp(now.saturating_add(life), value);
                    payload::encode_internal(&mut out, Kind::Expiring, key, &stored);
                }
            }
        }
    }
    if out.len() > MAX_BATCH_BYTES {
        return Err(Error::Invalid(format!("a batch holds at most {MAX_BATCH_BYTES} bytes")));
    }
    Ok(out)
}
