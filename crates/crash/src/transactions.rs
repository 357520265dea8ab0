//! Transactions: writes to several places that happen together or not at all.

use crate::catalog::{BLOCK, Op, op};
use crate::world::pattern;

/// Places of a transaction, each in a block of its own, whose record no chunk of the log holds.
const PLACES: usize = 80;

/// All of them.
pub fn transactions() -> Vec<Op> {
    vec![
        op!("transact", |w| w.commit(&[("/file", 4000, 300), ("/file", 3 * BLOCK, 4096)])),
        op!("transact-small", |w| w.commit(&[
            ("/file", 20, 8),
            ("/file", 90, 8),
            ("/file", 5000, 8)
        ])),
        op!("transact-files", |w| {
            w.commit(&[
                ("/fardir/far", 5000, 60),
                ("/file", 8, 8),
                ("/two", 0, 5000),
                ("/heavy", 9, 9),
            ])
        }),
        op!("transact-large", |w| w
            .commit(&[("/file", 100, 3 * 4096), ("/two", 600 * BLOCK, 9000)])),
        // more than a chunk of the log holds
        op!("transact-long", |w| w.write("/file", 0, &pattern(3, PLACES * 4096)), |w| {
            let places: Vec<_> =
                (0..PLACES as u64).map(|at| ("/file", at * BLOCK + 11 * at, 250)).collect();
            w.commit(&places)
        }),
    ]
}
