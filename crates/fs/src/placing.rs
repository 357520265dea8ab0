//! What somebody said of where a file's blocks lie, and of what may move: one word, as an inode
//! stores it.
//!
//! ```text
//! 0  u8   kind of layout (`layout.rs`)     3  u8   levers: bits 0, 1 data, 2, 3 threads;
//! 1  u16  node                                     0 on, 1 report, 2 off
//! ```

use crate::layout::Layout;
use placement::{Lever, Levers};

const LEVERS_SHIFT: u32 = 24;
const LEVER_BITS: u32 = 2;

/// Where new blocks go, and how far levers are let; a directory's is what is made in it begins
/// with. What is said of levers at the pool's root directory counts for the whole pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Placing {
    /// Where new blocks go.
    pub layout: Layout,
    /// How far levers are let.
    pub levers: Levers,
}

impl Default for Placing {
    fn default() -> Placing {
        Placing { layout: Layout::Auto, levers: Levers::ALL }
    }
}

impl Placing {
    /// As it is stored.
    pub(crate) fn code(self) -> u32 {
        let Levers { threads, data } = self.levers;
        let levers = lever_code(data) | lever_code(threads) << LEVER_BITS;
        self.layout.code() | levers << LEVERS_SHIFT
    }

    /// What this code says, if it makes sense.
    pub(crate) fn from_code(code: u32) -> Option<Placing> {
        let (layout, levers) = (code & ((1 << LEVERS_SHIFT) - 1), code >> LEVERS_SHIFT);
        if levers >> (2 * LEVER_BITS) != 0 {
            return None;
        }
        let data = lever(levers & ((1 << LEVER_BITS) - 1))?;
        let threads = lever(levers >> LEVER_BITS)?;
        Some(Placing { layout: Layout::from_code(layout)?, levers: Levers { threads, data } })
    }
}

fn lever_code(lever: Lever) -> u32 {
    match lever {
        Lever::On => 0,
        Lever::Report => 1,
        Lever::Off => 2,
    }
}

fn lever(code: u32) -> Option<Lever> {
    match code {
        0 => Some(Lever::On),
        1 => Some(Lever::Report),
        2 => Some(Lever::Off),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_comes_back_and_what_makes_no_sense_does_not() {
        let all = [Lever::On, Lever::Report, Lever::Off];
        for layout in [Layout::Auto, Layout::Stripe, Layout::Node(u16::MAX)] {
            for threads in all {
                for data in all {
                    let placing = Placing { layout, levers: Levers { threads, data } };
                    assert_eq!(Placing::from_code(placing.code()), Some(placing));
                }
            }
        }
        // where nothing was said of levers, as before there were any
        assert_eq!(Placing::default().code(), 0);
        assert_eq!(Placing::from_code(Layout::Node(7).code()).unwrap().levers, Levers::ALL);
        for levers in [3, 3 << 2, 1 << 4, 1 << 7] {
            assert_eq!(Placing::from_code(levers << LEVERS_SHIFT), None, "{levers:#x}");
        }
        assert_eq!(Placing::from_code(4), None, "no such layout");
    }
}
