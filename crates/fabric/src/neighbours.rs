//! Endpoints of shared memory in one process: one that another one has met is not closed before
//! that one is dropped, too.
//!
//! libfabric's shm (1.17) maps the memory of another process by itself, but has an endpoint use
//! that of its own process as it is; where it was closed, the process ends.

use std::collections::BTreeMap;

use parking_lot::Mutex;

/// What belongs to an endpoint that nobody has any more.
#[derive(Debug)]
struct One<T> {
    /// Those who have met it.
    users: usize,
    closing: Option<T>,
}

/// Endpoints of this process, by their names.
#[derive(Debug)]
pub struct Neighbours<T>(Mutex<BTreeMap<Vec<u8>, One<T>>>);

/// The process in the name of an endpoint of shared memory, `fi_shm://PID:...`.
fn process(name: &[u8]) -> Option<&[u8]> {
    let rest = name.strip_prefix(b"fi_shm://")?;
    rest.split(|byte| !byte.is_ascii_digit()).next()
}

/// Whether these two share memory and a process.
pub fn are_neighbours(one: &[u8], other: &[u8]) -> bool {
    process(one).is_some_and(|it| process(other) == Some(it))
}

impl<T> Neighbours<T> {
    pub const fn new() -> Neighbours<T> {
        Neighbours(Mutex::new(BTreeMap::new()))
    }

    /// There is one of this name.
    pub fn add(&self, name: &[u8]) {
        if process(name).is_some() {
            self.0.lock().insert(name.to_vec(), One { users: 0, closing: None });
        }
    }

    /// Meets one of this name, if it is there. It stays meanwhile, and longer where `meet` says so.
    pub fn meet(&self, name: &[u8], meet: impl FnOnce() -> bool) -> bool {
        let mut all = self.0.lock();
        let Some(one) = all.get_mut(name).filter(|one| one.closing.is_none()) else { return false };
        let has_met = meet();
        one.users += usize::from(has_met);
        has_met
    }

    /// One is dropped that has met this one, if any: closes what nobody uses any more.
    pub fn drop(&self, (own, met): (&[u8], Option<&[u8]>), closing: T, close: impl Fn(T)) {
        let mut all = self.0.lock();
        match all.get_mut(own) {
            Some(one) => one.closing = Some(closing),
            None => close(closing),
        }
        if let Some(one) = met.and_then(|name| all.get_mut(name)) {
            one.users -= 1;
        }
        for name in [Some(own), met].into_iter().flatten() {
            if all.get(name).is_some_and(|one| one.users == 0 && one.closing.is_some()) {
                all.remove(name).and_then(|one| one.closing).map(&close);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn who_was_met_stays_until_the_other_one_goes() {
        let (all, closed) = (Neighbours::new(), RefCell::new(Vec::new()));
        let close = |number: u32| closed.borrow_mut().push(number);
        let (one, other, third) = (b"fi_shm://7:0:1", b"fi_shm://7:0:2", b"fi_shm://7:0:3");
        [one, other, third].iter().for_each(|name| all.add(*name));
        assert!(all.meet(one, || true) && all.meet(other, || true) && !all.meet(third, || false));
        all.drop((third, None), 3, close);
        assert_eq!(*closed.borrow(), [3]);
        assert!(!all.meet(third, || true), "it has gone");
        all.drop((one, Some(other)), 1, close);
        assert_eq!(*closed.borrow(), [3], "the other one uses it");
        assert!(!all.meet(one, || true), "it is about to go");
        all.drop((other, Some(one)), 2, close);
        assert_eq!(*closed.borrow(), [3, 2, 1]);
        // one that has no memory in common with others
        all.drop((b"\x02\0", None), 4, close);
        assert_eq!(*closed.borrow(), [3, 2, 1, 4]);
        assert!(are_neighbours(one, other) && !are_neighbours(one, b"fi_shm://77:0:1"));
        assert!(!are_neighbours(b"\x02\0", b"\x02\0"));
    }
}
