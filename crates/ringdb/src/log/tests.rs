//! The log as a whole: appended, synced, crashed, damaged, replayed.

use std::collections::BTreeSet;
use std::sync::atomic::AtomicU64;

use super::*;
use crate::sync::lock;

const MEDIA: [Medium; 3] = [Medium::Mapped, Medium::Pwrite, Medium::Direct];

type Frames = Vec<(u64, Vec<u8>)>;

fn io() -> Io {
    Io::from_uri("posix").unwrap()
}

fn numbers(from: u64) -> NextNumber {
    let n = AtomicU64::new(from);
    Arc::new(move || n.fetch_add(1, Ordering::Relaxed))
}

fn small(medium: Medium) -> LogOptions {
    LogOptions { medium, segment_bytes: 64 << 10, keep_free: 2, prepare_ahead: 1 }
}

fn segments(dir: &Path) -> Vec<u64> {
    let names = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
    let mut found: Vec<u64> = names.filter_map(|n| crate::files::parse(&n)?.number()).collect();
    found.sort_unstable();
    found
}

fn replay_from(dir: &Path, from: &ReplayFrom) -> (Frames, Result<ReplayEnd>) {
    let mut got = vec![];
    let end = replay(&io(), dir, &segments(dir), from, &mut |seq, payload| {
        got.push((seq, payload.to_vec()));
        Ok(())
    });
    (got, end)
}

fn replay_all(dir: &Path) -> (Frames, Result<ReplayEnd>) {
    replay_from(dir, &ReplayFrom::default())
}

/// A payload that says which one it is.
fn payload(seq: u64, len: usize) -> Vec<u8> {
    (0..len).map(|i| (seq as usize * 31 + i * 7) as u8 | 1).collect()
}

#[test]
fn what_is_appended_is_replayed_on_every_medium() {
    for medium in MEDIA {
        let dir = tempfile::tempdir().unwrap();
        let (log, mut w) = Log::create(&io(), dir.path(), small(medium), numbers(5)).unwrap();
        let first = w.segment();
        let mut want = vec![];
        let mut pos = LogPos::default();
        for seq in 1..200 {
            let p = payload(seq, (seq as usize * 97) % 9000 + 1);
            let (a, b) = p.split_at(p.len() / 3);
            let at = w.append(seq, &[a, b]).unwrap();
            assert!(at > pos, "{medium:?}");
            pos = at;
            want.push((seq, p));
        }
        log.sync_to(pos).unwrap();
        let (got, end) = replay_all(dir.path());
        assert_eq!(end.unwrap().end, pos, "{medium:?}");
        assert!(got == want, "{medium:?}");
        assert!(w.segment() > first, "several segments");
        let from = ReplayFrom { flushed_seq: 150, ..ReplayFrom::default() };
        assert!(replay_from(dir.path(), &from).0 == want[150..], "{medium:?}");
    }
}

#[test]
fn an_empty_log_replays_to_nothing() {
    for medium in MEDIA {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(replay_all(dir.path()).1.unwrap().end, LogPos::default());
        let (_log, mut w) = Log::create(&io(), dir.path(), small(medium), numbers(1)).unwrap();
        assert!(matches!(w.append(1, &[]), Err(Error::Invalid(_))));
        let (got, end) = replay_all(dir.path());
        assert_eq!((got.len(), end.unwrap().end), (0, LogPos::default()));
    }
}
