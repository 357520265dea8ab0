//! Whether data moves to who uses it.
//!
//! Dragonfly moves a file where its node's memory is overloaded and its model says that within a
//! window it pays. Here each extent keeps what accesses from one other node have lost for its being
//! where it is, by what memories did at that time; it moves when that comes up to what copying
//! costs: if all goes on as it was, that is at most twice what it had to cost.

/// What was lost counts half after so long, where nobody says otherwise, ns: Dragonfly's best
/// window, as its authors found it.
pub const WINDOW_NS: f64 = 6e9;

/// When data moves.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct DataRule {
    /// What was lost counts half after so long, ns.
    pub window_ns: f64,
    /// How it is weighed.
    pub weigh: Weigh,
    /// Where it goes accesses take no more than this part of what they take where it is.
    pub part: f32,
    /// Where it is the memory is busy for this part of the time at least.
    pub busy: f32,
    /// So many windows it stays.
    pub stays: u32,
    /// Who writes to it makes all forgotten: a copy would have been for nothing.
    pub writes_clear: bool,
    /// Who uses it where it is would lose as much by a move as others gain, and counts.
    pub stay_counts: bool,
    /// Where its memory has no time left it goes to the one that has most, whoever reads it,
    pub balances: bool,
    /// and that is so from this part of the time on.
    pub full: f32,
}

/// How gain is weighed against cost.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Weigh {
    /// What was lost is so many times what copying costs.
    Lost(f32),
    /// Dragonfly's model: T_m < 2 * (T_w - K), where K is what copying costs others, over what is
    /// gained each second.
    Window,
}

/// What is known of an extent.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Heat {
    /// The node whose threads have lost most,
    node: u32,
    /// and that, ns.
    lost_ns: f32,
    /// The window in which that was.
    window: u32,
    /// The window from which on it may move.
    from: u32,
}

/// What a move of it is.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Copying {
    /// How long it takes, ns.
    pub ns: f32,
    /// What others lose meanwhile, ns.
    pub others_ns: f32,
    /// What an access takes where it is, and where it would be, ns.
    pub access_ns: [f32; 2],
    /// The part of the time for which the memory is busy where it is.
    pub busy: f32,
}

/// Why data stays.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rests {
    /// Its accesses have lost less than copying costs.
    Cheap,
    /// Where it would go it is no better.
    Alike,
    /// Its memory has time enough.
    Idle,
    /// It has moved not long ago.
    Settling,
}

impl DataRule {
    /// A rule that weighs: when it has lost what copying costs, and would be a fifth faster.
    pub const fn weighs(window_ns: f64) -> DataRule {
        DataRule {
            window_ns,
            weigh: Weigh::Lost(1.0),
            part: 1.0 / 1.2,
            busy: 0.0,
            stays: 2,
            writes_clear: true,
            stay_counts: true,
            balances: true,
            full: 0.9,
        }
    }

    /// The window of a time.
    #[inline]
    pub fn window(&self, now: f64) -> u32 {
        (now / self.window_ns) as u32
    }

    /// What is gained by moving it to the node that its heat says, ns: the next accesses are like
    /// the last ones.
    ///
    /// # Errors
    /// Why it stays.
    #[inline]
    pub fn moves(&self, heat: &Heat, copying: &Copying, now: f64) -> Result<f32, Rests> {
        let [is, would_be] = copying.access_ns;
        let costs = copying.ns + copying.others_ns;
        let pays = match self.weigh {
            Weigh::Lost(times) => heat.lost_ns >= times * costs,
            Weigh::Window => {
                let lost = f64::from(copying.others_ns * would_be / (is - would_be).max(1e-3));
                f64::from(copying.ns) < 2.0 * (self.window_ns - lost)
            }
        };
        let rests = match () {
            () if !pays => Rests::Cheap,
            () if would_be > self.part * is => Rests::Alike,
            () if copying.busy < self.busy => Rests::Idle,
            () if heat.settles(self, now) => Rests::Settling,
            () => return Ok(heat.lost_ns - costs),
        };
        Err(rests)
    }
}

impl Heat {
    /// An access from this node has lost so much.
    #[inline]
    pub fn lost(&mut self, rule: &DataRule, node: u32, ns: f32, now: f64) {
        self.forget(rule.window(now));
        // who loses more than all others stays, whatever their order
        match (self.node == node, self.lost_ns >= ns) {
            (true, _) => self.lost_ns += ns,
            (false, true) => self.lost_ns -= ns,
            (false, false) => (self.node, self.lost_ns) = (node, ns - self.lost_ns),
        }
    }

    /// It was written to.
    #[inline]
    pub fn written(&mut self, rule: &DataRule) {
        if rule.writes_clear {
            self.lost_ns = 0.0;
        }
    }

    /// As two words, for who keeps it in such.
    #[inline]
    pub fn to_words(&self) -> [u64; 2] {
        let word = |high: u32, low: u32| u64::from(high) << 32 | u64::from(low);
        [word(self.node, self.lost_ns.to_bits()), word(self.window, self.from)]
    }

    /// What these two words were made of.
    #[inline]
    pub fn from_words([one, other]: [u64; 2]) -> Heat {
        let (high, low) = (|word: u64| (word >> 32) as u32, |word: u64| word as u32);
        let lost_ns = f32::from_bits(low(one));
        Heat { node: high(one), lost_ns, window: high(other), from: low(other) }
    }

