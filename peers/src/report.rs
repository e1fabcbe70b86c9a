//! Medians, ratios taken round by round, their spread; as Markdown and JSON.

use std::fmt::Write;
use std::path::Path;

use serde::Serialize;

use crate::limit::Limit;
use crate::scenario::{Figure, Scenario};
use crate::stores::Kind;

/// The rows of one store in one round.
pub type Series = Vec<Figure>;

/// Everything that was measured.
#[derive(Serialize)]
pub struct Run {
    pub scale: f64,
    pub cpus: usize,
    pub kernel: String,
    pub limits: Vec<Limit>,
    pub scenarios: Vec<Rounds>,
}

/// A scenario: for each store, for each round, the rows.
#[derive(Serialize)]
pub struct Rounds {
    scenario: String,
    about: String,
    pairs: u64,
    value_bytes: usize,
    cache_bytes: u64,
    stores: Vec<String>,
    rounds: Vec<Vec<Series>>,
}

/// The middle one, the smallest and the largest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    pub median: f64,
    pub least: f64,
    pub most: f64,
}

impl Spread {
    /// Of at least one number.
    pub fn of(mut all: Vec<f64>) -> Spread {
        all.sort_by(f64::total_cmp);
        let mid = all.len() / 2;
        let median = if all.len().is_multiple_of(2) { (all[mid - 1] + all[mid]) / 2.0 } else { all[mid] };
        Spread { median, least: all[0], most: all[all.len() - 1] }
    }
}

impl Run {
    pub fn new(scale: f64) -> Run {
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let cpus = std::thread::available_parallelism().map_or(0, usize::from);
        Run { scale, cpus, kernel: kernel.trim().into(), limits: Vec::new(), scenarios: Vec::new() }
    }

    pub fn write(&self, file: &Path) -> Result<(), String> {
        let json = serde_json::to_string_pretty(self).map_err(|e| e.to_string())?;
        std::fs::write(file, json).map_err(|e| format!("{}: {e}", file.display()))
    }

    pub fn limits_table(&self) -> String {
        let mut out = String::new();
        for l in &self.limits {
            let _ = writeln!(out, "fio, direct reads of 4 KiB, {} in flight: {:.0}/s", l.depth, l.per_second);
        }
        out
    }
}

impl Rounds {
    pub fn new(s: &Scenario, kinds: &[Kind]) -> Rounds {
        Rounds {
            scenario: s.name.into(),
            about: s.about.into(),
            pairs: s.pairs,
            value_bytes: s.value_bytes,
            cache_bytes: s.cache_bytes,
            stores: kinds.iter().map(|k| k.name().into()).collect(),
            rounds: vec![Vec::new(); kinds.len()],
        }
    }

    pub fn add(&mut self, store: usize, figures: Series) {
        self.rounds[store].push(figures);
    }

    fn spread(&self, store: usize, row: usize, value: impl Fn(&Figure) -> f64) -> Spread {
        Spread::of(self.rounds[store].iter().map(|r| value(&r[row])).collect())
    }

    /// ringdb's speed to another store's, round by round.
    fn ratio(&self, store: usize, row: usize) -> Spread {
        let pairs = self.rounds[0].iter().zip(&self.rounds[store]);
        Spread::of(pairs.map(|(ours, theirs)| ours[row].per_second / theirs[row].per_second).collect())
    }

    /// Markdown.
    pub fn table(&self) -> String {
        let mut out = format!(
            "\n## {}: {}\n\n{} pairs of 16 + {} bytes, cache {} MiB, {} rounds\n\n",
            self.scenario,
            self.about,
            self.pairs,
            self.value_bytes,
            self.cache_bytes >> 20,
            self.rounds[0].len()
        );
        self.speeds(&mut out);
        self.costs(&mut out);
        out
    }

    fn speeds(&self, out: &mut String) {
        let _ = write!(out, "| keys or rows a second |");
        self.stores.iter().for_each(|s| {
            let _ = write!(out, " {s} |");
        });
        self.stores[1..].iter().for_each(|s| {
            let _ = write!(out, " to {s} |");
        });
        let _ = writeln!(out, "\n|{}", "---|".repeat(2 * self.stores.len()));
        for row in 0..self.rounds[0][0].len() {
            let _ = write!(out, "| {} |", self.rounds[0][0][row].row);
            for store in 0..self.stores.len() {
                let _ = write!(out, " {} |", digits(self.spread(store, row, |f| f.per_second).median));
            }
            for store in 1..self.stores.len() {
                let r = self.ratio(store, row);
                let _ = write!(out, " **{:.2}** ({:.2} to {:.2}) |", r.median, r.least, r.most);
            }
            out.push('\n');
        }
    }

    fn costs(&self, out: &mut String) {
        let _ = writeln!(
            out,
            "\n| medians | store | p50 us | p99 us | p99.9 us | longest us | CPU us a key | read B a key \
             | written B a key | memory MiB | disk MB |\n|{}",
            "---|".repeat(11)
        );
        for row in 0..self.rounds[0][0].len() {
            for (store, name) in self.stores.iter().enumerate() {
                let m = |value: fn(&Figure) -> f64| digits(self.spread(store, row, value).median);
                let _ = writeln!(
                    out,
                    "| {} | {name} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
                    self.rounds[0][0][row].row,
                    m(|f| f.p50),
                    m(|f| f.p99),
                    m(|f| f.p999),
                    m(|f| f.longest),
                    m(|f| f.cpu),
                    m(|f| f.read),
                    m(|f| f.written),
                    m(|f| f.resident as f64 / (1u64 << 20) as f64),
                    m(|f| f.disk as f64 / 1e6),
                );
            }
        }
    }
}

/// Three digits of small numbers, thousands apart in large ones.
fn digits(n: f64) -> String {
    match n {
        n if n < 10.0 => format!("{n:.2}"),
        n if n < 1000.0 => format!("{n:.0}"),
        n => {
            let (whole, mut out) = (format!("{n:.0}"), String::new());
            for (i, digit) in whole.chars().enumerate() {
                if i > 0 && (whole.len() - i).is_multiple_of(3) {
                    out.push(',');
                }
                out.push(digit);
            }
            out
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spreads_are_of_the_middle() {
        assert_eq!(Spread::of(vec![3.0, 1.0, 2.0]), Spread { median: 2.0, least: 1.0, most: 3.0 });
        assert_eq!(Spread::of(vec![4.0, 1.0]).median, 2.5);
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!([0.123, 42.4, 1234567.0].map(digits), ["0.12", "42", "1,234,567"]);
    }
}
