//! Watches this process's memory while something runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::Duration;

const MIB: u64 = 1 << 20;

/// Samples the process's memory until it is dropped.
pub struct Watch {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    done: AtomicBool,
    anon: AtomicU64,
    file: AtomicU64,
}

/// Anonymous memory and that of mapped files, in bytes.
fn resident() -> (u64, u64) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let kib = |name: &str| {
        let line = status.lines().find_map(|l| l.strip_prefix(name)).unwrap_or_default();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap_or(0)
    };
    (kib("RssAnon:") << 10, (kib("RssFile:") + kib("RssShmem:")) << 10)
}

impl Watch {
    pub fn start() -> Watch {
        let shared = Arc::new(Shared::default());
        let in_thread = Arc::clone(&shared);
        let watch = move || {
            while !in_thread.done.load(Relaxed) {
                in_thread.sample();
                thread::sleep(Duration::from_millis(1));
            }
        };
        Watch { shared, thread: Some(thread::spawn(watch)) }
    }

    /// Runs `f`; prints what it took at most, and the store's own account of it, and checks the anonymous part.
    #[track_caller]
    pub fn phase<R>(&self, name: &str, most_anon: u64, f: impl FnOnce() -> R) -> R {
        self.shared.anon.store(0, Relaxed);
        self.shared.file.store(0, Relaxed);
        let r = f();
        self.shared.sample();
        let (anon, file) = (self.shared.anon.load(Relaxed), self.shared.file.load(Relaxed));
        println!("{name}: RssAnon {} MiB of {}, files {} MiB", anon / MIB, most_anon / MIB, file / MIB);
        assert!(anon <= most_anon, "{name}: {anon} bytes of anonymous memory, {most_anon} are promised");
        r
    }

    /// The most that mapped files took in the last phase.
    pub fn files(&self) -> u64 {
        self.shared.file.load(Relaxed)
    }
}

impl Shared {
    fn sample(&self) {
        let (anon, file) = resident();
        self.anon.fetch_max(anon, Relaxed);
        self.file.fetch_max(file, Relaxed);
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.shared.done.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}
