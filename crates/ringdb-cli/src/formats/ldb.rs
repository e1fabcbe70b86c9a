//! What RocksDB's `ldb dump --hex` prints: `0xKEY ==> 0xVALUE`, a line each, then `Keys in range: N`.

use std::io::{self, BufRead, Write};

use super::{Next, RecordReader, RecordWriter};
use crate::coding::Coding;

const MARK: &[u8] = b" ==> ";
const COUNT: &str = "Keys in range: ";

/// Reads the lines, and compares how many there were.
pub struct Reader {
    input: Box<dyn BufRead>,
    buf: Vec<u8>,
    line: u64,
    records: u64,
    /// Whether the count has to come.
    whole: bool,
}

impl Reader {
    pub fn new(input: Box<dyn BufRead>, whole: bool) -> Reader {
        Reader { input, buf: Vec::new(), line: 0, records: 0, whole }
    }

    fn wrong(&self, why: String) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidData, why)
    }
}

impl RecordReader for Reader {
    fn next(&mut self) -> io::Result<Next> {
        self.buf.clear();
        if self.input.read_until(b'\n', &mut self.buf)? == 0 {
            return match self.whole {
                true => {
                    Err(self.wrong(format!("ldb ended after {} records without saying so", self.records)))
                }
                false => Ok(Next::End),
            };
        }
        self.line += 1;
        let line = self.buf.strip_suffix(b"\n").unwrap_or(&self.buf);
        if let Some(count) = std::str::from_utf8(line).ok().and_then(|l| l.strip_prefix(COUNT)) {
            if count.trim().parse() != Ok(self.records) {
                return Err(self.wrong(format!("{} records where ldb says {count}", self.records)));
            }
            self.whole = false;
            return self.next();
        }
        let next = parse(self.line, line);
        self.records += 1;
        Ok(next)
    }
}

/// The record in a line.
fn parse(line: u64, bytes: &[u8]) -> Next {
    let Some(at) = bytes.windows(MARK.len()).position(|w| w == MARK) else {
        return Next::Bad { line, why: "not a line of `ldb dump --hex`: 0xKEY ==> 0xVALUE".into() };
    };
    let decode = |name: &str, field: &[u8]| {
        let digits = field.strip_prefix(b"0x").ok_or_else(|| format!("the {name} does not begin with 0x"))?;
        Coding::Hex.decode(digits).map_err(|e| format!("the {name} is {e}"))
    };
    Next::of(line, decode("key", &bytes[..at]), decode("value", &bytes[at + MARK.len()..]))
}

/// Writes what [`Reader`] reads.
pub struct Writer<W> {
    output: W,
    records: u64,
}

impl<W: Write> Writer<W> {
    pub fn new(output: W) -> Writer<W> {
        Writer { output, records: 0 }
    }
}

impl<W: Write> RecordWriter for Writer<W> {
    fn write(&mut self, key: &[u8], value: &[u8]) -> io::Result<()> {
        self.records += 1;
        writeln!(self.output, "0x{} ==> 0x{}", hex::encode_upper(key), hex::encode_upper(value))
    }

    fn finish(&mut self) -> io::Result<()> {
        writeln!(self.output, "{COUNT}{}", self.records)?;
        self.output.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_ldb_are_read_and_others_are_named() {
        let record =
            |key: &[u8], value: &[u8]| Next::Record { line: 3, key: key.into(), value: value.into() };
        assert_eq!(parse(3, b"0x6B31 ==> 0x00fF"), record(b"k1", b"\0\xff"));
        assert_eq!(parse(3, b"0x6B ==> 0x"), record(b"k", b""));
        for (bad, why) in [
            (&b"k1 : v1"[..], "not a line"),
            (b"k1 ==> v1", "key does not begin with 0x"),
            (b"0x6B ==> 0x1", "value is not hexadecimal"),
        ] {
            match parse(3, bad) {
                Next::Bad { line: 3, why: w } => assert!(w.contains(why), "{w}"),
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn a_dump_that_is_cut_off_is_noticed() {
        let last = |text: &'static str, whole: bool| {
            let mut r = Reader::new(Box::new(text.as_bytes()), whole);
            loop {
                match r.next() {
                    Ok(Next::Record { .. }) => {}
                    last => break last.map_err(|e| e.to_string()),
                }
            }
        };
        assert_eq!(last("0x61 ==> 0x\nKeys in range: 1\n", true), Ok(Next::End));
        assert_eq!(last("Keys in range: 0\n", true), Ok(Next::End));
        assert_eq!(last("0x61 ==> 0x\n", false), Ok(Next::End));
        assert!(last("0x61 ==> 0x\n", true).unwrap_err().contains("after 1 records"));
        assert!(last("0x61 ==> 0x\nKeys in range: 2\n", false).unwrap_err().contains("ldb says 2"));
    }
}
