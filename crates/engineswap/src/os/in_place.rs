//! Whether bytes that a file has are always rewritten where they are, so that it needs no space.
//!
//! A store to a mapped page for which the file system finds no space raises SIGBUS, which ends the process. That
//! happens where files are rewritten elsewhere (copy on write): on some file systems always, on others once the bytes
//! are shared with another file, which somebody else's copy can do at any time. So the question is what the file system
//! can do, not what the file's extents are now.

use std::os::fd::RawFd;

/// File systems that always rewrite elsewhere: btrfs, bcachefs, ZFS, NILFS.
const COPY_ON_WRITE: [u32; 4] = [0x9123_683e, 0xca45_1a4e, 0x2fc1_2fc1, 0x0000_3434];

pub(super) fn rewrites_in_place(fd: RawFd) -> bool {
    // SAFETY: `statfs` is plain data; all-zero bytes are a valid value.
    let mut st: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel fills `st`.
    let known = unsafe { libc::fstatfs(fd, &mut st) } == 0;
    known && !COPY_ON_WRITE.contains(&(st.f_type as u32)) && !can_share(fd)
}

/// Whether files of this file system can share bytes (reflinks, XFS for example).
fn can_share(fd: RawFd) -> bool {
    // Bytes are never shared with themselves, so this is refused, by who could share them, for another reason.
    let range =
        libc::file_clone_range { src_fd: i64::from(fd), src_offset: 0, src_length: 4096, dest_offset: 0 };
    // SAFETY: the kernel reads `range`.
    if unsafe { libc::ioctl(fd, libc::FICLONERANGE, &range) } == 0 {
        return true;
    }
    let refused = std::io::Error::last_os_error().raw_os_error();
    !matches!(refused, Some(libc::EOPNOTSUPP | libc::ENOTTY | libc::ENOSYS))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;
    use std::process::Command;

    #[test]
    fn where_a_copy_can_share_bytes_files_are_not_rewritten_in_place() {
        let (tmp, shm) = (std::env::temp_dir(), std::path::PathBuf::from("/dev/shm"));
        for at in [tmp, shm].into_iter().filter(|d| d.is_dir()) {
            let dir = tempfile::tempdir_in(at).unwrap();
            let (a, b) = (dir.path().join("a"), dir.path().join("b"));
            std::fs::write(&a, vec![1; 8192]).unwrap();
            let file = std::fs::File::options().read(true).write(true).open(&a).unwrap();
            let before = rewrites_in_place(file.as_raw_fd());
            assert_eq!(std::fs::read(&a).unwrap(), vec![1; 8192], "asking changes nothing");
            let copied = Command::new("cp").arg("--reflink=always").arg(&a).arg(&b).output().unwrap();
            assert!(!(copied.status.success() && before), "{}", dir.path().display());
        }
    }
}
