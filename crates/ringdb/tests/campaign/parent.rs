//! Runs jobs in processes of their own, adds up what they count, and reports.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ringdb::Durability;

use crate::history::SHAPES;
use crate::job::{Counts, Failure, Job, Mode};

/// With so many failures nothing new is begun.
const MOST_FAILURES: usize = 40;

/// How much of a campaign is wanted.
#[derive(Clone, Debug)]
pub struct Wanted {
    pub crash_points: u64,
    pub faults: u64,
    pub seconds: u64,
    pub seed: u64,
    pub outcomes: u64,
    pub every: u64,
    pub jobs: usize,
    /// Crowds in a round.
    pub crowds: u64,
    pub history: Option<String>,
    pub out: Option<PathBuf>,
}

/// The repository: `cargo test` runs this in its package's directory.
fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the workspace")
}

impl Wanted {
    fn default() -> Wanted {
        let clock = SystemTime::now().duration_since(UNIX_EPOCH).expect("clock").as_secs();
        Wanted {
            crash_points: 100_000,
            faults: 100_000,
            seconds: u64::MAX,
            seed: crate::support::env_number("RINGDB_SEED", clock % 1_000_000),
            outcomes: 6,
            every: 1,
            jobs: std::thread::available_parallelism().map_or(2, |n| n.get()),
            // As many as histories.
            crowds: 4 * SHAPES.len() as u64,
            history: None,
            out: None,
        }
    }

    /// What fits into CI: each history on both media, a part of the operations.
    pub fn slice() -> Wanted {
        Wanted { crash_points: 0, faults: 0, every: 16, outcomes: 5, crowds: 4, ..Wanted::default() }
    }

    pub fn from_args(args: &[String]) -> Wanted {
        let mut w = Wanted { out: Some(root().join("target/campaign.json")), ..Wanted::default() };
        let mut args = args.iter();
        while let Some(name) = args.next() {
            let value = args.next().unwrap_or_else(|| panic!("{name} needs a value\n{}", crate::HELP));
            let number = || value.parse::<u64>().unwrap_or_else(|_| panic!("{name} {value}: a number"));
            match name.as_str() {
                "--crash-points" => w.crash_points = number(),
                "--faults" => w.faults = number(),
                "--seconds" => w.seconds = number(),
                "--seed" => w.seed = number(),
                "--outcomes" => w.outcomes = number(),
                "--every" => w.every = number().max(1),
                "--crowds" => w.crowds = number(),
                "--jobs" => w.jobs = number().max(1) as usize,
                "--history" => w.history = Some(value.clone()),
                "--out" => w.out = Some(root().join(value)),
                _ => panic!("{name}: no such option\n{}", crate::HELP),
            }
        }
        w
    }

    /// The jobs of a round, each with a seed of its own.
    fn round(&self, round: u64) -> Vec<Job> {
        let mut jobs = Vec::new();
        let shapes = SHAPES.iter().filter(|s| self.history.as_ref().is_none_or(|h| h == s.name));
        for shape in shapes {
            for durability in [Durability::Process, Durability::Sync] {
                for mode in [Mode::Crash, Mode::Faults] {
                    jobs.push(Job {
                        mode,
                        shape: shape.name.into(),
                        durability,
                        seed: self.seed + round,
                        outcomes: self.outcomes,
                        // A fault costs a life of the store, a cut only what comes after it.
                        every: if mode == Mode::Faults && self.crash_points == 0 {
                            self.every * 4
                        } else {
                            self.every
                        },
                    });
                }
            }
        }
        let mut both = Vec::new();
        let (mut jobs, mut crowds) = (jobs.into_iter(), self.crowds(round));
        // In turns, so that a campaign that ends early has had its part of both.
        loop {
            let before = both.len();
            both.extend(jobs.next());
            both.extend(crowds.next());
            if both.len() == before {
                return both;
            }
        }
    }

