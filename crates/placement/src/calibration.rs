//! What was measured of a machine, and what follows from it.

use crate::machine::{Class, Curve, Machine, MachineAccess};
use crate::policy::{Kind, Policy};
use std::collections::BTreeMap;

const MIB: f64 = 1048576.0;
/// What moving a thread to another node takes where nobody measured it, ns: an affinity change that
/// forces a move takes 7 to 8 us on Linux.
const MOVE_THREAD_NS: f64 = 7500.0;

/// Where a copy was made from.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Place {
    /// CPUs of the memory's node.
    Local,
    /// CPUs of another one.
    Remote,
    /// A worker of the memory's node, asked from another one where there is one.
    Delegated,
}

/// What was measured of one kind of copy.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Point {
    /// Which way.
    pub kind: Kind,
    /// From where.
    pub place: Place,
    /// Bytes of a copy.
    pub bytes: u64,
    /// Threads that copied at one time.
    pub threads: u32,
    /// What all of them moved, MiB/s.
    pub rate: f64,
}

/// What was measured of a machine.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Calibration {
    /// Its nodes.
    pub nodes: u32,
    /// CPUs that could be used.
    pub cpus: u32,
    /// When it was, seconds since 1970.
    pub taken: u64,
    /// The measurements.
    pub points: Vec<Point>,
}

impl Calibration {
    /// The machine as it was measured; none if too little was.
    pub fn machine(&self) -> Option<Machine> {
        Some(Machine {
            name: "as measured".to_owned(),
            source: "nearside calibrate".to_owned(),
            nodes: self.nodes.max(1),
            cpus: (self.cpus / self.nodes.max(1)).max(1),
            granule_bytes: 64,
            hand_off_ns: self.hand_off_ns(Kind::Read).max(self.hand_off_ns(Kind::Write)),
            move_thread_ns: MOVE_THREAD_NS,
            link: f64::INFINITY,
            // it is in what was measured
            directory: 0.0,
            read: self.access(Kind::Read)?,
            write: self.access(Kind::Write)?,
        })
    }

    /// The policy that suits it.
    pub fn policy(&self) -> Option<Policy> {
        self.machine().map(|machine| machine.policy())
    }

    /// What letting a worker copy the least takes longer than copying it, ns.
    pub fn hand_off_ns(&self, kind: Kind) -> f64 {
        let time = |point: &Point| point.bytes as f64 / MIB / point.rate * 1e9;
        let of = |place| self.of(kind, place).filter(|it| it.threads == 1);
        let asked = of(Place::Delegated).min_by_key(|point| point.bytes);
        let local = asked.and_then(|asked| {
            of(Place::Local).find(|it| it.bytes == asked.bytes).map(|it| time(asked) - time(it))
        });
        local.unwrap_or(0.0).max(0.0)
    }

    fn of(&self, kind: Kind, place: Place) -> impl Iterator<Item = &Point> {
        self.points.iter().filter(move |point| point.kind == kind && point.place == place)
    }

