//! A file system without room.

use engineswap::{Direct, ErrorKind, File, Io, OpenHow, Queue};

use crate::places::{FileSystem, Mounts};
use crate::{P, page, read_page, write_page};

type SpaceCase = (&'static str, fn(&Io, &FileSystem));

pub const CASES: &[SpaceCase] = &[
    ("space::lone_writes", lone_writes),
    ("space::queued_writes", queued_writes),
    ("space::removed_files_give_it_back", removed_files_give_it_back),
];

/// Small file systems.
pub fn small_places(mounts: &Mounts, skip: &mut dyn FnMut(&str, &str)) -> Vec<FileSystem> {
    let mut out = Vec::new();
    for (kind, megabytes) in [("tmpfs", 2), ("ext4", 8)] {
        match mounts.mount(kind, &format!("small-{kind}"), megabytes) {
            Ok(dir) => out.push(FileSystem { name: kind, dir }),
            Err(why) => skip("a small file system", &why),
        }
    }
    out
}

fn lone_writes(io: &Io, place: &FileSystem) {
    for direct in [Direct::No, Direct::Prefer] {
        let path = place.dir.join("lone");
        let f = io.open(&path, &OpenHow::read_write().direct(direct)).unwrap();
        let block = page(1).repeat(16);
        let mut at = 0;
        let e = loop {
            assert!(at < 64 << 20, "there is no end");
            match f.write_all_at(&block, at, P) {
                Ok(()) => at += block.len() as u64,
                Err(e) => break e,
            }
        };
        assert_eq!((e.kind(), e.errno()), (ErrorKind::NoSpace, Some(libc::ENOSPC)), "{e}");
        assert!(e.to_string().contains("lone") && e.to_string().contains(&format!("offset {at}")), "{e}");
        // What was written before is still right.
        let mut b = vec![0; 65536];
        f.read_exact_at(&mut b, at - 65536, P).unwrap();
        assert!(b == block);
        assert_eq!(f.allocate(at, 64 << 20).unwrap_err().kind(), ErrorKind::NoSpace);
        drop(f);
        io.remove_file(&path).unwrap();
    }
}

fn queued_writes(io: &Io, place: &FileSystem) {
    for direct in [Direct::No, Direct::Prefer] {
        let path = place.dir.join("queued");
        let f = io.open(&path, &OpenHow::read_write().direct(direct)).unwrap();
        let done = io.run((0..3000).map(|i| write_page(&f, i)).collect());
        let (good, bad): (Vec<_>, Vec<_>) = done.into_iter().partition(|d| d.result.is_ok());
        assert!(!bad.is_empty() && !good.is_empty(), "{} written, {} not", good.len(), bad.len());
        for d in bad {
            let e = d.result.unwrap_err();
            assert_eq!((e.kind(), e.errno()), (ErrorKind::NoSpace, Some(libc::ENOSPC)), "{e}");
            assert!(e.to_string().contains(&format!("offset {}", d.user * 4096)), "{e}");
        }
        let mut b = vec![0; 4096];
        for d in good {
            f.read_exact_at(&mut b, d.user * 4096, P).unwrap();
            assert!(b == page(d.user), "page {}", d.user);
        }
        drop(f);
        io.remove_file(&path).unwrap();
    }
}

/// Whatever a queue still knows of a file: once it is removed and closed, its space is free.
fn removed_files_give_it_back(io: &Io, place: &FileSystem) {
    let mut q = io.queue(4).unwrap();
    let beside = io.open(&place.dir.join("beside"), &OpenHow::create_new()).unwrap();
    let done = io.run(vec![write_page(&beside, 7)]);
    assert_eq!(done[0].result.as_ref().unwrap(), &4096);
    let by_workers = io.info().uri.contains("force_async");
    for round in 0..12 {
        // More than half of the smallest place.
        let path = place.dir.join("removed");
        let f = io.open(&path, &OpenHow::create_new().direct(Direct::Prefer)).unwrap();
        let mut left: Vec<u64> = (0..320).collect();
        for tries in 0.. {
            let done = io.run(left.iter().map(|i| write_page(&f, *i)).collect());
            left = done.iter().filter(|d| !matches!(d.result, Ok(4096))).map(|d| d.user).collect();
            if left.is_empty() {
                break;
            }
            // A worker of the kernel lets go of a file a moment after it has told what came of the request.
            assert!(
                tries < 20_000,
                "round {round}: {} pages, {:?}",
                left.len(),
                done.last().map(|d| &d.result)
            );
            std::thread::sleep(std::time::Duration::from_millis(1));
            // One that lets go after its request has been reaped leaves that to the task of the queue, which does it
            // when it is in the kernel for the queue next.
            if by_workers {
                read(&mut q, &beside);
            }
        }
        read(&mut q, &f);
        io.remove_file(&path).unwrap();
        // On another thread, which is no queue's.
        std::thread::scope(|s| s.spawn(|| drop(f)).join().unwrap());
    }
    drop(beside);
    io.remove_file(&place.dir.join("beside")).unwrap();
}

fn read(q: &mut Queue, f: &File) {
    q.push(read_page(f, 7)).unwrap();
    q.wait(1).unwrap();
    assert_eq!(q.pop().unwrap().result.unwrap(), 4096);
}
