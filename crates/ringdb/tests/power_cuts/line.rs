//! Records for whoever reads the log of the disk: written past the end of the file system to the very disk, past the
//! page cache, so the log has them in its order. A record that is written after something was acknowledged comes
//! after every write and flush that the acknowledgement waited for.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

pub const SECTOR: usize = 512;
const MAGIC: [u8; 8] = *b"ringdbPC";
/// Sectors that are used in turn, far fewer than the megabyte that the disk has there.
const SLOTS: u64 = 1024;

/// What a record says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record {
    /// The file system is durable; the store begins.
    Begin,
    /// The batch of a writer is durable, and all before it.
    Ack(u64, u64),
    /// A flush or a compaction has ended, and how many of the kind.
    Flushed(u64),
    Compacted(u64),
}

impl Record {
    fn words(self) -> [u64; 3] {
        match self {
            Record::Begin => [1, 0, 0],
            Record::Ack(w, n) => [2, w, n],
            Record::Flushed(n) => [3, n, 0],
            Record::Compacted(n) => [4, n, 0],
        }
    }

    /// That of a sector, if there is one.
    pub fn of(sector: &[u8]) -> Option<Record> {
        let words: Vec<u64> =
            sector.get(8..40)?.chunks(8).map(|b| u64::from_le_bytes(b.try_into().expect("eight"))).collect();
        if sector[..8] != MAGIC || words[0] ^ words[1] ^ words[2] ^ words[3] != u64::MAX {
            return None;
        }
        match words[..3] {
            [1, 0, 0] => Some(Record::Begin),
            [2, w, n] => Some(Record::Ack(w, n)),
            [3, n, 0] => Some(Record::Flushed(n)),
            [4, n, 0] => Some(Record::Compacted(n)),
            _ => None,
        }
    }

    fn write(self, sector: &mut [u8]) {
        let words = self.words();
        let sum = u64::MAX ^ words[0] ^ words[1] ^ words[2];
        sector.fill(0);
        sector[..8].copy_from_slice(&MAGIC);
        for (at, word) in words.into_iter().chain([sum]).enumerate() {
            sector[8 + 8 * at..16 + 8 * at].copy_from_slice(&word.to_le_bytes());
        }
    }
}

/// Where records are written.
pub struct Line {
    device: File,
    offset: u64,
    next: AtomicU64,
}

impl Line {
    /// To the device, from this byte on.
    pub fn open(device: &Path, offset: u64) -> io::Result<Line> {
        let device = OpenOptions::new().write(true).custom_flags(libc::O_DIRECT).open(device)?;
        Ok(Line { device, offset, next: AtomicU64::new(0) })
    }

    /// The newest of what was said there.
    pub fn read(device: &Path, offset: u64) -> io::Result<Vec<Record>> {
        let mut all = vec![0; SLOTS as usize * SECTOR];
        File::open(device)?.read_exact_at(&mut all, offset)?;
        Ok(all.chunks(SECTOR).filter_map(Record::of).collect())
    }

    pub fn say(&self, record: Record) -> io::Result<()> {
        let mut room = [0; 2 * SECTOR];
        let from = room.as_ptr().align_offset(SECTOR);
        let sector = &mut room[from..from + SECTOR];
        record.write(sector);
        let slot = self.next.fetch_add(1, Relaxed) % SLOTS;
        self.device.write_all_at(sector, self.offset + slot * SECTOR as u64)
    }
}

pub fn tests() {
    let mut sector = [7; SECTOR];
    for record in [Record::Begin, Record::Ack(2, 77), Record::Flushed(3), Record::Compacted(1 << 40)] {
        record.write(&mut sector);
        assert_eq!(Record::of(&sector), Some(record));
        for at in 0..40 {
            let mut bad = sector;
            bad[at] ^= 1;
            assert_eq!(Record::of(&bad), None, "{record:?} with byte {at} spoilt");
        }
    }
    assert_eq!(Record::of(&[]), None);
}
