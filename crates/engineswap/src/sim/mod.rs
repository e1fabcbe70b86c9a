//! `sim`, the simulated disk: an engine in memory, driven by one seed, for tests of what is above it.
//!
//! A [`Disk`] holds files and directories and hands out [`Io`]s to them. It does what disks and file systems do on bad
//! days: it reorders and delays the completions of queues, loses, tears and reorders what was not synced when the
//! power is cut, and fails calls by a [`Plan`]. Requests go through the same code as on every other engine, so that
//! continuation, retries and the memory of failed syncs are exercised too.
//!
//! ```
//! use engineswap::sim::{Disk, Plan};
//! use engineswap::{ErrorKind, OpenHow, Purpose};
//! use std::path::Path;
//!
//! let disk = Disk::new(7);
//! let io = disk.io();
//! let f = io.open(Path::new("/a"), &OpenHow::create_new())?;
//! io.sync_dir(Path::new("/"))?;
//! f.write_all_at(b"kept", 0, Purpose(0))?;
//! f.sync_data(Purpose(0))?;
//! f.write_all_at(b"lost?", 4, Purpose(0))?;
//! for outcome in 0..100 {
//!     let after = disk.crash(outcome);
//!     assert!(after.read(Path::new("/a")).unwrap().starts_with(b"kept"));
//! }
//! disk.set_plan(Plan::parse("on fdatasync \"a\" nth 1 fail EIO")?);
//! assert_eq!(f.sync_data(Purpose(0)).unwrap_err().errno(), Some(5));
//! assert_eq!(disk.faults_hit()["fdatasync EIO"], 1);
//! # Ok::<(), engineswap::Error>(())
//! ```
//!
//! # What survives a power cut
//!
//! Certain, and nothing else:
//! - bytes and length of a file as they were when a sync of it (fsync or fdatasync) began that has succeeded;
//! - bytes of a durable write (RWF_DSYNC) that has succeeded, and a length that reaches to their end;
//! - the entries of a directory as they were when its sync began that has succeeded, but whether the directory itself
//!   is there is up to the sync of its parent. A sync of a file says nothing about its name.
//!
//! `sync_range` makes nothing durable. A failed sync gives up what it should have made durable: no later sync covers
//! it, only writing it again does. All else is decided by the outcome's seed, in one of these ways:
//! - all of it survives, or nothing;
//! - everything up to some moment, over all files and names (as if a journal had been written in order);
//! - each write for itself: whole, lost, or some of its sectors of 512 or 4096 bytes, with its length or without;
//! - each page (and of some pages each sector) as it was at some moment since it was last durable, and the length as
//!   it was at some moment (as write-back in any order does). Bytes that were being stored through a mapping may be
//!   there up to any multiple of 8.
//! - each change of a directory (create, link, rename, unlink, mkdir) for itself. A rename within a directory is
//!   there or not, never half; one to another directory may leave both names, never none.
//!
//! A cut happens in the middle of an operation: its effect counts as not durable, the operation has not returned.
//!
//! # What is repeatable
//!
//! All choices come from the seed, in the order of the calls. One thread that does the same again gets the same; with
//! several threads that is so as far as their calls come in the same order. Memory that is mapped is looked at
//! before each operation of the disk: with several threads, what is half stored then is up to their timing.
//!
//! By URI (`sim?seed=7&plan=on+fsync+fail+EIO`; options: [`crate::uri::SimConfig`]) a disk is private to its [`Io`] and
//! starts empty. The engine `auto` never chooses it.

mod content;
mod crash;
mod disk;
mod engine;
mod handle;
mod map;
mod names;
mod node;
mod open;
pub mod plan;
mod queue;
mod world;

#[cfg(test)]
mod tests;

pub use crash::{CrashOutcome, Losses};
pub use disk::Disk;
pub(crate) use open::open;
pub use plan::{Call, Plan};
pub use world::Point;

#[cfg(doc)]
use crate::Io;
