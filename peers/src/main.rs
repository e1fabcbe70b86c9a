//! ringdb beside RocksDB, fjall and LMDB: the same pairs, durability, cache and number of threads for all.
//!
//! Each measurement is a process of its own (`peers child`), so that no store leaves memory or threads to the next.
//! Rounds are interleaved: every store once, in an order that rotates; a ratio is taken round by round.
//! [`scenario`] says what is measured, [`work`] does it, [`stores`] are the stores, [`report`] makes tables of it.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod limit;
mod report;
mod run;
mod scenario;
mod stores;
mod tasks;
mod work;

#[derive(Parser)]
#[command(about = "Measures ringdb beside other embedded stores, in interleaved rounds", version)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// List the scenarios and their rows
    List,
    /// Run scenarios; tables to standard output
    Run(RunArgs),
    /// Run one store once (used by `run`)
    #[command(hide = true)]
    Child(ChildArgs),
}

#[derive(clap::Args)]
struct RunArgs {
    /// Scenarios to run (default: all)
    #[arg(value_name = "SCENARIO")]
    scenarios: Vec<String>,
    /// Stores to compare with ringdb
    #[arg(long, value_delimiter = ',', default_value = "rocksdb,rocksdb-tuned,fjall,lmdb")]
    against: Vec<stores::Kind>,
    /// Rounds, each with every store once
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Take this share of the pairs, caches and operations (0.1: a tenth)
    #[arg(long, default_value_t = 1.0, value_parser = share)]
    scale: f64,
    /// Where the stores are made, below a directory that is removed; must be on a disk
    #[arg(long, default_value = "target/peers")]
    dir: PathBuf,
    /// Write all figures to this file
    #[arg(long)]
    json: Option<PathBuf>,
}

#[derive(clap::Args)]
struct ChildArgs {
    scenario: String,
    store: stores::Kind,
    dir: PathBuf,
    scale: f64,
    round: u32,
}

fn share(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(share) if share > 0.0 && share <= 1.0 => Ok(share),
        _ => Err("above 0, at most 1".into()),
    }
}

fn main() -> ExitCode {
    let done = match Args::parse().command {
        Command::List => {
            scenario::list();
            Ok(())
        }
        Command::Run(args) => run::run(&args),
        Command::Child(args) => run::child(&args),
    };
    if let Err(why) = done {
        eprintln!("peers: {why}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
