//! Scripted histories: lists of steps, made from a name and a seed.

use ringdb::Durability;

use crate::support::Rng;

/// A store's life, or what happens to it.
#[derive(Clone, Debug)]
pub enum Step {
    /// A batch: in which keyspace, the key, the length of the value or a deletion.
    Write {
        sets: Vec<Set>,
        durability: Durability,
    },
    /// Ingests pairs into the default keyspace: sets with values, ascending.
    Ingest(Vec<Set>),
    Flush,
    /// Makes everything durable that was written.
    Sync,
    /// Compacts the default keyspace, or the named one.
    Compact(Option<usize>),
    Checkpoint,
    CreateKeyspace(usize),
    DropKeyspace(usize),
    /// Gives a keyspace other settings.
    Alter(usize),
    /// The store is dropped or closed, and opened again.
    Reopen {
        close: bool,
    },
}

/// One operation of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Set {
    /// `None`: the default keyspace.
    pub keyspace: Option<usize>,
    pub key: u32,
    /// Bytes of the value; `None` deletes.
    pub value: Option<usize>,
    /// The value is an operand.
    pub merge: bool,
    /// Deletes all keys from `key` on and before this one instead.
    pub until: Option<u32>,
    /// The value expires after so many steps.
    pub life: Option<u32>,
}

/// How long a history is and what it is made of.
pub struct Shape {
    pub name: &'static str,
    pub what: &'static str,
    steps: usize,
    keys: u64,
    /// Whether it is called by futures.
    pub futures: bool,
    /// Whether its checkpoints are backups.
    pub backs_up: bool,
    /// Of 1000 steps: flush, compact, checkpoint, keyspaces made or dropped, reopened, sync, ingest.
    flush: u64,
    compact: u64,
    checkpoint: u64,
    keyspaces: u64,
    reopen: u64,
    sync: u64,
    ingest: u64,
    /// Bytes of most values, and of a few.
    small: u64,
    large: u64,
    /// Of 100 writes, those not logged.
    unlogged: u64,
    /// Of 100 puts, those that expire.
    expiring: u64,
    /// Compactions remove some values: see `doomed`. Nothing is merged.
    pub filters: bool,
    /// The store is encrypted, from its first opening on, with one of two keys; some compactions write all of it anew.
    pub encrypted: bool,
    /// Bytes of a memtable, of a log segment and of the manifest.
    pub memtable_bytes: u64,
    pub segment_bytes: u64,
    pub manifest_bytes: u64,
}

const PLAIN: Shape = Shape {
    name: "",
    what: "",
    steps: 120,
    keys: 60,
    futures: false,
    backs_up: false,
    flush: 20,
    compact: 10,
    checkpoint: 4,
    keyspaces: 10,
    reopen: 10,
    sync: 0,
    ingest: 0,
    small: 400,
    large: 6000,
    unlogged: 6,
    expiring: 0,
    filters: false,
    encrypted: false,
    memtable_bytes: 64 << 10,
    segment_bytes: 64 << 10,
    manifest_bytes: 4 << 20,
};

/// All histories.
pub const SHAPES: &[Shape] = &[
    Shape {
        name: "fill",
        what: "writes of all sizes; memtables fill up and are flushed by themselves",
        small: 2000,
        large: 20_000,
        steps: 170,
        keys: 150,
        flush: 4,
        compact: 4,
        ..PLAIN
    },
    Shape { name: "flush", what: "few writes to each flush", flush: 160, compact: 0, steps: 130, ..PLAIN },
    Shape {
        name: "compact",
        what: "overwrites and deletions, compacted down to the last level again and again",
        flush: 100,
        compact: 60,
        keys: 40,
        large: 12_000,
        ..PLAIN
    },
    Shape {
        name: "manifest",
        what: "many edits of a manifest that is rewritten at 1 KiB",
        flush: 120,
        compact: 20,
        keyspaces: 120,
        manifest_bytes: 1 << 10,
        ..PLAIN
    },
    Shape {
        name: "recycle",
        what: "log segments filled, released and used again, several to a memtable; frames larger than a segment",
        flush: 70,
        compact: 0,
        small: 9000,
        large: 140_000,
        steps: 150,
        memtable_bytes: 256 << 10,
        ..PLAIN
    },
    Shape { name: "checkpoint", what: "checkpoints of a changing store", checkpoint: 70, flush: 30, ..PLAIN },
    Shape {
        name: "backup",
        what: "backups of a changing store, of which two stay",
        backs_up: true,
        checkpoint: 70,
        flush: 30,
        compact: 25,
        ..PLAIN
    },
    Shape {
        name: "keyspaces",
        what: "keyspaces made and dropped, batches across them",
        keyspaces: 160,
        flush: 40,
        compact: 25,
        ..PLAIN
    },
    Shape {
        name: "recovery",
        what: "many short lives, each beginning with a log to replay",
        reopen: 160,
        flush: 20,
        small: 1500,
        steps: 130,
        ..PLAIN
    },
    Shape {
        name: "mixed",
        what: "a little of everything",
        flush: 50,
        compact: 25,
        checkpoint: 12,
        keyspaces: 40,
        reopen: 30,
        small: 1500,
        large: 15_000,
        steps: 170,
        manifest_bytes: 2 << 10,
        ..PLAIN
    },
    Shape {
        name: "expire",
        what: "values that expire while they are flushed and compacted, over others that do not",
        expiring: 60,
        flush: 90,
        compact: 50,
        checkpoint: 8,
        reopen: 30,
        keys: 30,
        ..PLAIN
    },
    Shape {
        name: "filter",
        what: "values that a compaction filter removes, over others that it keeps",
        filters: true,
        flush: 90,
        compact: 50,
        checkpoint: 8,
        reopen: 30,
        keyspaces: 30,
        keys: 40,
        large: 12_000,
        ..PLAIN
    },
    #[cfg(feature = "encryption")]
    Shape {
        name: "encrypted",
        what: "a little of everything, encrypted; another key at every other opening",
        encrypted: true,
        flush: 60,
        compact: 40,
        checkpoint: 10,
        keyspaces: 30,
        reopen: 60,
        ingest: 20,
        small: 1500,
        large: 15_000,
        manifest_bytes: 2 << 10,
        ..PLAIN
    },
    Shape {
        name: "futures",
        what: "writes, syncs and reads by futures; many writes that are not logged",
        futures: true,
        sync: 90,
        unlogged: 25,
        reopen: 30,
        small: 1500,
        ..PLAIN
    },
    Shape {
        name: "ingest",
        what: "sorted pairs ingested beside all kinds of writes, over old keys and beside them",
        ingest: 160,
        flush: 60,
        compact: 30,
        checkpoint: 10,
        reopen: 20,
        unlogged: 12,
        keys: 150,
        small: 900,
        large: 9000,
        manifest_bytes: 2 << 10,
        ..PLAIN
    },
];

