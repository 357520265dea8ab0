//! The topology itself: nodes, the CPUs that serve them, distances, memory.
//!
//! Kept true by construction: at least one node and one CPU; every node is served by at least one
//! CPU; no CPU lies on two nodes; the distance table is square.

use crate::sysfs::{self, NodeDir};
use crate::{Error, Result, allowed_cpus, current_cpu};
use std::path::Path;

/// Distance of a node to itself, and to others where the kernel gives none (ACPI's defaults).
pub(crate) const DISTANCE_LOCAL: u32 = 10;
pub(crate) const DISTANCE_REMOTE: u32 = 20;

const NOWHERE: u32 = u32::MAX;

/// The nodes of a machine, real or virtual, and the CPUs that this process may use on them.
///
/// Nodes are named by their index, dense from 0.
#[derive(Clone, Debug)]
pub struct Topology {
    pub(crate) nodes: Vec<Node>,
    /// For each CPU the index of the node it lies on, or NOWHERE.
    pub(crate) node_of_cpu: Vec<u32>,
    pub(crate) is_virtual: bool,
}

/// One node.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub id: u32,
    /// CPUs that lie on it and that we may use.
    pub local: Vec<u32>,
    /// CPUs that serve it: `local`, or those of the nearest node that has any.
    pub serving: Vec<u32>,
    pub distances: Vec<u32>,
    pub memory_bytes: Option<u64>,
}

impl Topology {
    /// The machine as this thread may use it, by `/sys`.
    pub fn system() -> Result<Topology> {
        Topology::usable(Path::new("/sys"))
    }

    /// What the sysfs at `root` describes, narrowed to the calling thread's affinity mask, which
    /// lies within its cpuset. Where sysfs and the mask have no CPU in common (a container that
    /// shows another machine's sysfs), the mask is right: one node with its CPUs.
    pub fn usable(root: &Path) -> Result<Topology> {
        let allowed = allowed_cpus()?;
        match Topology::read(root)?.restricted_to(&allowed) {
            Err(Error::NoCpus) => Topology::new(Vec::new(), allowed),
            other => other,
        }
    }

    /// The whole machine that the sysfs at `root` describes, whoever may use it.
    ///
    /// Fallbacks: no list of nodes gives one node with all CPUs; no list of online CPUs gives
    /// those of the nodes, and without nodes those of the calling thread's mask; an online CPU
    /// that no node names lies on the first; missing distances, or a row of the wrong length
    /// (a node came or went while we read), are 10 to itself and 20 to others; memory that is
    /// not given is unknown. Anything else that makes no sense is an error.
    pub fn read(root: &Path) -> Result<Topology> {
        let dirs = sysfs::nodes(root)?;
        let online = match sysfs::online_cpus(root)? {
            Some(online) => online,
            None if dirs.is_empty() => allowed_cpus()?,
            None => {
                let mut all: Vec<u32> = dirs.iter().flat_map(|dir| dir.cpus.clone()).collect();
                all.sort_unstable();
                all.dedup();
                all
            }
        };
        Topology::new(dirs, online)
    }

    fn new(dirs: Vec<NodeDir>, online: Vec<u32>) -> Result<Topology> {
        let table = online.last().map_or(0, |&cpu| cpu as usize + 1);
        let mut node_of_cpu = vec![NOWHERE; table];
        for &cpu in &online {
            node_of_cpu[cpu as usize] = 0;
        }
        let mut named = vec![false; table];
        for (index, dir) in (0u32..).zip(&dirs) {
            for &cpu in dir.cpus.iter().filter(|cpu| online.binary_search(cpu).is_ok()) {
                if std::mem::replace(&mut named[cpu as usize], true) {
                    let what = format!("CPU {cpu} lies on node {} and on another", dir.id);
                    let path = format!("node{}/cpulist", dir.id).into();
                    return Err(Error::Malformed { path, what });
                }
                node_of_cpu[cpu as usize] = index;
            }
        }
        let nodes = if dirs.is_empty() { vec![Node::only()] } else { Node::all(dirs) };
        Topology { nodes, node_of_cpu, is_virtual: false }.restricted_to(&online)
    }

