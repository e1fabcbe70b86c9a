//! What a cut has left is opened, checked, gone on with, closed, opened and checked again; and cut again meanwhile.

use ringdb::engineswap::sim::Disk;
use ringdb::{Backups, Db, Durability, Error, VerifyOptions, WriteBatch, WriteOptions};

use crate::crash::outcome;
use crate::env::SimEnv;
use crate::history::Shape;
use crate::lab::Lab;
use crate::model::{BACKUPS, Facts, Kept, Script, check, checkpoint_dir, checkpoint_facts};
use crate::run::{STORE, open};
use crate::support::Rng;

/// Where a backup is restored.
const RESTORED: &str = "/srv/restored";

/// A history and its settings.
pub struct Case<'a> {
    pub shape: &'a Shape,
    pub script: &'a Script,
}

/// Writes of the check's own that must and may be there.
#[derive(Clone, Copy, Default)]
struct Tail {
    least: u32,
    most: u32,
}

impl Case<'_> {
    fn open(&self, lab: &Lab, dir: &str, facts: &Facts) -> Result<Db, Error> {
        let env = SimEnv::shared();
        env.set_wall_clock(facts.now);
        open(lab, self.shape, self.script.durability, &env, dir)
    }

    /// Checks what a cut has left, and cuts again up to `depth` times; returns how many cuts were checked.
    pub fn survive(&self, disk: Disk, facts: &Facts, rng: &mut Rng, depth: u32) -> Result<u64, String> {
        self.survive_from(disk, facts, Tail::default(), rng, depth).map(|again| 1 + again)
    }

    fn survive_from(
        &self,
        disk: Disk,
        facts: &Facts,
        tail: Tail,
        rng: &mut Rng,
        depth: u32,
    ) -> Result<u64, String> {
        if depth == 0 || rng.chance(4) {
            match self.shape.backs_up {
                true => self.backups(&disk, facts)?,
                false => self.checkpoints(&disk, facts)?,
            }
        }
        disk.record(depth > 0);
        let lab = Lab::new(disk.clone());
        let db = self.open(&lab, STORE, facts).map_err(|e| format!("the store does not open: {e}"))?;
        let opened = disk.points();
        let kept = check(&db, self.script, facts)?;
        if !(tail.least..=tail.most).contains(&kept.tail) {
            return Err(format!(
                "write {} of the check instead of {} to {}",
                kept.tail, tail.least, tail.most
            ));
        }
        check_tail(&db, kept.tail)?;
        let report = db.verify().map_err(|e| format!("verify: {e}"))?;
        if !report.is_ok() {
            return Err(format!("verify: {:?}", report.problems));
        }
        let mut found = facts.clone();
        found.found(self.script, kept);
        let written = self.go_on(&db, kept.tail)?;
        let synced = disk.points();
        db.close().map_err(|e| format!("close: {e}"))?;
        let db = self.open(&lab, STORE, facts).map_err(|e| format!("the store does not open again: {e}"))?;
        let again = check(&db, self.script, &found).map_err(|e| format!("opened again: {e}"))?;
        if again != (Kept { tail: written, maybe: false, ..kept }) {
            return Err(format!("opened again: {again:?} instead of {kept:?} and {written}"));
        }
        check_tail(&db, written)?;
        drop(db);
        if depth == 0 {
            return Ok(0);
        }
        // Recovery is cut as often as all that follows.
        let among = if rng.chance(2) { opened } else { disk.points() };
        let cut = rng.below(among.max(1) as u64) as usize;
        let Some(point) = disk.point(cut) else { return Ok(0) };
        let outcome = outcome(rng.below(6), rng.next());
        let tail = Tail {
            least: if cut >= synced { written } else { kept.tail },
            most: if cut >= opened { written } else { kept.tail },
        };
        let left = disk.crash_at(&point, outcome).0;
        self.survive_from(left, &found, tail, rng, depth - 1).map(|again| 1 + again).map_err(|e| {
            let (call, path) = (point.call.name(), point.path.display());
            format!("cut again in change {cut} of the recovery ({call} {path}, {outcome:?}): {e}")
        })
    }

    /// Some more writes; the last of them is durable. Returns its number.
    fn go_on(&self, db: &Db, tail: u32) -> Result<u32, String> {
        for (i, durability) in [(1, Durability::Process), (2, Durability::Sync)] {
            let mut batch = WriteBatch::new();
            batch.put("t", (tail + i).to_le_bytes());
            if (tail + i).is_multiple_of(2) {
                batch.delete("tail");
            } else {
                batch.put("tail", vec![7; 500]);
            }
            db.write(batch, &WriteOptions::default().durability(durability))
                .map_err(|e| format!("a write after the recovery: {e}"))?;
        }
        Ok(tail + 2)
    }

    /// All backups are whole, and the newest holds exactly what was written before it: the last that was acknowledged,
    /// or the one that was under way.
    fn backups(&self, disk: &Disk, facts: &Facts) -> Result<(), String> {
        let made = facts.checkpoints.iter().rposition(|(_, acknowledged, _)| *acknowledged);
        let lab = Lab::new(disk.clone_now());
        let backups = match Backups::open_with_io(BACKUPS, lab.io()) {
            Ok(b) => b,
            Err(_) if made.is_none() => return Ok(()),
            Err(e) => return Err(format!("the backups do not open: {e}")),
        };
        let report =
            backups.verify(&VerifyOptions::default()).map_err(|e| format!("verify of backups: {e}"))?;
        if !report.is_ok() {
            return Err(format!("backups: {:?}", report.problems));
        }
        // One that was not acknowledged may be there, several times if it was tried again.
        let kept = backups.generations().len();
        let settled = facts.checkpoints.last().is_some_and(|(_, acknowledged, _)| *acknowledged);
        if kept == 0 || (settled && kept > 2) {
            return Err(format!("{kept} backups"));
        }
        backups.restore(None, RESTORED, None).map_err(|e| format!("restore: {e}"))?;
        let db =
            self.open(&lab, RESTORED, facts).map_err(|e| format!("a restored store does not open: {e}"))?;
        let mut wrong = Vec::new();
        for (step, _, gone) in &facts.checkpoints[made.unwrap_or(0)..] {
            match check(&db, self.script, &checkpoint_facts(self.script, *step, gone, facts.now)) {
                Ok(_) => return Ok(()),
                Err(e) => wrong.push(format!("not the backup of step {step}: {e}")),
            }
        }
        Err(wrong.join("; "))
    }

    /// The checkpoints that were made hold exactly what was written before them; one that was not finished does too,
    /// or is no store.
    fn checkpoints(&self, disk: &Disk, facts: &Facts) -> Result<(), String> {
        let Some((step, acknowledged, gone)) = facts.checkpoints.last() else { return Ok(()) };
        let expected = checkpoint_facts(self.script, *step, gone, facts.now);
        let dir = checkpoint_dir(*step);
        if !acknowledged && !disk.files().iter().any(|p| p.starts_with(&dir)) {
            return Ok(());
        }
        let disk = Lab::new(disk.clone_now());
        match self.open(&disk, &dir, facts) {
            Ok(db) => {
                let empty = db.get("n").map_err(|e| e.to_string())?.is_none() && expected.durable > 0;
                if !acknowledged && empty {
                    // Nothing of it but the name was there, and opening has made a store.
                    return Ok(());
                }
                check(&db, self.script, &expected)
                    .map_err(|e| format!("the checkpoint of step {step}: {e}"))?;
                let report = db.verify().map_err(|e| format!("verify of a checkpoint: {e}"))?;
                if report.is_ok() { Ok(()) } else { Err(format!("a checkpoint: {:?}", report.problems)) }
            }
            // Unfinished: tables without a CURRENT.
            Err(Error::Corrupt { .. } | Error::NoStore { .. }) if !acknowledged => Ok(()),
            Err(e) => Err(format!("the checkpoint of step {step} does not open: {e}")),
        }
    }
}

fn check_tail(db: &Db, tail: u32) -> Result<(), String> {
    let found = db.get("tail").map_err(|e| format!("get: {e}"))?.is_some();
    let expected = !tail.is_multiple_of(2);
    if found == expected {
        Ok(())
    } else {
        Err(format!("a half batch: write {tail} of the check, tail {found}"))
    }
}
