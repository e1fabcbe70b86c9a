//! What the device allows: fio's direct random reads of 4 KiB on the same file system, at the same depths.

use std::path::Path;
use std::process::Command;

use serde::{Deserialize, Serialize};

/// Reads a second at a depth.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Limit {
    pub depth: u32,
    pub per_second: f64,
}

/// Five seconds of each depth over a file of `bytes` below `dir`; an error if fio is not installed.
pub fn of_device(dir: &Path, bytes: u64) -> Result<Vec<Limit>, String> {
    let file = dir.join("limit");
    let limits = [1, 16, 64].map(|depth| one(&file, bytes, depth)).into_iter().collect();
    let _ = std::fs::remove_file(&file);
    limits
}

fn one(file: &Path, bytes: u64, depth: u32) -> Result<Limit, String> {
    let out = Command::new("fio")
        .args(["--name=limit", "--rw=randread", "--bs=4k", "--direct=1", "--ioengine=io_uring", "--thread"])
        .args(["--time_based", "--runtime=5", "--randrepeat=0", "--output-format=json"])
        .arg(format!("--filename={}", file.display()))
        .args([format!("--size={bytes}"), format!("--iodepth={depth}")])
        .output()
        .map_err(|e| format!("fio: {e}; apt-get install fio"))?;
    let text = String::from_utf8_lossy(&out.stdout);
    let json: serde_json::Value = serde_json::from_str(text.get(text.find('{').unwrap_or(0)..).unwrap_or(""))
        .map_err(|e| format!("fio: {e}: {}", String::from_utf8_lossy(&out.stderr)))?;
    let per_second = json["jobs"][0]["read"]["iops"].as_f64().ok_or("fio: no read.iops in its answer")?;
    Ok(Limit { depth, per_second })
}
