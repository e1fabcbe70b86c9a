//! The picture of `ringdb top` in the guide and the README: what it draws of `example.json`, as SVG.
//!
//! `example.json` is what `ringdb top --db /data/fruit --once --json` printed beside a `ringdb bench` whose memory
//! budget was small. `make pictures` draws it anew; the test sees that this was done.

use std::fmt::Write;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::{Buffer, Cell};
use ratatui::style::{Color, Modifier};

use super::draw::draw;
use super::view::View;

const SIZE: (u16, u16) = (110, 40);
/// Of a character, in pixels.
const CELL: (f64, f64) = (8.0, 17.0);
const EDGE: f64 = 10.0;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide/src/top.svg");

fn escape(s: &str) -> String {
    s.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// The colours of a terminal that is dark.
fn color(color: Color) -> &'static str {
    match color {
        Color::Reset | Color::White => "#d8dee9",
        Color::Red | Color::LightRed => "#e06c75",
        Color::Yellow | Color::LightYellow => "#e5c07b",
        Color::Green | Color::LightGreen => "#98c379",
        Color::Cyan | Color::LightCyan => "#56b6c2",
        Color::DarkGray | Color::Gray => "#7f8899",
        other => panic!("the picture has no colour for {other:?}"),
    }
}

fn style(cell: &Cell) -> (&'static str, bool, bool) {
    (color(cell.fg), cell.modifier.contains(Modifier::BOLD), cell.modifier.contains(Modifier::DIM))
}

/// A row: a `text` for each run of one style, as wide as its characters are in a terminal.
fn row(buffer: &Buffer, y: u16, out: &mut String) {
    let width = buffer.area.width;
    let mut from = 0;
    while from < width {
        let now = style(&buffer[(from, y)]);
        let to = (from..width).find(|x| style(&buffer[(*x, y)]) != now).unwrap_or(width);
        let run: String = (from..to).map(|x| buffer[(x, y)].symbol()).collect();
        let at = from + (run.chars().count() - run.trim_start().chars().count()) as u16;
        let (text, (fill, bold, dim)) = (run.trim(), now);
        from = to;
        if text.is_empty() {
            continue;
        }
        let (x, base) = (EDGE + f64::from(at) * CELL.0, EDGE + f64::from(y) * CELL.1 + 13.0);
        let weight = if bold { " font-weight=\"bold\"" } else { "" };
        let opacity = if dim { " opacity=\"0.6\"" } else { "" };
        let wide = text.chars().count() as f64 * CELL.0;
        let text = escape(text);
        let _ = writeln!(
            out,
            "<text x=\"{x}\" y=\"{base}\" textLength=\"{wide}\" fill=\"{fill}\"{weight}{opacity}>{text}</text>"
        );
    }
}

fn svg(buffer: &Buffer) -> String {
    let (width, height) = (f64::from(SIZE.0) * CELL.0 + 2.0 * EDGE, f64::from(SIZE.1) * CELL.1 + 2.0 * EDGE);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\" font-family=\"DejaVu Sans Mono, Menlo, Consolas, monospace\" \
         font-size=\"13\" xml:space=\"preserve\">\n<title>ringdb top</title>\n\
         <rect width=\"{width}\" height=\"{height}\" rx=\"6\" fill=\"#1e222a\"/>\n"
    );
    for y in 0..buffer.area.height {
        row(buffer, y, &mut out);
    }
    out + "</svg>\n"
}

#[test]
fn the_picture_of_the_guide_is_what_top_draws() {
    let view: View = serde_json::from_str(include_str!("example.json")).unwrap();
    let mut terminal = Terminal::new(TestBackend::new(SIZE.0, SIZE.1)).unwrap();
    terminal.draw(|f| draw(f, &view)).unwrap();
    let drawn = svg(terminal.backend().buffer());
    for part in ["/data/fruit", "levels", "compactions", "io_uring"] {
        assert!(drawn.contains(part), "{part}");
    }
    if std::env::var_os("RINGDB_DRAW_PICTURES").is_some() {
        std::fs::write(PAGE, &drawn).unwrap();
    }
    let shown = std::fs::read_to_string(PAGE).unwrap();
    assert!(shown == drawn, "docs/guide/src/top.svg shows what `ringdb top` drew once: `make pictures`");
}
