//! Replay beside a writer, which goes on before any one of the replay's reads: what looks damaged only because it was
//! read before and after that is not told.

use std::path::Path;
use std::sync::atomic::AtomicUsize;

use engineswap::sim::Disk;

use super::fault_tests::{Faults, Faulty};
use super::tests::{Frames, numbers, payload, small};
use super::*;
use crate::sync::lock;

const DIR: &str = "/";
/// Bytes of each payload: with their frames, twelve and some to a segment.
const LEN: usize = 4500;

/// A log with a writer.
struct Beside {
    io: Io,
    log: Arc<Log>,
    writer: LogWriter,
    written: u64,
    synced: bool,
}

impl Beside {
    /// After so many frames, the next segment ready.
    fn with(medium: Medium, synced: bool, frames: u64) -> Beside {
        let io = Disk::new(1).io();
        let dir = StoreDir::open(&io, Path::new(DIR)).unwrap();
        let (log, writer) = Log::create(&io, &dir, small(medium), numbers(1)).unwrap();
        let mut it = Beside { io, log, writer, written: 0, synced };
        it.go_on(frames);
        it.log.prepare().unwrap();
        it
    }

    fn go_on(&mut self, frames: u64) {
        for _ in 0..frames {
            self.written += 1;
            let pos = self.writer.append(self.written, &[&payload(self.written, LEN)]).unwrap();
            if self.synced {
                self.log.sync_to(pos).unwrap();
            }
        }
    }
}

/// Replays beside the writer, which writes `frames` more before read number `at` (from 0). False if there was none.
fn replay_beside(beside: Beside, at: usize, frames: u64) -> bool {
    let before = beside.written;
    let what = format!("{:?}, {before} frames and {frames} before read {at}", beside.log.medium());
    let disk = beside.io.clone();
    let files = disk.read_dir(Path::new(DIR)).unwrap();
    let listed: Vec<u64> = files.iter().filter_map(|f| crate::files::parse(&f.name)?.number()).collect();
    let (faults, reads) = (Arc::new(Faults::default()), Arc::new(AtomicUsize::new(0)));
    let beside = Arc::new(Mutex::new(beside));
    let (writer, counted) = (beside.clone(), reads.clone());
    *lock(&faults.before_read) = Some(Box::new(move || {
        if counted.fetch_add(1, Ordering::Relaxed) == at {
            lock(&writer).go_on(frames);
        }
    }));
    let io = Io::from_engine(Arc::new(Faulty { io: disk, faults }));
    let mut got = Frames::new();
    let end = replay(&io, Path::new(DIR), &listed, &ReplayFrom::default(), &mut |seq, payload| {
        got.push((seq, payload.to_vec()));
        Ok(())
    });
    let end = end.unwrap_or_else(|e| panic!("{what}: {e}"));
    assert!(end.lost.is_none() && end.broken.is_none(), "{what}: {:?} {:?}", end.lost, end.broken);
    assert!(got.len() as u64 >= before, "{what}: {} frames", got.len());
    assert!(got.iter().zip(1..).all(|(f, seq)| *f == (seq, payload(seq, LEN))), "{what}");
    reads.load(Ordering::Relaxed) > at
}

#[test]
fn what_a_writer_does_between_two_reads_is_no_damage() {
    for (medium, synced) in [(Medium::Mapped, false), (Medium::Mapped, true), (Medium::Direct, true)] {
        // The log ends early in a segment, near its end, and early in the one that follows.
        for have in [1, 6, 11, 12, 13, 14] {
            // The writer stays in its segment, or moves on to the next.
            for more in [1, 2, 3, 9] {
                let reads = (0..).find(|at| !replay_beside(Beside::with(medium, synced, have), *at, more));
                assert!(reads >= Some(4), "{medium:?}: {reads:?} reads");
            }
        }
    }
}
