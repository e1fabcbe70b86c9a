//! Golden decisions: a tree in text in, what is picked out. `testdata/golden/compaction/*.txt`; with
//! `UPDATE_GOLDEN=1` in the environment the decisions are written instead of compared.
//!
//! A case is a line `case NAME`, then lines of the tree, then `->` and what is done, step by step until nothing is
//! left to do or `steps` are over. Lines of the tree:
//!
//! ```text
//! shape memtable=64 runs=4 fanout=8 most=1024 rewrite_last     (sizes in MiB)
//! L0 9:b-y 64 seq=30-40 entries=100 tombstones=3               (id, keys, MiB)
//! busy 9 8 to 6                                                (a running compaction)
//! view 35 | dropped 3 7 | steps 2
//! manual b-k 40                                                (keys, up to which sequence number)
//! range b-k 40 | applied 9 30 | quiet                          (keys, without the second; table, number)
//! ```
//! Keys are of keyspace 0 unless they begin with `N/`.

use std::fmt::Write;
use std::path::PathBuf;

use super::*;
use crate::ranges::{Live, RangeTombstone};

impl AsRef<TableMeta> for TableMeta {
    fn as_ref(&self) -> &TableMeta {
        self
    }
}

struct Case {
    shape: Shape,
    levels: Vec<Vec<Arc<TableMeta>>>,
    busy: Vec<Pick<TableMeta>>,
    context: PickContext,
    manual: Option<(Vec<u8>, Vec<u8>, Seq)>,
    steps: usize,
    next_id: u64,
    /// Range tombstones, of which the context has the index.
    live: Live,
}

fn key(text: &str) -> Vec<u8> {
    let (id, k) = text.split_once('/').unwrap_or(("0", text));
    let prefix = key::Prefix::new(id.parse().expect("keyspace"));
    key::KeyBuf::new(&prefix, k.as_bytes()).as_slice().to_vec()
}

use crate::key;
use crate::options::{Compression, Options};
use crate::settings::TableSettings;

fn range(text: &str) -> (Vec<u8>, Vec<u8>) {
    let (a, b) = text.split_once('-').expect("a range");
    (key(a), key(b))
}

/// `name=value` among words.
fn named(words: &[&str], name: &str) -> Option<u64> {
    let word = words.iter().find_map(|w| w.strip_prefix(name)?.strip_prefix('='))?;
    Some(word.parse().expect(name))
}

fn table(words: &[&str]) -> TableMeta {
    let (id, keys) = words[0].split_once(':').expect("id:keys");
    let (smallest, largest) = range(keys);
    let seqs = words.iter().find_map(|w| w.strip_prefix("seq=")).unwrap_or("1-1");
    let (min, max) = seqs.split_once('-').expect("seq=min-max");
    TableMeta {
        given: 0,
        file_id: id.parse().expect("id"),
        file_bytes: words[1].parse::<u64>().expect("MiB") << 20,
        entries: named(words, "entries").unwrap_or(100),
        tombstones: named(words, "tombstones").unwrap_or(0),
        min_seq: min.parse().expect("seq"),
        max_seq: max.parse().expect("seq"),
        smallest,
        largest,
        expiry: None,
    }
}

/// How tables are written.
fn written(last_in_its_own_way: bool) -> Arc<SettingsMap> {
    let o = Options::default();
    let last = if last_in_its_own_way { Compression::Lz4 } else { o.compression };
    Arc::new(SettingsMap::uniform(TableSettings::of_store(&o.with_last_level_compression(last))))
}

