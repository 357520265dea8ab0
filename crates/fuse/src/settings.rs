//! What the mount agrees on with the kernel.

use crate::Wishes;
use crate::service::REQUEST_BYTES_MAX;
use crate::wire::{Capabilities, InitAnswer, InitAsk, MAJOR, MINOR, MINOR_MIN};

/// Requests that the kernel may have on their way in the background (read-ahead, direct I/O).
const BACKGROUND_REQUESTS_MAX: u16 = 64;
/// As many as that, and the kernel slows those down who make more of them.
const CONGESTION_THRESHOLD: u16 = BACKGROUND_REQUESTS_MAX / 4 * 3;
/// The kernel's pages, bytes: it counts the largest request in them.
pub(crate) const PAGE_BYTES: usize = 4096;

/// What was agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Agreed {
    pub(crate) capabilities: Capabilities,
    pub(crate) answer: InitAnswer,
}

/// What the kernel is asked to do, where it can. Not among it: the write-back cache, opens that
/// the server does not see, files that the kernel reads by itself; and opens that cut the file,
/// before the kernel has looked whether that may be: whether the file is a program that runs.
fn wanted(wishes: Wishes) -> Capabilities {
    let mut wanted = Capabilities::ASYNC_READ
        .and(Capabilities::BIG_WRITES)
        .and(Capabilities::DO_READDIRPLUS)
        .and(Capabilities::READDIRPLUS_AUTO)
        .and(Capabilities::ASYNC_DIO)
        .and(Capabilities::PARALLEL_DIROPS)
        .and(Capabilities::MAX_PAGES)
        .and(Capabilities::CACHE_SYMLINKS)
        // Else every write asks first for the file's security.capability.
        .and(Capabilities::HANDLE_KILLPRIV_V2)
        .and(Capabilities::SETXATTR_EXT)
        .and(Capabilities::INIT_EXT)
        .and(Capabilities::CREATE_SUPP_GROUP)
        .and(Capabilities::DIRECT_IO_ALLOW_MMAP);
    if !wishes.sole_door {
        wanted = wanted.and(Capabilities::AUTO_INVAL_DATA);
    }
    if wishes.locks {
        wanted = wanted.and(Capabilities::POSIX_LOCKS).and(Capabilities::FLOCK_LOCKS);
    }
    if wishes.acls {
        wanted = wanted.and(Capabilities::POSIX_ACL).and(Capabilities::DONT_MASK);
    }
    wanted
}

/// Settles what kernel and server do together. `offered` is what the kernel can, less `masked`,
/// which a test takes away to see what an older kernel would get. `None` when the kernel speaks
/// another version of the protocol.
pub(crate) fn agree(
    ask: &InitAsk,
    offered: Capabilities,
    masked: Capabilities,
    wishes: Wishes,
) -> Option<Agreed> {
    if ask.major != MAJOR || ask.minor < MINOR_MIN {
        return None;
    }
    let wanted = wanted(wishes);
    let capabilities = wanted.common(offered.without(masked));
    tracing::info!(
        minor = ask.minor,
        used = ?capabilities,
        missing = ?wanted.without(capabilities),
        unused = ?offered.without(wanted),
        "agreed with the kernel"
    );
    let answer = InitAnswer {
        major: MAJOR,
        minor: MINOR.min(ask.minor),
        max_readahead: ask.max_readahead.min(REQUEST_BYTES_MAX as u32),
        flags: capabilities.0 as u32,
        max_background: BACKGROUND_REQUESTS_MAX,
        congestion_threshold: CONGESTION_THRESHOLD,
        max_write: REQUEST_BYTES_MAX as u32,
        time_granularity: 1,
        max_pages: (REQUEST_BYTES_MAX / PAGE_BYTES) as u16,
        flags2: (capabilities.0 >> 32) as u32,
        ..InitAnswer::default()
    };
    Some(Agreed { capabilities, answer })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASK: InitAsk = InitAsk { major: MAJOR, minor: 38, max_readahead: 131_072, flags: 0 };
    const ALL: Capabilities = Capabilities(u64::MAX);
    const NONE: Capabilities = Capabilities(0);

    #[test]
    fn what_the_kernel_lacks_or_a_test_masks_is_not_asked_for() {
        let wishes = Wishes { sole_door: true, locks: true, acls: true };
        let all = agree(&ASK, ALL, NONE, wishes).unwrap();
        assert!(all.capabilities.has(Capabilities::POSIX_LOCKS.and(Capabilities::POSIX_ACL)));
        assert!(!all.capabilities.has(Capabilities::AUTO_INVAL_DATA));
        let masked = Capabilities::FLOCK_LOCKS.and(Capabilities::DIRECT_IO_ALLOW_MMAP);
        let less = agree(&ASK, ALL, masked, wishes).unwrap();
        assert_eq!(less.capabilities, all.capabilities.without(masked));
        assert_eq!(less.answer.flags2, all.answer.flags2 & !(1 << 4));
        let none = agree(&ASK, NONE, NONE, wishes).unwrap();
        assert_eq!((none.answer.flags, none.answer.flags2), (0, 0));
    }

    #[test]
    fn nothing_is_asked_for_that_would_change_what_calls_mean() {
        for wishes in [Wishes::default(), Wishes { sole_door: true, ..Wishes::default() }] {
            let agreed = agree(&ASK, ALL, NONE, wishes).unwrap().capabilities;
            for bit in [1, 6, 10, 16, 17, 19, 20, 24, 37] {
                assert!(!agreed.has(Capabilities(1 << bit)), "{bit}");
            }
            assert_ne!(agreed.has(Capabilities::AUTO_INVAL_DATA), wishes.sole_door);
        }
    }

    #[test]
    fn versions_meet_at_the_lower_one() {
        let minor = |minor: u32| {
            let ask = InitAsk { minor, ..ASK };
            agree(&ask, ALL, NONE, Wishes::default()).map(|agreed| agreed.answer.minor)
        };
        assert_eq!(minor(38), Some(38));
        assert_eq!(minor(MINOR + 1), Some(MINOR));
        assert_eq!(minor(MINOR_MIN - 1), None);
        let other = InitAsk { major: MAJOR + 1, ..ASK };
        assert_eq!(agree(&other, ALL, NONE, Wishes::default()), None);
    }
}
