//! Vectored transfers: pieces of every kind, more of them than a call takes, and none that direct I/O takes as it is.

use engineswap::mem::{AlignedBuf, ForeignBuf};
use engineswap::{Buf, Done, ErrorKind, File, Op, OpKind, Piece};

use crate::{Case, Ctx, P, page, read_page, write_page};

pub const CASES: &[Case] = &[
    ("vectored::pieces_of_every_kind", pieces_of_every_kind),
    ("vectored::more_pieces_than_one_call_takes", more_pieces_than_one_call_takes),
    ("vectored::pieces_that_are_not_aligned", pieces_that_are_not_aligned),
    ("vectored::the_end_of_the_file", the_end_of_the_file),
    ("vectored::chains_and_durable_writes", chains_and_durable_writes),
    ("vectored::wrong_pieces", wrong_pieces),
    ("vectored::random_pieces", random_pieces),
];

/// Does an operation on a queue, in a batch, and alone.
fn every_way(c: &Ctx, op: &dyn Fn() -> Op) -> Vec<Done> {
    let mut q = c.io.queue(4).unwrap();
    q.push(op()).unwrap();
    q.wait(1).unwrap();
    let mut done = vec![q.pop().unwrap()];
    done.extend(c.io.run(vec![op(), op()]));
    done.extend(c.io.run(vec![op()]));
    done
}

fn pieces(buf: &Buf) -> &[Piece] {
    match buf {
        Buf::Pieces(v) => v,
        _ => panic!("the pieces are gone"),
    }
}

fn joined(buf: &Buf) -> Vec<u8> {
    pieces(buf).iter().flat_map(|p| p.bytes()).copied().collect()
}

fn read_all(f: &File) -> Vec<u8> {
    let mut all = vec![0; f.len().unwrap() as usize];
    f.read_exact_at(&mut all, 0, P).unwrap();
    all
}

/// The pages of the whole file in a row.
fn pages(n: u64) -> Vec<u8> {
    (0..n).flat_map(page).collect()
}

fn pieces_of_every_kind(c: &Ctx) {
    let f = c.filled("f", 16);
    let arena = crate::arena::PageArena::new(32);
    let mut foreign = AlignedBuf::zeroed(8192);
    let ptr = foreign.as_mut_ptr();
    let mix = || -> Vec<Piece> {
        // SAFETY: aligned memory that outlives the operations, which are done one after the other.
        let lent = unsafe { ForeignBuf::to_read_into(ptr, 8192) };
        // SAFETY: no bytes at all.
        let empty = unsafe { ForeignBuf::to_read_into(std::ptr::null_mut(), 0) };
        vec![
            AlignedBuf::zeroed(4096).into(),
            arena.alloc().unwrap().into(),
            empty.into(),
            lent.into(),
            AlignedBuf::zeroed(12288).into(),
        ]
    };
    let mut q = c.io.queue(4).unwrap();
    for _ in 0..2 {
        q.push(Op::readv(&f, 2 * 4096, mix(), P).user(5)).unwrap();
        q.wait(1).unwrap();
        let d = q.pop().unwrap();
        assert_eq!((d.user, d.result.unwrap()), (5, 7 * 4096));
        assert!(joined(&d.buf) == pages(9)[2 * 4096..]);
        let d = c.io.run(vec![Op::readv(&f, 2 * 4096, mix(), P)]).remove(0);
        assert_eq!(d.result.unwrap(), 7 * 4096);
        assert!(joined(&d.buf) == pages(9)[2 * 4096..]);
    }
    // The same pieces, filled, go into another place, with another operation beside it.
    let Buf::Pieces(v) = c.io.run(vec![Op::readv(&f, 0, mix(), P), read_page(&f, 3)]).remove(0).buf else {
        panic!("the pieces are gone")
    };
    let done = c.io.run(vec![Op::writev(&f, 20 * 4096, v, P), write_page(&f, 30)]);
    assert!(done.iter().map(|d| *d.result.as_ref().unwrap()).eq([7 * 4096, 4096]));
    let all = read_all(&f);
    assert!(all[..16 * 4096] == pages(16), "what was there has changed");
    assert!(all[20 * 4096..27 * 4096] == pages(7));
    assert!(all[30 * 4096..] == page(30));
}

