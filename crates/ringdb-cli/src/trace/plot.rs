//! The stages of engines as stacked bars.

use plotters::prelude::*;

use super::report::Traced;
use super::stages::STAGES;

/// As the stages: user code blue, the kernel's own work green to yellow, workers red, the device grey.
const COLOURS: [RGBColor; 10] = [
    RGBColor(158, 202, 225),
    RGBColor(0, 109, 44),
    RGBColor(65, 171, 93),
    RGBColor(165, 15, 21),
    RGBColor(251, 106, 74),
    RGBColor(161, 217, 155),
    RGBColor(150, 150, 150),
    RGBColor(254, 196, 79),
    RGBColor(236, 112, 20),
    RGBColor(49, 130, 189),
];
const WIDTH: u32 = 900;
const BAR: i32 = 34;
const LEGEND: i32 = 20;
const MARGIN: i32 = 16;

/// A picture (SVG): a bar for each engine, its stages in microseconds of a request. `Err` in words.
pub fn stacked(all: &[Traced], title: &str) -> Result<String, String> {
    let mut svg = String::new();
    draw(all, title, &mut svg).map_err(|e| format!("the plot: {e}"))?;
    Ok(svg)
}

fn draw(all: &[Traced], title: &str, svg: &mut String) -> Result<(), Box<dyn std::error::Error>> {
    let rows = STAGES.len().div_ceil(3) as i32;
    let height = 3 * MARGIN + 24 + all.len() as i32 * (BAR + 34) + rows * LEGEND;
    let root = SVGBackend::with_string(svg, (WIDTH, height as u32)).into_drawing_area();
    root.fill(&WHITE)?;
    let (small, plain) = (("sans-serif", 13).into_font(), ("sans-serif", 16).into_font());
    root.draw(&Text::new(title.to_string(), (MARGIN, MARGIN), plain))?;
    let most = all.iter().map(|t| t.all.mean_us().0).fold(f64::MIN_POSITIVE, f64::max);
    let scale = f64::from(WIDTH as i32 - 2 * MARGIN) / most;
    let mut y = MARGIN + 28;
    for t in all {
        let (sum, each) = t.all.mean_us();
        let label = format!("{}: {sum:.1} us a request, {} requests", t.engine, t.all.requests);
        root.draw(&Text::new(label, (MARGIN, y), small.clone()))?;
        y += 18;
        let mut from = 0.0;
        for (us, colour) in each.iter().zip(COLOURS) {
            let x = |us: f64| MARGIN + (us * scale).round() as i32;
            root.draw(&Rectangle::new([(x(from), y), (x(from + us), y + BAR)], colour.filled()))?;
            from += us;
        }
        y += BAR + 16;
    }
    for (i, ((_, name), colour)) in STAGES.iter().zip(COLOURS).enumerate() {
        let (column, row) = (i as i32 % 3, i as i32 / 3);
        let (x, y) = (MARGIN + column * 290, y + row * LEGEND);
        root.draw(&Rectangle::new([(x, y), (x + 13, y + 13)], colour.filled()))?;
        root.draw(&Text::new((*name).to_string(), (x + 20, y), small.clone()))?;
    }
    root.present()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_engine_has_a_bar_and_each_stage_a_colour() {
        let mut t = Traced::new("posix");
        t.line("r posix read 1 1 0 1 4096 4096 1000 2000 0 0 0 3000 0 0 0 0 0 0 9000 11000");
        let svg = stacked(&[t.clone(), Traced { engine: "a<b".into(), ..t }], "reads").unwrap();
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
        for part in ["posix: 10.0 us", "a&lt;b: 10.0 us", "hand-over to a worker", "back in user code"] {
            assert!(svg.contains(part), "{part}");
        }
        assert_eq!(svg.matches("<rect").count(), 1 + 2 * STAGES.len() + STAGES.len());
    }
}
