//! The picture: for each size of the data and each choice of records a group of bars a mix.

use super::{SHARES, SYSTEMS, System, WRITE_PERCENTS, Wanted, Ycsb};
use crate::error::{Error, Result};
use plotters::coord::Shift;
use plotters::prelude::*;
use std::path::Path;

/// Of the picture, in points.
const SIZE: (u32, u32) = (1280, 640);
/// Of a group's room its bars take so much.
const FILLED: f64 = 0.8;

/// Where the panels end: a bar that reaches it may be longer. Reads from the page cache would
/// dwarf the others.
const TOP: f64 = 1.5;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = std::result::Result<(), DrawingAreaErrorKind<std::io::Error>>;

/// Draws the bars into an SVG file.
///
/// # Errors
/// The file cannot be written.
pub fn plot(path: &Path, ycsb: &Ycsb) -> Result<()> {
    let mut text = String::new();
    let drawn = (|| -> Drawn {
        let area = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
        area.fill(&WHITE)?;
        let caption =
            "Operations a second, of those where all is in memory (cut at 1.5), by writes/reads";
        let area = area.titled(caption, ("sans-serif", 18))?;
        let panels = area.split_evenly((2, SHARES.len()));
        for (row, wanted) in [Wanted::Uniform, Wanted::Zipfian].into_iter().enumerate() {
            for (column, share) in SHARES.into_iter().enumerate() {
                let panel = &panels[row * SHARES.len() + column];
                draw(panel, ycsb, wanted, share)?;
            }
        }
        area.present()
    })();
    let failed = |source| Error::Io { path: path.to_path_buf(), source };
    drawn.map_err(|error| failed(std::io::Error::other(error.to_string())))?;
    std::fs::write(path, text).map_err(failed)
}

fn draw(area: &Area<'_>, ycsb: &Ycsb, wanted: Wanted, share: f64) -> Drawn {
    let caption = format!("{}, data {share} of the cache", wanted.name());
    let groups = WRITE_PERCENTS.len();
    let mut chart = ChartBuilder::on(area)
        .caption(caption, ("sans-serif", 14))
        .margin(8)
        .x_label_area_size(24)
        .y_label_area_size(32)
        .build_cartesian_2d(-0.5..groups as f64 - 0.5, 0.0..TOP)?;
    let label = |x: &f64| match WRITE_PERCENTS.get(x.round() as usize) {
        Some(percent) if x.fract() == 0.0 => format!("{percent}/{}", 100 - percent),
        _ => String::new(),
    };
    let mut mesh = chart.configure_mesh();
    mesh.disable_x_mesh()
        .max_light_lines(0)
        .x_labels(2 * groups)
        .x_label_formatter(&label)
        .draw()?;
    let width = FILLED / SYSTEMS.len() as f64;
    for (index, system) in SYSTEMS.into_iter().enumerate() {
        let color = Palette99::pick(index).to_rgba();
        let of_system = |group: usize| {
            let percent = WRITE_PERCENTS[group];
            let is_it = |bar: &&super::Bar| {
                bar.system == system
                    && bar.wanted == wanted
                    && bar.share == share
                    && bar.write_percent == percent
            };
            let height = ycsb.bars.iter().find(is_it).map_or(0.0, |bar| bar.of_memory.median);
            let height = height.min(TOP);
            let left = group as f64 - FILLED / 2.0 + index as f64 * width;
            Rectangle::new([(left, 0.0), (left + width, height)], color.filled())
        };
        let drawn = chart.draw_series((0..groups).map(of_system))?;
        let sample = move |(x, y)| Rectangle::new([(x, y - 4), (x + 10, y + 4)], color.filled());
        drawn.label(name(system)).legend(sample);
    }
    if share == SHARES[0] && wanted == Wanted::Uniform {
        let mut labels = chart.configure_series_labels();
        labels.position(SeriesLabelPosition::UpperRight).background_style(WHITE.mix(0.8));
        labels.border_style(BLACK).draw()?;
    }
    Ok(())
}

/// Short enough for the legend.
fn name(system: System) -> &'static str {
    match system {
        System::TierSmallLog => "tier, log / 16",
        System::Tier => "tier",
        System::FileDirect => "file, O_DIRECT",
        System::File => "file",
        System::Memory => "all in memory",
    }
}
