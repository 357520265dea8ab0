//! Which station somebody gets, on machines that a directory plays.

use std::net::{TcpListener, UdpSocket};
use std::os::unix::net::UnixStream;

use super::*;

#[path = "../tests/library/two_nodes.rs"]
mod two_nodes;

/// Where a machine of two nodes is played; the second has the CPU that comes last.
fn played() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    two_nodes::two_nodes(dir.path());
    let sysfs = dir.path().canonicalize().unwrap();
    (dir, sysfs)
}

#[test]
fn who_comes_by_a_card_is_served_on_its_node() {
    let (_dir, sysfs) = played();
    let stations = Stations::new(Some(&sysfs)).unwrap();
    let names: Vec<_> = stations.all().map(|station| station.name()).collect();
    assert_eq!(names, ["ns-service", "ns-service@0", "ns-service@1"]);
    let before = topology::allowed_cpus().unwrap();
    for address in ["127.0.0.1:0", "[::1]:0", "[::ffff:127.0.0.1]:0"] {
        let Ok(socket) = UdpSocket::bind(address) else { continue };
        let station = stations.near(&socket);
        assert_eq!(station.name(), "ns-service@1", "{address}");
        let held = station.hold();
        assert_eq!(topology::allowed_cpus().unwrap(), before[before.len() - 1..]);
        drop(held);
        assert_eq!(topology::allowed_cpus().unwrap(), before);
    }
}

#[test]
fn who_comes_by_no_known_card_is_served_anywhere() {
    let (_dir, sysfs) = played();
    let stations = Stations::new(Some(&sysfs)).unwrap();
    let (local, _other) = UnixStream::pair().unwrap();
    assert_eq!(stations.near(&local).name(), "ns-service");
    let anywhere = TcpListener::bind("0.0.0.0:0").unwrap();
    assert_eq!(stations.near(&anywhere).name(), "ns-service");
    std::fs::write(sysfs.join("class/net/lo/numa_node"), "-1").unwrap();
    let here = UdpSocket::bind("127.0.0.1:0").unwrap();
    assert_eq!(stations.near(&here).name(), "ns-service");
    std::fs::write(sysfs.join("class/net/lo/numa_node"), "7").unwrap();
    assert_eq!(stations.near(&here).name(), "ns-service", "a node that is not there");
    assert!(stations.near(&here).hold().is_none());
}

#[test]
fn a_machine_of_one_node_or_of_none_has_one_station() {
    let (_dir, sysfs) = played();
    let names = |sysfs: Option<&Path>| -> Vec<String> {
        Stations::new(sysfs).unwrap().all().map(|station| station.name()).collect()
    };
    assert_eq!(names(None), ["ns-service"]);
    std::fs::write(sysfs.join("devices/system/node/online"), "0").unwrap();
    assert_eq!(names(Some(&sysfs)), ["ns-service"]);
    std::fs::write(sysfs.join("devices/system/node/online"), "nonsense").unwrap();
    assert_eq!(names(Some(&sysfs)), ["ns-service"]);
}

#[test]
fn a_station_has_no_more_threads_than_its_node_has_cpus() {
    let cpus = |count: u32| Some((0, (0..count).collect()));
    let workers = |near, most| Station::new(near).unwrap().workers(most);
    assert_eq!(workers(cpus(4), 16), 4);
    assert_eq!(workers(cpus(64), 16), 16);
    assert_eq!(workers(None, 16), 16);
}
