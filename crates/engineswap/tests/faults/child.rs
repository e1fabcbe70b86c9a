//! What a child does under faults, and what its files must be like afterwards.

use std::io::Write;
use std::path::Path;

use engineswap::mem::AlignedBuf;
use engineswap::{Buf, Direct, Done, Error, File, Io, Op, OpKind, OpenHow, Piece, Purpose};

const BLOCK: usize = 8192;
const BLOCKS: u64 = 24;
/// The blocks that lone calls are for; the rest is for batches.
const LONE: u64 = 8;
const P: Purpose = Purpose(0);

/// The bytes of a block, before or after it was written.
fn block(n: u64, written: bool) -> Vec<u8> {
    let seed = n * 7 + if written { 101 } else { 3 };
    (0..BLOCK as u64).map(|i| (i.wrapping_mul(seed) ^ (i >> 8) ^ seed) as u8).collect()
}

/// The file before the child's work. Where it will write, the first half of each block is there already, for
/// short writes that never were.
pub fn prepare(file: &Path, work: &str) {
    let mut all = Vec::new();
    for n in 0..BLOCKS {
        let mut b = block(n, false);
        if ["write", "durable", "streamed_write", "vectored_writes", "vectored_durable"].contains(&work) {
            b[..BLOCK / 2].copy_from_slice(&block(n, true)[..BLOCK / 2]);
        }
        all.extend(b);
    }
    std::fs::write(file, all).unwrap();
}

/// Every write that the child saw succeed is in the file.
pub fn verify(file: &Path, out: &str) -> Result<(), String> {
    let all = std::fs::read(file).map_err(|e| e.to_string())?;
    for l in out.lines().filter(|l| l.contains("write ") && l.ends_with(" ok")) {
        let n: u64 = l.split(' ').nth(1).unwrap().parse().unwrap();
        let at = n as usize * BLOCK;
        if all.get(at..at + BLOCK) != Some(&block(n, true)[..]) {
            return Err(format!("a success that is none: '{l}', but the file does not have it"));
        }
    }
    Ok(())
}

struct Report(std::fs::File);

impl Report {
    fn line(&mut self, op: &str, n: u64, outcome: &str) {
        writeln!(self.0, "{op} {n} {outcome}").unwrap();
    }

    fn result(&mut self, op: &str, n: u64, result: Result<(), Error>) {
        match result {
            Ok(()) => self.line(op, n, "ok"),
            Err(e) => self.line(op, n, &format!("err {} {:?} {e}", e.errno().unwrap_or(0), e.kind())),
        }
    }

    fn read(&mut self, op: &str, n: u64, result: Result<usize, Error>, bytes: &[u8]) {
        match result {
            Ok(BLOCK) if bytes == block(n, false) => self.line(op, n, "ok"),
            Ok(BLOCK) => self.line(op, n, "wrong"),
            Ok(k) => self.line(op, n, &format!("short {k}")),
            Err(e) => self.result(op, n, Err(e)),
        }
    }
}

pub fn run(uri: &str, work: &str, dir: &Path) {
    // SAFETY: a plain call without pointers. The signal ends this process, hung or not.
    unsafe { libc::alarm(super::LIMIT.as_secs() as u32) };
    let mut r = Report(std::fs::File::create(dir.join("out")).unwrap());
    let uri = if work == "auto" { "auto" } else { uri };
    let says = work == "auto" || work == "reasons";
    match Io::from_uri(uri) {
        Ok(io) => {
            if says {
                let info = io.info();
                r.line("engine", 0, &format!("{} {}", info.name, info.reasons.join("; ")));
            }
            if let Err(e) = steps(&io, work, dir, &mut r) {
                r.result("open", 0, Err(e));
            }
        }
        Err(e) => r.result("engine", 0, Err(e)),
    }
    r.line("done", 0, "ok");
}

