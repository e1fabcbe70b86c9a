//! How a file is opened, and what is going to be done with it.

/// Whether to bypass the page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Direct {
    /// Through the page cache.
    #[default]
    No,
    /// O_DIRECT where the file system has it, else through the page cache.
    Prefer,
    /// O_DIRECT or an error.
    Require,
}

/// How to open a file.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenHow {
    /// For reading.
    pub read: bool,
    /// For writing.
    pub write: bool,
    /// Make it if missing.
    pub create: bool,
    /// Make it; an error if it exists.
    pub create_new: bool,
    /// Cut it to nothing.
    pub truncate: bool,
    /// Whether to bypass the page cache.
    pub direct: Direct,
    /// Of a buffered file: transfers do not stay in the page cache (RWF_DONTCACHE, Linux 6.14, where the file system
    /// has it; else they do). For what is written or read once, from front to back.
    pub dontcache: bool,
}

impl OpenHow {
    /// For reading an existing file.
    pub fn read() -> OpenHow {
        OpenHow { read: true, ..OpenHow::default() }
    }

    /// For reading and writing a file, made if missing.
    pub fn read_write() -> OpenHow {
        OpenHow { read: true, write: true, create: true, ..OpenHow::default() }
    }

    /// For writing (and reading) a new file; an error if it exists.
    pub fn create_new() -> OpenHow {
        OpenHow { read: true, write: true, create_new: true, ..OpenHow::default() }
    }

    /// The same with transfers that do not stay in the page cache ([`OpenHow::dontcache`]).
    pub fn dontcache(mut self) -> OpenHow {
        self.dontcache = true;
        self
    }

    /// The same with this choice of O_DIRECT.
    pub fn direct(mut self, direct: Direct) -> OpenHow {
        self.direct = direct;
        self
    }
}

/// What is going to be done with a part of a file: what POSIX knows of advice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// Nothing special.
    Normal,
    /// Read from front to back: read further ahead.
    Sequential,
    /// Read here and there: do not read ahead.
    Random,
    /// Read soon: begin now.
    WillNeed,
    /// Not soon: drop clean pages from the cache.
    DontNeed,
}