fn parse(lines: &[&str]) -> Case {
    let mut c = Case {
        shape: Shape {
            memtable_bytes: 64 << 20,
            level0_runs: 4,
            fanout: 8,
            compaction_bytes: 1 << 30,
            settings: written(false),
        },
        levels: vec![vec![]; LEVELS],
        busy: vec![],
        context: PickContext { oldest_view: 1000, dropped: vec![], ..PickContext::default() },
        manual: None,
        steps: 1,
        next_id: 100,
        live: Live::default(),
    };
    for line in lines {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[0] {
            "shape" => {
                let mib = |name| named(&words, name).map(|v| v << 20);
                c.shape.memtable_bytes = mib("memtable").unwrap_or(c.shape.memtable_bytes);
                c.shape.compaction_bytes = mib("most").unwrap_or(c.shape.compaction_bytes);
                c.shape.level0_runs = named(&words, "runs").map_or(c.shape.level0_runs, |v| v as usize);
                c.shape.fanout = named(&words, "fanout").unwrap_or(c.shape.fanout);
                c.shape.settings = written(words.contains(&"rewrite_last"));
            }
            "busy" => {
                let to = words.iter().position(|w| *w == "to").expect("to");
                let ids: Vec<u64> = words[1..to].iter().map(|w| w.parse().expect("id")).collect();
                let inputs = c.levels.iter().enumerate().map(|(l, ts)| {
                    (l, ts.iter().filter(|t| ids.contains(&t.file_id)).cloned().collect::<Vec<_>>())
                });
                let inputs = inputs.filter(|(_, ts)| !ts.is_empty()).collect();
                let output = words[to + 1].parse().expect("level");
                c.busy.push(Pick::Merge(Merge { inputs, output, reason: Reason::Size }));
            }
            "view" => c.context.oldest_view = words[1].parse().expect("seq"),
            "dropped" => c.context.dropped = words[1..].iter().map(|w| w.parse().expect("id")).collect(),
            "range" => {
                let (from, to) = range(words[1]);
                let t = RangeTombstone::new(&from, &to, words[2].parse().expect("seq"));
                c.live.tombstones.insert(t.seq, t);
            }
            "applied" => {
                let (table, seq): (u64, Seq) =
                    (words[1].parse().expect("id"), words[2].parse().expect("seq"));
                c.live.cleared.insert(table, seq);
            }
            "quiet" => c.context.quiet = true,
            "steps" => c.steps = words[1].parse().expect("steps"),
            "manual" => {
                let (from, to) = range(words[1]);
                c.manual = Some((from, to, words[2].parse().expect("seq")));
            }
            level => {
                let l: usize = level.strip_prefix('L').expect("a level").parse().expect("level");
                c.levels[l].push(Arc::new(table(&words[1..])));
            }
        }
    }
    c.context.ranges = Arc::new(RangeState::new(c.live.clone(), c.context.oldest_view));
    for level in &c.levels[1..] {
        assert!(level.windows(2).all(|w| w[0].largest < w[1].smallest), "a level is not in order");
    }
    c
}

fn describe(p: &Pick<TableMeta>) -> String {
    let ids = |ts: &[Arc<TableMeta>]| ts.iter().map(|t| t.file_id.to_string()).collect::<Vec<_>>().join(" ");
    match p {
        Pick::Delete(ts, reason) => {
            let each = ts.iter().map(|(l, t)| format!("L{l} {}", t.file_id)).collect::<Vec<_>>().join(", ");
            match reason {
                Reason::DroppedKeyspace => format!("delete {each}"),
                reason => format!("delete {each} ({reason:?})"),
            }
        }
        Pick::Move { from, to, tables, reason } => {
            format!("move L{from} [{}] to L{to} ({reason:?})", ids(tables))
        }
        Pick::Merge(m) => {
            let each =
                m.inputs.iter().map(|(l, ts)| format!("L{l} [{}]", ids(ts))).collect::<Vec<_>>().join(" + ");
            format!("merge {each} into L{} ({:?})", m.output, m.reason)
        }
    }
}

