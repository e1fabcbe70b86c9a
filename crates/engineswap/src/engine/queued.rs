//! `queue_always`: a file whose every transfer, sync and allocation goes through a queue of its engine, also when it is
//! alone. What has no request of its own (lengths, advice, names) stays a plain call; a mapping is refused, since what
//! is stored through one is no request at all.
//!
//! A lone operation gains nothing by it: it is the calling thread that waits either way. It is for those who ask what
//! an interface costs one call at a time, as the published studies do.

use std::path::Path;
use std::sync::{Arc, Weak};

use crate::buf::Buf;
use crate::how::Advice;
use crate::info::Alignment;
use crate::kind::{OpKind, Purpose};
use crate::map::RawMap;
use crate::mem::ForeignBuf;
use crate::op::{Done, Op};
use crate::os::{OsFile, RawFile};
use crate::{Error, ErrorKind, File, Result};

/// An engine that runs an operation through a queue of the calling thread and waits for it.
pub(crate) trait RunsAlone: Send + Sync {
    /// When it returns, nobody touches the operation's memory any more.
    fn run_alone(&self, op: Op) -> Done;
}

/// The file as its users see it: through the queues of an engine, if one is given, which it keeps open.
pub(crate) fn file<E: RunsAlone + 'static>(file: Arc<OsFile>, engine: Option<&Weak<E>>) -> File {
    match engine.and_then(Weak::upgrade) {
        Some(engine) => File::from_raw(Arc::new(Queued { file, engine })),
        None => File::from_raw(file),
    }
}

struct Queued {
    file: Arc<OsFile>,
    engine: Arc<dyn RunsAlone>,
}

impl Queued {
    fn run(&self, kind: OpKind, (offset, len): (u64, u64), buf: Buf, purpose: Purpose) -> Result<u64> {
        let file = File::from_raw(self.file.clone());
        self.engine.run_alone(Op::new(kind, &file, offset, len, buf, purpose)).result
    }
}

impl RawFile for Queued {
    fn read_at(&self, buf: &mut [u8], offset: u64, purpose: Purpose) -> Result<usize> {
        let len = buf.len() as u64;
        // SAFETY: `buf` is borrowed mutably until this call returns, and then nobody touches it any more
        // (`RunsAlone::run_alone`).
        let lent = unsafe { ForeignBuf::to_read_into(buf.as_mut_ptr(), buf.len()) };
        Ok(self.run(OpKind::Read, (offset, len), Buf::Foreign(lent), purpose)? as usize)
    }

    fn write_all_at(&self, buf: &[u8], offset: u64, dsync: bool, purpose: Purpose) -> Result<()> {
        let len = buf.len() as u64;
        // SAFETY: as above, and `buf` is only read.
        let lent = unsafe { ForeignBuf::to_write_from(buf.as_ptr(), buf.len()) };
        self.run(OpKind::Write { dsync }, (offset, len), Buf::Foreign(lent), purpose).map(drop)
    }

    fn sync(&self, data_only: bool, purpose: Purpose) -> Result<()> {
        let kind = if data_only { OpKind::SyncData } else { OpKind::SyncAll };
        self.run(kind, (0, 0), Buf::None, purpose).map(drop)
    }

    fn sync_range(&self, offset: u64, len: u64, purpose: Purpose) -> Result<()> {
        self.run(OpKind::SyncRange, (offset, len), Buf::None, purpose).map(drop)
    }

    fn start_write_back(&self, offset: u64, len: u64, wait_before: bool, purpose: Purpose) -> Result<()> {
        self.run(OpKind::StartWriteBack { wait_before }, (offset, len), Buf::None, purpose).map(drop)
    }

    fn allocate(&self, offset: u64, len: u64) -> Result<()> {
        self.run(OpKind::Allocate, (offset, len), Buf::None, Purpose::default()).map(drop)
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.file.set_len(len)
    }

    fn len(&self) -> Result<u64> {
        self.file.len()
    }

    fn path(&self) -> &Path {
        self.file.path()
    }

    fn is_direct(&self) -> bool {
        self.file.is_direct()
    }

    fn alignment(&self) -> Alignment {
        self.file.alignment()
    }

    fn map(&self, _len: u64) -> Result<Box<dyn RawMap>> {
        let why = "with queue_always every write is a request, and what is stored through a mapping is none";
        Err(Error::new(ErrorKind::Unsupported, "mmap", why).at(self.path()))
    }

    fn rewrites_in_place(&self) -> bool {
        self.file.rewrites_in_place()
    }

    fn advise(&self, advice: Advice, offset: u64, len: u64) -> Result<()> {
        self.file.advise(advice, offset, len)
    }

    fn os(&self) -> Option<&OsFile> {
        Some(&self.file)
    }
}
