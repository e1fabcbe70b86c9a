//! Temporary directories and children that do not outlive the command, whether it ends, fails or is interrupted.

use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

use crate::error::{Failure, Result, failed};

static LIVE: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());
static CHILDREN: Mutex<Vec<Pid>> = Mutex::new(Vec::new());
static HANDLER: Once = Once::new();

/// A temporary directory, removed when dropped and when a signal ends the process.
pub struct TempDir {
    dir: PathBuf,
}

impl TempDir {
    /// Makes one in [`scratch_root`].
    pub fn new(prefix: &str) -> Result<TempDir> {
        TempDir::new_in(&scratch_root(), prefix)
            .map_err(|e| Failure::Failed(format!("{e}; set TMPDIR or name a place")))
    }

    /// Makes one in `root`.
    pub fn new_in(root: &Path, prefix: &str) -> Result<TempDir> {
        HANDLER.call_once(install_handler);
        match tempfile::Builder::new().prefix(prefix).tempdir_in(root) {
            Ok(t) => {
                let dir = t.keep();
                lock(&LIVE).push(dir.clone());
                Ok(TempDir { dir })
            }
            Err(e) => failed(format!("no temporary directory in {}: {e}", root.display())),
        }
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.dir
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        remove(&self.dir);
        lock(&LIVE).retain(|d| *d != self.dir);
    }
}

/// A child that a signal ends with this process, however long it would still run.
pub struct Tied(Option<Pid>);

impl Tied {
    /// Begins one, which is waited for right before this is dropped.
    pub fn spawn(command: &mut Command) -> std::io::Result<(Child, Tied)> {
        HANDLER.call_once(install_handler);
        // So that none is begun behind the signal's back.
        let mut children = lock(&CHILDREN);
        let child = command.spawn()?;
        let pid = Pid::from_raw(child.id().cast_signed());
        children.extend(pid);
        Ok((child, Tied(pid)))
    }
}

impl Drop for Tied {
    fn drop(&mut self) {
        lock(&CHILDREN).retain(|p| Some(*p) != self.0);
    }
}

fn lock<T>(all: &Mutex<Vec<T>>) -> MutexGuard<'_, Vec<T>> {
    all.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where temporary stores go: TMPDIR if set; else /tmp, unless that is kept in memory and /var/tmp is not,
/// because a store in memory says nothing of a disk.
pub fn scratch_root() -> PathBuf {
    if std::env::var_os("TMPDIR").is_some() {
        return std::env::temp_dir();
    }
    let tmp = std::env::temp_dir();
    let var = PathBuf::from("/var/tmp");
    if in_memory(&tmp) && var.is_dir() && !in_memory(&var) { var } else { tmp }
}

/// Whether a directory is on tmpfs.
pub fn in_memory(dir: &Path) -> bool {
    const TMPFS: i64 = 0x0102_1994;
    #[allow(clippy::unnecessary_cast)] // the field's type differs between architectures
    rustix::fs::statfs(dir).is_ok_and(|s| s.f_type as i64 == TMPFS)
}

/// Background threads of a store may still be making files while the directory goes, hence the repeats.
fn remove(dir: &Path) {
    for _ in 0..20 {
        match std::fs::remove_dir_all(dir) {
            Ok(()) => return,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return,
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
    crate::error::warn(&format!("could not remove {}; remove it by hand", dir.display()));
}

fn install_handler() {
    let Ok(mut signals) = Signals::new([SIGINT, SIGTERM, SIGHUP]) else { return };
    std::thread::spawn(move || {
        if let Some(signal) = signals.forever().next() {
            // Held to the end: who waited for one of them begins no other.
            let children = lock(&CHILDREN);
            for child in children.iter() {
                let _ = kill_process(*child, Signal::KILL);
            }
            for dir in lock(&LIVE).iter() {
                remove(dir);
            }
            let _ = emulate_default_handler(signal);
            std::process::exit(128 + signal);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_directory_is_gone() {
        let t = TempDir::new("ringdb-test-").unwrap();
        let path = t.path().to_path_buf();
        std::fs::write(path.join("x"), b"x").unwrap();
        assert!(path.is_dir());
        drop(t);
        assert!(!path.exists());
    }
}
