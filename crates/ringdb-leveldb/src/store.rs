//! Stores: opening, reading, writing, snapshots.

use std::ffi::c_char;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use c_abi::Fail;
use ringdb::{Db, Durability, WriteBatch, WriteOptions};

use crate::args;
use crate::batch::leveldb_writebatch_t;
use crate::calls::{leveldb_readoptions_t, leveldb_snapshot_t, leveldb_writeoptions_t};
use crate::comparator::{BYTEWISE, Comparator};
use crate::filter::Custom;
use crate::options::{Chosen, chosen, leveldb_options_t};
use crate::report::{copy, failed, guard, invalid, io_error, quiet};

/// An open store.
pub struct leveldb_t {
    pub(crate) db: Db,
    pub(crate) order: Option<Arc<Comparator>>,
    filter: Option<Arc<Custom>>,
    /// The key that was written last, if there is a comparator to be checked.
    last: Mutex<Option<Vec<u8>>>,
}

/// The keyspace in which the name of a store's comparator is kept, if it is not LevelDB's default; and its key.
const OWN_KEYSPACE: &str = "leveldb-interface";
const COMPARATOR: &str = "comparator";

/// Opening with `error_if_exists` is a look and then an open, which two threads must not do at once.
static ALONE: Mutex<()> = Mutex::new(());

impl leveldb_t {
    /// Opens a store.
    pub(crate) fn open(chosen: &Chosen, path: &Path) -> Result<leveldb_t, Fail> {
        let options = chosen.to_ringdb()?;
        if let Some(order) = &chosen.comparator {
            order.probe()?;
        }
        let _alone = chosen.error_if_exists.then(|| ALONE.lock().unwrap_or_else(PoisonError::into_inner));
        match look(path)? {
            Found::LevelDb => return Err(levels_own(path)),
            Found::Store if chosen.error_if_exists => {
                return Err(invalid(format!("{}: exists (error_if_exists is true)", path.display())));
            }
            Found::Nothing if !chosen.create_if_missing => {
                let path = path.display();
                return Err(invalid(format!("{path}: does not exist (create_if_missing is false)")));
            }
            _ => {}
        }
        let db = Db::open(path, options).map_err(failed)?;
        check_name(&db, chosen.comparator.as_deref())?;
        let filter = chosen.filter.as_ref().and_then(|f| f.custom());
        Ok(leveldb_t { db, order: chosen.comparator.clone(), filter, last: Mutex::new(None) })
    }

    /// Fails if the comparator disagrees with the bytes about keys to be written.
    fn check_order<'a>(&self, keys: impl Iterator<Item = &'a [u8]>) -> Result<(), Fail> {
        let Some(order) = &self.order else { return Ok(()) };
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        for key in keys {
            if let Some(last) = &*last {
                order.check(last, key)?;
            }
            let last = last.get_or_insert_default();
            last.clear();
            last.extend_from_slice(key);
        }
        Ok(())
    }

    fn write(&self, batch: &leveldb_writebatch_t, how: &WriteOptions) -> Result<(), Fail> {
        self.check_order(batch.writes().map(|(key, _)| key))?;
        self.db.write(batch.to_ringdb()?, how).map_err(failed)
    }

    fn write_one(&self, key: &[u8], value: Option<&[u8]>, how: &WriteOptions) -> Result<(), Fail> {
        self.check_order(std::iter::once(key))?;
        if how.durability == Some(Durability::Process) {
            // The store's own durability: without a batch.
            return match value {
                Some(value) => self.db.put(key, value),
                None => self.db.delete(key),
            }
            .map_err(failed);
        }
        let mut batch = WriteBatch::new();
        match value {
            Some(value) => batch.put(key, value),
            None => batch.delete(key),
        }
        self.db.write(batch, how).map_err(failed)
    }

    fn get(&self, key: &[u8], how: &leveldb_readoptions_t) -> Result<Option<ringdb::Value>, Fail> {
        let value = match &how.snapshot {
            None => self.db.get_with(key, &how.how),
            Some(snapshot) => snapshot.get_with(key, &how.how),
        };
        let Some(value) = value.map_err(failed)? else { return Ok(None) };
        match &self.filter {
            Some(filter) if !filter.lets_pass(key)? => Ok(None),
            _ => Ok(Some(value)),
        }
    }
}

