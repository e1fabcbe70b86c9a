//! Power cuts of a whole machine: a store writes in a guest whose disk logs every write and flush; on the host each
//! moment of that log, with any part of what was not flushed then, is a disk after a power cut. `ringdb lab guest run
//! powercut --tests THIS_PROGRAM` does both; without arguments this is a test of the program itself.
//!
//! - [`model`]: what is written, and what a store may contain then.
//! - [`line`]: how acknowledgements get into the log of the disk, in its order.
//! - [`write`]: the writer in the guest; and what looks at its store there, after a device has failed (job `faults`).
//! - [`disk_log`]: the log, and what a power cut leaves of it.
//! - [`replay`]: one disk after another, mounted, opened and checked.

#![allow(clippy::unwrap_used, missing_docs)] // a test

mod disk_log;
mod line;
mod model;
#[path = "../real_crash/mounts.rs"]
#[allow(dead_code)] // a part is used
mod mounts;
mod replay;
#[path = "../support/mod.rs"]
mod support;
mod write;

use std::process::ExitCode;

const USAGE: &str = "power_cuts write DIR DEVICE OFFSET IO DURABILITY BATCHES [MISTAKE]
power_cuts check DIR DEVICE OFFSET IO DURABILITY
power_cuts replay OUT LOG FILE_SYSTEM OFFSET DURABILITY POINTS SEED [until-loss]";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match words[..] {
        ["write", ref rest @ ..] => write::main(rest),
        ["check", ref rest @ ..] => write::after(rest),
        ["replay", ref rest @ ..] => replay::main(rest),
        // A list of tests is asked for.
        _ if words.contains(&"--list") => Ok(()),
        _ => {
            line::tests();
            disk_log::tests();
            model::tests();
            println!("power_cuts: the program itself is sound; `make guest-powercut` runs the campaign");
            Ok(())
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}\n{USAGE}");
            ExitCode::FAILURE
        }
    }
}
