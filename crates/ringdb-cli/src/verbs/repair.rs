//! Verbs for a store that may be damaged: `verify` and `salvage`.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use indicatif::ProgressBar;
use ringdb::{Options, Progress, SalvageOptions, SalvageReport, VerifyOptions, VerifyProblem, VerifyReport};

use crate::args::{PlainArgs, SalvageArgs};
use crate::engine::{Engine, Settings};
use crate::error::{Failure, Result, failed, usage};
use crate::out::{self, human_bytes, human_count};
use crate::store;

/// Moves a bar.
pub(super) fn progress(bar: &ProgressBar) -> Progress {
    let bar = bar.clone();
    Arc::new(move |done, total| {
        bar.set_length(total);
        bar.set_position(done);
    })
}

/// Reads everything and names what is wrong. Problems make exit code 1.
pub fn verify(args: &PlainArgs) -> Result<()> {
    let start = Instant::now();
    let bar = out::bytes_bar(Some(0));
    bar.set_message("verifying");
    let report = store::verify(&args.store, &VerifyOptions::default().with_progress(progress(&bar)));
    bar.finish_and_clear();
    let report = report?;
    if args.json {
        out::json(&report)?;
    } else {
        out::text(&describe_verify(&report, start.elapsed().as_secs_f64()))?;
    }
    if report.is_ok() { Ok(()) } else { Err(Failure::Negative) }
}

fn describe_verify(report: &VerifyReport, seconds: f64) -> String {
    let mut text: String = report.problems.iter().map(describe_problem).collect();
    for note in &report.notes {
        let _ = writeln!(text, "note: {note}");
    }
    if report.damaged_bytes > 0 {
        let _ = writeln!(
            text,
            "damaged: {} blocks, {} of {} of tables ({}), {} entries",
            human_count(report.damaged_blocks),
            human_bytes(report.damaged_bytes),
            human_bytes(report.table_bytes),
            percent(report.damaged_bytes as f64 / report.table_bytes.max(1) as f64),
            human_count(report.damaged_entries),
        );
    }
    let _ = writeln!(
        text,
        "{} files, {} blocks, {} entries, {} read in {seconds:.2} s: {}",
        human_count(report.files),
        human_count(report.blocks),
        human_count(report.entries),
        human_bytes(report.bytes),
        match report.problems.len() {
            0 => "all is well".into(),
            1 => "1 problem".into(),
            n => format!("{n} problems"),
        }
    );
    text
}

fn percent(share: f64) -> String {
    if share < 0.0001 { "less than 0.01 %".into() } else { format!("{:.2} %", 100.0 * share) }
}

fn describe_problem(p: &VerifyProblem) -> String {
    let at = p.offset.map(|o| format!(" at offset {o}")).unwrap_or_default();
    let mut text = format!("{}{at}: {}: {}\n", p.file, p.kind, p.detail);
    let mut more = Vec::new();
    more.extend(p.level.map(|l| format!("level {l}")));
    if let (Some(from), Some(to)) = (&p.from, &p.to) {
        more.push(format!("keys {from} to {to}"));
    }
    more.extend(p.entries.map(|n| format!("{} entries", human_count(n))));
    more.extend(p.bytes.map(human_bytes));
    more.extend(p.share.map(|s| format!("{} of the store", percent(s))));
    if p.bytes.is_some() || p.from.is_some() {
        let _ = writeln!(text, "    {}", more.join(", "));
    }
    text
}

/// The engine that an argument or a file names, where nothing else of them is used.
pub(super) fn engine_alone(io: Option<&Engine>, options: Option<&Settings>) -> Result<Options> {
    let file = options.map_or_else(Options::default, |s| s.0.clone());
    let o = io.map_or(file.clone(), |io| io.over(file));
    let unused = crate::engine::names(&o);
    if !unused.is_empty() {
        crate::error::warn(&format!(
            "not used here, where tables are written as they were: {}",
            unused.join(", ")
        ));
    }
    store::check_engine(&o.io)?;
    Ok(o)
}

