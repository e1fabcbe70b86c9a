//! Length-prefixed records: the key's length, the value's length (4 bytes each, little endian), the key, the value.
//! Nothing stands before, between or behind them.

use std::io::{self, BufRead, Read, Write};

use ringdb::{MAX_KEY_BYTES, MAX_VALUE_BYTES};

use super::{Next, RecordReader, RecordWriter};

/// Reads records.
pub struct Reader {
    input: Box<dyn BufRead>,
    records: u64,
}

impl Reader {
    pub fn new(input: Box<dyn BufRead>) -> Reader {
        Reader { input, records: 0 }
    }

    /// So many bytes; memory is taken as they come, whatever the length says.
    fn bytes(&mut self, len: usize) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.input.by_ref().take(len as u64).read_to_end(&mut bytes)?;
        if bytes.len() == len { Ok(bytes) } else { Err(self.wrong("the input ends in the middle of it")) }
    }

    /// Behind a record that is wrong the next one cannot be found.
    fn wrong(&self, why: &str) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidData, format!("record {}: {why}", self.records))
    }
}

impl RecordReader for Reader {
    fn next(&mut self) -> io::Result<Next> {
        if self.input.fill_buf()?.is_empty() {
            return Ok(Next::End);
        }
        self.records += 1;
        let lengths = self.bytes(8)?;
        let length = |at: usize| lengths[at..].first_chunk().map_or(0, |b| u32::from_le_bytes(*b)) as usize;
        let (key, value) = (length(0), length(4));
        if key > MAX_KEY_BYTES || value > MAX_VALUE_BYTES {
            let why = format!("a key of {key} and a value of {value} bytes; this is no length-prefixed dump");
            return Err(self.wrong(&why));
        }
        Ok(Next::Record { line: self.records, key: self.bytes(key)?, value: self.bytes(value)? })
    }
}

/// Writes records.
pub struct Writer<W> {
    output: W,
}

impl<W: Write> Writer<W> {
    pub fn new(output: W) -> Writer<W> {
        Writer { output }
    }
}

impl<W: Write> RecordWriter for Writer<W> {
    fn write(&mut self, key: &[u8], value: &[u8]) -> io::Result<()> {
        for part in [key, value] {
            self.output.write_all(&(part.len() as u32).to_le_bytes())?;
        }
        self.output.write_all(key)?;
        self.output.write_all(value)
    }

    fn finish(&mut self) -> io::Result<()> {
        self.output.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_cut_off_or_something_else_is_an_error_that_names_the_record() {
        let mut whole = Vec::new();
        Writer::new(&mut whole).write(b"k", b"").unwrap();
        let first = whole.len();
        Writer::new(&mut whole).write(b"key", b"value").unwrap();
        for cut in 0..whole.len() {
            let mut r = Reader::new(Box::new(io::Cursor::new(whole[..cut].to_vec())));
            let last = loop {
                match r.next() {
                    Ok(Next::Record { .. }) => {}
                    last => break last,
                }
            };
            match last {
                Ok(end) => assert!(end == Next::End && [0, first].contains(&cut), "{cut}"),
                Err(e) => {
                    let record = if cut < first { "record 1" } else { "record 2" };
                    assert!(e.to_string().contains(record), "{cut}: {e}");
                }
            }
        }
        let mut r = Reader::new(Box::new(&b"apple\tred\nplum\tblue\n"[..]));
        assert!(r.next().unwrap_err().to_string().contains("no length-prefixed dump"));
    }
}
