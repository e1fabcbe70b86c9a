//! The file systems to test on, and what the kernel has by raw system calls.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use engineswap::{Direct, Io, OpenHow};
use tempfile::TempDir;

pub struct FileSystem {
    pub name: &'static str,
    pub dir: PathBuf,
}

impl FileSystem {
    /// Whether files here can be opened for direct I/O.
    pub fn direct(&self, io: &Io) -> bool {
        let probe = tempfile::Builder::new().prefix("direct").tempdir_in(&self.dir).unwrap();
        let f = io.open(&probe.path().join("f"), &OpenHow::create_new().direct(Direct::Prefer)).unwrap();
        f.is_direct()
    }
}

/// A mount namespace of our own, where we may have one; what is mounted in it goes with the process.
pub struct Mounts {
    base: TempDir,
    refused: Option<String>,
}

impl Mounts {
    /// To be called before any thread is started.
    pub fn new() -> Mounts {
        let base =
            tempfile::Builder::new().prefix("conformance").tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        // SAFETY: a plain system call; the process has one thread.
        let own = unsafe { libc::unshare(libc::CLONE_NEWNS) } == 0;
        let refused = match own {
            false => Some(format!("no mount namespace: {}", std::io::Error::last_os_error())),
            // Without this, mounts would travel back to where we came from.
            true => run(Command::new("mount").args(["--make-rprivate", "/"])).err(),
        };
        Mounts { base, refused }
    }

    /// A directory with a file system of `kind` mounted.
    pub fn mount(&self, kind: &str, name: &str, megabytes: u64) -> Result<PathBuf, String> {
        if let Some(why) = &self.refused {
            return Err(why.clone());
        }
        let at = self.base.path().join(name);
        std::fs::create_dir(&at).map_err(|e| e.to_string())?;
        if kind == "tmpfs" {
            let size = format!("size={megabytes}m");
            run(Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(&at))?;
            return Ok(at);
        }
        // In memory where possible: making file systems on a busy disk takes most of a minute.
        let shm = Path::new("/dev/shm");
        let images = if shm.is_dir() { shm } else { self.base.path() };
        let image = images.join(format!("conformance-{}-{name}.img", std::process::id()));
        File::create(&image).and_then(|f| f.set_len(megabytes << 20)).map_err(|e| e.to_string())?;
        let quiet = if kind == "ext4" { "-qF" } else { "-qf" };
        let made = run(Command::new(format!("mkfs.{kind}")).arg(quiet).arg(&image));
        let mounted = made.and_then(|()| {
            // The loop device clears itself when the mount goes, and the mount goes with us.
            run(Command::new("mount").args(["-t", kind, "-o", "loop"]).arg(&image).arg(&at))
        });
        std::fs::remove_file(&image).map_err(|e| e.to_string())?;
        mounted.map(|()| at)
    }
}

impl Drop for Mounts {
    fn drop(&mut self) {
        // Not needed for the mounts themselves, but their directories can be removed only without them.
        if let Ok(list) = std::fs::read_dir(self.base.path()) {
            for d in list.flatten() {
                let _ = Command::new("umount").arg("-l").arg(d.path()).output();
            }
        }
    }
}

fn run(c: &mut Command) -> Result<(), String> {
    match c.output() {
        Err(e) => Err(format!("{:?}: {e}", c.get_program())),
        Ok(o) if o.status.success() => Ok(()),
        Ok(o) => Err(format!("{:?}: {}", c.get_program(), String::from_utf8_lossy(&o.stderr).trim())),
    }
}

/// Every file system that can be had.
pub fn all(mounts: &Mounts, skip: &mut dyn FnMut(&str, &str)) -> Vec<FileSystem> {
    let mut out = Vec::new();
    match mounts.mount("tmpfs", "tmpfs", 512) {
        Ok(dir) => out.push(FileSystem { name: "tmpfs", dir }),
        Err(_) if Path::new("/dev/shm").is_dir() => {
            out.push(FileSystem { name: "tmpfs", dir: "/dev/shm".into() })
        }
        Err(why) => skip("tmpfs", &why),
    }
    // Whatever the build directory is on.
    out.push(FileSystem { name: "target", dir: mounts.base.path().to_path_buf() });
    for (kind, megabytes) in [("ext4", 256), ("xfs", 320), ("btrfs", 320)] {
        match mounts.mount(kind, kind, megabytes) {
            Ok(dir) => out.push(FileSystem { name: kind, dir }),
            Err(why) => skip(kind, &why),
        }
    }
    out
}

/// Whether the kernel lets this process have the engine, by the raw system call.
pub fn kernel_has(engine: &str) -> Result<(), String> {
    let r = match engine {
        "io_uring" => {
            let mut params = [0u64; 15];
            // SAFETY: 120 bytes of parameters, all zero, which the kernel fills.
            let fd = unsafe { libc::syscall(libc::SYS_io_uring_setup, 4, params.as_mut_ptr()) };
            if fd >= 0 {
                // SAFETY: ours, closed once.
                unsafe { libc::close(fd as i32) };
            }
            fd
        }
        "libaio" => {
            let mut id = 0u64;
            // SAFETY: the kernel fills `id`.
            let r = unsafe { libc::syscall(libc::SYS_io_setup, 4, &mut id as *mut u64) };
            if r == 0 {
                // SAFETY: ours, destroyed once.
                unsafe { libc::syscall(libc::SYS_io_destroy, id) };
            }
            r
        }
        _ => 0,
    };
    if r >= 0 { Ok(()) } else { Err(format!("the kernel refuses: {}", std::io::Error::last_os_error())) }
}