fn more_pieces_than_one_call_takes(c: &Ctx) {
    // One call takes 1024 vectors.
    let n = 1100u64;
    let f = c.open("f");
    let want = pages(n);
    let filled = |i: u64| {
        let mut b = AlignedBuf::zeroed(4096);
        b.copy_from_slice(&want[i as usize * 4096..][..4096]);
        Piece::Aligned(b)
    };
    let op = || Op::writev(&f, 0, (0..n).map(filled).collect(), P);
    for d in every_way(c, &op) {
        assert_eq!(d.result.unwrap(), n * 4096);
        assert!(f.len().unwrap() == n * 4096 && read_all(&f) == want);
        assert!(joined(&d.buf) == want);
    }
    let op = || Op::readv(&f, 4096, (0..n).map(|_| AlignedBuf::zeroed(4096).into()).collect(), P);
    for d in every_way(c, &op) {
        assert_eq!(d.result.unwrap(), (n - 1) * 4096);
        assert!(joined(&d.buf)[..(n as usize - 1) * 4096] == want[4096..]);
        assert!(pieces(&d.buf)[n as usize - 1].bytes().iter().all(|b| *b == 0), "beyond the end");
    }
}

fn pieces_that_are_not_aligned(c: &Ctx) {
    let f = c.filled("f", 4);
    // 1.25 MiB in pieces of 1 to 9973 bytes: more than what direct I/O copies at a time.
    let data: Vec<u8> = (0..5u32 << 18).map(|i| ((i / 3) ^ (i >> 11)) as u8).collect();
    let cut = |len: usize| {
        let mut cuts = vec![0];
        let mut k = 0;
        while *cuts.last().unwrap() < len {
            k += 1;
            cuts.push((cuts.last().unwrap() + 1 + k * 397 % 9973).min(len));
        }
        cuts
    };
    let cuts = cut(data.len());
    let write = || {
        // SAFETY: `data` outlives the operations, and nobody writes to it.
        let lend = |w: &[usize]| unsafe { ForeignBuf::to_write_from(data[w[0]..].as_ptr(), w[1] - w[0]) };
        Op::writev(&f, 8192, cuts.windows(2).map(|w| lend(w).into()).collect(), P)
    };
    for d in every_way(c, &write) {
        assert_eq!(d.result.unwrap(), data.len() as u64);
        let all = read_all(&f);
        assert!(all[..8192] == pages(2) && all[8192..] == data);
    }
    // And back from an odd offset to an odd length.
    let mut back = vec![0u8; data.len() - 555];
    let cuts = cut(back.len());
    for way in 0..2 {
        let ptr = back.as_mut_ptr();
        // SAFETY: the parts of `back`, which outlives the operation, do not overlap.
        let lend = |w: &[usize]| unsafe { ForeignBuf::to_read_into(ptr.add(w[0]), w[1] - w[0]) };
        let op = Op::readv(&f, 8192 + 111, cuts.windows(2).map(|w| lend(w).into()).collect(), P);
        let mut ops = vec![op];
        ops.extend((way == 0).then(|| read_page(&f, 1)));
        let done = c.io.run(ops).remove(0);
        assert_eq!(done.result.unwrap(), back.len() as u64);
        drop(done.buf);
        assert!(back[..] == data[111..][..back.len()]);
        back.fill(0);
    }
    // What direct I/O cannot do at all is refused as for one buffer.
    let unit = c.unit(&f);
    if unit > 1 {
        // SAFETY: as above.
        let one = || unsafe { ForeignBuf::to_write_from(data.as_ptr(), 1) };
        for d in every_way(c, &|| Op::writev(&f, 0, vec![one().into(), one().into()], P)) {
            assert_eq!(d.result.unwrap_err().kind(), ErrorKind::InvalidInput);
        }
    }
}

fn the_end_of_the_file(c: &Ctx) {
    let f = c.filled("f", 4);
    f.set_len(4 * 4096 - 1000).unwrap();
    let three = || (0..3).map(|_| AlignedBuf::zeroed(4096).into()).collect::<Vec<Piece>>();
    for d in every_way(c, &|| Op::readv(&f, 2 * 4096, three(), P)) {
        assert_eq!(d.result.as_ref().unwrap(), &7192);
        assert!(joined(&d.buf)[..7192] == pages(4)[8192..][..7192]);
        assert_eq!(d.full(3 * 4096, "read").unwrap_err().kind(), ErrorKind::UnexpectedEof);
    }
    for d in every_way(c, &|| Op::readv(&f, 8 * 4096, three(), P)) {
        assert_eq!(d.result.unwrap(), 0);
    }
    // A length that ends in the middle of a piece.
    for d in every_way(c, &|| Op { len: 4096 + c.unit(&f).max(100), ..Op::readv(&f, 0, three(), P) }) {
        let n = d.result.unwrap() as usize;
        assert_eq!(n as u64, 4096 + c.unit(&f).max(100));
        let got = joined(&d.buf);
        assert!(got[..n] == pages(2)[..n] && got[n..].iter().all(|b| *b == 0));
    }
}

