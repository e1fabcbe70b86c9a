//! The programs that bpftrace runs, with what differs from machine to machine put in.

use std::path::Path;

/// Finds the request that this thread has in hand: by a kernel worker's current work, else by what it began last.
const IN_HAND: &str = "$id = @now[tid]; $worker = 0; $idle = 0;
  $task = (struct task_struct *)curtask;
  if (($task->flags & 0x10) != 0 && (uint64)$task->worker_private != 0) {
    $hand = (uint64)((struct io_worker *)$task->worker_private)->cur_work;
    $worker = 1;
    $id = @work[$hand];
    if ($hand == 0) { $idle = 1; }
    if ($id != 0 && @worker[$id] == 0) { @worker[$id] = @free[tid]; @by[$id] = tid; }
  }";

/// Where file systems say that they have a request; those that this kernel has.
const FILE_SYSTEM: &[&str] = &[
    "ext4:ext4_da_write_begin",
    "ext4:ext4_write_begin",
    "ext4:ext4_es_lookup_extent_enter",
    "ext4:ext4_sync_file_enter",
    "ext4:ext4_fallocate_enter",
    "xfs:xfs_file_buffered_read",
    "xfs:xfs_file_buffered_write",
    "xfs:xfs_file_direct_read",
    "xfs:xfs_file_direct_write",
    "xfs:xfs_file_fsync",
    "filemap:mm_filemap_get_pages",
];

/// The tracepoints among these that are there, as bpftrace takes them.
fn there(events: &Path, names: &[&str]) -> Vec<String> {
    let has = |n: &&&str| events.join(n.replace(':', "/")).is_dir();
    names.iter().filter(has).map(|n| format!("tracepoint:{n}")).collect()
}

/// The program of `ringdb trace`, for a process and the file that has its probes.
pub fn requests(events: &Path, pid: u32, probes: &Path, one_in: u32) -> String {
    let mut program = include_str!("trace.bt").replace("IN_HAND", IN_HAND);
    let fs = there(events, FILE_SYSTEM);
    // A list of none is no probe: then something that is there and says nothing of this process's requests.
    let fs = if fs.is_empty() { "tracepoint:io_uring:io_uring_create".into() } else { fs.join(",\n") };
    program = program.replace("FILE_SYSTEM", &fs).replace("ONE_IN", &one_in.to_string());
    program.replace("PROBES", &probes.display().to_string()).replace("PID", &pid.to_string())
}

/// What a thread does by engineswap's account, for the graph of its waits.
const OPERATIONS: &str = "
usdt:PROBES:engineswap:submit /pid == PID/ { @op[tid] = str(arg1); }
usdt:PROBES:engineswap:complete /pid == PID/ { @op[tid] = \"\"; }
";

/// The program that adds up the time that a process's threads do not run, by where they wait and, if a file has its
/// probes, in which operation.
pub fn waits(pid: u32, probes: Option<&Path>) -> String {
    let operations = match probes {
        Some(file) => OPERATIONS.replace("PROBES", &file.display().to_string()),
        None => "BEGIN { @op[0] = \"\"; }".into(),
    };
    include_str!("off-cpu.bt").replace("OPERATIONS", &operations).replace("PID", &pid.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_left_to_put_in() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("ext4/ext4_sync_file_enter")).unwrap();
        let text = requests(dir.path(), 4711, Path::new("/bin/x"), 3);
        for word in ["IN_HAND", "FILE_SYSTEM", "PROBES", "PID", "ONE_IN"] {
            assert!(!text.lines().filter(|l| !l.starts_with("//")).any(|l| l.contains(word)), "{word}");
        }
        assert!(text.contains("tracepoint:ext4:ext4_sync_file_enter /pid == 4711/"), "{text}");
        assert!(text.contains("usdt:/bin/x:engineswap:submit") && text.contains("% 3 == 0"));
        assert!(!text.contains("xfs:"));
        for probes in [None, Some(Path::new("/bin/x"))] {
            let text = waits(12, probes);
            assert!(text.contains("pid == 12") && !text.contains("PID /") && !text.contains("OPERATIONS"));
            assert_eq!(text.contains("usdt:/bin/x:"), probes.is_some());
        }
    }
}
