//! The policy.

/// Which way the bytes go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Out of the memory.
    Read,
    /// Into it.
    Write,
}

/// Any number of threads at one time.
pub const NO_LIMIT: u32 = u32::MAX;

/// What a node's memory likes, of one kind of access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Side {
    /// Turns that there are to copy at one time; with more threads it slows down for all.
    pub limit: u32,
    /// Turns that a large access takes: it keeps more of the memory busy than a small one.
    pub large_turns: u32,
    /// So many threads at one time were seen to do no harm, where there is no limit.
    pub harmless: u32,
    /// Bytes from which a worker of the node is asked by a caller on another one, though there is
    /// room.
    pub delegate_remote: u64,
    /// Bytes from which one is asked by a caller on the node itself.
    pub delegate_local: u64,
}

/// What the memory of a pool's nodes likes.
#[derive(Default, Clone, Copy, PartialEq, Eq, Debug)]
pub struct Policy {
    /// Reading it.
    pub read: Side,
    /// Writing it.
    pub write: Side,
}

impl Side {
    /// Bytes from which a worker is asked, though there is room, by a caller on the node or not.
    #[inline]
    pub fn delegate_from(&self, is_local: bool) -> u64 {
        if is_local { self.delegate_local } else { self.delegate_remote }
    }

    /// Bytes from which a worker is asked by whoever it is.
    #[inline]
    fn asks_from(&self) -> u64 {
        self.delegate_local.min(self.delegate_remote)
    }

    /// Workers that suit a node of so many CPUs, for this kind.
    pub fn workers(&self, cpus: u32) -> u32 {
        match self.limit {
            NO_LIMIT => cpus.min(self.harmless).min(WORKERS_MAX),
            limit => limit.min(WORKERS_MAX),
        }
    }

    /// Turns that an access of so many bytes takes.
    #[inline]
    pub fn turns(&self, bytes: u64) -> u32 {
        if bytes >= LARGE_BYTES { self.large_turns } else { 1 }
    }
}

/// Workers of a node where nothing says how many its memory likes.
const WORKERS: u32 = 4;
/// Workers of a node at most.
const WORKERS_MAX: u32 = 64;

/// Turns that are taken, of one kind: by accesses that are short, and by long ones.
///
/// Short ones have as many turns as if there were no others: what they move is little beside what a
/// long one moves meanwhile, and one that waited for it would take many times as long. Long ones
/// have what those leave; one of them goes in any case.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Taken {
    /// By short ones.
    pub short: u32,
    /// By long ones.
    pub long: u32,
}

impl Taken {
    /// Those that count for an access of so many bytes.
    #[inline]
    pub fn before(&self, bytes: u64) -> u32 {
        match (bytes > SHORT_BYTES, self.long) {
            (false, _) => self.short,
            (true, 0) => 0,
            (true, long) => long.saturating_add(self.short),
        }
    }

    /// With so many more, for an access of so many bytes; none: those are not there.
    #[inline]
    pub fn with(self, turns: u32, bytes: u64, limit: u32) -> Option<Taken> {
        let is_there = self.before(bytes).checked_add(turns).is_some_and(|all| all <= limit);
        is_there.then(|| self.and(turns, bytes))
    }

    /// With so many more, whether they are there or not.
    #[inline]
    pub fn and(mut self, turns: u32, bytes: u64) -> Taken {
        let its = if bytes > SHORT_BYTES { &mut self.long } else { &mut self.short };
        *its = its.saturating_add(turns);
        self
    }

    /// Without these, that such an access had.
    #[inline]
    pub fn without(mut self, turns: u32, bytes: u64) -> Taken {
        let its = if bytes > SHORT_BYTES { &mut self.long } else { &mut self.short };
        *its = its.saturating_sub(turns);
        self
    }

    /// All of them.
    #[inline]
    pub fn all(&self) -> u32 {
        self.short.saturating_add(self.long)
    }
}

/// Bytes of a block.
pub const BLOCK_BYTES: u64 = 4 << 10;
/// Longest piece of a request: the workers of a node share what is longer.
pub const PIECE_BYTES: u64 = 256 << 10;
/// Shortest piece that is made for more of them to share it.
pub(crate) const SHARED_BYTES: u64 = 64 << 10;
/// Less than this is not worth a thought where nothing limits.
pub const THOUGHT_BYTES: u64 = 64 << 10;
/// Bytes from which an access is a large one: it goes to several modules of a node.
pub const LARGE_BYTES: u64 = 16 << 10;
/// Requests of up to so many bytes do not wait for all longer ones: of both as many bytes are
/// served.
pub const SHORT_BYTES: u64 = 32 << 10;
/// Bytes from which a piece on another node is delegated where nothing was measured: waking a
/// worker takes as long as copying some tens of KiB.
const DELEGATE_UNMEASURED: u64 = 128 << 10;

