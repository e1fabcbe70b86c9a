//! What the C interfaces of engineswap and ringdb share: where panics stop, how a failure gets into a struct of the
//! caller's, and the checks of what a caller passes.

pub mod args;
mod fail;
mod guard;

pub use fail::{
    Fail, INTERNAL, INVALID_ARGUMENT, IO, NOT_FOUND, OK, UNEXPECTED_EOF, WOULD_BLOCK, code_name, code_of,
};
pub use guard::{ErrorStruct, Parts, guard, report};
