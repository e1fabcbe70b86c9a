//! Memory that threads share without locks.
//!
//! Everything here is a safe interface: no use of it from safe code is undefined behaviour.
//!
//! - [`epoch`]: readers without locks or reference counts; what is replaced is dropped when no reader can see it.
//! - [`FrameArena`], [`SlotArray`]: frames of a cache, found through arrays of slots, evicted by CLOCK.
//! - [`AppendArena`]: append-only memory with one writer and any number of readers.
//! - [`AtomicWords`]: zeroed atomic words on huge pages.
//! - [`prefetch`], [`prefetch_ref`]: hints to the processor.
//!
//! Pages come from engineswap, and a free frame travels in its operations: it is turned into an
//! [`engineswap::mem::ArenaBuf`] and back. engineswap knows nothing of this crate.
//!
//! Tested under Shuttle (tests/shuttle.rs, `make shuttle`) and Miri (`make miri`).

mod append;
mod clock;
pub mod epoch;
mod frames;
mod prefetch;
mod slots;
mod sync;
mod words;

pub use append::{AppendArena, ArenaPos, ArenaWriter};
pub use frames::{FrameArena, FreeFrame, PinnedFrame};
pub use prefetch::{prefetch, prefetch_ref};
pub use slots::SlotArray;
pub use words::AtomicWords;
