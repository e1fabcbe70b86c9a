//! The matrix as an SVG picture: bars with and without registered buffers, with the spread of the rounds.

use plotters::prelude::*;

use super::row::{Row, spread};
use crate::out::human_count;

/// Pixels of a bar, between groups of bars, and of the axis.
const BAR: f64 = 16.0;
const GAP: f64 = 22.0;
const HEIGHT: u32 = 300;
const LEFT: u32 = 90;
const TOP: u32 = 46;
/// Pixels from an edge.
const MARGIN: u32 = 16;
/// The size of letters, and the most that one of them takes along its line. No font is asked: the picture's reader has
/// another one.
const LETTERS: i32 = 13;
const LETTER: u32 = 8;
const PLAIN: RGBColor = RGBColor(127, 157, 185);
const REGISTERED: RGBColor = RGBColor(200, 85, 61);
/// What the legend's names need.
const LEGEND: u32 = 290;

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

/// What stands under a group.
fn label(r: &Row) -> String {
    format!("{} {} {}x{}", r.io.split('?').next().unwrap_or(""), r.mode, r.numjobs, r.iodepth)
}

/// The picture. `Err` in words.
pub fn svg(rows: &[Row]) -> Result<String, String> {
    let mut svg = String::new();
    draw(rows, &mut svg).map_err(|e| format!("the plot: {e}"))?;
    Ok(svg)
}

