//! The stores that this process has open for writing.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};

/// Not one of `crate::sync`: it outlives the orders that Shuttle tries.
static OPEN: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

fn open() -> MutexGuard<'static, Vec<PathBuf>> {
    OPEN.lock().unwrap_or_else(|e| e.into_inner())
}

/// A store in the list, until this is dropped.
pub(crate) struct OpenStore(PathBuf);

impl OpenStore {
    /// Adds a store by the real path of its directory.
    pub fn new(dir: PathBuf) -> OpenStore {
        open().push(dir.clone());
        OpenStore(dir)
    }
}

impl Drop for OpenStore {
    fn drop(&mut self) {
        let mut open = open();
        if let Some(i) = open.iter().position(|d| *d == self.0) {
            open.swap_remove(i);
        }
    }
}

/// Who holds the lock of the store with this real path, and what can be done about it.
pub(crate) fn holder(dir: &Path) -> &'static str {
    match open().iter().any(|open| open == dir) {
        true => "this process already; use that handle (its clones are the same store), or close it first",
        false => "another process (its LOCK file is held); close it there, or open read-only",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_in_the_list_while_it_is_open() {
        let dir = PathBuf::from("/a store of this test");
        assert!(holder(&dir).starts_with("another process"));
        let open = OpenStore::new(dir.clone());
        assert!(holder(&dir).starts_with("this process"));
        drop(open);
        assert!(holder(&dir).starts_with("another process"));
    }
}
