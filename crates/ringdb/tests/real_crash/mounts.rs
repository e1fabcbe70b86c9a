//! Loop-mounted file systems in a mount namespace of this process: whatever happens, the mounts go with it.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

pub fn run(c: &mut Command) -> Result<(), String> {
    match c.output() {
        Err(e) => Err(format!("{:?}: {e}", c.get_program())),
        Ok(o) if o.status.success() => Ok(()),
        Ok(o) => Err(format!("{c:?}: {}", String::from_utf8_lossy(&o.stderr).trim())),
    }
}

/// A file of `megabytes` with a file system of `kind`.
pub fn make(kind: &str, image: &Path, megabytes: u64) -> Result<(), String> {
    File::create(image).and_then(|f| f.set_len(megabytes << 20)).map_err(|e| e.to_string())?;
    let mut c = Command::new(format!("mkfs.{kind}"));
    match kind {
        "ext4" => c.arg("-qF"),
        "xfs" => c.args(["-qf", "-m", "reflink=1"]),
        _ => c.arg("-qf"),
    };
    run(c.arg(image))
}

/// A mounted file system, until dropped.
pub struct Mount {
    pub dir: PathBuf,
}

impl Mount {
    /// Mounts `image` at `dir`, which is made.
    pub fn new(kind: &str, image: &Path, dir: &Path, options: &str) -> Result<Mount, String> {
        std::fs::create_dir_all(dir).map_err(|e| e.to_string())?;
        let o = if options.is_empty() { "loop".to_string() } else { format!("loop,{options}") };
        run(Command::new("mount").args(["-t", kind, "-o", &o]).arg(image).arg(dir))?;
        Ok(Mount { dir: dir.to_path_buf() })
    }

    pub fn remount(&self, option: &str) -> Result<(), String> {
        run(Command::new("mount").args(["-o", &format!("remount,{option}")]).arg(&self.dir))
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // A process that has just been killed may hold files for another moment.
        for _ in 0..100 {
            if run(Command::new("umount").arg(&self.dir)).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = run(Command::new("umount").arg("-l").arg(&self.dir));
    }
}

/// A mounted XFS in memory whose files can be copied at one instant (reflink), under a directory that goes with it.
pub struct Host {
    mount: Option<Mount>,
    base: tempfile::TempDir,
}

impl Host {
    pub fn new(megabytes: u64) -> Result<Host, String> {
        let base = tempfile::Builder::new().prefix("real-crash").tempdir().map_err(|e| e.to_string())?;
        // In memory where possible: these tests are about order, not about a disk.
        let shm = Path::new("/dev/shm");
        let images = if shm.is_dir() { shm } else { base.path() };
        let image = images.join(format!("real-crash-{}.img", std::process::id()));
        let mounted = make("xfs", &image, megabytes)
            .and_then(|()| Mount::new("xfs", &image, &base.path().join("host"), "nodiscard"));
        // The loop device keeps it as long as it is needed, and no longer.
        let _ = std::fs::remove_file(&image);
        Ok(Host { mount: Some(mounted?), base })
    }

    /// Where images are made.
    pub fn images(&self) -> &Path {
        &self.mount.as_ref().expect("mounted until dropped").dir
    }

    /// A directory to mount at.
    pub fn point(&self, name: &str) -> PathBuf {
        self.base.path().join(name)
    }

    /// Copies a file as it is at this instant, whoever writes to it.
    pub fn freeze(&self, image: &Path, copy: &Path) -> Result<(), String> {
        run(Command::new("cp").arg("--reflink=always").arg(image).arg(copy))
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.mount.take();
    }
}
