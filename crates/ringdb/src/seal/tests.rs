use std::collections::BTreeSet;
use std::path::Path;

use engineswap::Io;

use super::provider::{KeyError, KeyProvider, Provider};
use super::ring::{for_one, for_writing, of_file, with_keys};
use super::static_keys::StaticKeys;
use super::*;

fn seal(key: u8, salt: u8) -> Seal {
    Seal::new(&EncryptionKey::new([key; 32]), Stamp { key: 1, salt: [salt; 16] })
}

const UNITS: [Unit; 8] = [
    Unit::Block { file: 7, number: 0 },
    Unit::Block { file: 7, number: 1 },
    Unit::Block { file: 8, number: 0 },
    Unit::Section { file: 7, number: 0 },
    Unit::Section { file: 7, number: 1 },
    Unit::Frame { segment: 7, offset: 4096 },
    Unit::Frame { segment: 7, offset: 4104 },
    Unit::Record { offset: 7 },
];

#[test]
fn what_is_sealed_opens_at_its_place_and_nowhere_else() {
    let own = seal(1, 2);
    let mut bytes = b"front, and a secret".to_vec();
    own.close_vec(UNITS[0], b"with", &mut bytes, 5);
    assert_eq!(bytes.len(), 19 + TAG_BYTES);
    assert_eq!(&bytes[..5], b"front");
    assert!(!bytes.windows(6).any(|w| w == b"secret"));
    assert_eq!(own.opened(UNITS[0], b"with", &bytes[5..]).as_deref(), Some(&b", and a secret"[..]));
    for unit in &UNITS[1..] {
        assert_eq!(own.opened(*unit, b"with", &bytes[5..]), None, "{unit:?}");
    }
    assert_eq!(own.opened(UNITS[0], b"without", &bytes[5..]), None);
    for other in [seal(2, 2), seal(1, 3)] {
        assert_eq!(other.opened(UNITS[0], b"with", &bytes[5..]), None);
    }
    for i in 5..bytes.len() {
        let mut altered = bytes.clone();
        altered[i] ^= 0x40;
        assert_eq!(own.opened(UNITS[0], b"with", &altered[5..]), None, "byte {i}");
        assert_eq!(own.opened(UNITS[0], b"with", &bytes[5..i]), None, "cut at {i}");
    }
}

#[test]
fn no_two_places_have_one_nonce() {
    let nonces: BTreeSet<_> = UNITS.iter().map(|u| u.nonce()).collect();
    assert_eq!(nonces.len(), UNITS.len());
    let largest = crate::files::MAX_NUMBER;
    let kinds = [
        Unit::Block { file: largest - 1, number: 0 },
        Unit::Section { file: largest - 1, number: 0 },
        Unit::Frame { segment: largest - 1, offset: 0 },
        Unit::Record { offset: largest - 1 },
    ];
    assert_eq!(kinds.iter().map(|u| u.nonce()).collect::<BTreeSet<_>>().len(), kinds.len());
}

#[test]
fn the_bytes_stay_what_they_are() {
    // What a release has written must be readable by all later ones.
    let mut bytes = b"apple".to_vec();
    let key = EncryptionKey::new(std::array::from_fn(|i| i as u8));
    let stamp = Stamp { key: 258, salt: std::array::from_fn(|i| 0xF0 + i as u8) };
    Seal::new(&key, stamp).close_vec(Unit::Block { file: 3, number: 2 }, b"x", &mut bytes, 0);
    let hex: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
    assert_eq!(hex, "ceefc4feccd070dd08cc6ad9510bebc81813705fc1");
    let encoded = Stamp::encode(Some(&stamp));
    assert_eq!(encoded[..5], [2, 1, 0, 0, 0xF0]);
    assert_eq!(Stamp::decode(&encoded), Some(stamp));
    assert_eq!(Stamp::decode(&Stamp::encode(None)), None);
}

