//! What is told of traced engines: a table, sentences, and data.

use std::collections::BTreeMap;

use serde::Serialize;

use super::marks::{Marks, parse};
use super::stages::{STAGES, Stage, Sums};
use crate::out::{human_count, table};

/// One engine's requests.
#[derive(Clone, Debug)]
pub struct Traced {
    pub engine: String,
    pub all: Sums,
    pub punted: Sums,
    /// By operation.
    pub ops: BTreeMap<String, Sums>,
    /// Counted in the kernel, and not by the lines: requests that began and that were told, and their nanoseconds.
    pub seen: u64,
    pub told: u64,
    pub whole: u64,
    pub lost: u64,
}

impl Traced {
    pub fn new(engine: &str) -> Traced {
        let (all, punted) = (Sums::default(), Sums::default());
        let (ops, engine) = (BTreeMap::new(), engine.to_string());
        Traced { engine, all, punted, ops, seen: 0, told: 0, whole: 0, lost: 0 }
    }

    /// Takes a line of bpftrace.
    pub fn line(&mut self, line: &str) {
        if let Some(m) = parse(line) {
            return self.request(&m);
        }
        let number = |name: &str| line.strip_prefix(name)?.rsplit_once("]: ")?.1.trim().parse::<u64>().ok();
        self.seen += number("@seen[").unwrap_or(0);
        self.told += number("@told[").unwrap_or(0);
        self.whole += number("@whole[").unwrap_or(0);
    }

    fn request(&mut self, m: &Marks) {
        self.all.add(m);
        if m.punted != 0 {
            self.punted.add(m);
        }
        self.ops.entry(m.op.clone()).or_default().add(m);
    }

    /// What the stages add up to, to what the kernel counted from probe to probe: 1 if nothing is missing.
    pub fn sum_to_whole(&self) -> f64 {
        self.all.nanoseconds.iter().sum::<u64>() as f64 / self.whole.max(1) as f64
    }

    /// What is said of workers.
    pub fn punts(&self) -> String {
        let (n, of) = (self.punted.requests, self.all.requests);
        if n == 0 {
            return format!("{}: no request was handed to a worker.", self.engine);
        }
        let (whole, us) = self.punted.mean_us();
        let at = |s: Stage| us[s as usize];
        let rest = of - n;
        let others = match rest {
            0 => String::new(),
            _ => {
                let ns: u64 =
                    self.all.nanoseconds.iter().sum::<u64>() - self.punted.nanoseconds.iter().sum::<u64>();
                format!("; the {} others {:.1}", human_count(rest), ns as f64 / 1000.0 / rest as f64)
            }
        };
        format!(
            "{}: {} of {} requests ({:.1} %) were handed to workers (io_uring_queue_async_work). Such a one waited {:.1} us \
             for its worker, which had it {:.1} us before the file system; from the end of its work until the program's \
             thread ran again it took {:.1} us. In all {whole:.1} us{others}.",
            self.engine,
            human_count(n),
            human_count(of),
            100.0 * n as f64 / of.max(1) as f64,
            at(Stage::HandOver),
            at(Stage::Worker),
            at(Stage::TaskWork) + at(Stage::WakeUp),
        )
    }

    /// What is said of what is missing, or astray.
    pub fn trouble(&self) -> Option<String> {
        let missing = self.seen.saturating_sub(self.all.requests);
        let mut parts = Vec::new();
        if self.lost > 0 {
            parts.push(format!("{} events were lost by bpftrace", human_count(self.lost)));
        }
        if missing > 0 {
            parts.push(format!(
                "{} of {} requests are not told",
                human_count(missing),
                human_count(self.seen)
            ));
        }
        if (self.sum_to_whole() - 1.0).abs() > 0.001 {
            parts.push(format!("the stages are {:.1} % of the whole", 100.0 * self.sum_to_whole()));
        }
        if self.all.astray > 0 {
            let n = human_count(self.all.astray);
            parts.push(format!("{n} requests had a mark out of order, which is left out"));
        }
        (!parts.is_empty()).then(|| format!("{}: {}.", self.engine, parts.join("; ")))
    }
}

/// The stages of all engines, a column each, in microseconds of a request.
pub fn text(all: &[Traced]) -> String {
    let header: Vec<&str> =
        ["us a request"].into_iter().chain(all.iter().map(|t| t.engine.as_str())).collect();
    let means: Vec<(f64, [f64; 10])> = all.iter().map(|t| t.all.mean_us()).collect();
    let cell = |x: f64| if x == 0.0 { "-".to_string() } else { format!("{x:.2}") };
    let row = |(stage, name): &(Stage, &str)| {
        let cells = means.iter().map(|(_, each)| cell(each[*stage as usize]));
        [(*name).to_string()].into_iter().chain(cells).collect()
    };
    let mut rows: Vec<Vec<String>> = STAGES.iter().map(row).collect();
    let mut add = |name: &str, of: &dyn Fn(usize) -> String| {
        rows.push([name.to_string()].into_iter().chain((0..all.len()).map(of)).collect());
    };
    add("sum", &|i| cell(means[i].0));
    add("p99", &|i| cell(all[i].all.whole.value_at_quantile(0.99) as f64 / 1000.0));
    add("requests", &|i| human_count(all[i].all.requests));
    add("by plain calls", &|i| human_count(all[i].all.plain));
    add("handed to workers", &|i| human_count(all[i].all.punted));
    let mut s = table(&header, &rows, 1);
    s.push('\n');
    for t in all {
        s += &format!("{}\n", t.punts());
    }
    for line in all.iter().filter_map(Traced::trouble) {
        s += &format!("{line}\n");
    }
    s
}

