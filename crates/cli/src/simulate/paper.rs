//! `nearside simulate --paper`: what papers show, as runs have it.

use std::fmt::Write as _;
use std::path::Path;

use nearside_bench::{Words, draw};
use serde::Serialize;
use sim::{Figure, Headline, Paper};

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

impl From<Headline> for Said {
    fn from(it: Headline) -> Said {
        let Headline { what, published, simulated } = it;
        Said { what, published, simulated }
    }
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
    show(name, paper, out, json)
}

fn show(name: &str, paper: Paper, out: Option<&Path>, json: bool) -> Result<()> {
    if let Some(dir) = out {
        std::fs::create_dir_all(dir).map_err(|source| io(dir, source))?;
        for figure in &paper.figures {
            let Figure { name, title, x, y, places, lines } = figure;
            draw(dir, name, Words { title, x, y, places }, lines)?;
            let path = dir.join(format!("{name}.csv"));
            std::fs::write(&path, csv(figure)).map_err(|source| io(&path, source))?;
        }
    }
    let headlines: Vec<Said> = paper.headlines.into_iter().map(Said::from).collect();
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
    fn each_figure_is_a_picture_and_a_table_and_each_headline_a_line() {
        let figure = |name: &str, places: &[&str]| Figure {
            name: name.to_owned(),
            title: "what it shows".to_owned(),
            x: "%",
            y: "GiB/s",
            places: places.iter().map(|place| (*place).to_owned()).collect(),
            lines: vec![("ours".to_owned(), vec![(0.0, 2.0), (1.0, 3.0)])],
        };
        let figures = vec![figure("lines", &[]), figure("bars", &["webserver", "webproxy"])];
        let line =
            |what: &str, published| Headline { what: what.to_owned(), published, simulated: 3.0 };
        let headlines = vec![line("said", Some(4.0)), line("not said", None)];
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("new/figures");
        show("test", Paper { figures, headlines: headlines.clone() }, Some(&out), true).unwrap();
        let read = |name: &str| std::fs::read_to_string(out.join(name)).unwrap();
        assert!(read("bars.svg").contains("webproxy") && read("lines.svg").contains("GiB/s"));
        assert_eq!(read("bars.csv"), "\"%\",\"ours\"\n\"webserver\",2\n\"webproxy\",3\n");
        assert_eq!(read("lines.csv"), "\"%\",\"ours\"\n0,2\n1,3\n");
        let all: Vec<Said> = headlines.into_iter().map(Said::from).collect();
        let text = text(&all, None, 2);
        let lines: Vec<Vec<&str>> =
            text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[1], ["said", "4.00", "3.00", "0.75"]);
        assert_eq!((&lines[2][..], lines.len()), (&["not", "said", "3.00"][..], 3));
    }

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
