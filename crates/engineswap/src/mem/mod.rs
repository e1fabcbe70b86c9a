//! Memory for I/O and for data shared between threads without locks.
//!
//! Everything here is a safe interface: no use of it from safe code is undefined behaviour.
//!
//! - [`AlignedBuf`]: a heap buffer fit for O_DIRECT.
//! - [`ForeignBuf`]: memory of somebody else, lent to an operation (its constructors are `unsafe`).
//! - [`BufArena`]: many of these in one mapping; [`Region`]: an arena's memory, to be registered with an engine.
//! - [`epoch`]: readers without locks or reference counts; what is replaced is dropped when no reader can see it.
//! - [`FrameArena`], [`SlotArray`]: frames of a cache, found through arrays of slots, evicted by CLOCK.
//! - [`AppendArena`]: append-only memory with one writer and any number of readers.
//! - [`AtomicWords`]: zeroed atomic words on huge pages.
//! - [`prefetch`], [`prefetch_ref`]: hints to the processor.

mod append;
mod buf;
mod buffers;
pub mod epoch;
mod foreign;
mod frames;
mod pages;
mod pool;
mod prefetch;
mod region;
mod slots;
mod words;

pub use append::{AppendArena, ArenaPos, ArenaWriter};
pub use buf::AlignedBuf;
pub use buffers::BufArena;
pub use foreign::ForeignBuf;
pub use frames::{FrameArena, FreeFrame, PinnedFrame};
pub use pool::{PoolBuf, ReadPool};
pub use prefetch::{prefetch, prefetch_ref};
pub use region::Region;
pub use slots::SlotArray;
pub use words::AtomicWords;
