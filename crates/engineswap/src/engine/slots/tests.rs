//! The kernel's answers, given by hand.

use std::sync::Arc;

use super::requests::What;
use super::{MAX_AGAIN, Policy, SlotTable};
use crate::buf::{Buf, Piece};
use crate::kind::{OpKind, Purpose};
use crate::mem::{AlignedBuf, ReadPool};
use crate::op::{Done, Op};
use crate::stats::Stats;
use crate::{Direct, ErrorKind, File, Io, OpenHow};

const P: Purpose = Purpose(0);

struct Fixture {
    slots: SlotTable,
    file: File,
    _dir: tempfile::TempDir,
}

/// Slots as io_uring has them, and a file of 16 pages, direct if that is wanted and to be had.
fn fixture(direct: bool) -> Fixture {
    let dir = tempfile::tempdir_in(".").or_else(|_| tempfile::tempdir()).unwrap();
    let how = OpenHow::read_write().direct(if direct { Direct::Prefer } else { Direct::No });
    let file = Io::from_uri("posix").unwrap().open(&dir.path().join("f"), &how).unwrap();
    file.write_all_at(&AlignedBuf::zeroed(16 * 4096), 0, P).unwrap();
    let mut slots = SlotTable::new(8, &Arc::new(Stats::new(c"test")));
    slots.set_policy(Policy { workers: true, limits: true, ..Policy::default() });
    Fixture { slots, file, _dir: dir }
}

impl Fixture {
    /// A reap of one completion.
    fn complete(&mut self, i: u32, res: i64) {
        self.slots.complete(i, res);
        self.slots.count();
    }

    /// Starts what is pending next, as a request, and says what it asks for: its offset, bytes, and slot.
    fn start(&mut self) -> (u64, u64, u32) {
        let i = self.slots.next_pending().expect("something to start");
        let r = self.slots.request(i).expect("a request, not a plain call");
        let bytes = match r.what {
            What::Read { len, .. } | What::Write { len, .. } => len.into(),
            What::ReadV { iov, n } | What::WriteV { iov, n, .. } => {
                // SAFETY: the slot's vectors, which stay as they are while it runs.
                let iov = unsafe { std::slice::from_raw_parts(iov, n as usize) };
                iov.iter().map(|v| v.iov_len as u64).sum()
            }
            what => panic!("{what:?}"),
        };
        self.slots.set_running(i);
        (r.offset, bytes, i)
    }

    fn push(&mut self, op: Op) {
        assert!(self.slots.push(op).is_ok());
    }

    fn end(&mut self) -> Result<u64, ErrorKind> {
        self.slots.pop().expect("a completion").result.map_err(|e| e.kind())
    }

    fn read(&self, offset: u64, len: u64) -> Op {
        Op::read(&self.file, offset, len, Buf::Aligned(AlignedBuf::zeroed(len as usize)), P)
    }

    fn write(&self, offset: u64, len: u64) -> Op {
        let op = Op::write(&self.file, offset, len, Buf::Aligned(AlignedBuf::zeroed(len as usize)), P);
        // A buffered one that is not durable would be a plain call.
        Op { kind: OpKind::Write { dsync: true }, ..op }
    }
}

#[test]
fn a_short_transfer_goes_on_where_it_stopped() {
    for write in [false, true] {
        let mut x = fixture(false);
        x.push(if write { x.write(8192, 10_000) } else { x.read(8192, 10_000) });
        for (offset, left, answer) in [(8192, 10_000, 1), (8193, 9999, 4096), (12_289, 5903, 5902)] {
            let (at, bytes, i) = x.start();
            assert_eq!((at, bytes), (offset, left));
            x.complete(i, answer);
            assert_eq!((x.slots.ready(), x.slots.running()), (0, 0));
        }
        let (at, bytes, i) = x.start();
        assert_eq!((at, bytes), (18_191, 1));
        x.complete(i, 1);
        assert_eq!(x.end(), Ok(10_000));
        assert!(!x.slots.has_pending() && x.slots.in_flight() == 0);
    }
}

