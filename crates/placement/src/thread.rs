//! Whether a thread moves to its data.
//!
//! Jericho moves it at the first access to another node, NThread where the node has room. Here it
//! moves when what a run of accesses to one other node has lost for being remote comes up to what
//! moving costs: of that run it has cost at most twice what it had to.

/// When threads move.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ThreadRule {
    /// After so many accesses in a row to one other node, at least,
    pub after: u32,
    /// that have lost so many times what moving costs.
    pub lost: f32,
    /// What moving costs, ns.
    pub costs_ns: f32,
    /// The node's memory is busy for no more than this part of the time, or that of the node where
    /// the thread is, too: then its data has no better place there.
    pub busy: f32,
    /// Each CPU there has no more threads than this, with the one that comes.
    pub crowd: f32,
    /// So long it stays at least, ns; twice as long each time that it goes on before the move has
    /// brought twice what it cost, up to a second.
    pub stays_ns: f32,
}

/// Nothing else is known of a thread than this.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Trail {
    /// The other node that it accessed last,
    node: u32,
    /// so many times in a row,
    run: u32,
    /// and what these lost, ns.
    lost_ns: f32,
    /// What it has gained since it moved, ns: each access what one lost before.
    gained_ns: f32,
    each_ns: f32,
    /// Until when it stays, ns of whatever clock.
    until: f64,
    stays_ns: f32,
}

/// The longest that a thread stays because it moves too often, ns.
const LONGEST_NS: f32 = 1e9;

/// What a node has for one who comes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Room {
    /// The part of the time for which its memory is busy,
    pub busy: f32,
    /// and that of the node where the thread is.
    pub busy_here: f32,
    /// Threads that run there or want to.
    pub threads: u32,
    /// CPUs.
    pub cpus: u32,
    /// Whether the program lets the thread run there.
    pub is_allowed: bool,
}

/// Why a thread stays.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stays {
    /// Too few accesses in a row were to that node.
    Few,
    /// They have lost less than moving costs.
    Cheap,
    /// It has moved not long ago.
    Settling,
    /// The program does not let it run there.
    Forbidden,
    /// The memory there is busy, and that where it is has time for its data.
    Busy,
    /// The CPUs there have enough to do.
    Crowded,
}

impl ThreadRule {
    /// A rule that weighs: after two accesses in a row, when they have lost what moving costs,
    /// where there is room.
    pub const fn weighs(costs_ns: f32) -> ThreadRule {
        ThreadRule { after: 2, lost: 1.0, costs_ns, busy: 0.9, crowd: 1.0, stays_ns: 1e5 }
    }

    /// What a thread gains by going to the node that its trail leads to, ns: the next accesses are
    /// like the last ones.
    ///
    /// # Errors
    /// Why it stays.
    #[inline]
    pub fn moves(&self, trail: &Trail, room: &Room, now: f64) -> Result<f32, Stays> {
        let stays = match () {
            () if trail.run < self.after.max(1) => Stays::Few,
            () if trail.lost_ns < self.lost * self.costs_ns => Stays::Cheap,
            () if now < trail.until => Stays::Settling,
            () if !room.is_allowed => Stays::Forbidden,
            () if room.busy > self.busy && room.busy_here <= self.busy => Stays::Busy,
            () if (room.threads as f32 + 1.0) > self.crowd * room.cpus as f32 => Stays::Crowded,
            () => return Ok(trail.lost_ns - self.costs_ns),
        };
        Err(stays)
    }
}

impl Trail {
    /// That of a thread that has done nothing.
    pub const NEW: Trail = Trail {
        node: 0,
        run: 0,
        lost_ns: 0.0,
        gained_ns: 0.0,
        each_ns: 0.0,
        until: 0.0,
        stays_ns: 0.0,
    };

    /// Whether it is time to ask whether the thread moves.
    #[inline]
    pub fn is_due(&self, rule: &ThreadRule) -> bool {
        self.run >= rule.after.max(1) && self.lost_ns >= rule.lost * rule.costs_ns
    }

    /// It cannot move now, and does not ask before it has stayed for a while.
    pub fn put_off(&mut self, rule: &ThreadRule, now: f64) {
        self.until = self.until.max(now + f64::from(rule.stays_ns));
        (self.run, self.lost_ns) = (0, 0.0);
    }

    /// An access to data on this node took so much longer than it does there.
    #[inline]
    pub fn remote(&mut self, node: u32, lost_ns: f32) {
        if self.node != node {
            (self.node, self.run, self.lost_ns) = (node, 0, 0.0);
        }
        self.run = self.run.saturating_add(1);
        self.lost_ns += lost_ns;
    }

