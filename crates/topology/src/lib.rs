//! NUMA nodes, CPUs, distances, pinning; virtual nodes.
//!
//! A [`Topology`] is read once from sysfs and never changes afterwards. It says which CPUs serve
//! which node, how far nodes lie apart and how much memory each has. Three things that look alike
//! are kept apart:
//! - the node that a CPU *lies on* ([`Topology::node_of_cpu`]): hardware, whatever we may use;
//! - the CPUs that *serve* a node ([`Topology::cpus`]): those on it that this process may run on,
//!   or, where there are none (CXL memory, a narrow cpuset), those of the nearest nodes that have;
//! - the *index* of a node, dense from 0, and its kernel *id*, which may have gaps.
//!
//! What it is not: a scheduler, a memory allocator, or a watcher of hot-plug. A CPU or node that
//! comes online later is unknown here until the next reading.
//!
//! Everything read from sysfs is checked: absurd content gives one of the fallbacks that
//! [`Topology::read`] states, and a remark; never a panic, and never an unbounded allocation.
#![deny(unsafe_code)]

#[allow(unsafe_code)] // three system calls about the calling thread; see its head
mod affinity;
mod cpu_time;
mod cpulist;
mod devices;
mod error;
mod machine;
mod sysfs;
mod virtual_nodes;

pub use affinity::{
    Pinned, allowed_cpus, allowed_cpus_of, assume_cpu, current_cpu, current_thread,
    pin_current_thread, pin_thread, place_of, recent_cpu, refresh_cpu,
};
pub use cpu_time::{CpuTime, cpu_times};
pub use cpulist::parse_cpulist;
pub use devices::{DeviceMode, PmDevice, block_node, interface_node, node_of_device, pm_devices};
pub use error::{Error, Result};
pub use machine::Topology;

/// CPU numbers lie below this. Linux is built for at most 8192 today.
pub const CPU_LIMIT: u32 = 65_536;

/// Nodes of one topology, real or virtual, at most: the kernel's own `MAX_NUMNODES`.
pub const NODE_LIMIT: u32 = 1024;
