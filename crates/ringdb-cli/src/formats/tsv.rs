//! Key, TAB, value, a line each. In text coding `\t`, `\n`, `\r` and `\\` stand for the bytes that would
//! otherwise end a field or start an escape; every other byte stands for itself.

use std::io;

use super::{Next, decode_fields};
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

/// The record in a line.
pub fn parse(line: u64, coding: Coding, bytes: &[u8]) -> Next {
    let mut fields = bytes.split(|b| *b == b'\t');
    let (key, value) = match (fields.next(), fields.next(), fields.next()) {
        (Some(k), Some(v), None) => (k, v),
        (_, None, _) => return Next::Bad { line, why: "no TAB between key and value".into() },
        _ => return Next::Bad { line, why: "more than one TAB; write \\t for a TAB within a field".into() },
    };
    match coding {
        Coding::Text => Next::of(line, unescape(key), unescape(value)),
        _ => decode_fields(line, coding, key, value),
    }
}

/// Appends a record and a line end.
pub fn write(out: &mut Vec<u8>, coding: Coding, key: &[u8], value: &[u8]) -> io::Result<()> {
    for (field, end) in [(key, b'\t'), (value, b'\n')] {
        match coding {
            Coding::Text => escape_into(field, out),
            c => c.encode_into(field, out),
        }
        out.push(end);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::{LineReader, RecordReader};
    use super::*;

    fn read(text: &'static [u8]) -> Vec<Next> {
        let mut r = LineReader::new(Box::new(text), Coding::Text, parse);
        let all = std::iter::from_fn(|| Some(r.next().unwrap()).filter(|n| *n != Next::End));
        all.collect()
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