    /// The same nodes, served only by CPUs among `allowed` that are online. A node that is left
    /// without CPUs is served by the nearest that has some. [`Error::NoCpus`] if none is left.
    pub fn restricted_to(&self, allowed: &[u32]) -> Result<Topology> {
        let mut nodes = self.nodes.clone();
        nodes.iter_mut().for_each(|node| node.local.clear());
        let mut usable: Vec<u32> = allowed.to_vec();
        usable.sort_unstable();
        usable.dedup();
        for cpu in usable {
            if let Some(node) = self.node_of_cpu(cpu) {
                nodes[node as usize].local.push(cpu);
            }
        }
        let locals: Vec<Vec<u32>> = nodes.iter().map(|node| node.local.clone()).collect();
        for (index, node) in nodes.iter_mut().enumerate() {
            let nearest = (0..locals.len())
                .filter(|&other| !locals[other].is_empty())
                .min_by_key(|&other| (other != index, node.distances[other]))
                .ok_or(Error::NoCpus)?;
            node.serving = locals[nearest].clone();
        }
        Ok(Topology { nodes, node_of_cpu: self.node_of_cpu.clone(), is_virtual: self.is_virtual })
    }

    /// Number of nodes; at least 1.
    pub fn node_count(&self) -> u32 {
        self.nodes.len() as u32
    }

    /// Whether the nodes are virtual ones.
    pub fn is_virtual(&self) -> bool {
        self.is_virtual
    }

    /// The kernel's number for a node; for a virtual node, its index.
    pub fn kernel_id(&self, node: u32) -> Option<u32> {
        self.node(node).map(|node| node.id)
    }

    /// The node that the kernel calls `id`, as sysfs of a device names it.
    pub fn node_of_kernel_id(&self, id: u32) -> Option<u32> {
        self.nodes.iter().position(|node| node.id == id).map(|index| index as u32)
    }

    /// CPUs that serve `node`, sorted; never empty for a node that exists, empty for another.
    pub fn cpus(&self, node: u32) -> &[u32] {
        self.node(node).map_or(&[], |node| &node.serving)
    }

    /// CPUs that lie on `node` and that this process may use; empty for a CPU-less node.
    pub fn local_cpus(&self, node: u32) -> &[u32] {
        self.node(node).map_or(&[], |node| &node.local)
    }

    /// All CPUs that this process may use, sorted, each once.
    pub fn all_cpus(&self) -> Vec<u32> {
        let mut all: Vec<u32> = self.nodes.iter().flat_map(|node| node.local.clone()).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// The node that `cpu` lies on, or `None` if it was not online when the topology was read.
    #[inline]
    pub fn node_of_cpu(&self, cpu: u32) -> Option<u32> {
        self.node_of_cpu.get(cpu as usize).copied().filter(|&node| node != NOWHERE)
    }

    /// The node that the calling thread runs on now: a hint, since the thread may move at any
    /// time. A CPU that came online after the reading counts to node 0.
    #[inline]
    pub fn current_node(&self) -> u32 {
        self.node_of_cpu(current_cpu()).unwrap_or(0)
    }

    /// Distance between two nodes in the firmware's unit (10 is local), as seen from `from`.
    pub fn distance(&self, from: u32, to: u32) -> Option<u32> {
        self.node(from)?.distances.get(to as usize).copied()
    }

    /// Memory of a node in bytes, or `None` where the kernel does not say.
    pub fn memory_bytes(&self, node: u32) -> Option<u64> {
        self.node(node)?.memory_bytes
    }

    fn node(&self, node: u32) -> Option<&Node> {
        self.nodes.get(node as usize)
    }
}

impl Node {
    /// The one node of a machine without nodes.
    fn only() -> Node {
        Node {
            id: 0,
            local: Vec::new(),
            serving: Vec::new(),
            distances: vec![DISTANCE_LOCAL],
            memory_bytes: None,
        }
    }

    fn all(dirs: Vec<NodeDir>) -> Vec<Node> {
        let count = dirs.len();
        let node = |(index, dir): (usize, NodeDir)| Node {
            id: dir.id,
            local: Vec::new(),
            serving: Vec::new(),
            distances: dir
                .distances
                .filter(|row| row.len() == count)
                .unwrap_or_else(|| default_distances(index, count)),
            memory_bytes: dir.memory_bytes,
        };
        dirs.into_iter().enumerate().map(node).collect()
    }
}

/// A row of the distance table where nothing is known.
pub(crate) fn default_distances(from: usize, count: usize) -> Vec<u32> {
    let distance = |to| if to == from { DISTANCE_LOCAL } else { DISTANCE_REMOTE };
    (0..count).map(distance).collect()
}
