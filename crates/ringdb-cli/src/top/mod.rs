//! `ringdb top`: a running store, seen by its socket.

mod draw;
#[cfg(test)]
mod picture;
mod view;

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{Event, KeyCode, KeyModifiers, poll, read};
use ringdb::socket::{Remote, Request};
use serde_json::Value;

use self::view::View;
use crate::error::{Failure, Result, failed};
use crate::out;

/// Columns and rows of `--once`.
const PAGE: (u16, u16) = (110, 44);

/// Arguments of `top`.
#[derive(Args, Debug)]
pub struct TopArgs {
    /// Directory of the store
    #[arg(long, value_name = "DIR")]
    pub db: PathBuf,
    /// Seconds between two looks
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = parse_interval)]
    pub interval: Duration,
    /// Print one view, of two looks, and end
    #[arg(long)]
    pub once: bool,
    /// Print it as JSON
    #[arg(long, requires = "once")]
    pub json: bool,
}

fn parse_interval(s: &str) -> std::result::Result<Duration, String> {
    let seconds: f64 = s.parse().map_err(|_| "a number of seconds, as 0.5".to_string())?;
    match (0.05..=3600.0).contains(&seconds) {
        true => Ok(Duration::from_secs_f64(seconds)),
        false => Err("from 0.05 to 3600 seconds".into()),
    }
}

/// Shows a running store until it is told to end, or the store is closed.
pub fn top(args: &TopArgs) -> Result<()> {
    let first = look(&args.db)?;
    if args.once {
        std::thread::sleep(args.interval);
        let now = look(&args.db)?;
        let view = View::new(&first.0, &now.0, (now.1 - first.1).as_secs_f64());
        return if args.json { out::json(&view) } else { out::text(&page(&view)?) };
    }
    if !std::io::stdout().is_terminal() {
        return Err(Failure::Usage(
            "top needs a terminal; --once prints one view, --once --json for scripts".into(),
        ));
    }
    let terminal = ratatui::try_init()?;
    let ended = watch(args, terminal, first);
    ratatui::try_restore()?;
    ended
}

/// What the process that has the store open says, and when.
fn look(dir: &Path) -> Result<(Value, Instant)> {
    if !dir.is_dir() {
        return failed(format!("no store in {}: there is no such directory", dir.display()));
    }
    let Some(remote) = Remote::connect(dir)? else {
        return failed(format!(
            "nobody has the store in {} open for writing, or whoever has it serves no socket (`socket = false`); \
             `ringdb stats` says what is on the disk",
            dir.display()
        ));
    };
    let said = remote.ask(&Request::Look, |_, _| {})?;
    Ok((serde_json::from_str(&said)?, Instant::now()))
}

/// Draws a view after each interval, and as the terminal changes its size.
fn watch(args: &TopArgs, mut terminal: ratatui::DefaultTerminal, first: (Value, Instant)) -> Result<()> {
    let mut view = View::new(&first.0, &first.0, 1.0);
    let mut last = first;
    loop {
        terminal.draw(|f| draw::draw(f, &view))?;
        let next = last.1 + args.interval;
        while poll(next.saturating_duration_since(Instant::now()))? {
            match read()? {
                Event::Key(k) if ends(k.code, k.modifiers) => return Ok(()),
                Event::Resize(..) => {
                    terminal.draw(|f| draw::draw(f, &view))?;
                }
                _ => {}
            }
        }
        let now = look(&args.db)?;
        view = View::new(&last.0, &now.0, (now.1 - last.1).as_secs_f64());
        last = now;
    }
}

fn ends(code: KeyCode, modifiers: KeyModifiers) -> bool {
    let control = modifiers.contains(KeyModifiers::CONTROL);
    matches!(code, KeyCode::Char('q') | KeyCode::Esc) || control && code == KeyCode::Char('c')
}

/// A view as text.
fn page(view: &View) -> Result<String> {
    let mut terminal = Terminal::new(TestBackend::new(PAGE.0, PAGE.1)).unwrap_or_else(|e| match e {});
    terminal.draw(|f| draw::draw(f, view)).unwrap_or_else(|e| match e {});
    let buffer = terminal.backend().buffer();
    let mut text = String::new();
    // The last line says how to end it.
    for y in 0..PAGE.1 - 1 {
        let line: String = (0..PAGE.0).map(|x| buffer[(x, y)].symbol()).collect();
        text.push_str(line.trim_end());
        text.push('\n');
    }
    Ok(text)
}
