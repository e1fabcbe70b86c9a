//! A [`View`] on a terminal.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Cell, Paragraph, Row, Table};
use serde_json::Value;

use super::view::{View, list, number, text};
use crate::out::{human_bytes, human_count};

/// Who has which memory: the name in the statistics and here.
const OWNERS: [(&str, &str); 6] = [
    ("cache_used_bytes", "blocks"),
    ("index_bytes", "indexes"),
    ("filter_bytes", "filters"),
    ("memtable_memory_bytes", "memtables"),
    ("background_memory_bytes", "background"),
    ("iterator_memory_bytes", "iterators"),
];

/// Draws all of it.
pub fn draw(frame: &mut Frame, view: &View) {
    let levels = list(&view.stats["levels"]).count() as u16;
    let running = list(&view.stats["running_compactions"]).count() as u16;
    let heights = [
        Constraint::Length(1),
        Constraint::Length(7),
        Constraint::Length(levels.max(1) + 3),
        Constraint::Length(running + u16::from(view.stats["flush_running"] == true) + 2),
        Constraint::Min(4),
        Constraint::Length(1),
    ];
    let [head, rates, middle, work, io, foot] = Layout::vertical(heights).areas(frame.area());
    frame.render_widget(heading(view), head);
    let [left, right] = Layout::horizontal([Constraint::Fill(1), Constraint::Length(38)]).areas(rates);
    frame.render_widget(operations(view), left);
    frame.render_widget(state(view), right);
    let [left, right] = Layout::horizontal([Constraint::Fill(1), Constraint::Length(38)]).areas(middle);
    frame.render_widget(levels_table(view), left);
    frame.render_widget(memory(view, right), right);
    frame.render_widget(background(view, work), work);
    frame.render_widget(io_table(view), io);
    frame.render_widget(Line::from("q quits").dim(), foot);
}

fn boxed(title: &str) -> Block<'_> {
    Block::new().borders(Borders::ALL).title(title)
}

fn heading(view: &View) -> Line<'_> {
    let open = std::time::Duration::from_secs(view.open_seconds as u64);
    Line::from(vec![
        Span::from("ringdb top  ").bold(),
        Span::from(format!(
            "{}  process {}  open {open:?}  {}",
            view.directory,
            view.process,
            text(&view.stats, "io")
        )),
    ])
}

fn rate(n: f64) -> String {
    format!("{}/s", human_count(n.round() as u64))
}

fn bytes_rate(n: f64) -> String {
    format!("{}/s", human_bytes(n as u64))
}

fn operations(view: &View) -> Paragraph<'_> {
    let r = &view.rates;
    let looked = r.cache_hits + r.cache_misses;
    let share =
        if looked > 0.0 { format!(", {:.1} % cached", 100.0 * r.cache_hits / looked) } else { String::new() };
    Paragraph::new(vec![
        Line::from(format!("writes       {} in {} groups", rate(r.write_batches), rate(r.write_groups))),
        Line::from(format!("log          {}, {} syncs", bytes_rate(r.log_bytes), rate(r.log_syncs))),
        Line::from(format!("block reads  {}{share}", rate(looked))),
        Line::from(format!(
            "flushes      {}, compactions read {} write {}",
            bytes_rate(r.flush_bytes),
            bytes_rate(r.compaction_read_bytes),
            bytes_rate(r.compaction_written_bytes)
        )),
        Line::from(format!("filters      {} answered absent", rate(r.filter_negatives))),
    ])
    .block(boxed("operations"))
}

/// What is wrong, and why writers wait.
fn state(view: &View) -> Paragraph<'_> {
    let (s, r) = (&view.stats, &view.rates);
    let mut lines = vec![];
    for (name, what) in [("STOPPED", "stopped"), ("LOST", "recovered_damage"), ("ERROR", "background_error")]
    {
        if let Some(why) = s[what].as_str() {
            lines.push(Line::from(format!("{name} {why}")).fg(Color::Red));
        }
    }
    let damaged = list(&s["damaged_tables"]).count();
    if damaged > 0 {
        lines.push(Line::from(format!("{damaged} DAMAGED tables")).fg(Color::Red));
    }
    lines.push(match s["write_delay_reason"].as_str() {
        Some(why) => Line::from(format!("writers wait: {why}")).fg(Color::Yellow),
        None => Line::from("writers do not wait"),
    });
    lines.push(Line::from(format!("delayed {}, {:.2} s in a second", rate(r.write_delays), r.write_delay)));
    let waiting = number(s, "immutable_memtables");
    lines.push(Line::from(format!("{waiting} memtables to flush, {} snapshots", number(s, "snapshots"))));
    Paragraph::new(lines).block(boxed("stalls"))
}

fn levels_table(view: &View) -> Table<'_> {
    let rows = list(&view.stats["levels"]).map(|l| {
        let target =
            if number(l, "target_bytes") > 0 { human_bytes(number(l, "target_bytes")) } else { "-".into() };
        let number = |name| number(l, name);
        Row::new([
            number("level").to_string(),
            human_count(number("tables")),
            human_bytes(number("bytes")),
            human_count(number("entries")),
            target,
        ])
    });
    Table::new(rows, [6, 8, 12, 16, 12])
        .header(Row::new(["level", "tables", "size", "entries", "target"]).bold())
        .block(boxed("levels"))
}

