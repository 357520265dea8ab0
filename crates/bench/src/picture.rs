//! Pictures of curves.

use crate::error::{Error, Result};
use plotters::prelude::*;
use std::path::Path;

/// Points of one line, and what it is.
pub type Line = (String, Vec<(f64, f64)>);

/// What a picture says beside its lines.
#[derive(Clone, Copy, Debug)]
pub struct Words<'w> {
    /// Above it.
    pub title: &'w str,
    /// Below it.
    pub x: &'w str,
    /// Beside it.
    pub y: &'w str,
}

/// Draws lines into `NAME.svg` in a directory; over the logarithm of x.
///
/// # Errors
/// The file cannot be written.
pub fn draw(dir: &Path, name: &str, words: Words<'_>, lines: &[Line]) -> Result<()> {
    let path = dir.join(format!("{name}.svg"));
    let text = svg(words, lines).map_err(|error| failed(&path, error))?;
    std::fs::write(&path, text).map_err(|error| failed(&path, error.to_string()))
}

fn failed(path: &Path, what: String) -> Error {
    Error::Io { path: path.to_path_buf(), source: std::io::Error::other(what) }
}

/// The picture as SVG.
fn svg(words: Words<'_>, lines: &[Line]) -> std::result::Result<String, String> {
    let points = || lines.iter().flat_map(|(_, points)| points);
    let most = |of: fn(&(f64, f64)) -> f64| points().map(of).fold(1.0, f64::max);
    let (right, top) = (most(|point| point.0).max(2.0), most(|point| point.1) * 1.1);
    let mut text = String::new();
    let drawn = (|| {
        let area = SVGBackend::with_string(&mut text, (720, 440)).into_drawing_area();
        area.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(&area)
            .caption(words.title, ("sans-serif", 18))
            .margin(12)
            .x_label_area_size(40)
            .y_label_area_size(70)
            .build_cartesian_2d((1.0..right).log_scale().base(2.0), 0.0..top)?;
        let label = |x: &f64| format!("{x:.0}");
        chart
            .configure_mesh()
            .x_desc(words.x)
            .y_desc(words.y)
            .max_light_lines(0)
            .x_label_formatter(&label)
            .draw()?;
        for (index, (name, points)) in lines.iter().enumerate() {
            let color = Palette99::pick(index).to_rgba();
            let line = LineSeries::new(points.iter().copied(), color.stroke_width(2));
            let sample = move |(x, y)| PathElement::new(vec![(x, y), (x + 18, y)], color);
            chart.draw_series(line)?.label(name.as_str()).legend(sample);
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::LowerRight)
            .background_style(WHITE.mix(0.8))
            .border_style(BLACK)
            .draw()?;
        area.present()
    })();
    drawn.map_err(|error: DrawingAreaErrorKind<_>| error.to_string())?;
    Ok(text)
}