    /// An access to data where it is.
    #[inline]
    pub fn local(&mut self) {
        (self.run, self.lost_ns) = (0, 0.0);
        self.gained_ns += self.each_ns;
    }

    /// What the run has lost, ns.
    pub fn lost_ns(&self) -> f32 {
        self.lost_ns
    }

    /// The node that it leads to.
    pub fn node(&self) -> u32 {
        self.node
    }

    /// The thread has moved there.
    pub fn moved(&mut self, rule: &ThreadRule, now: f64) {
        let has_paid = self.stays_ns == 0.0 || self.gained_ns >= 2.0 * rule.costs_ns;
        let stays = if has_paid { self.stays_ns / 2.0 } else { 2.0 * self.stays_ns };
        self.stays_ns = stays.max(rule.stays_ns).min(LONGEST_NS.max(rule.stays_ns));
        self.until = now + f64::from(self.stays_ns);
        self.each_ns = self.lost_ns / self.run.max(1) as f32;
        (self.run, self.lost_ns, self.gained_ns) = (0, 0.0, 0.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: ThreadRule = ThreadRule::weighs(7500.0);
    const ROOM: Room = Room { busy: 0.5, busy_here: 0.5, threads: 3, cpus: 4, is_allowed: true };

    fn trail(accesses: u32) -> Trail {
        let mut trail = Trail::default();
        (0..accesses).for_each(|_| trail.remote(1, 1000.0));
        trail
    }

    #[test]
    fn who_has_lost_what_moving_costs_moves() {
        assert_eq!(RULE.moves(&trail(1), &ROOM, 0.0), Err(Stays::Few));
        assert_eq!(RULE.moves(&trail(7), &ROOM, 0.0), Err(Stays::Cheap));
        assert_eq!(RULE.moves(&trail(8), &ROOM, 0.0), Ok(500.0));
        // at once, as Jericho has it
        let eager = ThreadRule { after: 1, lost: 0.0, crowd: f32::INFINITY, ..RULE };
        assert!(eager.moves(&trail(1), &Room { threads: 900, ..ROOM }, 0.0).is_ok());
        assert_eq!(eager.moves(&trail(0), &ROOM, 0.0), Err(Stays::Few));
    }

    #[test]
    fn a_local_access_or_one_elsewhere_begins_anew() {
        let mut it = trail(20);
        it.local();
        assert_eq!(RULE.moves(&it, &ROOM, 0.0), Err(Stays::Few));
        let mut it = trail(20);
        it.remote(2, 1000.0);
        assert_eq!((it.node(), RULE.moves(&it, &ROOM, 0.0)), (2, Err(Stays::Few)));
    }

    #[test]
    fn where_there_is_no_room_nobody_goes() {
        for (room, stays) in [
            (Room { is_allowed: false, ..ROOM }, Stays::Forbidden),
            (Room { busy: 0.95, ..ROOM }, Stays::Busy),
            (Room { threads: 4, ..ROOM }, Stays::Crowded),
        ] {
            assert_eq!(RULE.moves(&trail(20), &room, 0.0), Err(stays));
        }
        // it is no worse there than here
        let both = Room { busy: 0.95, busy_here: 0.95, ..ROOM };
        assert!(RULE.moves(&trail(20), &both, 0.0).is_ok());
    }

    #[test]
    fn who_finds_enough_where_it_goes_may_go_on_soon() {
        let mut it = trail(8);
        it.moved(&RULE, 0.0);
        for round in 1..5 {
            // sixteen accesses bring 16 us
            (0..16).for_each(|_| it.local());
            (0..8).for_each(|_| it.remote(1, 1000.0));
            let now = f64::from(round) * 2e5;
            assert!(RULE.moves(&it, &ROOM, now).is_ok(), "{round}");
            it.moved(&RULE, now);
            assert_eq!(it.stays_ns, RULE.stays_ns);
        }
        (0..8).for_each(|_| it.remote(1, 1000.0));
        it.moved(&RULE, 1e6);
        assert_eq!(it.stays_ns, 2.0 * RULE.stays_ns);
    }

    #[test]
    fn who_goes_to_and_fro_stays_ever_longer() {
        let mut it = Trail::default();
        let (mut now, mut moves, mut at) = (0.0, 0, 0);
        // data on the other node, wherever it is
        while now < 1e9 {
            it.remote(1 - at, 1000.0);
            if RULE.moves(&it, &ROOM, now).is_ok() {
                it.moved(&RULE, now);
                (at, moves) = (1 - at, moves + 1);
            }
            now += 10_000.0;
        }
        assert!((8..=16).contains(&moves), "{moves}");
    }
}
