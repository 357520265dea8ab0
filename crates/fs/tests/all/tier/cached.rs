//! How much DRAM the caches of the devices take.

use crate::common::{TestPool, content, make, pattern};
use crate::tier::faulty::write_back_all;
use crate::tier::{MIB, tiered};
use pool::FormatOptions;

/// Slices on one node share what was set for it, and many readers do not make it more.
#[test]
fn caches_take_what_was_set_for_each_node() {
    let two_nodes = FormatOptions { virtual_nodes: Some(2), ..tiered(4, 16 * MIB, &[48 * MIB]) };
    let mut pool = TestPool::with(&two_nodes);
    pool.open.tier_cache_bytes = Some(2 * MIB);
    for alone in [false, true] {
        let fs = if alone { pool.start_alone() } else { pool.start() };
        let file = make(&fs, if alone { "one" } else { "other" });
        let data = pattern(1, 16 * MIB as usize);
        fs.write(&file, 0, &data).unwrap();
        write_back_all(&fs, 4096);
        fs.evict_caches();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| assert!(content(&fs, &file) == data));
            }
        });
        let stats = fs.tier_stats().unwrap();
        let cached = stats.cached_bytes * 8 / MIB;
        // of 4 MiB: evictors keep a sixteenth free
        assert!((29..=32).contains(&cached), "{cached} eighths of a MiB: {stats:?}");
        fs.close().unwrap();
    }
    pool.assert_clean();
}
