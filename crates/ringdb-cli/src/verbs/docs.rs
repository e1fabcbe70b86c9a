//! `ringdb completions` and `man`: generated from the argument parser itself.

use std::io::Write;

use clap::{Command, CommandFactory};

use crate::args::{Cli, CompletionsArgs, ManArgs};
use crate::error::{Result, at};
use crate::out;

/// Prints a completion script.
pub fn completions(args: &CompletionsArgs) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "ringdb", &mut script);
    let mut out = out::stdout();
    out.write_all(&script)?;
    Ok(out.flush()?)
}

/// Prints the manual page, or writes one page per verb.
pub fn man(args: &ManArgs) -> Result<()> {
    let Some(dir) = &args.dir else {
        let mut out = out::stdout();
        out.write_all(&page(Cli::command())?)?;
        return Ok(out.flush()?);
    };
    at(dir, std::fs::create_dir_all(dir))?;
    let mut all = Cli::command().disable_help_subcommand(true);
    all.build();
    for verb in all.get_subcommands().filter(|c| !c.is_hide_set()) {
        let name = format!("ringdb-{}", verb.get_name());
        let file = dir.join(format!("{name}.1"));
        at(&file, std::fs::write(&file, page(verb.clone())?))?;
    }
    let file = dir.join("ringdb.1");
    at(&file, std::fs::write(&file, page(Cli::command())?))
}

/// A manual page. The generator's synopsis names options without their values, so it is made here, as the
/// usage lines of `--help` have it.
fn page(command: Command) -> Result<Vec<u8>> {
    let line = synopsis(&command);
    let man = clap_mangen::Man::new(command.clone());
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    page.extend_from_slice(b".SH SYNOPSIS\n");
    page.extend_from_slice(line.replace('-', "\\-").as_bytes());
    page.push(b'\n');
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page)?;
    }
    if command.get_version().is_some() {
        man.render_version_section(&mut page)?;
    }
    // Each section brings the same two lines of definitions.
    let text = String::from_utf8_lossy(&page);
    let mut definitions = 0;
    let once = |l: &&str| {
        let definition = l.starts_with(".ie ") || l.starts_with(".el ");
        definitions += u32::from(definition);
        !definition || definitions <= 2
    };
    Ok(text.split_inclusive('\n').filter(once).collect::<String>().into_bytes())
}

/// `ringdb scan --db <DIR> [--io <URI>] ...`: what is required first, then the rest, then what has no name.
fn synopsis(command: &Command) -> String {
    let name = command.get_bin_name().unwrap_or(command.get_name()).to_string();
    let shown = || command.get_arguments().filter(|a| !a.is_hide_set());
    let named =
        |required: bool| shown().filter(move |a| !a.is_positional() && a.is_required_set() == required);
    let mut parts = vec![name];
    parts.extend(named(true).chain(named(false)).chain(shown().filter(|a| a.is_positional())).map(|a| {
        let value = a.get_value_names().map_or(a.get_id().to_string(), |v| v.join("> <"));
        let many = if a.get_num_args().is_some_and(|n| n.max_values() > 1) { "..." } else { "" };
        let text = match a.get_long() {
            Some(long) if a.get_action().takes_values() => format!("--{long} <{value}>"),
            Some(long) => format!("--{long}"),
            None => format!("<{value}>{many}"),
        };
        if a.is_required_set() { text } else { format!("[{text}]") }
    }));
    if command.has_subcommands() {
        parts.push("<VERB> ...".into());
    }
    parts.join(" ")
}