/// A bar of `width` cells.
fn bar(part: u64, of: u64, width: usize) -> String {
    let full = (width as u128 * u128::from(part.min(of)) / u128::from(of.max(1))) as usize;
    "█".repeat(full) + &"░".repeat(width - full)
}

fn memory(view: &View, area: Rect) -> Paragraph<'_> {
    let s = &view.stats;
    let capacity = number(s, "cache_capacity_bytes");
    let mut owners = OWNERS.map(|(name, shown)| (number(s, name), shown));
    owners.sort_by_key(|o| std::cmp::Reverse(o.0));
    let used = number(s, "memory_bytes");
    let mut lines = vec![Line::from(format!("{} of {}", human_bytes(used), human_bytes(capacity))).bold()];
    let room = usize::from(area.height.saturating_sub(3));
    lines.extend(owners.iter().take(room).map(|(n, name)| {
        Line::from(format!("{name:<10} {:>10} {}", human_bytes(*n), bar(*n, capacity, 12)))
    }));
    Paragraph::new(lines).block(boxed("memory"))
}

fn background(view: &View, area: Rect) -> Paragraph<'_> {
    let width = usize::from(area.width.saturating_sub(72)).min(30);
    let one = |c: &Value| {
        let (done, all) = (number(c, "entries_done"), number(c, "entries"));
        let share = 100 * u128::from(done) / u128::from(all.max(1));
        let seconds = number(c, "running_us") as f64 / 1e6;
        let (from, to) = (number(c, "level"), number(c, "output"));
        let (tables, size) = (number(c, "tables"), human_bytes(number(c, "bytes")));
        let reason = text(c, "reason");
        Line::from(format!(
            "{reason:<14} level {from} to {to}  {tables} tables  {size}  {share:>3} % {} {seconds:.1} s",
            bar(done, all, width)
        ))
    };
    let mut lines: Vec<Line> = list(&view.stats["running_compactions"]).map(one).collect();
    if view.stats["flush_running"] == true {
        lines.insert(0, Line::from("flush"));
    }
    Paragraph::new(lines).block(boxed("running flushes and compactions"))
}

fn io_table(view: &View) -> Table<'_> {
    let rows = view.io.iter().map(|o| {
        let us = |n: f64| format!("{n:.0}");
        let style = if o.errors > 0 { Style::new().fg(Color::Red) } else { Style::new() };
        Row::new([
            Cell::from(o.purpose.as_str()),
            Cell::from(o.class.as_str()),
            Cell::from(rate(o.ops)),
            Cell::from(bytes_rate(o.bytes)),
            Cell::from(o.mean_us.map_or("-".into(), us)),
            Cell::from(human_count(o.p99_us)),
            Cell::from(format!("{:.2}", o.in_flight)),
            Cell::from(o.errors.to_string()),
        ])
        .style(style)
    });
    Table::new(rows, [16, 10, 12, 14, 8, 10, 9, 6])
        .header(Row::new(["I/O", "", "ops", "bytes", "µs", "p99 µs", "in flight", "errors"]).bold())
        .block(boxed("I/O: mean of now, p99 since the store was opened"))
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use serde_json::json;

    use super::*;

    fn shown(view: &View, width: u16, height: u16) -> String {
        let mut t = Terminal::new(TestBackend::new(width, height)).unwrap();
        t.draw(|f| draw(f, view)).unwrap();
        t.backend().to_string()
    }

    #[test]
    fn everything_is_shown_on_any_size() {
        let look = |n: u64| {
            json!({
                "process": 4711, "directory": "/data/fruit", "open_us": 5_000_000,
                "stats": {
                    "io": "posix", "write_batches": n * 1234, "cache_hits": n * 75, "cache_misses": n * 25,
                    "cache_capacity_bytes": 1 << 20, "memory_bytes": 1 << 19, "cache_used_bytes": 1 << 18,
                    "write_delay_reason": "too many runs", "background_error": "a bad block", "flush_running": true,
                    "levels": [{"level": 0, "tables": 3, "bytes": 2048, "entries": 1000, "target_bytes": 0},
                        {"level": 6, "tables": 12, "bytes": 1 << 30, "entries": 5_000_000, "target_bytes": 1 << 30}],
                    "running_compactions": [{"reason": "size", "level": 4, "output": 5, "tables": 9,
                        "bytes": 7 << 20, "entries": 1000, "entries_done": 421, "running_us": 1_500_000}],
                },
                "io": [{"purpose": "user-read", "class": "read", "ops": n * 10, "bytes": n * 40960,
                    "time_us": n * 770, "p99_us": 1500, "errors": 0}],
            })
        };
        let view = View::new(&look(1), &look(2), 1.0);
        let text = shown(&view, 110, 36);
        for part in [
            "/data/fruit",
            "process 4711",
            "1,234/s",
            "75.0 % cached",
            "too many runs",
            "a bad block",
            "1.0 GiB",
            "5,000,000",
            "512.0 KiB of 1.0 MiB",
            "level 4 to 5",
            " 42 %",
            "flush",
            "user-read",
            "40.0 KiB/s",
            "77",
            "1,500",
        ] {
            assert!(text.contains(part), "{part}:\n{text}");
        }
        for (width, height) in [(1, 1), (20, 5), (80, 24), (300, 100)] {
            shown(&view, width, height);
            shown(&View::default(), width, height);
        }
    }
}
