//! `ringdb metrics`: what a store counts, printed or served by HTTP.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use ringdb::socket::{Remote, Request};
use serde_json::Value;

use crate::args::MetricsArgs;
use crate::error::{Result, failed, usage, warn};
use crate::{out, store};

/// How long one who asks by HTTP may take for all of it.
const PATIENCE: Duration = Duration::from_secs(5);
/// How many are answered at a time: so many may be slow before somebody waits for them.
const AT_ONCE: usize = 8;
/// The longest request that is read: its line and its headers.
const MAX_REQUEST_BYTES: usize = 16 << 10;

/// Prints the metrics of a store, or serves them.
pub fn metrics(args: &MetricsArgs) -> Result<()> {
    if let Some(address) = args.listen {
        return serve(&args.store.db, address);
    }
    let text = match store::reach(&args.store)? {
        Some(remote) => ask(remote, args.open_metrics)?.text,
        None => {
            let metrics = store::open_for_reading(&args.store)?.metrics();
            if args.open_metrics { metrics.open_metrics() } else { metrics.prometheus() }
        }
    };
    out::text(&text)
}

/// What is answered.
struct Told {
    media_type: String,
    text: String,
}

fn ask(remote: Remote, open_metrics: bool) -> Result<Told> {
    let said: Value = serde_json::from_str(&remote.ask(&Request::Metrics { open_metrics }, |_, _| {})?)?;
    match (said["type"].as_str(), said["text"].as_str()) {
        (Some(media_type), Some(text)) => Ok(Told { media_type: media_type.into(), text: text.into() }),
        _ => failed("the process that has the store open says nothing that could be understood"),
    }
}

/// Serves the metrics of whoever has the store open, for as long as this process lives. It opens nothing itself: that
/// would keep the store from those who write to it.
fn serve(db: &Path, address: SocketAddr) -> Result<()> {
    if !address.ip().is_loopback() {
        return usage(format!(
            "--listen {address}: only addresses of this machine are served (127.0.0.1:{0}, [::1]:{0}), for there is no \
             password; to reach it from elsewhere put a proxy or an SSH tunnel before it",
            address.port()
        ));
    }
    store::must_exist(db)?;
    let listener = match TcpListener::bind(address) {
        Ok(listener) => listener,
        Err(e) => return failed(format!("{address} cannot be listened to: {e}")),
    };
    out::text(&format!("http://{}/metrics\n", listener.local_addr()?))?;
    std::thread::scope(|s| {
        for _ in 1..AT_ONCE {
            s.spawn(|| answer_all(&listener, db));
        }
        answer_all(&listener, db)
    })
}

/// Answers one after the other: an answer takes milliseconds, and whoever is slow has five seconds.
fn answer_all(listener: &TcpListener, db: &Path) -> ! {
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                // Who hangs up has made up its mind.
                let _ = answer(&stream, db);
            }
            Err(e) => {
                warn(&format!("a connection could not be taken: {e}"));
                std::thread::sleep(Duration::from_millis(100));
            }
        }
    }
}

fn answer(stream: &TcpStream, db: &Path) -> io::Result<()> {
    let ends = Instant::now() + PATIENCE;
    let (status, told) = match request(stream, ends)? {
        Asked::Metrics { open_metrics } => match told(db, open_metrics) {
            Ok(told) => ("200 OK", told),
            Err(why) => ("503 Service Unavailable", plain(&format!("{why}\n"))),
        },
        Asked::Other => ("404 Not Found", plain("metrics are at /metrics\n")),
        Asked::Method => ("405 Method Not Allowed", plain("only GET is answered\n")),
        Asked::Nonsense => ("400 Bad Request", plain("that is no request of HTTP/1.1\n")),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        told.media_type,
        told.text.len()
    );
    send(stream, &[head.as_bytes(), told.text.as_bytes()].concat(), Instant::now() + PATIENCE)
}

/// Sends all of it by then. A timeout of the socket alone would be one for each piece.
fn send(mut stream: &TcpStream, mut bytes: &[u8], ends: Instant) -> io::Result<()> {
    while !bytes.is_empty() {
        stream.set_write_timeout(Some(left(ends)?))?;
        match stream.write(bytes)? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            n => bytes = &bytes[n..],
        }
    }
    Ok(())
}

