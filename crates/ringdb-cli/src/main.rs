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
#[cfg(test)]
mod documented;
mod engine;
mod error;
mod fileperf;
mod formats;
mod keys;
mod lab;
mod out;
mod store;
mod top;
mod trace;
mod verbs;

use std::process::ExitCode;

use clap::parser::ValueSource;
use clap::{CommandFactory, FromArgMatches};

fn main() -> ExitCode {
    let matches = args::Cli::command().get_matches();
    let cli = args::Cli::from_arg_matches(&matches).unwrap_or_else(|e| e.exit());
    let verb = matches.subcommand().map(|(_, m)| m);
    let on_the_line = |m: &clap::ArgMatches, id: &str| {
        // A group has no value of its own.
        m.try_contains_id(id).is_ok() && m.value_source(id) == Some(ValueSource::CommandLine)
    };
    let ids = verb.map_or(vec![], |m| m.ids().map(|i| i.as_str()).filter(|i| on_the_line(m, i)).collect());
    match verbs::run(cli.verb, &ids) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => e.report(),
    }
}
