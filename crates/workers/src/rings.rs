//! Requests of one kind that wait: short ones and long ones, of which as many bytes are served.
//!
//! In one ring a request of a few KiB waited until all longer ones before it were copied. Here it
//! waits for one, and nobody waits for ever: while both wait, who has had fewer bytes is next.

use crate::request::Request;
use crate::ring::{Ring, WORDS};
use crate::sync::{AtomicI64, Ordering};
use crossbeam_utils::CachePadded;
use placement::{PIECE_BYTES, SHORT_BYTES};

/// The two rings.
#[derive(Debug)]
pub(crate) struct Rings {
    short: Ring,
    long: Ring,
    /// Bytes of short requests that were served beyond those of long ones, while both waited.
    /// Workers that come to it at once may take one out of turn, and that is all.
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

    /// Takes the oldest one out, of the long ones or of the others, if there is one.
    pub fn take(&self, is_long: bool) -> Option<[u64; WORDS]> {
        let words = self.of(is_long).take()?;
        let bytes = words[Request::LEN_WORD] as i64;
        // what others are owed is forgotten when none of them waits, and never more than a piece
        let ahead = match self.of(!is_long).is_empty() {
            true => 0,
            false => {
                let more = if is_long { -bytes } else { bytes };
                let ahead = self.ahead.load(Ordering::Relaxed).saturating_add(more);
                ahead.clamp(-(PIECE_BYTES as i64), PIECE_BYTES as i64)
            }
        };
        // ordering: who is next is no more than a hint, and one of two who write at once wins
        self.ahead.store(ahead, Ordering::Relaxed);
        Some(words)
    }

    /// The length of the oldest one, of the long ones or of the others, as it seems; none: there is
    /// none.
    pub fn len_of_next(&self, is_long: bool) -> Option<u64> {
        let ring = self.of(is_long);
        // what is being put in says nothing so far
        let as_its_kind = |len: u64| match is_long {
            true => len.max(SHORT_BYTES + 1),
            false => len.min(SHORT_BYTES),
        };
        (!ring.is_empty()).then(|| as_its_kind(ring.glance(Request::LEN_WORD)))
    }

    /// Whether nothing waits: true at some moment of the call for each of the two.
    pub fn is_empty(&self) -> bool {
        self.short.is_empty() && self.long.is_empty()
    }

    /// How many wait before one of so many bytes, about.
    pub fn before(&self, bytes: u64) -> u64 {
        match bytes > SHORT_BYTES {
            true => self.short.len() + self.long.len(),
            false => self.short.len(),
        }
    }

    /// Whether a long one is next, where both wait.
    pub fn is_long_next(&self) -> bool {
        self.ahead.load(Ordering::Relaxed) > 0
    }

    fn of(&self, is_long: bool) -> &Ring {
        if is_long { &self.long } else { &self.short }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1 << 10;

    fn taken(rings: &Rings) -> Vec<u64> {
        let kib = |words: [u64; WORDS]| words[Request::LEN_WORD] / KIB;
        let next = || {
            let is_long = rings.is_long_next();
            rings.take(is_long).or_else(|| rings.take(!is_long))
        };
        std::iter::from_fn(next).map(kib).collect()
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
        assert_eq!((rings.before(KIB), rings.before(64 * KIB)), (1, 4));
        assert_eq!(
            [true, false].map(|is_long| rings.len_of_next(is_long)),
            [256, 16].map(|it| Some(it * KIB))
        );
        assert_eq!(taken(&rings), [16, 256, 256, 256]);
        assert!(rings.is_empty());
        let rings = asked(&[256, 256, 256]);
        assert_eq!(taken(&rings)[0], 256);
        assert!(rings.take(true).is_none() && rings.len_of_next(true).is_none());
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

    /// Each time a short one was taken there is another one.
    #[test]
    fn long_ones_come_though_there_are_always_short_ones() {
        let rings = asked(&[256, 32, 32]);
        let short = Request::of_length(32 << 10);
        let is_long = || {
            let is_long = rings.is_long_next();
            rings.take(is_long).map(|words| words[Request::LEN_WORD] > SHORT_BYTES)
        };
        let before = (0..100).take_while(|_| {
            let is_long = is_long();
            rings.put(&short);
            is_long == Some(false)
        });
        assert_eq!(before.count(), 1);
        // so it is where the short ones are taken before another one comes
        let rings = asked(&[256, 32]);
        assert!(rings.take(false).is_some() && rings.put(&short) && rings.is_long_next());
    }

    #[test]
    fn what_was_owed_is_paid_back_with_a_piece_at_most() {
        let rings = asked(&[[256; 2].to_vec(), [32; 20].to_vec()].concat());
        // the long ones have no turns for a while
        (0..18).for_each(|_| assert!(rings.take(false).is_some()));
        assert!(rings.is_long_next() && rings.take(true).is_some());
        assert!(!rings.is_long_next());
    }

    #[test]
    fn each_kind_has_room_of_its_own() {
        let rings = asked(&[128; 32]);
        assert!(!rings.put(&Request::of_length(128 << 10)));
        assert!(rings.put(&Request::of_length(4 << 10)));
        assert_eq!(rings.before(64 << 10), 33);
    }
}
