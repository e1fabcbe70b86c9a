//! Crash images: what a power cut, a torn write or a flipped bit leaves of a log, and what replay makes of it.

use std::path::Path;

use proptest::prelude::*;

use super::frame::FIRST_FRAME;
use super::replay::ReplayEnd;
use super::segment::segment_path;
use super::tests::{MEDIA, home, io, numbers, payload, replay_all, replay_from, segments, small};
use super::*;
use crate::Error;

type Image = std::collections::BTreeMap<u64, Vec<u8>>;

fn image(dir: &Path) -> Image {
    segments(dir).into_iter().map(|n| (n, std::fs::read(segment_path(dir, n)).unwrap())).collect()
}

fn write_image(dir: &Path, image: &Image) {
    for n in segments(dir) {
        std::fs::remove_file(segment_path(dir, n)).unwrap();
    }
    for (n, bytes) in image {
        std::fs::write(segment_path(dir, *n), bytes).unwrap();
    }
}

/// Written frames with what was acknowledged as durable, and the files then and at the end.
struct Written {
    dir: tempfile::TempDir,
    frames: Vec<(u64, Vec<u8>)>,
    acknowledged: usize,
    synced: Image,
    end: Image,
}

/// Frames of the given lengths, of which the first `sync_at` are made durable before the rest is appended. The
/// segments have had a former life with frames of the same lengths.
fn write(medium: Medium, lens: &[usize], sync_at: usize) -> Written {
    let dir = tempfile::tempdir().unwrap();
    let (log, mut w) = Log::create(&io(), &home(dir.path()), small(medium), numbers(1)).unwrap();
    let former = 3 * lens.len();
    for seq in 1..=former as u64 {
        let p = payload(seq + 1000, lens[seq as usize % lens.len()]);
        w.append(seq, &[&p]).unwrap();
    }
    // A frame that fills the segment, so that the log goes on in a recycled one, in order to forget the rest.
    let at = w.segment();
    let mut seq = former as u64;
    while w.segment() == at {
        seq += 1;
        w.append(seq, &[&payload(seq, 30_000)]).unwrap();
    }
    log.release(w.segment());
    let at = w.segment();
    log.prepare().unwrap();
    while w.segment() == at {
        seq += 1;
        w.append(seq, &[&payload(seq, 30_000)]).unwrap();
    }
    log.release(w.segment());
    for n in segments(dir.path()) {
        if n < w.segment() && log.first_live() <= n {
            panic!("segment {n} should have been released");
        }
    }
    let mut frames = vec![];
    // What is live in the active segment already.
    let (got, end) =
        replay_from(dir.path(), &ReplayFrom { first_segment: w.segment(), ..ReplayFrom::default() });
    end.unwrap();
    frames.extend(got);
    let mut pos = LogPos::default();
    let mut reserved = vec![];
    let mut synced = image(dir.path());
    let mut acknowledged = 0;
    for (i, len) in lens.iter().enumerate() {
        seq += 1;
        let p = payload(seq, *len);
        if medium == Medium::Direct && i >= sync_at {
            reserved.push(w.reserve(seq, &[&p]).unwrap());
        } else {
            pos = w.append(seq, &[&p]).unwrap();
        }
        frames.push((seq, p));
        if i + 1 == sync_at {
            log.sync_to(pos).unwrap();
            acknowledged = frames.len();
            synced = image(dir.path());
        }
    }
    for r in reserved {
        drop(log.write(r).unwrap());
    }
    let first = log.first_live();
    let live = |i: Image| i.into_iter().filter(|(n, _)| *n >= first).collect();
    let (synced, end) = (live(synced), live(image(dir.path())));
    write_image(dir.path(), &end);
    Written { dir, frames, acknowledged, synced, end }
}

fn replay_live(w: &Written) -> (Vec<(u64, Vec<u8>)>, Result<ReplayEnd>) {
    let first = *w.end.keys().next().unwrap();
    replay_from(
        w.dir.path(),
        &ReplayFrom { first_segment: first, flushed_seq: 0, recover_damaged: false, ..ReplayFrom::default() },
    )
}

