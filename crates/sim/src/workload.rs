//! What threads do.

use std::sync::Arc;

use placement::Kind;

use crate::trace::Trace;

/// All threads do the same, one call after the other, or each what was recorded of one.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// What a thread does, and then again.
    pub steps: Vec<Step>,
    /// Calls that were recorded, which the threads make instead, again and again: of as many
    /// threads and files.
    pub trace: Option<Arc<Trace>>,
    /// Files that all threads use; 0: each has one of its own.
    pub files: u32,
    /// Bytes of a file.
    pub file_bytes: u64,
    /// Where they were made.
    pub made: Made,
    /// Threads.
    pub threads: u32,
    /// The first node on which they run.
    pub from_node: u32,
    /// Nodes on which they run, from that one on: node by node, as far as there are CPUs; one
    /// after the other on each where `is_spread`.
    pub on_nodes: u32,
    /// See there.
    pub is_spread: bool,
    /// They run nowhere else.
    pub is_pinned: bool,
    /// They go past the file system: to the memory of their node, whatever else is there.
    pub is_bare: bool,
    /// When they begin, ns.
    pub from_ns: f64,
    /// What opening and closing a file takes, ns.
    pub file_ns: f64,
    /// For how long a thread is at other things before each call, ns.
    pub thinks_ns: f64,
}

/// What a thread does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step {
    /// A call of so many bytes, behind the one before it, round and round in the thread's file,
    /// beginning where chance says.
    Round(Kind, u64),
    /// A call of so many bytes anywhere in a file that chance says.
    Somewhere(Kind, u64),
    /// All of a file that chance says, by calls of so many bytes.
    Whole(Kind, u64),
    /// A file that chance says goes, and one in its place is written by such calls.
    Make(u64),
    /// So many bytes more for a log.
    Append(u64),
}

/// On which node files were made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Made {
    /// On that of the thread whose they are; those of all, on one after the other.
    There,
    /// On the next one.
    Beside,
    /// On this.
    On(u32),
    /// On the one that chance says.
    Anywhere,
    /// So many of a hundred on this node, the others on that of their user.
    Partly(u32, u32),
}

impl Workload {
    /// As fio has it: private files, threads on one node after the other.
    pub fn fio(kind: Kind, bytes: u64, threads: u32) -> Workload {
        Workload {
            steps: vec![Step::Round(kind, bytes)],
            trace: None,
            files: 0,
            file_bytes: 64 << 20,
            made: Made::There,
            threads,
            from_node: 0,
            on_nodes: u32::MAX,
            is_spread: false,
            is_pinned: false,
            is_bare: false,
            from_ns: 0.0,
            file_ns: 0.0,
            thinks_ns: 0.0,
        }
    }

    /// What was recorded.
    pub fn traced(trace: Arc<Trace>) -> Workload {
        let length = trace.files.iter().map(|file| file.bytes).max();
        Workload {
            steps: Vec::new(),
            files: trace.files.len() as u32,
            file_bytes: length.unwrap_or(0),
            threads: trace.threads.len() as u32,
            trace: Some(trace),
            ..Workload::fio(Kind::Read, 1, 1)
        }
    }

    /// The node of a thread on a machine of so many nodes, with so many CPUs each.
    pub fn node(&self, thread: u32, nodes: u32, cpus: u32) -> u32 {
        if let Some(traced) = self.trace.as_ref().and_then(|it| it.threads.get(thread as usize)) {
            return traced.node % nodes.max(1);
        }
        let on_nodes = self.on_nodes.min(nodes).max(1);
        let step = match self.is_spread {
            true => thread % on_nodes,
            false => thread / cpus.max(1) % on_nodes,
        };
        (self.from_node + step) % nodes.max(1)
    }

    /// Files that there are.
    pub fn all_files(&self) -> u32 {
        if self.files == 0 { self.threads } else { self.files }
    }

    /// The longest call to a file and not to a log, bytes.
    pub fn longest_in_file(&self) -> u64 {
        let in_file = |step: &&Step| !matches!(step, Step::Append(_));
        let steps = self.steps.iter().filter(in_file).map(Step::bytes).max();
        steps.unwrap_or(0).max(self.trace.as_ref().map_or(0, |trace| trace.longest()))
    }

    /// The longest call, bytes.
    pub fn longest(&self) -> u64 {
        let traced = self.trace.as_ref().map_or(0, |trace| trace.longest());
        self.steps.iter().map(Step::bytes).max().unwrap_or(0).max(traced)
    }
}

impl Step {
    /// Bytes of a call.
    pub fn bytes(&self) -> u64 {
        match *self {
            Step::Round(_, bytes) | Step::Somewhere(_, bytes) | Step::Whole(_, bytes) => bytes,
            Step::Make(bytes) | Step::Append(bytes) => bytes,
        }
    }
}
