//! `ringdb top`: as text, as JSON, and on a terminal.
#![allow(clippy::unwrap_used)] // tests

mod common;

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use common::{command, on};
use ringdb::{Db, Options};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};
use tempfile::tempdir;

fn open(dir: &Path) -> Db {
    Db::open(dir, Options::default().with_io("posix").with_cache_bytes(8 << 20)).unwrap()
}

#[test]
fn one_view_as_text_and_as_json() {
    let tmp = tempdir().unwrap();
    let dir = &tmp.path().join("db");
    let db = open(dir);
    db.put("k", "v").unwrap();
    db.flush().unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|s| {
        s.spawn(|| {
            while !done.load(Relaxed) {
                db.put("k", vec![1; 1000]).unwrap();
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let view = on(dir, "top --db DB --once --json --interval 0.3").ok().json();
        assert_eq!(view["process"], u64::from(std::process::id()));
        assert!(view["rates"]["write_batches"].as_f64().unwrap() > 5.0, "{view}");
        assert!(view["rates"]["log_bytes"].as_f64().unwrap() > 5000.0, "{view}");
        assert_eq!(view["stats"]["socket"], "on");
        assert_eq!(view["stats"]["levels"][0]["entries"], 1);
        assert!(
            view["io"].as_array().unwrap().iter().any(|o| o["purpose"] == "flush" && o["class"] == "write")
        );
        let text = on(dir, "top --db DB --once --interval 0.1").ok().text().to_string();
        for part in
            ["ringdb top", "operations", "levels", "stalls", "memory", "compactions", "in flight", "posix"]
        {
            assert!(text.contains(part), "{part}:\n{text}");
        }
        assert!(!text.contains('\x1b'));
        done.store(true, Relaxed);
    });
}

#[test]
fn what_cannot_be_watched_is_said() {
    let tmp = tempdir().unwrap();
    let dir = &tmp.path().join("db");
    on(dir, "top --db DB --once").fails(4, &["no such directory"]);
    open(dir).close().unwrap();
    on(dir, "top --db DB --once").fails(4, &["nobody has the store", "socket = false", "ringdb stats"]);
    let db = open(dir);
    // Its output is a pipe here.
    on(dir, "top --db DB").fails(2, &["needs a terminal", "--once --json"]);
    on(dir, "top --db DB --json").fails(2, &["--once"]);
    on(dir, "top --db DB --once --interval 0").fails(2, &["from 0.05 to 3600"]);
    on(dir, "top --db DB --once --interval x").fails(2, &["a number of seconds"]);
    db.close().unwrap();
}

/// `ringdb top` on a terminal of 100 by 30.
struct Screen {
    terminal: File,
    other_end: OwnedFd,
    child: Child,
    shown: String,
}

impl Screen {
    fn start(dir: &Path) -> Screen {
        let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&terminal).unwrap();
        unlockpt(&terminal).unwrap();
        let name = ptsname(&terminal, Vec::new()).unwrap().into_string().unwrap();
        let other_end: OwnedFd = File::options().read(true).write(true).open(name).unwrap().into();
        let size = Winsize { ws_row: 30, ws_col: 100, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&other_end, size).unwrap();
        let end = || Stdio::from(other_end.try_clone().unwrap());
        let mut c = command(common::words(dir, "top --db DB --interval 0.1"));
        let child = c.env("TERM", "xterm").stdin(end()).stdout(end()).stderr(end()).spawn().unwrap();
        Screen { terminal: terminal.into(), other_end, child, shown: String::new() }
    }

    /// Whether the terminal hands out bytes as they are typed.
    fn is_raw(&self) -> bool {
        !tcgetattr(&self.other_end).unwrap().local_modes.contains(LocalModes::ICANON)
    }

    fn read_until(&mut self, part: &str) {
        let ends = Instant::now() + Duration::from_secs(20);
        let mut buf = [0; 4096];
        while !self.shown.contains(part) {
            assert!(Instant::now() < ends, "no {part} in {}", self.shown);
            let n = self.terminal.read(&mut buf).unwrap();
            self.shown.push_str(&String::from_utf8_lossy(&buf[..n]));
        }
    }
}

#[test]
fn on_a_terminal_it_draws_and_gives_it_back() {
    let tmp = tempdir().unwrap();
    let dir = &tmp.path().join("db");
    let db = open(dir);
    db.put("k", "v").unwrap();
    for by_key in [true, false] {
        let mut screen = Screen::start(dir);
        screen.read_until("operations");
        screen.read_until("in flight");
        assert!(screen.is_raw());
        screen.shown.clear();
        match by_key {
            true => screen.terminal.write_all(b"q").unwrap(),
            // The store goes away under it.
            false => db.clone().close().unwrap(),
        }
        // It leaves the other screen.
        screen.read_until("\x1b[?1049l");
        if !by_key {
            screen.read_until("nobody has the store");
        }
        assert_eq!(screen.child.wait().unwrap().code(), Some(if by_key { 0 } else { 4 }));
        assert!(!screen.is_raw());
    }
}
