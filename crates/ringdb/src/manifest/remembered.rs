//! [`Remembered`]: the settings of a keyspace's tables as the manifest has them.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::coding::{Reader, put_bytes, put_varint};
use crate::options::{Compression, KeyspaceOptions};

/// Settings with numbers from here on change what reads find: who does not know one cannot read the store.
const ESSENTIAL_FROM: u64 = 64;

mod number {
    pub const COMPRESSION: u64 = 1;
    pub const LAST_LEVEL_COMPRESSION: u64 = 2;
    pub const BLOCK_BYTES: u64 = 3;
    pub const FILTER_BITS_PER_KEY: u64 = 4;
    /// Who does not know it keeps all entries, as who knows it but not the filter.
    pub const COMPACTION_FILTER: u64 = 6;
    /// Who does not know operands takes them for values.
    pub const MERGE_OPERATOR: u64 = 65;
    /// In milliseconds. Who does not know it would write what never expires.
    pub const TIME_TO_LIVE: u64 = 66;
}

/// What is remembered of one keyspace; of the store, under the default keyspace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Remembered {
    pub known: KeyspaceOptions,
    /// Settings of a newer build, of which nothing but their numbers is known: kept as they are.
    others: BTreeMap<u64, Vec<u8>>,
}

impl From<KeyspaceOptions> for Remembered {
    fn from(known: KeyspaceOptions) -> Remembered {
        Remembered { known, others: BTreeMap::new() }
    }
}

impl Remembered {
    /// The same with what `given` has.
    pub fn with(&self, given: &KeyspaceOptions) -> Remembered {
        Remembered { known: given.over(&self.known), others: self.others.clone() }
    }

    /// Appends the encoding that [`Remembered::decode`] reads.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let k = &self.known;
        let known = [
            (number::COMPRESSION, k.compression.map(code)),
            (number::LAST_LEVEL_COMPRESSION, k.last_level_compression.map(code)),
            (number::BLOCK_BYTES, k.block_bytes.map(u64::from)),
            (number::FILTER_BITS_PER_KEY, k.filter_bits_per_key.map(u64::from)),
        ];
        for (number, value) in known {
            encode_int(out, number, value);
        }
        if let Some(name) = &k.compaction_filter {
            put_varint(out, number::COMPACTION_FILTER);
            put_bytes(out, name.as_bytes());
        }
        for (number, value) in &self.others {
            put_varint(out, *number);
            put_bytes(out, value);
        }
        if let Some(name) = &k.merge_operator {
            put_varint(out, number::MERGE_OPERATOR);
            put_bytes(out, name.as_bytes());
        }
        encode_int(out, number::TIME_TO_LIVE, k.time_to_live.map(|life| life.as_millis() as u64));
    }

    /// Reads settings that fill `bytes`; the error says what is wrong.
    pub fn decode(bytes: &[u8]) -> Result<Remembered, String> {
        let mut all = Remembered::default();
        let (mut r, mut last) = (Reader::new(bytes), 0);
        while !r.is_empty() {
            let field = r.varint().and_then(|number| Some((number, r.bytes()?)));
            let (number, value) = field.ok_or("a setting is cut off")?;
            if number <= last {
                return Err(format!("setting {number} follows setting {last}"));
            }
            last = number;
            all.set(number, value)?;
        }
        Ok(all)
    }

    fn set(&mut self, number: u64, value: &[u8]) -> Result<(), String> {
        let impossible = || format!("setting {number} is impossible");
        let int = || {
            let mut r = Reader::new(value);
            r.varint().filter(|_| r.is_empty()).ok_or_else(impossible)
        };
        let small = || u32::try_from(int()?).map_err(|_| impossible());
        let text = || std::str::from_utf8(value).map(String::from).map_err(|_| impossible());
        let compression = || decompress(int()?).ok_or_else(impossible);
        let k = &mut self.known;
        match number {
            number::COMPRESSION => k.compression = Some(compression()?),
            number::LAST_LEVEL_COMPRESSION => k.last_level_compression = Some(compression()?),
            number::BLOCK_BYTES => k.block_bytes = Some(small()?),
            number::FILTER_BITS_PER_KEY => k.filter_bits_per_key = Some(small()?),
            number::COMPACTION_FILTER => k.compaction_filter = Some(text()?),
            number::MERGE_OPERATOR => k.merge_operator = Some(text()?),
            number::TIME_TO_LIVE => k.time_to_live = Some(Duration::from_millis(int()?)),
            n if (1..ESSENTIAL_FROM).contains(&n) => drop(self.others.insert(number, value.to_vec())),
            _ => {
                return Err(format!(
                    "setting {number} changes what is read: use a newer ringdb, which knows it"
                ));
            }
        }
        self.known.validate().map_err(|e| e.to_string())
    }
}