/// The time until then; an error if it has come.
fn left(ends: Instant) -> io::Result<Duration> {
    match ends.saturating_duration_since(Instant::now()) {
        Duration::ZERO => Err(io::ErrorKind::TimedOut.into()),
        left => Ok(left),
    }
}

fn plain(text: &str) -> Told {
    Told { media_type: "text/plain; charset=utf-8".into(), text: text.into() }
}

fn told(db: &Path, open_metrics: bool) -> Result<Told> {
    match Remote::connect(db)? {
        Some(remote) => ask(remote, open_metrics),
        None => failed(format!(
            "nobody has the store in {} open for writing, or whoever has it serves no socket (`socket = false`)",
            db.display()
        )),
    }
}

/// What a request is for.
#[derive(Debug, PartialEq)]
enum Asked {
    Metrics { open_metrics: bool },
    Other,
    Method,
    Nonsense,
}

/// Reads a request up to the end of its headers.
fn request(mut stream: &TcpStream, ends: Instant) -> io::Result<Asked> {
    let mut bytes = Vec::new();
    let mut some = [0; 1024];
    while !bytes.windows(4).any(|w| w == b"\r\n\r\n") {
        let left = left(ends)?;
        if bytes.len() > MAX_REQUEST_BYTES {
            return Ok(Asked::Nonsense);
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut some)? {
            0 => return Ok(Asked::Nonsense),
            n => bytes.extend_from_slice(&some[..n]),
        }
    }
    Ok(understand(&String::from_utf8_lossy(&bytes)))
}

fn understand(request: &str) -> Asked {
    let mut lines = request.split("\r\n");
    let line: Vec<&str> = lines.next().unwrap_or_default().split(' ').collect();
    let [method, target, version] = line[..] else { return Asked::Nonsense };
    if !version.starts_with("HTTP/1.") {
        return Asked::Nonsense;
    }
    if method != "GET" {
        return Asked::Method;
    }
    let accepts = |line: &str| {
        line.split_once(':').is_some_and(|(name, value)| {
            name.eq_ignore_ascii_case("accept") && value.contains("application/openmetrics-text")
        })
    };
    match target.split('?').next() {
        Some("/metrics") => Asked::Metrics { open_metrics: lines.any(accepts) },
        _ => Asked::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_reads_slowly_is_given_up() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut slow = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().unwrap();
        std::thread::spawn(move || {
            // A little each time, so that something can always be sent.
            while slow.read(&mut [0; 64 << 10]).is_ok_and(|n| n > 0) {
                std::thread::sleep(Duration::from_millis(50));
            }
        });
        let (start, patience) = (Instant::now(), Duration::from_millis(500));
        let sent = send(&stream, &vec![0; 64 << 20], start + patience).map_err(|e| e.kind());
        assert!(matches!(sent, Err(io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock)), "{sent:?}");
        assert!(start.elapsed() < 10 * patience, "{:?}", start.elapsed());
    }

    #[test]
    fn requests_are_understood_or_refused() {
        let metrics = |open_metrics| Asked::Metrics { open_metrics };
        for (request, asked) in [
            ("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", metrics(false)),
            ("GET /metrics?x=1 HTTP/1.0\r\n\r\n", metrics(false)),
            (
                "GET /metrics HTTP/1.1\r\naccept: application/openmetrics-text;version=1.0.0\r\n\r\n",
                metrics(true),
            ),
            ("GET /metrics HTTP/1.1\r\nAccept: text/plain\r\n\r\n", metrics(false)),
            ("GET / HTTP/1.1\r\n\r\n", Asked::Other),
            ("GET /metricsx HTTP/1.1\r\n\r\n", Asked::Other),
            ("POST /metrics HTTP/1.1\r\n\r\n", Asked::Method),
            ("GET /metrics\r\n\r\n", Asked::Nonsense),
            ("GET /metrics SPDY/3\r\n\r\n", Asked::Nonsense),
            ("\u{16}\u{3}\u{1}\r\n\r\n", Asked::Nonsense),
            ("", Asked::Nonsense),
        ] {
            assert_eq!(understand(request), asked, "{request}");
        }
    }
}
