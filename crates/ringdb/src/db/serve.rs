//! What is done for who asks at the socket of a store. See [`crate::socket`].

use std::ffi::OsString;
use std::ops::Bound;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::{Arc, Weak};

use serde_json::{Value, json};

use super::Metrics;
use super::core::Core;
use crate::socket::{Failure, Request, Server, Service};
use crate::{BackupOptions, Error, Progress, Result};

impl Core {
    /// Begins to serve a store that is open for writing, on a real disk and a real machine. One that cannot be
    /// served is open all the same.
    pub(super) fn begin_serving(self: &Arc<Core>) {
        let real = self.env.is_system() && self.io.info().name != "sim";
        if !self.options.socket || self.write_side.is_none() || !real {
            return;
        }
        match Server::start(&self.dir, Box::new(Weakly(Arc::downgrade(self)))) {
            Ok(server) => *self.served.server() = Some(server),
            Err(e) => {
                self.served.is_not(format!("no socket could be made in the directory: {e}"));
            }
        }
    }

    /// Takes nobody more, and removes the socket.
    pub(super) fn stop_serving(&self) {
        if let Some(server) = &mut *self.served.server() {
            server.stop();
        }
    }

    /// Waits a little for what is being done, which fails once the store is closed.
    pub(super) fn end_serving(&self) {
        let server = self.served.server().take();
        if let Some(server) = server {
            server.end();
        }
    }
}

/// A store that is not kept open by who serves it.
struct Weakly(Weak<Core>);

impl Service for Weakly {
    fn work(&self, request: Request, progress: Progress) -> std::result::Result<Value, Failure> {
        self.answer(request, progress)
            .map_err(|e| Failure { message: e.to_string(), usage: matches!(e, Error::Invalid(_)) })
    }
}

impl Weakly {
    fn answer(&self, request: Request, progress: Progress) -> Result<Value> {
        let core = self.0.upgrade().ok_or(Error::Closed)?;
        core.check_open()?;
        Ok(match request {
            Request::Stats => value(core.stats())?,
            Request::Look => look(&core)?,
            Request::Metrics { open_metrics } => metrics(&core, open_metrics),
            Request::Flush => core.flush().map(|()| json!({}))?,
            Request::Compact { keyspace, from, to } => {
                compacted(&core, || compact(&core, keyspace, from, to))?
            }
            Request::Rewrite { key } => rewrite(&core, key)?,
            Request::Checkpoint { to } => core.checkpoint(&absolute(to)?).map(|()| json!({}))?,
            Request::Backup { to, keep } => {
                let mut options = BackupOptions::default().with_progress(progress);
                options.keep = keep;
                value(core.backup(&absolute(to)?, &options)?)?
            }
            other => return Err(Error::Invalid(format!("this store cannot be asked for {other:?}"))),
        })
    }
}

fn value(of: impl serde::Serialize) -> Result<Value> {
    serde_json::to_value(of).map_err(|e| Error::Invalid(format!("the answer cannot be told: {e}")))
}

/// All that there is to see of a store that runs.
fn look(core: &Core) -> Result<Value> {
    let io = core.io.stats();
    let us = |d: std::time::Duration| d.as_micros() as u64;
    let mut ops = Vec::new();
    for (purpose, name) in crate::purpose::NAMES {
        for class in engineswap::OpClass::ALL {
            let s = io.of(class, purpose);
            if s.ops > 0 {
                ops.push(json!({
                    "purpose": name, "class": class.name(), "ops": s.ops, "bytes": s.bytes, "errors": s.errors,
                    "time_us": us(s.time()), "p50_us": us(s.percentile(0.5)), "p99_us": us(s.percentile(0.99)),
                }));
            }
        }
    }
    Ok(json!({
        "process": std::process::id(), "directory": core.dir.to_string_lossy(), "open_us": us(io.elapsed()),
        "stats": value(core.stats())?, "io": ops,
    }))
}

fn metrics(core: &Core, open_metrics: bool) -> Value {
    let metrics = core.metrics();
    match open_metrics {
        true => json!({"type": Metrics::OPEN_METRICS_TYPE, "text": metrics.open_metrics()}),
        false => json!({"type": Metrics::PROMETHEUS_TYPE, "text": metrics.prometheus()}),
    }
}

/// A relative path would be one of this process, which the other side does not mean.
fn absolute(path: Vec<u8>) -> Result<PathBuf> {
    let path = PathBuf::from(OsString::from_vec(path));
    match path.is_absolute() {
        true => Ok(path),
        false => Err(Error::Invalid(format!("{} is not an absolute path", path.display()))),
    }
}

fn compact(core: &Core, keyspace: Option<String>, from: Option<Vec<u8>>, to: Option<Vec<u8>>) -> Result<()> {
    let bounds = (
        from.as_deref().map_or(Bound::Unbounded, Bound::Included),
        to.as_deref().map_or(Bound::Unbounded, Bound::Excluded),
    );
    let keyspace = match keyspace {
        None => core.keyspaces.default_one().clone(),
        Some(name) => core
            .existing_keyspace(&name)?
            .ok_or_else(|| Error::Invalid(format!("no keyspace '{name}' in this store")))?,
    };
    core.compact_range(&keyspace, bounds)
}

/// Who asks with a key relies on it: it is refused if this store writes with another one.
fn rewrite(core: &Core, key: Option<u32>) -> Result<Value> {
    let own = core.stats().encryption_key;
    if key.is_some() && key != own {
        let own = own.map_or("does not encrypt".into(), |own| format!("writes with key {own}"));
        return Err(Error::Invalid(format!(
            "the process that has the store open {own}: it has to open it again with the other key"
        )));
    }
    let mut done = compacted(core, || core.rewrite())?;
    done["encryption_key"] = json!(own);
    Ok(done)
}

/// What a compaction by `work` has done.
fn compacted(core: &Core, work: impl FnOnce() -> Result<()>) -> Result<Value> {
    let before = core.stats();
    work()?;
    let after = core.stats();
    Ok(json!({
        "table_bytes_before": before.table_bytes, "table_bytes_after": after.table_bytes,
        "read_bytes": after.compaction_read_bytes - before.compaction_read_bytes,
        "written_bytes": after.compaction_written_bytes - before.compaction_written_bytes,
    }))
}

#[cfg(test)]
mod tests {
    use crate::files;

    #[test]
    fn the_names_that_a_removal_knows_are_those_of_the_socket() {
        assert_eq!(
            (files::SOCKET, files::SOCKET_MAKING, files::SOCKET_NEW),
            (ringdb_socket::NAME, ringdb_socket::MAKING, ringdb_socket::NEW)
        );
    }
}
