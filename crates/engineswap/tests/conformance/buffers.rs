//! Registered buffers: what they are never changes what an operation does.

use std::sync::{Arc, Mutex, PoisonError};

use engineswap::mem::{AlignedBuf, BufArena};
use engineswap::{Buf, Done, File, Io, Op, Piece, Registration};

use crate::arena::PageArena;
use crate::{Case, Ctx, P, bytes, page};

pub const CASES: &[Case] = &[
    ("buffers::registered_replaced_taken_out", registered_replaced_taken_out),
    ("buffers::changed_while_operations_run", changed_while_operations_run),
    ("buffers::outlive_their_registration", outlive_their_registration),
];

/// The arena that the cases have their pages from at present.
static ARENA: Mutex<Option<Arc<BufArena>>> = Mutex::new(None);

fn arena() -> std::sync::MutexGuard<'static, Option<Arc<BufArena>>> {
    ARENA.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A buffer of `len` bytes of that arena.
pub fn registered(len: usize) -> Option<AlignedBuf> {
    arena().as_ref().filter(|_| len == 4096)?.alloc()
}

/// An arena that is registered as long as this lives.
pub struct Registered(Registration);

impl Registered {
    pub fn new(io: &Io) -> Registered {
        // Less than some cases have in flight: registered and other buffers are mixed.
        let new = BufArena::new(4096, 512);
        let registration = io.register_buffers(new.region()).unwrap();
        *arena() = Some(new);
        Registered(registration)
    }

    pub fn in_use(&self) -> bool {
        self.0.refusal().is_none()
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        *arena() = None;
    }
}

/// What reads and writes of two arenas and of other memory give, all of it in flight together.
fn round(c: &Ctx, f: &File, bufs: &Arc<BufArena>, frames: &Arc<PageArena>, byte: u8) {
    let one = || Buf::Aligned(bufs.alloc().unwrap());
    let mut ops = Vec::new();
    for n in 0..4 {
        ops.push(Op::read(f, n * 4096, 4096, one(), P).user(n));
        ops.push(Op::read(f, n * 4096, 4096, Buf::Arena(frames.alloc().unwrap()), P).user(n));
        ops.push(Op::read(f, n * 4096, 4096, crate::buf(4096), P).user(n));
        let piece = |k| match k {
            0 => Piece::from(bufs.alloc().unwrap()),
            _ => Piece::from(frames.alloc().unwrap()),
        };
        // In one arena, and in two.
        ops.push(Op::readv(f, n * 4096, vec![piece(0), piece(0)], P).user(n));
        ops.push(Op::readv(f, n * 4096, vec![piece(0), piece(n)], P).user(n));
        let mut b = bufs.alloc().unwrap();
        b.fill(byte);
        ops.push(Op::write(f, (16 + n) * 4096, 4096, Buf::Aligned(b), P).user(100));
    }
    for d in c.io.run(ops) {
        let want: Vec<u8> = match &d.buf {
            _ if d.user == 100 => vec![byte; 4096],
            Buf::Pieces(_) => [page(d.user), page(d.user + 1)].concat(),
            _ => page(d.user),
        };
        assert_eq!(d.result.as_ref().unwrap(), &(want.len() as u64));
        let got = match &d.buf {
            Buf::Pieces(v) => v.iter().flat_map(|p| p.bytes()).copied().collect(),
            b => bytes(b).to_vec(),
        };
        assert!(got == want, "page {}", d.user);
    }
    let mut b = vec![0; 4 * 4096];
    f.read_exact_at(&mut b, 16 * 4096, P).unwrap();
    assert!(b.iter().all(|x| *x == byte));
}

fn registered_replaced_taken_out(c: &Ctx) {
    let f = c.filled("f", 20);
    let (bufs, frames, other) = (BufArena::new(4096, 64), PageArena::new(64), BufArena::new(4096, 64));
    round(c, &f, &bufs, &frames, 1);
    let mut one = c.io.register_buffers(bufs.region()).unwrap();
    assert!(one.refusal().is_none() || !c.uri.contains("fixed_buffers"));
    round(c, &f, &bufs, &frames, 2);
    let two = c.io.register_buffers(frames.region()).unwrap();
    round(c, &f, &bufs, &frames, 3);
    one.replace(other.region()).unwrap();
    round(c, &f, &bufs, &frames, 4);
    round(c, &f, &other, &frames, 5);
    drop(two);
    round(c, &f, &other, &frames, 6);
    drop(one);
    round(c, &f, &other, &frames, 7);
}

fn changed_while_operations_run(c: &Ctx) {
    let f = c.filled("f", 32);
    let arenas = [BufArena::new(4096, 32), BufArena::new(4096, 32)];
    let mut registered: Option<Registration> = None;
    let mut q = c.io.queue(16).unwrap();
    let (mut done, mut pushed) = (0, 0);
    let check = |d: Done| {
        assert_eq!(d.result.unwrap(), 4096);
        assert!(bytes(&d.buf) == page(d.user), "page {}", d.user);
        1
    };
    for i in 0..120u64 {
        let op = Op::read(&f, i % 32 * 4096, 4096, Buf::Aligned(arenas[i as usize % 2].alloc().unwrap()), P);
        // Chains of three, some of them in the kernel or with a worker when the table changes.
        let op = op.user(i % 32);
        let mut op = if i % 3 == 2 { op } else { op.then() };
        op.force_async = i % 5 == 0;
        while let Err(back) = q.push(op) {
            op = back;
            q.wait(1).unwrap();
            done += std::iter::from_fn(|| q.pop()).map(check).sum::<u64>();
        }
        pushed += 1;
        if i % 3 == 2 {
            q.submit().unwrap();
            let region = arenas[i as usize / 6 % 2].region();
            match &mut registered {
                _ if i % 11 == 0 => registered = None,
                Some(r) => r.replace(region).unwrap(),
                None => registered = Some(c.io.register_buffers(region).unwrap()),
            }
        }
    }
    while q.in_flight() > 0 {
        q.wait(1).unwrap();
        done += std::iter::from_fn(|| q.pop()).map(check).sum::<u64>();
    }
    assert_eq!(done, pushed);
}

fn outlive_their_registration(c: &Ctx) {
    let f = c.filled("f", 4);
    let mut q = c.io.queue(4).unwrap();
    for round in 0..8 {
        let bufs = BufArena::new(4096, 4);
        let registered = c.io.register_buffers(bufs.region()).unwrap();
        for n in 0..4 {
            q.push(Op::read(&f, n * 4096, 4096, Buf::Aligned(bufs.alloc().unwrap()), P).user(n)).unwrap();
        }
        if round % 2 == 0 {
            q.submit().unwrap();
        }
        // The arena's own handles go with the operations in flight; its memory stays for them.
        drop((registered, bufs));
        q.wait(4).unwrap();
        for d in std::iter::from_fn(|| q.pop()) {
            assert_eq!(d.result.unwrap(), 4096);
            assert!(bytes(&d.buf) == page(d.user));
        }
    }
}
