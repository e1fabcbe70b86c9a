//! What a store tells of itself while it runs: how long its operations take, and text for Prometheus.

mod latency;
mod text;

pub(crate) use latency::{Cumulative, Latencies, Operation, Seeks};
pub(crate) use text::{Kind, Text};
