//! A list of few things, without memory of its own: states are copied and compared by millions.

use std::ops::Deref;

/// At most so many things, in order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Few<T, const MOST: usize> {
    // behind the length there are defaults, so that equal lists are equal bytes
    items: [T; MOST],
    length: u8,
}

impl<T: Copy + Default, const MOST: usize> Default for Few<T, MOST> {
    fn default() -> Few<T, MOST> {
        Few { items: [T::default(); MOST], length: 0 }
    }
}

impl<T: Copy + Default, const MOST: usize> Few<T, MOST> {
    /// Adds one behind all others.
    pub fn push(&mut self, item: T) {
        self.items[usize::from(self.length)] = item;
        self.length += 1;
    }

    /// Takes one away; those behind it move up.
    pub fn remove(&mut self, at: usize) -> T {
        let item = self[at];
        self.items.copy_within(at + 1.., at);
        self.items[MOST - 1] = T::default();
        self.length -= 1;
        item
    }

    /// Keeps those of which this is so.
    pub fn retain(&mut self, keep: impl Fn(&T) -> bool) {
        *self = self.iter().copied().filter(keep).collect();
    }
}

impl<T, const MOST: usize> Deref for Few<T, MOST> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.items[..usize::from(self.length)]
    }
}

impl<T: Copy + Default, const MOST: usize> FromIterator<T> for Few<T, MOST> {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Few<T, MOST> {
        let mut few = Few::default();
        items.into_iter().for_each(|item| few.push(item));
        few
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_the_same_are_the_same() {
        let mut few: Few<u8, 3> = [1, 2, 3].into_iter().collect();
        assert_eq!(few.remove(1), 2);
        assert_eq!(few[..], [1, 3]);
        few.retain(|it| *it == 3);
        let mut other = Few::default();
        other.push(3);
        assert_eq!(few, other);
    }
}
