//! The verbs, one function each.

mod admin;
mod backup;
mod docs;
mod dump;
mod export;
mod import;
mod ingest;
mod interrupt;
mod load;
mod merge;
mod metrics;
mod point;
mod reading;
mod repair;
mod scan;
mod stats;

use crate::args::Verb;
use crate::error::{Failure, Result, warn};

/// Does what the command line says. `given` are the arguments that were on it, and not by default.
pub fn run(verb: Verb, given: &[&str]) -> Result<()> {
    match verb {
        Verb::Load(a) => load::load(&a),
        Verb::Import(a) => import::import(&a),
        Verb::Dump(a) => dump::dump(&a),
        Verb::Export(a) => export::export(&a),
        Verb::Get(a) => point::get(&a),
        Verb::Put(a) => point::put(&a),
        Verb::Merge(a) => merge::merge(&a),
        Verb::Del(a) => point::del(&a),
        Verb::Scan(a) => scan::scan(&a),
        Verb::Count(a) => scan::count(&a),
        Verb::Stats(a) => stats::stats(&a),
        Verb::Metrics(a) => metrics::metrics(&a),
        Verb::Top(a) => crate::top::top(&a),
        Verb::Verify(a) => repair::verify(&a),
        Verb::Salvage(a) => repair::salvage(&a).map_err(no_new_store),
        Verb::Compact(a) => admin::compact(&a),
        Verb::Flush(a) => admin::flush(&a),
        Verb::Checkpoint(a) => admin::checkpoint(&a),
        Verb::Upgrade(a) => admin::upgrade(&a),
        Verb::Backup(a) => backup::backup(&a),
        Verb::Restore(a) => backup::restore(&a),
        Verb::Keyspaces(a) => admin::keyspaces(&a),
        Verb::Bench(mut a) => {
            a.settle(|option| given.contains(&option))?;
            crate::bench::bench(&a)
        }
        Verb::Fileperf(mut a) => {
            a.settle()?;
            crate::fileperf::fileperf(&a)
        }
        Verb::Lab(a) => crate::lab::lab(&a),
        Verb::Trace(a) => crate::trace::trace(&a),
        Verb::Doctor(a) => crate::doctor::doctor(&a),
        Verb::Demo(mut a) => {
            a.settle(|option| given.contains(&option))?;
            crate::demo::demo(&a)
        }
        Verb::Completions(a) => docs::completions(&a),
        Verb::Man(a) => docs::man(&a),
    }
}

/// "There is no new store" is an answer of `salvage`, with an exit code that is older than the one of failures.
fn no_new_store(e: Failure) -> Failure {
    match e {
        Failure::Failed(why) => {
            warn(&why);
            Failure::Negative
        }
        e => e,
    }
}
