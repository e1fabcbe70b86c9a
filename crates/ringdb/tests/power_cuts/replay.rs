//! The disk at many moments of its log, each with some parts of what was not flushed: the file system recovers, the
//! store is opened, checked against what was acknowledged by then, and verified.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Instant, SystemTime};

use ringdb::{Db, Durability};
use serde_json::json;

use crate::disk_log::{Entry, Kept, parse};
use crate::line::Record;
use crate::model::{self, Last, check, options};
use crate::mounts::{Host, Mount};
use crate::support::Rng;

/// Losses that are told one by one.
const TOLD: usize = 20;

struct Replay {
    host: Host,
    kind: String,
    durability: Durability,
    /// What a torn write is torn into.
    block: usize,
    rng: Rng,
    seen: Seen,
    /// Losses, by what is said of them.
    losses: u64,
    told: Vec<String>,
}

/// What the disks showed, to know that the moments were those that matter.
#[derive(Default)]
struct Seen {
    cases: u64,
    kept: BTreeMap<String, u64>,
    manifests: BTreeSet<String>,
    segments: BTreeSet<String>,
    /// The name that a segment's file had, by its number and the time at which it was made.
    names: BTreeMap<(u64, SystemTime), String>,
    recycled: u64,
    stores: u64,
    batches: u64,
}

pub fn main(args: &[&str]) -> Result<(), String> {
    let [out, log, kind, offset, how, points, seed, rest @ ..] = args else {
        return Err(format!("replay: {} arguments", args.len()));
    };
    let number = |s: &str| s.parse::<u64>().map_err(|e| format!("{s}: {e}"));
    let until_loss = match rest {
        [] => false,
        ["until-loss"] => true,
        _ => return Err(format!("{rest:?}")),
    };
    let bytes = std::fs::read(log).map_err(|e| format!("{log}: {e}"))?;
    let entries = parse(&bytes, number(offset)?)?;
    let mut replay = Replay {
        host: Host::new(4096)?,
        kind: kind.to_string(),
        durability: model::durability(how)?,
        // The superblock of btrfs is one block of 4 KiB, which it takes for atomic.
        block: if *kind == "btrfs" { 4096 } else { 512 },
        rng: Rng(number(seed)?),
        seen: Seen::default(),
        losses: 0,
        told: vec![],
    };
    let said = replay.run(&entries, number(offset)?, number(points)?, until_loss)?;
    std::fs::write(out, said.to_string()).map_err(|e| format!("{out}: {e}"))
}

