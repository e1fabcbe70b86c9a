//! [`Text`]: metrics in the text formats of Prometheus and OpenMetrics.

use std::fmt::{self, Write};

use super::Cumulative;

/// What the values of a family are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Counter,
    Gauge,
    Histogram,
    Summary,
    /// Labels alone; the value is 1.
    Info,
}

/// Text on its way. Each sample has the label `store`.
pub(crate) struct Text {
    text: String,
    /// OpenMetrics, not Prometheus.
    open: bool,
    store: String,
    /// Of the family that was begun last: the name of its samples.
    name: String,
}

impl Text {
    pub fn new(open: bool, store: &str) -> Text {
        Text { text: String::new(), open, store: escape(store), name: String::new() }
    }

    /// The text, with the end that OpenMetrics wants.
    pub fn end(mut self) -> String {
        if self.open {
            self.text.push_str("# EOF\n");
        }
        self.text
    }

    /// Begins a family. Its samples are named with `_total` or `_info` where they are counters or information; in
    /// OpenMetrics the family itself is not.
    pub fn family(&mut self, name: &str, kind: Kind, help: &str) {
        let (suffix, kind) = match kind {
            Kind::Counter => ("_total", "counter"),
            Kind::Gauge => ("", "gauge"),
            Kind::Histogram => ("", "histogram"),
            Kind::Summary => ("", "summary"),
            Kind::Info => ("_info", if self.open { "info" } else { "gauge" }),
        };
        self.name = format!("{name}{suffix}");
        let family = if self.open { name } else { &self.name };
        let _ = writeln!(self.text, "# HELP {family} {help}\n# TYPE {family} {kind}");
    }

    /// A sample of the family.
    pub fn sample(&mut self, labels: &[(&str, &str)], value: impl fmt::Display) {
        self.with_suffix("", labels, value);
    }

    /// The only sample of a family.
    pub fn one(&mut self, name: &str, kind: Kind, help: &str, value: impl fmt::Display) {
        self.family(name, kind, help);
        self.sample(&[], value);
    }

    /// The samples of a histogram.
    pub fn histogram(&mut self, label: &str, of: &Cumulative) {
        let operation = (label, of.operation);
        for (nanos, count) in &of.up_to {
            self.with_suffix("_bucket", &[operation, ("le", &seconds(*nanos).to_string())], count);
        }
        self.with_suffix("_bucket", &[operation, ("le", "+Inf")], of.count);
        self.with_suffix("_sum", &[operation], seconds(of.total_ns));
        self.with_suffix("_count", &[operation], of.count);
    }

    /// The sum and the count of a summary.
    pub fn sum_and_count(&mut self, labels: &[(&str, &str)], sum: f64, count: u64) {
        self.with_suffix("_sum", labels, sum);
        self.with_suffix("_count", labels, count);
    }

    fn with_suffix(&mut self, suffix: &str, labels: &[(&str, &str)], value: impl fmt::Display) {
        let _ = write!(self.text, "{}{suffix}{{store=\"{}\"", self.name, self.store);
        for (label, is) in labels {
            let _ = write!(self.text, ",{label}=\"{}\"", escape(is));
        }
        let _ = writeln!(self.text, "}} {value}");
    }
}

fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

/// The value of a label, to stand between quotes.
fn escape(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(open: bool) -> String {
        let mut t = Text::new(open, "a\\b\"c\nd");
        t.one("n", Kind::Counter, "Things.", 3);
        t.family("who", Kind::Info, "Names.");
        t.sample(&[("name", "x")], 1);
        let up_to = vec![(256, 1), (512, 1)];
        t.family("h", Kind::Histogram, "Times.");
        t.histogram("op", &Cumulative { operation: "get", up_to, count: 2, total_ns: 1_500_000_000 });
        t.end()
    }

    #[test]
    fn both_formats() {
        let store = r#"store="a\\b\"c\nd""#;
        let rest = [
            "# HELP h Times.".to_string(),
            "# TYPE h histogram".into(),
            format!("h_bucket{{{store},op=\"get\",le=\"0.000000256\"}} 1"),
            format!("h_bucket{{{store},op=\"get\",le=\"0.000000512\"}} 1"),
            format!("h_bucket{{{store},op=\"get\",le=\"+Inf\"}} 2"),
            format!("h_sum{{{store},op=\"get\"}} 1.5"),
            format!("h_count{{{store},op=\"get\"}} 2"),
        ];
        let first = |family: &str, info: &str, kind: &str| {
            let (n, who) = (format!("n_total{{{store}}} 3"), format!("who_info{{{store},name=\"x\"}} 1"));
            format!(
                "# HELP {family} Things.\n# TYPE {family} counter\n{n}\n# HELP {info} Names.\n# TYPE {info} {kind}\n{who}\n"
            )
        };
        let rest = rest.join("\n") + "\n";
        assert_eq!(text(false), first("n_total", "who_info", "gauge") + &rest);
        assert_eq!(text(true), first("n", "who", "info") + &rest + "# EOF\n");
    }
}
