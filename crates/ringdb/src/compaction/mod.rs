//! Flush and compaction.
mod backpressure;
mod visibility;
