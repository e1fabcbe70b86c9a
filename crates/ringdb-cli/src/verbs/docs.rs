//! `ringdb completions` and `man`: generated from the argument parser itself.

use std::io::Write;

use clap::CommandFactory;

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
        let mut page = Vec::new();
        clap_mangen::Man::new(Cli::command()).render(&mut page)?;
        let mut out = out::stdout();
        out.write_all(&page)?;
        return Ok(out.flush()?);
    };
    at(dir, std::fs::create_dir_all(dir))?;
    at(dir, clap_mangen::generate_to(Cli::command(), dir))
}
