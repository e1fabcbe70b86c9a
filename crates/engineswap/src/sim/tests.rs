//! Tests of the simulated disk as a whole.

use std::collections::BTreeSet;
use std::path::Path;

use super::{CrashOutcome, Disk, Plan};
use crate::mem::AlignedBuf;
use crate::uri::SimConfig;
use crate::{Buf, Direct, ErrorKind, File, Io, Op, OpKind, OpenHow, Purpose};

const P: Purpose = Purpose(2);

fn path(s: &str) -> &Path {
    Path::new(s)
}

fn new_file(io: &Io, name: &str) -> File {
    io.open(path(name), &OpenHow::create_new()).unwrap()
}

fn write_op(f: &File, at: u64, byte: u8, dsync: bool) -> Op {
    let mut b = AlignedBuf::zeroed(4096);
    b.fill(byte);
    Op { kind: OpKind::Write { dsync }, ..Op::write(f, at, 4096, Buf::Aligned(b), P) }.user(at)
}

/// Everything that a run shows.
fn run(disk: &Disk) -> (Vec<u64>, u64, std::time::Duration) {
    let io = disk.io();
    let f = new_file(&io, "/f");
    let mut order = Vec::new();
    let mut q = io.queue(32).unwrap();
    for i in 0..32u64 {
        q.push(write_op(&f, i * 4096, i as u8 + 1, i % 3 == 0)).unwrap();
    }
    while q.in_flight() > 0 {
        q.wait(3).unwrap();
        order.extend(std::iter::from_fn(|| q.pop()).map(|d| d.user));
    }
    (order, disk.operations(), disk.now())
}

#[test]
fn the_same_seed_is_the_same_run() {
    let (a, b, c) = (Disk::new(7), Disk::new(7), Disk::new(8));
    let (of_a, of_b, of_c) = (run(&a), run(&b), run(&c));
    assert_eq!(of_a, of_b);
    assert_ne!(of_a.0, of_c.0);
    assert_ne!(of_a.0, (0..32).map(|i| i * 4096).collect::<Vec<_>>(), "nothing was reordered");
    let show = |d: &Disk, o: u64| d.crash(o).read(path("/f"));
    assert!((0..50).all(|o| show(&a, o) == show(&b, o)));
    assert!((0..50).map(|o| show(&a, o)).collect::<BTreeSet<_>>().len() > 10);
    let plain = Disk::from_config(&SimConfig { reorder: false, ..SimConfig::default() }).unwrap();
    assert_eq!(run(&plain).0, (0..32).map(|i| i * 4096).collect::<Vec<_>>());
}

#[test]
fn every_operation_can_be_cut_and_what_was_promised_is_there() {
    let life = |disk: &Disk| -> Vec<(u64, &'static str)> {
        let io = disk.io();
        let mut done = Vec::new();
        let mut step = |what, r: crate::Result<()>| r.map(|()| done.push((disk.operations(), what)));
        let mut all = || {
            io.create_dir_all(path("/d"))?;
            io.sync_dir(path("/"))?;
            let f = io.open(path("/d/tmp"), &OpenHow::create_new())?;
            f.allocate(0, 8192)?;
            f.write_all_at(&[1; 5000], 0, P)?;
            step("synced", f.sync_data(P))?;
            io.rename(path("/d/tmp"), path("/d/f"))?;
            step("named", io.sync_dir(path("/d")))?;
            f.write_all_at(&[2; 3000], 5000, P)?;
            let mut m = f.map(8192)?;
            m.write(100, &[3; 50]);
            step("stored", f.sync_all(P))?;
            let direct = io.open(path("/d/f"), &OpenHow::read_write().direct(Direct::Require))?;
            step("durable", direct.write_all_at_dsync(&[4; 4096], 4096, P))?;
            io.remove_file(path("/d/f"))?;
            step("removed", io.sync_dir(path("/d")))
        };
        let r = all();
        assert_eq!(r.is_err(), disk.is_cut(), "{r:?}");
        done
    };
    let check = |after: &Disk, done: &[&str]| {
        let has = |what| done.contains(&what);
        let Some(bytes) = after.read(path("/d/f")) else {
            assert!(!has("named") || has("durable"), "the name is lost: {done:?}");
            return;
        };
        assert!(!has("removed"));
        if has("synced") {
            assert!(bytes.len() >= 5000 && bytes[..100] == [1; 100]);
        }
        if has("stored") {
            assert!(bytes.len() == 8192 && bytes[100..150] == [3; 50] && bytes[5000] >= 2);
        }
        if has("durable") {
            assert_eq!(bytes[4096..], [4; 4096]);
        }
    };
    let whole = Disk::new(3);
    whole.record(true);
    let done = life(&whole);
    let n = whole.operations();
    assert!(done.len() == 5 && n > 12 && n < 40, "{n}");
    // By running again for each, and by looking back.
    for cut in 0..n {
        let disk = Disk::new(3);
        disk.cut_at(cut);
        let done: Vec<_> = life(&disk).into_iter().map(|(_, what)| what).collect();
        assert!(disk.is_cut() && done.len() < 5);
        (0..50).for_each(|o| check(&disk.crash(o), &done));
    }
    for i in 0..whole.points() {
        let point = whole.point(i).unwrap();
        let done: Vec<_> = done.iter().filter(|(at, _)| *at <= point.operation).map(|(_, w)| *w).collect();
        (0..50).for_each(|o| check(&whole.crash_at(&point, o).0, &done));
    }
}

