//! A process with more threads than descriptors, each idle after one `multi_get`: the store goes on writing,
//! which needs the descriptors of new log segments and tables.

mod support;

use std::path::Path;
use std::process::Command;
use std::sync::Barrier;

use ringdb::{Db, Options};

const DESCRIPTORS: &str = "192";
const THREADS: usize = 300;
const KEYS: usize = 8000;
/// Keys of a thread's `multi_get`, in as many blocks that nobody has read before.
const BATCH: usize = 4;

fn key(i: usize) -> [u8; 8] {
    (i as u64).to_be_bytes()
}

fn options(io: &str) -> Options {
    let o = Options::default().with_io(io).with_cache_bytes(32 << 20).with_memtable_bytes(1 << 20);
    o.with_log_segment_bytes(64 << 10)
}

/// The child, which is told to have few descriptors. Not a test of its own.
#[test]
fn child_with_few_descriptors() {
    let Ok(dir) = std::env::var("RINGDB_DESCRIPTORS_DIR") else { return };
    let io = std::env::var("RINGDB_DESCRIPTORS_IO").expect("engine");
    let dir = Path::new(&dir);
    let db = Db::open(dir, options(&io)).expect("open");
    for i in 0..KEYS {
        db.put(key(i), [i as u8; 1000]).expect("put");
    }
    db.flush().expect("flush");
    drop(db);
    // Opened again, nothing of it is in memory.
    let db = Db::open(dir, options(&io)).expect("reopen");
    let (turn, all) = (Barrier::new(2), Barrier::new(THREADS + 1));
    std::thread::scope(|s| {
        for t in 0..THREADS {
            let (db, turn, all) = (&db, &turn, &all);
            let thread = move || {
                let mine: Vec<usize> = (0..BATCH).map(|k| (t * BATCH + k) * 6 % KEYS).collect();
                let got =
                    db.multi_get(&mine.iter().map(|i| key(*i)).collect::<Vec<_>>()).unwrap_or_else(|e| {
                        // The others wait for this thread: without it they would for ever.
                        eprintln!("multi_get with {t} idle threads: {e}");
                        std::process::exit(1);
                    });
                for (i, value) in mine.iter().zip(got) {
                    assert!(value.is_some_and(|v| v[..] == [*i as u8; 1000]), "key {i}");
                }
                turn.wait();
                all.wait();
            };
            std::thread::Builder::new().stack_size(512 << 10).spawn_scoped(s, thread).expect("thread");
            turn.wait();
        }
        // All are idle. Many segments and tables now.
        for i in 0..KEYS {
            db.put(key(i), [7; 1000]).unwrap_or_else(|e| panic!("put {i} with {THREADS} idle threads: {e}"));
        }
        db.flush().expect("flush");
        all.wait();
    });
    assert!(db.get(key(KEYS - 1)).expect("get").is_some_and(|v| v[..] == [7; 1000]));
}

#[test]
fn idle_threads_leave_the_log_its_descriptors() {
    for io in support::engines() {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("temp dir");
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("ulimit -n {DESCRIPTORS} && exec \"$0\" \"$@\"")]);
        shell.arg(std::env::current_exe().expect("own path"));
        shell.args(["--exact", "child_with_few_descriptors", "--nocapture", "--test-threads=1"]);
        shell.env("RINGDB_DESCRIPTORS_DIR", dir.path()).env("RINGDB_DESCRIPTORS_IO", io);
        let out = shell.output().expect("a shell");
        assert!(out.status.success(), "{io}: {}", String::from_utf8_lossy(&out.stderr));
    }
}
