//! Removing and repairing stores that are not open.

use std::ffi::{CString, OsString, c_char};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use c_abi::Fail;
use ringdb::{Db, Error, Options, SalvageOptions};

use crate::args;
use crate::options::{chosen, leveldb_options_t};
use crate::report::{failed, guard, invalid, io_error};
use crate::store::{Found, levels_own, look};

/// Fails if the directory holds a store in LevelDB's format.
fn refuse_levels_own(path: &Path) -> Result<(), Fail> {
    match look(path)? {
        Found::LevelDb => Err(levels_own(path)),
        _ => Ok(()),
    }
}

/// Whether all of a store can be read; an error if that is not for a repair to change.
fn is_whole(path: &Path) -> Result<bool, Fail> {
    match Db::open(path, Options::default().with_create_if_missing(false)) {
        Ok(db) => {
            let whole = db.verify().map_err(failed)?.problems.is_empty();
            db.close().map_err(failed)?;
            Ok(whole)
        }
        Err(Error::Corrupt { .. }) => Ok(false),
        Err(e) => Err(failed(e)),
    }
}

/// A name beside the store that is not in use: `STORE.damaged-N`.
fn beside(path: &Path) -> Result<PathBuf, Fail> {
    let real = std::fs::canonicalize(path).map_err(|e| io_error(path, &e))?;
    let name = real.file_name().ok_or_else(|| invalid(format!("{} cannot be repaired", path.display())))?;
    for n in 1u32.. {
        let mut next = OsString::from(name);
        next.push(format!(".damaged-{n}"));
        let next = real.with_file_name(next);
        if std::fs::symlink_metadata(&next).is_err() {
            return Ok(next);
        }
    }
    Err(invalid(format!("{}: too many repairs", path.display())))
}

/// Exchanges the names of two directories in one step, durably.
fn exchange(a: &Path, b: &Path) -> Result<(), Fail> {
    let c = |p: &Path| CString::new(p.as_os_str().as_bytes()).map_err(|_| invalid("the path has a NUL"));
    let (from, to) = (c(a)?, c(b)?);
    // SAFETY: both end with NUL.
    let done = unsafe {
        libc::renameat2(libc::AT_FDCWD, from.as_ptr(), libc::AT_FDCWD, to.as_ptr(), libc::RENAME_EXCHANGE)
    };
    if done != 0 {
        let e = std::io::Error::last_os_error();
        let (a, b) = (a.display(), b.display());
        return Err(Fail::invalid(format!(
            "IO error: {b} has all of {a} that can be read, but cannot take its name: {e}"
        )));
    }
    let parent = a.parent().unwrap_or(Path::new("/"));
    std::fs::File::open(parent).and_then(|d| d.sync_all()).map_err(|e| io_error(parent, &e))
}

fn repair(path: &Path) -> Result<(), Fail> {
    refuse_levels_own(path)?;
    if is_whole(path)? {
        return Ok(());
    }
    let other = beside(path)?;
    ringdb::salvage(path, &other, &SalvageOptions::default()).map_err(failed)?;
    let real = std::fs::canonicalize(path).map_err(|e| io_error(path, &e))?;
    exchange(&real, &other)
}

/// Removes a store.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_destroy_db(
    options: *const leveldb_options_t,
    name: *const c_char,
    errptr: *mut *mut c_char,
) {
    // SAFETY: the header's contract.
    unsafe {
        guard(errptr, (), || {
            chosen(options)?;
            let path = args::path(name)?;
            refuse_levels_own(path)?;
            Db::destroy(path, &Options::default()).map_err(failed)
        });
    }
}

/// Makes a damaged store one that opens.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_repair_db(
    options: *const leveldb_options_t,
    name: *const c_char,
    errptr: *mut *mut c_char,
) {
    // SAFETY: the header's contract.
    unsafe {
        guard(errptr, (), || {
            chosen(options)?;
            repair(args::path(name)?)
        });
    }
}
