//! Standard output, progress bars, sizes and tables.

use std::io::{self, BufWriter, IsTerminal, Write};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::error::Result;

/// Buffered standard output. Flush it: what a drop would swallow is an error here.
pub fn stdout() -> BufWriter<io::StdoutLock<'static>> {
    BufWriter::with_capacity(64 << 10, io::stdout().lock())
}

/// Whether standard output is a terminal.
pub fn to_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Bytes for a terminal, which obeys control bytes: these, a backslash and what is not UTF-8 are shown as
/// \xHH, or with the escapes of TSV.
pub fn visible_into(bytes: &[u8], out: &mut Vec<u8>) {
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\\' => out.extend_from_slice(b"\\\\"),
                '\t' => out.extend_from_slice(b"\\t"),
                '\n' => out.extend_from_slice(b"\\n"),
                '\r' => out.extend_from_slice(b"\\r"),
                // The second block of control characters has two bytes each.
                c if c.is_control() => {
                    let mut utf8 = [0; 4];
                    c.encode_utf8(&mut utf8).bytes().for_each(|b| hex_into(b, out));
                }
                c => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        chunk.invalid().iter().for_each(|b| hex_into(*b, out));
    }
}

fn hex_into(b: u8, out: &mut Vec<u8>) {
    out.extend_from_slice(format!("\\x{b:02x}").as_bytes());
}

/// Prints a value as indented JSON.
pub fn json(value: &impl Serialize) -> Result<()> {
    let mut out = stdout();
    serde_json::to_writer_pretty(&mut out, value)?;
    out.write_all(b"\n")?;
    Ok(out.flush()?)
}

/// Prints text.
pub fn text(s: &str) -> Result<()> {
    let mut out = stdout();
    out.write_all(s.as_bytes())?;
    Ok(out.flush()?)
}

/// A progress bar over bytes on standard error; hidden when that is no terminal.
pub fn bytes_bar(total: Option<u64>) -> ProgressBar {
    match total {
        Some(n) => {
            styled(ProgressBar::new(n), "{bar:40} {bytes}/{total_bytes} {bytes_per_sec} eta {eta} {msg}")
        }
        None => styled(ProgressBar::no_length(), "{spinner} {bytes} {bytes_per_sec} {msg}"),
    }
}

/// A progress bar over things counted.
pub fn count_bar(total: Option<u64>) -> ProgressBar {
    match total {
        Some(n) => {
            styled(ProgressBar::new(n), "{msg:32} {bar:30} {human_pos}/{human_len} {per_sec} eta {eta}")
        }
        None => styled(ProgressBar::no_length(), "{msg:32} {spinner} {human_pos} {per_sec}"),
    }
}

fn styled(bar: ProgressBar, template: &str) -> ProgressBar {
    let bar = match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    };
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

/// Bytes for people.
pub fn human_bytes(n: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut x = n as f64;
    let mut u = 0;
    while x >= 1024.0 && u + 1 < UNITS.len() {
        x /= 1024.0;
        u += 1;
    }
    if u == 0 { format!("{n} B") } else { format!("{x:.1} {}", UNITS[u]) }
}

/// A whole number with its thousands apart.
pub fn human_count(n: u64) -> String {
    let digits = n.to_string();
    let mut s = String::new();
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            s.push(',');
        }
        s.push(c);
    }
    s
}

/// Parses bytes: `4096`, `64k`, `64KiB`, `1.5G`. Units are powers of 1024.
pub fn parse_bytes(s: &str) -> std::result::Result<u64, String> {
    let t = s.trim();
    let split = t.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(t.len());
    let (number, unit) = t.split_at(split);
    let shift = match unit.trim().to_ascii_lowercase().trim_end_matches("ib").trim_end_matches('b') {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        _ => return Err(format!("unknown unit '{unit}': use k, m, g or t (powers of 1024)")),
    };
    let x: f64 = number.parse().map_err(|_| format!("'{s}' is not a size: try 4096, 64k, 256m or 1.5g"))?;
    let bytes = x * (1u64 << shift) as f64;
    if bytes > (1u64 << 60) as f64 {
        return Err(format!("'{s}' is too large"));
    }
    Ok(bytes as u64)
}

