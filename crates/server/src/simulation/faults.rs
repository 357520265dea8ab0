//! What goes wrong, in the network and at the services.

use super::acts::SHARED;
use super::program::Act;
use super::story::{COUNTER, One, PROGRAMS, Phase, Story};

impl Story {
    /// The program sees its connection cut; the service does not so far.
    pub fn cut(&mut self, id: usize) {
        let link = self.world.links.get_mut(&id).unwrap();
        let who = link.program;
        let Some(near) = link.near.take() else { return };
        self.counts.cuts += 1;
        self.tell(format!("{id} is cut"));
        near.shutdown(std::net::Shutdown::Both).unwrap();
        drop(near);
        self.all[who].link = None;
        self.react(who);
        self.forget_links();
    }

    /// A bit changes on its way.
    pub fn change(&mut self, id: usize) {
        let link = self.world.links.get_mut(&id).unwrap();
        let to = if self.random.percent(50) { &mut link.to_service } else { &mut link.to_program };
        if !to.is_empty() {
            let at = self.random.below(to.len());
            to[at] ^= 1 << self.random.below(8);
            self.counts.changed += 1;
            self.tell(format!("a bit of {id} changes"));
        }
    }

    /// The first words of a program that came back arrive once more, over another connection. (Who
    /// could repeat more than that could do anything where nothing is encrypted.)
    pub fn repeat(&mut self, id: usize) {
        let link = &self.world.links[&id];
        if link.returns {
            let (who, words) = (link.program, link.words.clone());
            let new = self.world.connect(who, None);
            self.world.links.get_mut(&new).unwrap().to_service.extend(words);
            self.counts.repeated += 1;
            self.tell(format!("the first words of {id} are repeated: {new}"));
        }
    }

    /// The service is killed, and the next one starts.
    pub fn kill(&mut self) {
        self.tell("the service is killed".to_owned());
        self.counts.kills += 1;
        if self.random.percent(30) {
            // what the log had is folded, and what nobody remembers is nowhere any more
            self.tell("the log is folded before".to_owned());
            self.world.pool().checkpoint().unwrap();
        }
        self.world.kill();
        self.all.iter_mut().for_each(|one| one.has_returned = false);
        self.forget_links();
    }

    /// A program is not waited for any more.
    pub fn end_linger(&mut self) {
        if self.world.lost.is_empty() {
            return;
        }
        let at = self.random.below(self.world.lost.len());
        let who = self.world.lost[at].1;
        if self.world.end_linger(at) && who < PROGRAMS {
            self.tell(format!("{who} is not waited for any more"));
            self.forget(who);
        }
    }

    /// A grace comes nearer to its end.
    pub fn end_grace(&mut self) {
        // one that has not opened again all that it had may come too late for that
        let is_back = |one: &One| {
            let link = one.link.and_then(|id| self.world.links.get(&id));
            let is_here = link.is_some_and(|link| link.far.is_some());
            is_here && one.has_returned && one.phase == Phase::Attached
        };
        let is_away = |one: &One| one.phase != Phase::Away && !is_back(one);
        let forgets = self.random.percent(10);
        if !self.world.locks_are_free() {
            let has_lock = |who: &usize| self.all[*who].has_lock && is_away(&self.all[*who]);
            let has_lock: Vec<usize> = (0..PROGRAMS).filter(has_lock).collect();
            if self.world.has_all_locks() {
                // who is on the way back may have it by now
                let is_had = has_lock.is_empty() || self.world.is_locked(SHARED[COUNTER].1);
                assert!(is_had, "{has_lock:?} have a lock, and it is free");
                self.counts.early += 1;
            }
            // or it is to hear that it has
            let asks = |one: &One| matches!(one.act, Some(Act::Lock(_) | Act::TryLock(_)));
            let may_have = |who: &usize| {
                let one = &self.all[*who];
                (one.has_lock || asks(one)) && is_away(one)
            };
            let may_have: Vec<usize> = (0..PROGRAMS).filter(may_have).collect();
            if may_have.is_empty() || forgets {
                self.tell("locks are free".to_owned());
                may_have.into_iter().for_each(|who| self.forget(who));
                self.world.free_locks();
            }
        } else if !self.world.is_over() {
            let away: Vec<usize> = (0..PROGRAMS).filter(|who| is_away(&self.all[*who])).collect();
            if away.is_empty() || forgets {
                self.tell("nobody is awaited".to_owned());
                away.into_iter().for_each(|who| self.forget(who));
                self.world.end_grace();
            }
        }
    }

    /// The service forgets a program.
    fn forget(&mut self, who: usize) {
        let one = &mut self.all[who];
        if std::mem::replace(&mut one.is_forgotten, true) {
            return;
        }
        self.counts.forgotten += 1;
        self.counter_is_uncertain |= matches!(one.act, Some(Act::Write(COUNTER, ..)));
        one.has_lock = false;
    }
}
