//! What the memory of a machine's nodes can do: bandwidth by threads and size of access, what
//! remoteness costs.

use crate::policy::{Kind, NO_LIMIT, PIECE_BYTES, Policy, SHARED_BYTES, Side, THOUGHT_BYTES};

const MIB: f64 = 1048576.0;
/// As much as this part of the peak is as good as it.
const NEAR: f64 = 0.97;
/// More threads hurt where the most of them move less than this part of it.
const HURT: f64 = 0.9;
/// More threads, bytes or MiB/s than these are no machine's.
const MOST: (u32, u64, f64) = (4096, 1 << 40, 1e9);
/// The slowest that is any, MiB/s.
const SLOWEST: f64 = 1e-3;
/// Least bytes that are ever handed over.
const SMALLEST_BYTES: u64 = 4 << 10;
/// A large piece is handed over where copying it takes so many times as long.
const HAND_OVERS: f64 = 2.0;
/// Lengths of which it is asked whether sharing them pays: from twice the shortest piece on, each
/// twice the one before it.
const LENGTHS: u32 = 8;

/// Bandwidth of a node's memory, MiB/s, by the number of threads that access it, for one size of
/// access. In the order of threads.
#[derive(Clone, PartialEq, Debug)]
pub struct Class {
    /// Bytes of an access.
    pub bytes: u64,
    /// Threads, and what they move together.
    pub points: Vec<(u32, f64)>,
}

/// Bandwidth by size of access, in its order, and by threads.
#[derive(Clone, PartialEq, Debug)]
pub struct Curve(Vec<Class>);

/// One kind of access to a node's memory.
#[derive(Clone, PartialEq, Debug)]
pub struct MachineAccess {
    /// What all threads of its own node move.
    pub local: Curve,
    /// What is left of that from another node.
    pub remote_factor: f64,
    /// Until the first byte moves, ns, from its own node and from another one.
    pub latency_ns: [f64; 2],
}

/// A machine whose nodes are alike.
#[derive(Clone, PartialEq, Debug)]
pub struct Machine {
    /// What it is.
    pub name: String,
    /// Where its figures are from.
    pub source: String,
    /// Nodes.
    pub nodes: u32,
    /// CPUs of each.
    pub cpus: u32,
    /// Bytes that its memory moves at once: less costs as much.
    pub granule_bytes: u64,
    /// From a request until a worker is at it, beyond what moving the bytes takes, ns.
    pub hand_off_ns: f64,
    /// Moving a thread to another node, ns.
    pub move_thread_ns: f64,
    /// What all others together move to and from a node, MiB/s; infinite where nobody said.
    pub link: f64,
    /// Bytes that a node's memory writes for each byte that others read of it: whose caches have
    /// what is kept in the memory itself on some machines.
    pub directory: f64,
    /// Reading.
    pub read: MachineAccess,
    /// Writing.
    pub write: MachineAccess,
}

impl Machine {
    /// What one kind of access costs.
    pub fn access(&self, kind: Kind) -> &MachineAccess {
        match kind {
            Kind::Read => &self.read,
            Kind::Write => &self.write,
        }
    }

    /// The policy that suits it: as many threads as come near the peak, of these numbers the
    /// fewest; a large access, of which fewer suffice, counts more than once. Workers are asked
    /// where copying takes longer than handing over.
    pub fn policy(&self) -> Policy {
        let side = |kind: Kind| {
            let access = self.access(kind);
            let small = access.local.fewest_near_peak(SMALLEST_BYTES);
            let large = access.local.fewest_near_peak(PIECE_BYTES);
            let most = access.local.threads().max().unwrap_or(1);
            let (limit, large_turns) = match (small, large) {
                (NO_LIMIT, NO_LIMIT) => (NO_LIMIT, 1),
                // all turns for all that are large, so that no more of them come in
                (small, large) if small.min(most) > large => {
                    let turns = small.min(most).div_ceil(large);
                    (large * turns, turns)
                }
                // a turn is a thread: where small ones hurt each other sooner, that is for all
                (small, large) => (small.min(large), 1),
            };
            let remote = |bytes: u64| self.passes(kind, bytes, false);
            let local = |bytes: u64| self.passes(kind, bytes, true);
            // a small one, where its way takes longer than handing over; a larger one, which may be
            // copied on several nodes at once, where all of it does
            let takes_longer = |bytes: &u64| match *bytes < THOUGHT_BYTES {
                true => remote(*bytes) - local(*bytes) > self.hand_off_ns,
                false => remote(*bytes) > HAND_OVERS * self.hand_off_ns,
            };
            let mut sizes = (0..).map(|power| SMALLEST_BYTES << power);
            let longest = 2 * PIECE_BYTES;
            let delegate_remote = sizes.find(|bytes| *bytes >= longest || takes_longer(bytes));
            // what nobody measured is not free
            let delegate_remote = delegate_remote.filter(|_| self.hand_off_ns > 0.0);
            // one that is there shares it with workers where that saves more than handing over
            let saves = |bytes: &u64| {
                let turns = (limit / large_turns).min(most).min(self.cpus);
                let parts = u64::from(turns).min(bytes / SHARED_BYTES).max(1) as u32;
                let shared = access.local.rate(parts, SHARED_BYTES);
                local(*bytes) - *bytes as f64 / (shared * MIB) * 1e9 > HAND_OVERS * self.hand_off_ns
            };
            let mut lengths = (1..LENGTHS).map(|power| SHARED_BYTES << power);
            let delegate_local = lengths.find(saves).filter(|_| self.hand_off_ns > 0.0);
            let unmeasured = Side::default();
            Side {
                limit,
                large_turns,
                harmless: most,
                delegate_remote: delegate_remote.unwrap_or(unmeasured.delegate_remote),
                delegate_local: delegate_local.unwrap_or(unmeasured.delegate_local),
            }
        };
        Policy { read: side(Kind::Read), write: side(Kind::Write) }
    }

