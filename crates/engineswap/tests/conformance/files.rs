//! Lone operations on files.

use engineswap::{Direct, ErrorKind, OpClass, OpenHow};

use crate::{Case, Ctx, P, page};

pub const CASES: &[Case] = &[
    ("files::read_write_and_the_end", read_write_and_the_end),
    ("files::any_range_into_any_memory", any_range_into_any_memory),
    ("files::unaligned_writes", unaligned_writes),
    ("files::allocate_and_truncate", allocate_and_truncate),
    ("files::syncs", syncs),
    ("files::map_sync_and_read_back", map_sync_and_read_back),
    ("files::two_maps_of_a_file", two_maps_of_a_file),
    ("files::what_is_mapped_is_not_cut", what_is_mapped_is_not_cut),
    ("files::open_modes", open_modes),
    ("files::errors_say_what_and_where", errors_say_what_and_where),
    ("files::stats_count", stats_count),
];

fn read_write_and_the_end(c: &Ctx) {
    let f = c.filled("f", 8);
    assert_eq!(f.len().unwrap(), 8 * 4096);
    assert_eq!(f.is_direct(), c.direct);
    let mut all = vec![0; 8 * 4096];
    assert_eq!(f.read_at(&mut all, 0, P).unwrap(), all.len());
    for i in 0..8 {
        assert_eq!(all[i * 4096..][..4096], page(i as u64)[..]);
    }
    let mut over = vec![0xAA; 3 * 4096];
    assert_eq!(f.read_at(&mut over, 6 * 4096, P).unwrap(), 2 * 4096);
    assert_eq!(over[..8192], all[6 * 4096..]);
    assert_eq!(f.read_at(&mut over, 100 * 4096, P).unwrap(), 0);
    assert_eq!(f.read_at(&mut [], 0, P).unwrap(), 0);
    let e = f.read_exact_at(&mut over, 6 * 4096, P).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::UnexpectedEof);
    f.write_all_at(&[], 0, P).unwrap();
    // A length that is no multiple of anything.
    f.set_len(5000).unwrap();
    assert_eq!(f.read_at(&mut over, 4096, P).unwrap(), 904);
    assert_eq!(over[..904], all[4096..5000]);
}

fn any_range_into_any_memory(c: &Ctx) {
    let f = c.filled("f", 600);
    f.set_len(600 * 4096 - 77).unwrap();
    let mut all = vec![0; 600 * 4096];
    assert_eq!(f.read_at(&mut all, 0, P).unwrap(), 600 * 4096 - 77);
    let size = 600 * 4096 - 77;
    let mut memory = vec![0u8; 1 << 22];
    let lens = [1usize, 511, 512, 513, 4095, 4096, 4097, 100_000, 1 << 20, (1 << 20) + 1, 2_400_000];
    for (i, len) in lens.into_iter().enumerate() {
        for (j, offset) in
            [0u64, 1, 511, 512, 4095, 4096, 50_001, 2_457_000, 2_457_522].into_iter().enumerate()
        {
            let skew = (i * 7 + j * 3) % 600;
            let b = &mut memory[skew..skew + len];
            b.fill(0x5A);
            let want = (size as u64).saturating_sub(offset).min(len as u64) as usize;
            assert_eq!(f.read_at(b, offset, P).unwrap(), want, "{len} bytes at {offset}");
            assert!(b[..want] == all[offset as usize..][..want], "{len} bytes at {offset}");
            if !c.direct {
                assert!(b[want..].iter().all(|x| *x == 0x5A), "bytes past the end were touched");
            }
        }
    }
}

fn unaligned_writes(c: &Ctx) {
    let f = c.filled("f", 4);
    // From memory that is not aligned: always right.
    let memory: Vec<u8> = (0..9000u32).map(|i| (i % 251) as u8).collect();
    f.write_all_at(&memory[13..13 + 8192], 4096, P).unwrap();
    let mut got = vec![0; 8192];
    f.read_exact_at(&mut got, 4096, P).unwrap();
    assert!(got == memory[13..13 + 8192]);
    // Of ranges that are not: right, or refused without a change.
    match f.write_all_at(&memory[..100], 4000, P) {
        Ok(()) => {
            assert!(!c.direct || c.unit(&f) <= 100, "an unaligned direct write cannot be done");
            f.read_exact_at(&mut got[..100], 4000, P).unwrap();
            assert_eq!(got[..100], memory[..100]);
        }
        Err(e) => {
            assert!(c.direct);
            assert_eq!(e.kind(), ErrorKind::InvalidInput);
            assert!(e.to_string().contains("offset 4000, length 100"), "{e}");
            f.read_exact_at(&mut got, 4096, P).unwrap();
            assert!(got == memory[13..13 + 8192]);
        }
    }
}

