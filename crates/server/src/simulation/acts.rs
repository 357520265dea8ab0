//! What programs do, and what is to come of it.

use super::program::{Act, Outcome};
use super::story::{COUNTER, LOG, Own, PROGRAMS, Phase, Story, TOKEN_BYTES, token};
use super::strangers::STRANGER;

/// Numbers of files that all programs have open.
pub const SHARED: [(usize, &str); 2] = [(LOG, "/log"), (COUNTER, "/counter")];
/// Turns after which everything has come to its end.
const TURNS_MAX: usize = 2000;

impl Story {
    /// What an idle program does next.
    pub fn choose(&mut self, who: usize) -> Act {
        let one = &self.all[who];
        if one.phase == Phase::Away {
            return Act::Attach;
        }
        if one.is_forgotten && one.phase == Phase::Attached {
            return Act::Detach;
        }
        if let Some((number, path)) = SHARED.get(one.shared) {
            return Act::Open(*number, (*path).to_owned(), false);
        }
        if one.has_lock && self.random.percent(60) {
            return match one.has_read {
                None => Act::Read(COUNTER, 8),
                Some(value) if !one.has_written => {
                    Act::Write(COUNTER, 0, (value + 1).to_le_bytes().to_vec())
                }
                Some(_) => Act::Unlock(COUNTER),
            };
        }
        if !one.has_lock && self.random.percent(15) {
            let waits = self.random.percent(50);
            return if waits { Act::Lock(COUNTER) } else { Act::TryLock(COUNTER) };
        }
        if self.random.percent(30) {
            let one = &mut self.all[who];
            one.tokens += 1;
            return Act::Append(LOG, token(who, one.tokens));
        }
        self.choose_own(who)
    }

    /// Something with files of its own.
    fn choose_own(&mut self, who: usize) -> Act {
        let what = self.random.below(100);
        let (at, len) = (self.random.below(20_000), self.random.below(20_000));
        let fill = self.random.below(256) as u8;
        let one = &mut self.all[who];
        let mut new_name = |kind: &str| {
            one.names += 1;
            format!("/{kind}-{who}-{}", one.names)
        };
        let known = |own: &Own| !own.is_uncertain;
        let pick = |is_it: &dyn Fn(&Own) -> bool| {
            let all: Vec<usize> =
                (0..one.files.len()).filter(|it| is_it(&one.files[*it])).collect();
            (!all.is_empty()).then(|| all[at % all.len()])
        };
        let open = pick(&|own| known(own) && own.is_open);
        let named = pick(&|own| known(own) && own.name.is_some());
        match (what, open, named) {
            // a long one, which is stored as it comes
            (0..4, Some(file), _) => {
                let (at, len) = (at as u64 / 4096 * 4096, 33_000 + 5 * len);
                Act::Write(file + SHARED.len(), at, vec![fill; len])
            }
            (4..30, Some(file), _) => Act::Write(file + SHARED.len(), at as u64, vec![fill; len]),
            (30..50, Some(file), _) => Act::Read(file + SHARED.len(), 160_000),
            (50..60, Some(file), _) => Act::Close(file + SHARED.len()),
            (60..70, _, Some(file)) => Act::Remove(one.files[file].name.clone().unwrap()),
            (70..80, _, Some(file)) => {
                let from = one.files[file].name.clone().unwrap();
                Act::Rename(from, new_name("moved"))
            }
            (80..85, ..) => Act::MakeDirectory(new_name("dir")),
            _ => {
                let number = one.files.len() + SHARED.len();
                Act::Open(number, new_name("file"), true)
            }
        }
    }

    /// A program is done with what it did.
    pub fn is_done(&mut self, who: usize, outcome: Outcome) {
        let act = self.all[who].act.take().unwrap();
        if let Outcome::Failed(error) = &outcome {
            assert!(self.all[who].is_forgotten, "{who}: {act:?} failed: {error}");
            return self.has_perhaps_done(who, act);
        }
        let is_forgotten = self.all[who].is_forgotten;
        match (act, outcome) {
            (Act::Attach, _) => self.all[who].phase = Phase::Attached,
            (Act::Append(LOG, token), Outcome::Number(at)) => self.log.push((at, token)),
            (Act::Lock(_), _) | (Act::TryLock(_), Outcome::Number(1)) => self.has_locked(who),
            (Act::Read(COUNTER, _), Outcome::Bytes(bytes)) if !is_forgotten => {
                self.has_read_counter(who, &bytes);
            }
            (Act::Write(COUNTER, ..), _) if !is_forgotten => {
                self.counter += 1;
                self.all[who].has_written = true;
            }
            (act, outcome) => self.has_done_own(who, act, outcome),
        }
    }

