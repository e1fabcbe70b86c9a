//! Upkeep of a store that another process has open.
//!
//! A store that is open for writing is served by a Unix socket, named SOCKET, in its directory, unless
//! [`crate::Options::with_socket`] says no. By it `ringdb stats`, `flush`, `compact`, `checkpoint` and `backup` work on
//! the store from outside, and any program by [`Remote`]. Who may write in the directory may use it. What is asked for
//! is done by the process that has the store open, with its permissions.
//!
//! It costs a thread that sleeps, and two descriptors. Where no socket can be made the store opens all the same:
//! [`crate::Stats::socket`] says why there is none. The bytes are described in docs/formats/socket.md. All of this is
//! the cargo feature `socket`, which is on by default.
//!
//! ```
//! # let tmp = tempfile::tempdir().expect("a temporary directory");
//! # let dir = tmp.path().join("store");
//! use ringdb::socket::{Remote, Request};
//! use ringdb::{Db, Options};
//!
//! let db = Db::open(&dir, Options::default())?;
//! // Mostly in another process:
//! let remote = Remote::connect(&dir)?.expect("somebody has it open");
//! let stats = remote.ask(&Request::Stats, |_, _| {})?;
//! assert!(stats.contains(r#""stopped":null"#));
//! db.close()?;
//! assert!(Remote::connect(&dir)?.is_none());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub use ringdb_socket::{Error, Remote, Request, VERSION};
pub(crate) use ringdb_socket::{Failure, Server, Service};
