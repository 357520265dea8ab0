//! Topologies read from made-up sysfs trees.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use tempfile::TempDir;
use topology::{Error, NODE_LIMIT, Topology};

/// A sysfs tree out of (path below devices/system, content).
fn sysfs(files: &[(&str, &str)]) -> TempDir {
    let root = tempfile::tempdir().unwrap();
    for (path, content) in files {
        let path = root.path().join("devices/system").join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }
    root
}

fn read(files: &[(&str, &str)]) -> topology::Result<Topology> {
    Topology::read(sysfs(files).path())
}

const TWO_NODES: &[(&str, &str)] = &[
    ("cpu/online", "0-7\n"),
    ("node/online", "0-1\n"),
    ("node/node0/cpulist", "0-3\n"),
    ("node/node0/distance", "10 21\n"),
    ("node/node0/meminfo", "Node 0 MemTotal:       1024 kB\nNode 0 MemFree: 1 kB\n"),
    ("node/node1/cpulist", "4-7\n"),
    ("node/node1/distance", "21 10\n"),
    ("node/node1/meminfo", "Node 1 MemTotal:       2048 kB\n"),
];

/// Node 3 is memory without CPUs, as CXL shows itself; nodes 0 and 2 have them. Ids have gaps.
const FOUR_NODES: &[(&str, &str)] = &[
    ("cpu/online", "0-5\n"),
    ("node/online", "0,2-3,5\n"),
    ("node/node0/cpulist", "0-1\n"),
    ("node/node0/distance", "10 20 31 20\n"),
    ("node/node2/cpulist", "2-3\n"),
    ("node/node2/distance", "20 10 14 20\n"),
    ("node/node3/cpulist", "\n"),
    ("node/node3/distance", "31 14 10 31\n"),
    ("node/node5/cpulist", "4-5\n"),
    ("node/node5/distance", "20 20 31 10\n"),
];

fn with<'a>(base: &[(&'a str, &'a str)], path: &'a str, content: &'a str) -> TempDir {
    let mut files: Vec<_> = base.iter().copied().filter(|file| file.0 != path).collect();
    files.push((path, content));
    sysfs(&files)
}

#[test]
fn two_nodes() {
    let t = read(TWO_NODES).unwrap();
    assert_eq!(t.node_count(), 2);
    assert!(!t.is_virtual());
    assert_eq!(t.cpus(0), [0, 1, 2, 3]);
    assert_eq!(t.cpus(1), [4, 5, 6, 7]);
    assert_eq!(t.node_of_cpu(3), Some(0));
    assert_eq!(t.node_of_cpu(4), Some(1));
    assert_eq!(t.node_of_cpu(8), None);
    assert_eq!(t.distance(0, 1), Some(21));
    assert_eq!(t.distance(1, 1), Some(10));
    assert_eq!(t.memory_bytes(0), Some(1 << 20));
    assert_eq!(t.memory_bytes(1), Some(2 << 20));
    assert_eq!(t.all_cpus(), (0..8).collect::<Vec<_>>());
}

#[test]
fn a_node_that_does_not_exist_has_nothing() {
    let t = read(TWO_NODES).unwrap();
    assert!(t.cpus(2).is_empty());
    assert_eq!(t.kernel_id(u32::MAX), None);
    assert_eq!(t.distance(0, 2), None);
    assert_eq!(t.distance(2, 0), None);
    assert_eq!(t.memory_bytes(2), None);
}

#[test]
fn a_node_without_cpus_is_served_by_the_nearest() {
    let t = read(FOUR_NODES).unwrap();
    assert_eq!(t.node_count(), 4);
    assert_eq!(t.node_of_kernel_id(3), Some(2));
    assert_eq!(t.kernel_id(3), Some(5));
    assert!(t.local_cpus(2).is_empty());
    assert_eq!(t.cpus(2), [2, 3]);
    assert_eq!(t.node_of_cpu(2), Some(1));
    assert_eq!(t.node_of_kernel_id(1), None);
}

