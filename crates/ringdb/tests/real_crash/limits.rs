//! No room, no right to write, no descriptors, no memory.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use ringdb::{Db, Durability, ErrorKind};

use crate::crashes::{engines, survives};
use crate::mounts::{Host, Mount, make, run};
use crate::support;
use crate::writers::{check, options};
use crate::{FAILED, Writer};

type Case = (&'static str, fn(u64) -> Result<String, String>);

pub const CASES: &[Case] = &[
    ("full::ext4", |seed| full("ext4", 96, seed, false)),
    ("full::xfs", |seed| full("xfs", 320, seed ^ 1, false)),
    ("full::btrfs", |seed| full("btrfs", 160, seed ^ 2, false)),
    ("full_copied::xfs", |seed| full("xfs", 320, seed ^ 3, true)),
    ("full_copied::btrfs", |seed| full("btrfs", 160, seed ^ 4, true)),
    ("read_only", |_| read_only()),
    ("descriptors", |_| descriptors()),
    ("memory", memory),
];

/// A store on a disk that another program fills while the store is in use: the writer is told that there is no room,
/// everything acknowledged can be read and is there when room was made. `copied`: after a copy of the store's
/// files that shares their bytes, so that rewriting them needs room.
fn full(kind: &str, megabytes: u64, seed: u64, copied: bool) -> Result<String, String> {
    let host = Host::new(1024)?;
    let image = host.images().join("disk");
    let mut said = Vec::new();
    for durability in [Durability::Process, Durability::Sync] {
        for io in engines(seed) {
            let what = format!("{kind}, {io}, {durability:?}, copied: {copied}");
            make(kind, &image, megabytes)?;
            let mount = Mount::new(kind, &image, &host.point("disk"), "")?;
            let filler = mount.dir.join("filler");
            let store = mount.dir.join("store");
            let mut writer = Writer::start(&[], io, durability, &store);
            assert!(writer.acks.first(Duration::from_secs(60)), "{what}: no batch was acknowledged");
            if copied {
                std::fs::create_dir(mount.dir.join("copy")).map_err(|e| e.to_string())?;
                // Tables go and segments are renamed meanwhile: what is there is copied.
                let mut copied = 0;
                for _ in 0..100 {
                    for from in std::fs::read_dir(&store).map_err(|e| e.to_string())?.flatten() {
                        let to = mount.dir.join("copy").join(from.file_name());
                        let mut cp = Command::new("cp");
                        let cp = cp.arg("--reflink=always").arg(from.path()).arg(to).output();
                        let is_log = from.path().extension().is_some_and(|e| e == "log");
                        copied += u32::from(is_log && cp.is_ok_and(|o| o.status.success()));
                    }
                    if copied > 0 {
                        break;
                    }
                }
                assert!(copied > 0, "{what}: no segment could be copied");
            }
            // Clean pages need room to be written again, so the writer meets the full disk with none that is dirty.
            let pid = writer.process.id().to_string();
            run(Command::new("kill").args(["-STOP", &pid]))?;
            let filled = fill(&mount.dir, &filler);
            run(Command::new("kill").args(["-CONT", &pid]))?;
            filled?;
            let (status, words) = writer.ended(Duration::from_secs(100));
            assert_eq!(
                status.code(),
                Some(i32::from(FAILED)),
                "{what}: the writer ended with {status}: {words}"
            );
            assert!(
                words.contains("No space") || words.contains("no space") || words.contains("ENOSPC"),
                "{what}: {words}"
            );
            let floor = writer.acks.now().0;
            // As it is now, it can be read without writing a byte.
            let db = Db::open_read_only(&store, options(io, durability))
                .unwrap_or_else(|e| panic!("{what}: read-only: {e}"));
            check(&db, &floor);
            drop(db);
            std::fs::remove_file(&filler).unwrap();
            survives(&what, &store, io, durability, &floor);
            said.push(words.trim().to_string());
        }
    }
    said.dedup();
    Ok(format!("{} stores filled; the first said: {}", said.len(), said[0]))
}

/// Takes all room that there is, when everything that waited for room has had it.
fn fill(mount: &Path, path: &Path) -> Result<(), String> {
    use std::io::Write;
    run(Command::new("sync").arg("-f").arg(mount))?;
    let mut f = std::fs::File::create(path).map_err(|e| e.to_string())?;
    // What was reserved for one round and not needed is there for the next.
    for _ in 0..4 {
        for block in [vec![0x5au8; 1 << 20], vec![0x5au8; 4096]] {
            while f.write_all(&block).is_ok() {}
        }
        let _ = f.sync_data();
        let _ = run(Command::new("sync").arg("-f").arg(mount));
    }
    Ok(())
}

fn read_only() -> Result<String, String> {
    let host = Host::new(1024)?;
    let image = host.images().join("disk");
    make("ext4", &image, 64)?;
    let mount = Mount::new("ext4", &image, &host.point("disk"), "")?;
    let store = mount.dir.join("store");
    for io in support::engines() {
        let o = options(io, Durability::Process);
        let db = Db::open(&store, o.clone()).unwrap();
        db.put("k", io).unwrap();
        db.close().unwrap();
        mount.remount("ro")?;
        let e = Db::open(&store, o.clone()).map(|_| ()).unwrap_err();
        assert!(
            e.to_string().contains("Read-only file system") || e.to_string().contains("read-only"),
            "{e}"
        );
        assert_ne!(e.kind(), ErrorKind::Repair, "nothing is damaged: {e}");
        let db = Db::open_read_only(&store, o).unwrap();
        assert_eq!(db.get("k").unwrap().as_deref(), Some(io.as_bytes()));
        assert_eq!(db.put("k", "v").unwrap_err().kind(), ErrorKind::FixCall);
        drop(db);
        mount.remount("rw")?;
    }
    Ok("every engine".into())
}

/// Too few descriptors: an error that says so, or enough, and never a store that is taken for damaged.
fn descriptors() -> Result<String, String> {
    let mut errors = 0;
    for io in support::engines() {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).map_err(|e| e.to_string())?;
        let store = dir.path().join("store");
        // Something to open: many files.
        let mut writer = Writer::start(&[], io, Durability::Process, &store);
        assert!(writer.acks.first(Duration::from_secs(60)));
        std::thread::sleep(Duration::from_millis(700));
        writer.kill();
        let floor = writer.acks.now().0;
        for limit in [8, 12, 16, 20, 24, 32] {
            let limit = format!("--nofile={limit}");
            let mut writer = Writer::start(&["prlimit", &limit], io, Durability::Process, &store);
            writer.acks.first(Duration::from_millis(500));
            if let Some(status) = writer.process.try_wait().unwrap() {
                let (_, words) = writer.ended(Duration::from_secs(1));
                assert_eq!(status.code(), Some(i32::from(FAILED)), "{io}, {limit}: {status}: {words}");
                assert!(
                    words.contains("Too many open files") && !words.starts_with("Repair"),
                    "{io}, {limit}: {words}"
                );
                errors += 1;
            }
            writer.kill();
        }
        survives(&format!("few descriptors, {io}"), &store, io, Durability::Process, &floor);
    }
    assert!(errors > 0, "no limit was low enough");
    Ok(format!("{errors} runs ended for want of descriptors"))
}

