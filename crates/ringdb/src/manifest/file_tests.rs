//! Tests of the manifest file: reopened, torn, damaged, rewritten.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use proptest::prelude::*;

use super::super::edit::tests::meta;
use super::*;

fn home(dir: &Path) -> Arc<StoreDir> {
    StoreDir::open(&io(), dir).unwrap()
}

fn io() -> Io {
    Io::from_uri("posix").unwrap()
}

fn numbers() -> NextNumber {
    let n = AtomicU64::new(1);
    Arc::new(move || n.fetch_add(1, Ordering::Relaxed))
}

fn add(id: u64) -> VersionEdit {
    VersionEdit {
        added: vec![(0, meta(id, "a", &format!("b{id}")))],
        flushed_seq: Some(id),
        ..VersionEdit::default()
    }
}

/// A manifest of some edits, with the state and the file's length after each.
fn sample(dir: &Path) -> (ManifestFile, Vec<(u64, ManifestState)>) {
    let mut m = ManifestFile::create(&io(), &home(dir), ManifestState::default(), numbers()).unwrap();
    let mut steps = vec![(m.len(), m.state().clone())];
    for id in 100..106 {
        m.append(&add(id)).unwrap();
        steps.push((m.len(), m.state().clone()));
    }
    (m, steps)
}

fn load(dir: &Path) -> Result<Loaded> {
    Ok(ManifestFile::load(&io(), dir)?.expect("CURRENT is there"))
}

#[test]
fn edits_are_read_back() {
    let dir = tempfile::tempdir().unwrap();
    assert!(ManifestFile::load(&io(), dir.path()).unwrap().is_none());
    let (mut m, steps) = sample(dir.path());
    let loaded = load(dir.path()).unwrap();
    assert_eq!((&loaded.state, loaded.number, loaded.torn_at), (m.state(), m.number(), None));
    assert_eq!(loaded.state, steps.last().unwrap().1);
    assert!(matches!(
        m.append(&VersionEdit { removed: vec![(0, 1)], ..VersionEdit::default() }),
        Err(Error::Invalid(_))
    ));
}

#[test]
fn every_cut_gives_the_state_before_it_or_corrupt() {
    let dir = tempfile::tempdir().unwrap();
    let (m, steps) = sample(dir.path());
    let path = FileKind::Manifest(m.number()).path(dir.path());
    drop(m);
    let whole = std::fs::read(&path).unwrap();
    for cut in 0..whole.len() {
        // Cut short, and grown without its bytes written.
        for zeros in [0, 5, 5000] {
            let mut b = whole[..cut].to_vec();
            b.resize(cut + zeros, 0);
            std::fs::write(&path, &b).unwrap();
            // The file says that all but its last record was durable.
            if (cut as u64) < steps[steps.len() - 2].0 {
                assert!(matches!(load(dir.path()), Err(Error::Corrupt { .. })), "cut {cut}");
                continue;
            }
            let acknowledged = steps.iter().rfind(|(len, _)| *len <= cut as u64);
            match (load(dir.path()), acknowledged) {
                (Ok(l), Some((len, state))) => {
                    assert_eq!(&l.state, state, "cut {cut}");
                    assert_eq!(l.torn_at.is_some(), b.len() as u64 > *len);
                }
                // Zeros inside of a record are indistinguishable from damage to it.
                (Err(Error::Corrupt { .. }), _) => assert!(acknowledged.is_none() || zeros > 0, "cut {cut}"),
                (r, a) => panic!("cut {cut}: {r:?} instead of {a:?}"),
            }
        }
    }
}