#[test]
fn offline_cpus_serve_nobody() {
    let root = with(TWO_NODES, "cpu/online", "0,4-5");
    let t = Topology::read(root.path()).unwrap();
    assert_eq!(t.cpus(0), [0]);
    assert_eq!(t.cpus(1), [4, 5]);
    assert_eq!(t.node_of_cpu(1), None);
    assert_eq!(t.node_of_cpu(7), None);
}

#[test]
fn a_mask_narrows_the_cpus_but_not_the_nodes() {
    let t = read(FOUR_NODES).unwrap().restricted_to(&[5, 1, 1, 900]).unwrap();
    assert_eq!(t.node_count(), 4);
    assert_eq!(t.cpus(0), [1]);
    assert_eq!(t.cpus(1), [1, 5], "equally far from both that are left");
    assert_eq!(t.cpus(2), [1, 5]);
    assert_eq!(t.cpus(3), [5]);
    assert_eq!(t.all_cpus(), [1, 5]);
    assert_eq!(t.node_of_cpu(2), Some(1), "a CPU lies where it lies, allowed or not");
}

#[test]
fn a_mask_without_a_known_cpu_is_an_error() {
    let t = read(TWO_NODES).unwrap();
    assert!(matches!(t.restricted_to(&[]), Err(Error::NoCpus)));
    assert!(matches!(t.restricted_to(&[8, u32::MAX]), Err(Error::NoCpus)));
}

#[test]
fn no_node_directory_means_one_node() {
    let t = read(&[("cpu/online", "0-3,6\n")]).unwrap();
    assert_eq!(t.node_count(), 1);
    assert_eq!(t.cpus(0), [0, 1, 2, 3, 6]);
    assert_eq!(t.distance(0, 0), Some(10));
    assert_eq!(t.memory_bytes(0), None);
    assert_eq!(t.node_of_cpu(5), None);
}

#[test]
fn an_empty_sysfs_means_one_node_with_our_own_cpus() {
    let t = Topology::read(Path::new("/nonexistent")).unwrap();
    assert_eq!(t.node_count(), 1);
    assert_eq!(t.cpus(0), topology::allowed_cpus().unwrap());
}

#[test]
fn nodes_without_a_list_of_online_cpus() {
    let files: Vec<_> = TWO_NODES.iter().copied().filter(|f| f.0 != "cpu/online").collect();
    assert_eq!(read(&files).unwrap().cpus(1), [4, 5, 6, 7]);
}

#[test]
fn a_cpu_of_no_node_lies_on_the_first() {
    let root = with(TWO_NODES, "cpu/online", "0-8");
    let t = Topology::read(root.path()).unwrap();
    assert_eq!(t.node_of_cpu(8), Some(0));
    assert_eq!(t.cpus(0), [0, 1, 2, 3, 8]);
}

#[test]
fn a_distance_row_of_the_wrong_length_falls_back() {
    let root = with(TWO_NODES, "node/node1/distance", "10\n");
    let t = Topology::read(root.path()).unwrap();
    assert_eq!((t.distance(1, 0), t.distance(1, 1)), (Some(20), Some(10)));
    assert_eq!(t.distance(0, 1), Some(21));
}

#[test]
fn garbage_is_taken_for_missing_and_named() {
    let huge = "0,".repeat(1 << 20);
    let garbage = [
        ("cpu/online", "0-4294967295"),
        ("cpu/online", "zero"),
        ("cpu/online", huge.as_str()),
        ("node/online", "0-1000,1024"),
        ("node/node1/cpulist", "0-7"),
        ("node/node0/distance", "10 -1"),
        ("node/node0/distance", "0 0"),
        ("node/node0/distance", "10 4294967296"),
        ("node/node0/meminfo", "Node 0 MemTotal: lots kB"),
        ("node/node0/meminfo", "Node 0 MemTotal: 18446744073709551615 kB"),
    ];
    for (path, content) in garbage {
        let root = with(TWO_NODES, path, content);
        let t = Topology::read(root.path()).unwrap();
        assert_eq!((t.cpus(0), t.cpus(1)), (&[0, 1, 2, 3][..], &[4, 5, 6, 7][..]), "{path}");
        assert_eq!(t.memory_bytes(0).is_none(), path.ends_with("meminfo"), "{path}");
        let is_default = path.ends_with("distance");
        assert_eq!(t.distance(0, 1), Some(if is_default { 20 } else { 21 }), "{path}");
        let [remark] = t.remarks() else { panic!("{path}: {:?}", t.remarks()) };
        let file = path.trim_start_matches("node/").trim_start_matches("cpu/");
        assert!(remark.contains(file), "{path}: {remark}");
    }
    let garbage = [("node/online", "x"), ("node/node0/cpulist", "3-0")];
    for (path, content) in garbage {
        let t = Topology::read(with(TWO_NODES, path, content).path()).unwrap();
        assert_eq!(t.all_cpus(), (0..8).collect::<Vec<_>>(), "{path}");
        assert!(t.remarks()[0].contains(path), "{:?}", t.remarks());
    }
}