    fn has_locked(&mut self, who: usize) {
        if self.all[who].is_forgotten {
            return;
        }
        let others = self.all.iter().enumerate().filter(|(_, one)| one.has_lock);
        let others: Vec<usize> = others.map(|(other, _)| other).collect();
        assert!(others.is_empty(), "{who} has the lock, and so have {others:?}");
        let one = &mut self.all[who];
        (one.has_lock, one.has_read, one.has_written) = (true, None, false);
        self.counts.locks += 1;
    }

    fn has_read_counter(&mut self, who: usize, bytes: &[u8]) {
        let value = u64::from_le_bytes(bytes.try_into().unwrap());
        let more = u64::from(self.counter_is_uncertain);
        assert!((self.counter..=self.counter + more).contains(&value), "{value}");
        (self.counter, self.counter_is_uncertain) = (value, false);
        self.all[who].has_read = Some(value);
    }

    fn has_done_own(&mut self, who: usize, act: Act, outcome: Outcome) {
        let one = &mut self.all[who];
        let named = |files: &mut Vec<Own>, name: &str| {
            files.iter().position(|own| own.name.as_deref() == Some(name)).unwrap()
        };
        match act {
            Act::Open(number, ..) if number < SHARED.len() => {
                one.shared += 1;
                one.opens += 1;
            }
            Act::Open(_, name, _) => {
                one.opens += 1;
                one.files.push(Own { name: Some(name), is_open: true, ..Own::default() });
            }
            Act::Close(number) => {
                one.opens -= 1;
                one.files[number - SHARED.len()].is_open = false;
            }
            Act::Write(number, at, bytes) if number >= SHARED.len() => {
                let (content, at) = (&mut one.files[number - SHARED.len()].content, at as usize);
                let end = at + bytes.len();
                if !bytes.is_empty() && content.len() < end {
                    content.resize(end, 0);
                }
                content[at.min(end - bytes.len())..][..bytes.len()].copy_from_slice(&bytes);
            }
            Act::Read(number, _) if number >= SHARED.len() => {
                let content = &one.files[number - SHARED.len()].content;
                assert!(outcome == Outcome::Bytes(content.clone()), "{who} reads something else");
            }
            Act::Remove(name) => {
                let file = named(&mut one.files, &name);
                one.files[file].name = None;
            }
            Act::Rename(from, to) => {
                let file = named(&mut one.files, &from);
                one.files[file].name = Some(to);
            }
            Act::MakeDirectory(name) => one.directories.push(name),
            Act::Detach => self.has_left(who),
            _ => {}
        }
    }

    fn has_left(&mut self, who: usize) {
        if let Some(link) = self.all[who].link.and_then(|id| self.world.links.get_mut(&id)) {
            link.ends_in_order = true;
        }
        self.leave_link(who);
        let one = &mut self.all[who];
        one.phase = Phase::Away;
        (one.opens, one.shared, one.is_forgotten, one.has_lock) = (0, 0, false, false);
        one.files.iter_mut().for_each(|own| own.is_open = false);
    }

    /// A program was told that it is not known whether this was done.
    fn has_perhaps_done(&mut self, who: usize, act: Act) {
        let one = &mut self.all[who];
        let is_its = |own: &Own, name: &String| own.name.as_ref() == Some(name);
        match act {
            Act::Append(LOG, token) => self.log_perhaps.push(token),
            Act::Open(number, ..) if number >= SHARED.len() => {
                one.files.push(Own { is_uncertain: true, ..Own::default() });
            }
            Act::Write(number, ..) if number >= SHARED.len() => {
                one.files[number - SHARED.len()].is_uncertain = true;
            }
            Act::Remove(name) | Act::Rename(name, _) => {
                let all = one.files.iter_mut().filter(|own| is_its(own, &name));
                all.for_each(|own| own.is_uncertain = true);
            }
            Act::Attach | Act::Detach => panic!("{who}: {act:?} failed"),
            _ => {}
        }
    }