fn encode_int(out: &mut Vec<u8>, number: u64, value: Option<u64>) {
    let Some(value) = value else { return };
    let mut bytes = Vec::new();
    put_varint(&mut bytes, value);
    put_varint(out, number);
    put_bytes(out, &bytes);
}

fn code(c: Compression) -> u64 {
    match c {
        Compression::None => 0,
        Compression::Lz4 => 1,
        Compression::Zstd => 2,
    }
}

fn decompress(code: u64) -> Option<Compression> {
    [Compression::None, Compression::Lz4, Compression::Zstd].into_iter().find(|c| self::code(*c) == code)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub fn sample() -> Remembered {
        let known = KeyspaceOptions::default().with_compression(Compression::Zstd).with_block_bytes(16 << 10);
        Remembered { known, others: BTreeMap::from([(9, b"newer".to_vec()), (63, vec![])]) }
    }

    fn encoded(r: &Remembered) -> Vec<u8> {
        let mut b = Vec::new();
        r.encode(&mut b);
        b
    }

    #[test]
    fn settings_read_back_with_those_of_a_newer_build() {
        let none = KeyspaceOptions::default()
            .with_compression(Compression::None)
            .with_last_level_compression(Compression::Lz4)
            .with_filter_bits_per_key(0)
            .with_merge_operator("append:;")
            .with_compaction_filter("old ones")
            .with_time_to_live(Duration::from_millis(1 << 40));
        let no_filter = KeyspaceOptions::default().with_compaction_filter("").into();
        for r in [sample(), Remembered::default(), none.into(), no_filter] {
            assert_eq!(Remembered::decode(&encoded(&r)), Ok(r));
        }
        let more = sample().with(&KeyspaceOptions::default().with_block_bytes(4096));
        assert_eq!((more.known.block_bytes, more.known.compression), (Some(4096), Some(Compression::Zstd)));
        assert_eq!(more.others, sample().others);
        let b = encoded(&sample());
        for cut in 0..b.len() {
            if let Ok(less) = Remembered::decode(&b[..cut]) {
                assert_eq!(encoded(&less), b[..cut]);
            }
        }
    }

    #[test]
    fn what_cannot_be_is_refused_and_so_is_what_changes_reads() {
        for (bytes, part) in [
            (&[64, 0][..], "use a newer ringdb"),
            (&[65, 1, 0xFF], "setting 65 is impossible"),
            (&[65, 0], "1 to 255 bytes"),
            (&[6, 1, 0xFF], "setting 6 is impossible"),
            (&[66, 2, 1, 0], "setting 66 is impossible"),
            (&[1, 1, 3], "setting 1 is impossible"),
            (&[1, 2, 1, 0], "setting 1 is impossible"),
            (&[1, 0], "setting 1 is impossible"),
            (&[3, 2, 0x88, 0x27], "block_bytes is 5000"),
            (&[4, 1, 65], "filter_bits_per_key is 65"),
            (&[3, 6, 0x80, 0x80, 0x80, 0x80, 0x80, 1], "setting 3 is impossible"),
            (&[2, 1, 1, 1, 1, 1], "setting 1 follows setting 2"),
            (&[9, 0, 9, 0], "setting 9 follows setting 9"),
            (&[0, 0], "setting 0"),
            (&[9], "cut off"),
            (&[9, 3, 0], "cut off"),
        ] {
            let e = Remembered::decode(bytes).unwrap_err();
            assert!(e.contains(part), "{bytes:?}: {e}");
        }
    }
}