#[test]
fn a_clone_goes_its_own_way_and_a_restored_disk_comes_back() {
    let disk = Disk::new(1);
    let io = disk.io();
    let f = new_file(&io, "/f");
    f.write_all_at(&[1; 9000], 0, P).unwrap();
    let clone = disk.clone_now();
    f.write_all_at(&[2; 9000], 0, P).unwrap();
    assert_eq!(clone.read(path("/f")).unwrap(), [1; 9000]);
    assert_eq!(clone.crash(CrashOutcome::Nothing).files().len(), 0);
    assert_eq!(clone.crash(CrashOutcome::Everything).read(path("/f")).unwrap(), [1; 9000]);
    disk.cut();
    assert_eq!(f.sync_data(P).unwrap_err().errno(), Some(libc::EIO));
    disk.restore(&clone);
    let mut b = [0; 9000];
    f.read_exact_at(&mut b, 0, P).unwrap();
    assert_eq!(b, [1; 9000]);
}

#[test]
fn transfers_are_continued_and_interruptions_retried_as_everywhere() {
    for direct in [Direct::No, Direct::Require] {
        let disk = Disk::new(5);
        let io = disk.io();
        let f = io.open(path("/f"), &OpenHow::create_new().direct(direct)).unwrap();
        let plan = "on read,write every 3 EINTR; on read,write every 4 EAGAIN; on read,write short 1024";
        disk.set_plan(Plan::parse(plan).unwrap());
        let ops = (0..20).map(|i| write_op(&f, i * 4096, i as u8, i % 2 == 0));
        assert!(io.run(ops.collect()).iter().all(|d| *d.result.as_ref().unwrap() == 4096));
        let read = |i| Op::read(&f, i * 4096, 4096, Buf::Aligned(AlignedBuf::zeroed(4096)), P).user(i);
        for d in io.run((0..20).map(read).collect()) {
            let Buf::Aligned(b) = &d.buf else { panic!("the buffer is gone") };
            assert!(d.result.unwrap() == 4096 && b.iter().all(|x| u64::from(*x) == d.user));
        }
        let mut b = vec![0; 81920];
        f.read_exact_at(&mut b, 0, P).unwrap();
        f.write_all_at(&b, 4096, P).unwrap();
        let hit = disk.faults_hit();
        for kind in ["read EINTR", "read EAGAIN", "read short", "write EINTR", "write EAGAIN", "write short"]
        {
            assert!(hit[kind] > 0, "{hit:?}");
        }
    }
}

#[test]
fn failing_and_lying_syncs() {
    let disk = Disk::new(5);
    let io = disk.io();
    let f = new_file(&io, "/f.log");
    io.sync_dir(path("/")).unwrap();
    disk.set_plan(Plan::parse("on fsync *.log nth 1 lie; on fdatasync nth 1 ENOSPC").unwrap());
    f.write_all_at(&[1; 100], 0, P).unwrap();
    f.sync_all(P).unwrap();
    let lost = |disk: &Disk| disk.crash(CrashOutcome::Nothing).read(path("/f.log")).unwrap().is_empty();
    assert!(lost(&disk), "a lie came true");
    assert_eq!(f.sync_data(P).unwrap_err().errno(), Some(libc::ENOSPC));
    assert_eq!(f.sync_data(P).unwrap_err().kind(), ErrorKind::SyncFailed);
    // Another handle may sync, and saves nothing of what was given up.
    let other = io.open(path("/f.log"), &OpenHow::read_write()).unwrap();
    other.sync_data(P).unwrap();
    assert!(lost(&disk));
    other.write_all_at(&[1; 100], 0, P).unwrap();
    other.sync_data(P).unwrap();
    assert!(!lost(&disk));
}

