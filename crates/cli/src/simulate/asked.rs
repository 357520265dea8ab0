//! What is played: calls of one kind, a program, or what was recorded.

use std::path::Path;
use std::sync::Arc;

use placement::Machine;
use sim::{Made, Trace, Workload, known_workloads, parse_workload};

use super::SimulateArgs;
use crate::error::{Error, Result};
use crate::size::show;

/// Numbers of threads where nobody says.
const THREADS: [u32; 9] = [1, 2, 4, 8, 16, 28, 56, 112, 224];

/// What threads are to do.
pub struct Asked {
    /// What calls do, in a word.
    pub calls: String,
    /// Bytes of the longest one.
    pub bytes: u64,
    /// That of each number of threads.
    pub workloads: Vec<Workload>,
    /// What was recorded, if that is it.
    pub trace: Option<Arc<Trace>>,
}

impl Asked {
    /// What the command line asks for.
    pub fn of(args: &SimulateArgs, machine: &Machine) -> Result<Asked> {
        if let Some(path) = &args.trace {
            let trace = recorded(path, machine)?;
            let workloads = vec![Workload::traced(trace.clone())];
            let (calls, bytes) = ("recorded calls".to_owned(), trace.longest());
            return Ok(Asked { calls, bytes, workloads, trace: Some(trace) });
        }
        let placed = |workload: Workload| Workload {
            on_nodes: args.on_nodes.unwrap_or(workload.on_nodes),
            is_spread: args.spread,
            ..workload
        };
        let (calls, bytes, workloads): (String, u64, Vec<Workload>) = match &args.workload {
            Some(name) => {
                let own = workload(name, machine)?;
                let each = |threads: &u32| Workload { threads: *threads, ..own.clone() };
                let workloads = match args.threads.is_empty() {
                    true => vec![own.clone()],
                    false => args.threads.iter().map(each).collect(),
                };
                (name.display().to_string(), own.longest(), workloads)
            }
            None => {
                let given = Some(&args.threads[..]).filter(|threads| !threads.is_empty());
                let (kind, bytes) = (args.kind.kind(), args.bytes);
                let fio = |threads: &u32| {
                    let fio = Workload::fio(kind, bytes, *threads);
                    Workload { file_bytes: fio.file_bytes.max(bytes), ..fio }
                };
                let workloads = given.unwrap_or(&THREADS).iter().map(fio).collect();
                (args.kind.name().to_owned(), bytes, workloads)
            }
        };
        let workloads = workloads.into_iter().map(placed).collect();
        Ok(Asked { calls, bytes, workloads, trace: None })
    }

    /// That in words.
    pub fn title(&self) -> String {
        format!("{} of {}", self.calls, show(self.bytes))
    }
}

/// A program by its name, or of a file.
fn workload(name: &Path, machine: &Machine) -> Result<Workload> {
    let known = known_workloads(None);
    if let Some((_, workload)) = known.iter().find(|(known, _)| name == Path::new(known)) {
        return Ok(workload.clone());
    }
    let text = std::fs::read_to_string(name).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound if name.components().count() == 1 => {
            let names: Vec<_> = known.iter().map(|it| it.0).collect();
            let (name, names) = (name.display(), names.join(", "));
            Error::Usage(format!("no program {name} is known, and no file; there are {names}"))
        }
        _ => Error::Io { path: name.to_path_buf(), source: error },
    })?;
    let wrong = |reason: String| Error::Path { shown: name.to_path_buf(), reason };
    let described = parse_workload(&text).map_err(|error| wrong(error.to_string()))?;
    match described.made {
        Made::On(node) if node >= machine.nodes => {
            let nodes = machine.nodes;
            Err(wrong(format!("made on node {node}, and {} has {nodes}, from 0", machine.name)))
        }
        _ => Ok(described),
    }
}

/// What a file says that was recorded, for this machine.
fn recorded(path: &Path, machine: &Machine) -> Result<Arc<Trace>> {
    let wrong = |reason: String| Error::Path { shown: path.to_path_buf(), reason };
    let source = |source| Error::Io { path: path.to_path_buf(), source };
    let text = std::fs::read_to_string(path).map_err(source)?;
    let trace = Trace::parse(&text).map_err(|error| wrong(error.to_string()))?;
    if trace.nodes > machine.nodes {
        let (has, nodes) = (trace.nodes, machine.nodes);
        return Err(wrong(format!("it has {has} nodes, and {} {nodes}", machine.name)));
    }
    Ok(Arc::new(trace))
}
