//! Key, TAB, value, a line each. In text coding `\t`, `\n`, `\r` and `\\` stand for the bytes that would
//! otherwise end a field or start an escape; every other byte stands for itself.

use std::io::{self, BufRead, Write};

use super::{Next, RecordReader, RecordWriter, decode_fields, read_line};
use crate::coding::Coding;

/// Appends the escaped form of `bytes`.
pub fn escape_into(bytes: &[u8], out: &mut Vec<u8>) {
    for &b in bytes {
        match b {
            b'\t' => out.extend_from_slice(b"\\t"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\\' => out.extend_from_slice(b"\\\\"),
            _ => out.push(b),
        }
    }
}

fn unescape(field: &[u8]) -> Result<Vec<u8>, String> {
    let mut out = Vec::with_capacity(field.len());
    let mut bytes = field.iter();
    while let Some(&b) = bytes.next() {
        if b != b'\\' {
            out.push(b);
            continue;
        }
        out.push(match bytes.next() {
            Some(b't') => b'\t',
            Some(b'n') => b'\n',
            Some(b'r') => b'\r',
            Some(b'\\') => b'\\',
            Some(c) => {
                return Err(format!("unknown escape \\{}; known are \\t \\n \\r \\\\", c.escape_ascii()));
            }
            None => return Err("a backslash at the end of a field; write \\\\ for one".into()),
        });
    }
    Ok(out)
}

/// Reads records.
pub struct Reader {
    input: Box<dyn BufRead>,
    coding: Coding,
    buf: Vec<u8>,
    line: u64,
}

impl Reader {
    /// Reads from `input`.
    pub fn new(input: Box<dyn BufRead>, coding: Coding) -> Reader {
        Reader { input, coding, buf: Vec::new(), line: 0 }
    }
}

impl RecordReader for Reader {
    fn next(&mut self) -> io::Result<Next> {
        if !read_line(&mut *self.input, &mut self.buf)? {
            return Ok(Next::End);
        }
        self.line += 1;
        let line = self.line;
        let mut fields = self.buf.split(|b| *b == b'\t');
        let (key, value) = match (fields.next(), fields.next(), fields.next()) {
            (Some(k), Some(v), None) => (k, v),
            (_, None, _) => return Ok(Next::Bad { line, why: "no TAB between key and value".into() }),
            _ => {
                let why = "more than one TAB; write \\t for a TAB within a field".into();
                return Ok(Next::Bad { line, why });
            }
        };
        if self.coding != Coding::Text {
            return Ok(decode_fields(line, self.coding, key, value));
        }
        Ok(match (unescape(key), unescape(value)) {
            (Ok(key), Ok(value)) => Next::Record { line, key, value },
            (Err(why), _) | (_, Err(why)) => Next::Bad { line, why },
        })
    }
}

/// Writes records.
pub struct Writer<W> {
    output: W,
    coding: Coding,
    buf: Vec<u8>,
}

impl<W: Write> Writer<W> {
    /// Writes to `output`.
    pub fn new(output: W, coding: Coding) -> Writer<W> {
        Writer { output, coding, buf: Vec::new() }
    }
}

impl<W: Write> RecordWriter for Writer<W> {
    fn write(&mut self, key: &[u8], value: &[u8]) -> io::Result<()> {
        self.buf.clear();
        let field = |bytes, buf: &mut Vec<u8>| match self.coding {
            Coding::Text => escape_into(bytes, buf),
            c => c.encode_into(bytes, buf),
        };
        field(key, &mut self.buf);
        self.buf.push(b'\t');
        field(value, &mut self.buf);
        self.buf.push(b'\n');
        self.output.write_all(&self.buf)
    }

    fn finish(&mut self) -> io::Result<()> {
        self.output.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &'static [u8]) -> Vec<Next> {
        let mut r = Reader::new(Box::new(text), Coding::Text);
        let mut all = Vec::new();
        loop {
            match r.next().unwrap() {
                Next::End => return all,
                n => all.push(n),
            }
        }
    }

    fn record(line: u64, key: &[u8], value: &[u8]) -> Next {
        Next::Record { line, key: key.into(), value: value.into() }
    }

    #[test]
    fn bad_lines_are_named_and_good_ones_go_on() {
        let got = read(b"a\tb\r\nno tab\nx\ty\tz\nq\\x\t1\nw\\\t1\n\t\nlast\tone");
        assert_eq!(got[0], record(1, b"a", b"b"));
        for (i, why) in [(1, "no TAB"), (2, "more than one TAB"), (3, "unknown escape \\x"), (4, "backslash")]
        {
            match &got[i] {
                Next::Bad { line, why: w } => {
                    assert_eq!(*line, i as u64 + 1);
                    assert!(w.contains(why), "{w}");
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(got[5..], [record(6, b"", b""), record(7, b"last", b"one")]);
    }
}
