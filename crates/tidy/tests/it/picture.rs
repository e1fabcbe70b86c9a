//! The picture of the README: the first table of experiment 12, drawn. `make pictures` draws it anew; the test sees
//! that this was done.

use std::fmt::Write;

use tidy::{read, root};

const PAGE: &str = "docs/experiments/0012-beside-other-stores.md";
const PICTURE: &str = "docs/experiments/0012-beside-other-stores.svg";
/// Rows of the table that the picture has.
const ROWS: [&str; 5] = ["fillrandom", "readrandom", "multi_get of 64", "seek + 10", "full scan"];
const STORES: [(&str, &str); 5] = [
    ("ringdb", "#c8553d"),
    ("RocksDB", "#4f6d7a"),
    ("RocksDB, tuned", "#7f9db9"),
    ("fjall", "#8aa67a"),
    ("LMDB", "#c9a227"),
];
const LEFT: f64 = 120.0;
const WIDE: f64 = 560.0;
const BAR: f64 = 11.0;
const TOP: f64 = 62.0;
/// The right end of the axis: so many times ringdb's rate.
const MOST: f64 = 2.5;

/// A median, and the least and greatest of the rounds.
type Share = (f64, f64, f64);

/// What another store does where ringdb does 1. A cell as
/// `4.49 (4.02 to 4.69)` says how much more ringdb does.
fn share(cell: &str) -> Share {
    let numbers: Vec<f64> = cell
        .split(|c: char| !c.is_ascii_digit() && c != '.')
        .filter(|n| !n.is_empty())
        .map(|n| n.parse().unwrap_or_else(|e| panic!("{cell}: {e}")))
        .collect();
    let [median, low, high] = numbers[..] else { panic!("no ratio and its spread: {cell}") };
    assert!(low <= median && median <= high, "{cell}");
    (1.0 / median, 1.0 / high, 1.0 / low)
}

/// Each row's name and shares, ringdb's first.
fn shares(page: &str) -> Vec<(&'static str, Vec<Share>)> {
    let (_, table) = page.split_once("| keys or rows a second |").expect("the first table");
    let row = |name: &'static str| {
        let line = table.lines().find(|l| l.starts_with(&format!("| {name} |")));
        let cells: Vec<&str> =
            line.unwrap_or_else(|| panic!("no row of {name}")).split('|').map(str::trim).collect();
        let others = cells[3..7].iter().map(|c| share(c));
        (name, std::iter::once((1.0, 1.0, 1.0)).chain(others).collect())
    };
    ROWS.into_iter().map(row).collect()
}

fn svg(page: &str) -> String {
    let rows = shares(page);
    let high = rows.len() as f64 * (5.0 * BAR + 22.0);
    let (width, height) = (LEFT + WIDE + 60.0, TOP + high + 40.0);
    let x = |share: f64| LEFT + WIDE * share / MOST;
    let mut s = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"white\"/>\n\
         <text x=\"{LEFT}\" y=\"20\" font-weight=\"bold\">Keys or rows a second, where ringdb does 1</text>\n"
    );
    for (i, (name, color)) in STORES.iter().enumerate() {
        let at = LEFT + i as f64 * 115.0;
        let _ = writeln!(
            s,
            "<rect x=\"{at}\" y=\"32\" width=\"10\" height=\"10\" fill=\"{color}\"/>\
             <text x=\"{}\" y=\"41\">{name}</text>",
            at + 14.0
        );
    }
    for step in 0..=5 {
        let (value, at) = (f64::from(step) * 0.5, x(f64::from(step) * 0.5));
        let end = TOP + high;
        let _ = writeln!(
            s,
            "<line x1=\"{at}\" x2=\"{at}\" y1=\"{TOP}\" y2=\"{end}\" stroke=\"#ddd\"/>\
             <text x=\"{at}\" y=\"{}\" text-anchor=\"middle\">{value}</text>",
            end + 16.0
        );
    }
    for (i, (name, shares)) in rows.iter().enumerate() {
        let y = TOP + 6.0 + i as f64 * (5.0 * BAR + 22.0);
        let _ = writeln!(
            s,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{name}</text>",
            LEFT - 8.0,
            y + 2.5 * BAR + 4.0
        );
        for (j, ((median, low, high), (store, color))) in shares.iter().zip(STORES).enumerate() {
            let (top, mid) = (y + j as f64 * BAR, y + j as f64 * BAR + 5.0);
            let _ = writeln!(
                s,
                "<rect x=\"{LEFT}\" y=\"{top}\" width=\"{:.1}\" height=\"{}\" fill=\"{color}\">\
                 <title>{store}: {median:.2}</title></rect>\
                 <line x1=\"{:.1}\" x2=\"{:.1}\" y1=\"{mid}\" y2=\"{mid}\" stroke=\"black\"/>\
                 <text x=\"{:.1}\" y=\"{}\" font-size=\"9\">{median:.2}</text>",
                x(*median) - LEFT,
                BAR - 2.0,
                x(*low),
                x(*high),
                x(*high) + 4.0,
                top + 8.0
            );
        }
    }
    s + "</svg>\n"
}

#[test]
fn the_picture_beside_other_stores_shows_the_table_of_its_page() {
    let drawn = svg(&read(PAGE));
    if std::env::var_os("RINGDB_DRAW_PICTURES").is_some() {
        std::fs::write(root().join(PICTURE), &drawn).unwrap();
    }
    assert!(read(PICTURE) == drawn, "{PICTURE} does not show what {PAGE} has: `make pictures`");
}

#[test]
fn a_picture_of_other_numbers_is_another_one() {
    let page = read(PAGE);
    assert!(page.contains("| 1.89 (1.70 to 2.20) |"));
    assert_ne!(svg(&page), svg(&page.replacen("1.89 (1.70", "1.88 (1.70", 1)));
}
