//! Stored machines: what their sysfs says, and who serves which node and which slice is nearest to
//! which CPU there.
//!
//! The descriptions beside this file are made from what is published of each machine: numbers of
//! nodes and CPUs, distances, initiators. A line is one of:
//!
//! ```text
//! machine NAME                              begins one
//! from WORDS                                where its numbers are from
//! online LIST                               CPUs
//! node ID cpus LIST memory MIB to D...      a node, its distances in order of ids; `by ID...`:
//!                                           who reaches its memory fastest, of CPUs (HMAT)
//! file PATH = TEXT                          instead of what follows from the above; `\0`: a zero
//! no PATH                                   it is not there
//! mask LIST                                 CPUs that the process may use
//! = serves ID LIST                          then these CPUs serve the node
//! = near LIST slices ID... is ID...         of slices there those are nearest to these CPUs
//! = nodes COUNT
//! = remark WORDS                            there is a remark with these words, and no other
//! ```
//!
//! `-` is the empty list.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::path::Path;

use topology::{Topology, parse_cpulist};

const STORED: [(&str, &str); 5] = [
    ("x86", include_str!("x86.txt")),
    ("memory", include_str!("memory.txt")),
    ("power", include_str!("power.txt")),
    ("arm", include_str!("arm.txt")),
    ("odd", include_str!("odd.txt")),
];

/// A machine as it is described.
#[derive(Default)]
struct Described<'t> {
    name: &'t str,
    source: &'t str,
    files: BTreeMap<String, String>,
    /// Links to nodes.
    initiators: Vec<(String, u32)>,
    mask: Option<Vec<u32>>,
    expected: Vec<&'t str>,
}

fn list(text: &str) -> Vec<u32> {
    parse_cpulist(text.trim_matches('-')).unwrap()
}

fn numbers<'t>(words: impl Iterator<Item = &'t str>) -> Vec<u32> {
    words.map(|word| word.parse().unwrap()).collect()
}

/// The words of a line between these two.
fn between<'t>(line: &'t str, one: &str, other: &str) -> &'t str {
    let (_, rest) = line.split_once(one).unwrap_or_else(|| panic!("no {one:?}: {line}"));
    rest.split_once(other).map_or(rest, |(words, _)| words).trim()
}

impl<'t> Described<'t> {
    fn node(&mut self, line: &str) {
        let id: u32 = line.split(' ').next().unwrap().parse().unwrap();
        let dir = format!("devices/system/node/node{id}");
        let mut put = |name: &str, text: String| {
            self.files.insert(format!("{dir}/{name}"), text + "\n");
        };
        let cpus = between(line, "cpus ", "memory ");
        put("cpulist", if cpus == "-" { String::new() } else { cpus.to_owned() });
        let kib = between(line, "memory ", "to ").parse::<u64>().unwrap() << 10;
        put("meminfo", format!("Node {id} MemTotal: {kib} kB"));
        put("distance", between(line, "to ", "by ").to_owned());
        if let Some((_, by)) = line.split_once(" by ") {
            let ids = numbers(by.split(' '));
            self.initiators.extend(ids.into_iter().map(|by| (dir.clone(), by)));
        }
    }

    fn line(&mut self, line: &'t str) {
        let (word, rest) = line.split_once(' ').unwrap();
        match word {
            "from" => self.source = rest,
            "online" => {
                self.files.insert("devices/system/cpu/online".into(), format!("{rest}\n"));
            }
            "node" => self.node(rest),
            "file" => {
                let (path, text) = rest.split_once(" = ").unwrap();
                let text = text.replace("\\0", "\0");
                self.files.insert(format!("devices/system/{path}"), text + "\n");
            }
            "no" => drop(self.files.remove(&format!("devices/system/{rest}")).unwrap()),
            "mask" => self.mask = Some(list(rest)),
            "=" => self.expected.push(rest),
            other => panic!("{other} is no word here: {line}"),
        }
    }

    /// All machines of a text.
    fn all(text: &'t str) -> Vec<Described<'t>> {
        let mut all: Vec<Described<'t>> = Vec::new();
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
            match line.strip_prefix("machine ") {
                Some(name) => all.push(Described { name, ..Described::default() }),
                None => all.last_mut().unwrap().line(line),
            }
        }
        all
    }