#[test]
fn texts_of_keys_are_read_and_mistakes_name_their_line() {
    let hex = |digit: &str| digit.repeat(64);
    let keys =
        StaticKeys::from_text(&format!("# ours\n\n1 {}\n  20\t{}  \n", hex("a"), hex("B"))).expect("keys");
    assert_eq!(keys.current().expect("a key"), 20);
    assert_eq!(keys.key(20).expect("a key").bytes(), &[0xBB; 32]);
    assert!(keys.key(2).is_err());
    for (text, what) in [
        (String::new(), "no encryption key"),
        (format!("1 {}", "a".repeat(63)), "line 1"),
        (format!("1 {}\nx {}", hex("a"), hex("a")), "line 2"),
        (format!("1 {}g", "a".repeat(63)), "line 1"),
        (format!("0 {}", hex("a")), "key 0"),
        (format!("1 {}\n1 {}", hex("a"), hex("c")), "two of that number"),
        (hex("a"), "line 1"),
    ] {
        let e = StaticKeys::from_text(&text).expect_err("a mistake").to_string();
        assert!(e.contains(what) && !e.contains("aaaa"), "{text}: {e}");
    }
    assert!(!format!("{keys:?}").contains("aa"));
}

fn plain() -> Io {
    Io::from_engine(engineswap::open_engine("posix").expect("posix"))
}

fn io(keys: impl KeyProvider) -> Io {
    let io = plain();
    with_keys(&io, &Provider(Some(std::sync::Arc::new(keys))))
}

#[test]
fn an_open_has_one_seal_for_what_it_writes_and_finds_those_of_others() {
    let keys = StaticKeys::new(3, EncryptionKey::new([3; 32])).expect("a key");
    let first = io(keys.clone());
    let writing = for_writing(&first).expect("keys").expect("a seal");
    assert_eq!(for_writing(&first).expect("keys").expect("a seal").stamp(), writing.stamp());
    let alone = for_one(&first).expect("keys").expect("a seal");
    assert_eq!(alone.stamp().key, 3);
    assert_ne!(alone.stamp(), writing.stamp());

    let mut bytes = b"secret".to_vec();
    writing.close_vec(UNITS[0], &[], &mut bytes, 0);
    let again = io(keys.with(4, EncryptionKey::new([4; 32])).expect("a key"));
    assert_eq!(for_writing(&again).expect("keys").expect("a seal").stamp().key, 4);
    let found = of_file(&again, Some(*writing.stamp()), Path::new("f")).expect("keys").expect("a seal");
    assert_eq!(found.opened(UNITS[0], &[], &bytes).as_deref(), Some(&b"secret"[..]));
    assert!(of_file(&again, None, Path::new("f")).expect("not sealed").is_none());
}

#[test]
fn what_is_missing_is_said() {
    struct Broken;
    impl KeyProvider for Broken {
        fn current(&self) -> Result<u32, KeyError> {
            Err("the vault is closed".into())
        }
        fn key(&self, _: u32) -> Result<EncryptionKey, KeyError> {
            Err("the vault is closed".into())
        }
    }
    let stamp = Some(Stamp { key: 9, salt: [0; 16] });
    for (io, what) in [
        (plain(), "no keys were given"),
        (io(StaticKeys::new(1, EncryptionKey::new([1; 32])).expect("a key")), "not among the keys"),
        (io(Broken), "the vault is closed"),
    ] {
        let e = of_file(&io, stamp, Path::new("/x/7.sst")).expect_err("no key");
        assert!(matches!(e, Error::Key { key: 9, .. }), "{e}");
        assert!(e.to_string().contains(what) && e.to_string().contains("/x/7.sst"), "{e}");
        assert_eq!(e.kind(), crate::ErrorKind::FixCall);
    }
    let e = for_writing(&io(Broken)).expect_err("no key");
    assert!(e.to_string().contains("the vault is closed"), "{e}");
}
