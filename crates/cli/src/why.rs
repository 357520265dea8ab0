//! `nearside why`: why a file lies where it does: who loses by it, and what was decided.

use std::path::PathBuf;
use std::time::SystemTime;

use clap::Args;
use nearside::files::{Decided, Heat, Moving, NearSlice, Outcome, Placing};
use serde::Serialize;

use crate::error::{self, Result};
use crate::pool_path::Operand;
use crate::size::show;
use crate::stats::nanos;
use crate::whereis::all;
use crate::{access, output, placed};

/// Arguments of `why`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  nearside why /mnt/near/db/table
  nearside why /mnt/near/db/table --json

Parts of a file of which callers near one slice have lost most by its not being there: that is for
how much longer their reads took, less what others would have lost; half of it is forgotten every
six seconds, and all when the part is written. When that is as much as moving the part costs, it
moves, where nearside set has not said where it is to be. Decisions are those of the server that has
the pool now, the last 256 for all files. Nothing is known before nearside calibrate has measured
what accesses take, nor on a machine with one node.")]
pub struct WhyArgs {
    /// A file: in a pool, or of a mount.
    #[arg(value_name = "PATH|POOL:/PATH", value_parser = Operand::parser())]
    pub at: Operand,
    /// Print JSON; bytes and nanoseconds.
    #[arg(long)]
    pub json: bool,
}

#[derive(Serialize)]
struct Report {
    path: String,
    layout: String,
    /// How far it, and threads to it, may move, as it was set there.
    move_data: String,
    move_threads: String,
    /// These three in words.
    #[serde(skip)]
    placing: String,
    parts: Vec<Part>,
    decisions: Vec<Decision>,
}

/// A part of a file that somebody would gain by having near.
#[derive(Serialize)]
struct Part {
    offset: u64,
    /// The slice that they are near.
    slice: u8,
    node: Option<u32>,
    lost_ns: u64,
}

#[derive(Serialize)]
struct Decision {
    seconds_ago: f64,
    /// `data` or `thread`.
    moves: &'static str,
    offset: Option<u64>,
    bytes: Option<u64>,
    from_slice: u8,
    to_slice: u8,
    gain_ns: i64,
    costs_ns: i64,
    outcome: &'static str,
}

impl Decision {
    fn new(decided: &Decided, now: SystemTime) -> Decision {
        let (moves, offset, bytes) = match decided.moving {
            Moving::Thread => ("thread", None, None),
            Moving::Data { offset, bytes } => ("data", Some(offset), Some(bytes)),
        };
        Decision {
            seconds_ago: now.duration_since(decided.at).unwrap_or_default().as_secs_f64(),
            moves,
            offset,
            bytes,
            from_slice: decided.from,
            to_slice: decided.to,
            gain_ns: decided.gain_ns as i64,
            costs_ns: decided.costs_ns as i64,
            outcome: match decided.outcome {
                Outcome::Moved => "moved",
                Outcome::Reported => "would have moved",
                Outcome::Cancelled => "did not pay any more",
                Outcome::Refused => "could not move",
            },
        }
    }
}

/// What was asked of the pool.
struct Seen {
    shown: PathBuf,
    placing: Placing,
    slices: Vec<NearSlice>,
    heat: Vec<Heat>,
    decisions: Vec<Decided>,
}

/// Shows why a file lies where it does.
pub fn run(args: &WhyArgs) -> Result<()> {
    let seen = match &args.at {
        Operand::Inside(at) => {
            let pool = access::reading(&at.pool)?;
            let said = |failure| error::inside(&at.pool)(failure);
            Seen {
                shown: at.shown(),
                placing: pool.placing(&at.path).map_err(said)?,
                slices: pool.near_slices().map_err(said)?,
                heat: all(false, &mut |from| pool.heat(&at.path, from).map_err(said))?,
                decisions: pool.decisions(&at.path).map_err(said)?,
            }
        }
        Operand::Outside(path) => {
            let said = error::of_mount(path);
            Seen {
                shown: path.clone(),
                placing: placed::placing(path).map_err(&said)?,
                slices: placed::slices(path).map_err(&said)?,
                heat: all(false, &mut |from| placed::heat(path, from).map_err(&said))?,
                decisions: placed::decisions(path).map_err(&said)?,
            }
        }
    };
    let report = report(&seen, SystemTime::now());
    if args.json { output::json(&report) } else { output::text(&text(&report)) }
}

