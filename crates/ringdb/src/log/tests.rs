//! The log as a whole: appended, synced, crashed, damaged, replayed.

use std::path::Path;

use crate::sync::atomic::AtomicU64;

use super::replay::ReplayEnd;
use super::segment::segment_path;
use super::*;
use crate::Error;
use crate::sync::lock;

pub(super) const MEDIA: [Medium; 3] = [Medium::Mapped, Medium::Pwrite, Medium::Direct];

pub(super) type Frames = Vec<(u64, Vec<u8>)>;

pub(super) fn home(dir: &Path) -> Arc<StoreDir> {
    StoreDir::open(&io(), dir).unwrap()
}

pub(super) fn io() -> Io {
    Io::from_uri("posix").unwrap()
}

pub(super) fn numbers(from: u64) -> NextNumber {
    let n = AtomicU64::new(from);
    Arc::new(move || n.fetch_add(1, Ordering::Relaxed))
}

pub(super) fn small(medium: Medium) -> LogOptions {
    LogOptions { medium, segment_bytes: 64 << 10, keep_free: 2, prepare_ahead: 1 }
}

pub(super) fn segments(dir: &Path) -> Vec<u64> {
    let names = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
    let mut found: Vec<u64> = names.filter_map(|n| crate::files::parse(&n)?.number()).collect();
    found.sort_unstable();
    found
}

pub(super) fn replay_from(dir: &Path, from: &ReplayFrom) -> (Frames, Result<ReplayEnd>) {
    let mut got = vec![];
    let end = replay(&io(), dir, &segments(dir), from, &mut |seq, payload| {
        got.push((seq, payload.to_vec()));
        Ok(())
    });
    (got, end)
}

pub(super) fn replay_all(dir: &Path) -> (Frames, Result<ReplayEnd>) {
    replay_from(dir, &ReplayFrom::default())
}

/// A payload that says which one it is.
pub(super) fn payload(seq: u64, len: usize) -> Vec<u8> {
    (0..len).map(|i| (seq as usize * 31 + i * 7) as u8 | 1).collect()
}

#[test]
fn what_is_appended_is_replayed_on_every_medium() {
    for medium in MEDIA {
        let dir = tempfile::tempdir().unwrap();
        let (log, mut w) = Log::create(&io(), &home(dir.path()), small(medium), numbers(5)).unwrap();
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
        let (_log, mut w) = Log::create(&io(), &home(dir.path()), small(medium), numbers(1)).unwrap();
        assert!(matches!(w.append(1, &[]), Err(Error::Invalid(_))));
        let (got, end) = replay_all(dir.path());
        assert_eq!((got.len(), end.unwrap().end), (0, LogPos::default()));
    }
}

#[test]
fn large_frames_have_segments_of_their_own() {
    for medium in MEDIA {
        let dir = tempfile::tempdir().unwrap();
        let (log, mut w) = Log::create(&io(), &home(dir.path()), small(medium), numbers(1)).unwrap();
        let mut want = vec![];
        let mut pos = LogPos::default();
        for (i, len) in [1_000_000, 5, 60_000, 70_000, 61_000, 300_000, 9].into_iter().enumerate() {
            let p = payload(i as u64 + 1, len);
            pos = w.append(i as u64 + 1, &[&p]).unwrap();
            want.push((i as u64 + 1, p));
        }
        log.sync_to(pos).unwrap();
        let (got, end) = replay_all(dir.path());
        assert_eq!(end.unwrap().end, pos, "{medium:?}");
        assert!(got == want, "{medium:?}");
        log.release(w.segment());
        let bytes = |n: u64| segment_path(dir.path(), n).metadata().unwrap().len();
        let left = segments(dir.path());
        let idle = left.iter().copied().filter(|n| *n != w.segment());
        assert!(idle.clone().count() > 0 && idle.map(bytes).all(|b| b == 64 << 10), "{medium:?}: {left:?}");
        assert_eq!(log.bytes(), left.into_iter().map(bytes).sum::<u64>());
    }
}

#[test]
fn segments_are_prepared_recycled_and_removed() {
    for medium in MEDIA {
        let dir = tempfile::tempdir().unwrap();
        let (log, mut w) = Log::create(&io(), &home(dir.path()), small(medium), numbers(1)).unwrap();
        let p = payload(1, 20_000);
        let mut seq = 0;
        let mut fill = |w: &mut LogWriter, n: u64| {
            for _ in 0..n {
                seq += 1;
                w.append(seq, &[&p]).unwrap();
            }
        };
        fill(&mut w, 20);
        let before = segments(dir.path());
        assert!(before.len() > 5);
        log.release(w.segment());
        assert_eq!(segments(dir.path()).len(), 3, "the active one and two free ones");
        assert_eq!(log.first_live(), w.segment());
        assert!(log.needs_prepare());
        log.prepare().unwrap();
        assert!(!log.needs_prepare());
        let total = log.bytes();
        let at = w.segment();
        fill(&mut w, 3);
        assert!(w.segment() > at);
        assert_eq!(log.bytes(), total, "{medium:?}: a recycled segment, not a new one");
        fill(&mut w, 30);
        let mut got = vec![];
        let from = ReplayFrom {
            first_segment: at,
            flushed_seq: 20,
            recover_damaged: false,
            ..ReplayFrom::default()
        };
        replay(&io(), dir.path(), &segments(dir.path()), &from, &mut |seq, b| {
            assert!(b == p);
            got.push(seq);
            Ok(())
        })
        .unwrap();
        assert!(got.iter().copied().eq(21..=53), "{medium:?} {got:?}");
    }
}