fn steps(io: &Io, work: &str, dir: &Path, r: &mut Report) -> Result<(), Error> {
    if work == "open" {
        return Ok(());
    }
    let file = dir.join("f");
    let lone = io.open(&file, &OpenHow::read_write())?;
    let batch = io.open(&file, &OpenHow::read_write().direct(Direct::Prefer))?;
    match work {
        "read" | "auto" | "reasons" => reads(io, &lone, &batch, r),
        "write" => writes(io, &lone, &batch, r),
        "cached" => reads(io, &lone, &lone, r),
        "streamed" | "streamed_write" => {
            let once = io.open(&file, &OpenHow::read_write().dontcache())?;
            match work {
                "streamed" => reads(io, &once, &once, r),
                _ => writes(io, &once, &once, r),
            }
        }
        "durable" => durable(io, &lone, &batch, r),
        "queue" => queue(io, &batch, r),
        "space" => space(&lone, r),
        "vectored_reads" => vectored_reads(io, &lone, &batch, r),
        "vectored_writes" => vectored_writes(io, &lone, &batch, false, r),
        "vectored_durable" => vectored_writes(io, &lone, &batch, true, r),
        _ => panic!("no work '{work}'"),
    }
    Ok(())
}

/// A buffer whose first half is right already, for short reads that never were.
fn half_read(n: u64) -> AlignedBuf {
    let mut b = AlignedBuf::zeroed(BLOCK);
    b.fill(0xee);
    b[..BLOCK / 2].copy_from_slice(&block(n, false)[..BLOCK / 2]);
    b
}

fn read_op(f: &File, n: u64) -> Op {
    Op::read(f, n * BLOCK as u64, BLOCK as u64, Buf::Aligned(half_read(n)), P).user(n)
}

fn write_op(f: &File, n: u64, dsync: bool) -> Op {
    let mut b = AlignedBuf::zeroed(BLOCK);
    b.copy_from_slice(&block(n, true));
    let op = Op::write(f, n * BLOCK as u64, BLOCK as u64, Buf::Aligned(b), P).user(n);
    Op { kind: OpKind::Write { dsync }, ..op }
}

/// The same of two pieces.
fn halves(b: &[u8]) -> Vec<Piece> {
    let piece = |half: &[u8]| {
        let mut b = AlignedBuf::zeroed(BLOCK / 2);
        b.copy_from_slice(half);
        Piece::Aligned(b)
    };
    b.chunks(BLOCK / 2).map(piece).collect()
}

fn vectored_reads(io: &Io, lone: &File, batch: &File, r: &mut Report) {
    let op = |f: &File, n: u64| Op::readv(f, n * BLOCK as u64, halves(&half_read(n)), P).user(n);
    let alone: Vec<Done> = (0..LONE).flat_map(|n| io.run(vec![op(lone, n)])).collect();
    let together = io.run((LONE..BLOCKS).map(|n| op(batch, n)).collect());
    for (name, d) in
        alone.into_iter().map(|d| ("read", d)).chain(together.into_iter().map(|d| ("batch_read", d)))
    {
        match &d.buf {
            Buf::Pieces(v) => {
                let bytes: Vec<u8> = v.iter().flat_map(|p| p.bytes()).copied().collect();
                r.read(name, d.user, d.result.map(|n| n as usize), &bytes);
            }
            _ => r.result(name, d.user, d.result.map(|_| ())),
        }
    }
}

fn vectored_writes(io: &Io, lone: &File, batch: &File, dsync: bool, r: &mut Report) {
    let op = |f: &File, n: u64| {
        let op = Op::writev(f, n * BLOCK as u64, halves(&block(n, true)), P).user(n);
        Op { kind: OpKind::Write { dsync }, ..op }
    };
    for n in 0..LONE {
        let d = io.run(vec![op(lone, n)]).remove(0);
        r.result("write", n, d.result.map(|_| ()));
    }
    for d in io.run((LONE..BLOCKS).map(|n| op(batch, n)).collect()) {
        r.result("batch_write", d.user, d.result.map(|_| ()));
    }
}

