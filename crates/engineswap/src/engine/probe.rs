//! What engines are tried with, and what may be in their way.

use std::fs::File;
use std::io::Write;
use std::os::fd::FromRawFd;

use crate::os::late::memfd;

/// What the sample file holds.
pub(super) const SAMPLE: &[u8; 16] = b"engineswap probe";

/// A small file in memory, to read through an engine.
pub(super) fn sample_file() -> std::result::Result<File, i32> {
    let fd = memfd(c"engineswap-probe");
    if fd < 0 {
        return Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO));
    }
    // SAFETY: the kernel has just given us this descriptor, and nobody else has it.
    let mut file = unsafe { File::from_raw_fd(fd) };
    file.write_all(SAMPLE).map_err(|e| e.raw_os_error().unwrap_or(libc::EIO))?;
    Ok(file)
}

/// Whether a seccomp filter is on this process.
pub(super) fn seccomp() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status.lines().any(|l| l.strip_prefix("Seccomp:").is_some_and(|v| v.trim() == "2"))
}
