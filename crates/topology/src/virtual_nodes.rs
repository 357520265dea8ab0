//! Virtual nodes: several nodes on a machine that has fewer, so that everything made for many
//! nodes runs, and is tested, on one.

use crate::machine::Node;
use crate::{CPU_LIMIT, Error, NODE_LIMIT, Result, Topology};

impl Topology {
    /// This machine's usable CPUs dealt round-robin over `count` nodes: the first to node 0, the
    /// second to node 1, and so on. With more nodes than CPUs, CPUs serve several nodes, and
    /// each lies on the first of those. Memory is divided evenly where all of it is known.
    pub fn with_virtual_nodes(&self, count: u32) -> Result<Topology> {
        if count == 0 || count > NODE_LIMIT {
            return Err(Error::VirtualNodes { asked: count });
        }
        let cpus = self.all_cpus();
        let memory_bytes = self.memory_in_all().map(|bytes| bytes / u64::from(count));
        let node = |index: u32| {
            let dealt = deal(&cpus, index as usize, count as usize);
            Node { memory_bytes, ..with_own_cpus(index, count, dealt) }
        };
        let nodes = (0..count).map(node).collect();
        let node_of_cpu = self.virtual_table(&cpus, count);
        Ok(Topology { nodes, node_of_cpu, is_virtual: true, remarks: self.remarks.clone() })
    }

    /// A machine that is not here: `count` nodes with so many CPUs each, numbered one node after
    /// the other. Threads of it say where they run: [`crate::assume_cpu`].
    pub fn described(count: u32, cpus: u32) -> Result<Topology> {
        if count == 0 || count > NODE_LIMIT {
            return Err(Error::VirtualNodes { asked: count });
        }
        if cpus == 0 || cpus > CPU_LIMIT / count {
            return Err(Error::NoCpus);
        }
        let node =
            |index: u32| with_own_cpus(index, count, (index * cpus..(index + 1) * cpus).collect());
        let node_of_cpu = (0..count * cpus).map(|cpu| cpu / cpus).collect();
        let (nodes, remarks) = ((0..count).map(node).collect(), Vec::new());
        Ok(Topology { nodes, node_of_cpu, is_virtual: true, remarks })
    }

    /// A thread may find itself on an online CPU outside the usable ones (its mask was widened
    /// later): such a CPU counts as dealt by its own number.
    fn virtual_table(&self, cpus: &[u32], count: u32) -> Vec<u32> {
        let mut table = self.node_of_cpu.clone();
        for cpu in (0..table.len() as u32).filter(|&cpu| self.node_of_cpu(cpu).is_some()) {
            table[cpu as usize] = cpu % count;
        }
        for (&cpu, node) in cpus.iter().zip((0..count).cycle()) {
            table[cpu as usize] = node;
        }
        table
    }

    fn memory_in_all(&self) -> Option<u64> {
        self.nodes.iter().try_fold(0u64, |sum, node| sum.checked_add(node.memory_bytes?))
    }
}

/// Node `index` out of `count`, with CPUs of its own.
fn with_own_cpus(index: u32, count: u32, cpus: Vec<u32>) -> Node {
    let node = Node::of(index, index as usize, count as usize);
    Node { served_by: vec![index], local: cpus.clone(), serving: cpus, ..node }
}

/// The CPUs of node `index` out of `count`; never empty, as `cpus` is not.
fn deal(cpus: &[u32], index: usize, count: usize) -> Vec<u32> {
    if index < cpus.len() {
        cpus.iter().copied().skip(index).step_by(count).collect()
    } else {
        vec![cpus[index % cpus.len()]]
    }
}