/// The tree after a pick was done; merges give one table without tombstones.
fn apply(c: &mut Case, p: &Pick<TableMeta>) {
    let inputs: Vec<Arc<TableMeta>> = p.inputs().into_iter().map(|(_, t)| Arc::clone(t)).collect();
    for level in &mut c.levels {
        level.retain(|t| inputs.iter().all(|i| i.file_id != t.file_id));
    }
    let (Some(to), Some((from_key, to_key))) = (p.output(), span(inputs.iter())) else { return };
    let added = match p {
        Pick::Move { tables, .. } => tables.clone(),
        _ => {
            c.next_id += 1;
            // What the views see is kept, and the tombstones that hide it from younger ones.
            let applied = c.live.tombstones.range(..=c.context.oldest_view).map(|(seq, _)| *seq).max();
            if let Some(seq) = applied {
                c.live.cleared.insert(c.next_id, seq);
                c.context.ranges = Arc::new(RangeState::new(c.live.clone(), c.context.oldest_view));
            }
            // What lay in a dropped keyspace is gone.
            let (mut from_key, mut to_key) = (from_key.to_vec(), to_key.to_vec());
            if c.context.dropped.contains(&from_key[0].into()) {
                from_key = vec![from_key[0] + 1];
            }
            if c.context.dropped.contains(&to_key[0].into()) {
                to_key = vec![to_key[0].wrapping_sub(1), 255];
            }
            if from_key > to_key || to_key[0] == 255 {
                return;
            }
            vec![Arc::new(TableMeta {
                given: 0,
                file_id: c.next_id,
                file_bytes: bytes(&inputs),
                entries: 100,
                tombstones: 0,
                min_seq: inputs.iter().map(|t| t.min_seq).min().expect("inputs"),
                max_seq: inputs.iter().map(|t| t.max_seq).max().expect("inputs"),
                smallest: from_key,
                largest: to_key,
                expiry: None,
            })]
        }
    };
    c.levels[to].extend(added);
    if to == 0 {
        c.levels[to].sort_by_key(|t| std::cmp::Reverse(t.max_seq));
    } else {
        c.levels[to].sort_by(|a, b| a.smallest.cmp(&b.smallest));
    }
}

fn run(c: &mut Case) -> String {
    let mut out = String::new();
    let t = targets(&c.levels, &c.shape);
    let mib: Vec<String> = (t.base..LEVELS).map(|l| format!("L{l} {}", t.bytes[l] >> 20)).collect();
    writeln!(
        out,
        "targets from L{}: {} MiB; debt {} MiB",
        t.base,
        mib.join(", "),
        debt_bytes(&c.levels, &c.shape) >> 20
    )
    .expect("to a string");
    for _ in 0..c.steps {
        let mut busy = Busy::default();
        c.busy.iter().for_each(|p| busy.add(p));
        let step = match &c.manual {
            Some((from, to, seq)) => {
                match pick_manual(&c.levels, &c.shape, &busy, &c.context, (from, Some(to)), *seq) {
                    Manual::Pick(p) => Ok(p),
                    Manual::Wait => Err("wait"),
                    Manual::Done => Err("done"),
                }
            }
            None => pick(&c.levels, &c.shape, &busy, &c.context).ok_or("nothing"),
        };
        match step {
            Ok(p) => {
                writeln!(out, "{}", describe(&p)).expect("to a string");
                check(c, &p, &busy);
                apply(c, &p);
            }
            Err(why) => {
                writeln!(out, "{why}").expect("to a string");
                break;
            }
        }
    }
    out
}

