//! [`Remote`]: the side that asks.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::place;
use crate::wire::{Answer, Bad, MAX_ANSWER_BYTES, PATIENCE, Request, receive, send};

/// How long to try when as many connections are served as there may be.
const BUSY: Duration = Duration::from_secs(30);

/// Why a request was not done.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The request is wrong: an argument, a path.
    #[error("{0}")]
    Usage(String),
    /// It could not be done.
    #[error("{0}")]
    Failed(String),
    /// The socket, or who is behind it, does not answer as it should.
    #[error("the socket of the process that has the store open: {0}")]
    Socket(String),
}

impl From<Bad> for Error {
    fn from(bad: Bad) -> Error {
        Error::Socket(bad.to_string())
    }
}

/// A connection to the process that has a store open, for one request.
#[derive(Debug)]
pub struct Remote {
    stream: UnixStream,
}

impl Remote {
    /// Connects to who has the store in `dir` open and serves it; `None` if nobody does. Waits for up to 30 seconds
    /// while others are served.
    ///
    /// # Errors
    /// [`Error::Socket`]: no permission, no answer within 10 seconds, or another version of the protocol.
    pub fn connect(dir: impl AsRef<Path>) -> Result<Option<Remote>, Error> {
        let ends = Instant::now() + BUSY;
        loop {
            let stream = match place::connect(dir.as_ref()) {
                Ok(Some(stream)) => stream,
                Ok(None) => return Ok(None),
                // Nobody has taken those before this one yet.
                Err(e) if e.kind() == io::ErrorKind::WouldBlock && Instant::now() < ends => {
                    std::thread::sleep(Duration::from_millis(20));
                    continue;
                }
                Err(e) => return Err(Bad::from(e).into()),
            };
            match receive(&stream, MAX_ANSWER_BYTES, Some(Instant::now() + PATIENCE))? {
                Answer::Hello => return Ok(Some(Remote { stream })),
                Answer::Busy if Instant::now() < ends => std::thread::sleep(Duration::from_millis(20)),
                Answer::Busy => return Err(Error::Socket("it is busy with others; try again".into())),
                _ => return Err(Error::Socket("it did not say hello".into())),
            }
        }
    }

    /// Asks, and waits until it is done, however long that takes. `progress` is told bytes done, and of how many. The
    /// answer is JSON.
    ///
    /// # Errors
    /// [`Error::Usage`] and [`Error::Failed`] as the store's own calls fail; [`Error::Socket`] if the other process
    /// ends.
    pub fn ask(self, request: &Request, mut progress: impl FnMut(u64, u64)) -> Result<String, Error> {
        send(&self.stream, request)?;
        loop {
            match receive(&self.stream, MAX_ANSWER_BYTES, None)? {
                Answer::Progress { done, total } => progress(done, total),
                Answer::Done { result } => return Ok(result.to_string()),
                Answer::Failed { message, usage: true } => return Err(Error::Usage(message)),
                Answer::Failed { message, .. } => return Err(Error::Failed(message)),
                Answer::Hello | Answer::Busy => return Err(Error::Socket("it answered out of turn".into())),
            }
        }
    }
}
