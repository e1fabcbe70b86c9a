//! Opening an engine by its URI; `auto` finds out by doing, not by asking for versions.

use std::sync::Arc;

use crate::engine::{Engine, libaio, posix, uring};
use crate::io::Io;
#[cfg(feature = "sim")]
use crate::sim;
use crate::uri::{Config, LibaioConfig, PosixConfig, UringConfig, Uses};
use crate::{Error, Result};

impl Io {
    /// Opens the engine that `uri` names. `auto` or an empty string: the environment variable `ENGINESWAP`
    /// if set, else the best engine that works here.
    pub fn from_uri(uri: &str) -> Result<Io> {
        Io::from_uri_for(uri, Uses::ALL)
    }

    /// The same for a program that does no more than `uses` says: an option that was turned on by name, here or in the
    /// environment variable, and would do nothing in such a program is an error.
    pub fn from_uri_for(uri: &str, uses: Uses) -> Result<Io> {
        Ok(Io::from_engine(open_config(&uri.parse()?, uses)?))
    }

    /// Opens the engine that `config` describes; [`crate::Config::Auto`] as in [`Io::from_uri`].
    pub fn from_config(config: &Config) -> Result<Io> {
        Ok(Io::from_engine(open_config(config, Uses::ALL)?))
    }
}

/// Opens the engine that `uri` names.
pub fn open_engine(uri: &str) -> Result<Arc<dyn Engine>> {
    open_config(&uri.parse()?, Uses::ALL)
}

/// Opens the engine that `config` describes, for a program that does no more than `uses` with it.
fn open_config(config: &Config, uses: Uses) -> Result<Arc<dyn Engine>> {
    config.check_uses(uses)?;
    match config {
        Config::Posix(c) => Ok(posix::open(c, Vec::new())),
        Config::Libaio(c) => libaio::open(c, Vec::new()),
        Config::IoUring(c) => uring::open(c, Vec::new()),
        #[cfg(feature = "sim")]
        Config::Sim(c) => sim::open(c),
        #[cfg(not(feature = "sim"))]
        Config::Sim(_) => {
            let why = "this build has no simulated disk (the cargo feature `sim`)";
            Err(Error::new(crate::ErrorKind::Unsupported, "open engine", why))
        }
        Config::Auto => match std::env::var("ENGINESWAP").ok().filter(|v| !v.trim().is_empty()) {
            None => Ok(auto()),
            Some(uri) => {
                let from_env = |e: Error| e.more("asked for by the environment variable ENGINESWAP");
                match uri.parse().map_err(from_env)? {
                    Config::Auto => Ok(auto()),
                    named => open_config(&named, uses).map_err(from_env),
                }
            }
        },
    }
}

/// The best engine that works.
fn auto() -> Arc<dyn Engine> {
    let mut reasons = Vec::new();
    match uring::open(&UringConfig::default(), Vec::new()) {
        Ok(engine) => return engine,
        Err(e) => reasons.push(format!("io_uring: {e}")),
    }
    match libaio::open(&LibaioConfig::default(), reasons.clone()) {
        Ok(engine) => return engine,
        Err(e) => reasons.push(format!("libaio: {e}")),
    }
    reasons.push("posix: needs nothing".into());
    posix::open(&PosixConfig::default(), reasons)
}