    /// Everything arrives, all programs come back, and end.
    pub fn settle(&mut self) {
        for turn in 0.. {
            assert!(turn < TURNS_MAX, "no end of it: {:?}", self.phases());
            let before = self.counts.told.len();
            let links: Vec<usize> = self.world.links.keys().copied().collect();
            for id in links {
                self.bring_all(id);
            }
            self.end_grace();
            // a stranger may have locks
            while let Some(at) = self.world.lost.iter().position(|(_, who)| *who == STRANGER) {
                self.world.end_linger(at);
            }
            let is_idle = |it: &super::story::One| it.act.is_none() && it.phase == Phase::Attached;
            let idle: Vec<usize> = (0..PROGRAMS).filter(|who| is_idle(&self.all[*who])).collect();
            idle.into_iter().for_each(|who| self.begin_with(who, Act::Detach));
            if self.all.iter().all(|one| one.phase == Phase::Away) && self.world.links.is_empty() {
                break;
            }
            if self.counts.told.len() == before {
                // a frame whose length has changed may be waited for to its end
                let links: Vec<usize> = self.world.links.keys().copied().collect();
                links.into_iter().for_each(|id| self.cut(id));
            }
        }
        while !self.world.lost.is_empty() {
            self.world.end_linger(0);
        }
    }

    fn phases(&self) -> Vec<(Phase, &Option<Act>)> {
        self.all.iter().map(|one| (one.phase, &one.act)).collect()
    }

    /// Brings all that is under way over a connection.
    fn bring_all(&mut self, id: usize) {
        let Some(link) = self.world.links.get(&id) else { return };
        let (up, down) = (link.to_service.len(), link.to_program.len());
        if link.far.is_some() && up > 0 {
            self.bring_to_service(id, up);
        }
        if self.world.links.contains_key(&id) && down > 0 {
            self.bring_to_program(id, down);
        }
        let Some(link) = self.world.links.get(&id) else { return };
        match (link.near.is_some(), link.far.is_some()) {
            (true, false) if link.to_program.is_empty() => self.cut(id),
            (false, true) => self.hear_end(id),
            _ => {}
        }
    }

    /// What the pool has is what programs were told.
    pub fn verify(&mut self) {
        let pool = self.world.pool();
        let log = pool.read("/log").unwrap();
        for (at, token) in &self.log {
            assert_eq!(log.get(*at as usize..*at as usize + TOKEN_BYTES), Some(&token[..]));
        }
        let mut seen: Vec<&[u8]> = log.chunks(TOKEN_BYTES).collect();
        let mut told: Vec<&[u8]> = self.log.iter().map(|(_, token)| &token[..]).collect();
        // each that was perhaps appended was once, or not at all
        let perhaps = self.log_perhaps.iter().filter(|token| seen.contains(&&token[..]));
        told.extend(perhaps.map(|token| &token[..]));
        seen.sort_unstable();
        told.sort_unstable();
        assert_eq!(seen, told);
        let counter = pool.read("/counter").unwrap();
        let counter = u64::from_le_bytes(counter.try_into().unwrap());
        let more = u64::from(self.counter_is_uncertain);
        assert!((self.counter..=self.counter + more).contains(&counter), "{counter}");
        for one in &self.all {
            let certain = one.files.iter().filter(|own| !own.is_uncertain);
            for (name, own) in certain.filter_map(|own| Some((own.name.as_ref()?, own))) {
                assert!(pool.read(name).unwrap() == own.content, "{name}");
            }
            one.directories.iter().for_each(|name| assert!(pool.metadata(name).unwrap().is_dir()));
        }
        let is_certain = self.all.iter().flat_map(|one| &one.files).all(|own| !own.is_uncertain);
        if is_certain {
            let files = self.all.iter().flat_map(|one| &one.files);
            let named = files.filter(|own| own.name.is_some()).count();
            let directories: usize = self.all.iter().map(|one| one.directories.len()).sum();
            let there = pool.read_dir("/").unwrap().count();
            // a directory whose making was not told may be there
            assert!(there >= named + directories + SHARED.len(), "{there}");
        }
    }
}
