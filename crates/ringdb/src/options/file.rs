//! Settings files: the fields of [`Options`] by name.

use std::fmt;
use std::time::Duration;

use serde::de::{Error as _, Unexpected, Visitor};
use serde::{Deserialize, Deserializer};

use super::life::Life;
use super::{Compression, Durability, Options};

/// Settings files are shorter: what is longer is another file.
#[cfg(feature = "toml")]
const MOST_FILE_BYTES: u64 = 1 << 20;

/// A number of bytes: a whole number, or text with a unit as in "256 MiB".
struct Bytes(u64);

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Bytes, D::Error> {
        struct Either;
        impl Visitor<'_> for Either {
            type Value = Bytes;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of bytes, as 4096 or \"256 MiB\"")
            }

            fn visit_u64<E: serde::de::Error>(self, n: u64) -> Result<Bytes, E> {
                Ok(Bytes(n))
            }

            fn visit_i64<E: serde::de::Error>(self, n: i64) -> Result<Bytes, E> {
                u64::try_from(n).map(Bytes).map_err(|_| E::invalid_value(Unexpected::Signed(n), &self))
            }

            fn visit_str<E: serde::de::Error>(self, s: &str) -> Result<Bytes, E> {
                parse_bytes(s).map(Bytes).ok_or_else(|| E::invalid_value(Unexpected::Str(s), &self))
            }
        }
        d.deserialize_any(Either)
    }
}

/// A setting that is a small number of bytes.
pub(super) fn bytes_setting<'de, D: Deserializer<'de>>(d: D) -> Result<Option<u32>, D::Error> {
    Option::<Bytes>::deserialize(d)?.map(|b| few_bytes(b).map_err(D::Error::custom)).transpose()
}

/// `4096`, `64k`, `64KiB`, `256 MiB`, `1.5G`: units are powers of 1024.
fn parse_bytes(s: &str) -> Option<u64> {
    let s = s.trim();
    let end = s.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(s.len());
    let (number, unit) = s.split_at(end);
    let shift = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return None,
    };
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(1 << shift);
    }
    let bytes = number.parse::<f64>().ok()? * (1u64 << shift) as f64;
    (0.0..(1u64 << 60) as f64).contains(&bytes).then_some(bytes as u64)
}

macro_rules! file {
    ($($field:ident $fn:ident $t:ty, $value:expr;)*) => {
        /// The fields of [`Options`] that a file names.
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields, rename = "Options", expecting = "settings of a store")]
        struct File {
            $($field: Option<$t>,)*
        }

        impl<'de> Deserialize<'de> for Options {
            /// The fields by name; those that are missing are not given. Sizes are whole numbers of bytes, or text with
            /// a unit.
            fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Options, D::Error> {
                let file = File::deserialize(d)?;
                let mut o = Options::default();
                $(if let Some(v) = file.$field {
                    let value: Result<_, &str> = $value(v);
                    let value = value.map_err(|what| D::Error::custom(format!("{}: {what}", stringify!($field))))?;
                    o = o.$fn(value);
                })*
                Ok(o)
            }
        }
    };
}

fn bytes(b: Bytes) -> Result<u64, &'static str> {
    Ok(b.0)
}

fn few_bytes(b: Bytes) -> Result<u32, &'static str> {
    u32::try_from(b.0).map_err(|_| "it is too large")
}

fn life(l: Life) -> Result<Duration, &'static str> {
    Ok(l.0)
}

fn same<T>(t: T) -> Result<T, &'static str> {
    Ok(t)
}

file! {
    io with_io String, same;
    cache_bytes with_cache_bytes Bytes, bytes;
    memtable_bytes with_memtable_bytes Bytes, bytes;
    durability with_durability Durability, same;
    block_bytes with_block_bytes Bytes, few_bytes;
    compression with_compression Compression, same;
    last_level_compression with_last_level_compression Compression, same;
    filter_bits_per_key with_filter_bits_per_key u32, same;
    time_to_live with_time_to_live Life, life;
    background_threads with_background_threads usize, same;
    log_segment_bytes with_log_segment_bytes Bytes, bytes;
    table_bytes with_table_bytes Bytes, bytes;
    compaction_bytes_per_second with_compaction_bytes_per_second Bytes, bytes;
    manifest_bytes with_manifest_bytes Bytes, bytes;
    direct_reads with_direct_reads bool, same;
    create_if_missing with_create_if_missing bool, same;
    recover_damaged_log with_recover_damaged_log bool, same;
    socket with_socket bool, same;
    time_one_in with_time_one_in u32, same;
}

#[cfg(feature = "toml")]
impl Options {
    /// Reads settings from TOML: the fields by name, sizes as whole numbers of bytes or as text with a unit. What is
    /// not there is not given.
    ///
    /// ```
    /// use ringdb::{Compression, Options};
    ///
    /// # fn main() -> ringdb::Result<()> {
    /// let o = Options::from_toml("io = \"posix\"\ncache_bytes = \"64 MiB\"\ncompression = \"lz4\"\n")?;
    /// assert_eq!((o.cache_bytes, o.compression), (64 << 20, Compression::Lz4));
    /// assert_eq!(o.given(), ["io", "cache_bytes", "compression"]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`crate::Error::Invalid`], with line and column, if it is not TOML, names what is no setting, or a value is of
    /// another type or not allowed.
    pub fn from_toml(text: &str) -> crate::Result<Options> {
        let o: Options =
            toml::from_str(text).map_err(|e| crate::Error::Invalid(e.to_string().trim_end().into()))?;
        o.validate()?;
        Ok(o)
    }

