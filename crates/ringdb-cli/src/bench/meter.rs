//! What a run cost: bytes and requests at the device, reads in flight, CPU time. From the kernel's own books:
//! `/proc/self/io`, the block device's `stat`, the process's CPU clock.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// Reads the books of this process and of the device that a directory is on.
#[derive(Debug)]
pub struct Meter {
    device: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Books {
    process_read: u64,
    process_written: u64,
    device_reads: u64,
    device_writes: u64,
    device_ms: u64,
}

/// The start of a measurement.
pub struct Mark {
    at: Instant,
    cpu: Duration,
    books: Books,
}

/// What happened between two marks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cost {
    /// Bytes that this process caused to be read from the device.
    pub read_bytes: u64,
    /// Bytes that this process caused to be written to the device.
    pub write_bytes: u64,
    /// Read requests that the device served, for any process; `None` where the device is not known.
    pub device_reads: Option<u64>,
    /// Write requests that the device served.
    pub device_writes: Option<u64>,
    /// Requests in the device's queue on average (for any process): time in queue by wall time.
    pub device_in_flight: Option<f64>,
    /// CPU seconds of this process.
    pub cpu_s: f64,
}

impl Meter {
    /// For stores in `dir`, which exists.
    pub fn new(dir: &Path) -> Meter {
        Meter { device: device_stat(dir) }
    }

    /// A mark for now.
    pub fn mark(&self) -> Mark {
        Mark { books: self.books(), cpu: cpu_time(), at: Instant::now() }
    }

    /// What happened since a mark.
    pub fn since(&self, mark: &Mark) -> Cost {
        let wall = mark.at.elapsed();
        let cpu = cpu_time().saturating_sub(mark.cpu);
        let now = self.books();
        let known = |n: u64| self.device.as_ref().map(|_| n);
        let queued_ms = now.device_ms.saturating_sub(mark.books.device_ms);
        Cost {
            read_bytes: now.process_read.saturating_sub(mark.books.process_read),
            write_bytes: now.process_written.saturating_sub(mark.books.process_written),
            device_reads: known(now.device_reads.saturating_sub(mark.books.device_reads)),
            device_writes: known(now.device_writes.saturating_sub(mark.books.device_writes)),
            device_in_flight: known(queued_ms).map(|ms| ms as f64 / 1e3 / wall.as_secs_f64().max(1e-9)),
            cpu_s: cpu.as_secs_f64(),
        }
    }

    fn books(&self) -> Books {
        let mut b = Books::default();
        for line in std::fs::read_to_string("/proc/self/io").unwrap_or_default().lines() {
            match line.split_once(": ") {
                Some(("read_bytes", n)) => b.process_read = n.parse().unwrap_or(0),
                Some(("write_bytes", n)) => b.process_written = n.parse().unwrap_or(0),
                _ => {}
            }
        }
        if let Some(stat) = self.device.as_ref().and_then(|p| std::fs::read_to_string(p).ok()) {
            // reads, merged, sectors, ms; the same for writes; in flight, io ms, queue ms
            // (Documentation/admin-guide/iostats.rst of the kernel).
            let n: Vec<u64> = stat.split_whitespace().map(|w| w.parse().unwrap_or(0)).collect();
            if let [reads, _, _, read_ms, writes, _, _, write_ms, ..] = n[..] {
                b.device_reads = reads;
                b.device_writes = writes;
                b.device_ms = read_ms + write_ms;
            }
        }
        b
    }
}

/// CPU time of this process, the kernel's work for it included.
pub fn cpu_time() -> Duration {
    let t = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(t.tv_sec.try_into().unwrap_or(0), t.tv_nsec.try_into().unwrap_or(0))
}

/// The `stat` file of the block device that holds `dir`: by the directory's device number, or, for file systems
/// without one of their own (btrfs, overlay), by the source in the table of mounts.
fn device_stat(dir: &Path) -> Option<PathBuf> {
    let by_number = |dev: u64| {
        let p = format!("/sys/dev/block/{}:{}/stat", rustix::fs::major(dev), rustix::fs::minor(dev));
        Some(PathBuf::from(p)).filter(|p| p.exists())
    };
    let dev = std::fs::metadata(dir).ok()?.dev();
    by_number(dev).or_else(|| {
        let want = format!("{}:{}", rustix::fs::major(dev), rustix::fs::minor(dev));
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
        let line = mounts.lines().find(|l| l.split(' ').nth(2) == Some(&want))?;
        let source = line.split(" - ").nth(1)?.split(' ').nth(1)?;
        by_number(std::fs::metadata(source).ok()?.rdev())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_counted() {
        let m = Meter::new(Path::new("/"));
        let mark = m.mark();
        let mut x = 0u64;
        while cpu_time() - mark.cpu < Duration::from_millis(20) {
            x = std::hint::black_box(x + 1);
        }
        assert!(m.since(&mark).cpu_s >= 0.02);
    }

    #[test]
    fn an_unknown_device_is_not_made_up() {
        let m = Meter { device: None };
        let c = m.since(&m.mark());
        assert!(c.device_reads.is_none() && c.device_in_flight.is_none());
    }
}
