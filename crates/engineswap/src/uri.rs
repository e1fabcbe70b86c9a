//! Engine URIs: `NAME[?OPTION[=VALUE][&OPTION...]]`, and the typed configuration that says the same.
//!
//! | URI | engine | options |
//! |---|---|---|
//! | `auto` or empty | the environment variable `ENGINESWAP`, else the best that works here | |
//! | `posix` | plain system calls, a thread pool for batches | `threads` (1 to 1024, default 16), `nowait` (on), `queue_always` |
//! | `libaio` | Linux native AIO | `depth` (1 to 4096, default 128), `queue_always` |
//! | `io_uring` | io_uring | those of [`UringConfig`] |
//! | `sim` | a simulated disk in memory, for tests ([`crate::sim`]) | those of [`SimConfig`] |
//!
//! A flag is `on` when named alone; `=on`, `=1`, `=true`, `=yes` and their opposites work too. A flag of
//! io_uring that is not named is used where the kernel has it; a named one that the kernel refuses is an error.

use std::fmt;
use std::str::FromStr;

use self::parse::{bad, flag, number, unknown};
use crate::{Error, Result};

mod parse;
mod sim;
mod uring;
mod uses;

pub use sim::SimConfig;
pub use uring::{UringConfig, UringOption};
pub use uses::Uses;

/// The engine names.
pub const ENGINES: [&str; 5] = ["auto", "posix", "libaio", "io_uring", "sim"];

/// Which engine, with its options.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum Config {
    /// The environment variable `ENGINESWAP` if set, else the best engine that works here.
    #[default]
    Auto,
    /// Plain system calls.
    Posix(PosixConfig),
    /// Linux native AIO.
    Libaio(LibaioConfig),
    /// io_uring.
    IoUring(UringConfig),
    /// A simulated disk.
    Sim(SimConfig),
}

/// Options of the posix engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PosixConfig {
    /// The most threads of the pool that serves queues and batches.
    pub threads: u32,
    /// Queued reads through the page cache are tried at submission first, without waiting (RWF_NOWAIT): what is cached
    /// costs no thread.
    pub nowait: bool,
    /// Operations that are alone go through the pool, too ([`UringConfig::queue_always`]).
    pub queue_always: bool,
}

impl Default for PosixConfig {
    fn default() -> PosixConfig {
        PosixConfig { threads: 16, nowait: true, queue_always: false }
    }
}

/// Options of the libaio engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LibaioConfig {
    /// Operations in flight at most, in each queue.
    pub depth: u32,
    /// Operations that are alone go through a context, too ([`UringConfig::queue_always`]); sync_file_range and
    /// fallocate stay plain calls, since native AIO has none.
    pub queue_always: bool,
}

impl Default for LibaioConfig {
    fn default() -> LibaioConfig {
        LibaioConfig { depth: 128, queue_always: false }
    }
}

impl Config {
    /// posix with so many threads.
    pub fn posix(threads: u32) -> Config {
        Config::Posix(PosixConfig { threads, ..PosixConfig::default() })
    }

    /// libaio with this depth.
    pub fn libaio(depth: u32) -> Config {
        Config::Libaio(LibaioConfig { depth, ..LibaioConfig::default() })
    }

    /// io_uring with this depth and every flag that the kernel has.
    pub fn io_uring(depth: u32) -> Config {
        Config::IoUring(UringConfig { depth, ..UringConfig::default() })
    }
}

const POSIX_OPTIONS: &str = "threads, nowait, queue_always";
const LIBAIO_OPTIONS: &str = "depth, queue_always";

impl FromStr for Config {
    type Err = Error;