fn allocate_and_truncate(c: &Ctx) {
    let f = c.filled("f", 2);
    f.allocate(0, 1 << 20).unwrap();
    assert_eq!(f.len().unwrap(), 1 << 20);
    let mut b = vec![1; 4 * 4096];
    f.read_exact_at(&mut b, 0, P).unwrap();
    assert_eq!((&b[..4096], &b[4096..8192]), (&page(0)[..], &page(1)[..]));
    assert!(b[8192..].iter().all(|x| *x == 0));
    f.allocate(0, 4096).unwrap();
    assert_eq!(f.len().unwrap(), 1 << 20, "allocating inside of the file changes no length");
    f.allocate(0, 0).unwrap();
    f.set_len(4096).unwrap();
    f.set_len(8192).unwrap();
    f.read_exact_at(&mut b[..8192], 0, P).unwrap();
    assert_eq!(b[..4096], page(0)[..]);
    assert!(b[4096..8192].iter().all(|x| *x == 0), "what was cut came back");
    let e = f.allocate(u64::MAX - 5, 100).unwrap_err();
    // A queue refuses it before the kernel does.
    assert!(e.errno().is_some() || c.queues_always() && e.kind() == ErrorKind::InvalidInput, "{e}");
    assert!(f.set_len(u64::MAX).is_err());
}

fn syncs(c: &Ctx) {
    let f = c.filled("f", 16);
    f.sync_data(P).unwrap();
    f.sync_all(P).unwrap();
    f.write_all_at_dsync(&page(77), 4096, P).unwrap();
    f.write_all_at_dsync(&page(78), 16 * 4096, P).unwrap();
    let mut b = vec![0; 4096];
    f.read_exact_at(&mut b, 4096, P).unwrap();
    assert_eq!(b, page(77));
    f.read_exact_at(&mut b, 16 * 4096, P).unwrap();
    assert_eq!(b, page(78));
}

/// Says, and checks, that files of this engine are not mapped: `queue_always`.
fn maps_are_refused(c: &Ctx) -> bool {
    if c.queues_always() {
        let f = c.buffered("none");
        f.set_len(4096).unwrap();
        assert_eq!(f.map(4096).err().unwrap().kind(), ErrorKind::Unsupported);
    }
    c.queues_always()
}

fn map_sync_and_read_back(c: &Ctx) {
    if maps_are_refused(c) {
        return;
    }
    let path = c.dir.join("m");
    let f = c.io.open(&path, &OpenHow::create_new()).unwrap();
    let zeros = vec![0; 64 * 1024];
    f.write_all_at(&zeros, 0, P).unwrap();
    let mut m = f.map(64 * 1024).unwrap();
    for i in 0..16usize {
        m.write(i * 4096, &page(i as u64));
    }
    let mut second = vec![0; 4096];
    m.read(4096, &mut second);
    assert_eq!(second, page(1));
    f.sync_data(P).unwrap();
    let mut b = vec![0; 64 * 1024];
    f.read_exact_at(&mut b, 0, P).unwrap();
    for i in 0..16usize {
        assert_eq!(b[i * 4096..][..4096], page(i as u64)[..]);
    }
    // What the file's own writes put there is seen in the mapping, which outlives the file.
    f.write_all_at(b"hello", 3, P).unwrap();
    drop(f);
    let mut hello = [0; 5];
    m.read(3, &mut hello);
    assert_eq!(&hello, b"hello");
    drop(m);
    let f = c.open("m");
    let e = match c.direct {
        true => f.map(4096).err().unwrap(),
        false => f.map(1 << 30).err().unwrap(),
    };
    assert_eq!(e.kind(), ErrorKind::InvalidInput, "{e}");
}

fn two_maps_of_a_file(c: &Ctx) {
    if maps_are_refused(c) {
        return;
    }
    drop(c.filled("m", 4));
    let (f, g) = (c.buffered("m"), c.buffered("m"));
    let mut maps = [f.map(16384).unwrap(), g.map(16384).unwrap(), f.clone().map(8192).unwrap()];
    // Each writes, plain writes too, and all see everything.
    for i in 0..3 {
        let at = 100 + i * 10;
        maps[i].write(at, &[i as u8 + 1; 10]);
        g.write_all_at(&[9; 2], 5000 + i as u64, P).unwrap();
        let mut all = [[0; 5010]; 3];
        for (m, seen) in maps.iter().zip(&mut all) {
            m.read(0, seen);
        }
        assert!(all[0] == all[1] && all[0] == all[2]);
        assert_eq!((all[0][at], all[0][at + 9], all[0][5001 + i]), (i as u8 + 1, i as u8 + 1, 9));
    }
    let [mut m, ..] = maps;
    let mut r = m.range(4090..4110);
    r.fill(0, 20, 7);
    r.write(5, b"record");
    assert_eq!((r.len(), r.is_empty()), (20, false));
    let mut b = [0; 22];
    g.read_exact_at(&mut b, 4089, P).unwrap();
    assert_eq!(b[1..21], *b"\x07\x07\x07\x07\x07record\x07\x07\x07\x07\x07\x07\x07\x07\x07");
    assert_eq!((b[0], b[21]), (page(0)[4089], page(1)[14]));
}