#[test]
fn every_damaged_byte_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let (m, _) = sample(dir.path());
    let path = FileKind::Manifest(m.number()).path(dir.path());
    let whole = std::fs::read(&path).unwrap();
    for i in 0..whole.len() {
        let mut b = whole.clone();
        b[i] ^= 1 << (i % 8);
        std::fs::write(&path, &b).unwrap();
        match load(dir.path()) {
            // A mark that was torn as it was written says nothing; the rest is there.
            Ok(l) if (HEADER_BYTES..FIRST_RECORD as usize).contains(&i) => assert_eq!(l.state, *m.state()),
            Err(Error::Corrupt { path: p, .. }) => assert_eq!(p, path),
            r => panic!("byte {i}: {r:?}"),
        }
    }
}

#[test]
fn a_sealed_manifest_misses_its_last_record() {
    let dir = tempfile::tempdir().unwrap();
    let (mut m, steps) = sample(dir.path());
    let path = FileKind::Manifest(m.number()).path(dir.path());
    let last = steps[steps.len() - 2].0 as usize;
    for sealed in [false, true] {
        if sealed {
            m.seal().unwrap();
        }
        let whole = std::fs::read(&path).unwrap();
        for harm in 0..3 {
            let mut b = whole.clone();
            match harm {
                0 => b.truncate(last),
                1 => b.truncate(whole.len() - 1),
                _ => b[last..].fill(0),
            }
            std::fs::write(&path, &b).unwrap();
            assert_eq!(load(dir.path()).is_err(), sealed, "harm {harm}, sealed {sealed}");
        }
        std::fs::write(&path, &whole).unwrap();
        assert_eq!(load(dir.path()).unwrap().state, *m.state());
    }
}

#[test]
fn a_manifest_without_a_mark_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let (m, steps) = sample(dir.path());
    let path = FileKind::Manifest(m.number()).path(dir.path());
    let mut bytes = encode_header(m.number(), 0, FormatVersion::V1).to_vec();
    for state in [&steps[0].1, m.state()] {
        let mut edit = state.snapshot();
        if bytes.len() > HEADER_BYTES {
            edit = VersionEdit { flushed_seq: Some(105), ..VersionEdit::default() };
        }
        bytes.extend(encode_record((m.number(), None), bytes.len() as u64, &edit).unwrap());
    }
    std::fs::write(&path, &bytes).unwrap();
    assert_eq!(load(dir.path()).unwrap().state.flushed_seq, 105);
}

#[test]
fn every_torn_append_gives_the_state_before_it() {
    let dir = tempfile::tempdir().unwrap();
    let (mut m, _) = sample(dir.path());
    let path = FileKind::Manifest(m.number()).path(dir.path());
    // A record over several sectors that begins and ends within one.
    let (before, start) = (m.state().clone(), m.len() as usize);
    let added = (200..320).map(|id| (0, meta(id, "a", &format!("b{id}")))).collect();
    m.append(&VersionEdit { added, ..VersionEdit::default() }).unwrap();
    let (after, whole) = (m.state().clone(), std::fs::read(&path).unwrap());
    let sectors: Vec<_> = (start / 512..whole.len().div_ceil(512)).collect();
    assert!((3..10).contains(&sectors.len()));
    for kept in 0..1u32 << sectors.len() {
        let mut b = whole.clone();
        for (_, s) in sectors.iter().enumerate().filter(|(i, _)| (kept >> i) & 1 == 0) {
            let end = (s * 512 + 512).min(b.len());
            b[(s * 512).max(start)..end].fill(0);
        }
        std::fs::write(&path, &b).unwrap();
        let loaded = load(dir.path()).unwrap();
        let all = kept + 1 == 1 << sectors.len();
        assert_eq!(loaded.state, if all { after.clone() } else { before.clone() }, "sectors {kept:b}");
    }
    // The same in the middle of the file is damage: what follows was acknowledged after it.
    std::fs::write(&path, &whole).unwrap();
    m.append(&add(400)).unwrap();
    let mut b = std::fs::read(&path).unwrap();
    b[sectors[1] * 512..sectors[1] * 512 + 512].fill(0);
    std::fs::write(&path, &b).unwrap();
    assert!(matches!(load(dir.path()), Err(Error::Corrupt { .. })));
}

