//! The log of a disk as QEMU's `blklogwrites` writes it (the format of the kernel's dm-log-writes), and what a power
//! cut leaves of the disk: everything before the last flush, and any part of what was written after it.

use crate::line::{Record, SECTOR};
use crate::support::Rng;

const MAGIC: u64 = 0x006a_7366_7773_6872;
const FLUSH: u64 = 1;
const DISCARD: u64 = 4;

/// One request that reached the disk.
#[derive(Debug, PartialEq, Eq)]
pub enum Entry<'a> {
    Flush,
    /// These bytes at an offset.
    Write(u64, &'a [u8]),
    /// Written past the end of the file system.
    Records(Vec<Record>),
}

/// Reads all entries; writes from `end` on are records.
pub fn parse(log: &[u8], end: u64) -> Result<Vec<Entry<'_>>, String> {
    let word = |at: usize| -> Result<u64, String> {
        let bytes = log.get(at..at + 8).ok_or("the log is cut off")?;
        Ok(u64::from_le_bytes(bytes.try_into().expect("eight")))
    };
    if word(0)? != MAGIC || word(8)? != 1 {
        return Err("no log of blklogwrites".into());
    }
    let sector = (word(24)? & 0xffff_ffff) as usize;
    if sector != SECTOR {
        return Err(format!("sectors of {sector} bytes"));
    }
    let mut entries = Vec::new();
    let mut at = sector;
    for _ in 0..word(16)? {
        let (start, sectors, flags) = (word(at)? * sector as u64, word(at + 8)?, word(at + 16)?);
        at += sector;
        if flags & DISCARD != 0 {
            return Err("the file system discards blocks, whose contents are unknown then".into());
        }
        let bytes = log.get(at..at + sectors as usize * sector).ok_or("the log is cut off")?;
        at += bytes.len();
        entries.push(match (flags & FLUSH != 0, start >= end) {
            (true, _) if bytes.is_empty() => Entry::Flush,
            (true, _) => return Err("a write with a flush".into()),
            // What QEMU could not log leaves a hole, and what follows it cannot be found.
            (false, _) if bytes.is_empty() => return Err("the log has a hole".into()),
            (false, false) => Entry::Write(start, bytes),
            (false, true) => Entry::Records(bytes.chunks(sector).filter_map(Record::of).collect()),
        });
    }
    Ok(entries)
}

/// What of the writes after the last flush is on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    All,
    Nothing,
    Newest,
    AllButOne,
    /// Each request or not, by chance.
    Requests,
    /// Each block or not, by chance, so that requests are torn.
    Blocks,
}

impl Kept {
    /// What is tried at the n-th point, where so many requests are not flushed.
    pub fn tried(n: usize, pending: usize) -> Vec<Kept> {
        match pending {
            0 => vec![Kept::Nothing],
            1 => vec![Kept::All, Kept::Nothing, Kept::Blocks],
            _ => vec![
                [Kept::All, Kept::Newest, Kept::AllButOne][n % 3],
                [Kept::Nothing, Kept::Requests, Kept::Requests][n / 3 % 3],
                Kept::Blocks,
            ],
        }
    }

    /// The pieces that are kept, in their order.
    pub fn of<'a>(self, pending: &[(u64, &'a [u8])], block: usize, rng: &mut Rng) -> Vec<(u64, &'a [u8])> {
        let lost = rng.below(pending.len().max(1) as u64) as usize;
        let whole = |keep: &mut dyn FnMut(usize) -> bool| -> Vec<(u64, &'a [u8])> {
            (0..pending.len()).filter(|i| keep(*i)).map(|i| pending[i]).collect()
        };
        match self {
            Kept::All => pending.to_vec(),
            Kept::Nothing => vec![],
            Kept::Newest => whole(&mut |i| i + 1 == pending.len()),
            Kept::AllButOne => whole(&mut |i| i != lost),
            Kept::Requests => whole(&mut |_| rng.chance(2)),
            Kept::Blocks => {
                let mut pieces = Vec::new();
                for (start, bytes) in pending {
                    let all = (*start..).step_by(block).zip(bytes.chunks(block));
                    pieces.extend(all.filter(|_| rng.chance(2)));
                }
                pieces
            }
        }
    }
}

pub fn tests() {
    let mut log = vec![0; SECTOR];
    let put = |log: &mut Vec<u8>, words: [u64; 4]| {
        let at = log.len();
        log.resize(at + SECTOR, 0);
        words.iter().enumerate().for_each(|(i, w)| log[at + 8 * i..][..8].copy_from_slice(&w.to_le_bytes()));
    };
    let data: Vec<u8> = (0..4 * SECTOR).map(|i| (i / SECTOR) as u8 + 1).collect();
    put(&mut log, [8, 4, 0, 0]);
    log.extend(&data);
    put(&mut log, [0, 0, FLUSH, 0]);
    put(&mut log, [100, 1, 0, 0]);
    log.extend([0; SECTOR]);
    for (at, word) in [MAGIC, 1, 3, SECTOR as u64].into_iter().enumerate() {
        log[8 * at..8 * at + 8].copy_from_slice(&word.to_le_bytes());
    }
    let end = 100 * SECTOR as u64;
    let all = parse(&log, end).unwrap();
    assert_eq!(all, [Entry::Write(8 * SECTOR as u64, &data), Entry::Flush, Entry::Records(vec![])]);
    for cut in 0..log.len() {
        assert!(parse(&log[..cut], end).is_err(), "a log of {cut} bytes");
    }
    let mut bad = log.clone();
    bad[SECTOR + 16] = DISCARD as u8;
    assert!(parse(&bad, end).unwrap_err().contains("discards"));

    let mut hole = log.clone();
    hole[SECTOR..2 * SECTOR].fill(0);
    assert!(parse(&hole, end).unwrap_err().contains("hole"));

    let pending: Vec<(u64, &[u8])> = (0..4).map(|i| (i * 4096, &data[..])).collect();
    let mut rng = Rng(1);
    let kept = |kept: Kept, rng: &mut Rng| kept.of(&pending, SECTOR, rng);
    assert_eq!(kept(Kept::All, &mut rng), pending);
    assert!(kept(Kept::Nothing, &mut rng).is_empty());
    assert_eq!(kept(Kept::Newest, &mut rng), pending[3..]);
    assert_eq!(kept(Kept::AllButOne, &mut rng).len(), 3);
    let some: Vec<usize> = (0..100).map(|_| kept(Kept::Requests, &mut rng).len()).collect();
    assert!(some.contains(&1) && some.contains(&3));
    let torn = kept(Kept::Blocks, &mut rng);
    assert!((1..16).contains(&torn.len()));
    for (at, bytes) in torn {
        assert!(bytes.len() == SECTOR && u64::from(bytes[0] - 1) == at % 4096 / SECTOR as u64);
    }
}
