//! Events that are only added, with two secondary indexes. An event and its entries in the indexes are one batch, so an
//! index never misses an event and never names one that is not there.
//!
//! `cargo run -p ringdb --example event_store -- DIRECTORY`

use std::path::Path;

use ringdb::{Db, ErrorKind, Keyspace, Options, Value};

/// An event: who did what.
struct Event<'a> {
    customer: &'a str,
    kind: &'a str,
    body: &'a str,
}

struct EventStore {
    db: Db,
    /// Number, big endian so that the order of bytes is that of numbers, to "customer\0kind\0body".
    events: Keyspace,
    /// "customer\0" and the number; the value is empty.
    by_customer: Keyspace,
    /// "kind\0" and the number.
    by_kind: Keyspace,
}

impl EventStore {
    fn open(dir: &Path) -> ringdb::Result<EventStore> {
        let db = Db::open(dir, Options::default())?;
        let [events, by_customer, by_kind] =
            ["events", "by_customer", "by_kind"].map(|name| db.keyspace(name));
        Ok(EventStore { events: events?, by_customer: by_customer?, by_kind: by_kind?, db })
    }

    /// Adds an event; its number follows that of the last. Threads that add at the same time read the same last number:
    /// all but one of them are told so by their commit, and try again.
    fn add(&self, event: &Event<'_>) -> ringdb::Result<u64> {
        loop {
            let tx = self.db.transaction();
            let last = tx.range_in(&self.events, ..).next_back().transpose()?;
            let number = last.map_or(0, |(key, _)| number_of(&key) + 1);
            let text = format!("{}\0{}\0{}", event.customer, event.kind, event.body);
            tx.put_in(&self.events, number.to_be_bytes(), text)?;
            tx.put_in(&self.by_customer, indexed(event.customer, number), "")?;
            tx.put_in(&self.by_kind, indexed(event.kind, number), "")?;
            match tx.commit() {
                Err(e) if e.kind() == ErrorKind::Retry => continue,
                done => return done.map(|()| number),
            }
        }
    }

    /// All events of a customer, in the order in which they were added.
    fn of_customer(&self, customer: &str) -> ringdb::Result<Vec<String>> {
        self.named(&self.by_customer, customer)
    }

    /// All events of a kind.
    fn of_kind(&self, kind: &str) -> ringdb::Result<Vec<String>> {
        self.named(&self.by_kind, kind)
    }

    /// The events that an index names. Their blocks are read together, not one after the other.
    fn named(&self, index: &Keyspace, name: &str) -> ringdb::Result<Vec<String>> {
        let keys = index.prefix(format!("{name}\0")).keys();
        let numbers =
            keys.map(|key| Ok(number_of(&key?).to_be_bytes())).collect::<ringdb::Result<Vec<_>>>()?;
        let events = self.events.multi_get(&numbers)?;
        Ok(events.into_iter().flatten().map(|e| readable(&e)).collect())
    }
}

fn indexed(name: &str, number: u64) -> Vec<u8> {
    [name.as_bytes(), b"\0", &number.to_be_bytes()].concat()
}

/// The number at the end of a key.
fn number_of(key: &[u8]) -> u64 {
    key.last_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

fn readable(event: &Value) -> String {
    String::from_utf8_lossy(event).replace('\0', " ")
}

/// Customers who shop at the same time; the answers to two questions.
pub(crate) fn run(dir: &Path) -> ringdb::Result<(Vec<String>, usize)> {
    let store = EventStore::open(dir)?;
    let shop = |customer: &str| -> ringdb::Result<()> {
        for (kind, body) in [("visit", "/"), ("order", "pear"), ("visit", "/thanks")] {
            store.add(&Event { customer, kind, body })?;
        }
        Ok(())
    };
    std::thread::scope(|s| {
        let shopping = ["ann", "bob", "cho"].map(|customer| s.spawn(move || shop(customer)));
        shopping.into_iter().try_for_each(|t| t.join().expect("no panic"))
    })?;
    let (of_ann, orders) = (store.of_customer("ann")?, store.of_kind("order")?.len());
    store.db.close()?;
    Ok((of_ann, orders))
}

fn main() -> ringdb::Result<()> {
    let dir = std::env::args().nth(1).expect("a directory for the store");
    let (of_ann, orders) = run(Path::new(&dir))?;
    println!("ann:\n  {}\norders: {orders}", of_ann.join("\n  "));
    Ok(())
}