/// The same as data.
#[derive(Debug, Serialize)]
pub struct Record {
    pub ringdb: &'static str,
    pub kernel: String,
    pub cpus: usize,
    pub command: Vec<String>,
    pub one_in: u32,
    pub engines: Vec<Engine>,
}

/// An engine's, or an operation's.
#[derive(Debug, Serialize)]
pub struct Engine {
    pub engine: String,
    #[serde(flatten)]
    pub times: Times,
    pub ops: BTreeMap<String, Times>,
    pub handed_to_workers: Times,
    pub seen: u64,
    pub lost_events: u64,
    pub sum_to_whole: f64,
    pub astray: u64,
    pub says: String,
}

/// Times in microseconds of a request.
#[derive(Debug, Serialize)]
pub struct Times {
    pub requests: u64,
    pub plain: u64,
    pub punted: u64,
    pub mean_us: f64,
    pub p50_us: f64,
    pub p99_us: f64,
    pub stages_us: BTreeMap<&'static str, f64>,
}

impl Times {
    fn of(s: &Sums) -> Times {
        let (mean_us, each) = s.mean_us();
        let us = |q: f64| s.whole.value_at_quantile(q) as f64 / 1000.0;
        Times {
            requests: s.requests,
            plain: s.plain,
            punted: s.punted,
            mean_us,
            p50_us: us(0.5),
            p99_us: us(0.99),
            stages_us: STAGES.iter().map(|(s, name)| (*name, each[*s as usize])).collect(),
        }
    }
}

impl Record {
    pub fn new(all: &[Traced], command: Vec<String>, one_in: u32) -> Record {
        let engine = |t: &Traced| Engine {
            engine: t.engine.clone(),
            times: Times::of(&t.all),
            ops: t.ops.iter().map(|(op, s)| (op.clone(), Times::of(s))).collect(),
            handed_to_workers: Times::of(&t.punted),
            seen: t.seen,
            lost_events: t.lost,
            sum_to_whole: t.sum_to_whole(),
            astray: t.all.astray,
            says: t.punts(),
        };
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let engines = all.iter().map(engine).collect();
        Record {
            ringdb: env!("CARGO_PKG_VERSION"),
            kernel: kernel.trim().into(),
            cpus,
            command,
            one_in,
            engines,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PUNTED: &str = "r io_uring write 1 1 2 0 4096 4096 1000 2000 3000 4000 9000 12000 0 0 22000 0 22000 32000 40000 41000";
    const PLAIN: &str = "r io_uring read 1 1 0 1 4096 4096 1000 2000 0 0 0 3000 0 0 0 0 0 0 9000 11000";

    #[test]
    fn a_handed_over_request_is_told_with_its_cost() {
        let mut t = Traced::new("io_uring?queue_always");
        for line in [PUNTED, PLAIN, "@seen[io_uring]: 2", "@told[io_uring]: 2", "@whole[io_uring]: 50000"] {
            t.line(line);
        }
        let says = t.punts();
        for part in [
            "1 of 2 requests (50.0 %)",
            "waited 5.0 us for its worker",
            "which had it 3.0 us",
            "40.0 us; the 1 others 10.0",
        ] {
            assert!(says.contains(part), "{part}: {says}");
        }
        assert_eq!((t.sum_to_whole(), t.trouble()), (1.0, None));
        let text = text(&[t.clone(), Traced::new("posix")]);
        assert!(
            text.contains("hand-over to a worker") && text.contains("posix: no request was handed"),
            "{text}"
        );
        let record = serde_json::to_value(Record::new(&[t], vec!["x".into()], 1)).unwrap();
        assert_eq!(record["engines"][0]["handed_to_workers"]["stages_us"]["hand-over to a worker"], 5.0);
        assert_eq!(record["engines"][0]["ops"]["read"]["mean_us"], 10.0);
    }

    #[test]
    fn what_is_missing_is_told() {
        let mut t = Traced::new("posix");
        for line in [PLAIN, "@seen[posix]: 3", "@whole[posix]: 20000"] {
            t.line(line);
        }
        t.lost = 7;
        let trouble = t.trouble().unwrap();
        for part in ["7 events were lost", "2 of 3 requests are not told", "50.0 % of the whole"] {
            assert!(trouble.contains(part), "{trouble}");
        }
    }
}
