//! Metamorphic tests: one list of operations, run under many settings; every answer must be the model's, so that all
//! settings agree.
//!
//! `RINGDB_META_SEED=n` replays a run, `RINGDB_META_MINUTES=n` (`make metamorphic MINUTES=n`) makes it longer. A list
//! that fails is made small and written to tests/metamorphic/regressions, whose lists are run always.

#[path = "../support/executor.rs"]
mod executor;
#[path = "../support/mod.rs"]
mod support;

mod calls;
mod generate;
mod minimise;
mod op;
mod settings;
mod store;
mod subject;

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use calls::Calls;
use generate::generate;
use minimise::minimise;
use op::{Item, Op, View};
use ringdb::engineswap::Io;
use settings::Settings;
use store::Store;
use subject::{DONE, Model, Subject};
use support::Rng;

const OPS: usize = 1200;
/// Runs of a list that a minimisation may take.
const BUDGET: usize = 3000;

fn regressions() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/metamorphic/regressions")
}

/// What was wrong, and at which operation.
struct Wrong {
    at: usize,
    what: String,
}

fn shorten(s: &str) -> String {
    if s.len() > 600 {
        format!("{} ... ({} bytes)", s.chars().take(600).collect::<String>(), s.len())
    } else {
        s.into()
    }
}

/// Runs the list on a subject, which `make` makes, beside the model.
fn compare(ops: &[Op], make: &mut dyn FnMut() -> Box<dyn Subject>) -> Result<(), Wrong> {
    let mut at = 0;
    let run = catch_unwind(AssertUnwindSafe(|| {
        let (mut subject, mut model) = (make(), Model::default());
        for (i, op) in ops.iter().enumerate() {
            at = i;
            let (got, want) = (subject.run(op), model.run(op));
            if got != want {
                return Err(format!("answers  {}\n  should be {}", shorten(&got), shorten(&want)));
            }
        }
        Ok(())
    }));
    let what = match run {
        Ok(Ok(())) => return Ok(()),
        Ok(Err(what)) => what,
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            text.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned())).unwrap_or_default()
        }
    };
    Err(Wrong { at, what })
}

/// Runs the list on a store with these settings.
fn on_store(ops: &[Op], settings: &Settings) -> Result<(), Wrong> {
    let tmp = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("temp dir");
    let io = Io::from_uri(&settings.io).expect("engine");
    let dir = if settings.io.starts_with("sim") { PathBuf::from("/db") } else { tmp.path().join("db") };
    compare(ops, &mut || Box::new(Store::new(settings, &io, &dir)))
}

fn to_text(ops: &[Op], settings: &Settings, why: &str) -> String {
    let mut text = String::new();
    why.lines().for_each(|l| text.push_str(&format!("# {l}\n")));
    text.push_str(&format!("settings {settings}\n"));
    ops.iter().for_each(|op| text.push_str(&format!("{op}\n")));
    text
}

/// The settings (if it names any) and the operations of a text.
fn from_text(text: &str) -> Result<(Option<Settings>, Vec<Op>), String> {
    let (mut settings, mut ops) = (None, Vec::new());
    for line in text.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with('#')) {
        match line.strip_prefix("settings ") {
            Some(s) => settings = Some(settings::parse(s)?),
            None => ops.push(op::parse(line)?),
        }
    }
    Ok((settings, ops))
}

/// Makes a failing list small, writes it down, and fails.
fn report(ops: &[Op], settings: &Settings, seed: u64, wrong: &Wrong) -> ! {
    println!("seed {seed}, {settings}:\noperation {}: {}\n  {}", wrong.at, ops[wrong.at], wrong.what);
    let start = Instant::now();
    let head = ops[..=wrong.at].to_vec();
    // A failure may need luck: a list that passes thrice is taken to be right. Two minutes are enough.
    let small = minimise(head, BUDGET, |ops| {
        start.elapsed() < Duration::from_secs(120) && (0..3).any(|_| on_store(ops, settings).is_err())
    });
    let path = regressions().join(format!("seed-{seed}.txt"));
    let why = format!("Found with RINGDB_META_SEED={seed}.\n{}", wrong.what);
    fs::write(&path, to_text(&small, settings, &why)).expect("write the regression");
    panic!("{} operations fail; they are in {}", small.len(), path.display());
}

/// The machine's engines, and a disk in memory.
fn engines() -> Vec<&'static str> {
    let mut all = support::engines();
    all.push("sim?seed=3");
    all
}

/// All settings that the list of a seed is run under: each engine with the least of everything, by blocking calls and
/// in another way (the next seeds have the others), and random ones.
fn all_settings(seed: u64, engines: &[&str]) -> Vec<Settings> {
    let mut rng = Rng(seed ^ 0x5E77);
    let other = [Calls::Futures, Calls::Reads, Calls::Looks][seed as usize % 3];
    let small = |calls| engines.iter().map(move |io| Settings { calls, ..Settings::small(io) });
    let mut all: Vec<Settings> = small(Calls::Blocking).chain(small(other)).collect();
    all.push(Settings { reopen_every: 61, flush_every: 17, ..Settings::small(engines[0]) });
    for io in engines {
        all.push(Settings::random(&mut rng, io));
        all.push(Settings::random(&mut rng, io));
    }
    all
}