impl Default for Side {
    /// Where nothing was measured.
    fn default() -> Side {
        Side {
            limit: NO_LIMIT,
            large_turns: 1,
            harmless: WORKERS,
            delegate_remote: DELEGATE_UNMEASURED,
            delegate_local: u64::MAX,
        }
    }
}

/// What is known of an access, as far as it concerns one slice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Access {
    /// Which way.
    pub kind: Kind,
    /// Bytes on that slice.
    pub bytes: u64,
    /// Whether the caller runs on its node.
    pub is_local: bool,
    /// Turns that are taken there now, of this kind, as far as they count for it.
    pub active: u32,
    /// Requests that wait there before it.
    pub waiting: u64,
    /// Whether workers serve there.
    pub served: bool,
}

/// Who copies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// The caller.
    Direct,
    /// A worker of the node.
    Delegate,
}

/// Why.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// The node has room, and the caller is on it, or the piece is small.
    Room,
    /// Nobody serves there.
    NoWorkers,
    /// As many copy there as are to, or others wait for that.
    Full,
    /// The piece is large, and the caller on another node (or on any, where the policy says so).
    Remote,
}

/// What to do, and why.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Decision {
    /// Who copies.
    pub way: Way,
    /// Why.
    pub reason: Reason,
}

impl Policy {
    /// What the memory likes of one kind.
    #[inline]
    pub fn side(&self, kind: Kind) -> &Side {
        match kind {
            Kind::Read => &self.read,
            Kind::Write => &self.write,
        }
    }

    /// Whether there is a limit of one kind: then small accesses count, too.
    pub fn limits(&self, kind: Kind) -> bool {
        self.side(kind).limit != NO_LIMIT
    }

    /// Whether there is one of any kind.
    pub fn has_limits(&self) -> bool {
        self.limits(Kind::Read) || self.limits(Kind::Write)
    }

    /// Whether an access of so many bytes is worth a thought: whoever copies it otherwise is its
    /// caller.
    #[inline]
    pub fn minds(&self, kind: Kind, bytes: u64) -> bool {
        bytes >= THOUGHT_BYTES.min(self.side(kind).asks_from()) || self.limits(kind)
    }

    /// Whether the caller copies a block where it gets a turn, without another thought; so many
    /// wait there. Where it runs is asked only if that matters.
    #[inline]
    pub fn block_goes(&self, kind: Kind, waiting: u64, is_local: impl FnOnce() -> bool) -> bool {
        let side = self.side(kind);
        let copies = || side.delegate_from(is_local()) > BLOCK_BYTES;
        waiting == 0 && (side.asks_from() > BLOCK_BYTES || copies())
    }

    /// Longest piece of what workers of a node are asked for, so many bytes in all: where nobody
    /// waits, of so many workers each that may copy at one time gets some of it, if it is known
    /// that sharing pays. Whole blocks.
    pub fn piece(&self, kind: Kind, bytes: u64, workers: u32, waiting: u64) -> u64 {
        let side = self.side(kind);
        let at_once = u64::from(workers.min(side.limit / side.large_turns.max(1)).max(1));
        let shared = bytes.div_ceil(at_once).next_multiple_of(BLOCK_BYTES);
        match waiting == 0 && self.shares(kind) {
            true => shared.clamp(SHARED_BYTES, PIECE_BYTES),
            false => PIECE_BYTES,
        }
    }

    /// Whether a caller shares what is on its own node with workers, if that is long enough.
    pub fn shares(&self, kind: Kind) -> bool {
        self.side(kind).delegate_local != u64::MAX
    }

    /// The same where no memory is another node's.
    #[must_use]
    pub fn on_one_node(mut self) -> Policy {
        for side in [&mut self.read, &mut self.write] {
            side.delegate_remote = u64::MAX;
        }
        self
    }

