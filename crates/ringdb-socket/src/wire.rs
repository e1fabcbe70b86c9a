//! The bytes: frames of a header and JSON. See docs/formats/socket.md.

use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The version of the protocol that this build speaks, and no other.
pub const VERSION: u32 = 1;

const MAGIC: [u8; 8] = *b"ringdbSK";
const HEADER_BYTES: usize = 16;
/// Longest request: two keys and a name, each byte of which takes up to four.
pub(crate) const MAX_REQUEST_BYTES: u32 = 1 << 20;
/// Longest answer.
pub(crate) const MAX_ANSWER_BYTES: u32 = 64 << 20;
/// How long the other side may take for a frame that is due.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// What can be asked for. Paths are absolute, and bytes: what is done is done by another process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Request {
    /// The store's `ringdb::Stats`, as JSON.
    Stats,
    /// What `ringdb top` shows: the statistics, and the counters of the I/O engine.
    Look,
    /// `Db::metrics`: its `text`, and the media `type` of that.
    Metrics {
        /// In OpenMetrics; else in the text format of Prometheus.
        open_metrics: bool,
    },
    /// `Db::flush`.
    Flush,
    /// Flush, then `Keyspace::compact_range`: table bytes before and after, bytes read and written.
    Compact {
        /// The keyspace; the default one if there is none.
        keyspace: Option<String>,
        /// The first key.
        from: Option<Vec<u8>>,
        /// The first key that is not meant any more.
        to: Option<Vec<u8>>,
    },
    /// `Db::rewrite`: as for `compact`, and the `encryption_key` that was written with.
    Rewrite {
        /// Refused if the store does not write with the key of this number.
        key: Option<u32>,
    },
    /// `Db::checkpoint`.
    Checkpoint {
        /// The new directory.
        to: Vec<u8>,
    },
    /// `Db::backup`: its report.
    Backup {
        /// The directory of the backups.
        to: Vec<u8>,
        /// How many generations stay.
        keep: Option<u32>,
    },
}

/// What comes back: one `Hello`, then any number of `Progress`, then one of the others.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub(crate) enum Answer {
    /// The connection is being served.
    Hello,
    /// So many bytes, of how many.
    Progress {
        done: u64,
        total: u64,
    },
    Done {
        result: Value,
    },
    /// `usage`: the request is wrong.
    Failed {
        message: String,
        usage: bool,
    },
    /// As many connections are served as there may be.
    Busy,
}

/// Why a frame cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Bad {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("what came is no frame of ringdb's socket")]
    NotOurs,
    #[error(
        "the other side speaks version {0} of the socket's protocol, this one version {VERSION}: use the same ringdb there and here"
    )]
    Version(u32),
    #[error("a frame of {0} bytes is longer than it may be")]
    TooLong(u32),
    #[error("what was said cannot be understood: {0}")]
    Json(#[from] serde_json::Error),
}

/// A frame with this payload.
pub(crate) fn frame(payload: &impl Serialize) -> Result<Vec<u8>, Bad> {
    let mut bytes = vec![0; HEADER_BYTES];
    serde_json::to_writer(&mut bytes, payload)?;
    let len = u32::try_from(bytes.len() - HEADER_BYTES).map_err(|_| Bad::TooLong(u32::MAX))?;
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
    bytes[12..16].copy_from_slice(&len.to_le_bytes());
    Ok(bytes)
}

/// The length of the payload behind this header.
pub(crate) fn decode_header(h: &[u8; HEADER_BYTES], most: u32) -> Result<u32, Bad> {
    let u32_at = |i: usize| u32::from_le_bytes([h[i], h[i + 1], h[i + 2], h[i + 3]]);
    match (h[..8] == MAGIC, u32_at(8), u32_at(12)) {
        (false, ..) => Err(Bad::NotOurs),
        (_, version, _) if version != VERSION => Err(Bad::Version(version)),
        (.., len) if len > most => Err(Bad::TooLong(len)),
        (.., len) => Ok(len),
    }
}

