//! The probes of operations.

use std::ffi::CStr;

use crate::Error;
use crate::kind::OpKind;
use crate::op::Op;
use crate::probes::{self, Event};

/// The arguments of an operation's probes; `None` for files of other engines than the operating system's.
pub(crate) fn event(op: &Op, plain: bool) -> Option<Event> {
    let os = op.file.0.os()?;
    let (engine, fd) = (os.engine(), os.fd());
    let (purpose, offset, len) = (op.purpose, op.offset, op.len);
    Some(Event { engine, op: name(op.kind), purpose, fd, offset, len, plain, tag: 0 })
}

fn name(kind: OpKind) -> &'static CStr {
    match kind {
        OpKind::Read => c"read",
        OpKind::Write { .. } => c"write",
        OpKind::SyncAll => c"fsync",
        OpKind::SyncData => c"fdatasync",
        OpKind::SyncRange | OpKind::StartWriteBack { .. } => c"sync_file_range",
        OpKind::Allocate => c"fallocate",
    }
}

/// An operation that was answered without having been started fires both.
pub(crate) fn refused(op: &Op, e: &Error) {
    if probes::on()
        && let Some(event) = event(op, true)
    {
        event.complete(probes::code(Err(e)), event.submit());
    }
}
