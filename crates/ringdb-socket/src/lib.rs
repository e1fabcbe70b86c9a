//! The Unix socket by which a ringdb store that another process has open is reached: its place in the store's
//! directory, its bytes (docs/formats/socket.md), who listens and who asks. It knows nothing of the store, which gives
//! it a [`Service`]; programs use it as `ringdb::socket`.

mod client;
mod place;
mod server;
mod wire;

pub use client::{Error, Remote};
pub use place::{MAKING, NAME, NEW};
pub use server::{Failure, Progress, Server, Service};
pub use wire::{Request, VERSION};