    /// Who copies.
    #[inline]
    pub fn decide(&self, access: &Access) -> Decision {
        let side = self.side(access.kind);
        let is_full = access.active.saturating_add(side.turns(access.bytes)) > side.limit.max(1)
            || (access.waiting > 0 && side.limit != NO_LIMIT);
        let (way, reason) = match () {
            () if !access.served => (Way::Direct, Reason::NoWorkers),
            () if is_full => (Way::Delegate, Reason::Full),
            () if access.bytes >= side.delegate_from(access.is_local) => {
                (Way::Delegate, Reason::Remote)
            }
            () => (Way::Direct, Reason::Room),
        };
        Decision { way, reason }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: Access = Access {
        kind: Kind::Write,
        bytes: 4096,
        is_local: true,
        active: 0,
        waiting: 0,
        served: true,
    };

    fn limited(limit: u32) -> Policy {
        let side = Side { limit, delegate_remote: 64 << 10, ..Side::default() };
        Policy { read: Side { limit: NO_LIMIT, ..side }, write: side }
    }

    fn reason(policy: &Policy, access: Access) -> (Way, Reason) {
        let Decision { way, reason } = policy.decide(&access);
        (way, reason)
    }

    #[test]
    fn below_its_limit_a_node_is_used_directly_by_who_is_there() {
        for bytes in [1, 4096, 64 << 10, 16 << 20] {
            for active in 0..3 {
                let access = Access { bytes, active, ..IDLE };
                assert_eq!(reason(&limited(3), access), (Way::Direct, Reason::Room));
            }
            let access = Access { bytes, active: 1000, ..IDLE };
            assert_eq!(reason(&Policy::default(), access), (Way::Direct, Reason::Room));
        }
    }

    #[test]
    fn at_its_limit_it_is_not_and_who_waits_comes_first() {
        let full = Access { active: 3, ..IDLE };
        assert_eq!(reason(&limited(3), full), (Way::Delegate, Reason::Full));
        let queue = Access { active: 1, waiting: 1, ..IDLE };
        assert_eq!(reason(&limited(3), queue), (Way::Delegate, Reason::Full));
        // each kind has a limit of its own
        let read = Access { kind: Kind::Read, ..full };
        assert_eq!(reason(&limited(3), read), (Way::Direct, Reason::Room));
        // where nothing limits, those who wait are in nobody's way
        assert_eq!(reason(&Policy::default(), queue), (Way::Direct, Reason::Room));
    }

    #[test]
    fn what_is_long_is_shared_by_the_workers_that_may_copy_at_one_time() {
        let read = Side { delegate_local: 128 << 10, ..Side::default() };
        let policy = Policy { read, write: Side { limit: 4, large_turns: 2, ..read } };
        let piece = |kind, kib: u64, workers, waiting| {
            policy.piece(kind, kib << 10, workers, waiting) >> 10
        };
        use Kind::{Read, Write};
        assert_eq!([1, 2, 4, 12].map(|workers| piece(Read, 256, workers, 0)), [256, 128, 64, 64]);
        assert_eq!([1, 2, 12].map(|workers| piece(Write, 256, workers, 0)), [256, 128, 128]);
        assert_eq!((piece(Read, 4096, 28, 0), piece(Read, 4096, 4, 0)), (148, 256));
        assert_eq!((piece(Read, 256, 12, 1), piece(Read, 10, 0, 0)), (256, 64));
        assert_eq!(Policy::default().piece(Read, 256 << 10, 12, 0), PIECE_BYTES);
    }

    #[test]
    fn short_accesses_do_not_count_long_ones_and_one_long_one_always_goes() {
        let (short, long) = (4 << 10, 256 << 10);
        let taken = Taken::default().with(2, long, 4).unwrap().with(2, long, 4).unwrap();
        assert_eq!(taken.with(2, long, 4), None);
        let mut taken = taken;
        for _ in 0..4 {
            taken = taken.with(1, short, 4).unwrap();
        }
        assert_eq!((taken.with(1, short, 4), taken.all()), (None, 8));
        assert_eq!(taken.and(1, short), Taken { short: 5, long: 4 });
        let shorts = taken.without(2, long).without(2, long);
        assert_eq!(shorts.with(2, long, 4), Some(Taken { short: 4, long: 2 }));
        assert_eq!(shorts.with(2, long, 4).unwrap().with(2, long, 4), None);
        assert!(Taken { short: 9, long: 9 }.with(1, long, NO_LIMIT).is_some());
    }

    #[test]
    fn large_pieces_on_other_nodes_are_delegated() {
        let remote = Access { is_local: false, ..IDLE };
        assert_eq!(reason(&limited(3), remote), (Way::Direct, Reason::Room));
        let large = Access { bytes: 64 << 10, ..remote };
        assert_eq!(reason(&limited(3), large), (Way::Delegate, Reason::Remote));
        assert_eq!(reason(&Policy::default(), large), (Way::Direct, Reason::Room));
        let larger = Access { bytes: DELEGATE_UNMEASURED, ..remote };
        assert_eq!(reason(&Policy::default(), larger), (Way::Delegate, Reason::Remote));
    }

    #[test]
    fn where_nobody_serves_everybody_copies_for_himself() {
        for access in [IDLE, Access { active: 9, waiting: 9, bytes: 1 << 30, ..IDLE }] {
            for is_local in [true, false] {
                let access = Access { served: false, is_local, ..access };
                assert_eq!(reason(&limited(1), access), (Way::Direct, Reason::NoWorkers));
            }
        }
    }
}
