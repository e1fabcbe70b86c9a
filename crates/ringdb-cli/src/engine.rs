//! The argument `--io`: an engine's URI, or `@FILE` with what `ringdb doctor --write FILE` recommends.
//!
//! The file has lines `NAME = VALUE`; what follows a `#` is a remark. `io` must be there. The settings are for verbs
//! that open a store; `bench`, `demo` and `fileperf`, whose own options say everything else, take the URI alone.

use std::str::FromStr;

use ringdb::Options;

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
        o
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
            _ => {
                let valid = "valid: io, cache_bytes, background_threads, block_bytes";
                return Err(wrong(format!("unknown setting '{name}'; {valid}")));
            }
        }
    }
    if out.uri.is_empty() {
        return Err("there is no line io = URI".into());
    }
    Ok(out)
}

/// The URI alone, for verbs that take nothing else from a file.
pub fn engine_uri(s: &str) -> Result<String, String> {
    Ok(s.parse::<Engine>()?.uri)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_say_the_engine_and_the_settings() {
        let text = "# by hand\nio = io_uring?depth=64&coop_taskrun=off # why\n\ncache_bytes = 1GiB\nblock_bytes=8192\n";
        let want = Engine {
            uri: "io_uring?depth=64&coop_taskrun=off".into(),
            cache_bytes: Some(1 << 30),
            background_threads: None,
            block_bytes: Some(8192),
        };
        assert_eq!(parse(text), Ok(want.clone()));
        let o = want.apply(Options::default());
        assert_eq!((o.cache_bytes, o.block_bytes, o.io.as_str()), (1 << 30, 8192, want.uri.as_str()));
        assert_eq!("posix?threads=3".parse::<Engine>().unwrap().uri, "posix?threads=3");
    }

    #[test]
    fn mistakes_name_the_line() {
        for (text, part) in [
            ("", "no line io"),
            ("io = posix\ndepth = 3", "line 2: unknown setting 'depth'"),
            ("io posix", "line 1: 'io posix' is not"),
            ("io = @other", "line 1: io takes a URI"),
            ("background_threads = many", "'many' is not a number"),
        ] {
            let e = parse(text).unwrap_err();
            assert!(e.contains(part), "{e}");
        }
        assert!("@/nowhere/at/all".parse::<Engine>().unwrap_err().contains("/nowhere/at/all"));
    }
}
