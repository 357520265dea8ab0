//! Where sessions are served.
//!
//! On a machine of several nodes, whoever comes over a network is served by threads of the node
//! that its network card is on: there lie then what it says, the log that takes its small writes,
//! and the slice that gets its new files. All others are served by threads that run anywhere.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::ifaddrs::getifaddrs;
use rustix::event::epoll::{self, CreateFlags};
use topology::{Pinned, Topology, interface_node};

use crate::{Error, Result};

/// Threads that serve the same sessions, and what they wait for.
#[derive(Debug)]
pub struct Station {
    /// Waits for the bells of sessions that nobody looks after.
    bells: Arc<OwnedFd>,
    /// The node and its CPUs; none: they run anywhere.
    near: Option<(u32, Vec<u32>)>,
}

impl Station {
    fn new(near: Option<(u32, Vec<u32>)>) -> Result<Arc<Station>> {
        let bells = epoll::create(CreateFlags::CLOEXEC).map_err(Error::io("epoll_create"))?;
        Ok(Arc::new(Station { bells: Arc::new(bells), near }))
    }

    pub fn bells(&self) -> &Arc<OwnedFd> {
        &self.bells
    }

    /// How many threads serve here, of so many that may serve anywhere.
    pub fn workers(&self, anywhere: usize) -> usize {
        self.near.as_ref().map_or(anywhere, |(_, cpus)| anywhere.min(cpus.len()).max(1))
    }

    /// What its threads are called.
    pub fn name(&self) -> String {
        match &self.near {
            None => "ns-service".to_owned(),
            Some((node, _)) => format!("ns-service@{node}"),
        }
    }

    /// Holds the calling thread to its CPUs until what this gives is dropped.
    pub fn hold(&self) -> Option<Pinned> {
        self.near.as_ref().map(|(_, cpus)| Pinned::to(cpus))
    }
}

/// All of a service.
#[derive(Debug)]
pub struct Stations {
    anywhere: Arc<Station>,
    /// That of each node, by its index there; none where there is one node only.
    near: Vec<Arc<Station>>,
    /// Where sysfs is mounted, and what it says.
    machine: Option<(PathBuf, Topology)>,
}

impl Stations {
    /// Those of the machine that this sysfs shows; without one, or where that makes no sense, there
    /// is one for everybody.
    pub fn new(sysfs: Option<&Path>) -> Result<Stations> {
        let machine = sysfs.and_then(|sysfs| match Topology::usable(sysfs) {
            Ok(machine) => Some((sysfs.to_owned(), machine)),
            Err(error) => {
                tracing::warn!("calls are served on any node: {error}");
                None
            }
        });
        let machine = machine.filter(|(_, machine)| machine.node_count() > 1);
        let near = machine.iter().flat_map(|(_, machine)| {
            (0..machine.node_count()).map(|node| {
                let id = machine.kernel_id(node).unwrap_or(node);
                Station::new(Some((id, machine.cpus(node).to_vec())))
            })
        });
        let near = near.collect::<Result<_>>()?;
        Ok(Stations { anywhere: Station::new(None)?, near, machine })
    }

    /// For whoever is not near any node.
    pub fn anywhere(&self) -> &Station {
        &self.anywhere
    }

    /// All of them.
    pub fn all(&self) -> impl Iterator<Item = &Arc<Station>> {
        std::iter::once(&self.anywhere).chain(&self.near)
    }

    /// For whoever has come by this socket.
    pub fn near(&self, socket: impl AsFd) -> &Station {
        let Some((sysfs, machine)) = &self.machine else { return &self.anywhere };
        let here = rustix::net::getsockname(socket).ok();
        let here = here.and_then(|any| SocketAddr::try_from(any).ok());
        let node = here.and_then(|here| card_node(sysfs, here.ip().to_canonical()));
        let index = node.and_then(|id| machine.node_of_kernel_id(id));
        index.and_then(|index| self.near.get(index as usize)).unwrap_or(&self.anywhere)
    }
}

/// The kernel's number of the node of the card that has this address, if it is known.
fn card_node(sysfs: &Path, address: IpAddr) -> Option<u32> {
    let mut interfaces = getifaddrs().ok()?;
    let its = interfaces.find(|interface| {
        let its = interface.address.as_ref();
        let v4 = its.and_then(|its| its.as_sockaddr_in()).map(|its| IpAddr::V4(its.ip()));
        let v6 = its.and_then(|its| its.as_sockaddr_in6()).map(|its| IpAddr::V6(its.ip()));
        v4.or(v6) == Some(address)
    });
    interface_node(sysfs, &its?.interface_name)
}

#[cfg(test)]
#[path = "stations_tests.rs"]
mod tests;
