//! Which [`Seal`] belongs to which file. The ring of keys goes along with the [`Io`] through which an open reaches its
//! files, so that whoever opens a file has what it needs to read it.

use std::path::Path;
use std::sync::Arc;

use engineswap::Io;

use super::provider::{EncryptionKey, KeyProvider, Provider};
use super::{Seal, Stamp, cipher};
use crate::sync::{Mutex, lock};
use crate::{Error, Result};

/// The keys of an open.
struct KeyRing {
    provider: Arc<dyn KeyProvider>,
    seals: Mutex<Seals>,
}

#[derive(Default)]
struct Seals {
    /// The current key, once it was asked for.
    current: Option<(u32, EncryptionKey)>,
    /// What this open writes its tables and its log with.
    writing: Option<Arc<Seal>>,
    /// Those that were met, each for as long as somebody has it.
    met: Vec<std::sync::Weak<Seal>>,
}

/// The same engine with the keys of an open, if it has any. Its tables and its log are sealed with a salt of their own.
pub(crate) fn with_keys(io: &Io, provider: &Provider) -> Io {
    match &provider.0 {
        None => io.clone(),
        Some(provider) => {
            io.with_context(Arc::new(KeyRing { provider: provider.clone(), seals: Mutex::default() }))
        }
    }
}

/// What the tables and log segments of this open are sealed with; `None` if it has no keys. File numbers are given once
/// in an open, so that no two pieces have one nonce.
pub(crate) fn for_writing(io: &Io) -> Result<Option<Arc<Seal>>> {
    let Some(ring) = io.context::<KeyRing>() else { return Ok(None) };
    let mut seals = lock(&ring.seals);
    if seals.writing.is_none() {
        seals.writing = Some(Arc::new(ring.draw(&mut seals)?));
    }
    Ok(seals.writing.clone())
}

/// A seal with a salt of its own, for files whose numbers others may have, too.
pub(crate) fn for_one(io: &Io) -> Result<Option<Arc<Seal>>> {
    let Some(ring) = io.context::<KeyRing>() else { return Ok(None) };
    ring.draw(&mut lock(&ring.seals)).map(|seal| Some(Arc::new(seal)))
}

/// The seal of the file at `path`, which has this stamp.
///
/// # Errors
/// [`Error::Key`] if it needs a key that is not to be had.
pub(crate) fn of_file(io: &Io, stamp: Option<Stamp>, path: &Path) -> Result<Option<Arc<Seal>>> {
    let Some(stamp) = stamp else { return Ok(None) };
    let wrong = |detail: String| Error::Key { path: path.into(), key: stamp.key, detail };
    if !cfg!(feature = "encryption") {
        return Err(wrong("this build of ringdb is without the feature `encryption`".into()));
    }
    let Some(ring) = io.context::<KeyRing>() else {
        return Err(wrong(
            "no keys were given: Options::with_encryption, on the command line --key-file".into(),
        ));
    };
    let mut seals = lock(&ring.seals);
    seals.met.retain(|seal| seal.strong_count() > 0);
    let mut known = seals.met.iter().filter_map(std::sync::Weak::upgrade).chain(seals.writing.clone());
    if let Some(seal) = known.find(|seal| *seal.stamp() == stamp) {
        return Ok(Some(seal));
    }
    drop(known);
    let key = ring.provider.key(stamp.key).map_err(|e| wrong(e.to_string()))?;
    let seal = Arc::new(Seal::new(&key, stamp));
    seals.met.push(Arc::downgrade(&seal));
    Ok(Some(seal))
}

/// Whether this open has keys.
pub(crate) fn has_keys(io: &Io) -> bool {
    io.context::<KeyRing>().is_some()
}

/// The number of the key that this open writes with, if it has written.
pub(crate) fn written_with(io: &Io) -> Option<u32> {
    let seals = lock(&io.context::<KeyRing>()?.seals);
    seals.current.as_ref().map(|(number, _)| *number)
}

impl KeyRing {
    fn draw(&self, seals: &mut Seals) -> Result<Seal> {
        if seals.current.is_none() {
            let failed = |e: super::provider::KeyError| {
                Error::Invalid(format!("no encryption key to write with: {e}"))
            };
            let number = self.provider.current().map_err(failed)?;
            if number == 0 {
                return Err(failed("key 0: numbers begin with 1".into()));
            }
            let key = self.provider.key(number).map_err(|e| failed(format!("key {number}: {e}").into()))?;
            seals.current = Some((number, key));
        }
        let Some((number, key)) = &seals.current else { return Err(Error::Closed) };
        Ok(Seal::new(key, Stamp { key: *number, salt: cipher::salt()? }))
    }
}
