//! Where settings of stores come from: `--options FILE`, a settings file (TOML); and `--io`, an engine's URI, or
//! `@FILE` with what `ringdb doctor --write FILE` recommends, which is a settings file that names an engine.
//!
//! What an option of the command line says goes before what a file says. `fileperf`, which has no store, and
//! `salvage` say which settings they do not use.

use std::str::FromStr;

use ringdb::Options;

use crate::error::{Failure, usage};

/// The settings of `--options`.
#[derive(Clone, Debug)]
pub struct Settings(pub Options);

impl FromStr for Settings {
    type Err = String;

    fn from_str(file: &str) -> Result<Settings, String> {
        match Options::load(file).map_err(|e| e.to_string())? {
            o if o.io.starts_with('@') => Err(format!("{file}: io takes a URI here")),
            o => Ok(Settings(o)),
        }
    }
}

/// An engine, with the settings that came with it.
#[derive(Clone, Debug)]
pub struct Engine(Options);

impl Engine {
    /// It and the settings that came with it, before those of `below`.
    pub fn over(&self, below: Options) -> Options {
        self.0.clone().over(below)
    }
}

impl FromStr for Engine {
    type Err = String;

    fn from_str(s: &str) -> Result<Engine, String> {
        let Some(file) = s.strip_prefix('@') else { return Ok(Engine(Options::default().with_io(s))) };
        let Settings(o) = file.parse()?;
        match o.given().contains(&"io") {
            true => Ok(Engine(o)),
            false => Err(format!("{file}: it does not say io = \"URI\"")),
        }
    }
}

/// The settings that are given, but for the engine.
pub fn names(o: &Options) -> Vec<&'static str> {
    o.given().into_iter().filter(|name| *name != "io").collect()
}

/// Puts URIs in the place of files, for verbs that take several engines, and gives the settings of the files over those
/// of `--options`. They hold for all stores of the verb: two files that say different things of one are an error.
pub fn settle(
    io: &mut Vec<String>,
    options: Option<&Settings>,
    io_given: bool,
) -> crate::error::Result<Options> {
    let below = options.map_or_else(Options::default, |s| s.0.clone());
    if below.given().contains(&"io") && !io_given {
        *io = vec![below.io.clone()];
    }
    let mut all = Options::default();
    for given in io.iter_mut().filter(|s| s.starts_with('@')) {
        let Engine(e) = given.parse().map_err(|e| Failure::Usage(format!("--io {given}: {e}")))?;
        *given = e.io.clone();
        // Either way around the same: nothing is said twice that differs.
        let both = |a: &Options, b: &Options| a.clone().over(b.clone()).with_io("");
        if format!("{:?}", both(&all, &e)) != format!("{:?}", both(&e, &all)) {
            return usage(format!("--io {given}: its settings are others than those of a file before it"));
        }
        all = e.over(all);
    }
    Ok(all.over(below))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(dir: &tempfile::TempDir, name: &str, text: &str) -> String {
        std::fs::write(dir.path().join(name), text).unwrap();
        dir.path().join(name).display().to_string()
    }

    #[test]
    fn files_say_the_engine_and_the_settings() {
        let dir = tempfile::tempdir().unwrap();
        let text = "# by hand\nio = 'io_uring?depth=64&coop_taskrun=off' # why\n\ncache_bytes = '1GiB'\n\
                    block_bytes=8192\ndirect_reads = true\n";
        let path = file(&dir, "a", text);
        let engine: Engine = format!("@{path}").parse().unwrap();
        let o = engine.over(Options::default().with_cache_bytes(1 << 20).with_table_bytes(1 << 20));
        assert_eq!(o.io, "io_uring?depth=64&coop_taskrun=off");
        assert_eq!(
            (o.cache_bytes, o.block_bytes, o.table_bytes, o.direct_reads),
            (1 << 30, 8192, 1 << 20, true)
        );
        let Settings(o) = path.parse().unwrap();
        assert_eq!(names(&o), ["cache_bytes", "block_bytes", "direct_reads"]);
        assert_eq!("posix?threads=3".parse::<Engine>().unwrap().0.io, "posix?threads=3");
    }

    #[test]
    fn the_settings_of_several_files_must_agree() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| format!("@{}", file(&dir, name, text));
        let a = file("a", "io = 'posix?threads=3'\ncache_bytes = '8m'\n");
        let b = file("b", "io = 'libaio'\nblock_bytes = 8192\ncache_bytes = '8m'\n");
        let c = file("c", "io = 'libaio'\ncache_bytes = '9m'\n");
        let mut io = vec![a.clone(), "io_uring".into(), b];
        let below = Settings(
            Options::default().with_cache_bytes(1 << 20).with_table_bytes(1 << 20).with_io("libaio"),
        );
        let all = settle(&mut io, Some(&below), true).unwrap();
        assert_eq!(io, ["posix?threads=3", "io_uring", "libaio"]);
        assert_eq!((all.cache_bytes, all.block_bytes, all.table_bytes), (8 << 20, 8192, 1 << 20));
        assert!(settle(&mut vec![a, c], None, true).unwrap_err().to_string().contains("others than those"));
        assert!(settle(&mut vec!["@/nowhere/at/all".into()], None, true).is_err());
        let mut default = vec!["auto".into()];
        settle(&mut default, Some(&below), false).unwrap();
        assert_eq!(default, ["libaio"]);
    }

    #[test]
    fn mistakes_name_file_and_setting() {
        let dir = tempfile::tempdir().unwrap();
        for (text, part) in [
            ("", "does not say io"),
            ("io = 'posix'\ndepth = 3", "depth"),
            ("io posix", "line 1"),
            ("io = '@other'", "io takes a URI"),
            ("io = 'posix'\nbackground_threads = 'many'", "background_threads"),
        ] {
            let path = file(&dir, "x", text);
            let e = format!("@{path}").parse::<Engine>().unwrap_err();
            assert!(e.contains(part) && e.contains(&path), "{e}");
        }
        assert!("@/nowhere/at/all".parse::<Engine>().unwrap_err().contains("/nowhere/at/all"));
    }
}
