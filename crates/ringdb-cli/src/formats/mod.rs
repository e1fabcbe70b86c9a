//! Record formats: what `load` reads and `dump` writes. Whatever bytes a store holds, each format gives them
//! back exactly.

mod binary;
mod csv;
mod jsonl;
mod ldb;
mod tsv;

use std::io::{self, BufRead, Write};

pub use jsonl::write_pair;
pub use tsv::escape_into;

use crate::args::{Format, FormatArgs};
use crate::coding::Coding;

/// What a reader found next.
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    /// A record, with the line it starts on (from 1).
    Record { line: u64, key: Vec<u8>, value: Vec<u8> },
    /// A bad record: the line it starts on and what is wrong with it.
    Bad { line: u64, why: String },
    /// The end of the input.
    End,
}

/// Reads records one after the other. An `Err` is a failure of the input itself.
pub trait RecordReader {
    /// The next record.
    fn next(&mut self) -> io::Result<Next>;
}

/// Writes records.
pub trait RecordWriter {
    /// Writes one.
    fn write(&mut self, key: &[u8], value: &[u8]) -> io::Result<()>;
    /// Writes what is buffered.
    fn finish(&mut self) -> io::Result<()>;
}

/// A reader of `format`. Fails if the input has no usable header.
pub fn reader(
    format: Format,
    args: &FormatArgs,
    input: Box<dyn BufRead>,
) -> Result<Box<dyn RecordReader>, String> {
    let coding = args.coding.coding();
    Ok(match format {
        Format::Tsv => Box::new(LineReader::new(input, coding, tsv::parse)),
        Format::Csv => Box::new(csv::Reader::new(input, coding, &args.key_column, &args.value_column)?),
        Format::Jsonl => Box::new(LineReader::new(input, coding, jsonl::parse)),
        Format::Binary | Format::Ldb if coding != Coding::Text => {
            return Err("--hex and --base64 are for tsv, csv and jsonl: this format has one coding".into());
        }
        Format::Binary => Box::new(binary::Reader::new(input)),
        Format::Ldb => Box::new(ldb::Reader::new(input, false)),
    })
}

/// A reader of what `ldb` prints to the end.
pub fn whole_ldb(input: Box<dyn BufRead>) -> Box<dyn RecordReader> {
    Box::new(ldb::Reader::new(input, true))
}

/// A writer of `format`.
pub fn writer<'a>(
    format: Format,
    args: &FormatArgs,
    output: Box<dyn Write + 'a>,
) -> io::Result<Box<dyn RecordWriter + 'a>> {
    let coding = args.coding.coding();
    Ok(match format {
        Format::Tsv => Box::new(LineWriter { output, coding, buf: Vec::new(), write: tsv::write }),
        Format::Csv => Box::new(csv::Writer::new(output, coding, &args.key_column, &args.value_column)?),
        Format::Jsonl => Box::new(LineWriter { output, coding, buf: Vec::new(), write: jsonl::write }),
        Format::Binary => Box::new(binary::Writer::new(output)),
        Format::Ldb => Box::new(ldb::Writer::new(output)),
    })
}

/// The format that a file's name suggests.
pub fn by_extension(path: &std::path::Path) -> Option<Format> {
    match path.extension()?.to_str()?.to_ascii_lowercase().as_str() {
        "tsv" | "tab" | "txt" => Some(Format::Tsv),
        "csv" => Some(Format::Csv),
        "jsonl" | "ndjson" | "json" => Some(Format::Jsonl),
        "bin" => Some(Format::Binary),
        _ => None,
    }
}

impl Next {
    /// A record of fields that are good, or what is wrong with one.
    fn of(line: u64, key: Result<Vec<u8>, String>, value: Result<Vec<u8>, String>) -> Next {
        match (key, value) {
            (Ok(key), Ok(value)) => Next::Record { line, key, value },
            (Err(why), _) | (_, Err(why)) => Next::Bad { line, why },
        }
    }
}

fn decode_fields(line: u64, coding: Coding, key: &[u8], value: &[u8]) -> Next {
    let decode = |name, bytes| coding.decode(bytes).map_err(|e| format!("the {name} is {e}"));
    Next::of(line, decode("key", key), decode("value", value))
}

