//! Flush and compaction.
mod backpressure;
mod pick;
mod visibility;