/// Parses a time as fio does: seconds, or a number with its unit: `2`, `2s`, `500ms`, `1.5m`.
pub fn parse_seconds(s: &str) -> std::result::Result<f64, String> {
    let t = s.trim();
    let split = t.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(t.len());
    let (number, unit) = t.split_at(split);
    let scale = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "s" | "sec" => 1.0,
        "us" | "usec" => 1e-6,
        "ms" | "msec" => 1e-3,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        "d" => 86_400.0,
        _ => return Err(format!("unknown unit '{unit}': use us, ms, s, m, h or d")),
    };
    let x: f64 = number.parse().map_err(|_| format!("'{s}' is not a time: try 2, 2s, 500ms or 1.5m"))?;
    match x * scale {
        seconds if seconds <= 1e9 => Ok(seconds),
        _ => Err(format!("'{s}' is too long")),
    }
}

/// Rows of cells in columns; the first `left` columns are set to the left, the others to the right.
pub fn table(header: &[&str], rows: &[Vec<String>], left: usize) -> String {
    let width = |i: usize| {
        rows.iter().map(|r| r.get(i).map_or(0, |c| c.chars().count())).max().unwrap_or(0).max(header[i].len())
    };
    let widths: Vec<usize> = (0..header.len()).map(width).collect();
    let mut s = String::new();
    let mut line = |cells: &mut dyn Iterator<Item = &str>| {
        let mut row = String::new();
        for (i, c) in cells.enumerate() {
            let w = widths.get(i).copied().unwrap_or(0);
            let pad = w.saturating_sub(c.chars().count());
            if i > 0 {
                row.push_str("  ");
            }
            if i >= left {
                row.extend(std::iter::repeat_n(' ', pad));
            }
            row.push_str(c);
            if i < left {
                row.extend(std::iter::repeat_n(' ', pad));
            }
        }
        s.push_str(row.trim_end());
        s.push('\n');
    };
    line(&mut header.iter().copied());
    for r in rows {
        line(&mut r.iter().map(String::as_str));
    }
    s
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_written() {
        assert_eq!(parse_bytes("4096"), Ok(4096));
        assert_eq!(parse_bytes("64k"), Ok(64 << 10));
        assert_eq!(parse_bytes("64KiB"), Ok(64 << 10));
        assert_eq!(parse_bytes("1.5 GB"), Ok(3 << 29));
        for bad in ["", "k", "12x", "1..2", "99999999t", "-1"] {
            assert!(parse_bytes(bad).is_err(), "{bad}");
        }
        assert_eq!(human_bytes(999), "999 B");
        assert_eq!(human_bytes(1536), "1.5 KiB");
        assert_eq!(human_count(0), "0");
        assert_eq!(human_count(1234567), "1,234,567");
    }

    #[test]
    fn times_are_read_as_fio_does() {
        for (text, seconds) in [
            ("2", 2.0),
            ("2s", 2.0),
            ("500ms", 0.5),
            ("250us", 0.00025),
            ("1.5m", 90.0),
            ("1h", 3600.0),
            ("0", 0.0),
        ] {
            assert_eq!(parse_seconds(text), Ok(seconds), "{text}");
        }
        for bad in ["", "s", "2x", "-1", "1..5", "nan", "inf", "99999999999d"] {
            assert!(parse_seconds(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_terminal_gets_nothing_that_it_would_obey() {
        for (bytes, shown) in [
            (&b"a\x1b[2Jb\x07\x00\x7f"[..], "a\\x1b[2Jb\\x07\\x00\\x7f"),
            (b"tab\there\r\n\\", "tab\\there\\r\\n\\\\"),
            ("h\u{e4}ll\u{f6}\u{9b}".as_bytes(), "h\u{e4}ll\u{f6}\\xc2\\x9b"),
            (b"\xff\x9b\xc3", "\\xff\\x9b\\xc3"),
        ] {
            let mut out = Vec::new();
            visible_into(bytes, &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), shown);
        }
    }

    #[test]
    fn tables_line_up() {
        let t =
            table(&["name", "n"], &[vec!["a".into(), "100".into()], vec!["long-one".into(), "1".into()]], 1);
        assert_eq!(t, "name        n\na         100\nlong-one    1\n");
    }
}