    /// As it is at this time: half of what was lost is forgotten in each window.
    #[must_use]
    pub fn at(mut self, rule: &DataRule, now: f64) -> Heat {
        self.forget(rule.window(now));
        self
    }

    #[inline]
    fn forget(&mut self, window: u32) {
        if window != self.window {
            let passed = window.wrapping_sub(self.window).min(64) as i32;
            self.lost_ns *= 0.5f32.powi(passed);
            self.window = window;
        }
    }

    /// What that has lost, ns.
    pub fn lost_ns(&self) -> f32 {
        self.lost_ns
    }

    /// The node that has lost most.
    pub fn node(&self) -> u32 {
        self.node
    }

    /// Whether it has moved not long ago.
    #[inline]
    pub fn settles(&self, rule: &DataRule, now: f64) -> bool {
        rule.window(now) < self.from
    }

    /// It has moved, or could not.
    pub fn moved(&mut self, rule: &DataRule, now: f64) {
        (self.lost_ns, self.from) = (0.0, rule.window(now).saturating_add(rule.stays));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: DataRule = DataRule::weighs(1e9);
    const COPYING: Copying =
        Copying { ns: 500.0, others_ns: 500.0, access_ns: [300.0, 200.0], busy: 0.5 };

    fn heat(of: &[(u32, f32)]) -> Heat {
        let mut heat = Heat::default();
        of.iter().for_each(|(node, ns)| heat.lost(&RULE, *node, *ns, 0.0));
        heat
    }

    #[test]
    fn what_has_lost_what_copying_costs_moves_to_who_lost_most() {
        assert_eq!(RULE.moves(&heat(&[(1, 999.0)]), &COPYING, 0.0), Err(Rests::Cheap));
        assert_eq!(RULE.moves(&heat(&[(1, 500.0), (1, 600.0)]), &COPYING, 0.0), Ok(100.0));
        let mixed = heat(&[(1, 300.0), (2, 400.0), (2, 900.0), (1, 10.0), (2, 500.0)]);
        assert_eq!((mixed.node(), RULE.moves(&mixed, &COPYING, 0.0)), (2, Ok(490.0)));
        // two who lose alike get nothing
        let mut even = Heat::default();
        (0..1000).for_each(|n| even.lost(&RULE, n % 2, 900.0, 0.0));
        assert_eq!(RULE.moves(&even, &COPYING, 0.0), Err(Rests::Cheap));
    }

    #[test]
    fn two_words_keep_all_of_it() {
        let mut it = heat(&[(3, 5000.0)]);
        it.moved(&RULE, 7e9);
        it.lost(&RULE, 2, 123.0, 8e9);
        assert_eq!(Heat::from_words(it.to_words()), it);
        assert_eq!(Heat::from_words([0; 2]), Heat::default());
        assert_eq!((it.node(), it.lost_ns()), (2, 123.0));
    }

    #[test]
    fn where_it_is_as_good_it_stays() {
        let hot = heat(&[(1, 5000.0)]);
        let slower = Copying { access_ns: [300.0, 260.0], ..COPYING };
        assert_eq!(RULE.moves(&hot, &slower, 0.0), Err(Rests::Alike));
        let overloaded = DataRule { busy: 0.9, ..RULE };
        assert_eq!(overloaded.moves(&hot, &COPYING, 0.0), Err(Rests::Idle));
        assert!(overloaded.moves(&hot, &Copying { busy: 1.0, ..COPYING }, 0.0).is_ok());
    }

    #[test]
    fn writes_and_time_make_it_forget_and_it_settles() {
        let mut it = heat(&[(1, 5000.0)]);
        it.written(&RULE);
        assert_eq!(RULE.moves(&it, &COPYING, 0.0), Err(Rests::Cheap));
        let mut it = heat(&[(1, 3000.0)]);
        it.lost(&RULE, 1, 0.0, 2.5e9);
        assert_eq!(RULE.moves(&it, &COPYING, 2.5e9), Err(Rests::Cheap), "a quarter is left");
        it.moved(&RULE, 2.5e9);
        it.lost(&RULE, 1, 3000.0, 3.5e9);
        assert_eq!(RULE.moves(&it, &COPYING, 3.5e9), Err(Rests::Settling));
        it.lost(&RULE, 1, 3000.0, 4.5e9);
        assert!(RULE.moves(&it, &COPYING, 4.5e9).is_ok());
    }

    #[test]
    fn the_model_of_a_window_asks_whether_copying_is_over_in_time() {
        let window = DataRule { weigh: Weigh::Window, ..DataRule::weighs(6e9) };
        let it = Heat::default();
        let copying = |ns| Copying { ns, others_ns: 0.0, ..COPYING };
        assert!(window.moves(&it, &copying(11e9), 0.0).is_ok());
        assert_eq!(window.moves(&it, &copying(13e9), 0.0), Err(Rests::Cheap));
        // what others lose meanwhile comes back at a third of what they get
        let lossy = Copying { others_ns: 2e9, ..copying(5e9) };
        assert_eq!(window.moves(&it, &lossy, 0.0), Err(Rests::Cheap));
    }
}
