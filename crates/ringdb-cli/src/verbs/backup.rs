//! `ringdb backup` and `ringdb restore`.

use std::time::{Instant, UNIX_EPOCH};

use ringdb::socket::Request;
use ringdb::{BackupOptions, Backups, VerifyOptions};
use serde_json::json;

use super::admin::via_socket;
use super::repair::{engine_alone, progress};
use crate::args::{BackupArgs, RestoreArgs};
use crate::engine::{Engine, Settings};
use crate::error::{Failure, Result};
use crate::keys::KeyArgs;
use crate::out::{self, human_bytes, human_count};
use crate::store::{self, Reached, StoreArgs};

/// Adds a generation, or looks at those that are there.
pub fn backup(args: &BackupArgs) -> Result<()> {
    if args.verify {
        return verify(args);
    }
    if args.list {
        return list(args);
    }
    let Some(db) = &args.db else { return crate::error::usage("--db names the store to back up") };
    let at = StoreArgs {
        db: db.clone(),
        io: args.io.clone(),
        options: args.options.clone(),
        cache_bytes: args.cache_bytes,
        direct_reads: args.direct_reads,
        keys: args.keys.clone(),
        verbose: args.verbose,
    };
    let reached = store::open_or_reach(&at)?;
    let start = Instant::now();
    let bar = out::bytes_bar(Some(0));
    bar.set_message("backing up");
    let tell = progress(&bar);
    let report = match reached {
        Reached::Here(db) => {
            let mut options = BackupOptions::default().with_progress(tell);
            options.keep = args.keep;
            db.backup_with(&args.dir, &options)
                .and_then(|report| db.close().map(|()| report))
                .map_err(Failure::from)
                .and_then(|report| Ok(serde_json::to_value(report)?))
        }
        Reached::There(remote) => {
            let request = Request::Backup { to: store::for_another(&args.dir)?, keep: args.keep };
            via_socket(remote, &request, |done, total| tell(done, total))
        }
    };
    bar.finish_and_clear();
    let report = report?;
    if args.json {
        return out::json(&report);
    }
    let removed = match report["removed"].as_array().map(Vec::as_slice).unwrap_or_default() {
        [] => String::new(),
        [one] => format!("; generation {one} is removed"),
        more => format!("; {} older generations are removed", more.len()),
    };
    let number = |name: &str| report[name].as_u64().unwrap_or_default();
    out::text(&format!(
        "generation {} in {}: {} in {} tables, of which {} were copied in {:.2} s{removed}\n",
        number("generation"),
        args.dir.display(),
        human_bytes(number("bytes")),
        human_count(number("tables")),
        human_bytes(number("copied_bytes")),
        start.elapsed().as_secs_f64(),
    ))
}

fn open(
    dir: &std::path::Path,
    io: Option<&Engine>,
    options: Option<&Settings>,
    keys: &KeyArgs,
) -> Result<Backups> {
    let o = keys.over(engine_alone(io, options)?);
    Ok(Backups::open_with_io(dir, o.open_io()?)?)
}

/// Reads everything and names what is wrong. Problems make exit code 1.
fn verify(args: &BackupArgs) -> Result<()> {
    let backups = open(&args.dir, args.io.as_ref(), args.options.as_ref(), &args.keys)?;
    let start = Instant::now();
    let bar = out::bytes_bar(Some(0));
    bar.set_message("verifying");
    let report = backups.verify(&VerifyOptions::default().with_progress(progress(&bar)));
    bar.finish_and_clear();
    let report = report?;
    if args.json {
        out::json(&report)?;
    } else {
        let mut text: String =
            report.problems.iter().map(|p| format!("{}: {}: {}\n", p.file, p.kind, p.detail)).collect();
        text += &format!(
            "{} generations, {} of tables read in {:.2} s: {}\n",
            backups.generations().len(),
            human_bytes(report.bytes),
            start.elapsed().as_secs_f64(),
            match report.problems.len() {
                0 => "all is well".into(),
                1 => "1 problem".into(),
                n => format!("{n} problems"),
            }
        );
        if !report.is_ok() {
            text += "remove a damaged table: the next backup copies it again if the store still has it\n";
        }
        out::text(&text)?;
    }
    if report.is_ok() { Ok(()) } else { Err(Failure::Negative) }
}

fn list(args: &BackupArgs) -> Result<()> {
    let all = open(&args.dir, args.io.as_ref(), args.options.as_ref(), &args.keys)?.generations();
    // A generation is as old as its last file.
    let made = |number: u64| {
        let current = args.dir.join("generations").join(format!("{number:06}")).join("CURRENT");
        let since = std::fs::metadata(current).ok()?.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
        Some(since.as_secs())
    };
    if args.json {
        let rows = all.iter().map(|g| {
            json!({ "generation": g.number, "tables": g.tables, "bytes": g.bytes, "made_unix_seconds": made(g.number) })
        });
        return out::json(&rows.collect::<Vec<_>>());
    }
    let now = std::time::SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    let rows: Vec<Vec<String>> = all
        .iter()
        .map(|g| {
            let age = made(g.number).map_or("?".into(), |m| age(now.saturating_sub(m)));
            vec![g.number.to_string(), human_count(g.tables), human_bytes(g.bytes), age]
        })
        .collect();
    out::text(&out::table(&["generation", "tables", "size", "age"], &rows, 0))
}

fn age(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}

/// Makes a store of a generation.
pub fn restore(args: &RestoreArgs) -> Result<()> {
    let backups = open(&args.from, args.io.as_ref(), args.options.as_ref(), &args.keys)?;
    let start = Instant::now();
    let bar = out::bytes_bar(Some(0));
    bar.set_message("restoring");
    let report = backups.restore(args.generation, &args.to, Some(&progress(&bar)));
    bar.finish_and_clear();
    let report = report.map_err(|e| match e {
        ringdb::Error::Corrupt { .. } => Failure::Failed(format!(
            "{e}; `ringdb backup --verify {}` names everything that is wrong, --generation takes another one",
            args.from.display()
        )),
        e => e.into(),
    })?;
    if args.json {
        return out::json(&report);
    }
    out::text(&format!(
        "generation {} is restored to {}: {} in {} tables in {:.2} s\n",
        report.generation,
        args.to.display(),
        human_bytes(report.bytes),
        human_count(report.tables),
        start.elapsed().as_secs_f64(),
    ))
}
