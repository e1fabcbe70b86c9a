//! Time, threads and randomness: the store takes them from an [`Env`], so that a simulator can hold them all.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Waits for a thread made by [`Env::spawn`].
pub type Join = Box<dyn FnOnce() + Send>;

/// Time, threads and randomness.
pub trait Env: Send + Sync {
    /// Monotonic time since some fixed moment.
    fn now(&self) -> Duration;
    /// Blocks the calling thread.
    fn sleep(&self, d: Duration);
    /// Starts a thread, at lower priority than foreground threads if `background`.
    ///
    /// # Errors
    /// What the system says if it gives no thread.
    fn spawn(&self, name: &str, background: bool, f: Box<dyn FnOnce() + Send>) -> std::io::Result<Join>;
    /// A random number.
    fn random(&self) -> u64;
    /// The time since the Unix epoch, by which values expire. It may be set, and go back. The machine's own by default.
    fn wall_clock(&self) -> Duration {
        wall_clock()
    }
    /// Whether all this is the machine's own. Only then is a store served by a socket.
    fn is_system(&self) -> bool {
        false
    }
}

/// The machine's own time since the Unix epoch.
pub(crate) fn wall_clock() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// The machine's own time, threads and randomness.
///
/// ```
/// use ringdb::{Db, Options, SystemEnv, engineswap::Io};
///
/// # let dir = tempfile::tempdir().expect("a temporary directory");
/// // What `Db::open` does, with an engine that the program has made itself.
/// let io = Io::from_uri("posix?threads=2")?;
/// let db = Db::open_with_env(dir.path(), Options::default(), io, SystemEnv::shared())?;
/// # Ok::<(), ringdb::Error>(())
/// ```
pub struct SystemEnv {
    start: Instant,
}

impl SystemEnv {
    /// The environment of a store outside of simulations.
    pub fn shared() -> Arc<dyn Env> {
        Arc::new(SystemEnv { start: Instant::now() })
    }
}

impl Env for SystemEnv {
    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    fn sleep(&self, d: Duration) {
        std::thread::sleep(d);
    }

    fn spawn(&self, name: &str, background: bool, f: Box<dyn FnOnce() + Send>) -> std::io::Result<Join> {
        let run = move || {
            if background {
                engineswap::lower_thread_priority();
            }
            f();
        };
        let handle = std::thread::Builder::new().name(name.into()).spawn(run)?;
        Ok(Box::new(move || {
            // A panic of the thread has been printed by the panic hook; joining only waits.
            let _ = handle.join();
        }))
    }

    fn random(&self) -> u64 {
        use std::hash::{BuildHasher, Hasher};
        std::collections::hash_map::RandomState::new().build_hasher().finish()
    }

    fn is_system(&self) -> bool {
        true
    }
}
