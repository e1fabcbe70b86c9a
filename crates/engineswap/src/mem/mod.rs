//! The memory of operations.
//!
//! Everything here is a safe interface, but for what says what it asks: no use of it from safe code is undefined
//! behaviour.
//!
//! - [`AlignedBuf`]: a buffer fit for O_DIRECT; [`BufArena`]: many of these in one mapping.
//! - [`ReadPool`]: buffers that reads choose from when there is something to read.
//! - [`ForeignBuf`]: memory of somebody else, lent to an operation; [`ArenaBuf`]: a piece of somebody else's [`Arena`].
//! - [`Region`]: an arena's memory, to be registered with an engine.
//! - [`Pages`]: zeroed pages of the kernel, which all of these are made of.

mod arena_buf;
mod buf;
mod buffers;
mod foreign;
mod pages;
mod pool;
mod region;

pub use arena_buf::{Arena, ArenaBuf};
pub use buf::AlignedBuf;
pub use buffers::BufArena;
pub use foreign::ForeignBuf;
pub use pages::{HUGE, Pages};
pub use pool::{PoolBuf, ReadPool};
pub use region::Region;
