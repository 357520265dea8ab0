//! Two threads that take turns: at each store, flush and fence the one that runs may have to wait
//! until the other has come to a certain place. So what they do to each other is the same each
//! time.
//!
//! A thread that has the turn and waits for a lock that the other holds cannot go on: the other
//! gets the turn. Whether it waits is read from the kernel, so no clock decides what happens (but
//! for a thread that spins, which is given much of a CPU).

use std::cell::Cell;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// After how many of its events each thread lets the other go on: the first thread, then the
/// second, then the first to its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Schedule {
    /// Which of the two begins.
    pub first: usize,
    /// Events of that one before the other begins.
    pub before: usize,
    /// Events of the other before the first one goes on.
    pub between: usize,
}

/// Who may run.
#[derive(Debug)]
pub struct Turns {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    schedule: Schedule,
    /// Who has the turn.
    turn: usize,
    /// How often the turn went over as the schedule says.
    handed: usize,
    /// Events of who has the turn, since it has it.
    events: usize,
    /// Each thread's number in the kernel, once it has come; none again at its end.
    thread: [Option<i32>; 2],
    /// Who is waiting here.
    waits: [bool; 2],
    ended: [bool; 2],
    /// Counts events and changes of the turn.
    steps: u64,
}

thread_local! {
    static ACTOR: Cell<Option<usize>> = const { Cell::new(None) };
}

/// A thread without an event for this long is suspected to spin.
const LONG: Duration = Duration::from_millis(50);
/// A suspected thread that uses this much CPU time spins.
const SPINS: Duration = Duration::from_millis(150);
/// Between two looks at a thread that has the turn.
const LOOK: Duration = Duration::from_micros(50);

impl Turns {
    /// Nobody runs yet.
    pub fn new(schedule: Schedule) -> Turns {
        let state = State {
            schedule,
            turn: schedule.first,
            handed: 0,
            events: 0,
            thread: [None; 2],
            waits: [false; 2],
            ended: [false; 2],
            steps: 0,
        };
        Turns { state: Mutex::new(state), changed: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `act` as one of the two.
    pub fn run<T>(&self, actor: usize, act: impl FnOnce() -> T) -> T {
        ACTOR.set(Some(actor));
        // its number is the name that a link has
        let thread = std::fs::read_link("/proc/thread-self").ok();
        let number = thread.and_then(|path| path.file_name()?.to_str()?.parse().ok());
        let mut state = self.state();
        state.thread[actor] = number;
        drop(self.wait(state, actor));
        let result = act();
        let mut state = self.state();
        state.ended[actor] = true;
        if state.turn == actor {
            state.hand_over();
        }
        self.changed.notify_all();
        ACTOR.set(None);
        result
    }

    /// An event of this thread is about to be recorded: it waits for its turn.
    pub fn event(&self) {
        let Some(actor) = ACTOR.get() else { return };
        let mut state = self.state();
        if state.turn == actor {
            let limit = match (state.handed, actor == state.schedule.first) {
                (0, true) => state.schedule.before,
                (1, false) => state.schedule.between,
                _ => usize::MAX,
            };
            if state.events >= limit {
                state.handed += 1;
                state.hand_over();
                self.changed.notify_all();
            }
        }
        let mut state = self.wait(state, actor);
        state.events += 1;
        state.steps += 1;
    }

    fn wait<'s>(&'s self, mut state: MutexGuard<'s, State>, actor: usize) -> MutexGuard<'s, State> {
        state.waits[actor] = true;
        self.changed.notify_all();
        while state.turn != actor {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.waits[actor] = false;
        state
    }

    /// Gives the turn to the other thread whenever the one that has it cannot go on; until both
    /// have ended.
    pub fn watch(&self) {
        let mut asleep = 0;
        // The latest step, when it was first seen, and the CPU time of the running thread when that
        // was first suspected.
        let (mut step, mut since, mut had) = (u64::MAX, Instant::now(), None);
        loop {
            std::thread::sleep(LOOK);
            let mut state = self.state();
            if state.ended == [true; 2] {
                return;
            }
            let (turn, other) = (state.turn, 1 - state.turn);
            let runs = !state.waits[turn] && !state.ended[turn];
            let sleeps = runs && state.thread[turn].is_some_and(sleeps);
            asleep = if sleeps { asleep + 1 } else { 0 };
            if !runs || step != state.steps {
                (step, since, had) = (state.steps, Instant::now(), None);
            }
            let spins = runs && since.elapsed() > LONG && {
                let now = state.thread[turn].and_then(used).unwrap_or_else(|| since.elapsed());
                now.saturating_sub(*had.get_or_insert(now)) > SPINS
            };
            let stuck = asleep >= 3 || spins;
            if stuck && state.waits[other] {
                asleep = 0;
                state.hand_over();
                self.changed.notify_all();
            }
        }
    }
}

impl State {
    /// The other's turn, unless it has ended.
    fn hand_over(&mut self) {
        if !self.ended[1 - self.turn] {
            self.turn = 1 - self.turn;
        }
        self.events = 0;
        self.steps += 1;
    }
}

/// CPU time of a thread of this process; time in which it waits for a CPU does not count. None: the
/// kernel does not tell.
fn used(thread: i32) -> Option<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/self/task/{thread}/schedstat")).ok()?;
    stat.split(' ').next()?.parse().ok().map(Duration::from_nanos)
}

/// Whether the kernel says that a thread of this process sleeps.
fn sleeps(thread: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat"));
    stat.is_ok_and(|stat| stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('S')))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What two threads of three events each do, in order; each event under a lock of the other's
    /// if `locked`.
    fn order(schedule: Schedule, locked: bool) -> String {
        let (turns, done) = (Turns::new(schedule), Mutex::new(String::new()));
        let lock = Mutex::new(());
        let work = |actor: usize| {
            turns.run(actor, || {
                let _held = locked.then(|| lock.lock().unwrap_or_else(PoisonError::into_inner));
                for _ in 0..3 {
                    turns.event();
                    done.lock().unwrap_or_else(PoisonError::into_inner).push(['a', 'b'][actor]);
                }
            });
        };
        std::thread::scope(|scope| {
            scope.spawn(|| work(0));
            scope.spawn(|| work(1));
            turns.watch();
        });
        done.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    #[test]
    fn threads_take_turns_as_the_schedule_says() {
        for _ in 0..20 {
            let with = |first, before, between| order(Schedule { first, before, between }, false);
            assert_eq!(with(0, 1, 2), "abbaab");
            assert_eq!(with(0, 0, 1), "baaabb");
            assert_eq!(with(1, 2, 9), "bbaaab");
            assert_eq!(with(1, 9, 9), "bbbaaa");
        }
    }

    #[test]
    fn one_that_waits_for_the_other_lets_it_go_on() {
        for _ in 0..20 {
            assert_eq!(order(Schedule { first: 0, before: 1, between: 1 }, true), "aaabbb");
        }
    }
}