#[test]
fn every_setting_gives_the_same_answers() {
    let seed = match std::env::var("RINGDB_META_SEED") {
        Ok(s) => s.parse().expect("RINGDB_META_SEED is a number"),
        Err(_) => support::seed("metamorphic"),
    };
    let minutes = support::env_number("RINGDB_META_MINUTES", 0);
    let (start, mut lists, mut runs) = (Instant::now(), 0, 0);
    let engines = engines();
    let one = std::env::var("RINGDB_META_SEED").is_ok();
    loop {
        let seed = seed.wrapping_add(lists);
        println!("RINGDB_META_SEED={seed}");
        let ops = generate(seed, OPS);
        for settings in all_settings(seed, &engines) {
            if let Err(wrong) = on_store(&ops, &settings) {
                report(&ops, &settings, seed, &wrong);
            }
            runs += 1;
        }
        lists += 1;
        let enough =
            if minutes > 0 { start.elapsed() >= Duration::from_secs(60 * minutes) } else { lists >= 2 };
        if one || enough {
            println!("{lists} lists of {OPS} operations, {runs} runs");
            return;
        }
    }
}

#[test]
fn lists_that_once_failed_pass() {
    let mut files: Vec<PathBuf> =
        fs::read_dir(regressions()).expect("regressions").map(|e| e.expect("entry").path()).collect();
    files.retain(|p| p.extension().is_some_and(|e| e == "txt"));
    files.sort();
    assert!(!files.is_empty());
    for path in files {
        let (settings, ops) = from_text(&fs::read_to_string(&path).expect("read"))
            .unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let engines = engines();
        let all = match settings {
            Some(s) if !engines.iter().any(|e| s.io.split('?').next() == e.split('?').next()) => vec![],
            Some(s) => vec![s],
            None => engines.iter().map(|io| Settings::small(io)).collect(),
        };
        for s in all {
            if let Err(w) = on_store(&ops, &s) {
                panic!("{} ({s}): operation {}: {}\n  {}", path.display(), w.at, ops[w.at], w.what);
            }
        }
    }
}

#[test]
fn what_is_written_down_reads_back() {
    for seed in 0..20 {
        let ops = generate(seed, 500);
        let settings = Settings::random(&mut Rng(seed), "posix");
        let text = to_text(&ops, &settings, "why\nand why");
        assert_eq!(from_text(&text), Ok((Some(settings), ops)));
    }
    for wrong in [
        "put",
        "merge users \"k\"",
        "put nowhere \"k\" 1:1",
        "get users@9 \"k\"",
        "scan users .. with:k forward 3",
        "delete_range users ..",
        "flush now",
    ] {
        assert!(from_text(wrong).is_err(), "{wrong}");
    }
}

/// A store with a fault that was put in: after a flush, a batch's delete of a key in `users` is lost if the batch
/// writes to another keyspace too.
#[derive(Default)]
struct Forgetful {
    inner: Model,
    flushed: bool,
}

impl Subject for Forgetful {
    fn run(&mut self, op: &Op) -> String {
        self.flushed |= *op == Op::Flush;
        if let (Op::Batch { durability, items }, true) = (op, self.flushed) {
            let kept = |i: &&Item| !(i.keyspace == 1 && i.value.is_none() && i.range.is_none());
            if items.iter().any(|i| i.keyspace != 1) {
                let items = items.iter().filter(kept).cloned().collect();
                return self.inner.run(&Op::Batch { durability: *durability, items });
            }
        }
        self.inner.run(op)
    }
}

#[test]
fn a_failing_list_is_made_small() {
    let fails = |ops: &[Op]| compare(ops, &mut || Box::new(Forgetful::default())).is_err();
    let mut found = 0;
    for seed in 0..6 {
        let ops = generate(seed, 1500);
        if !fails(&ops) {
            continue;
        }
        found += 1;
        let small = minimise(ops, 20_000, fails);
        assert!(fails(&small), "what is left still fails");
        // Make the keyspace, put the key, flush, lose the delete, look.
        assert!(small.len() <= 5, "{small:#?}");
        assert!(small.contains(&Op::Flush), "{small:#?}");
        for op in &small {
            if let Op::Batch { items, .. } = op {
                // The lost delete, what makes the batch one of two keyspaces, and perhaps the put itself.
                assert!(items.len() <= 3, "{op}");
                assert!(items.iter().all(|i| i.key.len() <= 1 && i.value.is_none_or(|v| v.len <= 1)), "{op}");
            }
        }
        let (_, read) = from_text(&to_text(&small, &Settings::small("posix"), "")).expect("it reads back");
        assert!(fails(&read));
        assert!(compare(&read, &mut || Box::new(Model::default())).is_ok(), "a sound store passes");
    }
    assert!(found >= 3, "the fault was found by {found} lists of 6");
}

#[test]
fn the_model_keeps_snapshots_and_iterators_as_they_were() {
    let text = "create users\nput users \"a\" 1:1\nsnapshot 0\niter 1 users .. ..\ndelete users \"a\"\nflush";
    let mut model = Model::default();
    for op in from_text(text).expect("it reads").1 {
        assert_eq!(model.run(&op), DONE);
    }
    let view = |snapshot| View { keyspace: 1, snapshot };
    let get = |snapshot| Op::Get { view: view(snapshot), key: b"a".to_vec() };
    assert_eq!((model.run(&get(None)).as_str(), model.run(&get(Some(1))).as_str()), ("none", "-"));
    assert_eq!(&model.run(&get(Some(0)))[..2], "1:");
    assert!(model.run(&op::parse("step 1 forward 9").expect("it reads")).starts_with("a=1:"));
}
