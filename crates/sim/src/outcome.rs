//! What came of a run.

use crate::latency::Latency;

/// What came of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// How long it was, ns.
    pub time: f64,
    /// How long the calls took that ended meanwhile.
    pub latency: Latency,
    /// Bytes that they asked for.
    pub bytes: u64,
    /// Each node's.
    pub nodes: Vec<NodeOutcome>,
    /// How often threads moved to another node,
    pub thread_moves: u64,
    /// and how much data did, bytes.
    pub moved_bytes: u64,
}

/// What was copied of a node, records included, bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeOutcome {
    /// By callers on the node,
    pub local: u64,
    /// by callers on others,
    pub remote: u64,
    /// and by workers.
    pub workers: u64,
}

impl Outcome {
    /// MiB a second.
    pub fn rate(&self) -> f64 {
        self.bytes as f64 / 1048576.0 / (self.time / 1e9)
    }

    /// The part of the bytes that callers on other nodes copied.
    pub fn remote_part(&self) -> f64 {
        let sum = |of: fn(&NodeOutcome) -> u64| self.nodes.iter().map(of).sum::<u64>() as f64;
        let all = sum(|node| node.local + node.remote + node.workers);
        if all > 0.0 { sum(|node| node.remote) / all } else { 0.0 }
    }
}
