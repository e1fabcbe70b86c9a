//! The server on a port of the loopback device, asked by plain sockets.
#![allow(clippy::unwrap_used)] // tests

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use http_server::{serve, status};
use ringdb::{Db, Options};
use tokio::sync::oneshot;

struct Server {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
    db: Db,
    _dir: tempfile::TempDir,
}

impl Server {
    fn start() -> Server {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let db = Db::open(dir.path(), Options::default().with_cache_bytes(1 << 20)).unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let (tell, address) = std::sync::mpsc::channel();
        let served = db.clone();
        let body = move || {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
            runtime.unwrap().block_on(async {
                let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
                tell.send(listener.local_addr().unwrap()).unwrap();
                let stop = async { drop(stopped.await) };
                serve(listener, served, stop, Duration::from_secs(60)).await.unwrap();
            });
        };
        let thread = Some(std::thread::spawn(body));
        Server { address: address.recv().unwrap(), stop: Some(stop), thread, db, _dir: dir }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream
    }

    /// One request on a connection of its own: the status and the body.
    fn ask(&self, method: &str, path: &str, body: &[u8]) -> (u16, Vec<u8>) {
        let mut stream = self.connect();
        // Of HTTP/1.0, so that bodies come as they are, up to the end of the connection.
        let head = format!("{method} {path} HTTP/1.0\r\nContent-Length: {}\r\n\r\n", body.len());
        stream.write_all(head.as_bytes()).unwrap();
        // A request that is refused is not read to its end.
        let _ = stream.write_all(body);
        let mut all = Vec::new();
        let _ = stream.read_to_end(&mut all);
        let end = all.windows(4).position(|w| w == b"\r\n\r\n").expect("a head") + 4;
        let status = std::str::from_utf8(&all[9..12]).unwrap().parse().unwrap();
        (status, all.split_off(end))
    }

    fn stop(&mut self) {
        self.stop.take().map(|stop| stop.send(()));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
        let ended = self.thread.take().map(|thread| thread.join());
        assert!(std::thread::panicking() || ended.is_none_or(|ended| ended.is_ok()));
    }
}

#[test]
fn keys_are_put_read_and_deleted() {
    let server = Server::start();
    assert_eq!(server.ask("GET", "/keys/apple", b"").0, 404);
    assert_eq!(server.ask("PUT", "/keys/apple", b"red"), (204, vec![]));
    assert_eq!(server.ask("GET", "/keys/apple", b""), (200, b"red".to_vec()));
    let bytes: Vec<u8> = (0..=255).cycle().take(3_000_000).collect();
    assert_eq!(server.ask("PUT", "/keys/%00%FF%2F+a", &bytes).0, 204);
    assert_eq!(server.ask("GET", "/keys/%00%ff/+a", b""), (200, bytes.clone()));
    assert_eq!(server.db.get(b"\x00\xFF/+a").unwrap().as_deref(), Some(&bytes[..]));
    for _ in 0..2 {
        assert_eq!(server.ask("DELETE", "/keys/apple", b"").0, 204);
        assert_eq!(server.ask("GET", "/keys/apple", b"").0, 404);
    }
}

#[test]
fn ranges_come_in_order_and_as_long_as_was_asked() {
    let server = Server::start();
    for i in 0..20_000 {
        server.db.put(format!("key{i:05}"), format!("value {i}")).unwrap();
    }
    server.db.flush().unwrap();
    let line = |i: usize| format!("key{i:05}\tvalue%20{i}\n");
    let lines = |from: usize, to: usize| (200, (from..to).map(line).collect::<String>().into_bytes());
    assert!(server.ask("GET", "/keys", b"") == lines(0, 20_000));
    assert_eq!(server.ask("GET", "/keys?from=key00100&to=key00110", b""), lines(100, 110));
    assert_eq!(server.ask("GET", "/keys?from=key19990&limit=5", b""), lines(19_990, 19_995));
    assert_eq!(server.ask("GET", "/keys?limit=0", b""), (200, vec![]));
    assert_eq!(server.ask("GET", "/keys?from=z", b""), (200, vec![]));
    // A client that goes away in the middle harms nobody.
    for _ in 0..20 {
        let mut stream = server.connect();
        stream.write_all(b"GET /keys HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        stream.read_exact(&mut [0; 100]).unwrap();
    }
    assert_eq!(server.ask("GET", "/keys?limit=1", b""), lines(0, 1));
}

#[test]
fn what_cannot_be_done_is_refused_with_the_right_status() {
    let server = Server::start();
    assert_eq!(server.ask("GET", "/", b"").0, 404);
    assert_eq!(server.ask("POST", "/keys/a", b"").0, 405);
    assert_eq!(server.ask("DELETE", "/keys", b"").0, 405);
    assert_eq!(server.ask("GET", "/keys?limit=many", b"").0, 400);
    assert_eq!(server.ask("GET", "/keys?frm=a", b"").0, 400);
    let (code, why) = server.ask("PUT", "/keys/large", &vec![0; (16 << 20) + 1]);
    assert!(code == 413 && String::from_utf8(why).unwrap().contains("bytes at most"));
    assert_eq!(server.db.get("large").unwrap(), None);
    assert_eq!(status(&ringdb::Error::TimedOut), 504);
    assert_eq!(status(&ringdb::Error::Invalid(String::new())), 400);
    server.db.clone().close().unwrap();
    for (method, path) in [("GET", "/keys/a"), ("PUT", "/keys/a"), ("GET", "/keys")] {
        let (code, why) = server.ask(method, path, b"");
        assert_eq!((code, String::from_utf8(why).unwrap().as_str()), (503, "the store is closed"));
    }
}

#[test]
fn stopping_lets_a_request_under_way_end() {
    let mut server = Server::start();
    let mut stream = server.connect();
    let head = b"PUT /keys/late HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\nExpect: 100-continue\r\n\r\n";
    stream.write_all(head).unwrap();
    // It is under way once the server asks for the body; a connection without a request would be closed.
    let mut go_on = [0; b"HTTP/1.1 100 Continue\r\n\r\n".len()];
    stream.read_exact(&mut go_on).unwrap();
    assert_eq!(&go_on, b"HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(b"half ").unwrap();
    let mut idle = server.connect();
    idle.write_all(b"GET /keys/a HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    idle.read_exact(&mut [0; 12]).unwrap();
    server.stop();
    // New connections are refused, at once or in a moment.
    let start = Instant::now();
    while TcpStream::connect(server.address).is_ok() {
        assert!(start.elapsed() < Duration::from_secs(60), "it goes on");
        std::thread::sleep(Duration::from_millis(5));
    }
    // An idle connection is closed.
    idle.read_to_end(&mut Vec::new()).unwrap();
    stream.write_all(b"value").unwrap();
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 204");
    assert_eq!(server.db.get("late").unwrap().as_deref(), Some(&b"half value"[..]));
}
