//! Pictures of curves, and of bars.

use crate::error::{Error, Result};
use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::coord::{Shift, types::RangedCoordf64};
use plotters::prelude::*;
use std::path::Path;

/// Points of one line, and what it is.
pub type Line = (String, Vec<(f64, f64)>);

/// What a picture says beside its lines.
#[derive(Clone, Copy, Debug, Default)]
pub struct Words<'w> {
    /// Above it.
    pub title: &'w str,
    /// Below it.
    pub x: &'w str,
    /// Beside it.
    pub y: &'w str,
    /// What is at 0, 1 and so on: then there are bars; none: x is a number.
    pub places: &'w [String],
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = std::result::Result<(), DrawingAreaErrorKind<std::io::Error>>;

/// Draws lines into `NAME.svg` in a directory: over the logarithm of x, or over x where a line
/// begins below 1; bars where there are places.
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
        match () {
            () if !words.places.is_empty() => bars(&area, words, lines, top),
            () if points().all(|point| point.0 >= 1.0) => {
                curves(&area, words, lines, (1.0..right).log_scale().base(2.0), top)
            }
            () => curves(&area, words, lines, 0.0..right, top),
        }?;
        area.present()
    })();
    drawn.map_err(|error: DrawingAreaErrorKind<_>| error.to_string())?;
    Ok(text)
}

fn curves<X>(area: &Area<'_>, words: Words<'_>, lines: &[Line], across: X, top: f64) -> Drawn
where
    X: AsRangedCoord<Value = f64>,
    X::CoordDescType: ValueFormatter<f64>,
{
    let mut chart = ChartBuilder::on(area)
        .caption(words.title, ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(70)
        .build_cartesian_2d(across, 0.0..top)?;
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
    legend(&mut chart, SeriesLabelPosition::LowerRight)
}

/// At each place a bar of every line, side by side.
fn bars(area: &Area<'_>, words: Words<'_>, lines: &[Line], top: f64) -> Drawn {
    let count = words.places.len();
    let mut chart = ChartBuilder::on(area)
        .caption(words.title, ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(70)
        .build_cartesian_2d(-0.5..count as f64 - 0.5, 0.0..top * 1.25)?;
    let label = |x: &f64| {
        let is_whole = (x - x.round()).abs() < 1e-6 && *x >= 0.0;
        let name = words.places.get(x.round() as usize).filter(|_| is_whole);
        name.cloned().unwrap_or_default()
    };
    chart
        .configure_mesh()
        .x_desc(words.x)
        .y_desc(words.y)
        .disable_x_mesh()
        .max_light_lines(0)
        .x_labels(2 * count + 1)
        .x_label_formatter(&label)
        .draw()?;
    let width = 0.8 / lines.len().max(1) as f64;
    for (index, (name, points)) in lines.iter().enumerate() {
        let color = Palette99::pick(index).to_rgba();
        let left = -0.4 + width * index as f64;
        let bar = |(x, y): &(f64, f64)| {
            Rectangle::new([(x + left, 0.0), (x + left + 0.9 * width, *y)], color.filled())
        };
        let sample = move |(x, y)| Rectangle::new([(x, y - 5), (x + 18, y + 5)], color.filled());
        chart.draw_series(points.iter().map(bar))?.label(name.as_str()).legend(sample);
    }
    legend(&mut chart, SeriesLabelPosition::UpperLeft)
}

type Chart<'a, 'b, X> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<X, RangedCoordf64>>;

fn legend<'a, 'b: 'a, X: Ranged<ValueType = f64>>(
    chart: &mut Chart<'a, 'b, X>,
    at: SeriesLabelPosition,
) -> Drawn {
    chart
        .configure_series_labels()
        .position(at)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK)
        .draw()
}
