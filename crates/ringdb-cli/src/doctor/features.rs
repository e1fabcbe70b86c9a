//! What works here, found by doing it on a file of the directory in question.

use std::fs::File;
use std::io::{IoSlice, IoSliceMut};
use std::path::Path;

use engineswap::mem::{AlignedBuf, BufArena};
use engineswap::{Buf, Direct, ErrorKind, Io, Op, OpenHow, Purpose};
use rustix::fs::{AtFlags, StatxFlags, statx};
use rustix::io::{ReadWriteFlags, preadv2, pwritev2};
use serde::Serialize;

use crate::error::{Failure, Result};

/// Something that was tried.
#[derive(Clone, Debug, Serialize)]
pub struct Feature {
    /// Its name; for an engine with options its URI.
    pub name: &'static str,
    /// Whether it worked.
    pub works: bool,
    /// What it gave, or why not.
    pub detail: String,
}

/// Engines and options, each tried by reading through a queue. A flag is tried without the others that are on where
/// the kernel has them.
const ENGINES: [(&str, &str); 16] = [
    ("posix", "posix"),
    ("libaio", "libaio"),
    ("io_uring", "io_uring"),
    ("io_uring?single_issuer", "io_uring?single_issuer&defer_taskrun=off&coop_taskrun=off&no_sqarray=off"),
    ("io_uring?coop_taskrun", "io_uring?coop_taskrun&defer_taskrun=off&single_issuer=off&no_sqarray=off"),
    (
        "io_uring?single_issuer&defer_taskrun",
        "io_uring?single_issuer&defer_taskrun&coop_taskrun=off&no_sqarray=off",
    ),
    ("io_uring?no_sqarray", "io_uring?no_sqarray&defer_taskrun=off&single_issuer=off&coop_taskrun=off"),
    ("io_uring?submit_all", "io_uring?submit_all"),
    ("io_uring?registered_ring", "io_uring?registered_ring"),
    ("io_uring?fixed_files", "io_uring?fixed_files"),
    ("io_uring?fixed_buffers", "io_uring?fixed_buffers"),
    ("io_uring?provided_buffers", "io_uring?provided_buffers"),
    ("io_uring?force_async", "io_uring?force_async"),
    ("io_uring?sqpoll", "io_uring?sqpoll"),
    ("io_uring?iopoll", "io_uring?iopoll"),
    ("io_uring?iopoll&hybrid_iopoll", "io_uring?iopoll&hybrid_iopoll"),
];

/// Tries everything on `file`, whose first 64 KiB are written.
pub fn try_all(file: &Path) -> Result<Vec<Feature>> {
    let mut out = Vec::new();
    let mut add = |name, tried: std::result::Result<String, String>| {
        let (works, detail) = match tried {
            Ok(d) => (true, d),
            Err(d) => (false, d),
        };
        out.push(Feature { name, works, detail });
    };
    for (name, uri) in ENGINES {
        add(name, engine(uri, file));
    }
    add("O_DIRECT", direct(file));
    add("STATX_DIOALIGN", dioalign(file));
    let io_error = |e: std::io::Error| Failure::Failed(format!("{}: {e}", file.display()));
    let f = File::options().read(true).write(true).open(file).map_err(io_error)?;
    let mut bytes = [0; 4096];
    let read = |flags, bytes: &mut [u8]| preadv2(&f, &mut [IoSliceMut::new(bytes)], 0, flags);
    let said = |e: rustix::io::Errno| std::io::Error::from(e).to_string();
    // The block is in the page cache after a plain read, so that this one has nothing to wait for.
    add(
        "RWF_NOWAIT",
        read(ReadWriteFlags::empty(), &mut bytes)
            .and_then(|_| read(ReadWriteFlags::NOWAIT, &mut bytes))
            .map(|_| "a cached block was read without waiting".into())
            .map_err(said),
    );
    add(
        "RWF_DSYNC",
        pwritev2(&f, &[IoSlice::new(&bytes)], 0, ReadWriteFlags::DSYNC)
            .map(|_| "a block was written durably with one call".into())
            .map_err(said),
    );
    add("huge pages", huge_pages());
    Ok(out)
}

