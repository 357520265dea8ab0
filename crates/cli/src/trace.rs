//! `nearside trace`: the calls on a pool in use, recorded, so that `nearside simulate --trace`
//! plays them on other machines.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use nearside::FileSystem;
use nearside::files::{Traced, TracedCall, TracedFile};
use placement::Kind;
use serde::{Deserialize, Serialize};
use sim::{THREADS_MAX, TraceText};

use crate::control::Client;
use crate::error::{Error, Result};
use crate::{output, signals, stats};

/// Pause between two looks: the server keeps 65 536 calls meanwhile.
const PAUSE: Duration = Duration::from_millis(20);
/// Files that are asked about at once.
const FILES_AT_ONCE: usize = 1000;

/// Arguments of `trace`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  nearside trace /mnt/near --out calls
  nearside trace /data/pool --seconds 60 --calls 5000000 --out calls
  nearside simulate --trace calls --machine optane-8-sockets

Each read, write and append that the server of the pool serves is a line: when it began, how long it
took, whose it was and on which node that was served, the file, where in it and how many bytes; no
names and no content. What attached processes read and write by themselves, and what the kernel
answers from its cache, never comes to the server; transactions are left out. Ctrl-C ends the
recording before its time, and another one of the same pool takes its place: what was recorded so
far is written. The server tells the pool's owner and root.")]
pub struct TraceArgs {
    /// A pool in use: the directory that it is mounted on, or its own.
    #[arg(value_name = "DIR|POOL")]
    pub place: PathBuf,
    /// For how long.
    #[arg(long, value_name = "N", default_value_t = 10)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub seconds: u32,
    /// End after so many calls.
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=4_000_000))]
    pub calls: u32,
    /// Write there [default: stdout].
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

/// A recording that has begun.
#[derive(Debug, Serialize, Deserialize)]
pub struct Recording {
    number: u64,
    /// The node of each slice.
    nodes: Vec<u32>,
}

/// What the server has recorded.
#[derive(Debug, Serialize, Deserialize)]
pub struct Recorded {
    calls: Vec<RecordedCall>,
    /// Calls for which there was no room.
    lost: u64,
}

/// A call, short: there are many. When it began and how long it took, ns; who, near which slice; 0
/// to read, 1 to write; the inode, where in it, and how many bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct RecordedCall(u64, u64, u64, u8, u8, u64, u64, u64);

/// Where a file lies.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct RecordedFile {
    bytes: u64,
    /// The slice on which it begins.
    first: Option<u8>,
}

impl Recording {
    /// Begins.
    pub fn begin(fs: &FileSystem) -> Recording {
        let nodes = fs.near_slices().iter().map(|slice| slice.node).collect();
        Recording { number: fs.begin_trace(), nodes }
    }
}

impl Recorded {
    /// That of the engine.
    pub fn of(traced: Traced) -> Recorded {
        let call = |it: &TracedCall| {
            let kind = u8::from(it.kind == Kind::Write);
            let (caller, ino) = (it.caller, it.ino.0);
            let (began, took) = (it.began_ns, it.took_ns);
            RecordedCall(began, took, caller, it.slice, kind, ino, it.offset, it.bytes)
        };
        Recorded { calls: traced.calls.iter().map(call).collect(), lost: traced.lost }
    }
}

impl RecordedFile {
    /// What is told of a file.
    pub fn of(file: TracedFile) -> RecordedFile {
        RecordedFile { bytes: file.bytes, first: file.first }
    }
}

/// Nodes as recordings number them, by slice.
struct Nodes {
    of_slice: Vec<u32>,
    count: u32,
}

impl Nodes {
    fn new(kernel_ids: &[u32]) -> Nodes {
        let mut all = kernel_ids.to_vec();
        all.sort_unstable();
        all.dedup();
        let place = |id: &u32| all.iter().position(|it| it == id).unwrap_or(0) as u32;
        let of_slice = kernel_ids.iter().map(place).collect();
        Nodes { of_slice, count: all.len().max(1) as u32 }
    }

    fn of(&self, slice: u8) -> u32 {
        self.of_slice.get(usize::from(slice)).copied().unwrap_or(0)
    }
}

/// Records.
pub fn run(args: &TraceArgs) -> Result<()> {
    let pool = stats::pool_of(&args.place)?;
    signals::end_between_steps();
    let mut client = Client::connect(&pool)?;
    let Recording { number, nodes } = client.begin_trace()?;
    let nodes = Nodes::new(&nodes);
    let mut all = Recorded { calls: Vec::new(), lost: 0 };
    // whatever ends it, what there is is written
    if let Err(error) = record(args, &mut client, number, &mut all) {
        output::complain(&format!("the recording ends here: {error}"));
    }
    let Recorded { mut calls, lost } = all;
    // one that took long was told of after others that began later
    calls.sort_by_key(|call: &RecordedCall| call.0);
    calls.truncate(args.calls as usize);
    if calls.is_empty() {
        return Err(Error::Path {
            shown: args.place.clone(),
            reason: "nobody read or wrote while calls were recorded".to_owned(),
        });
    }
    // of files of which nobody tells any more it is not known where they lie
    let mut lies = |inodes: &[u64]| client.traced_files(inodes).unwrap_or_default();
    let text = written(&calls, lost, &nodes, &mut lies);
    match &args.out {
        None => output::text(&text)?,
        Some(path) => save(path, &text)?,
    }
    if lost > 0 {
        output::complain(&format!("{lost} calls came too fast, and are not in it"));
    }
    Ok(())
}

