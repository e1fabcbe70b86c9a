//! The engines of the operating system, one a file, and what they share.

mod bell;
mod cached;
mod driver;
pub(crate) mod exec;
pub(crate) mod interruptions;
pub(crate) mod kept;
pub(crate) mod libaio;
pub(crate) mod owned;
pub(crate) mod posix;
mod probe;
pub(crate) mod queued;
mod raw;
pub(crate) mod runner;
pub(crate) mod slots;
mod trace;
pub(crate) mod uring;

pub(crate) use self::raw::Unregistered;
pub use self::raw::{Engine, Lends, RawQueue, RawRegistration, RawWaiter};
pub use crate::map::RawMap;
pub use crate::os::{OsFile, RawFile};

#[cfg(test)]
mod tests {
    use crate::mem::AlignedBuf;
    use crate::{Buf, ErrorKind, Io, Op, OpKind, OpenHow, Purpose};

    /// The engines that work here.
    fn engines() -> Vec<Io> {
        ["posix", "libaio", "io_uring"].iter().filter_map(|uri| Io::from_uri(uri).ok()).collect()
    }

    #[test]
    fn a_failed_sync_is_final_for_its_file() {
        let dir = tempfile::tempdir().unwrap();
        for io in engines() {
            let path = dir.path().join("f");
            let f = io.open(&path, &OpenHow::read_write()).unwrap();
            let other = io.open(&path, &OpenHow::read_write()).unwrap();
            f.sync_data(Purpose(0)).unwrap();
            f.0.os().unwrap().sync_failed(libc::EIO);
            let check = |e: crate::Error| {
                assert_eq!((e.kind(), e.errno()), (ErrorKind::SyncFailed, Some(libc::EIO)), "{e}");
                assert_eq!(e.path(), Some(path.as_path()));
            };
            check(f.sync_data(Purpose(0)).unwrap_err());
            check(f.clone().sync_all(Purpose(0)).unwrap_err());
            check(f.write_all_at_dsync(b"x", 0, Purpose(0)).unwrap_err());
            let mut write = Op::write(&f, 0, 1, Buf::Aligned(AlignedBuf::zeroed(1)), Purpose(0));
            write.kind = OpKind::Write { dsync: true };
            let range = Op { kind: OpKind::SyncRange, len: 1, ..Op::sync_data(&f, Purpose(0)) };
            for done in io.run(vec![Op::sync_data(&f, Purpose(0)), write, range]) {
                check(done.result.unwrap_err());
            }
            // Plain writes and reads go on, and so do other handles: the kernel tells each of its own.
            f.write_all_at(b"x", 0, Purpose(0)).unwrap();
            other.sync_data(Purpose(0)).unwrap();
        }
    }

    #[test]
    fn auto_says_what_it_took_and_why() {
        let info = Io::from_config(&crate::Config::Auto).unwrap().info();
        assert!(!info.reasons.is_empty());
        assert!(info.reasons.iter().any(|r| r.starts_with(info.name)) || std::env::var("ENGINESWAP").is_ok());
        let again = Io::from_uri(&info.uri).unwrap().info();
        assert_eq!((again.name, again.uri), (info.name, info.uri));
    }

    #[test]
    fn an_option_that_was_asked_for_is_had() {
        for flag in ["single_issuer", "coop_taskrun", "no_sqarray", "defer_taskrun&single_issuer"] {
            match Io::from_uri(&format!("io_uring?{flag}")) {
                Ok(io) => assert!(flag.split('&').all(|f| io.info().uri.contains(f)), "{}", io.info().uri),
                Err(e) => assert_eq!(e.kind(), ErrorKind::Unsupported),
            }
        }
    }
}