    fn access(&self, kind: Kind) -> Option<MachineAccess> {
        let mut classes: BTreeMap<u64, Vec<(u32, f64)>> = BTreeMap::new();
        for point in self.of(kind, Place::Local) {
            classes.entry(point.bytes).or_default().push((point.threads, point.rate));
        }
        let class = |(bytes, mut points): (u64, Vec<(u32, f64)>)| {
            points.sort_by_key(|point| point.0);
            Class { bytes, points }
        };
        let local = Curve::new(classes.into_iter().map(class).collect())?;
        // as a single thread has it, whose rate is its own
        let remote = self.of(kind, Place::Remote).filter(|it| it.threads == 1);
        let largest = remote.max_by_key(|point| point.bytes);
        let factor = largest.map_or(1.0, |it| it.rate / local.rate(1, it.bytes));
        let remote_factor = if factor.is_finite() && factor > 0.0 { factor.min(1.0) } else { 1.0 };
        Some(MachineAccess { local, remote_factor, latency_ns: [0.0; 2] })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NO_LIMIT;
    use proptest::prelude::*;

    fn point(kind: Kind, place: Place, bytes: u64, threads: u32, rate: f64) -> Point {
        Point { kind, place, bytes, threads, rate }
    }

    /// Optane's way: writes have their peak at 2 threads (large) and 4 (small), reads at the most.
    fn measured() -> Calibration {
        let small = [(1, 1900.0), (2, 3400.0), (4, 6450.0), (8, 6000.0), (16, 5000.0)];
        let large = [(1, 3800.0), (2, 7650.0), (4, 7000.0), (8, 6000.0), (16, 5000.0)];
        let mut points = Vec::new();
        for (threads, rate) in small {
            points.push(point(Kind::Write, Place::Local, 4096, threads, rate));
            let read = f64::from(threads) * 1500.0;
            points.push(point(Kind::Read, Place::Local, 4096, threads, read));
        }
        for (threads, rate) in large {
            points.push(point(Kind::Write, Place::Local, 256 << 10, threads, rate));
        }
        points.push(point(Kind::Write, Place::Remote, 256 << 10, 1, 1900.0));
        // 4 KiB in 4096 ns more than directly
        let direct = 4096.0 / MIB / 1900.0 * 1e9;
        let asked = 4096.0 / MIB / ((direct + 4096.0) / 1e9);
        points.push(point(Kind::Write, Place::Delegated, 4096, 1, asked));
        Calibration { nodes: 2, cpus: 32, taken: 0, points }
    }

    #[test]
    fn thresholds_follow_from_what_was_measured() {
        let calibration = measured();
        assert!((calibration.hand_off_ns(Kind::Write) - 4096.0).abs() < 1.0);
        let machine = calibration.machine().unwrap();
        assert_eq!((machine.nodes, machine.cpus), (2, 16));
        assert!((machine.write.remote_factor - 0.5).abs() < 1e-9);
        assert_eq!(machine.read.remote_factor, 1.0);
        let Policy { read, write } = calibration.policy().unwrap();
        assert_eq!(read.limit, NO_LIMIT);
        // of large writes 2 at a time, of small ones 4
        assert_eq!((write.limit, write.turns(256 << 10), write.turns(4096)), (4, 2, 1));
        // twice the hand-off at half the rate: 8 us of 1900 MiB/s and less
        assert_eq!(write.delegate_remote, 16 << 10);
        // one shares it with another where that saves 8 us: 128 KiB in 31 us, or in 16
        assert_eq!((write.delegate_local, write.harmless), (128 << 10, 16));
        // of what was not measured nothing follows
        let mut nobody = measured();
        nobody.points.retain(|point| point.place != Place::Delegated);
        let unmeasured = Policy::default().write.delegate_remote;
        assert_eq!(nobody.policy().unwrap().write.delegate_remote, unmeasured);
    }

    /// Copies of 4 KiB take longer for the CPU than for the memory: more threads never hurt them.
    #[test]
    fn small_copies_have_no_limit_where_only_large_ones_hurt() {
        let mut points: Vec<Point> = Vec::new();
        for (threads, large) in [(1, 2000.0), (3, 6000.0), (16, 4000.0)] {
            for kind in [Kind::Read, Kind::Write] {
                let small = f64::from(threads) * 300.0;
                points.push(point(kind, Place::Local, 4096, threads, small));
                points.push(point(kind, Place::Local, 256 << 10, threads, large));
            }
        }
        let Policy { write, .. } = Calibration { points, ..measured() }.policy().unwrap();
        assert_eq!((write.turns(4096), write.limit / write.turns(256 << 10)), (1, 3));
        assert!(write.limit >= 15, "{write:?}");
        // a little less at the end is nothing
        let mut flat = measured();
        flat.points.retain(|point| point.kind == Kind::Read);
        let rates = [1000.0, 2000.0, 1900.0];
        let writes = [1, 2, 4].into_iter().zip(rates);
        flat.points.extend(
            writes.map(|(threads, rate)| point(Kind::Write, Place::Local, 4096, threads, rate)),
        );
        assert_eq!(flat.policy().unwrap().write.limit, NO_LIMIT);
    }

    #[test]
    fn from_too_little_nothing_follows() {
        assert_eq!(Calibration::default().policy(), None);
        let only = measured().points.into_iter().filter(|it| it.kind == Kind::Write).collect();
        assert_eq!(Calibration { points: only, ..measured() }.policy(), None);
        let mut wrong = measured();
        wrong.points[0].rate = f64::NAN;
        assert_eq!(wrong.policy(), None);
        wrong = measured();
        wrong.points.push(wrong.points[0]);
        assert_eq!(wrong.policy(), None, "a number of threads twice");
    }

    fn any_point() -> impl Strategy<Value = Point> {
        let threads = prop_oneof![0..40u32, any::<u32>(), Just(4096)];
        let bytes = prop_oneof![Just(4096u64), Just(256 << 10), any::<u64>()];
        let rate = prop_oneof![0.0..1e5f64, any::<f64>(), Just(1e-3), Just(1e9)];
        let places = [Place::Local, Place::Remote, Place::Delegated];
        let place = (0..3usize).prop_map(move |index| places[index]);
        let all = (any::<bool>(), place, bytes, threads, rate);
        all.prop_map(|(reads, place, bytes, threads, rate)| {
            let kind = if reads { Kind::Read } else { Kind::Write };
            Point { kind, place, bytes, threads, rate }
        })
    }

    proptest! {
        /// Whatever a damaged or hostile pool says was measured: a policy that serves, or none.
        #[test]
        fn from_nonsense_follows_nothing_that_harms(
            points in proptest::collection::vec(any_point(), 0..40),
            (nodes, cpus) in any::<(u32, u32)>(),
        ) {
            let calibration = Calibration { nodes, cpus, taken: 0, points };
            if let Some(policy) = calibration.policy() {
                for side in [policy.read, policy.write] {
                    assert!((1..=side.limit).contains(&side.large_turns), "{side:?}");
                    assert!(side.delegate_remote >= 4096, "{side:?}");
                }
            }
        }
    }
}
