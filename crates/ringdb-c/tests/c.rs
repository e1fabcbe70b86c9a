//! The C interface as C and C++ programs meet it: installed, found by pkg-config, compiled with all warnings as
//! errors, under AddressSanitizer where the compiler has it, and run on each engine.

#![allow(clippy::unwrap_used)] // a test

#[path = "../../c-abi/tests/support/mod.rs"]
mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use support::{Library, file, have, place, root, run, sanitizer};

static LIBRARY: Library = Library::new("ringdb", ringdb_c::RINGDB_ABI_VERSION);

const ENGINES: [&str; 3] = ["posix", "libaio", "io_uring"];

#[test]
fn the_contract_from_c() {
    LIBRARY.passes("cc", "-std=c99", "contract.c", &ENGINES);
}

#[test]
fn merges_times_to_live_and_tables_from_c() {
    LIBRARY.passes("cc", "-std=gnu99", "merges.c", &ENGINES);
}

#[test]
fn compaction_filters_from_c() {
    LIBRARY.passes("cc", "-std=gnu99", "filters.c", &ENGINES);
}

#[test]
fn asynchronous_calls_from_c() {
    LIBRARY.passes("cc", "-std=gnu11", "async.c", &ENGINES);
}

#[test]
fn the_wrapper_from_cpp() {
    LIBRARY.passes("c++", "-std=c++17", "wrapper.cc", &ENGINES);
}

/// The blocks of this language in the README.
fn readme(language: &str) -> String {
    let text = std::fs::read_to_string(root().join("README.md")).unwrap();
    let (_, block) = text.split_once(&format!("```{language}\n")).unwrap();
    block.split_once("```").unwrap().0.to_owned()
}

#[test]
fn the_programs_of_the_readme_run_with_either_library() {
    if !have("cc") || !have("c++") {
        return;
    }
    let dir = place();
    let source = |name: &str, language| {
        let path = dir.path().join(name);
        std::fs::write(&path, readme(language)).unwrap();
        path
    };
    let (c, cpp) = (source("fruit.c", "c"), source("fruit.cc", "cpp"));
    let exe = |name: &str| dir.path().join(name);
    LIBRARY.compile("cc", "-std=c99", &c, &exe("c"), &[]);
    LIBRARY.compile("c++", "-std=c++17", &cpp, &exe("cpp"), &[]);
    let mut fixed = Command::new("cc");
    fixed.arg(&c).arg("-o").arg(exe("fixed")).arg(format!("-I{}/include", LIBRARY.prefix().display()));
    run(fixed.args(LIBRARY.fixed()));
    let ran = |name: &str| run(Command::new(exe(name)).current_dir(dir.path()).env_remove("ENGINESWAP"));
    assert_eq!(ran("c"), "red\napple\n");
    assert_eq!(ran("fixed"), "red\napple\n");
    assert_eq!(ran("cpp"), "apple = red\npear = green\n");
}

#[test]
fn the_static_library_hides_inside_a_shared_one() {
    LIBRARY.hides_inside_a_shared_one(
        "#include <ringdb.h>\nconst char *inside(void) { return ringdb_version(); }\n",
    );
}

/// The server of the examples, ended when this is dropped.
struct Server {
    process: Child,
    port: u16,
}

impl Server {
    fn start(exe: &Path, store: PathBuf) -> Server {
        let mut c = Command::new(exe);
        let mut process = c.arg(store).stdout(Stdio::piped()).env_remove("ENGINESWAP").spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let port = line.trim().rsplit_once(':').unwrap().1.parse().unwrap();
        Server { process, port }
    }

    /// Sends lines, all at once, and takes all answers.
    fn ask(&self, lines: &str) -> String {
        let mut peer = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        peer.write_all(lines.as_bytes()).unwrap();
        peer.shutdown(std::net::Shutdown::Write).unwrap();
        let mut out = String::new();
        peer.read_to_string(&mut out).unwrap();
        out
    }

    fn stop(mut self) {
        run(Command::new("kill").arg(self.process.id().to_string()));
        assert!(self.process.wait().unwrap().success());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
    }
}

#[test]
fn the_server_of_the_examples_serves() {
    if !have("cc") {
        return;
    }
    let dir = place();
    let exe = dir.path().join("server");
    let sanitizer = sanitizer("cc", dir.path());
    LIBRARY.compile("cc", "-std=gnu99", &file("examples/server.c"), &exe, &sanitizer);
    let server = Server::start(&exe, dir.path().join("store"));
    let lines = "SET apple red and green\nGET apple\nGET plum\nDEL apple\nGET apple\nBUY apple\n";
    assert_eq!(server.ask(lines), "+\n+red and green\n-\n+\n-\n!GET key, SET key value or DEL key\n");
    std::thread::scope(|s| {
        for t in 0..8 {
            let server = &server;
            s.spawn(move || {
                let lines: String = (0..100).map(|i| format!("SET {t}-{i} {i}\nGET {t}-{i}\n")).collect();
                let wanted: String = (0..100).map(|i| format!("+\n+{i}\n")).collect();
                assert_eq!(server.ask(&lines), wanted);
            });
        }
    });
    server.stop();
    let server = Server::start(&exe, dir.path().join("store"));
    assert_eq!(server.ask("GET 7-99\n"), "+99\n");
    server.stop();
}

#[test]
fn the_library_exports_what_the_header_declares_and_nothing_else() {
    LIBRARY.check_exports();
}

#[test]
fn the_library_is_named_by_its_abi() {
    LIBRARY.check_name();
}

#[test]
fn the_interface_is_the_one_that_programs_were_compiled_against() {
    LIBRARY.check_abi();
}
