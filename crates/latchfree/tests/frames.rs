//! Frames in the operations of engineswap.
#![allow(missing_docs, clippy::unwrap_used)]

use engineswap::{Buf, Direct, Io, Op, OpenHow, Piece, Purpose};
use latchfree::{FrameArena, FreeFrame};

const P: Purpose = Purpose(0);

/// The content of page `n`: no two alike.
fn page(n: u64) -> Vec<u8> {
    (0..4096u64).map(|i| (n.wrapping_mul(31) ^ i ^ (i >> 8).wrapping_mul(n + 7)) as u8).collect()
}

fn file(io: &Io, dir: &std::path::Path, pages: u64) -> engineswap::File {
    let how = OpenHow { truncate: true, ..OpenHow::read_write().direct(Direct::Prefer) };
    let f = io.open(&dir.join("f"), &how).unwrap();
    let mut all = engineswap::mem::AlignedBuf::zeroed(pages as usize * 4096);
    for (n, part) in all.chunks_mut(4096).enumerate() {
        part.copy_from_slice(&page(n as u64));
    }
    f.write_all_at(&all, 0, P).unwrap();
    f
}

#[test]
fn frames_are_filled_and_come_back() {
    let dir = tempfile::tempdir().unwrap();
    for io in ["posix", "libaio", "io_uring"].iter().filter_map(|uri| Io::from_uri(uri).ok()) {
        let f = file(&io, dir.path(), 8);
        let arena = FrameArena::new(4096, 6);
        let ops = || {
            let frame = |_| arena.alloc().unwrap();
            let one = Op::read(&f, 4096, 4096, frame(0).into(), P);
            vec![one, Op::readv(&f, 3 * 4096, (0..3).map(frame).map(Piece::from).collect(), P)]
        };
        let mut done = io.run(ops());
        let (Buf::Pieces(many), Buf::Arena(one)) = (done.pop().unwrap().buf, done.pop().unwrap().buf) else {
            panic!("the frames are gone")
        };
        let at = one.as_ptr();
        let one = FreeFrame::try_from(one).unwrap();
        assert!(one[..] == page(1) && one.as_ptr() == at);
        assert!(many.iter().zip(3..).all(|(p, n)| p.bytes() == page(n)));
        assert_eq!(arena.in_use(), 4);
        // Dropped with their completions, and in a list of pieces, they go back.
        drop((one, many));
        assert_eq!(arena.in_use(), 0);
        drop(io.run(ops()));
        assert_eq!(arena.in_use(), 0, "{}", io.info().name);
    }
}

#[test]
fn frames_of_a_registered_arena_stay_where_they_are() {
    // Memory given back to the kernel while it is registered would be read into unseen.
    let Ok(io) = Io::from_uri("io_uring?fixed_buffers") else { return };
    let dir = tempfile::tempdir().unwrap();
    let f = file(&io, dir.path(), 4);
    let frames = FrameArena::new(4096, 8);
    let registered = io.register_buffers(frames.region()).unwrap();
    let before = io.stats().fixed;
    for limit in [8, 1, 8, 0, 8] {
        let held: Vec<_> = (0..limit).map(|_| frames.alloc().unwrap()).collect();
        frames.set_limit(limit);
        drop(held);
        frames.set_limit(0);
        frames.set_limit(8);
        let read = |n| Op::read(&f, n * 4096, 4096, frames.alloc().unwrap().into(), P).user(n);
        for d in io.run((0..4).map(read).collect()) {
            let Buf::Arena(b) = d.buf else { panic!("no frame") };
            assert!(b[..] == page(d.user), "limit {limit}: page {}", d.user);
        }
    }
    assert_eq!(io.stats().fixed - before, 20);
    drop(registered);
}
