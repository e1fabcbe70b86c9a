//! The argument `--io`: an engine's URI, or `@FILE` with what `ringdb doctor --write FILE` recommends.
//!
//! The file has lines `NAME = VALUE`; what follows a `#` is a remark. `io` must be there. The settings are
//! for the stores that a verb opens; in `bench` and `demo` their own options win. `fileperf`, which has no
//! store, says that it uses none.

use std::str::FromStr;

use ringdb::Options;

use crate::error::{Failure, usage};
use crate::out::parse_bytes;

/// An engine, with the settings that came with it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Engine {
    /// Its URI.
    pub uri: String,
    /// Memory budget of a store.
    pub cache_bytes: Option<u64>,
    /// Threads that flush and compact.
    pub background_threads: Option<usize>,
    /// Bytes of a data block.
    pub block_bytes: Option<u32>,
    /// Whether tables are read past the page cache.
    pub direct_reads: Option<bool>,
}

impl Engine {
    /// `options` with the engine and the settings.
    pub fn apply(&self, options: Options) -> Options {
        let mut o = options.with_io(self.uri.clone());
        if let Some(n) = self.cache_bytes {
            o = o.with_cache_bytes(n);
        }
        if let Some(n) = self.background_threads {
            o = o.with_background_threads(n);
        }
        if let Some(n) = self.block_bytes {
            o = o.with_block_bytes(n);
        }
        if let Some(yes) = self.direct_reads {
            o = o.with_direct_reads(yes);
        }
        o
    }
}

impl Engine {
    /// The names of the settings that came with it.
    pub fn settings(&self) -> Vec<&'static str> {
        let all = [
            ("cache_bytes", self.cache_bytes.is_some()),
            ("background_threads", self.background_threads.is_some()),
            ("block_bytes", self.block_bytes.is_some()),
            ("direct_reads", self.direct_reads.is_some()),
        ];
        all.into_iter().filter(|(_, on)| *on).map(|(name, _)| name).collect()
    }
}

impl FromStr for Engine {
    type Err = String;

    fn from_str(s: &str) -> Result<Engine, String> {
        let Some(file) = s.strip_prefix('@') else {
            return Ok(Engine { uri: s.into(), ..Engine::default() });
        };
        let text = std::fs::read_to_string(file).map_err(|e| format!("{file}: {e}"))?;
        parse(&text).map_err(|e| format!("{file}: {e}"))
    }
}

fn parse(text: &str) -> Result<Engine, String> {
    let mut out = Engine::default();
    for (i, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or("").trim();
        if line.is_empty() {
            continue;
        }
        let wrong = |what: String| format!("line {}: {what}", i + 1);
        let Some((name, value)) = line.split_once('=') else {
            return Err(wrong(format!("'{line}' is not of the form NAME = VALUE")));
        };
        // A URI holds '=' too: only the first one parts.
        let (name, value) = (name.trim(), value.trim());
        let number = |v: &str| v.parse().map_err(|_| wrong(format!("'{v}' is not a number")));
        match name {
            "io" if value.starts_with('@') => return Err(wrong("io takes a URI here".into())),
            "io" => out.uri = value.into(),
            "cache_bytes" => out.cache_bytes = Some(parse_bytes(value).map_err(wrong)?),
            "background_threads" => out.background_threads = Some(number(value)? as usize),
            "block_bytes" => out.block_bytes = Some(number(value)?),
            "direct_reads" => {
                let yes = value.parse().map_err(|_| wrong(format!("'{value}' is neither true nor false")))?;
                out.direct_reads = Some(yes);
            }
            _ => {
                let valid = "valid: io, cache_bytes, background_threads, block_bytes, direct_reads";
                return Err(wrong(format!("unknown setting '{name}'; {valid}")));
            }
        }
    }
    if out.uri.is_empty() {
        return Err("there is no line io = URI".into());
    }
    Ok(out)
}

/// Puts URIs in the place of files, for verbs that take several engines. The settings hold for all stores of
/// the verb: two files that say different things of one are an error.
pub fn settle(io: &mut [String]) -> crate::error::Result<Engine> {
    let mut all = Engine::default();
    for given in io.iter_mut().filter(|s| s.starts_with('@')) {
        let e: Engine = given.parse().map_err(|e| Failure::Usage(format!("--io {given}: {e}")))?;
        let same = merge(&mut all.cache_bytes, e.cache_bytes)
            && merge(&mut all.background_threads, e.background_threads)
            && merge(&mut all.block_bytes, e.block_bytes)
            && merge(&mut all.direct_reads, e.direct_reads);
        if !same {
            return usage(format!("--io {given}: its settings are others than those of a file before it"));
        }
        *given = e.uri;
    }
    Ok(all)
}

/// Whether two settings can both hold.
fn merge<T: PartialEq + Copy>(all: &mut Option<T>, one: Option<T>) -> bool {
    let same = all.is_none() || one.is_none() || *all == one;
    *all = all.or(one);
    same
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_say_the_engine_and_the_settings() {
        let text = "# by hand\nio = io_uring?depth=64&coop_taskrun=off # why\n\ncache_bytes = 1GiB\nblock_bytes=8192\n\
                    direct_reads = true\n";
        let want = Engine {
            uri: "io_uring?depth=64&coop_taskrun=off".into(),
            cache_bytes: Some(1 << 30),
            background_threads: None,
            block_bytes: Some(8192),
            direct_reads: Some(true),
        };
        assert_eq!(parse(text), Ok(want.clone()));
        let o = want.apply(Options::default());
        assert_eq!((o.cache_bytes, o.block_bytes, o.io.as_str()), (1 << 30, 8192, want.uri.as_str()));
        assert!(o.direct_reads && !"posix".parse::<Engine>().unwrap().apply(Options::default()).direct_reads);
        assert_eq!("posix?threads=3".parse::<Engine>().unwrap().uri, "posix?threads=3");
    }

    #[test]
    fn the_settings_of_several_files_must_agree() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            std::fs::write(dir.path().join(name), text).unwrap();
            format!("@{}", dir.path().join(name).display())
        };
        let a = file("a", "io = posix?threads=3\ncache_bytes = 8m\n");
        let b = file("b", "io = libaio\nblock_bytes = 8192\ncache_bytes = 8m\n");
        let c = file("c", "io = libaio\ncache_bytes = 9m\n");
        let mut io = [a.clone(), "io_uring".into(), b];
        let all = settle(&mut io).unwrap();
        assert_eq!(io, ["posix?threads=3", "io_uring", "libaio"]);
        assert_eq!(all.settings(), ["cache_bytes", "block_bytes"]);
        assert!(settle(&mut [a, c]).unwrap_err().to_string().contains("others than those"));
        assert!(settle(&mut ["@/nowhere/at/all".into()]).is_err());
    }

    #[test]
    fn mistakes_name_the_line() {
        for (text, part) in [
            ("", "no line io"),
            ("io = posix\ndepth = 3", "line 2: unknown setting 'depth'"),
            ("io posix", "line 1: 'io posix' is not"),
            ("io = @other", "line 1: io takes a URI"),
            ("background_threads = many", "'many' is not a number"),
            ("io = posix\ndirect_reads = 1", "line 2: '1' is neither true nor false"),
        ] {
            let e = parse(text).unwrap_err();
            assert!(e.contains(part), "{e}");
        }
        assert!("@/nowhere/at/all".parse::<Engine>().unwrap_err().contains("/nowhere/at/all"));
    }
}
