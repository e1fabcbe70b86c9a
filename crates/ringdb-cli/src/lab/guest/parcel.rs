//! What goes into the guest and what comes back, as tar archives on raw disks.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use crate::error::{Result, at, failed};

const BLOCK: usize = 512;
/// What comes back of one job at most; a disk of that size holds it.
pub const RESULTS_BYTES: u64 = 64 << 20;

/// A file that goes into the guest.
pub enum Content {
    /// These bytes.
    Text(String),
    /// A program of this machine.
    Program(PathBuf),
}

/// Files that came back, by their names.
pub type Files = BTreeMap<String, Vec<u8>>;

/// Writes the files, each with its name, as an archive at `to`, in whole blocks of a disk.
pub fn pack(to: &Path, files: &[(&str, Content)]) -> Result<()> {
    let mut out = at(to, File::create(to))?;
    for (name, content) in files {
        match content {
            Content::Text(text) => at(to, entry(&mut out, name, text.len() as u64, &mut text.as_bytes()))?,
            Content::Program(path) => {
                let mut file = at(path, File::open(path))?;
                let bytes = at(path, file.metadata())?.len();
                at(path, entry(&mut out, name, bytes, &mut file))?;
            }
        }
    }
    // Two empty blocks end an archive; the rest makes the disk a whole number of its largest sectors.
    at(to, out.write_all(&[0; 2 * BLOCK]))?;
    let bytes = at(to, out.metadata())?.len();
    at(to, out.set_len(bytes.next_multiple_of(4096)))
}

fn entry(out: &mut File, name: &str, bytes: u64, from: &mut dyn Read) -> io::Result<()> {
    out.write_all(&header(name, bytes))?;
    let copied = io::copy(&mut from.take(bytes), out)?;
    if copied != bytes {
        return Err(io::Error::other("the file became shorter while it was copied"));
    }
    out.write_all(&[0; BLOCK][..(bytes.next_multiple_of(BLOCK as u64) - bytes) as usize])
}

fn header(name: &str, bytes: u64) -> [u8; BLOCK] {
    let mut h = [0; BLOCK];
    let mut put = |at: usize, text: &str| h[at..at + text.len()].copy_from_slice(text.as_bytes());
    put(0, name);
    for (at, octal) in [(100, "0000755"), (108, "0000000"), (116, "0000000"), (136, "00000000000")] {
        put(at, octal);
    }
    put(124, &format!("{bytes:011o}"));
    // The sum is made with blanks in its own place.
    put(148, "        ");
    put(156, "0");
    put(257, "ustar");
    put(263, "00");
    let sum: u32 = h.iter().map(|b| u32::from(*b)).sum();
    h[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    h
}

/// Reads the files of an archive; `None` if nothing was written to the disk.
pub fn unpack(from: &Path) -> Result<Option<Files>> {
    let mut bytes = Vec::new();
    at(from, File::open(from).and_then(|f| f.take(RESULTS_BYTES).read_to_end(&mut bytes)))?;
    match files(&bytes) {
        Ok(files) if files.is_empty() => Ok(None),
        Ok(files) => Ok(Some(files)),
        Err(what) => failed(format!("what the guest wrote is no archive: {what}")),
    }
}

fn files(mut bytes: &[u8]) -> std::result::Result<Files, String> {
    let mut all = Files::new();
    loop {
        let Some((header, rest)) = bytes.split_at_checked(BLOCK) else {
            return if all.is_empty() { Ok(all) } else { Err("it has no end".into()) };
        };
        if header.iter().all(|b| *b == 0) {
            return Ok(all);
        }
        let field = |from: usize, len: usize| {
            let text = header[from..from + len].split(|b| *b == 0).next().unwrap_or_default();
            String::from_utf8_lossy(text).trim().to_string()
        };
        let number = |from, len| u64::from_str_radix(&field(from, len), 8).ok();
        let blank = |i: usize| if (148..156).contains(&i) { b' ' } else { header[i] };
        let sum: u64 = (0..BLOCK).map(|i| u64::from(blank(i))).sum();
        let name = field(0, 100);
        if number(148, 8) != Some(sum) {
            return Err("a header's sum is wrong".into());
        }
        let Some(size) = number(124, 12).and_then(|n| usize::try_from(n).ok()) else {
            return Err(format!("{name} has no size"));
        };
        let (Some(content), Some(next)) = (rest.get(..size), size.checked_next_multiple_of(BLOCK)) else {
            return Err(format!("{name} is cut off"));
        };
        if matches!(header[156], b'0' | 0) {
            all.insert(name.trim_start_matches("./").to_string(), content.to_vec());
        }
        bytes = rest.get(next..).ok_or(format!("{name} is cut off"))?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packed(files: &[(&str, Content)]) -> Vec<u8> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t");
        pack(&path, files).unwrap();
        std::fs::read(&path).unwrap()
    }

    #[test]
    fn what_is_packed_is_read_back_by_us_and_by_tar() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("program");
        std::fs::write(&program, vec![7; 1500]).unwrap();
        let list = [("script", Content::Text("echo a\n".into())), ("ringdb", Content::Program(program))];
        let bytes = packed(&list);
        assert_eq!(bytes.len() % 4096, 0);
        let all = files(&bytes).unwrap();
        assert_eq!(all["script"], b"echo a\n");
        assert_eq!(all["ringdb"], vec![7; 1500]);
        let archive = dir.path().join("a.tar");
        std::fs::write(&archive, &bytes).unwrap();
        let said = std::process::Command::new("tar").arg("-tvf").arg(&archive).output().unwrap();
        let text = String::from_utf8(said.stdout).unwrap();
        assert!(text.contains("-rwxr-xr-x") && text.contains("1500") && text.contains("script"), "{text}");
    }

    #[test]
    fn what_tar_writes_is_read() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("status"), "0\n").unwrap();
        std::fs::create_dir(dir.path().join("more")).unwrap();
        let archive = dir.path().join("a.tar");
        let tar = |name: &str| {
            let mut tar = std::process::Command::new("tar");
            tar.arg("-C").arg(dir.path()).arg("-cf").arg(&archive).args(["--", name, "more"]);
            assert!(tar.status().unwrap().success());
        };
        tar("./status");
        let all = unpack(&archive).unwrap().unwrap();
        assert_eq!(all["status"], b"0\n");
        assert_eq!(all.len(), 1);
    }

    #[test]
    fn damage_is_an_error_and_an_untouched_disk_is_none() {
        let good = packed(&[("a", Content::Text("x".repeat(3000)))]);
        let mut bad = good.clone();
        bad[0] ^= 1;
        assert!(files(&bad).unwrap_err().contains("sum"));
        assert!(files(&good[..2000]).unwrap_err().contains("cut off"));
        assert!(files(&good[..512 + 3072]).unwrap_err().contains("no end"));
        let mut huge = header("h", 0);
        huge[124..135].copy_from_slice(b"77777777777");
        let sum: u32 =
            (0..BLOCK).map(|i| if (148..156).contains(&i) { 32 } else { u32::from(huge[i]) }).sum();
        huge[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        assert!(files(&huge).unwrap_err().contains("cut off"));
        for cut in 0..good.len() {
            let _ = files(&good[..cut]);
        }
        assert!(files(&[0; 4096]).unwrap().is_empty());
    }
}
