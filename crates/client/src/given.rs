//! What comes through the socket, for who asked for it through shared memory.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use locks::futex::{Condvar, Mutex};

/// What came and was not taken so far, by what it was asked for as.
#[derive(Debug)]
pub struct Given<K, T> {
    state: Mutex<State<K, T>>,
    comes: Condvar,
}

#[derive(Debug)]
struct State<K, T> {
    came: HashMap<K, T>,
    /// Nothing comes any more.
    has_ended: bool,
}

impl<K, T> Default for Given<K, T> {
    fn default() -> Given<K, T> {
        let state = State { came: HashMap::new(), has_ended: false };
        Given { state: Mutex::new(state), comes: Condvar::new() }
    }
}

impl<K: Eq + Hash, T> Given<K, T> {
    /// It came.
    pub fn put(&self, key: K, what: T) {
        self.state.lock().came.insert(key, what);
        self.comes.notify_all();
    }

    /// Nothing comes any more.
    pub fn end(&self) {
        self.state.lock().has_ended = true;
        self.comes.notify_all();
    }

    /// Waits for it, so long at most. `None`: it did not come.
    pub fn take(&self, key: &K, most: Duration) -> Option<T> {
        let mut state = self.state.lock();
        let comes = |state: &mut State<K, T>| !state.has_ended && !state.came.contains_key(key);
        self.comes.wait_while_for(&mut state, comes, most);
        state.came.remove(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_gets_what_it_asked_for_or_hears_that_nothing_comes() {
        const SOON: Duration = Duration::from_secs(60);
        let given = Given::default();
        std::thread::scope(|threads| {
            let takes = [1, 2, 3].map(|key| {
                let given = &given;
                threads.spawn(move || given.take(&key, SOON))
            });
            given.put(2, "two");
            given.put(1, "one");
            let [one, two, three] = takes;
            assert_eq!((one.join().unwrap(), two.join().unwrap()), (Some("one"), Some("two")));
            given.end();
            assert_eq!(three.join().unwrap(), None);
        });
        assert_eq!(given.take(&1, Duration::ZERO), None, "it was taken");
    }
}
