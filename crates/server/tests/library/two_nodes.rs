//! The sysfs of a machine of two nodes, whose loopback interface is a card of the second.

use std::path::Path;

/// Writes it into this directory; gives the CPU of each node, the same one where there is one only.
pub fn two_nodes(sysfs: &Path) -> [u32; 2] {
    let put = |path: &str, text: &str| {
        let path = sysfs.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    let allowed = topology::allowed_cpus().unwrap();
    let cpus = [allowed[0], allowed[allowed.len() - 1]];
    let others = if cpus[0] == cpus[1] { String::new() } else { cpus[1].to_string() };
    put("devices/system/node/online", "0-1");
    put("devices/system/node/node0/cpulist", &cpus[0].to_string());
    put("devices/system/node/node1/cpulist", &others);
    put("class/net/lo/numa_node", "1");
    cpus
}