#[test]
fn torn_flipped_rotten_and_full() {
    let disk = Disk::new(5);
    let io = disk.io();
    let f = new_file(&io, "/f");
    f.write_all_at(&[0xFF; 8192], 0, P).unwrap();
    f.sync_all(P).unwrap();
    io.sync_dir(path("/")).unwrap();
    let plan = |text: &str| disk.set_plan(Plan::parse(text).unwrap());
    plan("on write nth 1 torn; on read nth 1 flip 12; on write nth 3 flip 0");
    assert_eq!(f.write_all_at(&[7; 8192], 0, P).unwrap_err().errno(), Some(libc::EIO));
    let now = disk.read(path("/f")).unwrap();
    let sectors: BTreeSet<u8> = now.chunks(512).map(|s| s[0]).collect();
    assert_eq!(sectors, [7, 0xFF].into());
    f.write_all_at(&[0; 8192], 0, P).unwrap();
    let mut b = [1; 8192];
    f.read_exact_at(&mut b, 0, P).unwrap();
    assert!(b[1] == 16 && b.iter().map(|x| u32::from(*x)).sum::<u32>() == 16);
    f.write_all_at(&[0; 512], 0, P).unwrap();
    assert_eq!(disk.read(path("/f")).unwrap()[0], 1);
    f.sync_all(P).unwrap();
    plan("on read nth 1 bitrot 3");
    f.read_exact_at(&mut b, 0, P).unwrap();
    let ones = |b: &[u8]| b.iter().map(|x| x.count_ones()).sum::<u32>();
    assert!(ones(&b) == 4 || ones(&b) == 2, "{}", ones(&b));
    assert_eq!(disk.crash(CrashOutcome::Nothing).read(path("/f")).unwrap(), b, "what rots, rots for good");
    plan("on write nth 2 full 5000");
    f.write_all_at(&[1; 8192], 0, P).unwrap();
    let e = f.write_all_at(&[1; 20_000], 8192, P).unwrap_err();
    assert_eq!((e.kind(), f.len().unwrap()), (ErrorKind::NoSpace, 12288));
    assert_eq!(f.allocate(0, 1 << 20).unwrap_err().kind(), ErrorKind::NoSpace);
    f.set_len(0).unwrap();
    f.write_all_at(&[1; 12288], 0, P).unwrap();
    assert!(disk.rot(path("/f"), 1, 9));
    assert_eq!(disk.read(path("/f")).unwrap().iter().filter(|b| **b != 1).count(), 1);
}

#[test]
fn a_queue_that_breaks_answers_for_everything() {
    for seed in 0..40 {
        let disk = Disk::new(seed);
        let io = disk.io();
        let f = new_file(&io, "/f");
        f.write_all_at(&[9; 16 * 4096], 0, P).unwrap();
        disk.set_plan(Plan::parse("on wait nth 2 ring").unwrap());
        // In groups: whoever wants all results waits only once.
        let mut done = Vec::new();
        io.run_with((0..64).map(|i| write_op(&f, i * 4096, 1, false)), |d| done.push(d));
        let (good, bad): (Vec<_>, Vec<_>) = done.into_iter().partition(|d| d.result.is_ok());
        assert!(!good.is_empty() && !bad.is_empty());
        assert!(bad.iter().all(|d| d.result.as_ref().unwrap_err().errno() == Some(libc::EIO)));
        assert_eq!(disk.faults_hit()["wait ring"], 1);
        // The next batch has a queue of its own.
        let done = io.run((0..8).map(|i| write_op(&f, i * 4096, 2, true)).collect());
        assert!(done.iter().all(|d| d.result.is_ok()));
        assert!(disk.read(path("/f")).unwrap()[..8 * 4096].iter().all(|b| *b == 2));
    }
}

#[test]
fn mapped_memory_is_the_file_and_survives_by_pages() {
    let disk = Disk::new(2);
    let io = disk.io();
    let f = new_file(&io, "/f");
    f.set_len(16384).unwrap();
    let mut m = f.map(16384).unwrap();
    let before = disk.operations();
    m.range(4000..4200).fill(0, 200, 5);
    assert_eq!(disk.operations(), before + 1, "stores are an operation");
    assert_eq!(disk.operations(), before + 1);
    let mut b = [0; 200];
    f.read_exact_at(&mut b, 4000, P).unwrap();
    assert_eq!(b, [5; 200]);
    f.write_all_at(&[6; 8192], 0, P).unwrap();
    let mut b = [0; 8192];
    m.read(0, &mut b);
    assert_eq!(b, [6; 8192]);
    m.write(0, b"stored");
    f.sync_all(P).unwrap();
    io.sync_dir(path("/")).unwrap();
    m.write(8192, &[8; 8192]);
    let after = |o| disk.crash(o).read(path("/f")).unwrap();
    let all: Vec<_> = (0..300).map(after).collect();
    assert!(all.iter().all(|a| a.starts_with(b"stored") && a[4096..8192] == [6; 4096]));
    for pages in [[0, 0], [8, 0], [0, 8], [8, 8]] {
        assert!(all.iter().any(|a| [a[8192], a[12288]] == pages), "{pages:?}");
    }
    drop(m);
    assert_eq!(disk.read(path("/f")).unwrap()[8192..], [8; 8192]);
    // Cut in the middle of storing.
    let mut m = f.map(16384).unwrap();
    disk.cut_at(disk.operations());
    m.write(0, b"never!");
    assert!(f.sync_all(P).is_err() && disk.is_cut());
}

