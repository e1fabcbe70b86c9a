//! The file: there, whole and written before it is measured.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Advice, SeekFrom, fadvise, seek};

use super::args::FilePerfArgs;
use super::pattern;
use crate::cleanup::TempDir;
use crate::error::{Result, at, failed};

/// The file to measure. A temporary one goes when this is dropped.
pub struct Prepared {
    /// Its path.
    pub path: PathBuf,
    _dir: Option<TempDir>,
}

/// Makes the file, or takes the one that was named.
pub fn prepare(args: &FilePerfArgs) -> Result<Prepared> {
    let size = args.size / args.bs * args.bs;
    let writes = args.matrix || args.rw.writes();
    let Some(path) = args.filename.clone() else {
        let dir = TempDir::new("ringdb-fileperf-")?;
        let path = dir.path().join("data");
        write_whole(&path, size)?;
        return Ok(Prepared { path, _dir: Some(dir) });
    };
    match std::fs::metadata(&path) {
        Ok(m) if m.file_type().is_block_device() => {
            let device = at(&path, File::open(&path))?;
            let has = at(&path, seek(&device, SeekFrom::End(0)).map_err(Into::into))?;
            if has < size {
                return failed(format!("{} has {has} bytes; --size asks for {size}", path.display()));
            }
            if args.verify {
                if !writes {
                    return failed(format!(
                        "--verify would overwrite {}: use --rw randrw if that is meant",
                        path.display()
                    ));
                }
                write_whole(&path, size)?;
            }
        }
        Ok(m) if m.is_dir() => {
            return failed(format!("{} is a directory; --filename takes a file", path.display()));
        }
        Ok(m) if m.len() > 0 => {
            let written = first_hole(&path, m.len())?;
            if args.verify && !writes {
                return failed(format!(
                    "{} exists, and --verify would overwrite it: remove it, or use a mode that writes",
                    path.display()
                ));
            }
            if written < size && !writes {
                return failed(format!(
                    "{} has only {written} bytes that are written; --size asks for {size}: remove it, or use a smaller size",
                    path.display()
                ));
            }
            if written < size || args.verify {
                write_whole(&path, size)?;
            }
        }
        _ => write_whole(&path, size)?,
    }
    Ok(Prepared { path, _dir: None })
}

/// Where the first hole or unwritten extent begins; the length if there is none.
fn first_hole(path: &Path, len: u64) -> Result<u64> {
    let f = at(path, File::open(path))?;
    // What is still on its way to the disk counts as data only by chance.
    at(path, f.sync_all())?;
    match seek(&f, SeekFrom::Hole(0)) {
        Ok(n) => Ok(n.min(len)),
        // No such question on this file system: it has no holes to tell.
        Err(rustix::io::Errno::INVAL) => Ok(len),
        Err(e) => at(path, Err(e.into())),
    }
}

/// Writes the first `size` bytes, generation 0, makes them durable and drops them from the page cache.
pub fn write_whole(path: &Path, size: u64) -> Result<()> {
    let mut f = at(path, OpenOptions::new().write(true).create(true).truncate(false).open(path))?;
    let mut chunk = vec![0; 1 << 20];
    let mut done = 0;
    while done < size {
        let n = chunk.len().min((size - done) as usize);
        pattern::fill(&mut chunk[..n], done, 0);
        at(path, f.write_all(&chunk[..n]))?;
        done += n as u64;
    }
    at(path, f.sync_all())?;
    // Only advice: pages that stay cost speed, not truth.
    let _ = fadvise(&f, 0, None, Advice::DontNeed);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_never_written_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        write_whole(&path, 3 << 20).unwrap();
        assert_eq!(first_hole(&path, 3 << 20).unwrap(), 3 << 20);
        let f = OpenOptions::new().write(true).open(&path).unwrap();
        f.set_len(8 << 20).unwrap();
        assert_eq!(first_hole(&path, 8 << 20).unwrap(), 3 << 20);
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!(pattern::differs(&bytes[..3 << 20], 0, 0), None);
    }
}
