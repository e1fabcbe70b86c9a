//! The page and the record of what was repeated.

use std::fmt::Write;

use serde::Serialize;

use super::program::Lab;
use super::ratio::Verdict;
use super::study::{Entry, Findings};
use crate::error::{Failure, Result};

/// One experiment, repeated or tried.
#[derive(Debug, Serialize)]
pub struct Repeated {
    pub id: &'static str,
    pub title: &'static str,
    pub asks: &'static str,
    pub original: &'static str,
    #[serde(flatten)]
    pub outcome: Outcome,
    pub commands: Vec<String>,
}

/// What came of it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    Found(Findings),
    Failed(String),
}

impl Repeated {
    pub fn new(entry: &Entry, found: Result<Findings>, commands: Vec<String>) -> Repeated {
        let outcome = match found {
            Ok(found) => Outcome::Found(found),
            Err(e) => Outcome::Failed(e.to_string()),
        };
        let Entry { id, title, asks, original, .. } = *entry;
        Repeated { id, title, asks, original, outcome, commands }
    }
}

/// All of them, and where.
#[derive(Debug, Serialize)]
pub struct Record {
    pub ringdb: &'static str,
    pub kernel: String,
    pub cpus: usize,
    pub rounds: u32,
    pub seconds: f64,
    pub experiments: Vec<Repeated>,
}

impl Record {
    pub fn new(lab: &Lab, experiments: Vec<Repeated>) -> Record {
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let (rounds, seconds) = (lab.rounds, lab.seconds);
        let ringdb = env!("CARGO_PKG_VERSION");
        Record { ringdb, kernel: kernel.trim().into(), cpus, rounds, seconds, experiments }
    }

    /// An error if one could not be repeated.
    pub fn verdict(&self) -> Result<()> {
        let failed = |r: &&Repeated| matches!(r.outcome, Outcome::Failed(_));
        match self.experiments.iter().filter(failed).count() {
            0 => Ok(()),
            _ => Err(Failure::Negative),
        }
    }
}

fn markdown(header: &[String], rows: &[Vec<String>]) -> String {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let rule: Vec<String> = header.iter().map(|_| "---".to_string()).collect();
    let mut text = line(header) + &line(&rule);
    rows.iter().for_each(|r| text += &line(r));
    text
}

/// One experiment as a section.
pub fn section(r: &Repeated) -> String {
    let mut s =
        format!("## {}: {}\n\n**Asked.** {}\n\n**Printed there.** {}\n\n", r.id, r.title, r.asks, r.original);
    match &r.outcome {
        Outcome::Failed(why) => _ = write!(s, "**Not repeated here:** {why}\n\n"),
        Outcome::Found(f) => {
            _ = write!(s, "**Here.** {}\n\n{}\n", f.setup, markdown(&f.header, &f.rows));
            _ = write!(s, "**Verdict: {}.** {}\n\n", f.verdict.words(), f.because);
        }
    }
    let commands: String = r.commands.iter().map(|c| format!("{c}\n")).collect();
    if !commands.is_empty() {
        _ = write!(s, "```text\n{commands}```\n\n");
    }
    s
}

/// All of them as a page.
pub fn page(record: &Record) -> String {
    let Record { ringdb, kernel, cpus, rounds, seconds, .. } = record;
    let mut s = format!(
        "# Published studies, repeated\n\nMade by `ringdb lab run` {ringdb}: Linux {kernel}, {cpus} CPUs, {rounds} rounds \
         of each side in turn, {seconds} s of each side. A ratio is the median of the rounds' ratios, with the lowest \
         and highest.\n\n"
    );
    let summary = |r: &Repeated| {
        let verdict = match &r.outcome {
            Outcome::Found(f) => f.verdict.words(),
            Outcome::Failed(_) => "not repeated",
        };
        vec![format!("[{0}](#{1})", r.id, anchor(r)), r.title.to_string(), verdict.to_string()]
    };
    let rows: Vec<Vec<String>> = record.experiments.iter().map(summary).collect();
    s += &markdown(&["experiment".into(), "claim".into(), "verdict".into()], &rows);
    s.push('\n');
    record.experiments.iter().for_each(|r| s += &section(r));
    s.truncate(s.trim_end().len());
    s + "\n"
}

/// The anchor that a heading gets where Markdown is shown.
fn anchor(r: &Repeated) -> String {
    let heading = format!("{}: {}", r.id, r.title).to_lowercase();
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

impl Verdict {
    /// The same verdict, unless it holds and this says that it holds for another reason than the one given.
    pub fn unless_artefact(self, otherwise: bool) -> Verdict {
        if self == Verdict::Holds && otherwise { Verdict::Artefact } else { self }
    }
}
