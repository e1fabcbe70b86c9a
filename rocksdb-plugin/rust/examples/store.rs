//! Writes and reads a database through an engine:
//! `cargo run --example store -- 'io_uring?depth=64' /path/to/db`

use std::error::Error;

use rocksdb::{DB, FlushOptions, Options};

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().collect();
    let [_, uri, path] = &args[..] else { return Err("usage: store URI PATH".into()) };
    let env = engineswap_rocksdb::env(uri)?;
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_use_direct_reads(true);
    options.set_use_direct_io_for_flush_and_compaction(true);
    options.set_env(&env);
    let db = DB::open(&options, path)?;
    let key = |i: u32| format!("key{i:08}");
    for i in 0..10_000 {
        db.put(key(i), format!("value of {i}"))?;
    }
    db.flush_opt(&FlushOptions::default())?;
    for (i, found) in (0..10_000).step_by(100).zip(db.multi_get((0..10_000).step_by(100).map(key))) {
        assert_eq!(found?.as_deref(), Some(format!("value of {i}").as_bytes()));
    }
    let rows = db.iterator(rocksdb::IteratorMode::Start).collect::<Result<Vec<_>, _>>()?;
    println!("{} rows through {uri}", rows.len());
    Ok(())
}