    /// A round's crowds: of each kind on each medium, under each seed that is theirs.
    fn crowds(&self, round: u64) -> impl Iterator<Item = Job> {
        let wanted = |name: &&str| self.history.as_ref().is_none_or(|h| h == name);
        let names: Vec<&str> = crate::crowd::NAMES.into_iter().filter(wanted).collect();
        let (most, each) = (if names.is_empty() { 0 } else { self.crowds }, 2 * names.len().max(1) as u64);
        let seeds = self.crowds.div_ceil(each);
        (0..most).map(move |i| Job {
            mode: Mode::Crowd,
            shape: names[(i / 2) as usize % names.len()].into(),
            durability: if i % 2 == 0 { Durability::Process } else { Durability::Sync },
            seed: self.seed + round * seeds + i / each,
            outcomes: self.outcomes,
            every: self.every,
        })
    }
}

/// What is written to the file, and read from it to go on.
#[derive(Default, serde::Serialize, serde::Deserialize)]
struct State {
    seed: u64,
    seconds: f64,
    finished: bool,
    counts: Counts,
    jobs: BTreeSet<String>,
    failures: Vec<Failure>,
}

/// Runs the campaign; ends the process if a case has failed.
pub fn campaign(wanted: &Wanted) {
    let mut wanted = wanted.clone();
    let mut state = wanted
        .out
        .as_ref()
        .and_then(|p| serde_json::from_slice::<State>(&std::fs::read(p).ok()?).ok())
        .filter(|s| !s.finished)
        .unwrap_or_default();
    if state.jobs.is_empty() {
        state.seed = wanted.seed;
    } else {
        wanted.seed = state.seed;
        println!("goes on with seed {} after {} jobs", state.seed, state.jobs.len());
    }
    println!(
        "crash campaign: --seed {} --outcomes {} --every {}",
        wanted.seed, wanted.outcomes, wanted.every
    );
    let (start, before) = (Instant::now(), state.seconds);
    let (tell, told) = channel();
    let mut todo: Vec<Job> = Vec::new();
    let (mut round, mut running, mut shown) = (0, 0, Instant::now());
    let mut partial: std::collections::BTreeMap<String, Counts> = Default::default();
    loop {
        while running < wanted.jobs {
            let enough = |s: &State, mode: Mode| match mode {
                Mode::Crash => s.counts.crash_points >= wanted.crash_points,
                Mode::Faults => s.counts.faults >= wanted.faults,
                Mode::Crowd => {
                    s.counts.crash_points >= wanted.crash_points && s.counts.faults >= wanted.faults
                }
            };
            let over = start.elapsed().as_secs() >= wanted.seconds || state.failures.len() >= MOST_FAILURES;
            let all = enough(&state, Mode::Crash) && enough(&state, Mode::Faults) && round > 0;
            if over || (all && todo.is_empty()) {
                break;
            }
            if todo.is_empty() {
                todo = wanted.round(round);
                todo.reverse();
                round += 1;
            }
            let Some(job) = todo.pop() else { break };
            let unneeded = round > 1 && enough(&state, job.mode);
            if unneeded || state.jobs.contains(&job.to_string()) {
                continue;
            }
            start_job(&job, tell.clone());
            running += 1;
        }
        if running == 0 {
            break;
        }
        match told.recv_timeout(Duration::from_secs(1)) {
            Ok((job, Message::Counts(c))) => drop(partial.insert(job, c)),
            Ok((_, Message::Failure(f))) => {
                println!("\nFAILED {}\n  {}\n  {}", f.case, f.what, f.message);
                println!("  RINGDB_CAMPAIGN={} cargo test --release -p ringdb --test campaign", f.case);
                state.failures.push(f);
            }
            Ok((job, Message::Ended(done))) => {
                running -= 1;
                let counts = partial.remove(&job).unwrap_or_default();
                state.counts.add(&counts);
                if done {
                    state.jobs.insert(job);
                } else {
                    let message = "its process ended early".into();
                    state.failures.push(Failure { case: job, what: String::new(), message });
                }
                state.seconds = before + start.elapsed().as_secs_f64();
                save(&wanted, &state);
            }
            Err(_) => {}
        }
        let every = if std::io::stderr().is_terminal() { 1 } else { 30 };
        if shown.elapsed() > Duration::from_secs(every) {
            shown = Instant::now();
            let mut now = state.counts.clone();
            partial.values().for_each(|c| now.add(c));
            show(&wanted, &now, start.elapsed());
        }
    }
    state.finished = true;
    state.seconds = before + start.elapsed().as_secs_f64();
    save(&wanted, &state);
    report(&state);
    if !state.failures.is_empty() {
        for f in &state.failures {
            println!("FAILED {}: {} {}", f.case, f.what, f.message);
        }
        std::process::exit(1);
    }
}