    /// Reads settings from a TOML file; see [`Options::from_toml`].
    ///
    /// # Errors
    /// As there, and if the file cannot be read; with the file's name.
    pub fn load(path: impl AsRef<std::path::Path>) -> crate::Result<Options> {
        let path = path.as_ref();
        let wrong = |what: &dyn fmt::Display| crate::Error::Invalid(format!("{}: {what}", path.display()));
        // Errors of the I/O layer name the file.
        let file = engineswap::Io::from_uri("posix")?.open(path, &engineswap::OpenHow::read())?;
        let len = file.len()?;
        if len > MOST_FILE_BYTES {
            return Err(wrong(&format!("{len} bytes, which no settings file has")));
        }
        let mut bytes = vec![0; len as usize];
        let read = file.read_at(&mut bytes, 0, crate::purpose::RECOVERY)?;
        bytes.truncate(read);
        let text = String::from_utf8(bytes).map_err(|e| wrong(&e.utf8_error()))?;
        Options::from_toml(&text).map_err(|e| wrong(&e))
    }
}

#[cfg(feature = "toml")]
impl super::KeyspaceOptions {
    /// Reads settings of a keyspace from TOML: the fields by name, sizes and times also as text with a unit. What is
    /// not there is not given.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use ringdb::KeyspaceOptions;
    ///
    /// let o = KeyspaceOptions::from_toml("merge_operator = 'add'\nblock_bytes = '16 KiB'\n")?;
    /// assert_eq!((o.merge_operator.as_deref(), o.block_bytes), (Some("add"), Some(16 << 10)));
    /// let o = KeyspaceOptions::from_toml("time_to_live = '1 h'")?;
    /// assert_eq!(o.time_to_live, Some(Duration::from_secs(3600)));
    /// # Ok::<(), ringdb::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Options::from_toml`].
    pub fn from_toml(text: &str) -> crate::Result<super::KeyspaceOptions> {
        let o: super::KeyspaceOptions =
            toml::from_str(text).map_err(|e| crate::Error::Invalid(e.to_string().trim_end().into()))?;
        o.validate()?;
        Ok(o)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_can_be_in_a_file() {
        let all = serde_json::json!({
            "io": "posix", "cache_bytes": 8 << 20, "memtable_bytes": "1 MiB", "durability": "sync",
            "block_bytes": "8k", "compression": "lz4", "last_level_compression": "zstd",
            "filter_bits_per_key": 7, "time_to_live": "2 h", "background_threads": 3, "log_segment_bytes": "64KiB", "table_bytes": "1.5m",
            "compaction_bytes_per_second": "4 MiB", "manifest_bytes": 100, "direct_reads": true, "create_if_missing": false, "recover_damaged_log": true,
            "socket": false, "time_one_in": 16,
        });
        let o: Options = serde_json::from_value(all.clone()).unwrap();
        let names: Vec<&str> = all.as_object().unwrap().keys().map(String::as_str).collect();
        let mut given = o.given();
        given.sort_unstable();
        assert_eq!(given, names);
        assert_eq!(o.time_to_live, Duration::from_secs(7200));
        assert_eq!((o.memtable_bytes, o.block_bytes, o.table_bytes), (1 << 20, 8192, 3 << 19));
        // The fields of the struct, by its own description: none is missing here.
        let text = format!("{:?}", Options::default());
        // Five are of no file: which were given; operators, filters, the provider of keys and listeners are code.
        assert_eq!(text.matches(": ").count(), names.len() + 5, "{text}");
    }

    #[test]
    fn mistakes_are_named() {
        for (json, part) in [
            (r#"{"block_size": 4096}"#, "block_size"),
            (r#"{"cache_bytes": "many"}"#, "256 MiB"),
            (r#"{"cache_bytes": -1}"#, "-1"),
            (r#"{"cache_bytes": true}"#, "256 MiB"),
            (r#"{"block_bytes": 99999999999}"#, "block_bytes: it is too large"),
            (r#"{"compression": "brotli"}"#, "brotli"),
        ] {
            let e = serde_json::from_str::<Options>(json).unwrap_err().to_string();
            assert!(e.contains(part), "{json}: {e}");
        }
        for bad in ["", "k", "12x", "1..2", "99999999999999999999", "99999999t", "-1", "1e3"] {
            assert_eq!(parse_bytes(bad), None, "{bad}");
        }
    }

    #[cfg(feature = "toml")]
    #[test]
    fn toml_is_read_and_mistakes_name_line_and_setting() {
        let o = Options::from_toml("# by hand\ncache_bytes = '1 GiB'\ndirect_reads = true\n").unwrap();
        assert_eq!((o.cache_bytes, o.direct_reads, o.given().len()), (1 << 30, true, 2));
        for (text, part) in [
            ("io = 'posix'\ndepth = 3\n", "depth"),
            ("io = posix\n", "line 1"),
            ("block_bytes = 5000", "block_bytes is 5000: a power of two"),
            ("[keyspaces]\n", "keyspaces"),
        ] {
            let e = Options::from_toml(text).unwrap_err();
            assert!(e.to_string().contains(part), "{text}: {e}");
            assert_eq!(e.kind(), crate::ErrorKind::FixCall);
        }
        for (text, part) in [
            ("merge_operator = 5", "line 1"),
            ("cache_bytes = 5", "cache_bytes"),
            ("block_bytes = '5000'", "block_bytes is 5000: a power of two"),
            ("block_bytes = '99 GiB'", "too large"),
            ("time_to_live = '1 fortnight'", "fortnight"),
            ("merge_operator = ''", "1 to 255 bytes"),
        ] {
            let e = crate::KeyspaceOptions::from_toml(text).unwrap_err();
            assert!(e.to_string().contains(part), "{text}: {e}");
        }
        let e = Options::load("/nowhere/at/all").unwrap_err();
        assert!(e.to_string().contains("/nowhere/at/all"), "{e}");
    }
}
