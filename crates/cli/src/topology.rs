//! `nearside topology`: what the machine is like, as far as slices care.

use std::fmt::Write as _;
use std::path::Path;

use ::topology::{DeviceMode, PmDevice, Topology, pm_devices};
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
those of the nodes that reach it fastest, as firmware says (HMAT), or of the nearest ones. Distances
are the firmware's: 10 is local. A remark names what the kernel says and makes no sense.")]
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
    /// What the kernel says and makes no sense.
    remarks: Vec<String>,
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
    /// How the kernel gives it out; none if no driver has it.
    mode: Option<&'static str>,
    /// Whether it keeps what is in it without power.
    persistent: bool,
}

/// Shows the machine.
pub fn run(args: &TopologyArgs) -> Result<()> {
    let failed = |error: ::topology::Error| Error::Server(error.to_string());
    let topology = Topology::system().map_err(failed)?;
    let topology = match args.virtual_nodes {
        Some(count) => topology.with_virtual_nodes(count).map_err(failed)?,
        None => topology,
    };
    let machine = machine(&topology, pm_devices(Path::new("/sys")));
    if args.json { output::json(&machine) } else { output::text(&text(&machine)) }
}

fn machine(topology: &Topology, (devices, remarks): (Vec<PmDevice>, Vec<String>)) -> Machine {
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
        mode: device.mode.map(mode),
        persistent: device.is_persistent,
    };
    Machine {
        nodes: all.clone().map(node).collect(),
        devices: devices.into_iter().map(device).collect(),
        remarks: topology.remarks().iter().cloned().chain(remarks).collect(),
    }
}

/// As ndctl and daxctl call it.
fn mode(mode: DeviceMode) -> &'static str {
    match mode {
        DeviceMode::FsDax => "fsdax",
        DeviceMode::DevDax => "devdax",
        DeviceMode::SystemRam => "system-ram",
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
    let mut text = output::table(&rows) + "\n" + &devices(&machine.devices);
    if !machine.remarks.is_empty() {
        text.push('\n');
    }
    for remark in &machine.remarks {
        // to a string
        let _ = writeln!(text, "remark: {remark}");
    }
    text
}

fn devices(devices: &[Device]) -> String {
    if devices.is_empty() {
        return "no persistent memory devices\n".to_owned();
    }
    let dash = || "-".to_owned();
    let heads = ["DEVICE", "SIZE", "NODE", "MODE", "MEMORY"];
    let mut rows = vec![heads.map(str::to_owned).to_vec()];
    for device in devices {
        rows.push(vec![
            device.path.clone(),
            device.bytes.map_or_else(dash, show),
            device.node.map_or_else(dash, |node| node.to_string()),
            device.mode.map_or_else(dash, str::to_owned),
            if device.persistent { "persistent" } else { "volatile" }.to_owned(),
        ]);
    }
    output::table(&rows)
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
        let device = |path: &str, mode, is_persistent| PmDevice {
            path: path.into(),
            bytes: Some(64 << 30),
            node: Some(1),
            mode,
            is_persistent,
        };
        let devices = vec![
            device("/dev/pmem0", Some(DeviceMode::FsDax), true),
            device("/dev/dax1.0", None, false),
        ];
        let two = Topology::system().unwrap().with_virtual_nodes(2).unwrap();
        let remarks = vec!["/sys/x: \"y\" is not a node".to_owned()];
        let text = text(&machine(&two, (devices, remarks)));
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].ends_with("TO 0  TO 1"), "{text}");
        assert!(lines[1].starts_with("0 ") && lines[1].ends_with("10    20"), "{text}");
        assert!(lines[2].starts_with("1 ") && lines[2].ends_with("20    10"), "{text}");
        assert_eq!(lines[4], "DEVICE       SIZE    NODE  MODE   MEMORY");
        assert_eq!(lines[5], "/dev/pmem0   64 GiB  1     fsdax  persistent");
        assert_eq!(lines[6], "/dev/dax1.0  64 GiB  1     -      volatile");
        assert_eq!(lines[8..], ["remark: /sys/x: \"y\" is not a node"]);
    }
}