/// Some lengths, enough for a few segments.
fn lengths() -> impl Strategy<Value = Vec<usize>> {
    prop_oneof![
        proptest::collection::vec(1usize..9000, 8..30),
        // All of one length, so that frames of a former life begin at the same offsets.
        (1usize..9000, 8usize..30).prop_map(|(len, n)| vec![len; n]),
        proptest::collection::vec(prop_oneof![1usize..200, Just(70_000)], 8..20),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    /// A power cut: of everything written since the last sync, any pages may be missing.
    #[test]
    fn a_power_cut_leaves_a_prefix_with_everything_acknowledged(
        lens in lengths(),
        sync_at in any::<proptest::sample::Index>(),
        keep in proptest::collection::vec(any::<bool>(), 64),
        names in proptest::collection::vec(any::<bool>(), 8),
        medium in proptest::sample::select(MEDIA.to_vec()),
    ) {
        let w = write(medium, &lens, sync_at.index(lens.len()) + 1);
        let (got, end) = replay_live(&w);
        end.unwrap();
        prop_assert!(got == w.frames, "without a crash everything is there");
        let mut crashed = Image::new();
        let mut page = 0;
        for (i, (n, new)) in w.end.iter().enumerate() {
            let old = w.synced.get(n);
            if old.is_none() && !names[i % names.len()] {
                continue;
            }
            let mut bytes = old.cloned().unwrap_or_else(|| vec![0; new.len()]);
            for (to, from) in bytes.chunks_mut(4096).zip(new.chunks(4096)) {
                if to != from {
                    page += 1;
                    if keep[page % keep.len()] {
                        to.copy_from_slice(from);
                    }
                }
            }
            crashed.insert(*n, bytes);
        }
        write_image(w.dir.path(), &crashed);
        let (got, end) = replay_live(&w);
        prop_assert!(end.is_ok(), "{:?}: {end:?}", medium);
        prop_assert!(w.frames.starts_with(&got), "{:?}", medium);
        prop_assert!(got.len() >= w.acknowledged, "{:?}: {} of {}", medium, got.len(), w.acknowledged);
    }

    /// A damaged byte: never a wrong frame, and never silently less than what is known to be durable.
    #[test]
    fn damage_gives_a_prefix_or_corrupt(
        lens in lengths(),
        damage in proptest::collection::vec((any::<proptest::sample::Index>(), any::<proptest::sample::Index>(), 1u8..), 1..3),
        medium in proptest::sample::select(MEDIA.to_vec()),
    ) {
        // The last frame says that all before the one before are durable.
        let w = write(medium, &lens, lens.len() - 1);
        let mut image = w.end.clone();
        let ns: Vec<u64> = image.keys().copied().collect();
        let mut known = true;
        let last = w.frames.last().unwrap().1.clone();
        for (n, at, x) in damage {
            let bytes = image.get_mut(n.get(&ns)).unwrap();
            let i = at.index(bytes.len());
            bytes[i] ^= x;
        }
        // The frame that says so must itself be there.
        for (n, bytes) in &image {
            if bytes != &w.end[n] && w.synced.get(n) != w.end.get(n) {
                known &= bytes.windows(last.len()).any(|b| b == last);
            }
        }
        write_image(w.dir.path(), &image);
        let (got, end) = replay_live(&w);
        prop_assert!(w.frames.starts_with(&got));
        match end {
            Ok(_) => prop_assert!(got.len() >= w.acknowledged || !known, "{} of {}", got.len(), w.acknowledged),
            Err(Error::Corrupt { .. }) => {
                let first = ns[0];
                let from = ReplayFrom { first_segment: first, flushed_seq: 0, recover_damaged: true, ..ReplayFrom::default() };
                let (again, end) = replay_from(w.dir.path(), &from);
                prop_assert!(again == got);
                prop_assert!(end.unwrap().lost.is_some());
            }
            Err(e) => prop_assert!(false, "{e}"),
        }
    }

    /// Any bytes at all under a segment's name.
    #[test]
    fn garbage_is_no_log(noise in proptest::collection::vec(any::<u8>(), 0..3000), at in 0usize..9000) {
        let dir = tempfile::tempdir().unwrap();
        let mut bytes = vec![0; at];
        bytes.extend(noise);
        std::fs::write(segment_path(dir.path(), 3), &bytes).unwrap();
        let (got, end) = replay_all(dir.path());
        prop_assert_eq!((got.len(), end.unwrap().end), (0, LogPos::default()));
    }
}

#[test]
fn every_cut_of_the_last_segment_leaves_a_prefix() {
    for medium in MEDIA {
        let w = write(medium, &[100, 300, 7, 500, 64], 3);
        let (n, whole) = w.end.last_key_value().unwrap();
        let used = whole.iter().rposition(|b| *b != 0).unwrap().min(40_000);
        let path = segment_path(w.dir.path(), *n);
        let step = if medium == Medium::Direct { 61 } else { 1 };
        for cut in (0..4200).step_by(197).chain((used.saturating_sub(700)..used + 40).step_by(step)) {
            std::fs::write(&path, &whole[..cut]).unwrap();
            let (got, end) = replay_live(&w);
            assert!(w.frames.starts_with(&got), "{medium:?} {cut}");
            assert!(matches!(end, Ok(_) | Err(Error::Corrupt { .. })));
        }
    }
}

#[test]
fn a_missing_segment_is_damage_and_says_which() {
    for medium in MEDIA {
        let w = write(medium, &[20_000; 12], 11);
        assert!(w.end.len() >= 3);
        let missing = *w.end.keys().nth(1).unwrap();
        std::fs::remove_file(segment_path(w.dir.path(), missing)).unwrap();
        match replay_live(&w).1 {
            Err(Error::Corrupt { path, .. }) => assert_eq!(path, segment_path(w.dir.path(), missing)),
            r => panic!("{r:?}"),
        }
        // Without the first one, too.
        let w = write(medium, &[20_000; 12], 11);
        let first = *w.end.keys().next().unwrap();
        std::fs::remove_file(segment_path(w.dir.path(), first)).unwrap();
        let from = ReplayFrom { first_segment: first, ..ReplayFrom::default() };
        assert!(matches!(replay_from(w.dir.path(), &from).1, Err(Error::Corrupt { .. })));
    }
}

#[test]
fn a_newer_segment_is_refused_by_name() {
    let w = write(Medium::Pwrite, &[100, 100], 1);
    let (n, mut bytes) = w.end.last_key_value().map(|(n, b)| (*n, b.clone())).unwrap();
    bytes[8] = 4;
    let crc = crate::coding::crc32c(0, &bytes[..32]);
    bytes[32..36].copy_from_slice(&crc.to_le_bytes());
    std::fs::write(segment_path(w.dir.path(), n), &bytes).unwrap();
    assert!(matches!(replay_live(&w).1, Err(Error::NewerFormat { found: 4, newest: 3, .. })));
}

#[test]
fn a_former_life_of_equal_frames_stays_dead() {
    // Every frame has one length, so each lies exactly where one of the former life did.
    for medium in MEDIA {
        let w = write(medium, &[4000; 10], 4);
        let (got, end) = replay_live(&w);
        end.unwrap();
        assert!(got == w.frames, "{medium:?}");
        // The old file of a recycled segment under its new name, before anything was written to it.
        let (n, bytes) = w.end.last_key_value().unwrap();
        std::fs::write(segment_path(w.dir.path(), n + 7), bytes).unwrap();
        let (got, end) = replay_live(&w);
        end.unwrap();
        assert!(got == w.frames, "{medium:?}");
    }
}

#[test]
fn what_was_durable_before_the_log_begins_proves_nothing() {
    for medium in MEDIA {
        let dir = tempfile::tempdir().unwrap();
        let (log, mut w) = Log::create(&io(), &home(dir.path()), small(medium), numbers(1)).unwrap();
        let pos = w.append(1, &[&payload(1, 30_000)]).unwrap();
        log.sync_to(pos).unwrap();
        let (at, mut seq) = (w.segment(), 1);
        while w.segment() == at {
            seq += 1;
            w.append(seq, &[&payload(seq, 30_000)]).unwrap();
        }
        let first = w.segment();
        w.append(seq + 1, &[&payload(seq + 1, 100)]).unwrap();
        // The beginning of the first live segment has not reached the disk; a later frame has, and it says that
        // some of the segment before was durable.
        let mut image = image(dir.path());
        image.get_mut(&first).unwrap()[FIRST_FRAME as usize..][..8192].fill(0);
        write_image(dir.path(), &image);
        let from = ReplayFrom {
            first_segment: first,
            flushed_seq: seq,
            recover_damaged: false,
            ..ReplayFrom::default()
        };
        let (frames, end) = replay_from(dir.path(), &from);
        if medium == Medium::Direct {
            // These were durable when they were appended.
            assert!(matches!(end, Err(Error::Corrupt { .. })), "{end:?}");
        } else {
            assert_eq!((frames.len(), end.unwrap().frames), (0, 0));
        }
    }
}

#[test]
fn a_log_that_grows_while_it_is_read_is_not_damaged() {
    for medium in MEDIA {
        let dir = tempfile::tempdir().unwrap();
        let (log, mut w) = Log::create(&io(), &home(dir.path()), small(medium), numbers(1)).unwrap();
        w.append(1, &[&payload(1, 100)]).unwrap();
        let (mut seq, mut seen) = (1, vec![]);
        let end =
            replay(&io(), dir.path(), &segments(dir.path()), &ReplayFrom::default(), &mut |first, _| {
                seen.push(first);
                // The reader is at its first frame and has the rest of the segment, empty, in its buffer.
                for _ in 0..3 {
                    seq += 1;
                    let pos = w.append(seq, &[&payload(seq, 100)])?;
                    log.sync_to(pos)?;
                }
                Ok(())
            });
        let end = end.unwrap_or_else(|e| panic!("{medium:?}: {e}"));
        assert_eq!((seen, end.frames), (vec![1], 1), "{medium:?}");
    }
}