    /// What one access of so many bytes takes, of which there are no others, from its own node or
    /// from another one, ns.
    pub fn takes(&self, kind: Kind, bytes: u64, is_local: bool) -> f64 {
        let latency = self.access(kind).latency_ns[usize::from(!is_local)];
        latency + self.passes(kind, bytes, is_local)
    }

    /// What its bytes take.
    fn passes(&self, kind: Kind, bytes: u64, is_local: bool) -> f64 {
        let rate = match is_local {
            true => self.access(kind).local.rate(1, bytes),
            false => self.remote_rate(kind, bytes),
        };
        bytes as f64 / (rate * MIB) * 1e9
    }

    /// What one thread moves with accesses of so many bytes from another node, MiB/s.
    fn remote_rate(&self, kind: Kind, bytes: u64) -> f64 {
        let access = self.access(kind);
        let rate = access.local.rate(1, bytes) * access.remote_factor;
        match kind {
            Kind::Read if self.directory > 0.0 => {
                1.0 / (1.0 / rate + self.directory / self.write.local.rate(1, bytes))
            }
            _ => rate,
        }
    }
}

impl Curve {
    /// Of these classes; none if they are no curve: empty, out of order, or of what no memory does.
    pub fn new(classes: Vec<Class>) -> Option<Curve> {
        let sizes = classes.windows(2).all(|pair| pair[0].bytes < pair[1].bytes);
        let fine = |class: &Class| {
            let threads = class.points.windows(2).all(|pair| pair[0].0 < pair[1].0);
            let one = |(threads, rate): &(u32, f64)| {
                (1..=MOST.0).contains(threads) && (SLOWEST..=MOST.2).contains(rate)
            };
            (1..=MOST.1).contains(&class.bytes)
                && !class.points.is_empty()
                && threads
                && class.points.iter().all(one)
        };
        (sizes && !classes.is_empty() && classes.iter().all(fine)).then_some(Curve(classes))
    }

    /// The largest accesses that it tells apart, bytes.
    pub fn largest(&self) -> u64 {
        self.0.last().map_or(0, |class| class.bytes)
    }

    /// What so many threads move together with accesses of so many bytes, MiB/s. Between the points
    /// it is a line over threads and over the logarithm of bytes, outside them as at the nearest.
    pub fn rate(&self, threads: u32, bytes: u64) -> f64 {
        let known = |class: &Class| {
            let points = class.points.iter().map(|(threads, rate)| (f64::from(*threads), *rate));
            between(points, f64::from(threads.max(1)))
        };
        let classes = self.0.iter().map(|class| ((class.bytes as f64).ln(), known(class)));
        between(classes, (bytes.max(1) as f64).ln())
    }

    /// The number of threads that move the most with accesses of so many bytes, and what that is.
    pub fn peak(&self, bytes: u64) -> (u32, f64) {
        let rates = self.threads().map(|threads| (threads, self.rate(threads, bytes)));
        rates.fold((1, 0.0), |best, next| if next.1 > best.1 { next } else { best })
    }

    /// The fewest threads that come near the peak; where more do not hurt, any number.
    pub fn fewest_near_peak(&self, bytes: u64) -> u32 {
        let (_, peak) = self.peak(bytes);
        let most = self.threads().max().unwrap_or(1);
        if self.rate(most, bytes) >= HURT * peak {
            return NO_LIMIT;
        }
        (1..=most).find(|threads| self.rate(*threads, bytes) >= NEAR * peak).unwrap_or(most)
    }

    fn threads(&self) -> impl Iterator<Item = u32> {
        self.0.iter().flat_map(|class| class.points.iter().map(|point| point.0))
    }
}

