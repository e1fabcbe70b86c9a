//! A whole store whose files are any bytes with right checksums: it opens or says why not; what opens can be read
//! from both ends, verified, written to, and opened again with the same content.

use std::path::Path;
use std::sync::Arc;

use engineswap::Io;
use ringdb::{Db, Env, ErrorKind, Options, Result, SystemEnv, fuzzing};

use crate::Memory;

type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

fn open(io: &Io, dir: &Path) -> Result<Db> {
    let env: Arc<dyn Env> = SystemEnv::shared();
    let options =
        Options::default().with_cache_bytes(2 << 20).with_memtable_bytes(64 << 10).with_background_threads(1);
    Db::open_with_env(dir, options, io.clone(), env)
}

/// All pairs of all keyspaces, if all can be read; the same from both ends.
fn content(db: &Db) -> Result<Vec<(String, Pairs)>> {
    let mut all = Vec::new();
    let mut names = db.keyspaces()?;
    names.push("default".into());
    for name in names {
        let keyspace = db.keyspace(&name)?;
        let pair = |kv: Result<(ringdb::Value, ringdb::Value)>| kv.map(|(k, v)| (k.into_vec(), v.into_vec()));
        let forward: Result<Pairs> = keyspace.iter().map(pair).collect();
        let backward: Result<Pairs> = keyspace.iter().rev().map(pair).collect();
        let (forward, mut backward) = (forward?, backward?);
        backward.reverse();
        assert!(forward.windows(2).all(|w| w[0].0 < w[1].0), "keys out of order");
        assert_eq!(forward, backward, "from both ends");
        let keys: Vec<&[u8]> = forward.iter().map(|(k, _)| k.as_slice()).take(100).collect();
        let together = keyspace.multi_get(&keys)?;
        for (key, together) in keys.iter().zip(together) {
            assert_eq!(keyspace.get(key)?.as_deref(), together.as_deref(), "alone and together");
        }
        all.push((name, forward));
    }
    Ok(all)
}

/// Makes a store of `data`, and uses it.
pub fn store(data: &[u8]) {
    let dir = Path::new("/db");
    let io = Memory::with_dir(dir).io();
    fuzzing::make_store(&io, dir, &data[..data.len().min(crate::MAX_INPUT_BYTES)]);
    let db = match open(&io, dir) {
        Ok(db) => db,
        Err(e) => {
            assert!(!e.to_string().is_empty());
            return;
        }
    };
    let report = db.verify();
    let before = content(&db);
    let sound = report.is_ok_and(|r| r.is_ok()) && before.is_ok();
    let written = db.put("key", "value");
    if sound {
        assert!(written.is_ok(), "{written:?}");
        assert_eq!(db.get("key").expect("get").as_deref(), Some(&b"value"[..]));
    }
    let compacted = db.flush().and_then(|()| db.compact_range(..));
    let after = content(&db);
    drop(db);
    let again = open(&io, dir);
    if sound {
        assert!(compacted.is_ok(), "{compacted:?}");
        let (after, again) = (after.expect("read"), again.expect("open"));
        assert_eq!(content(&again).expect("read"), after);
    } else if let Err(e) = again {
        assert!(e.kind() != ErrorKind::FixCall, "{e}");
    }
}