/// The moments between the first record and the last: after each request, with the records that follow it at once.
fn moments(entries: &[Entry<'_>]) -> Result<Vec<usize>, String> {
    let is = |e: &Entry<'_>| matches!(e, Entry::Records(_));
    let begin = entries.iter().position(|e| matches!(e, Entry::Records(r) if r.contains(&Record::Begin)));
    let begin = begin.ok_or("the log has no beginning")?;
    let end = entries.iter().rposition(is).unwrap_or(begin);
    Ok((begin + 1..end).filter(|i| !is(&entries[i + 1])).collect())
}

impl Replay {
    fn run(
        &mut self,
        entries: &[Entry<'_>],
        bytes: u64,
        points: u64,
        until_loss: bool,
    ) -> Result<serde_json::Value, String> {
        let begun = Instant::now();
        let all = moments(entries)?;
        let points = (points as usize).min(all.len());
        let base = self.host.images().join("base");
        let disk = File::create(&base).map_err(|e| format!("{}: {e}", base.display()))?;
        disk.set_len(bytes).map_err(|e| e.to_string())?;
        let (mut floor, mut pending, mut acks, mut next) = (Last::default(), Vec::new(), 0u64, 0);
        let (mut flushed, mut compacted, mut tried) = (0, 0, 0);
        for n in 0..points {
            let point = all[n * all.len() / points];
            for entry in &entries[next..=point] {
                match entry {
                    Entry::Write(at, bytes) => pending.push((*at, *bytes)),
                    Entry::Flush => put(&disk, &std::mem::take(&mut pending))?,
                    Entry::Records(records) => records.iter().for_each(|r| match *r {
                        Record::Ack(w, n) => {
                            acks += 1;
                            floor[w as usize] = floor[w as usize].max(n);
                        }
                        Record::Flushed(_) => flushed += 1,
                        Record::Compacted(_) => compacted += 1,
                        Record::Begin => {}
                    }),
                }
            }
            next = point + 1;
            tried += 1;
            for kept in Kept::tried(n, pending.len()) {
                self.case(&base, &pending, kept, &floor, point)?;
            }
            if n % 100 == 99 {
                eprintln!("@@ {tried} points, {} cases, {} losses", self.seen.cases, self.losses);
            }
            if until_loss && self.losses > 0 {
                break;
            }
        }
        let Seen { cases, kept, manifests, segments, recycled, stores, batches, .. } = &self.seen;
        Ok(json!({
            "points": tried, "cases": cases, "losses": self.losses, "told": self.told, "kept": kept,
            "moments": all.len(), "requests": entries.len(), "acknowledgements": acks, "flushes": flushed,
            "compactions": compacted, "manifests": manifests.len(), "segments": segments.len(),
            "recycled": recycled, "stores": stores, "batches": batches, "acknowledged": floor,
            "seconds": begun.elapsed().as_secs(),
        }))
    }

    /// One disk after a power cut.
    fn case(
        &mut self,
        base: &Path,
        pending: &[(u64, &[u8])],
        kept: Kept,
        floor: &Last,
        point: usize,
    ) -> Result<(), String> {
        let copy = self.host.images().join("cut");
        self.host.freeze(base, &copy)?;
        let disk = File::options().write(true).open(&copy).map_err(|e| format!("{}: {e}", copy.display()))?;
        put(&disk, &kept.of(pending, self.block, &mut self.rng))?;
        drop(disk);
        self.seen.cases += 1;
        *self.seen.kept.entry(format!("{kept:?}")).or_default() += 1;
        let outcome = catch_unwind(AssertUnwindSafe(|| self.recovers(&copy, floor)));
        let outcome = outcome.unwrap_or_else(|_| Err("a panic".into()));
        if self.kind == "btrfs" {
            // It remembers the file system on a device that is gone, and refuses an older state of it.
            let _ = Command::new("btrfs").args(["device", "scan", "--forget"]).output();
        }
        std::fs::remove_file(&copy).map_err(|e| format!("{}: {e}", copy.display()))?;
        if let Err(why) = outcome {
            self.losses += 1;
            if self.told.len() < TOLD {
                let unflushed = pending.len();
                self.told.push(format!("after request {point}, {kept:?} of {unflushed}: {why}"));
            }
        }
        Ok(())
    }

    fn recovers(&mut self, image: &Path, floor: &Last) -> Result<(), String> {
        let mount = Mount::new(&self.kind, image, &self.host.point("cut"), "")
            .map_err(|e| format!("the file system: {e} {}", kernel_said()))?;
        let dir = mount.dir.join("store");
        if !dir.is_dir() {
            return if *floor == Last::default() { Ok(()) } else { Err("the store is missing".into()) };
        }
        self.look(&dir)?;
        let db = Db::open(&dir, options("posix", self.durability)).map_err(|e| format!("open: {e}"))?;
        let found = check(&db, floor)?;
        let report = db.verify().map_err(|e| format!("verify: {e}"))?;
        if !report.is_ok() {
            return Err(format!("verify: {:?}", report.problems));
        }
        db.close().map_err(|e| format!("close: {e}"))?;
        self.seen.stores += 1;
        self.seen.batches += found.iter().sum::<u64>();
        Ok(())
    }

    /// Which files there are.
    fn look(&mut self, dir: &Path) -> Result<(), String> {
        for entry in std::fs::read_dir(dir).map_err(|e| e.to_string())? {
            let entry = entry.map_err(|e| e.to_string())?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with("MANIFEST-") {
                self.seen.manifests.insert(name);
            } else if PathBuf::from(&name).extension().is_some_and(|e| e == "log") {
                let file = entry.metadata().map_err(|e| e.to_string())?;
                let file = (file.ino(), file.created().map_err(|e| format!("created: {e}"))?);
                if self.seen.names.insert(file, name.clone()).is_some_and(|before| before != name) {
                    self.seen.recycled += 1;
                }
                self.seen.segments.insert(name);
            }
        }
        Ok(())
    }
}

/// The kernel's last lines, which say why a file system cannot be mounted.
fn kernel_said() -> String {
    let said = Command::new("dmesg").output().map(|o| o.stdout).unwrap_or_default();
    let said = String::from_utf8_lossy(&said);
    let lines: Vec<&str> = said.lines().collect();
    lines[lines.len().saturating_sub(6)..].join("; ")
}

fn put(disk: &File, pieces: &[(u64, &[u8])]) -> Result<(), String> {
    pieces
        .iter()
        .try_for_each(|(at, bytes)| disk.write_all_at(bytes, *at))
        .map_err(|e| format!("a disk: {e}"))
}
