//! Requests of one kind that wait: short ones and long ones, of which as many bytes are served.
//!
//! In one ring a request of a few KiB waited until all longer ones before it were copied. Here it
//! waits for one, and nobody waits for ever: while both wait, who has had fewer bytes is next.

use crate::request::Request;
use crate::ring::{Ring, WORDS};
use crate::sync::{AtomicI64, Ordering};
use crossbeam_utils::CachePadded;
use placement::SHORT_BYTES;

/// The two rings.
#[derive(Debug)]
pub(crate) struct Rings {
    short: Ring,
    long: Ring,
    /// Bytes of short requests that were served beyond those of long ones, while both waited.
    /// Several workers that come to it at once may take one out of turn, and that is all.
    ahead: CachePadded<AtomicI64>,
}

impl Rings {
    /// Empty ones, each for `1 << bits` requests.
    pub fn new(bits: u32) -> Rings {
        let ahead = CachePadded::new(AtomicI64::new(0));
        Rings { short: Ring::new(bits), long: Ring::new(bits), ahead }
    }

    /// Puts a request in; false if there is no room.
    pub fn put(&self, request: &Request) -> bool {
        let ring = if request.len as u64 > SHORT_BYTES { &self.long } else { &self.short };
        ring.put(&request.encode())
    }

    /// Takes the one out that is next, if there is one.
    pub fn take(&self) -> Option<[u64; WORDS]> {
        let is_long = self.is_long();
        let [first, second] = match is_long {
            true => [&self.long, &self.short],
            false => [&self.short, &self.long],
        };
        // somebody else may have taken the last one of the first
        let (words, was_first) = match first.take() {
            Some(words) => (words, true),
            None => (second.take()?, false),
        };
        let bytes = words[Request::LEN_WORD] as i64;
        // ordering: who is next is no more than a hint
        match first.is_empty() || second.is_empty() {
            true => self.ahead.store(0, Ordering::Relaxed),
            false => {
                let ahead = if is_long == was_first { -bytes } else { bytes };
                self.ahead.fetch_add(ahead, Ordering::Relaxed);
            }
        }
        Some(words)
    }

    /// The length of the next one, as it seems.
    pub fn next_len(&self) -> u64 {
        let ring = if self.is_long() { &self.long } else { &self.short };
        ring.glance(Request::LEN_WORD)
    }

    /// Whether nothing waits: true at some moment of the call for each of the two.
    pub fn is_empty(&self) -> bool {
        self.short.is_empty() && self.long.is_empty()
    }

    /// How many wait, about.
    pub fn len(&self) -> u64 {
        self.short.len() + self.long.len()
    }

    fn is_long(&self) -> bool {
        match (self.short.is_empty(), self.long.is_empty()) {
            (false, false) => self.ahead.load(Ordering::Relaxed) > 0,
            (has_no_short, _) => has_no_short,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1 << 10;

    fn taken(rings: &Rings) -> Vec<u64> {
        let kib = |words: [u64; WORDS]| words[Request::LEN_WORD] / KIB;
        std::iter::from_fn(|| rings.take()).map(kib).collect()
    }

    fn asked(kib: &[u64]) -> Rings {
        let rings = Rings::new(5);
        for kib in kib {
            assert!(rings.put(&Request::of_length((kib * KIB) as usize)));
        }
        rings
    }

    #[test]
    fn a_short_one_waits_for_one_long_one_at_most() {
        let rings = asked(&[256, 256, 256, 16]);
        assert_eq!((rings.len(), rings.next_len()), (4, 16 * KIB));
        assert_eq!(taken(&rings), [16, 256, 256, 256]);
        assert!(rings.is_empty());
        let rings = asked(&[256, 256, 256]);
        assert_eq!(taken(&rings)[0], 256);
        assert!(rings.take().is_none());
    }

    #[test]
    fn of_both_as_many_bytes_are_served() {
        let rings = asked(&[[128; 3].to_vec(), [32; 12].to_vec()].concat());
        let shorts = [32; 4];
        let order = [&[32][..], &[128], &shorts, &[128], &shorts, &[128], &[32; 3]].concat();
        assert_eq!(taken(&rings), order);
        // what was counted while both waited is forgotten when one does not
        assert!(
            rings.put(&Request::of_length(64 << 10)) && rings.put(&Request::of_length(4 << 10))
        );
        assert_eq!(taken(&rings), [4, 64]);
    }

    #[test]
    fn each_kind_has_room_of_its_own() {
        let rings = asked(&[128; 32]);
        assert!(!rings.put(&Request::of_length(128 << 10)));
        assert!(rings.put(&Request::of_length(4 << 10)));
        assert_eq!(rings.len(), 33);
    }
}