fn draw(rows: &[Row], svg: &mut String) -> Result<(), Box<dyn std::error::Error>> {
    let groups = groups(rows);
    let most = rows.iter().map(|r| spread(&r.rps_rounds).2).fold(1.0, f64::max);
    let step = round_up(most / 6.0);
    let top = (most / step).ceil() * step;
    let wide = GAP + groups.iter().map(|g| g.len() as f64 * BAR + GAP).sum::<f64>();
    let longest = groups.iter().flatten().map(|r| label(r).chars().count()).max().unwrap_or(0);
    let size =
        (LEFT + (wide as u32).max(LEGEND) + MARGIN, TOP + HEIGHT + longest as u32 * LETTER + 2 * MARGIN);
    let root = SVGBackend::with_string(svg, size).into_drawing_area();
    root.fill(&WHITE)?;
    let font = ("sans-serif", LETTERS).into_font();
    for (x, name, color) in [(0, "plain", PLAIN), (130, "registered buffers", REGISTERED)] {
        let x = LEFT as i32 + x;
        root.draw(&Rectangle::new([(x, 12), (x + 12, 24)], color.filled()))?;
        root.draw(&Text::new(name, (x + 17, 12), font.clone()))?;
    }
    root.draw(&Text::new("requests/s", (8, TOP as i32 - 22), font.clone()))?;
    let mut chart = ChartBuilder::on(&root)
        .margin_top(TOP)
        .margin_right(MARGIN)
        .margin_bottom(size.1 - TOP - HEIGHT)
        .set_label_area_size(LabelAreaPosition::Left, LEFT)
        .build_cartesian_2d(0.0..f64::from(size.0 - LEFT - MARGIN), 0.0..top)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .disable_x_axis()
        .y_labels(7)
        .y_label_formatter(&|v| human_count(*v as u64))
        .label_style(font.clone())
        .light_line_style(TRANSPARENT)
        .bold_line_style(RGBColor(221, 221, 221))
        .draw()?;
    let under = font.transform(FontTransform::Rotate90);
    let mut x = GAP;
    for g in &groups {
        if let Some(r) = g.first() {
            // The line's own height lies to the left of where it begins.
            let middle = LEFT as i32 + (x + g.len() as f64 * BAR / 2.0) as i32 + LETTERS / 2;
            root.draw(&Text::new(label(r), (middle, (TOP + HEIGHT) as i32 + 8), under.clone()))?;
        }
        for r in g {
            let (min, median, max) = spread(&r.rps_rounds);
            let color = if r.fixed_buffers { REGISTERED } else { PLAIN };
            let mid = x + BAR / 2.0 - 1.0;
            chart.draw_series([Rectangle::new([(x, 0.0), (x + BAR - 2.0, median)], color.filled())])?;
            chart.draw_series([PathElement::new([(mid, min), (mid, max)], BLACK)])?;
            x += BAR;
        }
        x += GAP;
    }
    root.present()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::row::Latency;
    use super::*;

    fn row(io: &str, fixed_buffers: bool) -> Row {
        Row {
            io: io.into(),
            engine: "io_uring".into(),
            numjobs: 16,
            iodepth: 256,
            block_size_bytes: 4096,
            mode: "randread",
            read_percent: 100,
            fixed_buffers,
            fixed_files: false,
            direct: true,
            batch: 1,
            think_us: 0,
            size_bytes: 1 << 20,
            rps: 41_000.0,
            rps_rounds: vec![40_000.0, 41_000.0, 43_000.0],
            bw_bytes: 1e6,
            ops: 1,
            short_ios: 0,
            seconds: 1.0,
            cpu_s: 1.0,
            cpu_us_per_op: 1.0,
            voluntary_switches: 0,
            involuntary_switches: 0,
            submit_calls: 1,
            punted: 0,
            registered: 0,
            latency_us: Latency::default(),
            against_plain_percent: None,
        }
    }

    /// The number of an attribute of the element that `svg` begins with.
    fn number(svg: &str, name: &str) -> f64 {
        let (_, rest) = svg.split_once(&format!(" {name}=\"")).unwrap();
        rest.split('"').next().unwrap().parse().unwrap()
    }

    /// Where each text begins and where it ends, as it is turned, and the text.
    fn texts(svg: &str) -> Vec<([f64; 4], String)> {
        let one = |text: &str| {
            let (tag, rest) = text.split_once('>').unwrap();
            let words = rest.split('<').next().unwrap().trim().to_string();
            let turned: f64 = match tag.split_once("rotate(") {
                Some((_, by)) => by.split([',', ' ']).next().unwrap().parse().unwrap(),
                None => 0.0,
            };
            let long = words.chars().count() as f64 * 0.65 * 11.0;
            let back = if tag.contains("text-anchor=\"end\"") { -1.0 } else { 1.0 };
            let (x, y) = (number(tag, "x"), number(tag, "y"));
            let (dx, dy) = (turned.to_radians().cos() * long * back, turned.to_radians().sin() * long * back);
            ([x, y, x + dx, y + dy], words)
        };
        svg.split("<text").skip(1).map(one).collect()
    }

    #[test]
    fn every_label_is_whole() {
        for engines in 1..5 {
            let name =
                |i: usize| format!("{}://", ["io_uring", "libaio", "posix", "io_uring_of_a_long_name"][i]);
            let rows: Vec<Row> =
                (0..engines).flat_map(|i| [row(&name(i), false), row(&name(i), true)]).collect();
            let svg = svg(&rows).unwrap();
            let (width, height) = (number(&svg, "width"), number(&svg, "height"));
            let texts = texts(&svg);
            for i in 0..engines {
                let wanted = format!("{} randread 16x256", name(i));
                assert_eq!(texts.iter().filter(|(_, text)| *text == wanted).count(), 1, "{wanted}");
            }
            for (at, text) in texts {
                let within =
                    at[0].min(at[2]) >= 0.0 && at[0].max(at[2]) <= width && at[1].max(at[3]) <= height;
                assert!(within, "{text} lies at {at:?}, the picture is {width} by {height}");
            }
        }
    }

    #[test]
    fn bars_are_as_high_as_their_medians() {
        let mut low = row("posix", false);
        low.rps_rounds = vec![20_500.0];
        let svg = svg(&[row("io_uring", true), low]).unwrap();
        let bars: Vec<(f64, &str)> = svg
            .split("<rect")
            .skip(1)
            .filter(|r| number(r, "width") == BAR - 2.0)
            .map(|r| (number(r, "height"), r.split("fill=\"").nth(1).unwrap().split('"').next().unwrap()))
            .collect();
        let [(high, registered), (low, plain)] = bars[..] else { panic!("{bars:?}") };
        assert!((high / low - 2.0).abs() < 0.03, "{high} {low}");
        assert_eq!((registered, plain), ("#C8553D", "#7F9DB9"));
    }

    #[test]
    fn axes_end_at_round_numbers() {
        for (x, want) in [(1.0, 1.0), (3.0, 5.0), (17.0, 20.0), (51.0, 100.0), (41_000.0, 50_000.0)] {
            assert_eq!(round_up(x), want);
        }
    }

    #[test]
    fn names_cannot_break_out() {
        let svg = svg(&[row("a<b>&\"c\"", false)]).unwrap();
        assert!(svg.contains("a&lt;b&gt;&amp;"), "{svg}");
        assert!(!svg.contains("a<b"));
    }
}
