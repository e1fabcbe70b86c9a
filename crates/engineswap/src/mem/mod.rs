//! Memory for I/O and for data shared between threads without locks.

mod buf;
mod frames;

pub use buf::AlignedBuf;
pub use frames::FreeFrame;
