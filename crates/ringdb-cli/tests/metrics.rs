//! `ringdb metrics`: printed, and by HTTP.
#![allow(clippy::unwrap_used)] // tests

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use common::{command, on, words};
use ringdb::{Db, Options};
use tempfile::tempdir;

fn open(dir: &Path) -> Db {
    Db::open(dir, Options::default().with_io("posix").with_cache_bytes(8 << 20)).unwrap()
}

fn value(text: &str, sample: &str) -> f64 {
    let line =
        text.lines().find(|l| l.starts_with(sample)).unwrap_or_else(|| panic!("no {sample} in {text}"));
    line.rsplit_once(' ').unwrap().1.parse().unwrap()
}

#[test]
fn printed_of_whoever_has_the_store() {
    let tmp = tempdir().unwrap();
    let dir = &tmp.path().join("db");
    on(dir, "metrics --db DB").fails(4, &["no store in"]);
    let db = open(dir);
    (0..10).for_each(|i| db.put(format!("k{i}"), "v").unwrap());
    db.flush().unwrap();
    let text = on(dir, "metrics --db DB").ok().text().to_string();
    assert_eq!(value(&text, "ringdb_write_batches_total{"), 10.0);
    assert_eq!(value(&text, "ringdb_table_entries{"), 10.0);
    assert!(text.contains("# TYPE ringdb_operation_seconds histogram\n") && !text.contains("# EOF"));
    let text = on(dir, "metrics --db DB --open-metrics").ok().text().to_string();
    assert!(text.contains("# TYPE ringdb_write_batches counter\n") && text.ends_with("# EOF\n"));
    db.close().unwrap();
    // A reader's counters are 0.
    let text = on(dir, "metrics --db DB --io posix").ok().text().to_string();
    assert_eq!(value(&text, "ringdb_write_batches_total{"), 0.0);
    assert_eq!(value(&text, "ringdb_table_entries{"), 10.0);
}

/// `ringdb metrics --listen`, ended with it.
struct Endpoint {
    child: Child,
    address: String,
}

impl Endpoint {
    fn start(dir: &Path) -> Endpoint {
        let line = "metrics --db DB --listen 127.0.0.1:0";
        let mut child = command(words(dir, line)).stdout(Stdio::piped()).spawn().unwrap();
        let mut said = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut said).unwrap();
        let address =
            said.trim().strip_prefix("http://").unwrap().strip_suffix("/metrics").unwrap().to_string();
        Endpoint { child, address }
    }

    fn ask(&self, request: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    fn get(&self, path: &str, headers: &str) -> String {
        self.ask(&format!("GET {path} HTTP/1.1\r\nHost: {}\r\n{headers}\r\n", self.address))
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

#[test]
fn served_by_http() {
    let tmp = tempdir().unwrap();
    let dir = &tmp.path().join("db");
    open(dir).close().unwrap();
    let endpoint = Endpoint::start(dir);
    let answer = endpoint.get("/metrics", "");
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("nobody has the store"), "{answer}");
    // It has nothing open itself, and finds whoever opens the store.
    let db = open(dir);
    db.put("k", "v").unwrap();
    let answer = endpoint.get("/metrics", "");
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(head.contains("Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n"), "{head}");
    assert!(head.contains(&format!("Content-Length: {}\r\n", body.len())), "{head}");
    assert_eq!(value(body, "ringdb_write_batches_total{"), 1.0);
    let answer =
        endpoint.get("/metrics", "Accept: application/openmetrics-text;version=1.0.0,text/plain;q=0.5\r\n");
    assert!(answer.contains("Content-Type: application/openmetrics-text;") && answer.ends_with("# EOF\n"));
    assert!(endpoint.get("/", "").starts_with("HTTP/1.1 404 "));
    assert!(endpoint.ask("POST /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405 "));
    assert!(endpoint.ask("nonsense\r\n\r\n").starts_with("HTTP/1.1 400 "));
    assert!(
        endpoint.get("/metrics", &format!("x: {}\r\n", "y".repeat(14 << 10))).starts_with("HTTP/1.1 200 ")
    );
    // Who says nothing, asks slowly or does not listen is in nobody's way.
    drop(TcpStream::connect(&endpoint.address).unwrap());
    let start = Instant::now();
    let slow: Vec<TcpStream> = (0..5)
        .map(|i| {
            let mut stream = TcpStream::connect(&endpoint.address).unwrap();
            stream.write_all(&b"GET /metrics HTTP/1.1\r\n"[..i]).unwrap();
            stream
        })
        .collect();
    assert!(endpoint.get("/metrics", "").starts_with("HTTP/1.1 200 "));
    assert!(start.elapsed() < Duration::from_secs(4), "it took {:?}", start.elapsed());
    drop(slow);
    db.close().unwrap();
    assert!(endpoint.get("/metrics", "").starts_with("HTTP/1.1 503 "));
}

#[test]
fn only_this_machine_is_served() {
    let tmp = tempdir().unwrap();
    let dir = &tmp.path().join("db");
    on(dir, "metrics --db DB --listen 127.0.0.1:0").fails(4, &["no store in"]);
    open(dir).close().unwrap();
    for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:9464"] {
        on(dir, &format!("metrics --db DB --listen {address}"))
            .fails(2, &["only addresses of this machine", "proxy"]);
    }
    for wrong in ["9464", "localhost", "127.0.0.1:99999"] {
        on(dir, &format!("metrics --db DB --listen {wrong}")).fails(2, &["--listen"]);
    }
    on(dir, "metrics --db DB --listen 127.0.0.1:0 --open-metrics").fails(2, &["--open-metrics"]);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let line = format!("metrics --db DB --listen {}", taken.local_addr().unwrap());
    on(dir, &line).fails(4, &["cannot be listened to"]);
}
