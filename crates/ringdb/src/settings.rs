//! [`SettingsMap`]: how the tables of each keyspace are written.

use crate::Options;
use crate::key::Prefix;
use crate::options::{Compression, KeyspaceOptions};
use crate::table::meta::TableMeta;

/// Filter bits that a key has more above the last level. Memory is spent best where levels' rates of false positives
/// are as their sizes (Dayan, Athanassoulis, Idreos: "Monkey", SIGMOD 2017): an eighth takes ln 8 / (ln 2)^2 = 4.3.
const MORE_BITS: u32 = 4;

/// How tables are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TableSettings {
    pub compression: Compression,
    pub last_level_compression: Compression,
    pub block_bytes: u32,
    pub filter_bits_per_key: u32,
}

impl TableSettings {
    /// The store's.
    pub fn of_store(o: &Options) -> TableSettings {
        TableSettings {
            compression: o.compression,
            last_level_compression: o.last_level_compression,
            block_bytes: o.block_bytes,
            filter_bits_per_key: o.filter_bits_per_key,
        }
    }

    /// These, but for what a keyspace has of its own.
    pub fn with(&self, own: &KeyspaceOptions) -> TableSettings {
        TableSettings {
            compression: own.compression.unwrap_or(self.compression),
            last_level_compression: own.last_level_compression.unwrap_or(self.last_level_compression),
            block_bytes: own.block_bytes.unwrap_or(self.block_bytes),
            filter_bits_per_key: own.filter_bits_per_key.unwrap_or(self.filter_bits_per_key),
        }
    }

    /// All of them, for the caller.
    pub fn to_options(self) -> KeyspaceOptions {
        KeyspaceOptions::default()
            .with_compression(self.compression)
            .with_last_level_compression(self.last_level_compression)
            .with_block_bytes(self.block_bytes)
            .with_filter_bits_per_key(self.filter_bits_per_key)
    }

    /// Puts them into the settings of a store.
    pub fn put_into(self, o: Options) -> Options {
        o.with_compression(self.compression)
            .with_last_level_compression(self.last_level_compression)
            .with_block_bytes(self.block_bytes)
            .with_filter_bits_per_key(self.filter_bits_per_key)
    }

    /// Of the last level, or of the others.
    pub fn compression_of(&self, last_level: bool) -> Compression {
        if last_level { self.last_level_compression } else { self.compression }
    }

    /// Of the last level, or of the others, which have few of the keys but are asked before it: there [`MORE_BITS`]
    /// more.
    pub fn filter_bits_of(&self, last_level: bool) -> u32 {
        match self.filter_bits_per_key {
            bits if bits == 0 || last_level => bits,
            bits => bits + MORE_BITS,
        }
    }

    fn rewrites_into_last(&self) -> bool {
        self.compression != self.last_level_compression
    }
}

/// Keyspaces side by side whose tables are written alike.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Region {
    /// Where its internal keys begin.
    from: Vec<u8>,
    settings: TableSettings,
}

/// How the tables of each keyspace are written. Immutable; keyspaces with other settings get another map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SettingsMap {
    first: TableSettings,
    /// The regions behind the first one, ascending, each different from the one before.
    rest: Vec<Region>,
}

impl SettingsMap {
    /// The same for all.
    pub fn uniform(settings: TableSettings) -> SettingsMap {
        SettingsMap { first: settings, rest: Vec::new() }
    }

    /// Those of the default keyspace, and of the others by ascending id. What is left of dropped keyspaces goes with
    /// the one before.
    pub fn new(default: TableSettings, others: impl Iterator<Item = (u32, TableSettings)>) -> SettingsMap {
        let mut map = SettingsMap::uniform(default);
        for (id, settings) in others {
            if *map.rest.last().map_or(&map.first, |r| &r.settings) != settings {
                map.rest.push(Region { from: Prefix::new(id).as_slice().to_vec(), settings });
            }
        }
        map
    }

    /// Which region a key is in, counted from 0.
    pub fn region_of(&self, internal: &[u8]) -> usize {
        self.rest.partition_point(|r| r.from.as_slice() <= internal)
    }

    /// How tables of a region are written.
    pub fn of_region(&self, region: usize) -> &TableSettings {
        region.checked_sub(1).and_then(|i| self.rest.get(i)).map_or(&self.first, |r| &r.settings)
    }

    /// Where the region behind this one begins.
    pub fn end_of(&self, region: usize) -> Option<&[u8]> {
        self.rest.get(region).map(|r| r.from.as_slice())
    }

    /// How many regions there are.
    pub fn regions(&self) -> usize {
        self.rest.len() + 1
    }

    /// The first and the last region of a table.
    pub fn regions_of(&self, m: &TableMeta) -> (usize, usize) {
        (self.region_of(&m.smallest), self.region_of(&m.largest))
    }

    /// Whether a table cannot go into the last level as it is.
    pub fn rewritten_into_last(&self, m: &TableMeta) -> bool {
        let (first, last) = self.regions_of(m);
        (first..=last).any(|r| self.of_region(r).rewrites_into_last())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(compression: Compression) -> TableSettings {
        TableSettings::of_store(&Options::default().with_compression(compression))
    }

    fn key(id: u32, user: &str) -> Vec<u8> {
        [Prefix::new(id).as_slice(), user.as_bytes()].concat()
    }

    /// A table with a key in either keyspace.
    fn table(from: u32, to: u32) -> TableMeta {
        TableMeta {
            given: 0,
            file_id: 1,
            file_bytes: 4096,
            entries: 2,
            tombstones: 0,
            min_seq: 1,
            max_seq: 2,
            smallest: key(from, "a"),
            largest: key(to, "b"),
            expiry: None,
        }
    }

    #[test]
    fn keyspaces_with_the_same_settings_are_one_region() {
        let (none, lz4) = (settings(Compression::None), settings(Compression::Lz4));
        let ids = [(1, none), (2, lz4), (4, lz4), (300, none)];
        let map = SettingsMap::new(none, ids.into_iter());
        assert_eq!(map.regions(), 3);
        let regions = [0, 1, 2, 3, 4, 299, 300, 301].map(|id| map.region_of(&key(id, "k")));
        assert_eq!(regions, [0, 0, 1, 1, 1, 1, 2, 2]);
        assert_eq!((map.of_region(0), map.of_region(1), map.of_region(2)), (&none, &lz4, &none));
        assert_eq!(map.end_of(0), Some(Prefix::new(2).as_slice()));
        assert_eq!(map.end_of(2), None);
        assert!(map.rewritten_into_last(&table(2, 2)));
        assert!(map.rewritten_into_last(&table(0, 300)));
        assert!(!map.rewritten_into_last(&table(0, 1)));
        assert_eq!(SettingsMap::new(none, [(1, none)].into_iter()), SettingsMap::uniform(none));
    }
}