enum Message {
    Counts(Counts),
    Failure(Failure),
    Ended(bool),
}

fn spawn(job: &Job) -> Child {
    Command::new(std::env::current_exe().expect("this program"))
        .args(["job", &job.to_string(), &job.outcomes.to_string(), &job.every.to_string()])
        .arg(u64::MAX.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a process for a job")
}

fn start_job(job: &Job, tell: Sender<(String, Message)>) {
    let mut child = spawn(job);
    let name = job.to_string();
    std::thread::spawn(move || {
        let mut done = false;
        for line in BufReader::new(child.stdout.take().expect("a pipe")).lines().map_while(Result::ok) {
            let Ok(mut v) = serde_json::from_str::<serde_json::Value>(&line) else { continue };
            if let Ok(c) = serde_json::from_value(v["counts"].take()) {
                let _ = tell.send((name.clone(), Message::Counts(c)));
            }
            if let Ok(f) = serde_json::from_value(v["failure"].take()) {
                let _ = tell.send((name.clone(), Message::Failure(f)));
            }
            done |= v["done"] == true;
        }
        let _ = child.wait();
        let _ = tell.send((name, Message::Ended(done)));
    });
}

fn save(wanted: &Wanted, state: &State) {
    if let Some(out) = &wanted.out {
        // Made by whoever built this, but elsewhere if CARGO_TARGET_DIR says so.
        let _ = out.parent().map(std::fs::create_dir_all);
        let text = serde_json::to_string_pretty(state).expect("JSON");
        std::fs::write(out, text).unwrap_or_else(|e| panic!("{}: {e}", out.display()));
    }
}

fn show(wanted: &Wanted, c: &Counts, elapsed: Duration) {
    let part = |done: u64, of: u64| if of == 0 { 1.0 } else { (done as f64 / of as f64).min(1.0) };
    let all = (part(c.crash_points, wanted.crash_points) + part(c.faults, wanted.faults)) / 2.0;
    let bar: String = (0..30).map(|i| if (i as f64) < all * 30.0 { '#' } else { '.' }).collect();
    let line = format!(
        "[{bar}] {:3.0} %, {} crash points, {} faults, {} s",
        all * 100.0,
        c.crash_points,
        c.faults,
        elapsed.as_secs()
    );
    if std::io::stderr().is_terminal() {
        eprint!("\r{line} ");
    } else {
        eprintln!("{line}");
    }
}

fn report(s: &State) {
    let c = &s.counts;
    println!(
        "\n{} cases ({} of crowds): {} crash points, {} faults ({} not reached), {} histories of {} operations in all, {:.0} s",
        c.cases, c.crowds, c.crash_points, c.faults, c.not_reached, c.histories, c.operations, s.seconds
    );
    let list = |m: &std::collections::BTreeMap<String, u64>| -> String {
        m.iter().map(|(k, n)| format!("{k} {n}")).collect::<Vec<_>>().join(", ")
    };
    println!("faults by kind: {}", list(&c.by_kind));
    println!("faults by operation: {}", list(&c.by_operation));
}
