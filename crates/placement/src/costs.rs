//! What accesses take, by what is known of a machine: looked up, for who has no time to reckon.

use crate::machine::Machine;
use crate::policy::{Kind, Policy};

/// The shortest access that is told apart, as a power of two.
const SHORTEST: u32 = 12;
/// Lengths that are told apart: each twice the one before it.
const LENGTHS: usize = 10;
/// Accesses whose number fills a memory are about so long.
const USUAL_BYTES: u64 = 64 << 10;
const MIB: f64 = 1048576.0;

/// What accesses take.
#[derive(Clone, PartialEq, Debug)]
pub struct Costs {
    /// By kind and length, from another node and from its own, ns.
    takes: [[[f32; 2]; LENGTHS]; 2],
    /// The most that a node's memory moves of each kind, bytes a second.
    peak: [f64; 2],
    /// Moving a thread to another node, ns.
    pub move_thread_ns: f32,
}

impl Costs {
    /// Those of a machine under this policy: workers copy what it lets them.
    pub fn of(machine: &Machine, policy: &Policy) -> Costs {
        let kinds = [Kind::Read, Kind::Write];
        let takes = |kind: Kind| {
            std::array::from_fn(|length| {
                let bytes = 1u64 << (SHORTEST + length as u32);
                let here = machine.takes(kind, bytes, true);
                let direct = machine.takes(kind, bytes, false);
                let asked = machine.hand_off_ns + here;
                let asks = bytes >= policy.side(kind).delegate_from(false);
                let there = if asks { direct.min(asked) } else { direct };
                [there as f32, here as f32]
            })
        };
        let peak = |kind: Kind| machine.access(kind).local.peak(USUAL_BYTES).1 * MIB;
        Costs {
            takes: kinds.map(takes),
            peak: kinds.map(peak),
            move_thread_ns: machine.move_thread_ns as f32,
        }
    }

    /// What an access of so many bytes takes who is on the node, or elsewhere, ns.
    #[inline]
    pub fn takes(&self, kind: Kind, bytes: u64, is_local: bool) -> f32 {
        let length = bytes.max(1).ilog2().saturating_sub(SHORTEST).min(LENGTHS as u32 - 1);
        let known = self.takes[usize::from(kind == Kind::Write)][length as usize];
        known[usize::from(is_local)] * (bytes as f32 / (1u64 << (SHORTEST + length)) as f32)
    }

    /// What one elsewhere loses for being there, ns.
    #[inline]
    pub fn lost(&self, kind: Kind, bytes: u64) -> f32 {
        (self.takes(kind, bytes, false) - self.takes(kind, bytes, true)).max(0.0)
    }

    /// The part of the time for which a node's memory is busy where so many bytes a second are read
    /// and written there.
    pub fn busy(&self, read: f64, written: f64) -> f32 {
        (read / self.peak[0] + written / self.peak[1]) as f32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::{Class, Curve, MachineAccess};

    fn machine() -> Machine {
        let curve = |one: f64| {
            let class = |bytes| Class { bytes, points: vec![(1, one), (4, 2.0 * one)] };
            Curve::new(vec![class(4096), class(1 << 20)]).unwrap()
        };
        let access =
            |one| MachineAccess { local: curve(one), remote_factor: 0.5, latency_ns: [0.0, 500.0] };
        Machine {
            name: String::new(),
            source: String::new(),
            nodes: 2,
            cpus: 4,
            granule_bytes: 64,
            hand_off_ns: 20_000.0,
            move_thread_ns: 7500.0,
            link: f64::INFINITY,
            directory: 0.0,
            read: access(1024.0),
            write: access(512.0),
        }
    }

    #[test]
    fn what_is_far_takes_longer_and_a_worker_is_asked_where_that_helps() {
        let policy = machine().policy();
        let costs = Costs::of(&machine(), &policy);
        let us = |kind, bytes, is_local| (costs.takes(kind, bytes, is_local) / 1e3).round();
        // 4 KiB at 1 GiB/s are 3.8 us, and from elsewhere half a us is lost before the first byte
        assert_eq!((us(Kind::Read, 4096, true), us(Kind::Read, 4096, false)), (4.0, 8.0));
        assert_eq!((us(Kind::Write, 4096, true), us(Kind::Write, 4096, false)), (8.0, 16.0));
        assert_eq!(us(Kind::Read, 1 << 20, true), 977.0);
        // a worker has it in 20 us more, not twice the time
        assert_eq!(us(Kind::Read, 1 << 20, false), 997.0);
        assert_eq!((costs.lost(Kind::Read, 1 << 20) / 1e3).round(), 20.0);
        assert!((costs.lost(Kind::Read, 6144) / costs.lost(Kind::Read, 4096) - 1.5).abs() < 0.01);
        assert!(costs.lost(Kind::Read, 100) < costs.lost(Kind::Read, 4096) / 30.0);
        assert!(costs.takes(Kind::Read, 1 << 30, true) > 1e9 * 0.9, "longer than any is known");
    }

    #[test]
    fn a_memory_is_busy_by_what_both_kinds_take() {
        let costs = Costs::of(&machine(), &Policy::default());
        let gib = 1024.0 * MIB;
        assert!((costs.busy(gib, 0.0) - 0.5).abs() < 1e-3);
        assert!((costs.busy(gib, 0.5 * gib) - 1.0).abs() < 1e-3);
    }
}
