//! CSV with a header line; key and value are the columns of two given names. Fields are bytes: they need not
//! be UTF-8.

use std::io::{self, BufRead, Write};

use super::{Next, RecordReader, RecordWriter, decode_fields};
use crate::coding::Coding;

/// The error of the file itself, whose kind the caller looks at (a closed pipe).
fn io_error(e: csv::Error) -> io::Error {
    match e.into_kind() {
        csv::ErrorKind::Io(e) => e,
        other => io::Error::other(format!("{other:?}")),
    }
}

/// Reads records.
pub struct Reader {
    input: csv::Reader<Box<dyn BufRead>>,
    coding: Coding,
    key: usize,
    value: usize,
    columns: usize,
    record: csv::ByteRecord,
}

impl Reader {
    /// Reads the header and finds the two columns.
    pub fn new(
        input: Box<dyn BufRead>,
        coding: Coding,
        key_column: &str,
        value_column: &str,
    ) -> Result<Reader, String> {
        let mut input = csv::ReaderBuilder::new().flexible(true).from_reader(input);
        let header = input.byte_headers().map_err(|e| format!("reading the header: {e}"))?.clone();
        let find = |name: &str| match header.iter().position(|h| h == name.as_bytes()) {
            Some(i) => Ok(i),
            None => {
                let names: Vec<_> = header.iter().map(|h| String::from_utf8_lossy(h).into_owned()).collect();
                Err(format!(
                    "line 1: no column '{name}' in the header ({}); choose with --key-column and --value-column",
                    names.join(", ")
                ))
            }
        };
        let (key, value) = (find(key_column)?, find(value_column)?);
        Ok(Reader { input, coding, key, value, columns: header.len(), record: csv::ByteRecord::new() })
    }
}

impl RecordReader for Reader {
    fn next(&mut self) -> io::Result<Next> {
        match self.input.read_byte_record(&mut self.record) {
            Ok(false) => return Ok(Next::End),
            Ok(true) => {}
            Err(e) => return Err(io_error(e)),
        }
        let line = self.record.position().map_or(0, csv::Position::line);
        if self.record.len() != self.columns {
            let why = format!("{} fields where the header has {}", self.record.len(), self.columns);
            return Ok(Next::Bad { line, why });
        }
        match (self.record.get(self.key), self.record.get(self.value)) {
            (Some(k), Some(v)) => Ok(decode_fields(line, self.coding, k, v)),
            _ => Ok(Next::Bad { line, why: "a column is missing".into() }),
        }
    }
}

/// Writes records.
pub struct Writer<W: Write> {
    output: csv::Writer<W>,
    coding: Coding,
}

impl<W: Write> Writer<W> {
    /// Writes the header.
    pub fn new(output: W, coding: Coding, key_column: &str, value_column: &str) -> io::Result<Writer<W>> {
        let mut output = csv::WriterBuilder::new().from_writer(output);
        output.write_record([key_column, value_column]).map_err(io_error)?;
        Ok(Writer { output, coding })
    }
}

impl<W: Write> RecordWriter for Writer<W> {
    fn write(&mut self, key: &[u8], value: &[u8]) -> io::Result<()> {
        match self.coding {
            Coding::Text => self.output.write_record([key, value]),
            c => self.output.write_record([c.encode(key), c.encode(value)]),
        }
        .map_err(io_error)
    }

    fn finish(&mut self) -> io::Result<()> {
        self.output.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_found_by_name_and_short_rows_are_bad() {
        let text: &[u8] = b"id,name,n\n1,\"a,\nb\",x\n2,c\n3,d,y\n";
        let mut r = Reader::new(Box::new(text), Coding::Text, "name", "id").unwrap();
        assert_eq!(r.next().unwrap(), Next::Record { line: 2, key: b"a,\nb".into(), value: b"1".into() });
        assert!(matches!(r.next().unwrap(), Next::Bad { line: 4, .. }));
        assert_eq!(r.next().unwrap(), Next::Record { line: 5, key: b"d".into(), value: b"3".into() });
        assert_eq!(r.next().unwrap(), Next::End);
        let missing = Reader::new(Box::new(text), Coding::Text, "key", "id").err().unwrap();
        assert!(missing.contains("no column 'key'") && missing.contains("id, name, n"), "{missing}");
    }
}
