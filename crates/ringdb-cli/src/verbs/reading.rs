//! Reading records from the inputs of a load: which are bad, and what is done about those.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use indicatif::ProgressBar;
use ringdb::{MAX_KEY_BYTES, MAX_VALUE_BYTES};

use super::interrupt::Interrupt;
use crate::args::{Format, LoadArgs, OnError};
use crate::error::{Failure, Result, at, failed};
use crate::formats::{self, Next, RecordReader};
use crate::out;

/// What reads records.
pub(super) struct Reading {
    pub(super) on_error: OnError,
    /// Bad records passed over.
    pub(super) skipped: u64,
    /// How much was read.
    pub(super) bar: ProgressBar,
    pub(super) interrupt: Arc<Interrupt>,
}

/// Takes a record: where it stands, the key, the value.
pub(super) type Take<'a> = &'a mut dyn FnMut(&Place<'_>, &[u8], &[u8]) -> Result<()>;

/// Where a record stands.
pub(super) struct Place<'a> {
    name: &'a str,
    line: u64,
}

impl std::fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}, line {}", self.name, self.line)
    }
}

fn is_stdin(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// The length of all inputs together; `None` if one is standard input.
fn length(files: &[PathBuf]) -> Result<Option<u64>> {
    let mut total = 0;
    for f in files.iter().filter(|f| !is_stdin(f)) {
        let m = at(f, std::fs::metadata(f))?;
        if m.is_dir() {
            return failed(format!("{} is a directory; give files, or - for standard input", f.display()));
        }
        total += m.len();
    }
    let from_stdin = files.is_empty() || files.iter().any(|f| is_stdin(f));
    Ok((!from_stdin).then_some(total))
}

impl Reading {
    /// Of the inputs that `load` was given. Looks whether they are there.
    pub(super) fn of(args: &LoadArgs) -> Result<Reading> {
        Reading::new(args.on_error, out::bytes_bar(length(&args.files)?))
    }

    pub(super) fn new(on_error: OnError, bar: ProgressBar) -> Result<Reading> {
        Ok(Reading { on_error, skipped: 0, bar, interrupt: Interrupt::watch()? })
    }

    /// Reads all inputs.
    pub(super) fn all(&mut self, args: &LoadArgs, take: Take<'_>) -> Result<()> {
        if args.files.is_empty() {
            return self.input(args, Path::new("-"), take);
        }
        args.files.iter().try_for_each(|f| self.input(args, f, take))
    }

    fn input(&mut self, args: &LoadArgs, path: &Path, take: Take<'_>) -> Result<()> {
        let (name, input): (String, Box<dyn BufRead>) = if is_stdin(path) {
            ("standard input".into(), Box::new(BufReader::new(self.bar.wrap_read(io::stdin()))))
        } else {
            let file = at(path, File::open(path))?;
            let input = BufReader::with_capacity(256 << 10, self.bar.wrap_read(file));
            (path.display().to_string(), Box::new(input))
        };
        let format = args.format.format.or_else(|| formats::by_extension(path)).unwrap_or(Format::Tsv);
        let mut reader =
            formats::reader(format, &args.format, input).or_else(|e| failed(format!("{name}: {e}")))?;
        self.records(&name, &mut *reader, take)
    }

    /// Reads all that `reader` reads of the input `name`.
    pub(super) fn records(
        &mut self,
        name: &str,
        reader: &mut dyn RecordReader,
        take: Take<'_>,
    ) -> Result<()> {
        loop {
            if let Some(signal) = self.interrupt.came() {
                return Err(Failure::Interrupted(signal));
            }
            let next = reader.next().map_err(|e| Failure::Failed(format!("{name}: {e}")))?;
            let (line, why) = match next {
                Next::End => return Ok(()),
                Next::Bad { line, why } => (line, why),
                Next::Record { line, key, value } => match too_long(&key, &value) {
                    Some(why) => (line, why),
                    None => {
                        take(&Place { name, line }, &key, &value)?;
                        continue;
                    }
                },
            };
            let message = format!("{}: {why}", Place { name, line });
            if self.on_error == OnError::Stop {
                return failed(format!("{message}; mend it, or go on past bad records with --on-error skip"));
            }
            self.skipped += 1;
            self.bar.suspend(|| crate::error::warn(&format!("{message}; skipped")));
        }
    }
}

/// What is wrong with a record that no store takes.
pub(super) fn too_long(key: &[u8], value: &[u8]) -> Option<String> {
    if key.len() as u64 > MAX_KEY_BYTES as u64 {
        return Some(format!("the key has {} bytes; at most {MAX_KEY_BYTES} are possible", key.len()));
    }
    if value.len() as u64 > MAX_VALUE_BYTES as u64 {
        return Some(format!("the value has {} bytes; at most {MAX_VALUE_BYTES} are possible", value.len()));
    }
    None
}
