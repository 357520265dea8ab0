//! Which slices lie on which nodes, and which slice is near each CPU.

use crate::error::Result;
use crate::options::OpenOptions;
use crate::slice::Candidate;
use topology::{Topology, place_of};

/// The nodes of the machine, or the virtual ones that the pool was made for, and the slices on
/// them.
///
/// A slice whose node is not known, or is not there, is dealt a node with CPUs by its place in the
/// pool. Which slice is near a CPU, distances say (`topology`); of slices that are equally near,
/// CPUs take turns.
#[derive(Debug)]
pub struct Nodes {
    topology: Topology,
    /// Index of each slice's node.
    of_slice: Vec<u32>,
    /// Slices of each node.
    slices: Vec<Vec<u8>>,
    /// Slice near each CPU.
    near: Vec<u8>,
    /// By slice, whether each CPU serves its node.
    local: Vec<Vec<bool>>,
}

impl Nodes {
    pub(crate) fn new(candidates: &[Candidate], options: &OpenOptions) -> Result<Nodes> {
        let ids = candidates.iter().map(|candidate| candidate.superblock.node.get());
        if let Some(emulated) = &options.emulated {
            return Ok(Nodes::with_ids(emulated.topology(), ids));
        }
        let machine = match &options.machine {
            Some(known) => Topology::clone(known),
            None => Topology::system()?,
        };
        let asked = candidates.first().map_or(0, |c| c.superblock.virtual_nodes.get());
        let topology = if asked == 0 { machine } else { machine.with_virtual_nodes(asked)? };
        Ok(Nodes::with_ids(topology, ids))
    }

    /// Slices that lie on nodes with these kernel ids, as far as such nodes are there.
    fn with_ids(topology: Topology, ids: impl Iterator<Item = u32>) -> Nodes {
        let with_cpus: Vec<u32> = topology.with_cpus().collect();
        let dealt = |index: usize| with_cpus.get(index % with_cpus.len().max(1)).copied();
        let known = |id| topology.node_of_kernel_id(id).filter(|_| !topology.is_virtual());
        let of_slice: Vec<u32> = ids
            .zip(0usize..)
            .map(|(id, index)| known(id).or_else(|| dealt(index)).unwrap_or(0))
            .collect();
        let on = |node: u32| {
            let all = of_slice.iter().zip(0u8..=u8::MAX);
            all.filter(|(of, _)| **of == node).map(|(_, slice)| slice).collect()
        };
        let slices: Vec<Vec<u8>> = (0..topology.node_count()).map(on).collect();
        let all = topology.all_cpus();
        let cpus = all.iter().max().map_or(1, |last| last + 1);
        let near = (0..cpus).map(|cpu| {
            let nearest = topology.nearest(cpu, &of_slice);
            let node = topology.node_of_cpu(cpu).filter(|node| of_slice.contains(node));
            // those of other nodes come to the same slices
            let takers = node.map_or(&all[..], |node| topology.local_cpus(node));
            let turn = takers.iter().position(|it| *it == cpu).unwrap_or(cpu as usize);
            nearest.get(turn % nearest.len().max(1)).map_or(0, |slice| *slice as u8)
        });
        let near = near.collect();
        let serves = |node: &u32| {
            let serving = topology.cpus(*node);
            (0..cpus).map(|cpu| serving.contains(&cpu)).collect()
        };
        let local = of_slice.iter().map(serves).collect();
        Nodes { local, topology, of_slice, slices, near }
    }

    /// The machine.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// CPUs that are told apart.
    pub fn cpus(&self) -> usize {
        self.near.len()
    }

    /// The slice nearest to a CPU.
    #[inline]
    pub fn near(&self, cpu: usize) -> u8 {
        self.near[place_of(cpu, self.near.len())]
    }

    /// CPUs that serve the node of a slice.
    pub fn cpus_near(&self, slice: u8) -> &[u32] {
        let node = self.of_slice.get(usize::from(slice));
        node.map_or(&[], |node| self.topology.cpus(*node))
    }