#[test]
fn a_newer_format_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let (m, _) = sample(dir.path());
    let path = FileKind::Manifest(m.number()).path(dir.path());
    let mut b = std::fs::read(&path).unwrap();
    b[8] = 4;
    let crc = crc32c(0, &b[..24]);
    b[24..28].copy_from_slice(&crc.to_le_bytes());
    std::fs::write(&path, &b).unwrap();
    assert!(matches!(load(dir.path()), Err(Error::NewerFormat { found: 4, newest: 3, .. })));
}

#[test]
fn a_large_manifest_goes_on_in_a_new_file() {
    let dir = tempfile::tempdir().unwrap();
    let (mut m, _) = sample(dir.path());
    m.rewrite_at(1000);
    let first = m.number();
    let mut largest = 0;
    for id in 200..400 {
        m.append(&VersionEdit { removed: vec![(0, if id == 200 { 100 } else { id - 1 })], ..add(id) })
            .unwrap();
        largest = largest.max(m.len());
        assert_eq!(load(dir.path()).unwrap().state, *m.state());
    }
    assert!(m.number() > first && largest < 2000, "{largest}");
    let mut left: Vec<String> = std::fs::read_dir(dir.path())
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    left.sort();
    assert_eq!(left, ["CURRENT".to_string(), FileKind::Manifest(m.number()).name()]);
}

#[test]
fn reopening_begins_a_new_file_behind_a_torn_one() {
    let dir = tempfile::tempdir().unwrap();
    let (m, steps) = sample(dir.path());
    let path = FileKind::Manifest(m.number()).path(dir.path());
    drop(m);
    let whole = std::fs::read(&path).unwrap();
    std::fs::write(&path, &whole[..whole.len() - 3]).unwrap();
    let loaded = load(dir.path()).unwrap();
    assert_eq!(loaded.torn_at, Some(steps[5].0));
    let n = AtomicU64::new(loaded.state.next_file_number);
    let next: NextNumber = Arc::new(move || n.fetch_add(1, Ordering::Relaxed));
    let mut m = ManifestFile::create(&io(), &home(dir.path()), loaded.state, next).unwrap();
    m.append(&add(300)).unwrap();
    assert!(!path.exists());
    assert_eq!(load(dir.path()).unwrap().state, *m.state());
}

#[test]
fn a_wrong_current_is_corrupt() {
    let dir = tempfile::tempdir().unwrap();
    let current = FileKind::Current.path(dir.path());
    let names =
        ["", "MANIFEST-000001", "MANIFEST-1\n", "x\n", "MANIFEST-000001\n\n", "000001.log\n", "\u{fffd}\n"];
    for text in names {
        std::fs::write(&current, text).unwrap();
        assert!(matches!(ManifestFile::load(&io(), dir.path()), Err(Error::Corrupt { .. })), "{text:?}");
    }
    // The manifest that it names is not there.
    std::fs::write(&current, "MANIFEST-000001\n").unwrap();
    assert!(matches!(ManifestFile::load(&io(), dir.path()), Err(Error::Corrupt { .. })));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn random_and_mutated_files_never_panic(
        noise in proptest::collection::vec(any::<u8>(), 0..300),
        at in any::<proptest::sample::Index>(),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let (m, steps) = sample(dir.path());
        let path = FileKind::Manifest(m.number()).path(dir.path());
        let whole = std::fs::read(&path).unwrap();
        let start = at.index(whole.len());
        let mut b = whole.clone();
        for (x, n) in b[start..].iter_mut().zip(&noise) {
            *x = *n;
        }
        std::fs::write(&path, &b).unwrap();
        match load(dir.path()) {
            Ok(l) => prop_assert!(steps.iter().any(|(_, s)| *s == l.state)),
            Err(e) => prop_assert!(matches!(e, Error::Corrupt { .. }), "{e}"),
        }
        std::fs::write(&path, &noise).unwrap();
        prop_assert!(load(dir.path()).is_err());
    }
}
