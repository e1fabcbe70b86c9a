//! What an operation does, and what it is for.

/// What an operation is for: an opaque tag that the statistics are kept by. engineswap gives it no meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Purpose(pub u8);

impl Purpose {
    /// Purposes run from 0 to `COUNT - 1`; larger tags are counted in the last.
    pub const COUNT: usize = 16;
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpKind {
    /// Read `len` bytes at `offset`. Ends early only at the end of the file.
    Read,
    /// Write `len` bytes at `offset`; with `dsync`, durable at completion (RWF_DSYNC).
    Write {
        /// Durable at completion.
        dsync: bool,
    },
    /// fsync.
    SyncAll,
    /// fdatasync.
    SyncData,
    /// sync_file_range over `len` bytes at `offset`: starts write-back and waits for it; not durable by itself.
    SyncRange,
    /// sync_file_range over `len` bytes at `offset` (0: to the end) that starts write-back and does not wait for it.
    StartWriteBack {
        /// Waits for what is under way there already.
        wait_before: bool,
    },
    /// fallocate `len` bytes at `offset`, growing the file.
    Allocate,
}