    /// Makes its sysfs below `root`.
    fn make(&self, root: &Path) {
        let mut files = self.files.clone();
        let ids = files.keys().filter_map(|path| path.strip_suffix("/cpulist"));
        let mut ids = numbers(ids.map(|path| path.rsplit_once("node").unwrap().1));
        ids.sort_unstable();
        let ids = ids.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
        if !ids.is_empty() {
            files.entry("devices/system/node/online".into()).or_insert(ids + "\n");
        }
        for (path, text) in &files {
            let path = root.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        for (dir, by) in &self.initiators {
            let dir = root.join(dir).join("access1/initiators");
            std::fs::create_dir_all(dir.join(format!("node{by}"))).unwrap();
        }
    }

    fn read(&self) -> Topology {
        let root = tempfile::tempdir().unwrap();
        self.make(root.path());
        let all = Topology::read(root.path()).unwrap();
        match &self.mask {
            None => all,
            Some(mask) => all.restricted_to(mask).unwrap(),
        }
    }

    fn check(&self, topology: &Topology) {
        let index = |id: u32| topology.node_of_kernel_id(id).unwrap();
        let mut remarks = 0;
        for line in &self.expected {
            let what = format!("{}: {line}; {:?}", self.name, topology.remarks());
            let (word, rest) = line.split_once(' ').unwrap();
            match word {
                "serves" => {
                    let (id, cpus) = rest.split_once(' ').unwrap();
                    assert_eq!(topology.cpus(index(id.parse().unwrap())), list(cpus), "{what}");
                }
                "near" => {
                    let slices = numbers(between(rest, "slices ", "is ").split(' '));
                    let expected = numbers(between(rest, "is ", "\n").split(' '));
                    let nodes: Vec<u32> = slices.iter().map(|id| index(*id)).collect();
                    for cpu in list(rest.split(' ').next().unwrap()) {
                        let near = topology.nearest(cpu, &nodes);
                        let near: Vec<u32> = near.into_iter().map(|at| slices[at]).collect();
                        assert_eq!(near, expected, "CPU {cpu}; {what}");
                    }
                }
                "nodes" => assert_eq!(topology.node_count().to_string(), rest, "{what}"),
                "remark" => {
                    assert!(topology.remarks().iter().any(|it| it.contains(rest)), "{what}");
                    remarks += 1;
                }
                other => panic!("{other} is no word here"),
            }
        }
        assert_eq!(topology.remarks().len(), remarks, "{}: {:?}", self.name, topology.remarks());
    }
}

/// What is so on every machine, whatever it says.
fn holds_everywhere(name: &str, topology: &Topology) {
    let (cpus, count) = (topology.all_cpus(), topology.node_count());
    assert!(count > 0 && !cpus.is_empty(), "{name}");
    for node in 0..count {
        let serving = topology.cpus(node);
        assert!(!serving.is_empty() && serving.is_sorted(), "{name}: node {node}");
        assert!(serving.iter().all(|cpu| cpus.contains(cpu)), "{name}: node {node}");
        let local = topology.local_cpus(node);
        assert!(local.is_empty() || local == serving, "{name}: node {node}");
    }
    let all: Vec<u32> = (0..count).collect();
    for cpu in cpus {
        let own = topology.node_of_cpu(cpu).unwrap();
        assert_eq!(topology.nearest(cpu, &all), [own as usize], "{name}: CPU {cpu}");
        // whatever the order in which slices were given
        let reversed: Vec<u32> = all.iter().rev().copied().filter(|node| *node != own).collect();
        let forward: Vec<u32> = reversed.iter().rev().copied().collect();
        let named = |nodes: &[u32]| {
            let near = topology.nearest(cpu, nodes).into_iter().map(|at| nodes[at]);
            near.collect::<std::collections::BTreeSet<u32>>()
        };
        assert_eq!(named(&reversed), named(&forward), "{name}: CPU {cpu}");
    }
}

#[test]
fn stored_machines_are_served_by_who_is_near() {
    let mut names = Vec::new();
    for (file, text) in STORED {
        for machine in Described::all(text) {
            assert!(!machine.source.is_empty() && !machine.expected.is_empty(), "{}", machine.name);
            let topology = machine.read();
            machine.check(&topology);
            holds_everywhere(machine.name, &topology);
            names.push(format!("{file}: {}", machine.name));
        }
    }
    println!("{} machines:\n{}", names.len(), names.join("\n"));
    assert!(names.len() >= 40, "{}", names.len());
}
