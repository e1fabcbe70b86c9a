//! Engines over a disk.

use std::sync::Arc;

use super::disk::Disk;
use super::engine::SimEngine;
use crate::Result;
use crate::engine::Engine;
use crate::io::Io;
use crate::uri::SimConfig;

/// Opens the engine over a new disk.
pub fn open(config: &SimConfig) -> Result<Arc<dyn Engine>> {
    let disk = Disk::from_config(config)?;
    let reasons = vec![
        "sim: a disk in memory, asked for by name; what it holds is gone with this handle".to_string(),
        format!("sim: the seed is {}", config.seed),
    ];
    Ok(SimEngine::start(disk, reasons))
}

impl Disk {
    /// The engine over this disk. All of a disk's engines see the same files.
    pub fn io(&self) -> Io {
        let reasons = vec![format!("sim: the seed is {}", self.config().seed)];
        Io::from_engine(SimEngine::start(self.clone(), reasons))
    }
}
