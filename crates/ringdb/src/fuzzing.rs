//! What fuzzers do with bytes.
//!
//! Each function takes any bytes as one of the store's formats and panics if something does not hold that must
//! hold for all of them: no panic in a decoder, no memory or time beyond what the bytes justify, and whatever is
//! believed reads back the same. Checksums keep random bytes out of a decoder, so most inputs are a description
//! of a file, whose checksums are put right here; a few bits say which are left as they are.
//!
//! The functions named `describe_*` turn real files into such inputs, for the corpora.

mod store;

pub use crate::fuzz_input::{Input, put_chunk};
pub use crate::log::fuzzing::{describe as describe_log, run as log, seal as seal_log};
pub use crate::log::payload::fuzzing::run as batch;
pub use crate::manifest::fuzzing::{describe as describe_manifest, run as manifest, seal as seal_manifest};
pub use store::{describe as describe_store, make as make_store};

pub use crate::table::fuzzing::{
    block, describe as describe_table, filter, filter_of, run as table, seal as seal_table,
};