/// A memory group that holds the store's budget and little more. If the kernel kills the process, that is a crash like
/// any other.
fn memory(seed: u64) -> Result<String, String> {
    let group = Group::new(48 << 20)?;
    let enter = format!("echo $$ > {} && exec \"$0\"", group.0.join("cgroup.procs").display());
    let mut said = Vec::new();
    for io in engines(seed) {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).map_err(|e| e.to_string())?;
        let store = dir.path().join("store");
        let mut floor = Default::default();
        for _ in 0..2 {
            let mut writer = Writer::start(&["sh", "-c", &enter], io, Durability::Process, &store);
            assert!(writer.acks.first(Duration::from_secs(60)), "{io}: nothing was acknowledged");
            std::thread::sleep(Duration::from_millis(1500));
            let ended = writer.process.try_wait().unwrap();
            said.push(ended.map_or("alive".into(), |s| s.to_string()));
            writer.kill();
            floor = writer.acks.now().0;
        }
        survives(&format!("little memory, {io}"), &store, io, Durability::Process, &floor);
    }
    Ok(format!("after 1.5 s each: {}", said.join(", ")))
}

struct Group(PathBuf);

impl Group {
    /// A group of the memory controller, version 1 or 2.
    fn new(bytes: u64) -> Result<Group, String> {
        let name = format!("ringdb-test-{}", std::process::id());
        let v1 = Path::new("/sys/fs/cgroup/memory");
        let (at, file) = if v1.is_dir() {
            (v1.join(name), "memory.limit_in_bytes")
        } else {
            (Path::new("/sys/fs/cgroup").join(name), "memory.max")
        };
        std::fs::create_dir(&at).map_err(|e| format!("{}: {e}", at.display()))?;
        let group = Group(at);
        std::fs::write(group.0.join(file), bytes.to_string()).map_err(|e| format!("{file}: {e}"))?;
        Ok(group)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for _ in 0..100 {
            if std::fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
