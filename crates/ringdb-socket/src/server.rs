//! [`serve`]: the side that has the store open.

use std::io;
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use ringdb::{Db, Durability, Error, Progress, WriteBatch, WriteOptions};

use crate::place::Place;
use crate::wire::{Answer, Bad, MAX_REQUEST_BYTES, PATIENCE, Request, receive, send};
use crate::work::work;

/// Connections that are served at a time: each has a descriptor and a thread.
const MOST: usize = 8;
/// Progress is told no more often.
const TELL_EVERY: Duration = Duration::from_millis(100);

/// A store that is served, until this is dropped. It keeps the store open. Its drop removes the socket, cuts off who is
/// connected, and waits for what is being done for them. In a child after `fork()` it does nothing: the store, and the
/// socket, are the parent's.
pub struct Serving {
    shared: Arc<Shared>,
    place: Place,
    process: u32,
    accepting: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for Serving {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Serving").field("process", &self.process).finish_non_exhaustive()
    }
}

struct Shared {
    db: Db,
    listener: UnixListener,
    stopping: AtomicBool,
    connections: Mutex<Vec<Connection>>,
}

struct Connection {
    stream: Arc<UnixStream>,
    thread: JoinHandle<()>,
}

/// Serves `db`, the store in the directory `dir`, on a Unix socket there (SOCKET, mode 0600). A thread waits for
/// connections; each, of 8 at most, has another. One socket that a killed process has left is replaced.
///
/// # Errors
/// [`io::ErrorKind::InvalidInput`] if the store was opened read-only: it has another process's data, and perhaps its
/// socket. Otherwise what the system says: a directory or a file system that takes no sockets.
pub fn serve(db: &Db, dir: impl AsRef<Path>) -> io::Result<Serving> {
    let nothing = WriteOptions::default().durability(Durability::None);
    match db.write(WriteBatch::new(), &nothing) {
        // One that has stopped writing has something to tell.
        Ok(()) | Err(Error::Stopped(_)) => {}
        Err(e) => return Err(io::Error::new(io::ErrorKind::InvalidInput, e.to_string())),
    }
    let (place, listener) = Place::listen(dir.as_ref())?;
    let (stopping, connections) = (AtomicBool::new(false), Mutex::default());
    let shared = Arc::new(Shared { db: db.clone(), listener, stopping, connections });
    let accept = shared.clone();
    match Builder::new().name("ringdb-socket".into()).spawn(move || accept.accept()) {
        Ok(thread) => Ok(Serving { shared, place, process: std::process::id(), accepting: Some(thread) }),
        Err(e) => {
            place.remove();
            Err(e)
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
            let last = match shared.talk(&mine) {
                Ok(answer) => answer,
                Err(bad) => Answer::Failed { message: bad.to_string(), usage: true },
            };
            let _ = send(&mine, &last);
            let _ = mine.shutdown(Shutdown::Both);
        };
        if let Ok(thread) = Builder::new().name("ringdb-remote".into()).spawn(talk) {
            connections.push(Connection { stream, thread });
        }
    }

    fn talk(&self, stream: &Arc<UnixStream>) -> Result<Answer, Bad> {
        send(stream, &Answer::Hello)?;
        let request: Request = receive(stream, MAX_REQUEST_BYTES, Some(Instant::now() + PATIENCE))?;
        Ok(match work(&self.db, request, progress(stream.clone())) {
            Ok(result) => Answer::Done { result },
            Err(Error::Invalid(message)) => Answer::Failed { message, usage: true },
            Err(e) => Answer::Failed { message: e.to_string(), usage: false },
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

impl Drop for Serving {
    fn drop(&mut self) {
        if std::process::id() != self.process {
            return;
        }
        self.place.remove();
        self.shared.stopping.store(true, SeqCst);
        let _ = rustix::net::shutdown(&self.shared.listener, rustix::net::Shutdown::Both);
        if let Some(thread) = self.accepting.take() {
            let _ = thread.join();
        }
        let connections = std::mem::take(&mut *self.shared.connections());
        for c in &connections {
            // It reads no more; what is done for it ends, and is told.
            let _ = c.stream.shutdown(Shutdown::Read);
        }
        for c in connections {
            let _ = c.thread.join();
        }
    }
}
