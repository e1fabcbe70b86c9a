//! Transactions that lock keys.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use ringdb::{Db, Durability, Error, ErrorKind, Options, Result, Transaction, Value};

fn open() -> (tempfile::TempDir, Db) {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let db = Db::open(dir.path(), Options::default().with_memtable_bytes(64 << 10)).unwrap();
    (dir, db)
}

fn number(value: Option<Value>) -> u64 {
    value.map_or(0, |v| u64::from_be_bytes(v[..].try_into().expect("8 bytes")))
}

fn count_up(tx: &Transaction, key: &str) -> Result<()> {
    let n = number(tx.get(key)?);
    tx.put(key, (n + 1).to_be_bytes())
}

fn locked(result: Result<()>, is_deadlock: bool) {
    match result {
        Err(e @ Error::KeyLocked { deadlock, .. }) => {
            assert_eq!((deadlock, e.kind()), (is_deadlock, ErrorKind::Retry));
            assert!(e.to_string().contains("is locked by another transaction"), "{e}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn four_threads_that_lock_count_to_forty_thousand_without_a_conflict() {
    for durability in [Durability::Process, Durability::Sync] {
        // A real device takes longer for each.
        let each = if durability == Durability::Sync { 300 } else { 10_000 };
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let db = Db::open(dir.path(), Options::default().with_durability(durability)).unwrap();
        std::thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| {
                    for _ in 0..each {
                        let mut tx = db.transaction();
                        tx.set_lock_wait(Duration::from_secs(60));
                        tx.lock(&["counter"]).expect("the lock");
                        count_up(&tx, "counter").expect("get and put");
                        tx.commit().expect("no conflict");
                    }
                });
            }
        });
        assert_eq!(number(db.get("counter").unwrap()), 4 * each);
        assert_eq!(db.stats().snapshots, 0);
    }
}

#[test]
fn sums_over_several_keys_hold_beside_those_who_lock_nothing() {
    let (_dir, db) = open();
    let (conflicts, each) = (AtomicU64::new(0), 400);
    std::thread::scope(|s| {
        for t in 0..4u64 {
            let (db, conflicts) = (&db, &conflicts);
            s.spawn(move || {
                for n in 0..each {
                    // Each pair in either order; a third of them as others do it.
                    let keys = ["a", "b", "c"].map(|k| k.to_string());
                    let (one, two) = (&keys[(n % 3) as usize], &keys[((n + 1 + t % 2) % 3) as usize]);
                    loop {
                        let mut tx = db.transaction();
                        if n % 3 > 0 {
                            tx.set_lock_wait(Duration::from_secs(60));
                            tx.lock(&[one, two]).expect("no deadlock within one call");
                        }
                        count_up(&tx, one).unwrap();
                        count_up(&tx, two).unwrap();
                        match tx.commit() {
                            Err(e) if e.kind() == ErrorKind::Retry => conflicts.fetch_add(1, SeqCst),
                            done => break done.unwrap(),
                        };
                    }
                }
            });
        }
    });
    let sum: u64 = ["a", "b", "c"].iter().map(|k| number(db.get(k).unwrap())).sum();
    assert_eq!(sum, 4 * each * 2, "{} conflicts", conflicts.load(SeqCst));
}

#[test]
fn a_lock_is_held_until_the_transaction_ends_in_whatever_way() {
    let (_dir, db) = open();
    let other = db.keyspace("other").unwrap();
    let mut holder = db.transaction();
    holder.lock(&["k", "k", "l"]).unwrap();
    holder.lock(&["k"]).unwrap();
    let try_lock = |keys: &[&str]| {
        let mut tx = db.transaction();
        tx.set_lock_wait(Duration::ZERO);
        tx.lock(keys)
    };
    locked(try_lock(&["k"]), false);
    // Nothing of a call that fails stays locked.
    locked(try_lock(&["a", "l", "m"]), false);
    let mut tx = db.transaction();
    tx.set_lock_wait(Duration::from_millis(30));
    let start = Instant::now();
    locked(tx.lock(&["a", "k", "m"]), false);
    assert!(start.elapsed() >= Duration::from_millis(30));
    // It may go on without.
    tx.put("x", "1").unwrap();
    // The same key of another keyspace is another one, and nobody else is kept off.
    tx.lock_in(&other, &["k"]).unwrap();
    tx.commit().unwrap();
    try_lock(&["a", "m"]).unwrap();
    db.put("k", "by a plain write").unwrap();

    for end in 0..5 {
        match end {
            0 => holder.commit().unwrap(),
            1 => holder.rollback(),
            2 => drop(holder),
            3 => {
                assert!(holder.get("k").unwrap().is_some());
                db.put("k", "again").unwrap();
                holder.put("k", "mine").unwrap();
                assert!(matches!(holder.commit(), Err(Error::Conflict { .. })));
            }
            _ => assert!(
                holder.commit_with(&ringdb::WriteOptions::default().with_deadline(Duration::MAX)).is_err()
            ),
        }
        try_lock(&["k"]).expect("it was given up");
        holder = db.transaction();
        holder.lock(&["k"]).unwrap();
        locked(try_lock(&["k"]), false);
    }
    drop(holder);
    other.put("k", "1").unwrap();
    drop(tx_of_another_store(&db));
}

