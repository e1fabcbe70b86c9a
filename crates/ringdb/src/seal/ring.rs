//! Which [`Seal`] belongs to which file. The ring of keys goes along with the [`Io`] through which an open reaches its
//! files, so that whoever opens a file has what it needs to read it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Weak};

use engineswap::Io;

use super::provider::{EncryptionKey, KeyError, KeyProvider, Provider};
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
    /// The number of the current key, once it was asked for.
    current: Option<u32>,
    /// The keys that were met.
    keys: BTreeMap<u32, EncryptionKey>,
    /// What this open writes its tables and its log with.
    writing: Option<Arc<Seal>>,
    /// Those that were met, each for as long as somebody has it.
    met: BTreeMap<Stamp, Weak<Seal>>,
}

/// The same engine with the keys of an open, if it has any. Its tables and its log are sealed with a salt of their own,
/// also where the engine came with keys already.
pub(crate) fn with_keys(io: &Io, provider: &Provider) -> Io {
    let given = provider.0.clone().or_else(|| io.context::<KeyRing>().map(|ring| ring.provider.clone()));
    match given {
        None => io.clone(),
        Some(provider) => io.with_context(Arc::new(KeyRing { provider, seals: Mutex::default() })),
    }
}

/// What the tables and log segments of this open are sealed with; `None` if it has no keys. File numbers are given once
/// in an open, so that no two pieces have one nonce.
pub(crate) fn for_writing(io: &Io) -> Result<Option<Arc<Seal>>> {
    let Some(ring) = io.context::<KeyRing>() else { return Ok(None) };
    if let Some(seal) = &lock(&ring.seals).writing {
        return Ok(Some(seal.clone()));
    }
    let drawn = Arc::new(ring.draw()?);
    // Another thread may have been here.
    Ok(Some(lock(&ring.seals).writing.get_or_insert(drawn).clone()))
}

/// A seal with a salt of its own, for files whose numbers others may have, too.
pub(crate) fn for_one(io: &Io) -> Result<Option<Arc<Seal>>> {
    let Some(ring) = io.context::<KeyRing>() else { return Ok(None) };
    ring.draw().map(|seal| Some(Arc::new(seal)))
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
        let detail = "no keys were given: Options::with_encryption, on the command line --key-file";
        return Err(wrong(detail.into()));
    };
    let known = |seals: &Seals| seals.met.get(&stamp).and_then(Weak::upgrade);
    if let Some(seal) = known(&lock(&ring.seals)) {
        return Ok(Some(seal));
    }
    let seal = Arc::new(Seal::new(&ring.key(stamp.key).map_err(|e| wrong(e.to_string()))?, stamp));
    let mut seals = lock(&ring.seals);
    if let Some(seal) = known(&seals) {
        return Ok(Some(seal));
    }
    seals.met.retain(|_, seal| seal.strong_count() > 0);
    seals.met.insert(stamp, Arc::downgrade(&seal));
    Ok(Some(seal))
}

/// Whether this open has keys.
pub(crate) fn has_keys(io: &Io) -> bool {
    io.context::<KeyRing>().is_some()
}

/// The number of the key that this open writes with, if it has asked for it.
pub(crate) fn written_with(io: &Io) -> Option<u32> {
    lock(&io.context::<KeyRing>()?.seals).current
}

impl KeyRing {
    /// A key, asked for once. Not with the lock held: it may come from far away.
    fn key(&self, number: u32) -> std::result::Result<EncryptionKey, KeyError> {
        if let Some(key) = lock(&self.seals).keys.get(&number) {
            return Ok(key.clone());
        }
        let key = self.provider.key(number)?;
        lock(&self.seals).keys.insert(number, key.clone());
        Ok(key)
    }

    /// The number of the current key: the same for the whole open.
    fn current(&self) -> std::result::Result<u32, KeyError> {
        if let Some(number) = lock(&self.seals).current {
            return Ok(number);
        }
        match self.provider.current()? {
            0 => Err("key 0: numbers begin with 1".into()),
            number => Ok(*lock(&self.seals).current.get_or_insert(number)),
        }
    }

    fn draw(&self) -> Result<Seal> {
        let failed = |e: KeyError| Error::Invalid(format!("no encryption key to write with: {e}"));
        let number = self.current().map_err(failed)?;
        let key = self.key(number).map_err(|e| failed(format!("key {number}: {e}").into()))?;
        Ok(Seal::new(&key, Stamp { key: number, salt: cipher::salt()? }))
    }
}
