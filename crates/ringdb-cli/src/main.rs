//! The `ringdb` command: operate a store, measure, diagnose, report.
//!
//! One module per verb under [`verbs`], the record formats under [`formats`], the benchmark under [`mod@bench`].
//! Verbs that only read open the store read-only, so that they are safe beside a running writer. Errors go to
//! standard error with what to do about them; the exit codes are in [`error`].
#![forbid(unsafe_code)]

mod args;
mod bench;
mod cleanup;
mod coding;
mod demo;
mod doctor;
mod engine;
mod error;
mod fileperf;
mod formats;
mod out;
mod store;
mod verbs;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let cli = args::Cli::parse();
    match verbs::run(cli.verb) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => e.report(),
    }
}
