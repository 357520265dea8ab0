//! One kind of damage after the other.

use crate::repair::planted::{
    ALL, BLOCK, SLICES, damage, images, images_after_more, pairs, repaired,
};

#[test]
fn a_whole_pool_comes_back_as_it_is() {
    for closed in [true, false] {
        let (report, came) = repaired(&images(closed));
        assert!(came.is_all(), "{came:?}");
        assert!(report.done.is_empty() && report.left.is_empty(), "{report:?}");
    }
}

/// Both copies of each page: what lay in it is lost, and nothing else.
#[test]
fn any_page_of_the_trees_can_be_lost() {
    for closed in [true, false] {
        let good = images(closed);
        let (mut all, mut fewest) = (0, ALL);
        let pages = pairs(&good);
        for pair in &pages {
            let mut images = good.clone();
            pair.iter().for_each(|place| damage(&mut images, *place));
            let (report, came) = repaired(&images);
            let back = came.files.len() as u64;
            // pages that no tree has any more, and free-space trees, cost nothing
            all += u64::from(came.is_all());
            fewest = fewest.min(back);
            assert!(came.is_all() || !report.done.is_empty(), "{came:?}");
            let told = report.done.iter().map(|finding| &finding.what).collect::<Vec<_>>();
            let (slice, number) = pair[0];
            let is_leaf = good[slice][number * BLOCK + 5] == 0;
            assert!(back + 70 >= ALL || !is_leaf, "{back} of {ALL} files: {told:?}");
            assert!(back >= ALL / 4, "{back} of {ALL} files: {told:?}");
        }
        println!("{} pages: {all} without a loss, {fewest} of {ALL} files at least", pages.len());
        assert!(!closed || all < pages.len() as u64, "no page was missed");
    }
}

/// The topmost page of each tree: most of what hangs from it is to be had from the checkpoint
/// before.
#[test]
fn the_top_of_a_tree_comes_from_the_checkpoint_before() {
    let good = images_after_more();
    let (mut tops, mut fewest) = (0, ALL);
    for pair in pairs(&good) {
        let (slice, number) = pair[0];
        if good[slice][number * BLOCK + 5] == 0 {
            continue;
        }
        let mut images = good.clone();
        pair.iter().for_each(|place| damage(&mut images, *place));
        let (report, came) = repaired(&images);
        let back = came.files.len() as u64;
        fewest = fewest.min(back);
        let older = |finding: &&fs::Finding| finding.what.contains("from the checkpoint before");
        tops += u64::from(report.done.iter().any(|finding| older(&finding)));
        assert!(back + 5 >= ALL, "{back} of {ALL} files: {:?}", report.done);
    }
    assert!(tops >= 2, "{tops} trees lost their top, {fewest} files came back at least");
}

#[test]
fn roots_can_be_lost() {
    let good = images(true);
    for slice in 0..SLICES {
        for slots in [vec![1, 4], vec![2, 5], vec![1, 2, 4, 5]] {
            let mut images = good.clone();
            slots.iter().for_each(|number| damage(&mut images, (slice, *number)));
            let (report, came) = repaired(&images);
            if slots.len() == 4 {
                // half of the trees is gone; of the rest, what can be read is there
                assert!(!report.done.is_empty() && came.files.len() as u64 > ALL / 4, "{came:?}");
            }
        }
    }
}

/// Blocks of data: reading them is an error, before and after.
#[test]
fn damaged_data_is_left_where_it_is() {
    let good = images(true);
    let first = |bytes: &[u8]| u64::from_le_bytes(bytes[..8].try_into().unwrap());
    let is_data = |bytes: &[u8]| first(bytes) < ALL && first(&bytes[8..]) < 3 && bytes[16] != 0;
    let mut damaged = 0;
    let mut images = good.clone();
    for image in &mut images {
        for bytes in image.chunks_mut(BLOCK).filter(|bytes| is_data(bytes)).step_by(17) {
            bytes[2000] ^= 1;
            damaged += 1;
        }
    }
    let (report, came) = repaired(&images);
    assert!(damaged > 10 && came.errors == damaged, "{damaged}: {came:?}");
    assert_eq!(report.left.len() as u64, damaged);
    assert!(report.done.is_empty(), "{report:?}");
}

/// Every chunk of the log of a pool that was killed.
#[test]
fn parts_of_the_log_can_be_lost() {
    let good = images(false);
    for slice in 0..SLICES {
        for chunk in 0..8 {
            let mut images = good.clone();
            for number in 0..4 {
                damage(&mut images, (slice, 16 + chunk * 4 + number));
            }
            let (_, came) = repaired(&images);
            assert!(!came.files.is_empty() || came.errors == 0, "{came:?}");
        }
    }
}

/// Bits and pages at random, many at once.
#[test]
fn heaps_of_damage_leave_a_pool() {
    let cases: u64 = std::env::var("NEARSIDE_REPAIR_CASES").map_or(60, |n| n.parse().unwrap());
    for case in 0..cases {
        let mut images = images_of(case % 2 == 0);
        let mut seed = case * 7919 + 1;
        let mut next = |below: usize| (crate::common::random(&mut seed) >> 11) as usize % below;
        for _ in 0..1 + next(40) {
            let (slice, blocks) = (next(SLICES), images[0].len() / BLOCK);
            // superblocks apart: without one there is no slice
            let number = 1 + next(blocks - 2);
            match next(3) {
                0 => damage(&mut images, (slice, number)),
                1 => images[slice][number * BLOCK + next(BLOCK)] ^= 1 << next(8),
                _ => {
                    let from = 1 + next(blocks - 2);
                    let page = images[slice][from * BLOCK..][..BLOCK].to_vec();
                    images[slice][number * BLOCK..][..BLOCK].copy_from_slice(&page);
                }
            }
        }
        let pages = pairs(&images);
        for _ in 0..next(4).min(pages.len()) {
            let pair = pages[next(pages.len())];
            pair.iter().for_each(|place| damage(&mut images, *place));
        }
        let _ = repaired(&images);
    }
}

fn images_of(closed: bool) -> crate::repair::planted::Images {
    static CLOSED: std::sync::OnceLock<crate::repair::planted::Images> = std::sync::OnceLock::new();
    static KILLED: std::sync::OnceLock<crate::repair::planted::Images> = std::sync::OnceLock::new();
    if closed { &CLOSED } else { &KILLED }.get_or_init(|| images(closed)).clone()
}
