//! System calls that a queue makes, and those that it leaves to the call that comes anyhow.

use super::options::pipe;
use super::*;

/// Ends the read of a pipe: a test that fails must not wait for it.
struct Written<'a>(&'a File);

impl Drop for Written<'_> {
    fn drop(&mut self) {
        let _ = std::fs::write(self.0.path(), page(3));
    }
}

fn calls(io: &Io) -> u64 {
    io.stats().submit_calls
}

#[test]
fn what_is_pushed_between_pops_waits_for_its_submission() {
    let Some(io) = open("io_uring") else { return };
    let dir = dir();
    let (f, pipe) = (filled(&io, dir.path(), 8), pipe(&io, dir.path()));
    let mut q = io.queue(8).unwrap();
    let _end = Written(&pipe);
    q.push(read_page(&pipe, 0).user(9)).unwrap();
    q.submit().unwrap();
    let before = calls(&io);
    q.push(read_page(&f, 1).user(1)).unwrap();
    for _ in 0..3 {
        assert!(q.pop().is_none());
    }
    assert_eq!(calls(&io), before, "a pop has submitted");
    q.wait(1).unwrap();
    assert_eq!((q.pop().unwrap().user, calls(&io)), (1, before + 1));
    std::fs::write(pipe.path(), page(3)).unwrap();
    q.wait(1).unwrap();
    assert_eq!(q.pop().unwrap().user, 9);
}

#[test]
fn a_completion_that_needs_a_call_comes_with_the_submission_or_at_the_second_look() {
    let Some(io) = open("io_uring?defer_taskrun") else { return };
    let dir = dir();
    let (f, pipe) = (filled(&io, dir.path(), 8), pipe(&io, dir.path()));
    let mut q = io.queue(8).unwrap();
    let _end = Written(&pipe);
    for looks in [0, 1, 2] {
        q.push(read_page(&pipe, 0).user(9)).unwrap();
        q.submit().unwrap();
        // From here on the completion needs the thread to call the kernel.
        std::fs::write(pipe.path(), page(3)).unwrap();
        let before = calls(&io);
        if looks > 0 {
            q.push(read_page(&f, 1).user(1)).unwrap();
            assert!(q.pop().is_none(), "it came without a call, or by one for it alone");
            assert_eq!(calls(&io), before);
        }
        if looks == 1 {
            q.submit().unwrap();
            assert_eq!(calls(&io), before + 1);
        }
        // With nothing to submit no other call is near; with something, this is the second look.
        let first = q.pop().unwrap();
        assert_eq!(calls(&io), before + 1, "{looks} looks");
        // The other read is with the device, or was faster.
        let users: Vec<u64> =
            std::iter::once(first).chain(std::iter::from_fn(|| q.pop())).map(|d| d.user).collect();
        assert!(users.contains(&9), "{looks} looks: {users:?}");
        finish(&mut q);
    }
}

/// The first operations of a batch are in flight while the last are made.
#[test]
fn a_batch_is_submitted_while_it_is_made() {
    let Some(io) = open("io_uring") else { return };
    let dir = dir();
    let f = filled(&io, dir.path(), 64);
    let mut made_before = Vec::new();
    let op = |i| {
        made_before.push(calls(&io));
        read_page(&f, i).user(i)
    };
    let mut done = 0;
    let before = calls(&io);
    io.run_with((0..64).map(op), |d| {
        assert_eq!(d.result.unwrap(), 4096);
        done += 1;
    });
    assert_eq!(done, 64);
    assert_eq!(made_before[7], before);
    assert!(made_before.windows(2).all(|w| w[0] <= w[1]) && made_before[63] >= before + 6, "{made_before:?}");
}
