//! What `make guest` has built: where it is, and what is in it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::{Failure, Result, failed};

/// A kernel of the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize)]
pub enum Kernel {
    /// Of Debian 12
    #[value(name = "6.1")]
    #[serde(rename = "6.1")]
    V6_1,
    /// Of Debian 12's security suite
    #[value(name = "6.12")]
    #[serde(rename = "6.12")]
    V6_12,
}

impl Kernel {
    pub const ALL: [Kernel; 2] = [Kernel::V6_1, Kernel::V6_12];

    pub fn name(self) -> &'static str {
        match self {
            Kernel::V6_1 => "6.1",
            Kernel::V6_12 => "6.12",
        }
    }
}

/// What the images say of themselves.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct About {
    /// The releases of the kernels, by their short names.
    pub kernels: BTreeMap<String, String>,
    /// Debian's version.
    pub debian: String,
    /// That of the C library.
    pub libc: String,
    /// That of fio.
    pub fio: String,
}

/// The images.
pub struct Images {
    dir: PathBuf,
    pub about: About,
}

impl Images {
    /// Finds them, or says how to build them.
    pub fn find() -> Result<Images> {
        Images::in_dir(&place()?)
    }

    fn in_dir(dir: &Path) -> Result<Images> {
        let build = "`make guest` in ringdb's repository builds it";
        // The stamp is written last.
        if !dir.join("stamp").is_file() {
            return failed(format!("no guest in {}; {build}", dir.display()));
        }
        let broken = |what: String| Failure::Failed(format!("the guest in {what}; {build} anew"));
        let file = dir.join("guest.json");
        let about = std::fs::read(&file).map_err(|e| broken(format!("{}: {e}", file.display())))?;
        let about = serde_json::from_slice(&about).map_err(|e| broken(format!("{}: {e}", file.display())))?;
        let images = Images { dir: dir.to_path_buf(), about };
        let boots = Kernel::ALL.iter().flat_map(|k| [images.kernel(*k), images.initrd(*k)]);
        match boots.chain([images.root()]).find(|f| !f.is_file()) {
            None => Ok(images),
            Some(lacks) => Err(broken(format!("{} lacks {}", dir.display(), lacks.display()))),
        }
    }

    pub fn kernel(&self, kernel: Kernel) -> PathBuf {
        self.dir.join(format!("vmlinuz-{}", kernel.name()))
    }

    pub fn initrd(&self, kernel: Kernel) -> PathBuf {
        self.dir.join(format!("initrd-{}", kernel.name()))
    }

    pub fn root(&self) -> PathBuf {
        self.dir.join("root.img")
    }
}

/// Where `make guest` puts it: RINGDB_GUEST_DIR, or ringdb/guest in the XDG cache.
fn place() -> Result<PathBuf> {
    let of = |name| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let cache = || of("XDG_CACHE_HOME").or_else(|| Some(of("HOME")?.join(".cache")));
    match of("RINGDB_GUEST_DIR").or_else(|| Some(cache()?.join("ringdb/guest"))) {
        Some(dir) => Ok(dir),
        None => failed("neither RINGDB_GUEST_DIR nor XDG_CACHE_HOME nor HOME says where the guest is"),
    }
}
