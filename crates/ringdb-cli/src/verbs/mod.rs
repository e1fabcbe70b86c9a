//! The verbs, one function each.

mod admin;
mod docs;
mod dump;
mod load;
mod point;
mod repair;
mod scan;

use crate::args::Verb;
use crate::error::Result;

/// Does what the command line says.
pub fn run(verb: Verb) -> Result<()> {
    match verb {
        Verb::Load(a) => load::load(&a),
        Verb::Dump(a) => dump::dump(&a),
        Verb::Get(a) => point::get(&a),
        Verb::Put(a) => point::put(&a),
        Verb::Del(a) => point::del(&a),
        Verb::Scan(a) => scan::scan(&a),
        Verb::Count(a) => scan::count(&a),
        Verb::Stats(a) => admin::stats(&a),
        Verb::Verify(a) => repair::verify(&a),
        Verb::Salvage(a) => repair::salvage(&a),
        Verb::Compact(a) => admin::compact(&a),
        Verb::Checkpoint(a) => admin::checkpoint(&a),
        Verb::Keyspaces(a) => admin::keyspaces(&a),
        Verb::Bench(a) => crate::bench::bench(&a),
        Verb::Fileperf(a) => crate::fileperf::fileperf(&a),
        Verb::Doctor(a) => crate::doctor::doctor(&a),
        Verb::Demo(a) => crate::demo::demo(&a),
        Verb::Completions(a) => docs::completions(&a),
        Verb::Man(a) => docs::man(&a),
    }
}
