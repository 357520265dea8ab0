//! What threads do.

use placement::Kind;

/// All threads do the same, each with a file of its own, one call after the other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Workload {
    /// What calls do.
    pub kind: Kind,
    /// Bytes of a call.
    pub bytes: u64,
    /// Bytes of a file: calls go round in it, beginning where chance says.
    pub file_bytes: u64,
    /// Threads.
    pub threads: u32,
    /// Nodes on which they run, from the first on: node by node, as far as there are CPUs; one
    /// after the other on each where `is_spread`.
    pub on_nodes: u32,
    /// See there.
    pub is_spread: bool,
}

impl Workload {
    /// As fio has it: private files, threads on one node after the other.
    pub fn fio(kind: Kind, bytes: u64, threads: u32) -> Workload {
        let on_nodes = u32::MAX;
        Workload { kind, bytes, file_bytes: 64 << 20, threads, on_nodes, is_spread: false }
    }

    /// The node of a thread on a machine of so many nodes, with so many CPUs each.
    pub fn node(&self, thread: u32, nodes: u32, cpus: u32) -> u32 {
        let nodes = self.on_nodes.min(nodes).max(1);
        match self.is_spread {
            true => thread % nodes,
            false => thread / cpus.max(1) % nodes,
        }
    }
}
