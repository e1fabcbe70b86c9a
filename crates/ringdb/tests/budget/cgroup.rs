//! A memory cgroup, of version 1 or 2, for one child process.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::{fs, io, process};

/// Removed when dropped; its process must have ended.
pub struct Cgroup {
    dir: PathBuf,
    peak: &'static str,
}

impl Cgroup {
    /// Limits whoever joins to `bytes`; an error says why there is none.
    pub fn new(bytes: u64) -> io::Result<Cgroup> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("ringdb-budget-{}-{}", process::id(), NEXT.fetch_add(1, Relaxed));
        let (v1, v2) = (Path::new("/sys/fs/cgroup/memory"), Path::new("/sys/fs/cgroup"));
        let (root, limit, swap, peak) = if v1.join("memory.limit_in_bytes").exists() {
            (v1, "memory.limit_in_bytes", "memory.memsw.limit_in_bytes", "memory.max_usage_in_bytes")
        } else {
            // Nothing to be done when it is there already; what is missing shows below.
            let _ = fs::write(v2.join("cgroup.subtree_control"), "+memory");
            (v2, "memory.max", "memory.swap.max", "memory.peak")
        };
        let dir = root.join(name);
        fs::create_dir(&dir)?;
        let group = Cgroup { dir, peak };
        fs::write(group.dir.join(limit), bytes.to_string())?;
        let swap_bytes = if root == v1 { bytes } else { 0 };
        // Not there without swap accounting.
        let _ = fs::write(group.dir.join(swap), swap_bytes.to_string());
        Ok(group)
    }

    /// The file that a process joins by.
    pub fn procs(&self) -> PathBuf {
        self.dir.join("cgroup.procs")
    }

    /// The most that was charged to it, page cache included.
    pub fn peak(&self) -> String {
        fs::read_to_string(self.dir.join(self.peak)).unwrap_or_default().trim().to_string()
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.dir);
    }
}
