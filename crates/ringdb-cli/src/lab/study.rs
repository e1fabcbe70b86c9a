//! What a study is: a published experiment, how it is repeated, and what came of it.

use serde::Serialize;

use super::program::{FileRow, Lab};
use super::ratio::{Claim, Ratio, Verdict, judge};
use crate::error::{Failure, Result};
use crate::out::human_count;

/// A published experiment.
pub struct Entry {
    /// As its source numbers it: system, then experiment.
    pub id: &'static str,
    /// In a few words.
    pub title: &'static str,
    /// Its question and method.
    pub asks: &'static str,
    /// Its figures, and what it concludes.
    pub original: &'static str,
    /// How it is repeated.
    pub how: How,
}

/// How an experiment is repeated.
pub enum How {
    /// By this function.
    Here(fn(&Lab) -> Result<Findings>),
    /// Not by this command: what it takes.
    Needs(&'static str),
}

/// What came of it.
#[derive(Debug, Serialize)]
pub struct Findings {
    /// What was run here, with what differs.
    pub setup: String,
    /// Of the table.
    pub header: Vec<String>,
    /// Of the table.
    pub rows: Vec<Vec<String>>,
    /// Of the claim.
    pub verdict: Verdict,
    /// The evidence.
    pub because: String,
}

/// One that this command does not repeat.
pub const fn needs(id: &'static str, title: &'static str, what: &'static str) -> Entry {
    Entry { id, title, asks: "", original: "", how: How::Needs(what) }
}

/// Cells of a table.
pub fn strings(of: &[&str]) -> Vec<String> {
    of.iter().map(ToString::to_string).collect()
}

/// A count for people.
pub fn rate(n: f64) -> String {
    human_count(n as u64)
}

/// The first row, which a successful run has.
pub fn first(rows: &[FileRow]) -> Result<&FileRow> {
    rows.first().ok_or_else(|| Failure::Failed("fileperf gave no row".into()))
}

/// Two engines under the same load.
pub struct Pair {
    load: String,
    one: FileRow,
    other: FileRow,
}

impl Pair {
    /// Of the first's rate to the other's.
    fn ratio(&self) -> Ratio {
        Ratio::of(&self.one.rps_rounds, &self.other.rps_rounds)
    }
}

/// Two engines, in turn, under each of these loads: a name and arguments of `fileperf`.
pub fn pairs(
    lab: &Lab,
    cpus: Option<&str>,
    engines: [&str; 2],
    args: &[&str],
    loads: &[(&str, &[&str])],
) -> Result<Vec<Pair>> {
    let mut all = Vec::new();
    for (load, own) in loads {
        let args: Vec<&str> = args.iter().chain(*own).copied().collect();
        let mut rows = lab.fileperf(cpus, &engines, &args)?.into_iter();
        let mut next = || rows.next().ok_or_else(|| Failure::Failed("fileperf gave a row too few".into()));
        all.push(Pair { load: (*load).to_string(), one: next()?, other: next()? });
    }
    Ok(all)
}

/// The load that a claim is judged by: this one; that there is no difference, by the first one that has one.
fn deciding<'a>(loads: &'a [(String, Ratio)], at: &str, claim: Claim) -> Option<&'a (String, Ratio)> {
    let differs = |(_, r): &&(String, Ratio)| claim == Claim::Same && judge(r, claim) != Verdict::Holds;
    loads.iter().find(differs).or_else(|| loads.iter().find(|(load, _)| load == at))
}

/// The findings of pairs, judged by the one of this load, or by all.
pub fn compared(setup: &str, names: [&str; 2], pairs: &[Pair], at: &str, claim: Claim) -> Findings {
    let header = ["load", names[0], names[1], "ratio", "p99 us", "CPU us each"];
    let row = |p: &Pair| {
        let (a, b) = (&p.one, &p.other);
        vec![
            p.load.clone(),
            rate(a.rps),
            rate(b.rps),
            p.ratio().to_string(),
            format!("{:.0}, {:.0}", a.latency_us.p99, b.latency_us.p99),
            format!("{:.2}, {:.2}", a.cpu_us_per_op, b.cpu_us_per_op),
        ]
    };
    let loads: Vec<_> = pairs.iter().map(|p| (p.load.clone(), p.ratio())).collect();
    let nothing = (at.to_string(), Ratio::of(&[], &[]));
    let (at, ratio) = deciding(&loads, at, claim).unwrap_or(&nothing);
    Findings {
        setup: setup.into(),
        header: strings(&header),
        rows: pairs.iter().map(row).collect(),
        verdict: judge(ratio, claim),
        because: format!("{} to {}, {at}: {ratio}.", names[0], names[1]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_load_that_differs_decides_that_there_is_a_difference() {
        let load = |name: &str, min, median, max| (name.to_string(), Ratio { median, min, max });
        let loads = [load("1", 0.9, 1.0, 1.1), load("16", 0.9, 1.0, 1.1), load("64", 1.1, 1.2, 1.3)];
        let by = |loads: &[_], claim| deciding(loads, "16", claim).unwrap().0.clone();
        assert_eq!(by(&loads, Claim::Same), "64");
        assert_eq!(by(&loads, Claim::More), "16");
        assert_eq!(by(&loads[..2], Claim::Same), "16");
        assert!(deciding(&loads[..1], "16", Claim::More).is_none());
    }
}