fn report_read(r: &mut Report, d: Done) {
    let Buf::Aligned(b) = &d.buf else {
        // The queue broke, and the kernel may have the buffer still.
        assert!(d.result.is_err());
        return r.result("batch_read", d.user, d.result.map(|_| ()));
    };
    r.read("batch_read", d.user, d.result.map(|n| n as usize), b);
}

fn reads(io: &Io, lone: &File, batch: &File, r: &mut Report) {
    for n in 0..LONE {
        let mut b = half_read(n);
        let result = lone.read_at(&mut b, n * BLOCK as u64, P);
        r.read("read", n, result, &b);
    }
    for d in io.run((LONE..BLOCKS).map(|n| read_op(batch, n)).collect()) {
        report_read(r, d);
    }
}

fn writes(io: &Io, lone: &File, batch: &File, r: &mut Report) {
    for n in 0..LONE {
        r.result("write", n, lone.write_all_at(&block(n, true), n * BLOCK as u64, P));
    }
    for d in io.run((LONE..BLOCKS).map(|n| write_op(batch, n, false)).collect()) {
        r.result("batch_write", d.user, d.result.map(|_| ()));
    }
}

fn durable(io: &Io, lone: &File, batch: &File, r: &mut Report) {
    for n in 0..LONE / 2 {
        r.result("dwrite", n, lone.write_all_at_dsync(&block(n, true), n * BLOCK as u64, P));
    }
    r.result("sync", 0, lone.sync_data(P));
    r.result("sync", 1, lone.sync_data(P));
    r.result("fsync", 2, lone.sync_all(P));
    let mut ops: Vec<Op> = (LONE..16).map(|n| write_op(batch, n, true)).collect();
    ops.extend([write_op(batch, 16, false).then(), Op::sync_data(batch, P).user(17)]);
    for d in io.run(ops) {
        let op = if d.user == 17 { "batch_sync" } else { "batch_dwrite" };
        r.result(op, d.user, d.result.map(|_| ()));
    }
    let again = Op { kind: OpKind::SyncAll, ..Op::sync_data(batch, P) };
    for d in io.run(vec![Op::sync_data(batch, P).user(18), again.user(19)]) {
        r.result("batch_sync", d.user, d.result.map(|_| ()));
    }
}

/// A queue of its own, whose submissions and waits may fail; then it is dropped with what it holds.
fn queue(io: &Io, f: &File, r: &mut Report) {
    let mut q = match io.queue(4) {
        Ok(q) => q,
        Err(e) => return r.result("queue", 0, Err(e)),
    };
    for n in LONE..BLOCKS {
        let mut op = read_op(f, n);
        let mut fails = 0;
        while let Err(back) = q.push(op) {
            op = back;
            if let Err(e) = q.wait(1) {
                fails += 1;
                r.result("wait", n, Err(e));
                if fails == 3 {
                    return;
                }
            }
            while let Some(d) = q.pop() {
                report_read(r, d);
            }
        }
        if let Err(e) = q.submit() {
            r.result("submit", n, Err(e));
        }
    }
    while q.in_flight() > 0 {
        if let Err(e) = q.wait(q.in_flight()) {
            return r.result("wait", BLOCKS, Err(e));
        }
        while let Some(d) = q.pop() {
            report_read(r, d);
        }
    }
}

fn space(f: &File, r: &mut Report) {
    let len = |f: &File| f.len().unwrap();
    let result = f.allocate(0, 1 << 20);
    let right = result.is_err() || len(f) == 1 << 20;
    r.result("allocate", 0, result);
    let result = f.set_len(5000);
    let right = right && (result.is_err() || len(f) == 5000);
    r.result("truncate", 0, result);
    r.line("length", 0, if right { "ok" } else { "wrong" });
}
