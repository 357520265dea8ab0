//! NUMA nodes, CPUs, distances, pinning; virtual nodes.
