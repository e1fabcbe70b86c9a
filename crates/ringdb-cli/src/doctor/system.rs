//! What the kernel says of itself, of this process's limits, and of the device that a directory is on.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::process::{Resource, getrlimit};
use serde::Serialize;

/// The machine, as far as I/O is concerned. `None`: the kernel does not say.
#[derive(Clone, Debug, Default, Serialize)]
pub struct System {
    /// The kernel's release.
    pub kernel: String,
    /// Cores that this process may use.
    pub cores: usize,
    /// Bytes of memory that are available.
    pub memory_available_bytes: Option<u64>,
    /// Whether a seccomp filter is on this process.
    pub seccomp_filter: bool,
    /// kernel.io_uring_disabled: 0 allowed, 1 for the privileged or a group only, 2 forbidden.
    pub io_uring_disabled: Option<u32>,
    /// Bytes that may be locked (RLIMIT_MEMLOCK); absent for no limit.
    pub memlock_bytes: Option<u64>,
    /// Whether CAP_IPC_LOCK lifts that limit.
    pub ipc_lock: bool,
    /// Transparent huge pages: always, madvise or never.
    pub huge_pages: Option<String>,
    /// Type of the file system.
    pub file_system: Option<String>,
    /// Where it is mounted.
    pub mount_point: Option<String>,
    /// The block device below, if there is one.
    pub device: Option<Device>,
}

/// A block device.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Device {
    /// Its name.
    pub name: String,
    /// Whether it has turning parts.
    pub rotational: Option<bool>,
    /// Requests that its queue holds.
    pub nr_requests: Option<u32>,
    /// Queues of the hardware.
    pub hardware_queues: Option<usize>,
    /// The scheduler in use.
    pub scheduler: Option<String>,
    /// `write back`: a flush is needed for durability; `write through`: not.
    pub write_cache: Option<String>,
    /// Whether single writes can pass the write cache (FUA).
    pub fua: Option<bool>,
    /// Whether it has polling queues.
    pub poll_queues: Option<bool>,
    /// Bytes of a logical block: what direct transfers must be multiples of.
    pub logical_block_bytes: Option<u32>,
    /// Bytes of a physical block.
    pub physical_block_bytes: Option<u32>,
}

fn word(path: impl AsRef<Path>) -> Option<String> {
    let s = std::fs::read_to_string(path).ok()?;
    Some(s.trim().to_string()).filter(|s| !s.is_empty())
}

fn number<T: std::str::FromStr>(path: impl AsRef<Path>) -> Option<T> {
    word(path)?.parse().ok()
}

/// The word in brackets of a list of choices.
fn chosen(s: &str) -> Option<String> {
    Some(s.split_once('[')?.1.split_once(']')?.0.to_string())
}

/// A value of a file of `NAME: VALUE` lines.
fn field(text: &str, name: &str) -> Option<String> {
    text.lines().find_map(|l| Some(l.strip_prefix(name)?.strip_prefix(':')?.trim().to_string()))
}

/// Looks at the machine and at what `dir` is on.
pub fn look(dir: &Path) -> System {
    let status = word("/proc/self/status").unwrap_or_default();
    let capabilities = field(&status, "CapEff").and_then(|s| u64::from_str_radix(&s, 16).ok());
    let (mount_point, file_system, source) = mount(dir);
    System {
        kernel: word("/proc/sys/kernel/osrelease").unwrap_or_default(),
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        memory_available_bytes: memory(),
        seccomp_filter: field(&status, "Seccomp").is_some_and(|s| s == "2"),
        io_uring_disabled: number("/proc/sys/kernel/io_uring_disabled"),
        memlock_bytes: getrlimit(Resource::Memlock).current,
        ipc_lock: capabilities.is_some_and(|c| c & (1 << 14) != 0),
        huge_pages: word("/sys/kernel/mm/transparent_hugepage/enabled").and_then(|s| chosen(&s)),
        file_system,
        mount_point,
        device: queue_dir(dir, source.as_deref()).map(|d| device(&d)),
    }
}

/// What is available, or the limit of this control group if that is less.
fn memory() -> Option<u64> {
    let info = word("/proc/meminfo")?;
    let kib: u64 = field(&info, "MemAvailable")?.split(' ').next()?.parse().ok()?;
    let limit = number("/sys/fs/cgroup/memory.max").unwrap_or(u64::MAX);
    Some((kib << 10).min(limit))
}

/// Mount point, type and source of the file system that holds `dir`.
fn mount(dir: &Path) -> (Option<String>, Option<String>, Option<String>) {
    let find = || {
        let dev = std::fs::metadata(dir).ok()?.dev();
        let want = format!("{}:{}", rustix::fs::major(dev), rustix::fs::minor(dev));
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
        let real = dir.canonicalize().ok()?;
        // Of several mounts of one file system the one that the path goes through.
        let line = mounts
            .lines()
            .filter(|l| l.split(' ').nth(2) == Some(&want))
            .max_by_key(|l| l.split(' ').nth(4).filter(|p| real.starts_with(p)).map_or(0, str::len))?;
        let point = line.split(' ').nth(4)?.to_string();
        let mut rest = line.split(" - ").nth(1)?.split(' ');
        Some((point, rest.next()?.to_string(), rest.next().map(str::to_string)))
    };
    match find() {
        Some((point, kind, source)) => (Some(point), Some(kind), source),
        None => (None, None, None),
    }
}

/// The directory of sysfs that describes the disk below `dir`: a partition has none of its own.
fn queue_dir(dir: &Path, source: Option<&str>) -> Option<PathBuf> {
    let by_number = |dev: u64| {
        let link = format!("/sys/dev/block/{}:{}", rustix::fs::major(dev), rustix::fs::minor(dev));
        let disk = std::fs::canonicalize(link).ok()?;
        [Some(disk.as_path()), disk.parent()]
            .into_iter()
            .flatten()
            .find(|d| d.join("queue").is_dir())
            .map(Path::to_path_buf)
    };
    let own = std::fs::metadata(dir).ok().and_then(|m| by_number(m.dev()));
    own.or_else(|| by_number(std::fs::metadata(source?).ok()?.rdev()))
}

fn device(disk: &Path) -> Device {
    let q = disk.join("queue");
    let flag = |name: &str| number::<u32>(q.join(name)).map(|n| n != 0);
    Device {
        name: disk.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default(),
        rotational: flag("rotational"),
        nr_requests: number(q.join("nr_requests")),
        hardware_queues: std::fs::read_dir(disk.join("mq")).ok().map(Iterator::count),
        scheduler: word(q.join("scheduler")).map(|s| chosen(&s).unwrap_or(s)),
        write_cache: word(q.join("write_cache")),
        fua: flag("fua"),
        poll_queues: flag("io_poll"),
        logical_block_bytes: number(q.join("logical_block_size")),
        physical_block_bytes: number(q.join("physical_block_size")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_is_described() {
        let s = look(Path::new("/proc/self"));
        assert!(s.cores >= 1 && s.kernel.contains('.'));
        assert_eq!(s.file_system.as_deref(), Some("proc"));
        assert!(s.device.is_none(), "a file system of the kernel has no device");
    }

    #[test]
    fn choices_and_fields() {
        assert_eq!(chosen("always [madvise] never").as_deref(), Some("madvise"));
        assert_eq!(chosen("none"), None);
        assert_eq!(field("A:\t1\nSeccomp:\t2\nSeccomp_filters:\t1\n", "Seccomp").as_deref(), Some("2"));
    }
}
