//! What is known of engines, files and names.

/// What an engine turned out to be.
#[derive(Clone, Debug)]
pub struct EngineInfo {
    /// `posix`, `libaio`, `io_uring`, ...
    pub name: &'static str,
    /// The URI that would choose exactly this engine again.
    pub uri: String,
    /// Why this engine was chosen (the probing of `auto`), a line each.
    pub reasons: Vec<String>,
}

/// What O_DIRECT transfers of a file must be aligned to, in bytes. All 1 for buffered files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alignment {
    /// Of the buffer's address.
    pub memory: u32,
    /// Of the offset and length.
    pub offset: u32,
}

/// Which file it is. Device, inode and generation together name a file for good on file systems that have
/// generations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileInfo {
    /// The device's number.
    pub device: u64,
    /// The inode's number.
    pub inode: u64,
    /// Tells files apart that had the same inode one after the other; `None` where the file system does not say.
    pub generation: Option<u32>,
    /// Bytes.
    pub len: u64,
    /// Bytes that it takes on the device.
    pub allocated: u64,
    /// Names.
    pub links: u64,
    /// Nanoseconds from 1970 to its last change.
    pub modified_ns: i64,
}

/// An entry of a directory.
#[derive(Clone, Debug)]
pub struct DirEntry {
    /// The file name.
    pub name: String,
    /// Whether it is a directory.
    pub is_dir: bool,
}

/// What is known of a path.
#[derive(Clone, Copy, Debug)]
pub struct Metadata {
    /// Bytes.
    pub len: u64,
    /// Whether it is a directory.
    pub is_dir: bool,
}
