//! [`Server`]: the side that has the store open.

use std::io;
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::place::Place;
use crate::wire::{Answer, Bad, MAX_REQUEST_BYTES, PATIENCE, Request, receive, send};

/// Connections that are served at a time: each has a descriptor and a thread.
const MOST: usize = 8;
/// Progress is told no more often.
const TELL_EVERY: Duration = Duration::from_millis(100);
/// How long the end waits for what is being done: it fails soon, for the store is closed.
const END_WITHIN: Duration = Duration::from_secs(1);

/// Is told how many bytes are done, and of how many.
pub type Progress = Arc<dyn Fn(u64, u64) + Send + Sync>;

/// Why something was not done.
#[derive(Debug)]
pub struct Failure {
    /// In words.
    pub message: String,
    /// Whether the request is wrong.
    pub usage: bool,
}

/// Does what is asked for. It must not keep the store open.
pub trait Service: Send + Sync {
    /// Does it; gives the result as JSON.
    ///
    /// # Errors
    /// As the store's own calls.
    fn work(&self, request: Request, progress: Progress) -> Result<Value, Failure>;
}

/// A store that is served: a thread waits for connections, each of which, 8 at most, has another.
pub struct Server {
    shared: Arc<Shared>,
    place: Place,
    accepting: Option<JoinHandle<()>>,
}

struct Shared {
    service: Box<dyn Service>,
    listener: UnixListener,
    stopping: AtomicBool,
    connections: Mutex<Vec<Connection>>,
}

struct Connection {
    stream: Arc<UnixStream>,
    thread: JoinHandle<()>,
}

/// Ends a connection with the thread that serves it, also if that panics: who waits for an answer is told.
struct HangUp(Arc<UnixStream>);

impl Drop for HangUp {
    fn drop(&mut self) {
        let _ = self.0.shutdown(Shutdown::Both);
    }
}

impl Server {
    /// Serves the store in the directory `dir`, whose lock the caller holds. A socket that a killed process has left is
    /// replaced.
    ///
    /// # Errors
    /// What the system says: a directory or a file system that takes no sockets, no descriptors, no thread.
    pub fn start(dir: &Path, service: Box<dyn Service>) -> io::Result<Server> {
        // The process may go elsewhere before the end.
        let (place, listener) = Place::listen(&std::path::absolute(dir)?)?;
        let (stopping, connections) = (AtomicBool::new(false), Mutex::default());
        let shared = Arc::new(Shared { service, listener, stopping, connections });
        let accept = shared.clone();
        match Builder::new().name("ringdb-socket".into()).spawn(move || accept.accept()) {
            Ok(thread) => Ok(Server { shared, place, accepting: Some(thread) }),
            Err(e) => {
                place.remove();
                Err(e)
            }
        }
    }

    /// Removes the socket and takes nobody more. Whoever is connected is told how what it asked for ends.
    pub fn stop(&mut self) {
        self.place.remove();
        self.shared.stopping.store(true, SeqCst);
        // SAFETY: a system call without pointers, on a descriptor that this owns. `accept` fails from then on.
        unsafe { libc::shutdown(self.shared.listener.as_raw_fd(), libc::SHUT_RDWR) };
        if let Some(thread) = self.accepting.take() {
            let _ = thread.join();
        }
        for c in self.shared.connections().iter() {
            let _ = c.stream.shutdown(Shutdown::Read);
        }
    }

    /// Waits a little for the end of what is being done, then cuts off who is connected. A thread that takes longer
    /// ends by itself, and keeps nothing open.
    pub fn end(mut self) {
        self.stop();
        let ends = Instant::now() + END_WITHIN;
        for c in std::mem::take(&mut *self.shared.connections()) {
            while !c.thread.is_finished() && Instant::now() < ends {
                std::thread::sleep(Duration::from_millis(1));
            }
            let _ = c.stream.shutdown(Shutdown::Both);
            if c.thread.is_finished() {
                let _ = c.thread.join();
            }
        }
    }
}

impl Shared {
    fn connections(&self) -> MutexGuard<'_, Vec<Connection>> {
        self.connections.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn accept(self: &Arc<Shared>) {
        while !self.stopping.load(SeqCst) {
            match self.listener.accept() {
                Ok((stream, _)) => self.begin(stream),
                // Woken to end, or short of descriptors for now.
                Err(_) if self.stopping.load(SeqCst) => {}
                Err(_) => std::thread::sleep(Duration::from_millis(100)),
            }
        }
    }

    fn begin(self: &Arc<Shared>, stream: UnixStream) {
        let mut connections = self.connections();
        connections.retain(|c| !c.thread.is_finished());
        if self.stopping.load(SeqCst) {
            return;
        }
        if connections.len() >= MOST {
            // There is room for so little in any new socket.
            let _ = send(&stream, &Answer::Busy);
            return;
        }
        let stream = Arc::new(stream);
        let (shared, mine) = (self.clone(), stream.clone());
        let talk = move || {
            let mine = HangUp(mine);
            let last = match shared.talk(&mine.0) {
                Ok(answer) => answer,
                Err(bad) => Answer::Failed { message: bad.to_string(), usage: true },
            };
            let _ = send(&mine.0, &last);
        };
        if let Ok(thread) = Builder::new().name("ringdb-remote".into()).spawn(talk) {
            connections.push(Connection { stream, thread });
        }
    }

    fn talk(&self, stream: &Arc<UnixStream>) -> Result<Answer, Bad> {
        send(stream, &Answer::Hello)?;
        let request: Request = receive(stream, MAX_REQUEST_BYTES, Some(Instant::now() + PATIENCE))?;
        Ok(match self.service.work(request, progress(stream.clone())) {
            Ok(result) => Answer::Done { result },
            Err(Failure { message, usage }) => Answer::Failed { message, usage },
        })
    }
}

/// Tells the other side how far it is. Who does not listen is not told any more, and what is done goes on.
fn progress(stream: Arc<UnixStream>) -> Progress {
    let next = Mutex::new(Some(Instant::now()));
    Arc::new(move |done, total| {
        let mut next = next.lock().unwrap_or_else(|e| e.into_inner());
        if next.is_some_and(|at| Instant::now() >= at) {
            let sent = send(&stream, &Answer::Progress { done, total });
            *next = sent.is_ok().then(|| Instant::now() + TELL_EVERY);
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Error, Remote};

    struct Panics;

    impl Service for Panics {
        fn work(&self, _: Request, _: Progress) -> Result<Value, Failure> {
            panic!("a mistake in the service");
        }
    }

    #[test]
    fn who_asks_is_told_of_a_panic() {
        let dir = tempfile::tempdir().expect("a directory");
        let server = Server::start(dir.path(), Box::new(Panics)).expect("a socket");
        let remote = Remote::connect(dir.path()).expect("an answer").expect("a server");
        // Elsewhere: without the end of the connection this waits for ever.
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || tell.send(remote.ask(&Request::Stats, |_, _| {})));
        let answer = told.recv_timeout(Duration::from_secs(30)).expect("no answer");
        assert!(matches!(answer, Err(Error::Socket(_))), "{answer:?}");
        server.end();
    }
}