#[test]
fn files_of_the_machine_and_back() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("sub")).unwrap();
    std::fs::write(dir.path().join("sub/a"), b"bytes").unwrap();
    let disk = Disk::new(1);
    disk.load(dir.path(), path("/x/y")).unwrap();
    let after = disk.crash(CrashOutcome::Nothing);
    assert_eq!(after.read(path("/x/y/sub/a")).unwrap(), b"bytes");
    let out = tempfile::tempdir().unwrap();
    after.dump(out.path()).unwrap();
    assert_eq!(std::fs::read(out.path().join("x/y/sub/a")).unwrap(), b"bytes");
}

#[test]
fn files_that_nobody_can_reach_are_forgotten() {
    let disk = Disk::new(1);
    let io = disk.io();
    let f = new_file(&io, "/f");
    io.sync_dir(path("/")).unwrap();
    io.remove_file(path("/f")).unwrap();
    drop(f);
    assert_eq!(disk.lock().state.files.len(), 1, "its name may come back");
    io.sync_dir(path("/")).unwrap();
    assert_eq!(disk.lock().state.files.len(), 0);
}

#[test]
fn where_room_cannot_be_reserved_nothing_is_cut() {
    let disk = Disk::new(2);
    let f = new_file(&disk.io(), "/f");
    f.write_all_at(&[7; 10_000], 0, P).unwrap();
    disk.set_plan(Plan::parse("on allocate EOPNOTSUPP").unwrap());
    f.allocate(0, 4096).unwrap();
    assert_eq!(disk.read(path("/f")).unwrap(), [7; 10_000]);
    f.allocate(9000, 4000).unwrap();
    let all = disk.read(path("/f")).unwrap();
    assert!(all.len() == 13_000 && all[..10_000] == [7; 10_000] && all[10_000..] == [0; 3000]);
}

/// A disk of four free pages beside a file of four, and the file.
fn nearly_full(cow: bool) -> (Disk, File) {
    let disk = Disk::from_config(&SimConfig { cow, ..SimConfig::default() }).unwrap();
    let f = new_file(&disk.io(), "/f");
    f.write_all_at(&[1; 16384], 0, P).unwrap();
    disk.set_plan(Plan::parse("on stat nth 1 full 16384").unwrap());
    f.len().unwrap();
    disk.set_plan(Plan::none());
    (disk, f)
}

#[test]
fn where_pages_are_copied_on_write_a_rewrite_needs_free_ones() {
    let (disk, f) = nearly_full(false);
    assert!(f.rewrites_in_place());
    f.write_all_at(&[2; 32768], 0, P).unwrap();
    f.write_all_at(&[3; 32768], 0, P).unwrap();
    let mut m = f.map(32768).unwrap();
    m.write(0, &[4; 32768]);
    assert_eq!(disk.bus_error(), None);

    let (disk, f) = nearly_full(true);
    assert!(!f.rewrites_in_place());
    // What a write has replaced is free again when it has ended.
    (0..10).for_each(|i| f.write_all_at(&[i; 16384], 0, P).unwrap());
    f.write_all_at(&[2; 16384], 16384, P).unwrap();
    let e = f.write_all_at(&[3; 10], 0, P).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::NoSpace, "{e}");
    assert_eq!(disk.read(path("/f")).unwrap(), [[9; 16384], [2; 16384]].concat());
    assert_eq!(disk.faults_hit()["write no room"], 1);
}

#[test]
fn a_store_to_a_mapping_without_space_for_it_is_the_end() {
    let (disk, f) = nearly_full(true);
    let mut m = f.map(16384).unwrap();
    m.write(100, &[4; 16000]);
    assert_eq!(disk.bus_error(), None);
    disk.set_plan(Plan::parse("on stat nth 1 full 0").unwrap());
    f.len().unwrap();
    m.write(4090, &[5; 4]);
    assert_eq!(disk.bus_error().unwrap(), "/f: 4 bytes at 4090");
    assert_eq!(disk.faults_hit()["store SIGBUS"], 1);
    assert_eq!(f.sync_all(P).unwrap_err().errno(), Some(libc::EIO));

    // Pages that the file has not got yet, on any disk.
    let (disk, f) = nearly_full(false);
    f.set_len(40960).unwrap();
    let mut m = f.map(40960).unwrap();
    m.write(16384, &[4; 16384]);
    assert_eq!(disk.bus_error(), None);
    m.write(32768, &[4]);
    assert_eq!(disk.bus_error().unwrap(), "/f: 1 bytes at 32768");
}
