//! What accesses take on a machine that nobody has.

use placement::{Class, Costs, Curve, Machine, MachineAccess, Policy};

/// A memory that moves 4000 MiB/s for one thread, from elsewhere half of them, and that nobody
/// here fills.
pub fn costs() -> Costs {
    let points = vec![(1, 4000.0), (28, 1e6)];
    let access = || MachineAccess {
        local: Curve::new(vec![Class { bytes: 4096, points: points.clone() }]).unwrap(),
        remote_factor: 0.5,
        latency_ns: [0.0; 2],
    };
    let machine = Machine {
        name: String::new(),
        source: String::new(),
        nodes: 2,
        cpus: 1,
        granule_bytes: 64,
        hand_off_ns: 0.0,
        move_thread_ns: 7500.0,
        link: f64::INFINITY,
        directory: 0.0,
        read: access(),
        write: access(),
    };
    Costs::of(&machine, &Policy::default())
}
