//! The matrix as an SVG picture: bars with and without registered buffers, with the spread of the rounds.

use std::fmt::Write;

use super::row::{Row, spread};
use crate::out::human_count;

const BAR: f64 = 16.0;
const GAP: f64 = 22.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 90.0;
const TOP: f64 = 46.0;

fn escape(s: &str) -> String {
    s.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// The next round number from `x` upwards: 1, 2 or 5 times a power of ten.
fn round_up(x: f64) -> f64 {
    let p = 10f64.powf(x.max(1.0).log10().floor());
    [1.0, 2.0, 5.0, 10.0].iter().map(|m| m * p).find(|v| *v >= x).unwrap_or(x)
}

/// Rows with the same engine, jobs, depth and mode, which stand together.
fn groups(rows: &[Row]) -> Vec<Vec<&Row>> {
    let cell = |r: &Row| (r.io.clone(), r.mode, r.numjobs, r.iodepth);
    let mut groups: Vec<Vec<&Row>> = Vec::new();
    for r in rows {
        match groups.iter_mut().find(|g| g.first().is_some_and(|f| cell(f) == cell(r))) {
            Some(g) => g.push(r),
            None => groups.push(vec![r]),
        }
    }
    groups
}

/// The bar of a row from `x` on, with the spread of its rounds as a line; `y` is the height of a value.
fn bar(r: &Row, x: f64, y: impl Fn(f64) -> f64) -> String {
    let (min, median, max) = spread(&r.rps_rounds);
    let color = if r.fixed_buffers { "#c8553d" } else { "#7f9db9" };
    let (from, to) = (y(min), y(max));
    let (width, height, mid) = (BAR - 2.0, TOP + HEIGHT - y(median), x + BAR / 2.0 - 1.0);
    let [median_n, min_n, max_n] = [median, min, max].map(|v| human_count(v as u64));
    format!(
        "<rect x=\"{x:.1}\" y=\"{:.1}\" width=\"{width}\" height=\"{height:.1}\" fill=\"{color}\">\
         <title>{median_n} ({min_n} to {max_n})</title></rect>\
         <line x1=\"{mid:.1}\" x2=\"{mid:.1}\" y1=\"{from:.1}\" y2=\"{to:.1}\" stroke=\"black\"/>\n",
        y(median),
    )
}

/// The picture.
pub fn svg(rows: &[Row]) -> String {
    let groups = groups(rows);
    let most = rows.iter().map(|r| spread(&r.rps_rounds).2).fold(1.0, f64::max);
    let step = round_up(most / 6.0);
    let top = (most / step).ceil() * step;
    let y = |v: f64| TOP + HEIGHT * (1.0 - v / top);
    let width: f64 = LEFT + groups.iter().map(|g| g.len() as f64 * BAR + GAP).sum::<f64>() + GAP;
    let mut s = String::new();
    // Writing to a string cannot fail.
    let mut put = |text: std::fmt::Arguments<'_>| s.write_fmt(text).unwrap_or_default();
    put(format_args!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{:.0}\" font-family=\"sans-serif\" font-size=\"11\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
        TOP + HEIGHT + 170.0
    ));
    for (i, (name, color)) in [("plain", "#7f9db9"), ("registered buffers", "#c8553d")].iter().enumerate() {
        let x = LEFT + 130.0 * i as f64;
        put(format_args!(
            "<rect x=\"{x}\" y=\"12\" width=\"12\" height=\"12\" fill=\"{color}\"/><text x=\"{}\" y=\"22\">{name}</text>\n",
            x + 17.0
        ));
    }
    put(format_args!("<text x=\"8\" y=\"{}\">requests/s</text>\n", TOP - 10.0));
    let mut v = 0.0;
    while v <= top * 1.001 {
        put(format_args!(
            "<line x1=\"{LEFT}\" x2=\"{width:.0}\" y1=\"{0:.1}\" y2=\"{0:.1}\" stroke=\"#ddd\"/>\
             <text x=\"{1}\" y=\"{2:.1}\" text-anchor=\"end\">{3}</text>\n",
            y(v),
            LEFT - 6.0,
            y(v) + 4.0,
            human_count(v as u64)
        ));
        v += step;
    }
    let mut x = LEFT + GAP;
    for g in &groups {
        let middle = x + g.len() as f64 * BAR / 2.0;
        for r in g {
            put(format_args!("{}", bar(r, x, y)));
            x += BAR;
        }
        if let Some(r) = g.first() {
            let at = TOP + HEIGHT + 14.0;
            put(format_args!(
                "<text x=\"{middle:.1}\" y=\"{at}\" transform=\"rotate(60 {middle:.1} {at})\">{} {} {}x{}</text>\n",
                escape(r.io.split('?').next().unwrap_or("")),
                r.mode,
                r.numjobs,
                r.iodepth
            ));
        }
        x += GAP;
    }
    s.push_str("</svg>\n");
    s
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_end_at_round_numbers() {
        for (x, want) in [(1.0, 1.0), (3.0, 5.0), (17.0, 20.0), (51.0, 100.0), (41_000.0, 50_000.0)] {
            assert_eq!(round_up(x), want);
        }
    }

    #[test]
    fn names_cannot_break_out() {
        assert_eq!(escape("a<b>&\"c\""), "a&lt;b&gt;&amp;&quot;c&quot;");
    }
}