/// Locks that cannot be.
fn tx_of_another_store(db: &Db) -> Transaction {
    let (dir, foreign) = open();
    let theirs = foreign.keyspace("theirs").unwrap();
    let mut tx = db.transaction();
    assert!(matches!(tx.lock_in(&theirs, &["k"]), Err(Error::Invalid(_))));
    assert!(matches!(tx.lock(&[vec![0; ringdb::MAX_KEY_BYTES + 1]]), Err(Error::Invalid(_))));
    tx.lock::<&str>(&[]).unwrap();
    drop((theirs, foreign));
    let reader = Db::open_read_only(dir.path(), Options::default()).unwrap();
    assert!(matches!(reader.transaction().lock(&["k"]), Err(Error::ReadOnly)));
    tx
}

#[test]
fn a_lock_goes_on_from_now_if_what_was_read_is_as_it_was() {
    let (_dir, db) = open();
    db.put("a", "1").unwrap();
    db.put("b", "1").unwrap();
    let mut tx = db.transaction();
    assert_eq!(tx.get("a").unwrap().as_deref(), Some(&b"1"[..]));
    assert_eq!(tx.range("c".."d").count(), 0);
    tx.put("a", "mine").unwrap();
    db.put("b", "2").unwrap();
    tx.lock(&["b"]).unwrap();
    // As of now, with its own writes.
    assert_eq!(tx.get("b").unwrap().as_deref(), Some(&b"2"[..]));
    assert_eq!(tx.get("a").unwrap().as_deref(), Some(&b"mine"[..]));
    tx.commit().unwrap();
    assert_eq!(db.get("a").unwrap().as_deref(), Some(&b"mine"[..]));

    // What was read still counts at the commit.
    let mut tx = db.transaction();
    tx.get("a").unwrap();
    tx.lock(&["b"]).unwrap();
    db.put("a", "other").unwrap();
    tx.put("b", "3").unwrap();
    assert!(matches!(tx.commit(), Err(Error::Conflict { .. })));

    // What has been written is a conflict at once: in a memtable, in a table, in a range, by a range tombstone.
    type Change = fn(&Db);
    let changes: [Change; 4] = [
        |db| db.put("a", "changed").unwrap(),
        |db| {
            db.put("a", "changed again").unwrap();
            db.flush().unwrap();
        },
        |db| db.put("c5", "new").unwrap(),
        |db| db.delete_range("a".."b").unwrap(),
    ];
    for (i, change) in changes.iter().enumerate() {
        let mut tx = db.transaction();
        tx.get("a").unwrap();
        assert_eq!(tx.range("c".."d").count(), 0);
        change(&db);
        assert!(matches!(tx.lock(&["b"]), Err(Error::Conflict { .. })), "change {i}");
        // The call has locked nothing, whatever becomes of the transaction.
        let mut again = db.transaction();
        again.set_lock_wait(Duration::ZERO);
        again.lock(&["b"]).unwrap();
        drop((again, tx));
        db.delete("c5").unwrap();
    }
}

#[test]
fn deadlocks_end_at_once_with_an_error_for_one() {
    let (_dir, db) = open();
    for _ in 0..50 {
        let both = Barrier::new(2);
        let results: Vec<Result<()>> = std::thread::scope(|s| {
            let one = |first: &'static str, second: &'static str| {
                let (db, both) = (&db, &both);
                move || {
                    let mut tx = db.transaction();
                    tx.set_lock_wait(Duration::from_secs(600));
                    tx.lock(&[first]).unwrap();
                    both.wait();
                    tx.lock(&[second])?;
                    count_up(&tx, "n")?;
                    tx.commit()
                }
            };
            let threads = [s.spawn(one("a", "b")), s.spawn(one("b", "a"))];
            threads.map(|t| t.join().expect("no panic")).into()
        });
        let (done, failed): (Vec<_>, Vec<_>) = results.into_iter().partition(Result::is_ok);
        assert_eq!((done.len(), failed.len()), (1, 1));
        failed.into_iter().for_each(|e| locked(e, true));
    }
    assert_eq!(number(db.get("n").unwrap()), 50);
}

#[test]
fn who_waits_gets_the_key_in_order_and_learns_of_the_end_of_the_store() {
    let (_dir, db) = open();
    let order = AtomicU64::new(0);
    let mut first = db.transaction();
    first.lock(&["k"]).unwrap();
    std::thread::scope(|s| {
        let mut waiters = Vec::new();
        for n in 0..4 {
            let (db, order) = (&db, &order);
            waiters.push(s.spawn(move || {
                let mut tx = db.transaction();
                tx.set_lock_wait(Duration::from_secs(600));
                tx.lock(&["k"]).unwrap();
                assert_eq!(order.fetch_add(1, SeqCst), n);
            }));
            std::thread::sleep(Duration::from_millis(100));
        }
        drop(first);
        waiters.into_iter().for_each(|w| w.join().expect("in order"));
    });

    let mut holder = db.transaction();
    holder.lock(&["k"]).unwrap();
    std::thread::scope(|s| {
        let mut tx = db.transaction();
        tx.set_lock_wait(Duration::from_secs(600));
        let waiter = s.spawn(move || tx.lock(&["k"]));
        std::thread::sleep(Duration::from_millis(50));
        db.clone().close().unwrap();
        assert!(matches!(waiter.join().expect("no panic"), Err(Error::Closed)));
    });
    assert!(matches!(holder.lock(&["l"]), Err(Error::Closed)));
}