#[test]
fn a_segment_made_on_demand_may_overtake_a_prepared_one() {
    let dir = tempfile::tempdir().unwrap();
    let (log, mut w) = Log::create(&io(), &home(dir.path()), small(Medium::Pwrite), numbers(1)).unwrap();
    log.prepare().unwrap();
    let mut want = vec![];
    // A large frame takes a number above the prepared segment's.
    for (seq, len) in [(1, 9), (2, 500_000), (3, 9), (4, 40_000), (5, 40_000), (6, 40_000)] {
        let p = payload(seq, len);
        w.append(seq, &[&p]).unwrap();
        want.push((seq, p));
        if seq == 3 {
            log.prepare().unwrap();
        }
        let (got, end) = replay_all(dir.path());
        end.unwrap();
        assert!(got == want, "{seq}");
    }
}

#[test]
fn a_segment_that_was_overtaken_is_not_mapped() {
    let dir = tempfile::tempdir().unwrap();
    let options = small(Medium::Mapped);
    let (log, mut w) = Log::create(&io(), &home(dir.path()), options, numbers(1)).unwrap();
    log.prepare().unwrap();
    assert_eq!(log.mapped_bytes(), 2 * options.segment_bytes);
    // A large frame takes a number above the prepared segment's, and the next frame needs one above that.
    for (seq, len) in [(1, 9), (2, 500_000), (3, 40_000)] {
        w.append(seq, &[&payload(seq, len)]).unwrap();
    }
    assert_eq!(log.mapped_bytes(), options.segment_bytes, "the active one is the only one that is written");
}

#[test]
fn concurrent_writers_lose_nothing() {
    for medium in MEDIA {
        let dir = tempfile::tempdir().unwrap();
        let (log, w) = Log::create(&io(), &home(dir.path()), small(medium), numbers(1)).unwrap();
        let writer = Mutex::new((w, 0));
        let applied = Mutex::new(vec![]);
        std::thread::scope(|s| {
            for t in 0..6 {
                let (log, writer, applied) = (&log, &writer, &applied);
                s.spawn(move || {
                    for i in 0..40 {
                        let mut w = lock(writer);
                        w.1 += 1;
                        let seq = w.1;
                        let p = payload(seq, (t * 977 + i * 331) % 6000 + 1);
                        if medium == Medium::Direct {
                            let frame = w.0.reserve(seq, &[&p]).unwrap();
                            drop(w);
                            let turn = log.write(frame).unwrap();
                            lock(applied).push((seq, p));
                            drop(turn);
                        } else {
                            let pos = w.0.append(seq, &[&p]).unwrap();
                            lock(applied).push((seq, p));
                            drop(w);
                            if i % 3 == 0 {
                                log.sync_to(pos).unwrap();
                            }
                        }
                    }
                });
            }
            s.spawn(|| (0..50).for_each(|_| log.prepare().unwrap()));
        });
        let applied = lock(&applied);
        assert!(applied.is_sorted_by_key(|f| f.0), "{medium:?}: turns come in order");
        assert_eq!(applied.len(), 240);
        let (got, end) = replay_all(dir.path());
        end.unwrap();
        assert!(got == *applied, "{medium:?}");
    }
}

#[test]
fn a_reservation_given_up_stops_the_log_behind_it() {
    let dir = tempfile::tempdir().unwrap();
    let (log, mut w) = Log::create(&io(), &home(dir.path()), small(Medium::Direct), numbers(1)).unwrap();
    let first = w.reserve(1, &[b"a"]).unwrap();
    let second = w.reserve(2, &[b"b"]).unwrap();
    let third = w.reserve(3, &[b"c"]).unwrap();
    drop(second);
    assert!(matches!(log.write(third), Err(Error::Stopped(_))));
    drop(log.write(first).unwrap());
    assert!(matches!(w.reserve(4, &[b"d"]), Err(Error::Stopped(r)) if r.contains("given up")));
    assert!(log.latch.check().is_err());
    let (got, end) = replay_all(dir.path());
    end.unwrap();
    assert_eq!(got, [(1, b"a".to_vec())], "the third frame is on disk and must not come back");
}

#[test]
fn a_stopped_log_gives_its_first_reason() {
    let dir = tempfile::tempdir().unwrap();
    let (log, mut w) = Log::create(&io(), &home(dir.path()), small(Medium::Mapped), numbers(1)).unwrap();
    let pos = w.append(1, &[b"a"]).unwrap();
    log.latch.stop("the first");
    log.latch.stop("the second");
    assert!(matches!(w.append(2, &[b"b"]), Err(Error::Stopped(r)) if r == "the first"));
    assert!(matches!(log.sync_to(pos), Err(Error::Stopped(_))));
    assert!(matches!(log.prepare(), Err(Error::Stopped(_)) | Ok(())));
}

#[test]
#[should_panic(expected = "a segment is released once")]
fn a_segment_that_is_released_twice_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let (log, w) = Log::create(&io(), &home(dir.path()), small(Medium::Mapped), numbers(1)).unwrap();
    let twin = lock(&log.live)[0].clone();
    lock(&log.live).extend([twin.clone(), twin]);
    log.release(w.segment() + 1);
}
