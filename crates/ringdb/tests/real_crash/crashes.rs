//! Power cuts on real file systems.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use ringdb::{Db, Durability};

use crate::mounts::{Host, Mount, make, run};
use crate::support::{self, Rng};
use crate::writers::{Floor, check, options};
use crate::{FAILED, Writer};

type Case = (&'static str, fn(u64) -> Result<String, String>);

pub const CASES: &[Case] = &[
    ("snapshots::ext4", |seed| snapshots("ext4", seed)),
    ("snapshots::xfs", |seed| snapshots("xfs", seed)),
    ("snapshots::btrfs", |seed| snapshots("btrfs", seed)),
    ("shutdowns::ext4", |seed| shutdowns("ext4", seed)),
    ("shutdowns::xfs", |seed| shutdowns("xfs", seed)),
];

const DURABILITIES: [Durability; 2] = [Durability::Process, Durability::Sync];

pub fn rounds() -> u64 {
    support::env_number("RINGDB_REAL_ROUNDS", 1)
}

/// The engines for a case that takes long: all of them in a campaign, else one that the seed chooses.
pub fn engines(seed: u64) -> Vec<&'static str> {
    let all = support::engines();
    if rounds() > 1 { all } else { vec![*Rng(seed).pick(&all[..])] }
}

/// Opens what a crash left: all that was promised is there, it is undamaged, and it can be written.
pub fn survives(what: &str, dir: &Path, io: &str, durability: Durability, floor: &Floor) -> u64 {
    let db = Db::open(dir, options(io, durability)).unwrap_or_else(|e| panic!("{what}: open: {e}"));
    let found = check(&db, floor);
    let report = db.verify().unwrap();
    assert!(report.is_ok(), "{what}: {:?}", report.problems);
    db.put("after", "the crash").unwrap();
    db.close().unwrap();
    let db = Db::open(dir, options(io, durability)).unwrap_or_else(|e| panic!("{what}: second open: {e}"));
    assert_eq!(check(&db, floor), found, "{what}: another state at the second open");
    assert_eq!(db.get("after").unwrap().as_deref(), Some(&b"the crash"[..]));
    found.iter().sum()
}

fn snapshots(kind: &str, seed: u64) -> Result<String, String> {
    let host = Host::new(4096)?;
    let mut rng = Rng(seed);
    let (mut states, mut batches) = (0, 0);
    for round in 0..rounds() {
        for durability in DURABILITIES {
            let engines = support::engines();
            let io = *rng.pick(&engines);
            let what = format!("round {round}, {kind}, {io}, {durability:?}");
            let image = host.images().join("disk");
            make(kind, &image, 320)?;
            let mount = Mount::new(kind, &image, &host.point("disk"), "")?;
            let store = mount.dir.join("store");
            let mut writer = Writer::start(&[], io, durability, &store);
            assert!(writer.acks.first(Duration::from_secs(60)), "{what}: no batch was acknowledged");
            let mut taken = Vec::new();
            for n in 0..4 {
                std::thread::sleep(Duration::from_millis(rng.below(200)));
                // What was acknowledged before the copy began must be in it.
                let (_, durable) = writer.acks.now();
                let copy = host.images().join(format!("copy{n}"));
                host.freeze(&image, &copy)?;
                taken.push((copy, durable));
            }
            if let Some(status) = writer.process.try_wait().unwrap() {
                panic!("{what}: the writer ended by itself: {status}");
            }
            writer.kill();
            // Two file systems of the same identity cannot be mounted at once.
            drop(mount);
            for (copy, durable) in taken {
                let at = Mount::new(kind, &copy, &host.point("copy"), "")?;
                // The first moment may have been before the store was: its directory need not be there.
                if at.dir.join("store").is_dir() || durable.iter().any(|&n| n > 0) {
                    batches += survives(&what, &at.dir.join("store"), io, durability, &durable);
                    states += 1;
                }
                drop(at);
                let _ = std::fs::remove_file(copy);
            }
            let _ = std::fs::remove_file(image);
        }
    }
    assert!(states > 0 && batches > 0, "{states} states with {batches} batches");
    Ok(format!("{states} states after a power cut, {batches} batches in them"))
}

fn shutdowns(kind: &str, seed: u64) -> Result<String, String> {
    let host = Host::new(2048)?;
    let mut rng = Rng(seed ^ 1);
    let mut said = Vec::new();
    for round in 0..rounds() {
        for durability in DURABILITIES {
            let engines = support::engines();
            let io = *rng.pick(&engines);
            let what = format!("round {round}, {kind}, {io}, {durability:?}");
            let image = host.images().join("disk");
            make(kind, &image, 320)?;
            let mount = Mount::new(kind, &image, &host.point("disk"), "")?;
            let store = mount.dir.join("store");
            let mut writer = Writer::start(&[], io, durability, &store);
            assert!(writer.acks.first(Duration::from_secs(60)), "{what}: no batch was acknowledged");
            std::thread::sleep(Duration::from_millis(rng.below(300)));
            run(Command::new("xfs_io").args(["-x", "-c", "shutdown"]).arg(&mount.dir))?;
            let (status, words) = writer.ended(Duration::from_secs(60));
            // A store that maps its log may be told by a signal; nothing else but an error is in order.
            let by_signal = durability == Durability::Process && status.signal() == Some(7);
            assert!(
                status.code() == Some(i32::from(FAILED)) || by_signal,
                "{what}: the writer ended with {status}: {words}"
            );
            said.push(if by_signal { "SIGBUS".to_string() } else { words.trim().to_string() });
            writer.kill();
            let mut floor = Floor::default();
            floor.copy_from_slice(&writer.acks.now().1);
            drop(mount);
            let mount = Mount::new(kind, &image, &host.point("disk"), "")?;
            survives(&what, &store, io, durability, &floor);
            drop(mount);
            let _ = std::fs::remove_file(image);
        }
    }
    Ok(format!("the writers said: {said:?}"))
}
