//! Random operations against a file in memory.

use engineswap::mem::AlignedBuf;
use engineswap::{Buf, File, Op};

use crate::{Case, Ctx, P, buf, bytes};

pub const CASES: &[Case] = &[("model::random_operations", random_operations)];

struct Random(u64);

impl Random {
    /// Below `n`.
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % n.max(1)
    }
}

const MAX: u64 = 1 << 18;

fn random_operations(c: &Ctx) {
    let mut r = Random(c.seed | 1);
    let mut f = c.open("f");
    let mut model: Vec<u8> = Vec::new();
    let unit = c.unit(&f);
    for step in 0..150 {
        let what = r.below(100);
        match what {
            0..30 => read(&f, &model, &mut r),
            30..50 => {
                let (offset, data) = some_write(&mut r, unit);
                match r.below(4) {
                    0 => f.write_all_at_dsync(&data, offset, P).unwrap(),
                    _ => f.write_all_at(&data, offset, P).unwrap(),
                }
                apply(&mut model, offset, &data);
            }
            50..75 => batch(c, &f, &mut model, &mut r, unit),
            75..80 => {
                let len = r.below(MAX);
                f.set_len(len).unwrap();
                model.resize(len as usize, 0);
            }
            80..85 => {
                let (offset, len) = (r.below(MAX / 2), 1 + r.below(MAX / 4));
                f.allocate(offset, len).unwrap();
                model.resize(model.len().max((offset + len) as usize), 0);
            }
            85..90 => f.sync_data(P).unwrap(),
            90..93 => {
                drop(f);
                f = c.open("f");
            }
            _ => {
                let name = c.dir.join("other");
                c.io.rename(&c.dir.join("f"), &name).unwrap();
                c.io.rename(&name, &c.dir.join("f")).unwrap();
            }
        }
        assert_eq!(f.len().unwrap(), model.len() as u64, "after step {step} ({what})");
    }
    let mut all = vec![0; model.len()];
    f.read_exact_at(&mut all, 0, P).unwrap();
    assert!(all == model, "the contents differ at the end");
}

fn apply(model: &mut Vec<u8>, offset: u64, data: &[u8]) {
    let end = offset as usize + data.len();
    model.resize(model.len().max(end), 0);
    model[offset as usize..end].copy_from_slice(data);
}

/// An offset and bytes for it; aligned where they must be.
fn some_write(r: &mut Random, unit: u64) -> (u64, Vec<u8>) {
    let offset = r.below(MAX) / unit * unit;
    let len = (1 + r.below(40_000)).next_multiple_of(unit);
    let seed = r.below(256);
    (offset, (0..len).map(|i| (i * 13 + seed) as u8).collect())
}

fn read(f: &File, model: &[u8], r: &mut Random) {
    let (offset, len, skew) = (r.below(MAX + 10_000), r.below(50_000) as usize, r.below(64) as usize);
    let mut memory = vec![0u8; len + 64];
    let b = &mut memory[skew..skew + len];
    let want = model.get(offset as usize..).unwrap_or_default();
    let want = &want[..want.len().min(len)];
    assert_eq!(f.read_at(b, offset, P).unwrap(), want.len(), "{len} bytes at {offset}");
    assert!(b[..want.len()] == *want, "{len} bytes at {offset}");
}

/// Reads and writes of pages, no two of the same, in one batch or on a queue.
fn batch(c: &Ctx, f: &File, model: &mut Vec<u8>, r: &mut Random, unit: u64) {
    let pages = MAX / 4096;
    let (start, n, stride) = (r.below(pages), 1 + r.below(40), 1 + 2 * r.below(8));
    let before = model.clone();
    let mut ops = Vec::new();
    let mut want = Vec::new();
    for i in 0..n {
        let offset = (start + i * stride) % pages * 4096;
        let len = match r.below(4) {
            0 => (1 + r.below(4095)).next_multiple_of(unit),
            _ => 4096,
        };
        let write = r.below(3) == 0;
        if write {
            let mut b = AlignedBuf::zeroed(4096);
            b[..len as usize].fill(r.below(256) as u8);
            apply(model, offset, &b[..len as usize]);
            ops.push(Op::write(f, offset, len, Buf::Aligned(b), P).user(i));
            want.push((offset, len, None));
        } else {
            ops.push(Op::read(f, offset, len, buf(4096), P).user(i));
            let old = before.get(offset as usize..).unwrap_or_default();
            want.push((offset, len, Some(old[..old.len().min(len as usize)].to_vec())));
        }
    }
    // A write beyond the end moves the end while others read: only the bytes that were there are certain.
    let mut done = match r.below(2) {
        0 => c.io.run(ops),
        _ => {
            let mut q = c.io.queue(1 + r.below(16) as u32).unwrap();
            let (mut ops, mut held, mut done) = (ops.into_iter(), None, Vec::new());
            loop {
                while let Some(op) = held.take().or_else(|| ops.next()) {
                    if let Err(op) = q.push(op) {
                        held = Some(op);
                        break;
                    }
                }
                if q.in_flight() == 0 {
                    break done;
                }
                q.wait(1 + r.below(4) as usize).unwrap();
                done.extend(std::iter::from_fn(|| q.pop()));
            }
        }
    };
    done.sort_by_key(|d| d.user);
    assert_eq!(done.len(), want.len());
    for (d, (offset, len, old)) in done.iter().zip(want) {
        let got = *d.result.as_ref().unwrap();
        match old {
            None => assert_eq!(got, len, "a write at {offset}"),
            Some(old) => {
                assert!(got >= old.len() as u64 && got <= len, "{got} of {len} bytes at {offset}");
                assert!(bytes(&d.buf)[..old.len()] == old[..], "a read at {offset}");
                assert!(bytes(&d.buf)[old.len()..got as usize].iter().all(|b| *b == 0));
            }
        }
    }
}