#[test]
fn a_short_vectored_transfer_goes_on_inside_of_a_piece() {
    let mut x = fixture(false);
    let pieces = |n: usize| (0..n).map(|_| Piece::from(AlignedBuf::zeroed(4096))).collect::<Vec<_>>();
    x.push(Op::readv(&x.file, 0, pieces(3), P));
    for (offset, left, answer) in [(0, 12_288, 5000), (5000, 7288, 3192), (8192, 4096, 4096)] {
        let (at, bytes, i) = x.start();
        assert_eq!((at, bytes), (offset, left));
        x.complete(i, answer);
    }
    assert_eq!(x.end(), Ok(12_288));
    // No more vectors than the kernel takes.
    x.push(Op::readv(&x.file, 0, pieces(1500), P));
    let (_, bytes, i) = x.start();
    assert_eq!(bytes, 1024 * 4096);
    x.complete(i, 1024 * 4096);
    let (at, bytes, i) = x.start();
    assert_eq!((at, bytes), (1024 * 4096, 476 * 4096));
    x.complete(i, 0);
    assert_eq!(x.end(), Ok(1024 * 4096));
}

#[test]
fn a_read_ends_at_the_end_of_the_file_and_a_write_does_not() {
    let mut x = fixture(false);
    x.push(x.read(0, 8192));
    for answer in [5000, 0] {
        let (_, _, i) = x.start();
        x.complete(i, answer);
    }
    assert_eq!(x.end(), Ok(5000));
    x.push(x.write(0, 8192));
    for answer in [5000, 0] {
        let (_, _, i) = x.start();
        x.complete(i, answer);
    }
    assert_eq!(x.end(), Err(ErrorKind::Io));
    // More than was asked for is not believed.
    x.push(x.read(0, 4096));
    let (_, _, i) = x.start();
    x.complete(i, 1 << 20);
    assert_eq!(x.end(), Ok(4096));
}

#[test]
fn a_direct_transfer_that_stops_between_two_units_does_not_go_on() {
    let mut x = fixture(true);
    if !x.file.is_direct() {
        return println!("skipped: no direct I/O here");
    }
    let unit = u64::from(x.file.alignment().offset);
    x.push(x.read(0, 8192));
    let (_, _, i) = x.start();
    x.complete(i, 4096);
    let (at, bytes, i) = x.start();
    assert_eq!((at, bytes), (4096, 4096));
    x.complete(i, unit as i64 - 1);
    assert_eq!(x.end(), Ok(4096 + unit - 1), "it has met the end of the file");
    x.push(x.write(0, 8192));
    let (_, _, i) = x.start();
    x.complete(i, 4096 + unit as i64 - 1);
    assert_eq!(x.end(), Err(ErrorKind::Io), "the rest cannot be written");
}

#[test]
fn interruptions_are_started_over_and_then_done_by_a_plain_call() {
    let mut x = fixture(false);
    x.push(x.read(0, 4096));
    for k in 0..MAX_AGAIN {
        let (at, bytes, i) = x.start();
        assert_eq!((at, bytes), (0, 4096));
        x.complete(i, -i64::from(if k % 2 == 0 { libc::EAGAIN } else { libc::EINTR }));
    }
    let (_, _, i) = x.start();
    x.complete(i, -i64::from(libc::EAGAIN));
    assert_eq!(x.end(), Ok(4096));
    // An answer to a request that is done already is nobody's.
    assert!(x.slots.slot_of(x.slots.tag(i)).is_none());
    // Everything else is the operation's end.
    x.push(x.read(0, 4096));
    let (_, _, i) = x.start();
    x.complete(i, -i64::from(libc::EIO));
    assert_eq!(x.end(), Err(ErrorKind::Io));
}

#[test]
fn who_finds_no_buffer_waits_for_one() {
    let mut x = fixture(false);
    x.slots.set_policy(Policy { chooses: true, ..Policy::default() });
    let pool = ReadPool::new(4096, 1);
    let op = Op::read_from_pool(&x.file, 0, 4096, &pool, P);
    x.push(op);
    let i = x.slots.next_pending().unwrap();
    assert!(matches!(x.slots.request(i).unwrap().what, What::Choose { len: 4096 }));
    x.slots.set_running(i);
    let held = pool.take().unwrap();
    x.complete(i, -i64::from(libc::ENOBUFS));
    x.slots.feed();
    assert!(x.slots.starving() && !x.slots.has_pending() && x.slots.in_flight() == 1);
    drop(held);
    x.slots.feed();
    assert_eq!(x.slots.next_pending(), Some(i));
    // The kernel has chosen, and read a part: the rest goes into the same buffer.
    x.slots.set_running(i);
    x.slots.chosen(i, pool.take().unwrap());
    x.complete(i, 1000);
    let (at, bytes, i) = x.start();
    assert_eq!((at, bytes), (1000, 3096));
    x.complete(i, 0);
    let Done { result, buf, .. } = x.slots.pop().unwrap();
    assert!(result.unwrap() == 1000 && matches!(buf, Buf::Pooled(_)));
}
