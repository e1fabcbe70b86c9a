//! The first pass over a batch: what the page cache has is copied at once, and of the rest every device read is begun.
//!
//! A read that must not wait (RWF_NOWAIT) and finds nothing has had the kernel begin the device's read. So after a pass
//! over the batch all of its misses are in flight, also on engines whose buffered reads wait one after the other
//! (libaio does them inside of the submission, a polled ring cannot do them at all).

use crate::buf::Buf;
use crate::engine::exec;
use crate::engine::trace;
use crate::op::{Done, Op};
use crate::probes;
use crate::stats::{Counter, Stats};

/// Does those reads of a batch that the page cache has, and gives the others back in their order. A batch with chains
/// is left as it is: its order counts.
pub(super) fn reads(ops: Vec<Op>, stats: &Stats, each: &mut dyn FnMut(Done)) -> Vec<Op> {
    if ops.len() < 2 || ops.iter().any(|op| op.chain) {
        return ops;
    }
    let mut rest = Vec::new();
    for mut op in ops {
        match exec::read_cached(&mut op) {
            Some(got) => {
                stats.add(Counter::Inline, 1);
                if let Some(event) = if probes::on() { trace::event(&op, true) } else { None } {
                    // Whether it would be done here was known only now.
                    event.complete(got as i64, event.submit());
                }
                let buf = std::mem::replace(&mut op.buf, Buf::None);
                each(Done { user: op.user, result: Ok(got), buf });
            }
            None => rest.push(op),
        }
    }
    rest
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::mem::AlignedBuf;
    use crate::{Advice, File, Io, OpenHow, Purpose};

    const PAGES: u64 = 32;

    /// A file of so many pages, each of its number, none of them in the page cache where that can be.
    fn cold(dir: &tempfile::TempDir, uri: &str) -> (Io, File) {
        let io = Io::from_uri(uri).unwrap();
        let f = io.open(&dir.path().join("f"), &OpenHow::read_write()).unwrap();
        let mut data = AlignedBuf::zeroed(PAGES as usize * 4096);
        data.chunks_mut(4096).enumerate().for_each(|(i, page)| page.fill(i as u8));
        f.write_all_at(&data, 0, Purpose(0)).unwrap();
        f.sync_all(Purpose(0)).unwrap();
        f.advise(Advice::Random, 0, 0).unwrap();
        f.advise(Advice::DontNeed, 0, 0).unwrap();
        (io, f)
    }

    fn batch(f: &File) -> Vec<Op> {
        let buf = || Buf::Aligned(AlignedBuf::zeroed(4096));
        (0..PAGES).map(|i| Op::read(f, i * 4096, 4096, buf(), Purpose(0)).user(i)).collect()
    }

    fn check(done: &Done) {
        assert_eq!(*done.result.as_ref().unwrap(), 4096);
        let Buf::Aligned(b) = &done.buf else { panic!("the buffer is gone") };
        assert!(b.iter().all(|x| *x == done.user as u8), "page {}", done.user);
    }

    #[test]
    fn a_read_that_finds_nothing_has_begun() {
        let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let (_io, f) = cold(&dir, "posix");
        let stats = Stats::new(c"posix");
        let mut got = 0;
        let mut each = |done: Done| {
            check(&done);
            got += 1;
        };
        let mut rest = reads(batch(&f), &stats, &mut each);
        if rest.len() < PAGES as usize / 2 {
            return println!("SKIPPED: the page cache does not forget here");
        }
        // Nobody ever waits for a read: they come in because they were begun.
        let deadline = Instant::now() + Duration::from_secs(60);
        while rest.len() > 1 {
            assert!(Instant::now() < deadline, "{} reads have not come in", rest.len());
            std::thread::sleep(Duration::from_millis(1));
            rest = reads(rest, &stats, &mut each);
        }
        assert_eq!(got + rest.len(), PAGES as usize);
    }

    #[test]
    fn a_lone_read_is_answered_or_left_and_counted_if_it_was_answered() {
        let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let (io, f) = cold(&dir, "posix");
        let mut buf = [0; 4096];
        let reads = || io.stats().of(crate::OpClass::Read, Purpose(7)).ops;
        if f.read_cached_at(&mut buf, 0, Purpose(7)).is_none() {
            assert_eq!(reads(), 0);
            f.read_at(&mut buf, 0, Purpose(0)).unwrap();
        }
        let before = reads();
        assert!(f.read_cached_at(&mut buf, 0, Purpose(7)).is_some() && buf == [0; 4096]);
        assert_eq!(reads(), before + 1);
        // Behind the end there is nothing to be had.
        assert!(f.read_cached_at(&mut buf, PAGES * 4096 - 10, Purpose(7)).is_none());
        let direct = io.open(f.path(), &OpenHow::read().direct(crate::Direct::Prefer)).unwrap();
        assert!(!direct.is_direct() || direct.read_cached_at(&mut buf, 0, Purpose(7)).is_none());
    }

    #[test]
    fn chains_and_lone_reads_are_left_alone() {
        let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let (_io, f) = cold(&dir, "posix");
        let stats = Stats::new(c"posix");
        f.read_at(&mut [0; 4096 * PAGES as usize], 0, Purpose(0)).unwrap();
        let mut chained = batch(&f);
        let last = chained.pop().unwrap();
        chained.push(chained_on(last));
        assert_eq!(reads(chained, &stats, &mut |_| panic!("out of its order")).len(), PAGES as usize);
        let one = batch(&f).drain(..1).collect();
        assert_eq!(reads(one, &stats, &mut |_| panic!("a plain call serves it")).len(), 1);
    }

    fn chained_on(op: Op) -> Op {
        Op { chain: true, ..op }
    }

    #[test]
    fn batches_of_cold_and_warm_reads_are_answered_in_their_order() {
        let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        for uri in ["posix", "libaio", "io_uring", "io_uring?iopoll"] {
            if Io::from_uri(uri).is_err() {
                println!("SKIPPED {uri}");
                continue;
            }
            let (io, f) = cold(&dir, uri);
            f.read_at(&mut [0; 4096], 5 * 4096, Purpose(0)).unwrap();
            for _ in 0..2 {
                let all = io.run(batch(&f));
                assert_eq!(all.len(), PAGES as usize, "{uri}");
                for (i, done) in all.iter().enumerate() {
                    assert_eq!(done.user, i as u64, "{uri}");
                    check(done);
                }
            }
            if uri == "libaio" {
                // The second time all were there.
                assert!(io.stats().inline >= PAGES, "{}", io.stats().inline);
            }
        }
    }
}