fn report(seen: &Seen, now: SystemTime) -> Report {
    let node = |slice: u8| seen.slices.iter().find(|it| it.slice == slice).map(|it| it.node);
    let part = |heat: &Heat| Part {
        offset: heat.offset,
        slice: heat.slice,
        node: node(heat.slice),
        lost_ns: heat.lost_ns as u64,
    };
    Report {
        path: seen.shown.display().to_string(),
        layout: seen.placing.layout.to_string(),
        move_data: seen.placing.levers.data.to_string(),
        move_threads: seen.placing.levers.threads.to_string(),
        placing: placed::said(&seen.placing),
        parts: seen.heat.iter().map(part).collect(),
        decisions: seen.decisions.iter().map(|it| Decision::new(it, now)).collect(),
    }
}

fn text(report: &Report) -> String {
    let mut text = format!("{}\n{}\n\n", output::shown(report.path.as_bytes()), report.placing);
    if report.parts.is_empty() {
        text.push_str("nobody is known to lose by where it is\n");
    } else {
        let heads = ["OFFSET", "BEST NEAR SLICE", "NODE", "LOST"];
        let mut rows = vec![heads.map(str::to_owned).to_vec()];
        rows.extend(report.parts.iter().map(|it| {
            let node = it.node.map_or_else(|| "-".to_owned(), |node| node.to_string());
            vec![it.offset.to_string(), it.slice.to_string(), node, nanos(it.lost_ns)]
        }));
        text.push_str(&output::table(&rows));
    }
    text.push('\n');
    if report.decisions.is_empty() {
        text.push_str("nothing was decided about it\n");
        return text;
    }
    let heads = ["AGO", "WHAT", "OFFSET", "BYTES", "FROM", "TO", "GAINS", "COSTS", "BECAME"];
    let mut rows = vec![heads.map(str::to_owned).to_vec()];
    let none = || "-".to_owned();
    rows.extend(report.decisions.iter().map(|it| {
        vec![
            format!("{:.1} s", it.seconds_ago),
            it.moves.to_owned(),
            it.offset.map_or_else(none, |offset| offset.to_string()),
            it.bytes.map_or_else(none, show),
            it.from_slice.to_string(),
            it.to_slice.to_string(),
            nanos(u64::try_from(it.gain_ns).unwrap_or_default()),
            nanos(u64::try_from(it.costs_ns).unwrap_or_default()),
            it.outcome.to_owned(),
        ]
    }));
    text.push_str(&output::table(&rows));
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use nearside::files::Ino;
    use std::time::Duration;

    fn seen() -> Seen {
        let at = SystemTime::UNIX_EPOCH;
        let data = Moving::Data { offset: 524_288, bytes: 524_288 };
        let decided = |moving, outcome| Decided {
            at,
            ino: Ino(7),
            moving,
            from: 1,
            to: 0,
            gain_ns: 1.5e6,
            costs_ns: 250_000.0,
            outcome,
        };
        Seen {
            shown: "/mnt/file".into(),
            placing: Placing::default(),
            slices: vec![NearSlice { slice: 0, node: 3, cpus: vec![0] }],
            heat: vec![
                Heat { offset: 0, slice: 0, lost_ns: 90_000.0 },
                Heat { offset: 524_288, slice: 1, lost_ns: 1e9 },
            ],
            decisions: vec![
                decided(data, Outcome::Moved),
                decided(Moving::Thread, Outcome::Refused),
            ],
        }
    }

    #[test]
    fn what_is_lost_and_what_was_decided_is_told() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_millis(12_340);
        let text = text(&report(&seen(), now));
        for line in [
            "0       0                3     90 us",
            "524288  1                -     1000 ms",
            "12.3 s  data    524288  512 KiB  1     0   1500 us  250 us  moved",
            "12.3 s  thread  -       -        1     0   1500 us  250 us  could not move",
        ] {
            assert!(text.lines().any(|it| it == line), "{line}: {text}");
        }
    }

    #[test]
    fn where_nothing_is_known_that_is_said() {
        let none = Seen { heat: Vec::new(), decisions: Vec::new(), ..seen() };
        let text = text(&report(&none, SystemTime::UNIX_EPOCH));
        assert!(text.contains("nobody is known to lose") && text.contains("nothing was decided"));
    }

    #[test]
    fn who_says_to_go_on_where_it_was_is_not_believed() {
        let mut calls = 0;
        let parts = all(false, &mut |from| {
            calls += 1;
            Ok((vec![Heat { offset: from, slice: 0, lost_ns: 1.0 }], Some(10)))
        });
        assert_eq!((parts.unwrap().len(), calls), (2, 2));
    }
}