/// Adds to `all` what is recorded until the recording is over.
fn record(args: &TraceArgs, client: &mut Client, number: u64, all: &mut Recorded) -> Result<()> {
    let until = Instant::now() + Duration::from_secs(args.seconds.into());
    let mut add = |more: Option<Recorded>| {
        let why = || "another recording of this pool took its place, or this one was asleep";
        let more = more.ok_or_else(|| Error::Server(why().to_owned()))?;
        all.calls.extend(more.calls);
        all.lost = all.lost.saturating_add(more.lost);
        Ok(all.calls.len() >= args.calls as usize)
    };
    let mut is_enough = false;
    while !is_enough && Instant::now() < until && signals::asked_to_end().is_none() {
        std::thread::sleep(PAUSE.min(until.saturating_duration_since(Instant::now())));
        is_enough = add(client.trace(number)?)?;
    }
    add(client.end_trace(number)?).map(drop)
}

fn save(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).map_err(|source| Error::Io { path: path.to_path_buf(), source })
}

/// Where files lie, by their inodes' numbers.
type Lies<'l> = &'l mut dyn FnMut(&[u64]) -> Vec<Option<RecordedFile>>;

/// The recording as text: times from the first call on, files by when they are met first.
fn written(calls: &[RecordedCall], lost: u64, nodes: &Nodes, lies: Lies<'_>) -> String {
    let mut numbers: HashMap<u64, usize> = HashMap::new();
    let mut inodes = Vec::new();
    for call in calls {
        numbers.entry(call.5).or_insert_with(|| {
            inodes.push(call.5);
            inodes.len() - 1
        });
    }
    let mut text = TraceText::new(nodes.count);
    for (place, some) in inodes.chunks(FILES_AT_ONCE).enumerate() {
        let found = lies(some);
        for at in 0..some.len() {
            let file = found.get(at).copied().flatten();
            let node = file.and_then(|file| file.first).map(|slice| nodes.of(slice));
            text.file(place * FILES_AT_ONCE + at, file.map_or(0, |file| file.bytes), node);
        }
    }
    let mut threads: HashMap<u64, u64> = HashMap::new();
    let began = calls.first().map_or(0, |call| call.0);
    for RecordedCall(at, took, caller, slice, kind, inode, offset, bytes) in calls {
        let kind = if *kind == 0 { Kind::Read } else { Kind::Write };
        let file = numbers.get(inode).copied().unwrap_or(0);
        // of more callers than the simulator has threads, some are taken for one
        let next = threads.len() as u64 % u64::from(THREADS_MAX);
        let thread = *threads.entry(*caller).or_insert(next);
        let thread = (thread, nodes.of(*slice));
        text.call([at - began, *took], thread, kind, (file, *offset, *bytes));
    }
    text.end(lost)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sim::Trace;

    #[test]
    fn what_is_written_the_simulator_reads() {
        let nodes = Nodes::new(&[7, 3, 7]);
        let calls = [
            RecordedCall(1000, 50, 1 << 63, 0, 0, 900, 4096, 512),
            RecordedCall(1010, 5, 12, 1, 1, 12, 0, 100),
            RecordedCall(1100, 5, 1 << 63, 1, 0, 900, 0, 1),
        ];
        let mut asked = Vec::new();
        let text = written(&calls, 2, &nodes, &mut |inodes| {
            asked.extend_from_slice(inodes);
            vec![Some(RecordedFile { bytes: 10_000, first: Some(2) }), None]
        });
        let trace = Trace::parse(&text).unwrap();
        assert_eq!(asked, [900, 12]);
        assert_eq!((trace.nodes, trace.lost, trace.calls()), (2, 2, 3));
        let files: Vec<_> = trace.files.iter().map(|it| (it.bytes, it.node)).collect();
        assert_eq!(files, [(10_000, Some(1)), (100, None)]);
        let threads: Vec<_> = trace.threads.iter().map(|it| (it.node, it.calls.len())).collect();
        assert_eq!(threads, [(1, 2), (0, 1)]);
        assert_eq!(trace.threads[0].calls[1].thinks_ns, 50.0);
    }

    #[test]
    fn a_call_is_short_on_its_way() {
        let call = RecordedCall(1, 2, 3, 4, 0, 6, 7, 8);
        let said = serde_json::to_string(&call).unwrap();
        assert_eq!(said, "[1,2,3,4,0,6,7,8]");
        assert_eq!(serde_json::from_str::<RecordedCall>(&said).unwrap(), call);
    }
}