/// What is in a directory.
#[derive(PartialEq, Eq)]
pub(crate) enum Found {
    /// No database.
    Nothing,
    Store,
    /// A store in LevelDB's format.
    LevelDb,
}

/// Looks at a directory. The files of both databases have the same names; a manifest of LevelDB's begins with a record
/// that names the comparator.
pub(crate) fn look(dir: &Path) -> Result<Found, Fail> {
    let read = |name: &str| match std::fs::read(dir.join(name)) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(e) if [std::io::ErrorKind::NotFound, std::io::ErrorKind::NotADirectory].contains(&e.kind()) => {
            Ok(None)
        }
        Err(e) => Err(io_error(&dir.join(name), &e)),
    };
    let Some(current) = read("CURRENT")? else { return Ok(Found::Nothing) };
    let name = std::str::from_utf8(&current).ok().map(str::trim_end);
    let Some(name) = name.filter(|n| n.starts_with("MANIFEST-") && !n.contains('/')) else {
        return Ok(Found::Store);
    };
    let manifest = read(name)?.unwrap_or_default();
    // Checksum (4), length (2), whole or first record (1), then the field 1 and the length of the name.
    Ok(match manifest.get(6..9) {
        Some([1 | 2, 1, len]) if (1..=64).contains(len) && !manifest.starts_with(b"ringdb") => Found::LevelDb,
        _ => Found::Store,
    })
}

/// The error about a store in LevelDB's format.
pub(crate) fn levels_own(path: &Path) -> Fail {
    let path = path.display();
    invalid(format!(
        "{path} is in LevelDB's own format, which this library, ringdb, does not open; \
         `ringdb import --from leveldb --db NEW {path}` copies its keys and values into a new store"
    ))
}

/// Compares the comparator's name with the one that the store was made with. An empty store takes it.
fn check_name(db: &Db, order: Option<&Comparator>) -> Result<(), Fail> {
    let name = order.map_or_else(|| Ok(BYTEWISE.to_owned()), Comparator::name)?;
    let own = db.existing_keyspace(OWN_KEYSPACE).map_err(failed)?;
    let kept = match &own {
        Some(own) => own.get(COMPARATOR).map_err(failed)?,
        None => None,
    };
    let kept = kept.map(|k| String::from_utf8_lossy(&k).into_owned());
    if kept.as_deref().unwrap_or(BYTEWISE) == name {
        return Ok(());
    }
    if kept.is_none() && db.first().map_err(failed)?.is_none() {
        let own = db.keyspace(OWN_KEYSPACE).map_err(failed)?;
        let mut batch = WriteBatch::new();
        batch.put_in(&own, COMPARATOR, &name);
        let durable = WriteOptions::default().durability(Durability::Sync);
        return db.write(batch, &durable).map_err(failed);
    }
    let kept = kept.as_deref().unwrap_or(BYTEWISE);
    Err(invalid(format!("{name}: does not match existing comparator {kept}")))
}

/// Opens a store.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_open(
    options: *const leveldb_options_t,
    name: *const c_char,
    errptr: *mut *mut c_char,
) -> *mut leveldb_t {
    // SAFETY: the header's contract.
    unsafe {
        guard(errptr, std::ptr::null_mut(), || {
            Ok(args::give(leveldb_t::open(chosen(options)?, args::path(name)?)?))
        })
    }
}

/// Closes it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_close(db: *mut leveldb_t) {
    if db.is_null() {
        return;
    }
    quiet((), || {
        // SAFETY: the header's contract.
        let store = unsafe { Box::from_raw(db) };
        // Whatever snapshots are left: dropping the handle would leave it open as long as there is one.
        store.db.close().map_err(failed)
    });
}

