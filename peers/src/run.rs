//! Rounds of child processes, one for each store, interleaved.

use std::io::Write;
use std::path::Path;
use std::process::Command;

use indicatif::{ProgressBar, ProgressStyle};

use crate::limit;
use crate::report::{Rounds, Run, Series};
use crate::scenario::{Figure, Scenario};
use crate::stores::Kind;
use crate::{ChildArgs, RunArgs};

/// Runs and reports.
pub fn run(args: &RunArgs) -> Result<(), String> {
    let names: Vec<String> = match args.scenarios.is_empty() {
        true => crate::scenario::ALL.iter().map(|s| s.name.to_string()).collect(),
        false => args.scenarios.clone(),
    };
    let scenarios: Vec<Scenario> =
        names.iter().map(|n| Scenario::find(n, args.scale)).collect::<Result<_, _>>()?;
    let dir = Directory::make(&args.dir)?;
    let mut report = Run::new(args.scale);
    for scenario in &scenarios {
        if scenario.direct {
            report.limits = limit::of_device(&dir.0, scenario.pairs * 120)?;
        }
        let rounds = of_scenario(args, scenario, &dir.0)?;
        print!("{}", rounds.table());
        report.scenarios.push(rounds);
        if let Some(file) = &args.json {
            report.write(file)?;
        }
    }
    print!("{}", report.limits_table());
    Ok(())
}

fn of_scenario(args: &RunArgs, scenario: &Scenario, dir: &Path) -> Result<Rounds, String> {
    let mut kinds = vec![Kind::Ringdb];
    kinds.extend(args.against.iter().copied().filter(|k| *k != Kind::Ringdb && k.fits(scenario)));
    let bar = ProgressBar::new(u64::from(args.rounds) * kinds.len() as u64);
    let style = ProgressStyle::with_template("{prefix} {wide_bar} {pos}/{len} {msg} {eta}");
    bar.set_style(style.map_err(|e| e.to_string())?);
    bar.set_prefix(scenario.name);
    let mut rounds = Rounds::new(scenario, &kinds);
    for round in 0..args.rounds {
        for turn in 0..kinds.len() {
            let which = (turn + round as usize) % kinds.len();
            bar.set_message(kinds[which].name());
            let figures = one(args, scenario, kinds[which], dir, round)?;
            rounds.add(which, figures);
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    Ok(rounds)
}

fn one(args: &RunArgs, s: &Scenario, kind: Kind, dir: &Path, round: u32) -> Result<Series, String> {
    let me = std::env::current_exe().map_err(|e| e.to_string())?;
    let store = dir.join("store");
    let out = Command::new(me)
        .args(["child", s.name, kind.name()])
        .arg(&store)
        .args([args.scale.to_string(), round.to_string()])
        .output()
        .map_err(|e| e.to_string())?;
    std::fs::remove_dir_all(&store).map_err(|e| format!("{}: {e}", store.display()))?;
    // What one store leaves to be written is not to be the next one's work.
    // SAFETY: no arguments.
    unsafe { libc::sync() };
    if !out.status.success() {
        let why = String::from_utf8_lossy(&out.stderr);
        return Err(format!("{} on {}: {}: {why}", s.name, kind.name(), out.status));
    }
    let lines = String::from_utf8_lossy(&out.stdout);
    lines.lines().map(|l| serde_json::from_str(l).map_err(|e| format!("{e}: {l}"))).collect()
}

/// One store, once: a line of JSON for each row.
pub fn child(args: &ChildArgs) -> Result<(), String> {
    let scenario = Scenario::find(&args.scenario, args.scale)?;
    let said = |e: Box<dyn std::error::Error + Send + Sync>| e.to_string();
    let store = args.store.open(&args.dir, &scenario).map_err(said)?;
    for row in scenario.rows {
        let ops = scenario.ops(row, args.scale);
        let figure: Figure = crate::work::measure(&store, &scenario, row, ops, &args.dir, args.round)
            .map_err(|e| format!("{}: {e}", row.name))?;
        let line = serde_json::to_string(&figure).map_err(|e| e.to_string())?;
        writeln!(std::io::stdout(), "{line}").map_err(|e| e.to_string())?;
    }
    Ok(())
}

/// A directory of our own below the given one, removed with all that is in it.
struct Directory(std::path::PathBuf);

impl Directory {
    fn make(below: &Path) -> Result<Directory, String> {
        let path = below.join(format!("peers-{}", std::process::id()));
        std::fs::create_dir_all(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        Ok(Directory(path))
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