/// Keyspaces that a history may use besides the default one.
pub const KEYSPACES: usize = 3;

impl Shape {
    pub fn named(name: &str) -> Option<&'static Shape> {
        SHAPES.iter().find(|s| s.name == name)
    }

    /// The steps of this seed, for a store of this durability. Keyspaces are used only while they are there.
    pub fn steps(&self, seed: u64, durability: Durability) -> Vec<Step> {
        let mut rng = Rng(seed.wrapping_mul(0x2545_F491_4F6C_DD1D) ^ self.name.len() as u64);
        let mut live = [false; KEYSPACES];
        let mut steps = Vec::new();
        while steps.len() < self.steps {
            let x = rng.below(1000);
            let ends = [
                self.flush,
                self.compact,
                self.checkpoint,
                self.keyspaces,
                self.reopen,
                self.sync,
                self.ingest,
            ];
            let mut end = 0;
            let choice = ends.iter().position(|w| {
                end += w;
                x < end
            });
            steps.push(match choice {
                Some(0) => Step::Flush,
                Some(1) => {
                    let ks = rng.below(KEYSPACES as u64 + 1) as usize;
                    Step::Compact(live.get(ks).is_some_and(|l| *l).then_some(ks))
                }
                Some(2) => Step::Checkpoint,
                Some(3) => {
                    let ks = rng.below(KEYSPACES as u64) as usize;
                    // Live ones are dropped more seldom than dead ones are made.
                    if live[ks] && rng.chance(2) {
                        Step::Alter(ks)
                    } else {
                        live[ks] = !live[ks];
                        if live[ks] { Step::CreateKeyspace(ks) } else { Step::DropKeyspace(ks) }
                    }
                }
                Some(4) => Step::Reopen { close: rng.chance(3) },
                Some(5) => Step::Sync,
                Some(_) => self.ingested(&mut rng),
                None => self.write(&mut rng, &live, durability),
            });
        }
        steps
    }

    fn ingested(&self, rng: &mut Rng) -> Step {
        let mut key = rng.below(self.keys) as u32;
        let sets = (0..1 + rng.below(30)).map(|_| {
            key += 1 + rng.below(4) as u32;
            let most = if rng.chance(12) { self.large } else { self.small };
            let value = Some(rng.below(most) as usize);
            Set { keyspace: None, key, value, until: None, merge: false, life: None }
        });
        Step::Ingest(sets.collect())
    }

    fn write(&self, rng: &mut Rng, live: &[bool; KEYSPACES], durability: Durability) -> Step {
        let n = match rng.below(4) {
            0 | 1 => 1,
            2 => 2,
            _ => 1 + rng.below(6),
        };
        let sets = (0..n)
            .map(|_| {
                let keyspace = Some(rng.below(2 * KEYSPACES as u64) as usize)
                    .filter(|ks| live.get(*ks).copied().unwrap_or(false));
                let len = match rng.below(12) {
                    0 => rng.below(self.large),
                    1 => 0,
                    _ => rng.below(self.small),
                };
                let value = (!rng.chance(4)).then_some(len as usize);
                let key = rng.below(self.keys) as u32;
                let range = value.is_none() && rng.chance(5);
                let until = range.then(|| key + 1 + rng.below(self.keys / 4 + 1) as u32);
                let merge = value.is_some() && rng.chance(4) && !self.filters;
                // Only where there are any: what the others do stays the same.
                let expires = self.expiring > 0 && rng.below(100) < self.expiring && value.is_some();
                let life = (expires && !merge).then(|| 1 + rng.below(20) as u32);
                Set { keyspace, key, value, merge, until, life }
            })
            .collect();
        let durability = match rng.below(100) {
            x if x < self.unlogged => Durability::None,
            x if x < self.unlogged + 12 => Durability::Sync,
            _ => durability,
        };
        Step::Write { sets, durability }
    }
}