/// Sends a frame; fails if the other side does not take it in time.
pub(crate) fn send(stream: &UnixStream, payload: &impl Serialize) -> Result<(), Bad> {
    let bytes = frame(payload)?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let ends = Instant::now() + 2 * PATIENCE;
    let mut left = bytes.as_slice();
    while !left.is_empty() {
        // Who takes a byte now and then does not hold this up for ever.
        if Instant::now() > ends {
            return Err(io::Error::from(io::ErrorKind::TimedOut).into());
        }
        match send_some(stream, &left[..left.len().min(64 << 10)]) {
            Ok(n) => left = &left[n..],
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

/// What `write` does, without the signal that ends a program in C when the other side has hung up: the standard
/// library's `write` does not raise it only in newer versions than the oldest that is supported.
fn send_some(stream: &UnixStream, bytes: &[u8]) -> io::Result<usize> {
    // SAFETY: a system call that reads `bytes.len()` bytes, on a descriptor that is borrowed meanwhile.
    let n = unsafe { libc::send(stream.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), libc::MSG_NOSIGNAL) };
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}

/// Receives a frame, by `ends` if that is given. Memory is taken as bytes come, not as the header promises.
pub(crate) fn receive<T: for<'a> Deserialize<'a>>(
    stream: &UnixStream,
    most: u32,
    ends: Option<Instant>,
) -> Result<T, Bad> {
    let mut header = [0; HEADER_BYTES];
    fill(stream, &mut header, ends)?;
    let len = decode_header(&header, most)? as usize;
    let mut payload = Vec::new();
    while payload.len() < len {
        let at = payload.len();
        payload.resize(len.min(at + (64 << 10)), 0);
        fill(stream, &mut payload[at..], ends)?;
    }
    Ok(serde_json::from_slice(&payload)?)
}

fn fill(mut stream: &UnixStream, buf: &mut [u8], ends: Option<Instant>) -> io::Result<()> {
    let mut at = 0;
    while at < buf.len() {
        let left = ends.map(|e| e.saturating_duration_since(Instant::now()));
        if left.is_some_and(|l| l.is_zero()) {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "the other side took too long"));
        }
        stream.set_read_timeout(left)?;
        match stream.read(&mut buf[at..]) {
            Ok(0) => return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the other side has hung up")),
            Ok(n) => at += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use proptest::prelude::*;

    fn decode(bytes: &[u8]) -> Result<Request, Bad> {
        let (here, there) = UnixStream::pair().expect("a pair of sockets");
        std::thread::scope(|s| {
            s.spawn(move || (&here).write_all(bytes));
            receive(&there, MAX_REQUEST_BYTES, Some(Instant::now() + PATIENCE))
        })
    }

    fn requests() -> impl Strategy<Value = Request> {
        let bytes = || proptest::collection::vec(any::<u8>(), 0..40);
        prop_oneof![
            Just(Request::Stats),
            Just(Request::Look),
            any::<bool>().prop_map(|open_metrics| Request::Metrics { open_metrics }),
            Just(Request::Flush),
            (any::<Option<String>>(), proptest::option::of(bytes()), proptest::option::of(bytes()))
                .prop_map(|(keyspace, from, to)| Request::Compact { keyspace, from, to }),
            any::<Option<u32>>().prop_map(|key| Request::Rewrite { key }),
            bytes().prop_map(|to| Request::Checkpoint { to }),
            (bytes(), any::<Option<u32>>()).prop_map(|(to, keep)| Request::Backup { to, keep }),
        ]
    }

    proptest! {
        #[test]
        fn requests_come_back(request in requests()) {
            prop_assert_eq!(decode(&frame(&request).unwrap()).unwrap(), request);
        }

        #[test]
        fn a_request_that_is_cut_off_or_changed_is_an_error_or_another_request(
            request in requests(), cut in any::<prop::sample::Index>(), flip in 1..=255u8,
        ) {
            let mut bytes = frame(&request).unwrap();
            let at = cut.index(bytes.len());
            prop_assert!(decode(&bytes[..at]).is_err());
            bytes[at] ^= flip;
            prop_assert!(at >= HEADER_BYTES || decode(&bytes).is_err());
            let _ = decode(&bytes);
        }

        #[test]
        fn garbage_is_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(decode(&bytes).is_err());
            let mut framed = frame(&Request::Stats).unwrap();
            framed.truncate(12);
            framed.extend((bytes.len() as u32).to_le_bytes());
            framed.extend(&bytes);
            prop_assert!(decode(&framed).is_err());
        }
    }

    #[test]
    fn what_is_wrong_with_a_header_is_named() {
        let header = |version: u32, len: u32| {
            let mut h = [0; HEADER_BYTES];
            h[..8].copy_from_slice(&MAGIC);
            h[8..12].copy_from_slice(&version.to_le_bytes());
            h[12..].copy_from_slice(&len.to_le_bytes());
            h
        };
        assert!(matches!(decode_header(&[0; 16], 10), Err(Bad::NotOurs)));
        assert!(matches!(decode_header(&header(2, 5), 10), Err(Bad::Version(2))));
        assert!(matches!(decode_header(&header(1, 11), 10), Err(Bad::TooLong(11))));
        assert!(matches!(decode_header(&header(1, 10), 10), Ok(10)));
        // So deep that a parser without a limit would use up its stack.
        let mut deep = header(1, 200_000).to_vec();
        deep.extend(vec![b'['; 200_000]);
        assert!(matches!(decode(&deep), Err(Bad::Json(_))));
    }
}
