//! Names and attributes through the mount, beside a server with nothing behind it but a table.
//!
//! A turn makes files, asks for the attributes of each by chance, renames them and removes them;
//! a row counts one of the four. Attributes are asked for past the kernel's cache, which would
//! answer for both sides alike.

use super::fuse::{Side, mount_point};
use crate::bare_names::BareNames;
use crate::caller::Verb;
use crate::clock::Turn;
use crate::door::{Door, apart, missing, options as mount_options};
use crate::duel::Duel;
use crate::error::Result;
use crate::lab::{Lab, Shape};
use crate::options::Options;
use crate::row::{Against, Row};
use nearside_fuse::{mount, mount_server};

/// Files of a turn.
const FILES: u64 = 2000;
const TARGET: f64 = 0.7;
/// What a turn does, in this order.
const VERBS: [Verb; 4] = [Verb::Create, Verb::Stat, Verb::Rename, Verb::Unlink];

/// Make a file and close it.
pub fn fuse_create(options: &Options) -> Result<Row> {
    measured("fuse_create", options, Verb::Create)
}

/// Ask for attributes.
pub fn fuse_stat(options: &Options) -> Result<Row> {
    measured("fuse_stat", options, Verb::Stat)
}

/// Rename in one directory.
pub fn fuse_rename(options: &Options) -> Result<Row> {
    measured("fuse_rename", options, Verb::Rename)
}

/// Remove a file.
pub fn fuse_unlink(options: &Options) -> Result<Row> {
    measured("fuse_unlink", options, Verb::Unlink)
}

fn measured(name: &'static str, options: &Options, counted: Verb) -> Result<Row> {
    match missing() {
        Some(why) => Ok(Row::skipped(name, why)),
        None => apart(|| measure(name, options, counted)),
    }
}

/// One turn: of all that it does, what is counted.
fn turn(side: &mut Side, counted: Verb) -> Result<Turn> {
    let mut found = Turn::default();
    for verb in VERBS {
        let took = side.turn(verb, FILES)?;
        if verb == counted {
            found = took;
        } else {
            side.forget_last();
        }
    }
    Ok(found)
}

fn measure(name: &'static str, options: &Options, counted: Verb) -> Result<Row> {
    // a log that the rounds wrap several times, so that checkpoints are among what is counted
    let shape = Shape { log_bytes: Some(2 << 20), ..Shape::usual(options) };
    let lab = Lab::new(options.dir(), shape)?;
    let ours = mount(lab.fs.clone(), &mount_point(&lab, "ours")?, &mount_options())?;
    let mut ours = Side::new(Door::open(ours, "")?, 0, 1);
    let bare = mount_server(BareNames::default(), &mount_point(&lab, "bare")?, &mount_options())?;
    let mut bare = Side::new(Door::open(bare, "")?, 0, 1);
    let (log, (checkpoints, _)) = (lab.fs.log_bytes_written(), lab.fs.checkpoint_cost());
    let rounds = options.short_rounds();
    let duel = Duel::run(rounds, || turn(&mut ours, counted), || turn(&mut bare, counted))?;
    let laps = (lab.fs.log_bytes_written() - log) as f64 / lab.log_bytes() as f64;
    let checkpoints = lab.fs.checkpoint_cost().0 - checkpoints;
    let latencies = format!("ours {}; peer {}", ours.latency(), bare.latency());
    ours.close()?;
    bare.close()?;
    let spread = duel.ratios(Turn::whole_ns);
    let us = |ns: f64| ns / 1000.0;
    let against = Against::Peer(us(duel.theirs(Turn::whole_ns)));
    Ok(Row::new(name, "us", us(duel.ours(Turn::whole_ns)), against)
        .ratio(spread.median, spread)
        .target(TARGET)
        .on(lab.domain(), &lab.medium())
        .note(latencies)
        .note(format!(
            "peer: a bare FUSE server with a table of names in memory; CPU time {:.2}; log \
             wrapped {laps:.1} times, {checkpoints} checkpoints",
            duel.ratios(Turn::cpu_ns).median,
        )))
}