    fn from_str(uri: &str) -> Result<Config> {
        let uri = uri.trim();
        let (name, query) = uri.split_once('?').unwrap_or((uri, ""));
        let options = query.split('&').filter(|o| !o.is_empty()).map(|o| match o.split_once('=') {
            Some((k, v)) => (k, Some(v)),
            None => (o, None),
        });
        match name {
            "" | "auto" => match options.into_iter().next() {
                None => Ok(Config::Auto),
                Some((o, _)) => Err(unknown("auto", o, "none (name an engine to give it options)")),
            },
            "posix" => {
                let mut c = PosixConfig::default();
                for (k, v) in options {
                    match k {
                        "threads" => c.threads = number(k, v, 1, 1024)?,
                        "nowait" => c.nowait = flag(k, v)?.unwrap_or(true),
                        "queue_always" => c.queue_always = flag(k, v)? == Some(true),
                        _ => return Err(unknown(name, k, POSIX_OPTIONS)),
                    }
                }
                Ok(Config::Posix(c))
            }
            "libaio" => {
                let mut c = LibaioConfig::default();
                for (k, v) in options {
                    match k {
                        "depth" => c.depth = number(k, v, 1, 4096)?,
                        "queue_always" => c.queue_always = flag(k, v)? == Some(true),
                        _ => return Err(unknown(name, k, LIBAIO_OPTIONS)),
                    }
                }
                Ok(Config::Libaio(c))
            }
            "io_uring" => {
                let c = options.into_iter().try_fold(UringConfig::default(), |c, (k, v)| c.with(k, v))?;
                c.check()?;
                Ok(Config::IoUring(c))
            }
            "sim" => {
                Ok(Config::Sim(options.into_iter().try_fold(SimConfig::default(), |c, (k, v)| c.with(k, v))?))
            }
            _ => Err(bad(format!("unknown engine '{name}'; valid: {}", ENGINES.join(", ")))),
        }
    }
}

impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Config::Auto => write!(f, "auto"),
            Config::Posix(c) => c.fmt(f),
            Config::Libaio(c) => c.fmt(f),
            Config::IoUring(c) => c.fmt(f),
            Config::Sim(c) => c.fmt(f),
        }
    }
}

fn always(queue_always: bool) -> &'static str {
    if queue_always { "&queue_always" } else { "" }
}

impl fmt::Display for PosixConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nowait = if self.nowait { "" } else { "&nowait=off" };
        write!(f, "posix?threads={}{nowait}{}", self.threads, always(self.queue_always))
    }
}

impl fmt::Display for LibaioConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "libaio?depth={}{}", self.depth, always(self.queue_always))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ErrorKind;

    fn parse(s: &str) -> Result<Config> {
        s.parse()
    }

    #[test]
    fn names_and_options() {
        assert_eq!(parse("").unwrap(), Config::Auto);
        assert_eq!(parse("auto").unwrap(), Config::Auto);
        assert_eq!(parse("posix?threads=3").unwrap(), Config::posix(3));
        assert_eq!(parse("posix?nowait=on").unwrap(), Config::posix(16));
        let without = Config::Posix(PosixConfig { nowait: false, ..PosixConfig::default() });
        assert_eq!(parse("posix?nowait=off").unwrap(), without);
        assert_eq!(parse("libaio").unwrap(), Config::libaio(128));
        let want = UringConfig {
            depth: 64,
            coop_taskrun: Some(true),
            no_sqarray: Some(false),
            ..UringConfig::default()
        };
        assert_eq!(parse("io_uring?depth=64&coop_taskrun&no_sqarray=0").unwrap(), Config::IoUring(want));
    }

    #[test]
    fn mistakes_list_what_is_valid() {
        for (uri, part) in [
            ("iouring", "valid: auto, posix, libaio, io_uring, sim"),
            ("io_uring?sqpol", "valid: depth, single_issuer"),
            ("posix?depth=3", "valid: threads"),
            ("auto?depth=3", "name an engine"),
            ("libaio?depth=0", "from 1 to 4096"),
            ("libaio?depth", "from 1 to 4096"),
            ("io_uring?coop_taskrun=maybe", "on or off"),
            ("io_uring?defer_taskrun&single_issuer=off", "needs 'single_issuer'"),
        ] {
            let e = parse(uri).unwrap_err();
            assert_eq!(e.kind(), ErrorKind::InvalidInput);
            assert!(e.to_string().contains(part), "{uri}: {e}");
        }
    }

    proptest! {
        #[test]
        fn no_string_panics(s in ".*") {
            let _ = parse(&s);
        }

        #[test]
        fn no_near_miss_panics_and_what_parses_prints_back(
            s in "(auto|posix|libaio|io_uring|sim|x)?\\??((depth|threads|nowait|queue_always|seed|plan|capacity|single_issuer|defer_taskrun|sqpoll|sqpoll_cpu|worker_cpus|fixed_files|provided_buffers|reap|min_wait_us|y)(=(on|off|0|1|12|0,1|0\\+1|0-3|-3|99999999999)?)?&?){0,4}"
        ) {
            if let Ok(c) = parse(&s) {
                prop_assert_eq!(parse(&c.to_string()).unwrap(), c);
            }
        }
    }
}