/// Reads formats with a record a line.
struct LineReader {
    input: Box<dyn BufRead>,
    coding: Coding,
    buf: Vec<u8>,
    line: u64,
    parse: fn(u64, Coding, &[u8]) -> Next,
}

impl LineReader {
    fn new(input: Box<dyn BufRead>, coding: Coding, parse: fn(u64, Coding, &[u8]) -> Next) -> LineReader {
        LineReader { input, coding, buf: Vec::new(), line: 0, parse }
    }
}

impl RecordReader for LineReader {
    fn next(&mut self) -> io::Result<Next> {
        self.buf.clear();
        if self.input.read_until(b'\n', &mut self.buf)? == 0 {
            return Ok(Next::End);
        }
        self.line += 1;
        let line = self.buf.strip_suffix(b"\n").map_or(&*self.buf, |l| l.strip_suffix(b"\r").unwrap_or(l));
        Ok((self.parse)(self.line, self.coding, line))
    }
}

/// Appends a record and a line end.
type WriteLine = fn(&mut Vec<u8>, Coding, &[u8], &[u8]) -> io::Result<()>;

/// Writes formats with a record a line.
struct LineWriter<W> {
    output: W,
    coding: Coding,
    buf: Vec<u8>,
    write: WriteLine,
}

impl<W: Write> RecordWriter for LineWriter<W> {
    fn write(&mut self, key: &[u8], value: &[u8]) -> io::Result<()> {
        self.buf.clear();
        (self.write)(&mut self.buf, self.coding, key, value)?;
        self.output.write_all(&self.buf)
    }

    fn finish(&mut self) -> io::Result<()> {
        self.output.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Verb};
    use clap::Parser;
    use rand::rngs::SmallRng;
    use rand::{RngExt, SeedableRng};

    fn args(flag: &str) -> FormatArgs {
        let mut a = vec!["ringdb", "dump", "--db", "x"];
        a.extend((!flag.is_empty()).then_some(flag));
        match Cli::parse_from(a).verb {
            Verb::Dump(d) => d.format,
            _ => unreachable!(),
        }
    }

    #[test]
    fn random_bytes_come_back_exactly_in_every_format_and_coding() {
        let mut rng = SmallRng::seed_from_u64(7);
        let mut records = vec![(vec![], vec![]), (b"\xef\xbb\xbfbom".to_vec(), b"\r\n\r".to_vec())];
        for _ in 0..500 {
            let special = rng.random_bool(0.5);
            let mut bytes = |max: usize| -> Vec<u8> {
                let n = rng.random_range(0..max);
                let any = |r: &mut SmallRng| {
                    if special { b"\t\n\r\\\",'{} a\x00\xff"[r.random_range(0..13)] } else { r.random() }
                };
                (0..n).map(|_| any(&mut rng)).collect()
            };
            records.push((bytes(20), bytes(60)));
        }
        let text = [Format::Tsv, Format::Csv, Format::Jsonl];
        let codings = text.iter().flat_map(|f| ["", "--hex", "--base64"].map(|flag| (*f, flag)));
        for (format, flag) in codings.chain([(Format::Binary, ""), (Format::Ldb, "")]) {
            {
                let args = args(flag);
                let mut file = Vec::new();
                let mut w = writer(format, &args, Box::new(&mut file)).unwrap();
                for (k, v) in &records {
                    w.write(k, v).unwrap();
                }
                w.finish().unwrap();
                drop(w);
                let mut r = reader(format, &args, Box::new(io::Cursor::new(file))).unwrap();
                for (i, (k, v)) in records.iter().enumerate() {
                    match r.next().unwrap() {
                        Next::Record { key, value, .. } => {
                            assert_eq!((&key, &value), (k, v), "{format:?} {flag} record {i}")
                        }
                        other => panic!("{format:?} {flag} record {i} {k:?} {v:?}: {other:?}"),
                    }
                }
                assert_eq!(r.next().unwrap(), Next::End);
            }
        }
    }
}
