//! Upkeep of a ringdb store that another process has open.
//!
//! A program that has a store open calls [`serve`]. From then on `ringdb stats`, `flush`, `compact`, `checkpoint` and
//! `backup` work on it from outside, and any program by [`Remote`]: through a Unix socket, named SOCKET, in the store's
//! directory, which only its owner (mode 0600) can use. What is asked for is done by the program that serves, with its
//! permissions. The bytes are described in docs/formats/socket.md.
//!
//! ```
//! # let tmp = tempfile::tempdir().expect("a temporary directory");
//! # let dir = tmp.path().join("store");
//! use ringdb::{Db, Options};
//! use ringdb_socket::{Remote, Request, serve};
//!
//! let db = Db::open(&dir, Options::default())?;
//! let serving = serve(&db, &dir)?;
//! // Mostly in another process:
//! let remote = Remote::connect(&dir)?.expect("it is served");
//! let stats = remote.ask(&Request::Stats, |_, _| {})?;
//! assert_eq!(stats["stopped"], serde_json::Value::Null);
//! drop(serving);
//! assert!(Remote::connect(&dir)?.is_none());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod client;
mod place;
mod server;
mod wire;
mod work;

pub use client::{Error, Remote};
pub use server::{Serving, serve};
pub use wire::{Request, VERSION};
