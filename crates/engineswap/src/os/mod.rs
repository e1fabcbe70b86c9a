//! Files and directories by plain system calls.

mod advice;
mod calls;
pub(crate) mod dirs;
mod in_place;
pub(crate) mod late;
mod mapped;
mod mapping;
mod os_file;
mod raw;
mod retry;
mod slot;
mod timing;
mod transfer;

pub(crate) use self::advice::{SYNC_RANGE, start_write_back};
pub use self::os_file::OsFile;
pub use self::raw::RawFile;
pub(crate) use self::slot::{FileSlot, SlotOwner};

// What a simulated disk answers the calls with.
#[cfg(feature = "sim")]
pub(crate) use self::{
    calls::{FileCalls, gather},
    mapped::{FileKey, Held, MAPPED, cutting},
    mapping::Mapping,
    retry::{Sys, retry_intr},
};
