//! The topology itself: nodes, the CPUs that serve them, distances, memory.
//!
//! Kept true by construction: at least one node and one CPU; every node is served by at least one
//! CPU; no CPU lies on two nodes; the distance table is square.
//!
//! Who serves a node: the CPUs on it. Where it has none, those of the nodes that reach its memory
//! fastest by firmware's own words (HMAT, where there is one), else of all nodes at the least
//! distance. Which of several nodes is nearest to a CPU: its own; then those that its node serves;
//! then the others; of these the one at the least distance. Memory that came online later, as CXL's
//! does, is at 20 from everybody, which the kernel gives where it knows nothing, and which is less
//! than another socket's 21: it is farther than all whose distance is known, but to who reaches it
//! fastest by HMAT.

use crate::sysfs::{NodeDir, Reader};
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
    /// What the kernel says and makes no sense, a line each.
    pub(crate) remarks: Vec<String>,
}

/// One node.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub id: u32,
    /// CPUs that lie on it and that we may use.
    pub local: Vec<u32>,
    /// Indices of the nodes whose CPUs serve it: its own, where it has any.
    pub served_by: Vec<u32>,
    /// These CPUs, sorted.
    pub serving: Vec<u32>,
    pub distances: Vec<u32>,
    pub memory_bytes: Option<u64>,
    /// Indices of the nodes that reach its memory fastest, where firmware says.
    pub initiators: Vec<u32>,
    /// How far it is, firmware does not say, though it does of others.
    pub is_anywhere: bool,
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
        match Topology::read(root).and_then(|all| all.restricted_to(&allowed)) {
            Err(Error::NoCpus) => Topology::new(Vec::new(), allowed, Vec::new()),
            other => other,
        }
    }

    /// The whole machine that the sysfs at `root` describes, whoever may use it.
    ///
    /// Fallbacks: no list of nodes gives one node with all CPUs; no list of online CPUs gives
    /// those of the nodes, and without nodes those of the calling thread's mask; an online CPU
    /// that no node names lies on the first that has some; one that two nodes name lies on the
    /// first of them; missing distances, or a row of the wrong length (a node came or went while
    /// we read), are 10 to itself and 20 to others; memory that is not given is unknown. What
    /// cannot be read, or makes no sense, is taken for missing: [`Topology::remarks`] names it.
    pub fn read(root: &Path) -> Result<Topology> {
        let mut reader = Reader::new(root);
        let dirs = reader.nodes();
        let online = match reader.online_cpus() {
            Some(online) => online,
            None if dirs.iter().all(|dir| dir.cpus.is_empty()) => allowed_cpus()?,
            None => {
                let mut all: Vec<u32> = dirs.iter().flat_map(|dir| dir.cpus.clone()).collect();
                all.sort_unstable();
                all.dedup();
                all
            }
        };
        Topology::new(dirs, online, reader.remarks)
    }

    fn new(dirs: Vec<NodeDir>, online: Vec<u32>, mut remarks: Vec<String>) -> Result<Topology> {
        let table = online.last().map_or(0, |&cpu| cpu as usize + 1);
        let mut node_of_cpu = vec![NOWHERE; table];
        for (index, dir) in (0u32..).zip(&dirs) {
            let mut twice = Vec::new();
            for &cpu in dir.cpus.iter().filter(|cpu| online.binary_search(cpu).is_ok()) {
                let place = &mut node_of_cpu[cpu as usize];
                match *place {
                    NOWHERE => *place = index,
                    _ => twice.push(cpu),
                }
            }
            if let [cpu, more @ ..] = &twice[..] {
                remarks.push(format!(
                    "node{}/cpulist: CPU {cpu} and {} others are on nodes before, too; they count \
                     to those",
                    dir.id,
                    more.len()
                ));
            }
        }
        let first = node_of_cpu.iter().copied().filter(|node| *node != NOWHERE).min();
        for &cpu in &online {
            let place = &mut node_of_cpu[cpu as usize];
            if *place == NOWHERE {
                *place = first.unwrap_or(0);
            }
        }
        let nodes = if dirs.is_empty() { vec![Node::only()] } else { Node::all(dirs) };
        Topology { nodes, node_of_cpu, is_virtual: false, remarks }.restricted_to(&online)
    }

    /// The same nodes, served only by CPUs among `allowed` that are online. A node that is left
    /// without CPUs is served by the nearest that have some. [`Error::NoCpus`] if none is left.
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
        if nodes.iter().all(|node| node.local.is_empty()) {
            return Err(Error::NoCpus);
        }
        for index in 0..nodes.len() as u32 {
            let served_by = who_serves(&nodes, index);
            let mut serving: Vec<u32> =
                served_by.iter().flat_map(|&of| nodes[of as usize].local.clone()).collect();
            serving.sort_unstable();
            let node = &mut nodes[index as usize];
            (node.served_by, node.serving) = (served_by, serving);
        }
        Ok(Topology { nodes, ..self.clone() })
    }

    /// What the kernel says and makes no sense, and what is taken for it; a line each.
    pub fn remarks(&self) -> &[String] {
        &self.remarks
    }

    /// Which of these nodes are nearest to a CPU, by their places in `nodes`; several where they
    /// are equally near.
    pub fn nearest(&self, cpu: u32, nodes: &[u32]) -> Vec<usize> {
        let from = self.node_of_cpu(cpu).unwrap_or_else(|| self.first_with_cpus());
        let rank = |to: u32| {
            let is = |is: fn(&Node, u32) -> bool| self.node(to).is_some_and(|node| is(node, from));
            let is_anywhere = is(|node, from| node.is_anywhere && !node.initiators.contains(&from));
            let is_served = is(|node, from| node.served_by.contains(&from));
            let distance = self.distance(from, to).unwrap_or(u32::MAX);
            (to != from, is_anywhere, !is_served, distance)
        };
        let least = nodes.iter().map(|to| rank(*to)).min();
        let places = nodes.iter().enumerate().filter(|(_, to)| Some(rank(**to)) == least);
        places.map(|(place, _)| place).collect()
    }

    /// The nodes with CPUs that this process may use; at least one.
    pub fn with_cpus(&self) -> impl Iterator<Item = u32> {
        let nodes = (0..).zip(&self.nodes);
        nodes.filter(|(_, node)| !node.local.is_empty()).map(|(index, _)| index)
    }

    fn first_with_cpus(&self) -> u32 {
        self.with_cpus().next().unwrap_or(0)
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
    /// time. A CPU that came online after the reading counts to the first node with CPUs.
    #[inline]
    pub fn current_node(&self) -> u32 {
        self.node_of_cpu(current_cpu()).unwrap_or_else(|| self.first_with_cpus())
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
        Node::of(0, 0, 1)
    }

    /// One of which nothing is known but its place among `count`.
    pub fn of(id: u32, index: usize, count: usize) -> Node {
        Node {
            id,
            local: Vec::new(),
            served_by: Vec::new(),
            serving: Vec::new(),
            distances: default_distances(index, count),
            memory_bytes: None,
            initiators: Vec::new(),
            is_anywhere: false,
        }
    }

    fn all(dirs: Vec<NodeDir>) -> Vec<Node> {
        let count = dirs.len();
        let has_cpus: Vec<bool> = dirs.iter().map(|dir| !dir.cpus.is_empty()).collect();
        let ids: Vec<u32> = dirs.iter().map(|dir| dir.id).collect();
        let index_of = |id: u32| ids.binary_search(&id).ok().map(|index| index as u32);
        let node = |(index, dir): (usize, NodeDir)| {
            let unknown = Node::of(dir.id, index, count);
            let distances = dir.distances.filter(|row| row.len() == count);
            Node {
                distances: distances.unwrap_or(unknown.distances),
                memory_bytes: dir.memory_bytes,
                initiators: dir.initiators.into_iter().filter_map(index_of).collect(),
                ..unknown
            }
        };
        let mut nodes: Vec<Node> = dirs.into_iter().enumerate().map(node).collect();
        let with_cpus: Vec<usize> = (0..count).filter(|index| has_cpus[*index]).collect();
        let is_default = |from: usize, to: usize| nodes[from].distances[to] == DISTANCE_REMOTE;
        let all_default = |to: usize| {
            with_cpus.iter().filter(|from| **from != to).all(|&from| is_default(from, to))
        };
        let says_more = !with_cpus.iter().all(|to| all_default(*to));
        let anywhere: Vec<bool> =
            (0..count).map(|index| says_more && !has_cpus[index] && all_default(index)).collect();
        for (node, is_anywhere) in nodes.iter_mut().zip(anywhere) {
            node.is_anywhere = is_anywhere;
        }
        nodes
    }
}

/// Indices of the nodes whose CPUs serve this one; some node has CPUs.
fn who_serves(nodes: &[Node], index: u32) -> Vec<u32> {
    let has_cpus = |of: &u32| !nodes[*of as usize].local.is_empty();
    if has_cpus(&index) {
        return vec![index];
    }
    let fastest: Vec<u32> =
        nodes[index as usize].initiators.iter().copied().filter(has_cpus).collect();
    if !fastest.is_empty() {
        return fastest;
    }
    // as their CPUs see it
    let distance = |of: &u32| nodes[*of as usize].distances[index as usize];
    let all = || (0..nodes.len() as u32).filter(has_cpus);
    let least = all().map(|of| distance(&of)).min();
    all().filter(|of| Some(distance(of)) == least).collect()
}

/// A row of the distance table where nothing is known.
fn default_distances(from: usize, count: usize) -> Vec<u32> {
    let distance = |to| if to == from { DISTANCE_LOCAL } else { DISTANCE_REMOTE };
    (0..count).map(distance).collect()
}