    /// Whether a CPU serves the node of a slice: it is on it, or it is of the nearest that has any.
    pub fn is_local(&self, cpu: usize, slice: u8) -> bool {
        let cpus = self.local.get(usize::from(slice));
        cpus.is_some_and(|cpus| cpus[place_of(cpu, cpus.len())])
    }

    /// Whether some CPU that may be used is on another node than some slice.
    pub fn are_apart(&self) -> bool {
        let all = self.topology.all_cpus();
        self.local.iter().any(|cpus| all.iter().any(|cpu| !cpus[*cpu as usize]))
    }

    /// The node that a slice lies on, as the kernel numbers nodes; of virtual ones, its index.
    pub fn of(&self, slice: u8) -> Option<u32> {
        self.topology.kernel_id(*self.of_slice.get(usize::from(slice))?)
    }

    /// The slices on the node that the kernel numbers so.
    pub fn slices_on(&self, node: u32) -> &[u8] {
        let index = self.topology.node_of_kernel_id(node);
        index.and_then(|index| self.slices.get(index as usize)).map_or(&[], Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(count: u32, slices: usize) -> Nodes {
        let machine = Topology::system().unwrap().with_virtual_nodes(count).unwrap();
        Nodes::with_ids(machine, std::iter::repeat_n(u32::MAX, slices))
    }

    #[test]
    fn slices_without_a_node_are_dealt_over_all() {
        let nodes = nodes(2, 5);
        assert_eq!((nodes.slices_on(0), nodes.slices_on(1)), (&[0, 2, 4][..], &[1, 3][..]));
        assert_eq!(nodes.slices_on(2), &[] as &[u8]);
        assert_eq!((nodes.of(3), nodes.of(4), nodes.of(5)), (Some(1), Some(0), None));
    }

    #[test]
    fn each_cpu_is_near_a_slice_of_its_node() {
        for (count, slices) in [(1, 1), (1, 3), (2, 2), (2, 5), (4, 2), (8, 3)] {
            let nodes = nodes(count, slices);
            for cpu in 0..nodes.cpus() {
                let near = nodes.near(cpu);
                assert!(usize::from(near) < slices);
                let own = nodes.topology().node_of_cpu(cpu as u32).unwrap_or(0);
                let on_own = nodes.slices_on(own);
                assert!(on_own.is_empty() || on_own.contains(&near), "{count} {slices} {cpu}");
            }
        }
    }

    #[test]
    fn cpus_without_a_slice_on_their_node_take_turns() {
        // four nodes of two CPUs, of which two have a slice
        let machine = Topology::described(4, 2).unwrap();
        let nodes = Nodes::with_ids(machine, std::iter::repeat_n(u32::MAX, 2));
        let near: Vec<u8> = (0..8).map(|cpu| nodes.near(cpu)).collect();
        assert_eq!(near, [0, 0, 1, 1, 0, 1, 0, 1]);
        // slices that are on one node are its CPUs' by turns
        let machine = Topology::described(1, 4).unwrap();
        let nodes = Nodes::with_ids(machine, std::iter::repeat_n(u32::MAX, 2));
        let near: Vec<u8> = (0..4).map(|cpu| nodes.near(cpu)).collect();
        assert_eq!(near, [0, 1, 0, 1]);
    }

    #[test]
    fn a_slice_is_local_to_the_cpus_that_serve_its_node() {
        let nodes = nodes(2, 1);
        let cpus = nodes.topology().all_cpus();
        let on_first = nodes.topology().cpus(0).to_vec();
        for cpu in &cpus {
            assert_eq!(nodes.is_local(*cpu as usize, 0), on_first.contains(cpu));
        }
        // the one slice is far from those of the other node, though it is all that they have
        assert_eq!(nodes.are_apart(), cpus.len() > 1);
        assert!(!self::nodes(1, 3).are_apart());
        assert!(!nodes.is_local(0, 7), "there is no such slice");
    }
}
