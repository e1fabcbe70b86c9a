//! From files to records.

use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::sync_channel;

use serde::Serialize;
use walkdir::WalkDir;
use xxhash_rust::xxh3::xxh3_64;

use crate::error::{Result, at};

/// What is looked for when no directory is named.
const ENOUGH: usize = 100_000;

/// Files of at most this size get a digest of their contents.
const DIGEST_BYTES: u64 = 64 << 10;

/// So many of a file's first bytes are kept in its record.
const HEAD_BYTES: usize = 1024;

/// A record of the store.
pub struct Record {
    /// The path.
    pub key: Vec<u8>,
    /// A line of JSON (size, mode, mtime, digest) and the file's first bytes.
    pub value: Vec<u8>,
}

/// What is remembered of a record to check what is read.
pub struct Entry {
    /// The path.
    pub key: Vec<u8>,
    /// Of the value.
    pub digest: u64,
}

/// The digest of a value.
pub fn digest(value: &[u8]) -> u64 {
    xxh3_64(value)
}

#[derive(Serialize)]
struct Facts {
    size: u64,
    mode: String,
    mtime: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    xxh3: Option<String>,
}

/// The regular files below `roots`, at most `most`; below /usr and then other directories until there are
/// enough, if none are named. Other file systems are not entered.
pub fn paths(roots: &[PathBuf], most: usize) -> Result<Vec<PathBuf>> {
    const DEFAULTS: [&str; 8] = ["/usr", "/opt", "/lib", "/var/lib", "/root/.cargo", "/home", "/etc", "/srv"];
    let mut found = Vec::new();
    let named = !roots.is_empty();
    let defaults: Vec<PathBuf> = DEFAULTS.iter().map(PathBuf::from).collect();
    for root in if named { roots } else { &defaults } {
        if named {
            at(root, std::fs::metadata(root))?;
        } else if found.len() >= ENOUGH || std::fs::symlink_metadata(root).map_or(true, |m| m.is_symlink()) {
            continue;
        }
        let files = WalkDir::new(root)
            .same_file_system(true)
            .into_iter()
            .filter_map(|e| e.ok())
            .filter(|e| e.file_type().is_file())
            .map(walkdir::DirEntry::into_path)
            .filter(|p| p.as_os_str().len() < 4096);
        found.extend(files.take(most - found.len()));
    }
    Ok(found)
}

/// Reads all files on several threads and hands their records over, in no order. Files that cannot be read are
/// passed over: they may be gone, or not ours to read.
pub fn read_all(paths: &[PathBuf], mut sink: impl FnMut(Record) -> Result<()>) -> Result<()> {
    let threads = std::thread::available_parallelism().map_or(2, |n| n.get()).clamp(2, 8) * 2;
    let next = AtomicUsize::new(0);
    let (send, receive) = sync_channel::<Vec<Record>>(threads * 2);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            let (send, next) = (send.clone(), &next);
            scope.spawn(move || {
                let mut content = Vec::new();
                loop {
                    let first = next.fetch_add(128, Relaxed);
                    let Some(some) = paths.get(first..paths.len().min(first + 128)) else { return };
                    if some.is_empty() {
                        return;
                    }
                    let records = some.iter().filter_map(|p| record(p, &mut content).ok()).collect();
                    // The receiver goes away only after a failure, which it reports.
                    if send.send(records).is_err() {
                        return;
                    }
                }
            });
        }
        drop(send);
        let done = receive.iter().flatten().try_for_each(&mut sink);
        drop(receive);
        done
    })
}

fn record(path: &Path, content: &mut Vec<u8>) -> std::io::Result<Record> {
    let mut file = File::open(path)?;
    let m = file.metadata()?;
    content.clear();
    let small = m.len() <= DIGEST_BYTES;
    let wanted = if small { DIGEST_BYTES + 1 } else { HEAD_BYTES as u64 };
    Read::by_ref(&mut file).take(wanted).read_to_end(content)?;
    let facts = Facts {
        size: m.len(),
        mode: format!("{:o}", m.mode()),
        mtime: m.mtime(),
        xxh3: small.then(|| format!("{:016x}", xxh3_64(content))),
    };
    let mut value = serde_json::to_vec(&facts)?;
    value.push(b'\n');
    value.extend_from_slice(&content[..content.len().min(HEAD_BYTES)]);
    Ok(Record { key: path.as_os_str().as_bytes().to_vec(), value })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_become_records() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("sub")).unwrap();
        std::fs::write(dir.path().join("sub/small"), b"hello").unwrap();
        std::fs::write(dir.path().join("large"), vec![7u8; 100_000]).unwrap();
        std::os::unix::fs::symlink("large", dir.path().join("link")).unwrap();
        let paths = paths(&[dir.path().to_path_buf()], 10).unwrap();
        assert_eq!(paths.len(), 2);
        let mut records = Vec::new();
        read_all(&paths, |r| {
            records.push(r);
            Ok(())
        })
        .unwrap();
        records.sort_by(|a, b| a.key.cmp(&b.key));
        let large = String::from_utf8_lossy(&records[0].value);
        assert!(large.starts_with("{\"size\":100000,") && !large.contains("xxh3"), "{large}");
        assert_eq!(records[0].value.split(|b| *b == b'\n').nth(1).unwrap().len(), HEAD_BYTES);
        let small = String::from_utf8_lossy(&records[1].value);
        assert!(
            small.contains(&format!("{:016x}", xxh3_64(b"hello"))) && small.ends_with("\nhello"),
            "{small}"
        );
    }

    #[test]
    fn no_more_files_than_asked_for_and_a_failing_sink_ends_it() {
        let dir = tempfile::tempdir().unwrap();
        (0..300).for_each(|i| std::fs::write(dir.path().join(i.to_string()), b"x").unwrap());
        let paths = paths(&[dir.path().to_path_buf()], 200).unwrap();
        assert_eq!(paths.len(), 200);
        let mut n = 0;
        let r = read_all(&paths, |_| {
            n += 1;
            if n == 3 { crate::error::failed("full") } else { Ok(()) }
        });
        assert!(r.is_err());
        assert_eq!(n, 3);
    }
}
