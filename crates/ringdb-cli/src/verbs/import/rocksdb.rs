//! A RocksDB store, read by its own tool.
//!
//! RocksDB's formats have options without number and change; its tool reads all that its library does, opens the store
//! read-only, and says at the end how many records there were. So a dump that breaks off is told from a whole one, and
//! this command needs no C++ library.

use std::io::{BufReader, ErrorKind};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::args::ImportArgs;
use crate::error::{Result, failed};
use crate::formats;
use crate::verbs::load::load_foreign;

/// Loads a column family.
pub(super) fn import(args: &ImportArgs) -> Result<()> {
    // Said here in words; ldb names a file that it misses.
    if !args.src.join("CURRENT").is_file() {
        return failed(format!("no RocksDB store in {}: it has no file CURRENT", args.src.display()));
    }
    let tool = args.ldb.as_deref().unwrap_or(Path::new("ldb"));
    let mut child = ldb(args, tool)?;
    let Some(output) = child.stdout.take() else { return failed("ldb has no output") };
    let loaded = load_foreign(args, |loader| {
        let input = BufReader::with_capacity(256 << 10, loader.bar().wrap_read(output));
        loader.records("ldb", &mut *formats::whole_ldb(Box::new(input)))
    });
    // Its output is closed by now: it ends, whatever it was about to say.
    let status = child.wait()?;
    loaded?;
    if status.success() { Ok(()) } else { failed(format!("{} failed: {status}", tool.display())) }
}

fn ldb(args: &ImportArgs, tool: &Path) -> Result<Child> {
    let mut db = std::ffi::OsString::from("--db=");
    db.push(&args.src);
    let mut command = Command::new(tool);
    let family = args.column_family.as_deref().unwrap_or("default");
    command.arg(db).arg(format!("--column_family={family}")).args(["dump", "--hex"]);
    match command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn() {
        Ok(child) => Ok(child),
        Err(e) if e.kind() == ErrorKind::NotFound => failed(format!(
            "{} is not there: RocksDB's tool ldb comes with the package rocksdb-tools \
             (apt-get install rocksdb-tools); --ldb says where it is",
            tool.display()
        )),
        Err(e) => failed(format!("{}: {e}", tool.display())),
    }
}
