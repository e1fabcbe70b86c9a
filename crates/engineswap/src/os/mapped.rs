//! Which files this process has mapped, and how much of them: a file is not cut under a mapping, since the next store
//! to it would end the process with SIGBUS. Handles and engines do not matter, the file does.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use super::retry::Sys;

/// Which file: a device or another disk, and a number on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum FileKey {
    /// Device and inode.
    Kernel(u64, u64),
    #[cfg_attr(not(feature = "sim"), allow(dead_code))]
    /// An address that its mappings keep, so that nobody else has it, and a number.
    Other(usize, u64),
}

/// What goes on with a file, in bytes from its front.
#[derive(Default)]
struct Entry {
    /// The mappings.
    mapped: Vec<u64>,
    /// The lengths that the file is being given at this moment.
    cuts: Vec<u64>,
}

type Table = HashMap<FileKey, Entry>;

static TABLE: LazyLock<Mutex<Table>> = LazyLock::new(Mutex::default);

/// Held only to look and to note, never during a system call.
fn table() -> MutexGuard<'static, Table> {
    TABLE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn forget(key: FileKey, from: impl FnOnce(&mut Entry) -> &mut Vec<u64>, len: u64) {
    let mut table = table();
    let Some(entry) = table.get_mut(&key) else { return };
    let list = from(entry);
    if let Some(i) = list.iter().position(|n| *n == len) {
        list.swap_remove(i);
    }
    if entry.mapped.is_empty() && entry.cuts.is_empty() {
        table.remove(&key);
    }
}

/// Says that the first bytes of a file are mapped, as long as it lives.
pub(crate) struct Held {
    key: FileKey,
    len: u64,
}

impl Held {
    /// Before the mapping is made, and before the file is asked whether it is long enough. ETXTBSY while it is being
    /// cut to less.
    pub(crate) fn new(key: FileKey, len: u64) -> Sys<Held> {
        let mut table = table();
        let entry = table.entry(key).or_default();
        if entry.cuts.iter().any(|cut| *cut < len) {
            return Err(libc::ETXTBSY);
        }
        entry.mapped.push(len);
        Ok(Held { key, len })
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        forget(self.key, |e| &mut e.mapped, self.len);
    }
}

/// Gives a file another length by `set`; ETXTBSY if more than that is mapped.
pub(crate) fn cutting<T>(key: FileKey, len: u64, set: impl FnOnce() -> Sys<T>) -> Sys<T> {
    {
        let mut table = table();
        let entry = table.entry(key).or_default();
        if entry.mapped.iter().any(|mapped| *mapped > len) {
            return Err(libc::ETXTBSY);
        }
        entry.cuts.push(len);
    }
    let result = set();
    forget(key, |e| &mut e.cuts, len);
    result
}

/// What to say of ETXTBSY.
pub(crate) const MAPPED: &str = "more of the file than that is mapped (File::map) in this process: drop the mapping before cutting the file";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_cut_only_behind_its_mappings() {
        let key = FileKey::Other(1, u64::MAX);
        let ok = |len| cutting(key, len, || Ok(())).is_ok();
        let (a, b) = (Held::new(key, 4096).unwrap(), Held::new(key, 8192).unwrap());
        assert_eq!((ok(8191), ok(8192), ok(1 << 40)), (false, true, true));
        drop(b);
        assert_eq!((ok(4095), ok(4096)), (false, true));
        drop(a);
        // A mapping that comes while the file is being cut is refused if the cut would take something from it.
        let during = |len| cutting(key, 4096, || Held::new(key, len).map(drop));
        assert_eq!((during(4096), during(4097)), (Ok(()), Err(libc::ETXTBSY)));
        assert!(ok(0) && !table().contains_key(&key));
    }
}