/// What every pick must respect, whatever the golden files say.
fn check(c: &Case, p: &Pick<TableMeta>, busy: &Busy) {
    let inputs = p.inputs();
    assert!(
        inputs.iter().all(|(l, t)| !busy.table(t) && c.levels[*l].iter().any(|x| x.file_id == t.file_id))
    );
    let (Some(output), Some((from, to))) = (p.output(), span(inputs.iter().map(|(_, t)| *t))) else { return };
    assert!(p.output_ranges().iter().all(|(from, to)| !busy.output(output, from, to)));
    let taken = |t: &Arc<TableMeta>| inputs.iter().any(|(_, i)| i.file_id == t.file_id);
    if let Pick::Move { tables, .. } = p {
        for t in tables {
            assert!(overlapping(&c.levels[output], t).is_empty(), "moved onto a table");
        }
    } else if output > 0 {
        assert!(overlapping_range(&c.levels[output], from, to).iter().all(taken), "output would overlap");
    }
    // Nothing older may stay above the output: neither in the levels between nor in older runs of level 0.
    for (l, t) in &inputs {
        for between in l + 1..output {
            assert!(overlapping(&c.levels[between], t).is_empty());
        }
        if *l == 0 && output > 0 {
            let at = c.levels[0].iter().position(|x| x.file_id == t.file_id).expect("there");
            assert!(c.levels[0][at + 1..].iter().all(|older| !overlap(older, t) || taken(older)));
        }
    }
}

#[test]
fn golden_decisions() {
    let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../testdata/golden/compaction");
    let update = std::env::var_os("UPDATE_GOLDEN").is_some();
    let mut cases = 0;
    for entry in std::fs::read_dir(&dir).expect("testdata/golden/compaction") {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let mut out = String::new();
        let mut lines: Vec<&str> = vec![];
        let mut in_answer = false;
        let mut finish = |lines: &mut Vec<&str>, out: &mut String| {
            if !lines.is_empty() {
                cases += 1;
                out.push_str("->\n");
                out.push_str(&run(&mut parse(lines)));
                out.push('\n');
                lines.clear();
            }
        };
        for line in text.lines() {
            if line.starts_with("case ") {
                finish(&mut lines, &mut out);
                in_answer = false;
            } else if line == "->" {
                in_answer = true;
            }
            if in_answer || line.is_empty() {
                continue;
            }
            out.push_str(line);
            out.push('\n');
            if !line.starts_with("case ") && !line.starts_with('#') {
                lines.push(line);
            }
        }
        finish(&mut lines, &mut out);
        let out = format!("{}\n", out.trim_end());
        if update {
            std::fs::write(&path, out).unwrap();
        } else {
            assert_eq!(text, out, "{}: see the module's docs for how to update", path.display());
        }
    }
    assert!(cases >= 15, "{cases}");
}

/// Half of a table that has expired is worth a merge in every level below 0, also if one entry of it lives for ever.
#[test]
fn what_has_expired_is_picked_beside_what_stays() {
    for level in 1..LEVELS {
        for entries in [2, 999, 1000] {
            let mut c = parse(&["quiet"]);
            let expiry = crate::expiry::Expiry { entries, first: 1, half: 10, last: u64::MAX };
            c.levels[level].push(Arc::new(TableMeta {
                entries,
                expiry: Some(expiry),
                ..table(&["9:b-y", "64"])
            }));
            let mut picked = |now| {
                c.context.now = now;
                reclaim::pick(&c.levels, &c.shape, &Busy::default(), &c.context).map(|p| describe(&p))
            };
            assert_eq!(picked(9), None, "L{level}, {entries} entries");
            assert!(picked(10).is_some(), "L{level}, {entries} entries");
        }
    }
}

mod random {
    use proptest::prelude::*;

    use super::*;

    fn tree() -> impl Strategy<Value = Vec<Vec<(u8, u8, u8, u8)>>> {
        prop::collection::vec(prop::collection::vec((0u8..200, 0u8..40, 1u8..120, 0u8..110), 0..9), LEVELS)
    }