/// Reads a block through the engine, without the page cache where that can be had.
fn engine(uri: &str, file: &Path) -> std::result::Result<String, String> {
    let io = Io::from_uri(uri).map_err(|e| match e.kind() {
        ErrorKind::InvalidInput => "this build has no such option".to_string(),
        _ => e.to_string(),
    })?;
    let said = |e: engineswap::Error| e.to_string();
    let f = io.open(file, &OpenHow::read().direct(Direct::Prefer)).map_err(said)?;
    let memory = BufArena::new(4096, 2);
    let fixed = uri.contains("fixed_buffers");
    let _registered = if fixed { Some(io.register_buffers(memory.region()).map_err(said)?) } else { None };
    let mut queue = io.queue(2).map_err(said)?;
    for i in 0..2u64 {
        let Some(buf) = memory.alloc().map(Buf::Aligned) else { return Err("no memory".into()) };
        if queue.push(Op::read(&f, i * 4096, 4096, buf, Purpose(0))).is_err() {
            return Err("the queue takes nothing".into());
        }
    }
    queue.wait(2).map_err(said)?;
    while let Some(done) = queue.pop() {
        if done.result.map_err(said)? != 4096 {
            return Err("a read came back short".into());
        }
    }
    // The engine does what the kernel refuses by plain calls; that it works is not what was asked.
    if io.stats().inline > 0 {
        return Err(
            "the kernel refuses to read this file so (operation not supported); it was read by a plain call"
                .into(),
        );
    }
    if fixed && io.stats().fixed == 0 {
        return Err("the memory was registered, but the kernel was given none of the requests so".into());
    }
    Ok(format!("two reads in flight; {}", io.info().uri))
}

fn direct(file: &Path) -> std::result::Result<String, String> {
    let said = |e: engineswap::Error| e.to_string();
    let io = Io::from_uri("posix").map_err(said)?;
    let f = io.open(file, &OpenHow::read().direct(Direct::Require)).map_err(said)?;
    let mut b = AlignedBuf::zeroed(4096);
    f.read_exact_at(&mut b, 4096, Purpose(0)).map_err(said)?;
    let a = f.alignment();
    Ok(format!("offsets and lengths in multiples of {}, memory of {}", a.offset, a.memory))
}

fn dioalign(file: &Path) -> std::result::Result<String, String> {
    let s = statx(rustix::fs::CWD, file, AtFlags::empty(), StatxFlags::DIOALIGN)
        .map_err(|e| std::io::Error::from(e).to_string())?;
    if s.stx_mask & StatxFlags::DIOALIGN.bits() == 0 {
        return Err(
            "the kernel does not tell the alignment (Linux 6.1, and the file system must know)".into()
        );
    }
    match s.stx_dio_offset_align {
        0 => Err("the file system says that it has no direct I/O here".into()),
        n => Ok(format!("offset {n}, memory {}", s.stx_dio_mem_align)),
    }
}

fn huge_pages() -> std::result::Result<String, String> {
    const BYTES: usize = 16 << 20;
    let before = huge_kib();
    let mut memory = AlignedBuf::zeroed(BYTES);
    memory.fill(1);
    let got = huge_kib().saturating_sub(before);
    drop(memory);
    match got {
        0 => Err("memory asked for on huge pages came on small ones".into()),
        n => Ok(format!("{} MiB of {} came on huge pages", n >> 10, BYTES >> 20)),
    }
}

fn huge_kib() -> u64 {
    let text = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap_or_default();
    let line = text.lines().find_map(|l| l.strip_prefix("AnonHugePages:"));
    line.and_then(|l| l.trim().split(' ').next()?.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use engineswap::uri::UringConfig;

    use super::ENGINES;

    #[test]
    fn every_option_of_io_uring_that_is_a_flag_is_tried() {
        let tried = |name: &str| ENGINES.iter().any(|(told, _)| told.split(['?', '&']).any(|o| o == name));
        for o in UringConfig::options() {
            let is_flag = o.help.contains("(on, off)");
            // Of many rings, which a trial of one does not show.
            let of_many = ["sqpoll_share", "clone_buffers"].contains(&o.name);
            assert_eq!(tried(o.name), is_flag && !of_many, "{}", o.name);
        }
        assert!(ENGINES.iter().all(|(_, uri)| uri.parse::<engineswap::Config>().is_ok()));
    }
}