fn chains_and_durable_writes(c: &Ctx) {
    let f = c.open("f");
    let two = |i: u64| {
        let piece = |n| {
            let mut b = AlignedBuf::zeroed(4096);
            b.copy_from_slice(&page(n));
            Piece::Aligned(b)
        };
        vec![piece(i), piece(i + 1)]
    };
    let mut q = c.io.queue(32).unwrap();
    for i in 0..4 {
        let mut w = Op::writev(&f, 0, two(10 * i), P).user(2 * i).then();
        w.kind = OpKind::Write { dsync: i % 2 == 0 };
        q.push(w).unwrap();
        let empty = vec![AlignedBuf::zeroed(4096).into(), AlignedBuf::zeroed(4096).into()];
        let r = Op::readv(&f, 0, empty, P).user(2 * i + 1);
        q.push(if i == 3 { r } else { r.then() }).unwrap();
    }
    let mut n = 0;
    while q.in_flight() > 0 {
        q.wait(1).unwrap();
        while let Some(d) = q.pop() {
            assert_eq!(d.result.unwrap(), 8192);
            let i = d.user / 2 * 10;
            assert!(joined(&d.buf) == [page(i), page(i + 1)].concat(), "{}", d.user);
            n += 1;
        }
    }
    assert_eq!(n, 8);
    let alone = Op { kind: OpKind::Write { dsync: true }, ..Op::writev(&f, 0, two(50), P) };
    assert_eq!(c.io.run(vec![alone]).remove(0).result.unwrap(), 8192);
    assert!(read_all(&f) == [page(50), page(51)].concat());
}

fn wrong_pieces(c: &Ctx) {
    let f = c.filled("f", 4);
    for d in every_way(c, &|| Op::readv(&f, 0, Vec::new(), P)) {
        assert_eq!(d.result.unwrap(), 0);
    }
    for d in every_way(c, &|| Op { len: 4097, ..Op::readv(&f, 0, vec![AlignedBuf::zeroed(4096).into()], P) })
    {
        assert_eq!(d.result.unwrap_err().kind(), ErrorKind::InvalidInput);
    }
    let kept = AlignedBuf::zeroed(4096);
    let two = || {
        // SAFETY: `kept` outlives the operations, and nobody writes to it.
        let lent = unsafe { ForeignBuf::to_write_from(kept.as_ptr(), 4096) };
        vec![AlignedBuf::zeroed(4096).into(), lent.into()]
    };
    for d in every_way(c, &|| Op::readv(&f, 0, two(), P)) {
        assert_eq!(d.result.unwrap_err().kind(), ErrorKind::InvalidInput);
    }
    assert!(kept.iter().all(|b| *b == 0), "memory lent for writing was filled");
    assert_eq!(f.len().unwrap(), 4 * 4096);
}

fn random_pieces(c: &Ctx) {
    let f = c.filled("f", 64);
    let mut model = pages(64);
    let mut state = c.seed | 1;
    let mut below = |n: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) % n
    };
    let unit = c.unit(&f) as usize;
    for step in 0..60u64 {
        let (offset, count) = (below(56) * 4096, 1 + below(9));
        let lens: Vec<usize> = (0..count).map(|_| 1 + below(3 * 4096) as usize).collect();
        let total: usize = lens.iter().sum();
        let write = below(2) == 0;
        // A last piece makes up for what direct writes need.
        let fill = if write { total.next_multiple_of(unit) - total } else { 0 };
        let mut memory: Vec<Vec<u8>> = lens.iter().chain([&fill]).map(|n| vec![0; *n]).collect();
        if write {
            memory.iter_mut().flatten().for_each(|b| *b = below(256) as u8);
        }
        let parts: Vec<Piece> = memory
            .iter_mut()
            .map(|m| {
                // SAFETY: each piece has a vector of its own, which outlives the operation.
                unsafe { ForeignBuf::to_read_into(m.as_mut_ptr(), m.len()) }.into()
            })
            .collect();
        let op = if write { Op::writev(&f, offset, parts, P) } else { Op::readv(&f, offset, parts, P) };
        let mut ops = vec![op];
        ops.extend((below(2) == 0).then(|| read_page(&f, 63)));
        let n = *c.io.run(ops)[0].result.as_ref().unwrap() as usize;
        let all = memory.concat();
        let at = offset as usize;
        if write {
            assert_eq!(n, all.len());
            model.resize(model.len().max(at + n), 0);
            model[at..at + n].copy_from_slice(&all);
        } else {
            assert_eq!(n, all.len().min(model.len() - at), "step {step}");
            assert!(all[..n] == model[at..at + n], "step {step}: {n} bytes at {at}");
        }
    }
    assert!(read_all(&f) == model);
}