#[test]
fn a_file_that_cannot_be_read_is_taken_for_missing_and_named() {
    let root = sysfs(TWO_NODES);
    let path = root.path().join("devices/system/cpu/online");
    std::fs::write(&path, [0xff, 0xfe]).unwrap();
    let read = || Topology::read(root.path()).unwrap();
    assert_eq!(read().all_cpus(), (0..8).collect::<Vec<_>>());
    assert!(read().remarks()[0].ends_with("cpu/online: not text"), "{:?}", read().remarks());
    // nobody may read a directory as a file, not even root
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    assert_eq!(read().all_cpus(), (0..8).collect::<Vec<_>>());
    assert!(read().remarks()[0].contains("cpu/online: Is a directory"), "{:?}", read().remarks());
    let path = root.path().join("devices/system/node/online");
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    let t = read();
    assert_eq!((t.node_count(), t.cpus(0)), (1, &topology::allowed_cpus().unwrap()[..]));
    assert_eq!(t.remarks().len(), 2, "{:?}", t.remarks());
}

#[test]
fn no_cpu_at_all_is_an_error() {
    assert!(matches!(read(&[("cpu/online", "\n")]), Err(Error::NoCpus)));
}

#[test]
fn virtual_nodes_share_out_the_cpus() {
    let t = read(TWO_NODES).unwrap().with_virtual_nodes(3).unwrap();
    assert!(t.is_virtual());
    assert_eq!(t.cpus(0), [0, 3, 6]);
    assert_eq!(t.cpus(1), [1, 4, 7]);
    assert_eq!(t.cpus(2), [2, 5]);
    for node in 0..3 {
        assert!(t.cpus(node).iter().all(|&cpu| t.node_of_cpu(cpu) == Some(node)));
    }
    assert_eq!(t.distance(0, 2), Some(20));
    assert_eq!(t.distance(2, 2), Some(10));
    assert_eq!(t.memory_bytes(1), Some(1 << 20));
}

#[test]
fn more_virtual_nodes_than_cpus_share_them() {
    let t = read(&[("cpu/online", "2,5")]).unwrap().with_virtual_nodes(5).unwrap();
    let served: Vec<u32> = (0..5).map(|node| t.cpus(node)[0]).collect();
    assert_eq!(served, [2, 5, 2, 5, 2]);
    assert_eq!((t.node_of_cpu(2), t.node_of_cpu(5)), (Some(0), Some(1)));
    assert_eq!(t.all_cpus(), [2, 5]);
}

#[test]
fn virtual_nodes_deal_only_what_the_mask_allows() {
    let t = read(TWO_NODES).unwrap().restricted_to(&[1, 6]).unwrap();
    let t = t.with_virtual_nodes(2).unwrap();
    assert_eq!((t.cpus(0), t.cpus(1)), (&[1][..], &[6][..]));
    assert_eq!(t.node_of_cpu(7), Some(1), "outside the mask: by its number");
}

#[test]
fn an_absurd_number_of_virtual_nodes_is_refused() {
    let t = read(TWO_NODES).unwrap();
    for count in [0, NODE_LIMIT + 1, u32::MAX] {
        assert!(matches!(t.with_virtual_nodes(count), Err(Error::VirtualNodes { .. })));
    }
    assert_eq!(t.with_virtual_nodes(NODE_LIMIT).unwrap().node_count(), NODE_LIMIT);
}