fn what_is_mapped_is_not_cut(c: &Ctx) {
    if maps_are_refused(c) {
        return;
    }
    drop(c.filled("m", 8));
    let path = c.dir.join("m");
    let (f, g) = (c.buffered("m"), c.buffered("m"));
    let cut = OpenHow { truncate: true, ..OpenHow::read_write() };
    let refused = |r: engineswap::Result<()>| {
        let e = r.unwrap_err();
        assert_eq!((e.kind(), e.path()), (ErrorKind::InvalidInput, Some(path.as_path())), "{e}");
        assert!(e.to_string().contains("mapped"), "{e}");
    };
    let mut long = f.map(8 * 4096).unwrap();
    refused(f.set_len(8 * 4096 - 1));
    refused(g.set_len(0));
    refused(c.io.open(&path, &cut).map(drop));
    // A store there would have ended the process.
    long.write(7 * 4096, &page(70));
    g.set_len(9 * 4096).unwrap();
    g.set_len(8 * 4096).unwrap();
    let mut short = g.map(4096).unwrap();
    drop((f, long));
    refused(g.set_len(4095));
    g.set_len(4096).unwrap();
    short.write(0, &page(71));
    drop(short);
    let mut b = vec![0; 4096];
    g.read_exact_at(&mut b, 0, P).unwrap();
    assert_eq!(b, page(71));
    assert!(c.io.open(&path, &cut).unwrap().is_empty().unwrap());
    g.set_len(100).unwrap();
    // What could not be mapped holds nothing.
    assert_eq!(g.map(4096).err().unwrap().kind(), ErrorKind::InvalidInput);
    g.set_len(0).unwrap();
}

fn open_modes(c: &Ctx) {
    let path = c.dir.join("f");
    let open = |how: OpenHow| c.io.open(&path, &OpenHow { direct: c.how().direct, ..how });
    assert_eq!(open(OpenHow::read()).unwrap_err().kind(), ErrorKind::NotFound);
    drop(c.filled("f", 2));
    assert_eq!(open(OpenHow::create_new()).unwrap_err().kind(), ErrorKind::AlreadyExists);
    assert_eq!(open(OpenHow::read()).unwrap().len().unwrap(), 8192);
    let e = open(OpenHow::read()).unwrap().write_all_at(&page(0), 0, P).unwrap_err();
    assert_eq!(e.errno(), Some(libc::EBADF));
    let cut = OpenHow { truncate: true, ..OpenHow::read_write() };
    assert_eq!(open(cut).unwrap().len().unwrap(), 0);
    assert_eq!(open(OpenHow::default()).unwrap_err().kind(), ErrorKind::InvalidInput);
    let deep = c.io.open(&c.dir.join("no/such/dir"), &OpenHow::read_write()).unwrap_err();
    assert_eq!(deep.kind(), ErrorKind::NotFound);
    let f = c.io.open(&path, &OpenHow::read_write().direct(Direct::Prefer)).unwrap();
    assert_eq!(f.alignment().offset > 1, f.is_direct());
}

fn errors_say_what_and_where(c: &Ctx) {
    drop(c.filled("f", 2));
    let path = c.dir.join("f");
    let how = OpenHow { read: false, write: true, direct: c.how().direct, ..OpenHow::default() };
    let f = c.io.open(&path, &how).unwrap();
    let e = f.read_at(&mut [0; 4096], 4096, P).unwrap_err();
    assert_eq!((e.errno(), e.path()), (Some(libc::EBADF), Some(path.as_path())));
    let text = e.to_string();
    assert!(text.starts_with("read ") && text.contains("offset 4096, length 4096"), "{text}");
    let e = c.io.open(&c.dir.join("none"), &OpenHow::read()).unwrap_err();
    assert!(e.to_string().contains("none"), "{e}");
    let dir = c.io.open(&c.dir, &OpenHow::read()).unwrap();
    // Native AIO finds that a directory has nothing to read before it looks what it is.
    let want = if c.uri.starts_with("libaio?queue_always") { libc::EINVAL } else { libc::EISDIR };
    assert_eq!(dir.read_at(&mut [0; 512], 0, P).unwrap_err().errno(), Some(want));
}

fn stats_count(c: &Ctx) {
    let f = c.filled("f", 4);
    let before = c.io.stats();
    for i in 0..4 {
        f.read_exact_at(&mut vec![0; 4096], i * 4096, P).unwrap();
    }
    f.write_all_at(&page(9), 0, P).unwrap();
    f.sync_data(P).unwrap();
    let s = c.io.stats().since(&before);
    let reads = s.of(OpClass::Read, P);
    assert_eq!((reads.ops, reads.bytes, reads.errors), (4, 4 * 4096, 0));
    assert!(reads.percentile(0.5) <= reads.percentile(1.0) && !reads.time().is_zero());
    assert_eq!((s.writes().ops, s.writes().bytes, s.syncs().ops), (1, 4096, 1));
    assert!(!s.elapsed().is_zero());
}