/// Sets a key.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_put(
    db: *mut leveldb_t,
    options: *const leveldb_writeoptions_t,
    key: *const c_char,
    keylen: usize,
    val: *const c_char,
    vallen: usize,
    errptr: *mut *mut c_char,
) {
    // SAFETY: the header's contract.
    unsafe {
        guard(errptr, (), || {
            let how = args::handle(options, "write options")?.how();
            let (key, value) = (args::bytes(key, keylen, "key")?, args::bytes(val, vallen, "value")?);
            args::handle(db, "store")?.write_one(key, Some(value), &how)
        });
    }
}

/// Deletes a key.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_delete(
    db: *mut leveldb_t,
    options: *const leveldb_writeoptions_t,
    key: *const c_char,
    keylen: usize,
    errptr: *mut *mut c_char,
) {
    // SAFETY: the header's contract.
    unsafe {
        guard(errptr, (), || {
            let how = args::handle(options, "write options")?.how();
            args::handle(db, "store")?.write_one(args::bytes(key, keylen, "key")?, None, &how)
        });
    }
}

/// Writes a batch.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_write(
    db: *mut leveldb_t,
    options: *const leveldb_writeoptions_t,
    batch: *mut leveldb_writebatch_t,
    errptr: *mut *mut c_char,
) {
    // SAFETY: the header's contract.
    unsafe {
        guard(errptr, (), || {
            let how = args::handle(options, "write options")?.how();
            args::handle(db, "store")?.write(args::handle(batch, "batch")?, &how)
        });
    }
}

/// The value of a key.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_get(
    db: *mut leveldb_t,
    options: *const leveldb_readoptions_t,
    key: *const c_char,
    keylen: usize,
    vallen: *mut usize,
    errptr: *mut *mut c_char,
) -> *mut c_char {
    // SAFETY: the header's contract.
    unsafe {
        guard(errptr, std::ptr::null_mut(), || {
            let vallen = args::handle_mut(vallen, "place for the length")?;
            *vallen = 0;
            let (db, how) = (args::handle(db, "store")?, args::handle(options, "read options")?);
            let Some(value) = db.get(args::bytes(key, keylen, "key")?, how)? else {
                return Ok(std::ptr::null_mut());
            };
            let to = copy(&value)?;
            *vallen = value.len();
            Ok(to)
        })
    }
}

/// The store as it is now.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_create_snapshot(db: *mut leveldb_t) -> *const leveldb_snapshot_t {
    quiet(std::ptr::null(), || {
        // SAFETY: the header's contract.
        let db = unsafe { args::handle(db, "store") }?;
        Ok(args::give(leveldb_snapshot_t(db.db.snapshot())).cast_const())
    })
}

/// Gives a snapshot back.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_release_snapshot(_db: *mut leveldb_t, snapshot: *const leveldb_snapshot_t) {
    // SAFETY: the header's contract.
    unsafe { args::free(snapshot.cast_mut()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_of_leveldbs_own_format_is_told_from_ours() {
        let tmp = tempfile::tempdir().unwrap();
        let dir = tmp.path();
        assert!(look(dir).unwrap_or_else(|e| panic!("{}", e.message)) == Found::Nothing);
        std::fs::write(dir.join("CURRENT"), "MANIFEST-000002\n").unwrap();
        // Cut short, or of ours.
        for (manifest, wanted) in [
            (&b""[..], Found::Store),
            (b"ringdbMF\x01", Found::Store),
            (b"\x56\xf9\xb8\xf8\x1c\x00\x01\x01\x1aleveldb.BytewiseComparator\x02\x00", Found::LevelDb),
        ] {
            std::fs::write(dir.join("MANIFEST-000002"), manifest).unwrap();
            assert!(look(dir).is_ok_and(|found| found == wanted), "{manifest:?}");
        }
    }
}
