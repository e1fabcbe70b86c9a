//! The writer in the guest: three threads, each with batches of its own, until each has written so many more. Every
//! other life ends without closing the store.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use ringdb::{Db, Durability, Event, EventListener, WriteOptions};

use crate::line::{Line, Record};
use crate::model::{self, Last, WRITERS, batch, check, last, options};

/// Tells the disk's log of background work.
struct Told {
    line: Arc<Line>,
    flushes: AtomicU64,
    compactions: AtomicU64,
    /// Something has failed that no write need have met.
    trouble: Arc<AtomicBool>,
}

impl EventListener for Told {
    fn event(&self, event: &Event) {
        let record = match event {
            Event::FlushEnded { error: None, .. } => Record::Flushed(self.flushes.fetch_add(1, SeqCst) + 1),
            Event::CompactionEnded { error: None, .. } => {
                Record::Compacted(self.compactions.fetch_add(1, SeqCst) + 1)
            }
            Event::Stopped { .. } | Event::TroubleBegan { .. } | Event::TableDamaged { .. } => {
                eprintln!("{event:?}");
                return self.trouble.store(true, SeqCst);
            }
            _ => return,
        };
        self.line.say(record).expect("a record");
    }
}

pub fn main(args: &[&str]) -> Result<(), String> {
    let [dir, device, offset, io, how, batches, rest @ ..] = args else {
        return Err(format!("write: {} arguments", args.len()));
    };
    seed_mistake(rest)?;
    let number = |s: &str| s.parse::<u64>().map_err(|e| format!("{s}: {e}"));
    let line =
        Arc::new(Line::open(Path::new(device), number(offset)?).map_err(|e| format!("{device}: {e}"))?);
    let durability = model::durability(how)?;
    let dir = Path::new(dir);
    if !dir.exists() {
        line.say(Record::Begin).map_err(|e| e.to_string())?;
    }
    let trouble = Arc::new(AtomicBool::new(false));
    let told = Told {
        line: line.clone(),
        flushes: AtomicU64::new(0),
        compactions: AtomicU64::new(0),
        trouble: trouble.clone(),
    };
    let db = Db::open(dir, options(io, durability).with_listener(told)).map_err(|e| format!("open: {e}"))?;
    let mut begin = Last::default();
    for (w, n) in begin.iter_mut().enumerate() {
        *n = last(&db, w)?.0;
    }
    life(&db, &line, durability, &begin, number(batches)?)?;
    if trouble.load(SeqCst) {
        return Err("background work has failed".into());
    }
    // Half of the lives end as by a kill.
    if (begin[0] / number(batches)?).is_multiple_of(2) {
        std::process::exit(0);
    }
    db.close().map_err(|e| format!("close: {e}"))
}

/// Opens the store after a fault: what was acknowledged, which the device says, is there.
pub fn after(args: &[&str]) -> Result<(), String> {
    let [dir, device, offset, io, how] = args else {
        return Err(format!("check: {} arguments", args.len()));
    };
    let offset = offset.parse::<u64>().map_err(|e| format!("{offset}: {e}"))?;
    let mut floor = Last::default();
    let records = Line::read(Path::new(device), offset).map_err(|e| format!("{device}: {e}"))?;
    for record in &records {
        if let Record::Ack(w, n) = *record {
            floor[w as usize] = floor[w as usize].max(n);
        }
    }
    let db = Db::open(dir, options(io, model::durability(how)?)).map_err(|e| format!("open: {e}"))?;
    let found = check(&db, &floor)?;
    let report = db.verify().map_err(|e| format!("verify: {e}"))?;
    if !report.is_ok() {
        return Err(format!("verify: {:?}", report.problems));
    }
    db.close().map_err(|e| format!("close: {e}"))?;
    println!("{{\"acknowledged\": {floor:?}, \"found\": {found:?}}}");
    Ok(())
}

/// Breaks a rule, if one is named.
fn seed_mistake(names: &[&str]) -> Result<(), String> {
    #[cfg(feature = "mutations")]
    if let [name] = names {
        use ringdb::mutation::{Mutation, set};
        let it = Mutation::ALL.iter().find(|m| m.describe().0 == *name);
        set(Some(*it.ok_or_else(|| format!("no mistake {name}"))?));
        return Ok(());
    }
    match names {
        [] => Ok(()),
        _ => Err(format!("{names:?}: mistakes need the feature `mutations`")),
    }
}

fn life(db: &Db, line: &Line, durability: Durability, begin: &Last, batches: u64) -> Result<(), String> {
    let done: [AtomicU64; WRITERS] = begin.map(AtomicU64::new);
    let seen = || -> Last { std::array::from_fn(|w| done[w].load(SeqCst)) };
    let writer = |w: usize| -> Result<(), String> {
        for n in begin[w] + 1..=begin[w] + batches {
            let say = |record| line.say(record).map_err(|e| format!("a record: {e}"));
            let sync = durability == Durability::Sync || n.is_multiple_of(16);
            let durable = if sync { Durability::Sync } else { Durability::Process };
            let options = WriteOptions::default().durability(durable);
            db.write(batch(w, n, &seen()), &options).map_err(|e| format!("batch {n} of writer {w}: {e}"))?;
            done[w].store(n, SeqCst);
            if sync {
                say(Record::Ack(w as u64, n))?;
            }
            if n % 50 == 25 {
                let before = seen();
                db.sync().map_err(|e| format!("sync: {e}"))?;
                for (w, n) in before.into_iter().enumerate() {
                    say(Record::Ack(w as u64, n))?;
                }
            }
        }
        Ok(())
    };
    let writer = &writer;
    std::thread::scope(|s| {
        let all: Vec<_> = (0..WRITERS).map(|w| s.spawn(move || writer(w))).collect();
        all.into_iter().try_for_each(|t| t.join().expect("a writer panicked"))
    })
}
