//! `nearside simulate --paper`: what papers show, as runs have it.

use std::fmt::Write as _;
use std::path::Path;

use nearside_bench::{Words, draw};
use serde::Serialize;
use sim::{Figure, Headline};

use crate::error::{Error, Result};
use crate::output;

#[derive(Serialize)]
struct Report {
    paper: String,
    headlines: Vec<Said>,
    figures: Vec<Drawn>,
}

#[derive(Serialize)]
struct Said {
    what: String,
    /// None: the paper says nothing of it.
    published: Option<f64>,
    simulated: f64,
}

#[derive(Serialize)]
struct Drawn {
    name: String,
    title: String,
    x: &'static str,
    y: &'static str,
    /// What places 0, 1 and so on are; none: they are numbers.
    places: Vec<String>,
    lines: Vec<Line>,
}

#[derive(Serialize)]
struct Line {
    name: String,
    points: Vec<(f64, f64)>,
}

pub fn run(name: &str, out: Option<&Path>, json: bool) -> Result<()> {
    let runs = sim::paper(name).unwrap_or(Err(sim::Refused("no such paper is known")));
    let paper = runs.map_err(|refused| Error::Usage(refused.to_string()))?;
    if let Some(dir) = out {
        std::fs::create_dir_all(dir).map_err(|source| io(dir, source))?;
        for figure in &paper.figures {
            let Figure { name, title, x, y, places, lines } = figure;
            draw(dir, name, Words { title, x, y, places }, lines)?;
            let path = dir.join(format!("{name}.csv"));
            std::fs::write(&path, csv(figure)).map_err(|source| io(&path, source))?;
        }
    }
    let said = |it: &Headline| {
        let Headline { what, published, simulated } = it.clone();
        Said { what, published, simulated }
    };
    let headlines: Vec<Said> = paper.headlines.iter().map(said).collect();
    if !json {
        return output::text(&text(&headlines, out, paper.figures.len()));
    }
    let line = |(name, points)| Line { name, points };
    let drawn = |figure: Figure| {
        let Figure { name, title, x, y, places, lines } = figure;
        Drawn { name, title, x, y, places, lines: lines.into_iter().map(line).collect() }
    };
    let figures = paper.figures.into_iter().map(drawn).collect();
    output::json(&Report { paper: name.to_owned(), headlines, figures })
}

fn io(path: &Path, source: std::io::Error) -> Error {
    Error::Io { path: path.to_path_buf(), source }
}

fn text(headlines: &[Said], out: Option<&Path>, figures: usize) -> String {
    let width = headlines.iter().map(|it| it.what.len()).max().unwrap_or(0);
    let mut text =
        format!("{:<width$} {:>10} {:>10} {:>6}\n", "", "PUBLISHED", "SIMULATED", "RATIO");
    for it in headlines {
        let (published, ratio) = match it.published {
            Some(published) => {
                (format!("{published:.2}"), format!("{:.2}", it.simulated / published))
            }
            None => Default::default(),
        };
        let (what, simulated) = (&it.what, it.simulated);
        let _ = writeln!(text, "{what:<width$} {published:>10} {simulated:>10.2} {ratio:>6}");
    }
    if let Some(dir) = out {
        let _ = writeln!(text, "{figures} figures are in {}", dir.display());
    }
    text
}

/// A line for each place, a column for each line.
fn csv(figure: &Figure) -> String {
    let quoted = |name: &str| format!("\"{}\"", name.replace('"', "\"\""));
    let mut text = quoted(figure.x);
    for (name, _) in &figure.lines {
        let _ = write!(text, ",{}", quoted(name));
    }
    text.push('\n');
    let mut places: Vec<f64> =
        figure.lines.iter().flat_map(|(_, points)| points.iter().map(|point| point.0)).collect();
    places.sort_by(f64::total_cmp);
    places.dedup();
    for place in places {
        match figure.places.get(place as usize) {
            Some(name) => text.push_str(&quoted(name)),
            None => text.push_str(&place.to_string()),
        }
        for (_, points) in &figure.lines {
            text.push(',');
            if let Some((_, value)) = points.iter().find(|point| point.0 == place) {
                text.push_str(&value.to_string());
            }
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stand_in_columns_and_names_in_quotes() {
        let mut figure = Figure {
            name: String::new(),
            title: String::new(),
            x: "threads",
            y: "GiB/s",
            places: Vec::new(),
            lines: vec![
                ("a, b".to_owned(), vec![(1.0, 0.5), (2.0, 1.5)]),
                ("c\"d".to_owned(), vec![(2.0, 3.0), (4.0, 1.0)]),
            ],
        };
        let header = "\"threads\",\"a, b\",\"c\"\"d\"\n";
        assert_eq!(csv(&figure), format!("{header}1,0.5,\n2,1.5,3\n4,,1\n"));
        figure.places = ["zero", "one", "two"].map(str::to_owned).into();
        assert_eq!(csv(&figure), format!("{header}\"one\",0.5,\n\"two\",1.5,3\n4,,1\n"));
    }
}
