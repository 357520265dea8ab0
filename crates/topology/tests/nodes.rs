//! The nodes of the machine that the tests run on, against what its sysfs shows in another way.
//!
//! scripts/guest runs this on a machine of two nodes, and says so in NEARSIDE_NODES.

use std::path::{Path, PathBuf};
use topology::{Topology, current_cpu, pin_current_thread};

/// Kernel ids of the nodes, by the names of their directories; none on a kernel without nodes.
fn node_ids() -> Vec<u32> {
    let Ok(entries) = Path::new("/sys/devices/system/node").read_dir() else { return Vec::new() };
    let id = |name: &str| name.strip_prefix("node").and_then(|id| id.parse().ok());
    let mut ids: Vec<u32> =
        entries.flatten().filter_map(|entry| id(entry.file_name().to_str()?)).collect();
    ids.sort_unstable();
    ids
}

/// The node to which the CPU's own directory links.
fn linked_node(cpu: u32) -> Option<u32> {
    let directory = PathBuf::from(format!("/sys/devices/system/cpu/cpu{cpu}"));
    node_ids().into_iter().find(|id| directory.join(format!("node{id}")).exists())
}

#[test]
fn every_cpu_lies_on_the_node_that_its_own_directory_links_to() {
    let topology = Topology::system().unwrap();
    let ids = node_ids();
    assert_eq!(topology.node_count() as usize, ids.len().max(1));
    for cpu in topology.all_cpus() {
        let linked = linked_node(cpu).and_then(|id| topology.node_of_kernel_id(id));
        assert_eq!(topology.node_of_cpu(cpu), Some(linked.unwrap_or(0)), "CPU {cpu}");
    }
}

#[test]
fn the_machine_has_as_many_nodes_as_we_were_told() {
    let topology = Topology::system().unwrap();
    let told = std::env::var("NEARSIDE_NODES").ok().map(|count| count.parse().unwrap());
    let count: u32 = told.unwrap_or(node_ids().len().max(1) as u32);
    assert_eq!(topology.node_count(), count);
    for node in 0..count {
        assert_eq!(topology.distance(node, node), Some(10));
        for other in (0..count).filter(|other| *other != node) {
            assert!(topology.distance(node, other).unwrap() > 10, "{node} to {other}");
        }
    }
}

#[test]
fn a_thread_pinned_to_a_node_finds_itself_there() {
    let topology = Topology::system().unwrap();
    for node in 0..topology.node_count() {
        let before = pin_current_thread(topology.cpus(node)).unwrap();
        assert!(topology.cpus(node).contains(&current_cpu()));
        let served = topology.node_of_cpu(current_cpu());
        assert_eq!(topology.current_node(), served.unwrap());
        pin_current_thread(&before).unwrap();
    }
}
