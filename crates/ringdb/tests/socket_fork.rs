//! A child after fork() serves nothing and takes nothing away. Alone in its binary: it forks.
#![cfg(feature = "socket")]
#![allow(clippy::unwrap_used)] // a test

use ringdb::socket::{Remote, Request};
use ringdb::{Db, Options};

#[test]
fn a_child_leaves_the_socket_to_its_parent() {
    let tmp = tempfile::tempdir().unwrap();
    let db = Db::open(tmp.path(), Options::default().with_io("posix")).unwrap();
    // SAFETY: the child drops a value, which takes no lock and ends no thread, and exits.
    let child = unsafe { libc::fork() };
    if child == 0 {
        drop(db);
        // SAFETY: ends the process at once.
        unsafe { libc::_exit(0) };
    }
    let mut status = 0;
    // SAFETY: waits for the child above.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0);
    let ask = || Remote::connect(tmp.path()).unwrap().unwrap().ask(&Request::Stats, |_, _| {});
    assert!(ask().unwrap().contains(r#""socket":"on""#));
    drop(db);
    assert!(Remote::connect(tmp.path()).unwrap().is_none());
    assert!(!tmp.path().join("SOCKET").exists());
}
