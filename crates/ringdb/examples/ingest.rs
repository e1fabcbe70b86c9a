//! How fast sorted pairs are ingested, beside puts that are not logged: the same pairs into new stores, by turns. Both
//! times end when everything is durable; the second of puts when compactions have caught up too.
//!
//! `cargo run --release -p ringdb --example ingest -- DIRECTORY [PAIRS]`

use std::path::Path;
use std::time::Instant;

use ringdb::{Db, Durability, Options};

const VALUE: [u8; 100] = [7; 100];

fn open(dir: &Path) -> ringdb::Result<Db> {
    Db::open(dir, Options::default().with_durability(Durability::None))
}

fn puts(dir: &Path, pairs: u64) -> ringdb::Result<(f64, f64)> {
    let db = open(dir)?;
    let start = Instant::now();
    for i in 0..pairs {
        db.put(i.to_be_bytes(), VALUE)?;
    }
    db.flush()?;
    let flushed = start.elapsed().as_secs_f64();
    db.wait_idle()?;
    Ok((flushed, start.elapsed().as_secs_f64()))
}

fn ingest(dir: &Path, pairs: u64) -> ringdb::Result<f64> {
    let db = open(dir)?;
    let start = Instant::now();
    db.ingest((0..pairs).map(|i| (i.to_be_bytes(), VALUE)))?;
    let took = start.elapsed().as_secs_f64();
    assert_eq!(db.get((pairs - 1).to_be_bytes())?.as_deref(), Some(&VALUE[..]));
    Ok(took)
}

fn main() -> ringdb::Result<()> {
    let mut args = std::env::args().skip(1);
    let dir = args.next().expect("a directory on the device to be measured");
    let pairs: u64 = args.next().map_or(3_000_000, |n| n.parse().expect("a number of pairs"));
    for turn in 0..5 {
        let new = |what: &str| Path::new(&dir).join(format!("{what}{turn}"));
        let first = |ingest_first: bool| ingest_first == (turn % 2 == 0);
        let mut ingested = 0.0;
        if first(true) {
            ingested = ingest(&new("ingest"), pairs)?;
        }
        let (flushed, idle) = puts(&new("puts"), pairs)?;
        if first(false) {
            ingested = ingest(&new("ingest"), pairs)?;
        }
        println!(
            "ingest {ingested:.2} s, puts {flushed:.2} s ({:.2} times), compacted {idle:.2} s ({:.2} times)",
            flushed / ingested,
            idle / ingested
        );
        for what in ["ingest", "puts"] {
            std::fs::remove_dir_all(new(what)).expect("remove the store");
        }
    }
    Ok(())
}
