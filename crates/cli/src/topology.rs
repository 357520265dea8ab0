//! `nearside topology`: what the machine is like, as far as slices care.

use std::path::Path;

use ::topology::{PmDevice, Topology, pm_devices};
use clap::Args;
use serde::Serialize;

use crate::error::{Error, Result};
use crate::output;
use crate::size::show;

/// Arguments of `topology`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  nearside topology
  nearside topology --virtual-nodes 4
  nearside topology --json

Nodes and CPUs are those that this process may use. A node without CPUs (CXL memory) is served by
those of the nearest node. Distances are the firmware's: 10 is local.")]
pub struct TopologyArgs {
    /// Show so many virtual nodes instead, as `format --virtual-nodes` makes them.
    #[arg(long, value_name = "N")]
    pub virtual_nodes: Option<u32>,
    /// Print JSON; all sizes are bytes.
    #[arg(long)]
    pub json: bool,
}

#[derive(Serialize)]
struct Machine {
    nodes: Vec<Node>,
    devices: Vec<Device>,
}

#[derive(Serialize)]
struct Node {
    node: u32,
    memory_bytes: Option<u64>,
    /// CPUs that lie on it.
    cpus: Vec<u32>,
    /// CPUs that serve it.
    serving: Vec<u32>,
    /// To each node, in their order.
    distances: Vec<Option<u32>>,
}

#[derive(Serialize)]
struct Device {
    path: String,
    bytes: Option<u64>,
    node: Option<u32>,
}

/// Shows the machine.
pub fn run(args: &TopologyArgs) -> Result<()> {
    let failed = |error: ::topology::Error| Error::Server(error.to_string());
    let topology = Topology::system().map_err(failed)?;
    let topology = match args.virtual_nodes {
        Some(count) => topology.with_virtual_nodes(count).map_err(failed)?,
        None => topology,
    };
    let devices = pm_devices(Path::new("/sys")).map_err(failed)?;
    let machine = machine(&topology, devices);
    if args.json { output::json(&machine) } else { output::text(&text(&machine)) }
}

fn machine(topology: &Topology, devices: Vec<PmDevice>) -> Machine {
    let all = 0..topology.node_count();
    let node = |node: u32| Node {
        node: topology.kernel_id(node).unwrap_or(node),
        memory_bytes: topology.memory_bytes(node),
        cpus: topology.local_cpus(node).to_vec(),
        serving: topology.cpus(node).to_vec(),
        distances: all.clone().map(|other| topology.distance(node, other)).collect(),
    };
    let device = |device: PmDevice| Device {
        path: device.path.display().to_string(),
        bytes: device.bytes,
        node: device.node,
    };
    Machine {
        nodes: all.clone().map(node).collect(),
        devices: devices.into_iter().map(device).collect(),
    }
}

fn text(machine: &Machine) -> String {
    let dash = || "-".to_owned();
    let mut heads = ["NODE", "MEMORY", "CPUS", "SERVED BY"].map(str::to_owned).to_vec();
    heads.extend(machine.nodes.iter().map(|node| format!("TO {}", node.node)));
    let mut rows = vec![heads];
    for node in &machine.nodes {
        let mut row = vec![
            node.node.to_string(),
            node.memory_bytes.map_or_else(dash, show),
            cpus(&node.cpus),
            cpus(&node.serving),
        ];
        row.extend(node.distances.iter().map(|it| it.map_or_else(dash, |it| it.to_string())));
        rows.push(row);
    }
    let mut text = output::table(&rows);
    if machine.devices.is_empty() {
        return text + "\nno persistent memory devices\n";
    }
    let mut rows = vec![["DEVICE", "SIZE", "NODE"].map(str::to_owned).to_vec()];
    for device in &machine.devices {
        let node = device.node.map_or_else(dash, |node| node.to_string());
        rows.push(vec![device.path.clone(), device.bytes.map_or_else(dash, show), node]);
    }
    text.push('\n');
    text.push_str(&output::table(&rows));
    text
}

/// Numbers as the kernel writes lists of CPUs: `0-3,8`.
fn cpus(numbers: &[u32]) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for &number in numbers {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => ranges.push((number, number)),
        }
    }
    let range = |(first, last): &(u32, u32)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    match ranges.is_empty() {
        true => "-".to_owned(),
        false => ranges.iter().map(range).collect::<Vec<_>>().join(","),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus_are_short() {
        assert_eq!(cpus(&[]), "-");
        assert_eq!(cpus(&[5]), "5");
        assert_eq!(cpus(&[0, 1, 2, 3, 8, 10, 11]), "0-3,8,10-11");
    }

    #[test]
    fn a_machine_of_two_nodes_is_drawn() {
        let devices =
            vec![PmDevice { path: "/dev/pmem0".into(), bytes: Some(64 << 30), node: Some(1) }];
        let two = Topology::system().unwrap().with_virtual_nodes(2).unwrap();
        let text = text(&machine(&two, devices));
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].ends_with("TO 0  TO 1"), "{text}");
        assert!(lines[1].starts_with("0 ") && lines[1].ends_with("10    20"), "{text}");
        assert!(lines[2].starts_with("1 ") && lines[2].ends_with("20    10"), "{text}");
        assert_eq!(lines[5], "/dev/pmem0  64 GiB  1");
    }
}