/// The value at `x` of a line through points in the order of their places.
fn between(points: impl Iterator<Item = (f64, f64)>, x: f64) -> f64 {
    let mut before: Option<(f64, f64)> = None;
    for (at, value) in points {
        match before {
            _ if x > at => before = Some((at, value)),
            Some((from, low)) => {
                let part = (x - from) / (at - from);
                return low + (value - low) * part;
            }
            None => return value,
        }
    }
    before.map_or(0.0, |(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve() -> Curve {
        let class = |bytes, points: &[(u32, f64)]| Class { bytes, points: points.to_vec() };
        let small = class(4096, &[(1, 1000.0), (4, 6000.0), (28, 4000.0)]);
        Curve::new(vec![small, class(65536, &[(2, 7000.0), (8, 5000.0)])]).unwrap()
    }

    #[test]
    fn points_are_met_and_lines_lie_between() {
        let curve = curve();
        for (threads, bytes, rate) in [
            (1, 4096, 1000.0),
            (4, 4096, 6000.0),
            (28, 4096, 4000.0),
            (100, 64, 4000.0),
            (2, 65536, 7000.0),
            (1, 1 << 20, 7000.0),
            (9, 1 << 20, 5000.0),
            // on the line, and half way in the logarithm
            (2, 4096, 1000.0 + 5000.0 / 3.0),
            (5, 65536, 6000.0),
            (4, 16384, (6000.0 + 7000.0 - 2000.0 / 3.0) / 2.0),
        ] {
            let found = curve.rate(threads, bytes);
            assert!((found - rate).abs() < 1e-6, "{threads} threads, {bytes} bytes: {found}");
        }
        assert_eq!(curve.peak(4096), (4, 6000.0));
        assert_eq!(curve.peak(1 << 20).0, 1);
    }

    /// A small access is handed over for its way alone, and a large one for all of it; who is there
    /// shares what is long.
    #[test]
    fn workers_are_asked_where_that_saves_more_than_handing_over() {
        let class = |bytes, points: &[(u32, f64)]| Class { bytes, points: points.to_vec() };
        let access = |points| MachineAccess {
            local: Curve::new(vec![class(4096, points)]).unwrap(),
            remote_factor: 0.9,
            latency_ns: [0.0; 2],
        };
        let machine = Machine {
            name: String::new(),
            source: String::new(),
            nodes: 2,
            cpus: 28,
            granule_bytes: 256,
            hand_off_ns: 500.0,
            move_thread_ns: 7500.0,
            link: f64::INFINITY,
            directory: 0.0,
            read: access(&[(1, 3600.0), (8, 22500.0), (28, 24000.0)]),
            write: access(&[(1, 3850.0), (2, 7650.0), (28, 4350.0)]),
        };
        let Policy { read, write } = machine.policy();
        // the ninth part of what 32 KiB take is over half a us, and that of 16 KiB is not
        assert_eq!((read.delegate_remote, write.delegate_remote), (32 << 10, 32 << 10));
        assert_eq!((read.delegate_local, write.delegate_local), (128 << 10, 128 << 10));
        assert_eq!((read.harmless, write.limit), (28, 2));
        // each byte that is read from elsewhere is one that is written
        let directory = Machine { directory: 1.0, ..machine.clone() }.policy();
        assert_eq!((directory.read.delegate_remote, directory.write), (4096, write));
        // where handing over takes longer, or nobody measured it
        let slow = Machine { hand_off_ns: 20_000.0, ..machine.clone() }.policy();
        assert_eq!((slow.read.delegate_remote, slow.read.delegate_local), (256 << 10, 256 << 10));
        let alone = Machine { cpus: 1, ..machine.clone() }.policy();
        assert_eq!((alone.read.delegate_local, alone.write.delegate_local), (u64::MAX, u64::MAX));
        let nobody = Machine { hand_off_ns: 0.0, ..machine }.policy();
        assert_eq!(nobody.read.delegate_remote, Side::default().delegate_remote);
        assert_eq!(nobody.read.delegate_local, u64::MAX);
    }

    #[test]
    fn what_is_no_curve_is_none() {
        let class = |bytes, points: &[(u32, f64)]| Class { bytes, points: points.to_vec() };
        let fine = class(64, &[(1, 1.0)]);
        for bad in [
            vec![],
            vec![class(0, &[(1, 1.0)])],
            vec![class(64, &[])],
            vec![class(64, &[(0, 1.0)])],
            vec![class(64, &[(1, 0.0)])],
            vec![class(64, &[(1, f64::NAN)])],
            vec![class(64, &[(1, 1e-300)])],
            vec![class(64, &[(u32::MAX, 1.0)])],
            vec![class(1 << 41, &[(1, 1.0)])],
            vec![class(64, &[(2, 1.0), (1, 1.0)])],
            vec![fine.clone(), fine.clone()],
        ] {
            assert_eq!(Curve::new(bad.clone()), None, "{bad:?}");
        }
        assert!(Curve::new(vec![fine]).is_some());
    }
}
