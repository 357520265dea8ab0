//! The picture: what half of the durable writes took, ours and the others', as bars.

use crate::error::{Error, Result};
use crate::service::Figure;
use plotters::prelude::*;
use std::path::Path;

/// Of the picture, in points.
const WIDTH: u32 = 900;
const BAR: i32 = 22;
const GAP: i32 = 10;
const TOP: i32 = 50;
/// Where bars begin, and how far they reach.
const LEFT: i32 = 330;
const REACH: f64 = 450.0;

type Drawn = std::result::Result<(), DrawingAreaErrorKind<std::io::Error>>;

/// Draws the bars of these figures into an SVG file.
///
/// # Errors
/// The file cannot be written.
pub fn draw(path: &Path, figures: &[Figure]) -> Result<()> {
    let bars = bars(figures);
    let mut text = String::new();
    let drawn = svg(&mut text, &bars);
    let failed = |source| Error::Io { path: path.to_path_buf(), source };
    drawn.map_err(|error| failed(std::io::Error::other(error.to_string())))?;
    std::fs::write(path, text).map_err(failed)
}

/// Of each side its name and us, the shortest first.
fn bars(figures: &[Figure]) -> Vec<(String, f64)> {
    let is_one = |figure: &&Figure| {
        figure.name.contains("durable write") && figure.name.ends_with("half of the calls")
    };
    let mut bars: Vec<(String, f64)> = Vec::new();
    let mut add = |name: &str, us: f64| {
        if !bars.iter().any(|(known, _)| known == name) {
            bars.push((name.to_owned(), us));
        }
    };
    for figure in figures.iter().filter(is_one) {
        let is_encrypted = figure.name.contains("encrypted");
        add(if is_encrypted { "ours, encrypted" } else { "ours" }, figure.ours.median);
        if let Some((name, other)) = &figure.beside {
            add(name, other.median);
        }
    }
    bars.sort_by(|one, other| one.1.total_cmp(&other.1));
    bars
}

fn svg(text: &mut String, bars: &[(String, f64)]) -> Drawn {
    let height = TOP + (BAR + GAP) * bars.len() as i32 + GAP;
    let area = SVGBackend::with_string(text, (WIDTH, height as u32)).into_drawing_area();
    area.fill(&WHITE)?;
    let caption = "A durable write of 2 KiB over TCP on loopback: half of the calls took at most";
    area.draw(&Text::new(caption, (16, 16), ("sans-serif", 17)))?;
    let most = bars.last().map_or(1.0, |(_, us)| us.max(1.0));
    for (index, (name, us)) in bars.iter().enumerate() {
        let top = TOP + (BAR + GAP) * index as i32;
        let end = LEFT + (us / most * REACH).max(1.0) as i32;
        let color = if name.starts_with("ours") { BLUE.mix(0.8) } else { BLACK.mix(0.35) };
        area.draw(&Rectangle::new([(LEFT, top), (end, top + BAR)], color.filled()))?;
        area.draw(&Text::new(name.as_str(), (16, top + 4), ("sans-serif", 15)))?;
        let value = format!("{us:.1} us");
        area.draw(&Text::new(value, (end + 6, top + 4), ("sans-serif", 15)))?;
    }
    area.present()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_side_has_a_bar() {
        let figure = |name: &str, us: f64| Figure::new(name, "us", &[us, us]);
        let figures = [
            figure("2048 B durable write: half of the calls", 20.0).beside(
                "bare exchange",
                &[13.0, 13.0],
                &[1.5, 1.5],
            ),
            figure("2048 B durable write: half of the calls", 20.0).beside(
                "O_SYNC, ext4 in memory",
                &[93.0, 93.0],
                &[0.2, 0.2],
            ),
            figure("2048 B durable write: 99 of 100", 50.0),
            figure("2048 B durable write, encrypted (TLS 1.3): half of the calls", 30.0),
        ];
        let names: Vec<_> = bars(&figures).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["bare exchange", "ours", "ours, encrypted", "O_SYNC, ext4 in memory"]);
        let path = std::env::temp_dir().join(format!("bars-{}.svg", std::process::id()));
        draw(&path, &figures).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert!(text.starts_with("<svg") && text.contains("93.0 us"), "{text:.80}");
    }
}