    /// Tables of such a tree; above level 0 those that overlap another one are left out.
    fn levels(tree: Vec<Vec<(u8, u8, u8, u8)>>) -> Vec<Vec<Arc<TableMeta>>> {
        let mut levels = vec![vec![]; tree.len()];
        let mut id = 0;
        for (l, tables) in tree.into_iter().enumerate().rev() {
            let mut level: Vec<Arc<TableMeta>> = vec![];
            for (start, len, mib, tombstones) in tables {
                let at = |n: u32| vec![(n / 100) as u8, (n % 100) as u8];
                id += 1;
                let m = TableMeta {
                    given: 0,
                    file_id: id,
                    file_bytes: u64::from(mib) << 20,
                    entries: 100,
                    tombstones: u64::from(tombstones.min(100)),
                    min_seq: id * 10,
                    max_seq: id * 10 + 9,
                    smallest: at(start.into()),
                    largest: at(u32::from(start) + u32::from(len)),
                    expiry: None,
                };
                if l == 0 || level.iter().all(|t| !overlap(t, &m)) {
                    level.push(Arc::new(m));
                }
            }
            if l == 0 {
                level.reverse()
            } else {
                level.sort_by(|a, b| a.smallest.cmp(&b.smallest))
            }
            levels[l] = level;
        }
        levels
    }

    proptest! {
        /// Picks keep the tree correct, never take what is busy, and come to an end.
        #[test]
        fn picks_are_safe_and_come_to_an_end(
            tree in tree(),
            running in 0usize..3,
            dropped in prop::collection::vec(0u32..3, 0..2),
            manual in any::<bool>(),
            quiet in any::<bool>(),
            ranges in prop::collection::vec((0u8..200, 1u8..80, 0u64..1200), 0..6),
        ) {
            let mut c = parse(&[]);
            c.levels = levels(tree);
            c.context.quiet = quiet;
            for (from, len, seq) in ranges {
                let at = |n: u32| vec![(n / 100) as u8, (n % 100) as u8];
                let t = RangeTombstone::new(&at(from.into()), &at(u32::from(from) + u32::from(len)), seq + 1);
                c.live.tombstones.insert(t.seq, t);
            }
            c.context.ranges = Arc::new(RangeState::new(c.live.clone(), 2000));
            c.context.dropped = dropped;
            // Some compactions run from the start, and end later.
            for _ in 0..running {
                let mut busy = Busy::default();
                c.busy.iter().for_each(|p| busy.add(p));
                let Some(p) = pick(&c.levels, &c.shape, &busy, &c.context) else { break };
                check(&c, &p, &busy);
                c.busy.push(p);
            }
            for step in 0.. {
                prop_assert!(step < 500, "no end");
                let mut busy = Busy::default();
                c.busy.iter().for_each(|p| busy.add(p));
                let next = if manual {
                    match pick_manual(&c.levels, &c.shape, &busy, &c.context, (&[], None), 1_000_000) {
                        Manual::Pick(p) => Some(p),
                        Manual::Wait => {
                            prop_assert!(!c.busy.is_empty(), "waits for nobody");
                            None
                        }
                        Manual::Done => break,
                    }
                } else {
                    pick(&c.levels, &c.shape, &busy, &c.context)
                };
                match next {
                    Some(p) => {
                        check(&c, &p, &busy);
                        apply(&mut c, &p);
                    }
                    None => match c.busy.pop() {
                        Some(p) => apply(&mut c, &p),
                        None => break,
                    },
                }
                for level in &c.levels[1..] {
                    prop_assert!(level.windows(2).all(|w| w[0].largest < w[1].smallest));
                }
            }
            if manual {
                prop_assert!(c.levels[..LAST].iter().all(Vec::is_empty));
            }
            // What no view needs was applied everywhere.
            let live: Vec<_> = c.live.tombstones.range(..=c.context.oldest_view).map(|(_, t)| t).collect();
            for t in c.levels.iter().flatten().filter(|_| manual || quiet) {
                for r in &live {
                    let ends = (t.smallest.as_slice(), t.largest.as_slice());
                    prop_assert!(!c.context.ranges.needs(r, t.file_id, t.min_seq, ends), "{:?} {:?}", r, t);
                }
            }
        }
    }
}
