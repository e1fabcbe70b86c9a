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
    /// Whether it is a socket.
    pub is_socket: bool,
}
