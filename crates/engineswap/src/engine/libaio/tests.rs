use crate::mem::AlignedBuf;
use crate::{Buf, Direct, File, Io, Op, OpKind, OpenHow, Purpose};

use super::*;

fn made(depth: u32) -> Option<(tempfile::TempDir, Libaio, File, Arc<Stats>)> {
    let can = match try_context(depth) {
        Ok(can) => can,
        Err(e) => {
            println!("SKIPPED: native AIO does not work here ({e})");
            return None;
        }
    };
    let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    let how = OpenHow::read_write().direct(Direct::Prefer);
    let config = LibaioConfig { depth, ..LibaioConfig::default() };
    let engine = Libaio::new(config, can, Vec::new());
    let f = Io::from_uri("posix").unwrap().open(&dir.path().join("f"), &how).unwrap();
    let mut data = AlignedBuf::zeroed(64 * 4096);
    data.chunks_mut(4096).enumerate().for_each(|(i, page)| page.fill(i as u8));
    f.write_all_at(&data, 0, Purpose(0)).unwrap();
    Some((dir, engine, f, Arc::new(Stats::new(c"libaio"))))
}

fn page() -> AlignedBuf {
    AlignedBuf::zeroed(4096)
}

fn results(q: &mut LibaioQueue) -> Vec<(u64, Result<u64>, Buf)> {
    let mut all = Vec::new();
    while q.slots.in_flight() > 0 {
        q.wait(1).unwrap();
        all.extend(std::iter::from_fn(|| q.pop()).map(|d| (d.user, d.result, d.buf)));
    }
    all.sort_by_key(|d| d.0);
    all
}

#[test]
fn what_native_aio_has_is_not_done_by_plain_calls() {
    let Some((_dir, engine, f, stats)) = made(16) else { return };
    if !(f.is_direct() && engine.can.sync && engine.can.vectors && engine.can.flags) {
        return println!("SKIPPED: no direct I/O, or an old kernel");
    }
    let mut q = engine.queue(16, Users::One, &stats).unwrap();
    let pieces = || vec![page().into(), page().into()];
    let write = Op::write(&f, 0, 4096, Buf::Aligned(page()), Purpose(0));
    let ops = [
        Op { kind: OpKind::Write { dsync: true }, ..write },
        Op::write(&f, 4096, 4096, Buf::Aligned(page()), Purpose(0)),
        Op::writev(&f, 8192, pieces(), Purpose(0)),
        Op { kind: OpKind::Write { dsync: true }, ..Op::writev(&f, 16384, pieces(), Purpose(0)) },
        Op::readv(&f, 32 * 4096, pieces(), Purpose(0)),
        Op::sync_data(&f, Purpose(0)),
        Op { kind: OpKind::SyncAll, ..Op::sync_data(&f, Purpose(0)) },
    ];
    for (i, op) in ops.into_iter().enumerate() {
        q.slots.push(op.user(i as u64)).unwrap();
    }
    let got: Vec<u64> = results(&mut q).into_iter().map(|d| d.1.unwrap()).collect();
    assert_eq!(got, [4096, 4096, 8192, 8192, 8192, 0, 0]);
    let s = stats.snapshot();
    // The syncs are done by workers.
    assert_eq!((s.inline, s.queue_ops, s.punted), (0, 7, 2));
}

/// A context for one request holds more, but not that many: the kernel takes a part, then says EAGAIN.
#[test]
fn more_than_the_context_holds_goes_through_it_in_parts() {
    let Some((_dir, engine, f, stats)) = made(1024) else { return };
    let mut q = engine.queue(1024, Users::One, &stats).unwrap();
    (q.context, q.holds) = (Context::new(1).unwrap(), 1);
    for i in 0..1024 {
        q.slots.push(Op::read(&f, (i % 64) * 4096, 4096, Buf::Aligned(page()), Purpose(0)).user(i)).unwrap();
    }
    q.submit().unwrap();
    assert!(stats.snapshot().submit_calls > 1, "taken whole");
    let all = results(&mut q);
    assert_eq!(all.len(), 1024);
    for (user, result, buf) in all {
        let Buf::Aligned(b) = buf else { panic!("the buffer is gone") };
        assert_eq!((result.unwrap(), b[7]), (4096, (user % 64) as u8));
    }
    let s = stats.snapshot();
    assert_eq!((s.queue_ops, s.inline), (1024, 0));
}

/// The kernel takes what comes before a request that it refuses, and the rest has to be submitted again.
#[test]
fn a_refused_request_does_not_hold_up_the_rest() {
    let Some((dir, engine, f, stats)) = made(16) else { return };
    let how = OpenHow::read().direct(Direct::Prefer);
    let r = Io::from_uri("posix").unwrap().open(&dir.path().join("f"), &how).unwrap();
    let mut q = engine.queue(16, Users::One, &stats).unwrap();
    for i in 0..9 {
        let op = match i % 3 {
            // Durable, so that it is no plain call on a buffered file either.
            1 => Op {
                kind: OpKind::Write { dsync: true },
                ..Op::write(&r, 0, 4096, Buf::Aligned(page()), Purpose(0))
            },
            _ => Op::read(&f, i * 4096, 4096, Buf::Aligned(page()), Purpose(0)),
        };
        q.slots.push(op.user(i)).unwrap();
    }
    for (user, result, buf) in results(&mut q) {
        let Buf::Aligned(b) = buf else { panic!("the buffer is gone") };
        match user % 3 {
            1 => assert_eq!(result.unwrap_err().errno(), Some(libc::EBADF)),
            _ => assert_eq!((result.unwrap(), b[7]), (4096, user as u8)),
        }
    }
}
