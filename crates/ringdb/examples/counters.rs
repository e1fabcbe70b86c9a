//! Counters that have to add up, by transactions; and counters that threads increase by merges, which read nothing.
//!
//! `cargo run -p ringdb --example counters -- DIRECTORY`

use std::path::Path;

use ringdb::{Db, ErrorKind, Keyspace, KeyspaceOptions, Options};

/// Moves `amount` between two accounts, or leaves both alone: there has to be enough.
pub(crate) fn transfer(db: &Db, from: &str, to: &str, amount: u64) -> ringdb::Result<bool> {
    loop {
        let tx = db.transaction();
        let left = number(tx.get(from)?.as_deref()).checked_sub(amount);
        let Some(left) = left else { return Ok(false) };
        tx.put(from, left.to_le_bytes())?;
        tx.put(to, (number(tx.get(to)?.as_deref()) + amount).to_le_bytes())?;
        match tx.commit() {
            // Somebody changed one of the two since it was read: read again.
            Err(e) if e.kind() == ErrorKind::Retry => continue,
            done => return done.map(|()| true),
        }
    }
}

fn number(value: Option<&[u8]>) -> u64 {
    value.and_then(|v| v.try_into().ok()).map_or(0, u64::from_le_bytes)
}

/// One more view of a page. No transaction: what a merge adds to is not read here.
fn view(views: &Keyspace, page: &str) -> ringdb::Result<()> {
    views.merge(page, 1u64.to_le_bytes())
}

/// Four threads that transfer and view. The sum of all accounts, and the views.
pub(crate) fn run(dir: &Path) -> ringdb::Result<(u64, u64)> {
    let db = Db::open(dir, Options::default())?;
    let views = db.keyspace_with("views", &KeyspaceOptions::default().with_merge_operator("add"))?;
    let accounts = ["ann", "bob", "cho"];
    for account in accounts {
        db.put(account, 100u64.to_le_bytes())?;
    }
    let work = |seed: usize| -> ringdb::Result<()> {
        for i in 0..250 {
            let (from, to) = (accounts[(seed + i) % 3], accounts[(seed + i * 2 + 1) % 3]);
            if from != to {
                transfer(&db, from, to, (i % 40) as u64)?;
            }
            view(&views, "index.html")?;
        }
        Ok(())
    };
    std::thread::scope(|s| {
        let threads: Vec<_> = (0..4).map(|seed| s.spawn(move || work(seed))).collect();
        threads.into_iter().try_for_each(|t| t.join().expect("no panic"))
    })?;
    let sum = db.multi_get(&accounts)?.iter().map(|v| number(v.as_deref())).sum();
    let viewed = number(views.get("index.html")?.as_deref());
    drop(views);
    db.close()?;
    Ok((sum, viewed))
}

fn main() -> ringdb::Result<()> {
    let dir = std::env::args().nth(1).expect("a directory for the store");
    let (sum, viewed) = run(Path::new(&dir))?;
    println!("the accounts have {sum} together; index.html was viewed {viewed} times");
    Ok(())
}