/// Recovers what can be read into a new store. Losses make exit code 3.
pub fn salvage(args: &SalvageArgs) -> Result<()> {
    let o = engine_alone(args.io.as_ref(), args.options.as_ref())?;
    check_places(&args.src, &args.dst)?;
    let start = Instant::now();
    let bar = out::bytes_bar(Some(0));
    bar.set_message("salvaging");
    let options = SalvageOptions::default()
        .with_io(&o.io)
        .with_frames_after_gaps(args.frames_after_gaps)
        .with_progress(progress(&bar));
    let options = match &args.keys.key_file {
        Some(keys) => options.with_encryption(keys.0.clone()),
        None => options,
    };
    let report = ringdb::salvage(&args.src, &args.dst, &options);
    bar.finish_and_clear();
    let report = report.map_err(|e| match e {
        ringdb::Error::NoStore { path, detail } => {
            Failure::Failed(format!("no store in {}: {detail}", path.display()))
        }
        e => e.into(),
    })?;
    if args.json {
        out::json(&report)?;
    } else {
        out::text(&describe_salvage(&report, args, start.elapsed().as_secs_f64()))?;
    }
    if report.is_complete() { Ok(()) } else { Err(Failure::Partial) }
}

/// The library compares paths as they are written; symbolic links are followed here.
fn check_places(src: &Path, dst: &Path) -> Result<()> {
    let src = match src.canonicalize() {
        Ok(p) => p,
        Err(e) => return failed(format!("no store in {}: {e}", src.display())),
    };
    let real = |p: &Path| -> Option<PathBuf> {
        let there = p.ancestors().find(|a| a.exists())?;
        let base = if there.as_os_str().is_empty() { Path::new(".") } else { there };
        Some(base.canonicalize().ok()?.join(p.strip_prefix(there).ok()?))
    };
    if real(dst).is_some_and(|d| d.starts_with(&src)) {
        let (src, dst) = (src.display(), dst.display());
        return usage(format!("the new store {dst} must lie outside of {src}, which is not changed"));
    }
    Ok(())
}

fn describe_salvage(r: &SalvageReport, args: &SalvageArgs, seconds: f64) -> String {
    let mut text = String::new();
    for l in &r.lost {
        let at = l.offset.map(|o| format!(" at offset {o}")).unwrap_or_default();
        let _ = writeln!(text, "LOST {}{at}: {}", l.file, l.detail);
        let mut more = Vec::new();
        more.extend(l.level.map(|n| format!("level {n}")));
        more.extend(l.first_block.map(|first| match l.blocks {
            Some(1) => format!("block {first}"),
            Some(n) => format!("blocks {first} to {}", first as u64 + n.max(1) - 1),
            None => format!("from block {first} on"),
        }));
        if l.from.is_some() || l.to.is_some() {
            let end = |k: &Option<String>, none: &str| k.clone().unwrap_or_else(|| none.into());
            more.push(format!("keys {} to {}", end(&l.from, "(the first)"), end(&l.to, "(the last)")));
        }
        more.extend(l.entries.map(|n| format!("{} entries", human_count(n))));
        if l.bytes > 0 {
            more.push(human_bytes(l.bytes));
        }
        if l.may_be_out_of_date {
            more.push("keys there may be out of date".into());
        }
        if !more.is_empty() {
            let _ = writeln!(text, "    {}", more.join(", "));
        }
    }
    if r.lost_unlisted > 0 {
        let _ = writeln!(text, "LOST: {} more gaps", human_count(r.lost_unlisted));
    }
    for note in &r.notes {
        let _ = writeln!(text, "note: {note}");
    }
    let _ = writeln!(text, "manifest: {}", r.manifest);
    if !r.manifest_whole {
        let what = "what had been deleted or overwritten may show again";
        let _ = writeln!(text, "    every table that was found was taken: {what}");
    }
    let _ = writeln!(
        text,
        "{} of {} tables whole; read {} entries in {} blocks and {} frames of the log, {} in {seconds:.2} s",
        r.tables.saturating_sub(r.tables_damaged),
        r.tables,
        human_count(r.entries),
        human_count(r.blocks),
        human_count(r.log_frames),
        human_bytes(r.bytes),
    );
    let _ = writeln!(
        text,
        "{} keys, {} in {}; {}",
        human_count(r.keys),
        human_bytes(r.written_bytes),
        args.dst.display(),
        match r.is_complete() {
            true => "nothing was lost".into(),
            false => format!(
                "lost: {}, {} entries as far as known",
                human_bytes(r.lost_bytes),
                human_count(r.lost_entries)
            ),
        }
    );
    text
}
